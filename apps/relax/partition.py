"""Parts of a Relax module for the accelerator: integers that the compiler computes become functions of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...compiler.frontend.relax import INTEGERS, KINDS, Expr, arguments, graph_of, kind_of, parameters_of
from ...compiler.frontend.source import SINGLE
from ...compiler.intrin import SCOPES, is_instruction
from ...compiler.tvm_compat import IRModule, PrimFunc, Sequential, Var, ir, relax, s_tir, structural_walk
from ...hw.config import Config, load_config
from ...hw.errors import InputError, TilewrightError, UnsupportedError
from ...hw.rounding import CONTRACTS
from ...runtime.registry import device_entry
from ..partition import Groups, partition
from .codegen import (
    CODEGEN,
    Choice,
    carried,
    compiled,
    compiled_schedule,
    is_call_of,
    other_uses,
    symbol_of,
    with_schedules,
)
from .runner import LEFT

_NO_INTEGERS = "is not computed from quantised values"


class Claims:
    """The claims of a dataflow block.

    A claim is a variable of integers that the compiler computes. `needs` has its operands, which are claims or from
    outside, `inside` the variables from there to the claim, itself included, and `left` reasons why integers are not
    claimed. Results of functions that are `scheduled` are on the accelerator as they are.
    """

    def __init__(self, block: Expr, scheduled: Sequence[str] = ()):
        self.bindings = list(block.bindings)
        self.values = {b.var: b.value for b in self.bindings}
        self.needs: dict[Expr, list[Expr]] = {}
        self.inside: dict[Expr, set[Expr]] = {}
        self.left: list[str] = []
        self._order = {b.var: k for k, b in enumerate(self.bindings)}
        self._parameters = parameters_of(self.bindings)
        self._integers: set[Expr] = set()  # variables that are computed, not constant
        constants: set[Expr] = set()
        for b in self.bindings:
            if all(v in constants for v in arguments(b.value)):
                constants.add(b.var)
            elif str(getattr(b.var.ty, "dtype", "")) in INTEGERS:
                self._integers.add(b.var)
                if is_call_of(b.value, scheduled):
                    continue
                reason = self._claim(b.var, b.value)
                self.left += [f"{kind_of(b.value) or 'value'} of {b.var.name!r} {reason}"] if reason else []

    def reads(self, var: Expr, claimed: bool) -> list[Expr]:
        """The block's variables that `var` is computed from: where it is claimed, as its claim does."""
        return [v for v in (self.needs[var] if claimed else arguments(self.values[var])) if v in self.values]

    def live(self, groups: Groups[Expr]) -> tuple[set[Expr], set[Expr]]:
        """(variables that another group or the function reads, claims that compute them) of groups in order."""
        at = {var: k for k, (_, group) in enumerate(groups) for var in group}
        needed, active = {var for var in at if not isinstance(var, relax.DataflowVar)}, set[Expr]()
        for k, (taken, group) in reversed(list(enumerate(groups))):
            for var in reversed(group):
                if var in needed or var in active:
                    active |= {var} if taken else set()
                    for one in self.reads(var, taken):
                        (active if taken and at[one] == k else needed).add(one)
        return needed, active

    def _claim(self, var: Expr, value: Expr) -> str:
        """Claim a variable of integers. Returns why not, or why the quantize of its floats alone; empty otherwise."""
        if not _fixed(var):
            return "has sizes that are not known"
        inside, ends = self._enclosed(var)
        reason = self._refusal(var, inside, ends)
        if reason and kind_of(value) == "relax.quantize" and not self._refusal(var, {var}, [value.args[0]]):
            inside, ends = {var}, [value.args[0]]  # of floats that TVM computes
        elif reason:
            return reason
        self.needs[var], self.inside[var] = ends, inside
        return "" if reason == _NO_INTEGERS else reason

    def _enclosed(self, var: Expr) -> tuple[set[Expr], list[Expr]]:
        """(`var` and all variables between, the integers and values from outside that it is computed from)."""
        inside, ends, waiting = {var}, dict[Expr, None](), list(arguments(self.values[var]))
        while waiting:
            one = waiting.pop(0)
            if one not in self.values or one in self._integers:
                ends[one] = None
            elif one not in inside:
                inside.add(one)
                waiting += arguments(self.values[one])
        return inside, list(ends)

    def _refusal(self, var: Expr, inside: set[Expr], ends: list[Expr]) -> str:
        """Why the compiler does not compute `var` from `ends` in integers; empty where it does."""
        if not KINDS.issuperset(kind_of(self.values[one]) for one in inside):
            return _NO_INTEGERS
        bindings = [self.bindings[k] for k in sorted(self._order[one] for one in inside)]
        inputs = [(f"in{k}", one) for k, one in enumerate(ends)]
        try:
            graph = graph_of(bindings, inputs, [("out", var)], self._parameters, "")
        except UnsupportedError as exc:
            return str(exc).removeprefix(": ")
        given = {name for name, one in inputs if str(one.ty.dtype) == "float32"}
        floats = [
            t for op in graph.ops for t in (*op.inputs, op.output) if t.dtype == "float32" and t.name not in given
        ]
        return _NO_INTEGERS if floats else ""


