"""Compiles quantised networks to executables: the modules of a target append the steps of their operators."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..hw.circuit import check_buildable
from ..hw.config import Config, load_config
from ..hw.errors import UnsupportedError
from ..runtime.executable import Executable, HostStep
from ..sim.dram import ZYNQ_HP, Dram, load_dram, unshared
from . import cache, cost
from . import graph as g
from .accelerator.layerwise import LayerAccelerator
from .accelerator.module import Accelerator
from .frontend import import_model
from .frontend.source import read_source
from .kernels import language, table
from .kernels.table import Alternative, also
from .limits import runs_whole_networks
from .mapping import ChannelMapping, Costs, MappingLike, by_layer, regroup
from .schedule.layer import Tiles
from .target.assign import Assignment
from .target.host import HostCpu, HostModel
from .target.module import ExecModule, Refusal, Target
from .target.steps import Steps
from .target.variants import in_blocks, in_contexts, join, of_images, with_entry
from .tune.search import known_tiles, network_key

_RELAYOUTS = ("expect_numbers", "pack", "fold_windows", "unpack", "unpack_planes", "accumulators")


def compile_model(
    path: str | Path,
    config: Config | str,
    contract: str | None = None,
    *,
    tiles: str | Path | None = None,
    mapping: MappingLike | None = None,
    dram: Dram | str | None = None,
    batch: int = 1,
    target: Target | None = None,
    input_types: Mapping[str, str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    context: int | None = None,
    resident: bool = False,
) -> Executable:
    """Compile the quantised network at `path`, .tflite or QDQ .onnx, for a configuration.

    `contract` is the rounding contract (hw/rounding.py), by default the one of the file's format. `tiles` is a database
    of `tilewright tune` (compiler/tune/search.py), whose tiles are used if the timing model finds the whole program
    faster with them. `mapping` assigns output channels to compute units (compiler/mapping.py). `dram` is the memory
    that the program will run on (sim/dram.py; by default `zynq_hp`): it changes the choice of tiles, not the results.
    The program takes `batch` inputs at once, concatenated in the first dimension of its tensors (target/variants.py).
    `input_types` are those of inputs, by name, where the file does not say them, as in Deeploy's dialect, `shapes`
    those of inputs whose sizes it leaves open, `context` the positions of a Llama in float. `resident` and `target` as
    in `compile_graph`; without it a disk cache (compiler/cache.py) keeps the executables.

    Raises `ConfigError` for an unknown memory, and the errors of `read_source`, `import_model`, `of_images` and
    `compile_graph`.
    """
    mapping = None if mapping is None else ChannelMapping.of(mapping)
    cfg, source = load_config(config), read_source(path, input_types, shapes, context)
    check_buildable(cfg)
    memory, contract = None if dram is None else load_dram(dram), contract or source.contract
    with cost.on_memory(memory, cfg):
        if target is not None:  # its modules and kernels are in no digest
            graph = of_images(import_model(source, contract), batch)
            known = None if tiles is None else known_tiles(tiles, cfg)
            facts: dict[str, Any] = {"mapping": mapping, "dram": memory, "target": target, "resident": resident}
            return compile_graph(graph, cfg, tiles=known, **facts)
        digest = source.digest if batch == 1 else source.digest + f"batch {batch}".encode()
        known = None if tiles is None else known_tiles(tiles, cfg, network_key(digest, cfg, contract))
        if known is not None and not known.tiles:
            known = None
        digests = ["" if choices is None else choices.digest for choices in (known, mapping)]
        model = digest + b"resident" if resident else digest  # tiles are chosen alike for both
        file = cache.network_file(model, cfg, contract, *digests)
        executable = cache.read(file)
        if executable is None:
            graph = of_images(import_model(source, contract), batch)
            executable = compile_graph(graph, cfg, mapping=mapping, dram=memory, resident=resident)
            if known is not None:
                tuned = compile_graph(graph, cfg, tiles=known, mapping=mapping, dram=memory, resident=resident)
                executable = faster(executable, tuned, memory)
            cache.write(file, executable)
        return executable


def faster(plain: Executable, other: Executable, dram: Dram | None = None) -> Executable:
    """`other` if it has the steps of `plain` and its launches take fewer cycles in the timing model, else `plain`.

    `dram` is the memory, as in `launch_cycles`.
    """
    names = [[(type(step), step.name) for step in each.steps] for each in (plain, other)]
    return other if names[0] == names[1] and launch_cycles(other, dram) < launch_cycles(plain, dram) else plain


def launch_cycles(executable: Executable, dram: Dram | None = None) -> int:
    """Cycles of all launches in the timing model, with `dram`, by default `ZYNQ_HP`, where no port delays another."""
    from ..sim.timing import predict

    launches = [step.launch for step in executable.launches]
    steady = (dram or ZYNQ_HP).replace(seed=None)
    return sum(predict(launch, dram=unshared(launch.cfg, steady)).cycles for launch in launches)


def check_runs_kernels(cfg: Config) -> None:
    """Raise `UnsupportedError` for a configuration that lacks an extension that every kernel needs."""
    if not runs_whole_networks(cfg):
        raise UnsupportedError(
            f"{cfg.name} runs no kernels: they need operands of 8 bits, block_out a multiple of block_in (batch 1) "
            "and the extensions requant, acc8, pad_value and rescale; take another configuration, as pynq_z1"
        )


def default_target(cfg: Config, kernels: Sequence[Alternative] = ()) -> Target:
    """The modules that a configuration has: the accelerator in the form that its extensions allow, and the host.

    `kernels` are tried beside the accelerator's own. Raises `UnsupportedError` for kernels where it records none.
    """
    if kernels:
        check_runs_kernels(cfg)
    whole = runs_whole_networks(cfg)
    modules: list[ExecModule] = [Accelerator(cfg, kernels=kernels) if whole else LayerAccelerator(cfg)]
    return Target(cfg.name, (*modules, HostCpu()))


class Compiled(NamedTuple):
    """An executable, the module of each of its operators, and its steps in the making (compiler/target/steps.py)."""

    executable: Executable
    assignment: Assignment
    made: Steps

    def seconds(self, dram: Dram | None = None) -> float:
        """Predicted time of one inference: launches with the memory `dram`, as of `launch_cycles`, and host."""
        return launch_cycles(self.executable, dram) / cost.CLOCK + self.host_seconds(HostModel())

    def of_kernels(self, cfg: Config) -> dict[str, bool]:
        """A sentence for each kernel of the target, the operators that it computes or why none, and whether it does."""
        graph, kernels, sentences = self.assignment.graph, self.assignment.target.kernels, dict[str, bool]()
        modules = {op.name: choice.module for choice in self.assignment.choices for op in choice.ops}
        for each in kernels:
            ops = [op for op in graph.ops if isinstance(op, each.operators)]
            with also(kernels):
                records = {op.name: table.chosen(op, cfg) for op in ops if each in modules[op.name].kernels}
            taken = [name for name, record in records.items() if record is each.record]
            what = ", ".join(taken) or f"no operator of {graph.name}; "
            if not ops:
                what += "none is of its classes after the passes (tilewright assign --passes)"
            elif not taken:
                name, why = ops[0].name, language.why_not(each.record, ops[0], cfg)
                faster = getattr(records.get(name), "__name__", modules[name].name)
                what += f"{name}: {why or f'{faster} takes less time'}"
            sentences[f"{each.record} computes {what}"] = bool(taken)
        return sentences

    def host_seconds(self, model: HostModel) -> float:
        """Modelled time of the host's steps: operators that it still computes, and changes of layout."""
        return sum(seconds for _, seconds in self.host_steps(model))

    def host_steps(self, model: HostModel) -> Iterator[tuple[HostStep, float]]:
        """The host's steps with their modelled seconds.

        A call that merges several steps takes one dispatch, and the values between these stay in registers: they are
        neither written nor read again.
        """
        ops = {op.name: op for choice in self.assignment.choices for op in choice.ops}
        for step in self.executable.steps:
            if not isinstance(step, HostStep):
                continue
            parts = self.made.merged.get(step.name, (step,))
            counted = [(part, self._alone(part, ops, model)) for part in parts]
            counted = [(part, seconds) for part, seconds in counted if seconds]
            between = sum(self.made.tensors[part.outputs[0]].nbytes for part, _ in counted[:-1])
            saved = model.moved_byte * 2 * between + model.dispatch * max(0, len(counted) - 1)
            yield step, sum(seconds for _, seconds in counted) - saved / model.clock

    def _alone(self, step: HostStep, ops: Mapping[str, g.Operator], model: HostModel) -> float:
        """Seconds of an unmerged step; 0 for a step whose work is counted with another one."""
        if step.name in ops:
            return model.seconds(ops[step.name])
        names = [*step.inputs, *step.outputs] if step.op in _RELAYOUTS else []
        return model.moved_seconds(sum(math.prod(self.made.tensors[name].shape) for name in names)) if names else 0.0


