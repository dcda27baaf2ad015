"""`tw.kernel`: kernels that a user writes, alone on arrays and for operators of networks. docs/kernels.md."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..hw.config import Config, load_config
from ..hw.errors import (
    CapacityError,
    EncodingError,
    InputError,
    KernelError,
    ScheduleError,
    TilewrightError,
    Unfit,
    one_line,
)
from . import graph as g
from .accelerator.module import Accelerator
from .kernels import language, table
from .kernels.checked import CheckedKernel, with_hint
from .kernels.language import Kernel, Record
from .network import check_runs_kernels, compile_for, default_target
from .target.module import ExecModule, Target

if TYPE_CHECKING:
    from ..runtime.device import Device, Stats
    from ..runtime.executable import Executable

_DEFAULT = "pynq_z1"
Shape = tuple[int, ...]


@dataclass(frozen=True)
class UserKernel:
    """A kernel function `record(k, op)` and the classes of operators that it computes; `kernel` makes one.

    `first` prefers it wherever it fits; without, the kernel with the fewest cycles is taken. The methods take the
    operator `op`, or shapes, or arrays, of its inputs and the shape `out` of its output, by default that of its first
    input: then the operator is one of int8 tensors `x0`, `x1`, ..., `y`.
    """

    record: Record
    operators: tuple[type[g.Operator], ...] = ()
    first: bool = False

    @property
    def name(self) -> str:
        """The name of its function."""
        return getattr(self.record, "__name__", "kernel")

    def __repr__(self) -> str:
        computes = ", ".join(kind.__name__ for kind in self.operators) or "of arrays"
        return f"kernel {self.name} ({computes})"

    def __call__(self, k: Kernel, op: Any) -> None:
        """Record `op`, with checks; a mistake is told with its line, an error of Python's, too."""
        checked = CheckedKernel.of(k)
        try:
            self.record(checked, op)
            checked.finish()
        except (CapacityError, EncodingError, ScheduleError):  # it does not fit
            raise
        except Exception as exc:
            frames, code = traceback.extract_tb(exc.__traceback__), getattr(self.record, "__code__", None)
            lines = [frame.lineno for frame in frames if code and frame.filename == code.co_filename]
            where = f", line {lines[-1]}" if lines else ""
            said = str(exc) if isinstance(exc, TilewrightError) else f"{type(exc).__name__}: {one_line(exc)}"
            raise KernelError(f"kernel {self.name}{where}: {with_hint(said)}") from exc

    def why_not(
        self,
        *inputs: Shape | np.ndarray,
        out: Shape | None = None,
        op: g.Operator | None = None,
        config: Config | str = _DEFAULT,
    ) -> str:
        """Why it cannot compute the operator; empty where it can. Raises `KernelError` for mistakes of its author."""
        return language.why_not(self, op or self._operator(inputs, out), _able(config))

    def cycles(
        self,
        *inputs: Shape | np.ndarray,
        out: Shape | None = None,
        op: g.Operator | None = None,
        config: Config | str = _DEFAULT,
    ) -> int:
        """Cycles of a program of the operator alone, by the timing model. Raises `Unfit` where it cannot compute it."""
        return round(language.cycles(self, op or self._operator(inputs, out), _able(config)))

    def compile(
        self,
        *inputs: Shape | np.ndarray,
        out: Shape | None = None,
        op: g.Operator | None = None,
        config: Config | str = _DEFAULT,
    ) -> Executable:
        """The operator alone as an executable on plain arrays, whose steps pack them and unpack the result.

        Raises `Unfit` where the kernel cannot compute it, `KernelError` for mistakes of its author.
        """
        cfg, op = _able(config), op or self._operator(inputs, out)
        if why := language.why_not(self, op, cfg):
            raise Unfit(f"kernel {self.name}: {why}")
        graph = g.Graph(op.name, tuple({t.name: t for t in op.inputs if t.data is None}.values()), (op.output,), (op,))
        alone = Accelerator(cfg, kernels=(table.Alternative(self, (type(op),), first=True),))
        alone.transformations = ()
        return compile_for(graph, cfg, target=Target(self.name, (alone,))).executable

    def run(
        self,
        *arrays: np.ndarray,
        out: Shape | None = None,
        op: g.Operator | None = None,
        config: Config | str = _DEFAULT,
        on: str | Device = "model",
    ) -> tuple[np.ndarray, Stats]:
        """(the result, counts) for int8 `arrays` on a device.

        Raises as `compile`, and `InputError` for other arrays.
        """
        executable = self.compile(*arrays, out=out, op=op, config=config)
        names = [t.name for t in executable.inputs]
        if len(names) != len(arrays):
            raise InputError(f"kernel {self.name}: {len(arrays)} arrays given; it takes {', '.join(names)}")
        outputs, stats = executable.run(dict(zip(names, arrays)), on)
        return next(iter(outputs.values())), stats

    def _operator(self, inputs: Sequence[Shape | np.ndarray], out: Shape | None) -> g.Operator:
        if not inputs:
            raise InputError(f"kernel {self.name}: give shapes or arrays of its inputs, or op=, an operator")
        shapes = [tuple(getattr(each, "shape", each)) for each in (*inputs, inputs[0] if out is None else out)]
        for shape in shapes:
            if len(shape) not in (2, 4) or not all(isinstance(extent, (int, np.integer)) for extent in shape):
                raise InputError(f"kernel {self.name}: {shape} is no shape or array (n, c, h, w) or (n, c)")
        *tensors, y = (g.Tensor(f"x{number}", shape) for number, shape in enumerate(shapes))
        return g.Custom(self.name, tuple(tensors), replace(y, name="y"))