def _fixed(var: Expr) -> bool:
    """Whether `var` is a tensor of known dtype and sizes, with one dimension or more."""
    shape = getattr(getattr(var.ty, "shape", None), "values", None)
    return bool(shape) and bool(str(var.ty.dtype)) and all(hasattr(n, "value") for n in shape)


class Part(NamedTuple):
    """A function for the accelerator, the block's variables that it takes, and those that it returns."""

    symbol: str
    function: Expr
    takes: list[Expr]
    gives: list[Expr]

    def bindings(self, name: Expr) -> list[Expr]:
        """The call of global variable `name`, and the bindings of its results."""
        call = ir.Call(name, self.takes)
        if len(self.gives) == 1:
            return [relax.VarBinding(self.gives[0], call)]
        whole = relax.DataflowVar("parts", _type(self.gives))
        items = [relax.VarBinding(var, relax.TupleGetItem(whole, k)) for k, var in enumerate(self.gives)]
        return [relax.VarBinding(whole, call), *items]


class Partition:
    """The functions of a module, with their claims for `choice` outlined.

    `module` is the one given where nothing is claimed. `left` are the reasons why integers are not claimed, `scheduled`
    the names of functions that a schedule wrote for the accelerator: TVM has no code for them.
    """

    def __init__(self, mod: Expr, choice: Choice):
        self.scheduled = [
            name.name_hint
            for name, function in mod.functions.items()
            if isinstance(function, PrimFunc) and _is_scheduled(function)
        ]
        self.choice, self.parts, self.left = choice, list[Part](), list[str]()
        self._builder = relax.BlockBuilder(mod)
        for name, function in mod.functions.items():
            if _is_open(function):
                self._function(name, function)
        self.module = self._builder.get() if self.parts else mod

    def _function(self, name: Expr, function: Expr) -> None:
        before = len(self.parts)
        blocks = [
            self._block(name.name_hint, block) if isinstance(block, relax.DataflowBlock) else block
            for block in function.body.blocks
        ]
        if len(self.parts) > before:
            body = relax.SeqExpr(blocks, function.body.body)
            new = relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
            self._builder.update_func(name, new)

    def _block(self, name: str, block: Expr) -> Expr:
        """`block` with calls of the parts of function `name`, which are noted."""
        claims = Claims(block, self.scheduled)
        self.left += claims.left

        def parts_of(groups: Groups[Expr]) -> dict[int, Part | str]:
            needed, active = claims.live(groups)
            found: dict[int, Part | str] = {}
            for k, (taken, group) in enumerate(groups):
                if taken and (mine := [var for var in group if var in active]):
                    part = self._part(f"{name}_{len(self.parts) + k // 2}", claims, mine, needed)
                    count = len(part.gives)
                    why = _idle(part)
                    found[k] = f"{count} result{'s' * (count > 1)} of {name!r}: {why}" if why else part
            return found

        def refused(_: list[Expr], why: str) -> None:
            self.left.append(why)

        groups, parts = partition(
            list(claims.values), claims.reads, claims.needs.keys(), parts_of, refused, first=False
        )
        if not parts:
            return block
        self.parts += parts.values()
        needed, at = claims.live(groups)[0], {b.var: b for b in claims.bindings}
        bindings: list[Expr] = []
        for k, (taken, group) in enumerate(groups):
            if k in parts:
                bindings += parts[k].bindings(self._builder.add_func(parts[k].function, parts[k].symbol))
            elif not taken:
                bindings += [at[var] for var in group if var in needed]
        return relax.DataflowBlock(bindings)

    def _part(self, name: str, claims: Claims, mine: list[Expr], needed: set[Expr]) -> Part:
        """The function of the claims `mine`, which gives those that are `needed` outside."""
        inside = set().union(*(claims.inside[var] for var in mine))
        takes = list(dict.fromkeys(one for var in mine for one in claims.needs[var] if one not in mine))
        gives = [var for var in mine if var in needed]
        function = _outlined([b for b in claims.bindings if b.var in inside], takes, gives)
        function = function.with_attrs({"Codegen": CODEGEN, **self.choice.attributes()})
        symbol = symbol_of(name, function)
        return Part(symbol, function.with_attr("global_symbol", symbol), takes, gives)


def _is_open(function: Expr) -> bool:
    """Whether a function is one of Relax that no other code generator has."""
    known = set(function.attrs.keys()) if function.attrs else set()
    return isinstance(function, relax.Function) and not known & {"Codegen", "Primitive", "Composite"}