def compile_graph(
    graph: g.Graph,
    cfg: Config,
    contract: str | None = None,
    *,
    accumulators: bool = False,
    every_value: bool = False,
    target: Target | None = None,
    tiles: Tiles | None = None,
    mapping: MappingLike | None = None,
    dram: Dram | None = None,
    resident: bool = False,
) -> Executable:
    """Compile a graph; inputs and outputs of the executable have the graph's names.

    A language model whose attention is in a launch gets a launch for each of several lengths of texts, and others for
    blocks of tokens, an entry of their own. A kernel of the target that computes no operator is a warning.

    `contract` overrules the graph's, `target` is `default_target(cfg)` unless given, `tiles` makes the ready schedules
    (compiler/tune/search.py).
    `mapping` says which output channels run on which compute unit (compiler/mapping.py, whose errors it
    raises). `dram` is the memory that the program will run on. With `resident` constants stay on chip from run to run,
    as far as they fit (runtime/steady.py). With `every_value` every tensor of the graph is an
    output under its name, for compiler/graph/reference.py.
    With `accumulators` the device runs every layer that it can as a program of its own, and the int32 accumulators of
    layer L are also an output, `L.acc`. Raises `UnsupportedError` that lists every operator that no module can run, or
    for a configuration that the circuit is not made for.
    """
    graph = graph.under(contract)
    if every_value:
        outputs = (*graph.outputs, *(op.output for op in graph.ops))
        graph = replace(graph, outputs=tuple({t.name: t for t in outputs}.values()))
    if mapping is not None:
        if accumulators:
            raise UnsupportedError(
                f"graph {graph.name!r}: accumulators come from layers of their own, and a mapping moves channels; "
                "give accumulators or mapping, not both"
            )
        graph = regroup(graph, ChannelMapping.of(mapping), cfg)
    if not accumulators:
        make = partial(compile_for, cfg=cfg, target=target, tiles=tiles, dram=dram, resident=resident)
        with cost.on_memory(dram, cfg):
            executable = _as_launches(graph, cfg, make, every_value)
        return executable.resident() if resident else executable
    module = LayerAccelerator(cfg)
    layers = [op for op in graph.of(g.Divisible) if not module.refusal(op)]
    refused = {"host": {op.name: "its accumulators must come from the device" for op in layers}}
    target = Target(cfg.name, (module, HostCpu()))
    executable = compile_for(graph, cfg, None, target, refused, tiles=tiles, dram=dram).executable
    for op in graph.layers:
        executable.tensors[f"{op.name}.acc"].kind = "output"
    return executable