def kernel(*operators: type[g.Operator] | Record, first: bool = False) -> Any:
    """Make a kernel of a function `record(k, op)`: a decorator, plain or with the classes of operators it computes.

    In a network it is tried beside the kernels that are there, for operators of these classes (`--target FILE.py:NAME`,
    or `target`): the fewest cycles win, with `first` it does wherever it fits.

    >>> import tilewright as tw
    >>> from tilewright.hw.isa import Mem
    >>> @tw.kernel
    ... def double(k, op):
    ...     y = k.load(k.tile(Mem.ACC, **k.input(0).shape), k.input(0))
    ...     y *= 2
    ...     k.store(k.output, y)
    >>> int(double.run(np.arange(16, dtype=np.int8).reshape(1, 16, 1, 1))[0].max())
    30

    Raises `InputError` for what is no class of operators.
    """
    functions = [each for each in operators if callable(each) and not isinstance(each, type)]
    if functions and len(operators) == 1:
        return UserKernel(functions[0], (), first)
    kinds = tuple(kind for kind in operators if isinstance(kind, type) and issubclass(kind, g.Operator))
    if len(kinds) < len(operators):
        wrong = next(kind for kind in operators if kind not in kinds)
        raise InputError(f"kernel({wrong!r}): must be classes of operators, as g.Softmax, or one function")
    return lambda record: UserKernel(record, kinds, first)


def target(cfg: Config | str, *kernels: UserKernel) -> Target:
    """The target of a configuration with these kernels, for `compile(..., target=)`.

    Raises `InputError` for kernels that name no operators, `UnsupportedError` where the configuration runs none.
    """
    for each in kernels:
        if not each.operators:
            raise InputError(f"{each}: it names no class of operators; write @tw.kernel(g.Softmax), say, above it")
    return default_target(load_config(cfg), [table.Alternative(each, each.operators, each.first) for each in kernels])


def target_of(value: Any, cfg: Config, source: str) -> Target:
    """The target that `value` is or makes: a target, a module, kernels, or a list of modules and kernels.

    Modules stand beside the default ones. Raises `InputError`, which begins with `source`, for others.
    """
    if isinstance(value, Target):
        return value
    parts: list[Any] = list(value) if isinstance(value, Iterable) else [value]
    wrong = [part for part in parts if not isinstance(part, (UserKernel, ExecModule))]
    if wrong or not parts:
        raise InputError(
            f"{source}: is {type(wrong[0] if wrong else value).__name__}; must be a kernel that tw.kernel makes, an "
            "ExecModule, a list of these, or a Target"
        )
    found = target(cfg, *(part for part in parts if isinstance(part, UserKernel)))
    return replace(found, modules=(*found.modules, *(part for part in parts if isinstance(part, ExecModule))))


def _able(config: Config | str) -> Config:
    """The configuration. Raises `UnsupportedError` where it runs no kernels."""
    cfg = load_config(config)
    check_runs_kernels(cfg)
    return cfg