def _is_scheduled(function: Expr) -> bool:
    """Whether a function has tensors in scratchpads, or calls instructions."""
    found: list[bool] = []

    def on_block(block: Expr) -> None:
        found.extend(buffer.scope() in SCOPES for buffer in block.alloc_buffers)

    structural_walk(
        function.body, [(s_tir.SBlock, on_block), (ir.Call, lambda call: found.append(is_instruction(call)))]
    )
    return any(found)


def _idle(part: Part) -> str:
    """Why the accelerator does not run `part`; empty if it does."""
    try:
        executable = compiled(part.function)
    except TilewrightError as exc:
        return str(exc)
    launches = bool(executable.launches)
    return "" if launches else "no operator in them is faster on the accelerator"


def _outlined(bindings: Sequence[Expr], takes: Sequence[Expr], gives: Sequence[Expr]) -> Expr:
    """A function of `bindings`, with variables of its own: parameters in0, in1, ... for those that it `takes`."""
    params = [Var(f"in{k}", var.ty) for k, var in enumerate(takes)]
    named = [relax.VarBinding(var, param) for var, param in zip(takes, params)]
    results = [Var(f"out{k}", var.ty) for k, var in enumerate(gives)]
    ends = [relax.VarBinding(result, var) for result, var in zip(results, gives)]
    body = results[0] if len(results) == 1 else relax.Tuple(results)
    block = relax.DataflowBlock([*named, *bindings, *ends])
    function = relax.utils.copy_with_new_vars(relax.Function(params, relax.SeqExpr([block], body), _type(gives)))
    mod = IRModule({ir.GlobalVar("part"): function.with_attr("global_symbol", "part")})
    return relax.transform.CanonicalizeBindings()(mod)["part"].without_attr("global_symbol")


def _type(variables: Sequence[Expr]) -> Expr:
    types = [var.ty for var in variables]
    return types[0] if len(types) == 1 else relax.TupleType(types)


def tilewright_pipeline(config: Config | str = "pynq_z1", on: str = "model", *, contract: str = SINGLE) -> Expr:
    """A pass that gives the accelerator the parts of a quantised Relax module that it computes; TVM compiles the rest.

    `on` is the device by name, as `tilewright run --on` takes it, and `contract` the rounding contract of the
    requantisation. A module in which nothing can be claimed stays as it is. Functions that a schedule wrote for the
    accelerator run there where `call_tir` calls them. Raises `ConfigError`, `UnsupportedError` for an unknown device,
    `InputError` for another contract; the pass raises as `tilewright.build` for such a function.

    >>> from tilewright.apps.relax import tilewright_pipeline
    >>> tilewright_pipeline("tiny", on="timing").info.name
    'tilewright'
    """
    choice = _choice(config, on, contract)

    @ir.transform.module_pass(opt_level=0, name="tilewright.CarryPrograms")
    def carry(mod: Expr, _ctx: Expr) -> Expr:
        return carried(mod)

    compile_parts = Sequential([relax.transform.Normalize(), relax.transform.RunCodegen(), carry])

    @ir.transform.module_pass(opt_level=0, name="tilewright")
    def pipeline(mod: Expr, _ctx: Expr) -> Expr:
        found = _partition(mod, choice)
        mod = compile_parts(found.module.with_attr(LEFT, found.left)) if found.parts else mod
        return with_schedules(mod, found.scheduled, choice) if found.scheduled else mod

    return pipeline


def refusals(mod: Expr, config: Config | str = "pynq_z1", *, contract: str = SINGLE) -> list[str]:
    """Why integers of a module would not be on the accelerator; `report` says it of a module that has parts there.

    Raises as `tilewright_pipeline`.
    """
    choice = _choice(config, "model", contract)
    found = _partition(mod, choice)
    return [*_refused(mod, found.scheduled, choice.cfg), *found.left]


def _refused(mod: Expr, names: Sequence[str], cfg: Config) -> Iterator[str]:
    """Why functions that schedules wrote have no program, or are used where a program cannot be."""
    yield from other_uses(mod, names)
    for name in names:
        try:
            compiled_schedule(name, mod[name], cfg)
        except TilewrightError as exc:
            yield f"function {name!r}: {exc}"


def _choice(config: Config | str, on: str, contract: str) -> Choice:
    cfg = load_config(config)
    device_entry(on)
    if contract not in CONTRACTS:
        raise InputError(f"contract {contract!r}: must be one of {', '.join(CONTRACTS)}")
    return Choice(cfg, on, contract)


def _partition(mod: Expr, choice: Choice) -> Partition:
    """Partition a module, converted to dataflow. Raises `InputError` for anything else."""
    if not isinstance(mod, IRModule):
        raise InputError(f"the pipeline takes an IRModule of Relax functions, not {type(mod).__name__}")
    return Partition(relax.transform.ConvertToDataflow()(mod), choice)