def _as_launches(graph: g.Graph, cfg: Config, make: Callable[[g.Graph], Compiled], every_value: bool) -> Executable:
    """The executable of `compile_graph` whose operators `make` gives to the modules of a target."""
    whole = make(graph)
    for line in (line for line, computes in whole.of_kernels(cfg).items() if not computes):
        warnings.warn(line, stacklevel=3)
    if every_value or not _launches_attention(whole.assignment):
        return whole.executable
    by_length, block = _of_lengths(graph, whole, make), in_blocks(graph, cfg.block_in)
    if block is None or not _launches_attention((rows := make(block)).assignment):
        return by_length
    if _layouts(rows.executable) != _layouts(by_length):  # a cache that only one of them keeps on the device
        return by_length
    return with_entry(by_length, _of_lengths(block, rows, make, cfg.block_in), f"{cfg.block_in} tokens")


def _of_lengths(graph: g.Graph, whole: Compiled, make: Callable[[g.Graph], Compiled], tokens: int = 1) -> Executable:
    """The executable `whole` of `graph`, a step of so many tokens, with those for the lengths of shorter texts."""
    contexts = in_contexts(graph)
    if contexts is None:
        return whole.executable
    parts = [make(part).executable for part in contexts.graphs[:-1]]
    return join([*parts, whole.executable], contexts.position, [end // tokens for end in contexts.ends])


def _layouts(executable: Executable) -> list[tuple[str, tuple[int, ...], str | None]]:
    return [(t.name, t.shape, t.next) for t in executable.states]


def _launches_attention(assignment: Assignment) -> bool:
    """True if the accelerator computes attention, so that launches for shorter texts read less."""
    choices = [choice for choice in assignment.choices if any(op.seen for op in choice.ops)]
    return any(not isinstance(choice.module, HostCpu) for choice in choices)


def compile_for(
    graph: g.Graph,
    cfg: Config,
    contract: str | None = None,
    target: Target | None = None,
    refused: Mapping[str, Mapping[str, str]] | None = None,
    *,
    tiles: Tiles | None = None,
    dram: Dram | None = None,
    resident: bool = False,
) -> Compiled:
    """Compile a graph as `compile_graph` does; the result has the assignment, too.

    `refused` are reasons not to run operators, by module and operator.

    For a memory unlike the default one it is the program for the default one where that takes less time on this memory,
    cycles of the timing model and modelled time of the host.
    """
    check_buildable(cfg)
    graph, reasons = graph.under(contract), refused or {}
    own = _compiled(graph, cfg, target, reasons, tiles, dram, resident)
    if dram is None or not cost.memory_facts(dram, cfg):
        return own
    plain = _compiled(graph, cfg, target, reasons, tiles, cost.DEFAULT, resident)
    return min((own, plain), key=lambda one: one.seconds(dram))


def _compiled(
    graph: g.Graph,
    cfg: Config,
    target: Target | None,
    refused: Mapping[str, Mapping[str, str]],
    tiles: Tiles | None,
    dram: Dram | cost.Memory | None,
    resident: bool,
) -> Compiled:
    """The program of `compile_for` by the estimates for the memory `dram`."""
    reasons = {name: dict(why) for name, why in refused.items()}
    with cost.on_memory(dram, cfg), also(target.kernels if target else ()):
        target = target or default_target(cfg)
        for module in target.modules:
            for transform in module.transformations:
                graph = transform(graph)
        while True:  # again after a module refused operators while it generated code
            steps, assignment = Steps(graph, cfg, tiles, resident), Assignment(graph, target, reasons)
            for module, ops in assignment.parts():
                try:
                    module.generate(steps, ops)
                except Refusal as exc:
                    reasons.setdefault(module.name, {}).update(exc.reasons)
                    break
            else:
                return Compiled(steps.executable(), assignment, steps)


def min_cost(graph: g.Graph, cfg: Config, *, dram: Dram | None = None) -> ChannelMapping:
    """The mapping of channels to units with the least predicted time on the memory `dram`, whatever the accuracy.

    The fastest program of three mappings is taken, as the cost of a layer is an estimate: all channels on GEMM,
    `by_layer`, and all channels on unit `ternary` that it can compute.
    """
    costs = Costs(graph, cfg)

    def fewest_on_gemm(op: g.Divisible, ternary: int) -> float:
        return -ternary if math.isfinite(costs(op, ternary)) else 0

    most = by_layer(graph, cfg, fewest_on_gemm, lambda op, ternary: -ternary)
    if not most.layers:
        return most
    every = (ChannelMapping({}), by_layer(graph, cfg, costs, costs.least), most)
    return min(every, key=lambda m: compile_for(regroup(graph, m, cfg), cfg, dram=dram).seconds(dram))
