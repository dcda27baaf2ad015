"""Programs for a tensor accelerator: `import tilewright as tw`. docs/python.md is the tour.

This is the package `tilewright` itself, though it lies in cli/ (docs/decisions/0009-folders-at-the-top.md). What it
names is imported on first use, so that importing it takes no time and needs nothing. The examples in the docstrings
assume `import numpy as np` and run in the root of the repository.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pathlib import Path

    from tilewright.apps.quantise.api import quantise
    from tilewright.cli.page import report
    from tilewright.compiler.api import Scheduled, build
    from tilewright.compiler.graph import Graph
    from tilewright.compiler.mapping import MappingLike
    from tilewright.compiler.target import Target
    from tilewright.compiler.user_kernels import UserKernel, kernel
    from tilewright.hw.config import Config, load_config
    from tilewright.runtime.device import Device
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.launch import Launch
    from tilewright.runtime.loader import run
    from tilewright.runtime.program import Program
    from tilewright.sim.dram import Dram
    from tilewright.sim.losses import Explanation
    from tilewright.sim.timing import Timing

    __version__: str
    ExportedProgram = Any  # of torch.export; torch is not installed for type checks

__all__ = [
    "Config",
    "Executable",
    "Program",
    "Timing",
    "__version__",
    "build",
    "compile",
    "explain",
    "kernel",
    "load",
    "load_config",
    "predict",
    "quantise",
    "report",
    "run",
]
# where the names come from that are not defined here
_HOMES = {
    "Config": "tilewright.hw.config",
    "Executable": "tilewright.runtime.executable",
    "Program": "tilewright.runtime.program",
    "Timing": "tilewright.sim.timing",
    "build": "tilewright.compiler.api",
    "kernel": "tilewright.compiler.user_kernels",
    "load_config": "tilewright.hw.config",
    "quantise": "tilewright.apps.quantise.api",
    "report": "tilewright.cli.page",
    "run": "tilewright.runtime.loader",
}
_DEFAULT = "pynq_z1"
# what a schedule or a recorded program lacks
_NETWORKS_ALONE = {
    "mapping": ", whose layers it names; a schedule or a program has none",
    "batch": "; a schedule or a program takes what its tensors hold",
    "target": ", whose operators it assigns; a schedule or a program has none",
    "shapes": " whose files leave sizes open; a graph, a schedule or a program has sizes",
    "input_types": " in Deeploy's dialect, whose files do not say them; a graph, a schedule or a program has them",
}


def compile(
    model: str | Path | Graph | Scheduled | Program | Launch | ExportedProgram,
    config: Config | str = _DEFAULT,
    *,
    contract: str | None = None,
    mapping: MappingLike | None = None,
    dram: Dram | str | None = None,
    batch: int = 1,
    target: Target | None = None,
    input_types: Mapping[str, str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    resident: bool = False,
) -> Executable:
    """Compile `model` for a configuration, to an executable.

    `model` is the path of a quantised network (int8 .tflite, QDQ .onnx, PyTorch's .pt2), a program of torch.export, a
    graph, a schedule as `build` takes it, or a recorded program, which has its configuration. `contract` is the
    rounding contract of a network: `double`, as TensorFlow Lite Micro rounds, or `single`, as onnxruntime; by default
    that of the file's format.
    `mapping` says which output channels of a network's layers run on which compute unit of the configuration: the path
    of a file, what it holds, or a `ChannelMapping` (docs/mapping.md). `dram` is the memory of a network's program, or a
    text as `--dram` takes it: tiles are chosen for it; by default it is `zynq_hp`. With `batch` a network's program
    takes so many inputs in a run, one behind the other in the first dimension of its tensors. `target` has other
    modules or kernels than the configuration's (docs/targets.md, docs/kernels.md). `input_types` are those of inputs of
    a file in Deeploy's dialect, by name (docs/networks.md), `shapes` those of inputs whose sizes a file leaves open.
    With `resident` constants stay on chip from run to run, as far as they fit (docs/performance.md).

    >>> import tilewright as tw
    >>> tw.compile("examples/digits/digits.onnx", "tiny")
    Executable('digits', tiny, 3 steps, 1 on the device: image float32 (1, 1, 8, 8) -> logits float32 (1, 10))
    >>> tw.compile("examples/digits/digits.onnx", "tiny", batch=4).outputs[0].shape
    (4, 10)

    Raises `FileError` for a path that is no network, `InputError` for a mapping or shapes that do not fit or a batch
    below 1, `UnsupportedError` for operators that nothing can run, for a network whose inputs cannot be together, and
    for a mapping, a batch, types or shapes of inputs without such a network, `CapacityError` for a batch that no memory
    holds, otherwise as `build`.
    """
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.launch import Launch
    from tilewright.runtime.program import Program

    if isinstance(model, (Program, Launch)):
        _check_alone(mapping=mapping, batch=batch, target=target, input_types=input_types, shapes=shapes)
        executable = Executable.from_launch(model.finish() if isinstance(model, Program) else model)
        return executable.resident() if resident else executable
    from tilewright.compiler import api, graph, network
    from tilewright.compiler.target.variants import of_images
    from tilewright.hw.config import load_config
    from tilewright.sim.dram import load_dram

    memory = None if dram is None else load_dram(dram)
    torch: Any = sys.modules.get("torch")  # takes seconds to import; without it `model` is nothing of torch's
    if torch is not None and isinstance(model, (torch.export.ExportedProgram, torch.nn.Module)):
        from tilewright.compiler.frontend.torch import import_torch

        model = import_torch(model)
    if isinstance(model, graph.Graph):
        _check_alone(input_types=input_types, shapes=shapes)
        several = of_images(model, batch)
        cfg = load_config(config)
        facts: dict[str, Any] = {"mapping": mapping, "dram": memory, "target": target, "resident": resident}
        return network.compile_graph(several, cfg, contract, **facts)
    if hasattr(model, "__fspath__") or isinstance(model, str):
        facts = {"mapping": mapping, "dram": memory, "batch": batch, "target": target, "resident": resident}
        return network.compile_model(model, config, contract, **facts, input_types=input_types, shapes=shapes)
    _check_alone(mapping=mapping, batch=batch, target=target, input_types=input_types, shapes=shapes)
    executable = Executable.from_launch(api.build(model, config).finish())
    return executable.resident() if resident else executable


def _check_alone(**given: Any) -> None:
    """Raise `UnsupportedError` for what only networks have."""
    from tilewright.hw.errors import UnsupportedError

    for name, value in given.items():
        if value is not None and value != 1:
            raise UnsupportedError(f"{name}= is for networks{_NETWORKS_ALONE[name]}; drop it")


def load(
    path: str | Path, config: Config | str | None = None, *, on: str | Device = "model", resident: bool = False
) -> Executable:
    """Open the file `path`, ready to run: a .tw program, or a network, which is compiled as by `compile`.

    `config` defaults to that of a .tw program, and to pynq_z1 for a network. `on` is the device that it runs on where
    `run` names no other. With `resident` constants stay on chip from run to run, as far as they fit.

    >>> import tilewright as tw
    >>> digits = tw.load("examples/digits/digits.onnx", on="timing")
    >>> images = np.load("examples/digits/inputs.npz")["inputs"]
    >>> outputs, stats = digits.run(images[0])
    >>> int(outputs["logits"].argmax())
    6
    >>> stats.cycles == tw.predict(digits).cycles
    True

    Raises `FileError`, `FingerprintError` where a .tw program was compiled for another configuration than `config`, and
    `UnsupportedError` for a device that does not exist.
    """
    from tilewright.hw.config import load_config
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.registry import device_entry

    if isinstance(on, str):
        device_entry(on)
    if str(path).endswith(".tw"):
        executable = Executable.load(path)
        executable.check_config(None if config is None else load_config(config), path)
        executable = executable.resident() if resident else executable
    else:
        executable = compile(path, config or _DEFAULT, resident=resident)
    executable.on = on
    return executable


def predict(
    program: Executable | Program | Launch,
    *,
    step: str | None = None,
    dram: Dram | str | None = None,
    skip: Iterable[str] = (),
) -> Timing:
    """The cycles of one launch, from the timing model, without data.

    `step` names the launch where an executable has several. `dram` is the memory, or a text as `--dram` takes it
    (default: that of a PYNQ-Z1); `skip` names what takes no time, of gemm, alu and dma.

    >>> import tilewright as tw
    >>> digits = tw.load("examples/digits/digits.onnx")
    >>> tw.predict(digits).cycles > tw.predict(digits, skip=["dma"]).cycles > 1000
    True

    Raises `InputError` where no launch, or more than one, is meant.
    """
    from tilewright.hw.errors import InputError
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.steps import LaunchStep
    from tilewright.sim import timing
    from tilewright.sim.dram import load_dram

    if isinstance(program, Executable):
        launches = {one.name: one.launch for one in program.steps if isinstance(one, LaunchStep)}
        if step is None and len(launches) == 1:
            step = next(iter(launches))
        if step not in launches:
            known = ", ".join(launches) or "none"
            raise InputError(f"step = {step!r}: must be a launch of {program.name!r}; its launches are {known}")
        program = launches[step]
    return timing.predict(program, dram=load_dram(dram), skip=skip)


def explain(
    model: str | Path | Graph | Scheduled | Program | Launch | Executable | UserKernel,
    config: Config | str | None = None,
    *,
    inputs: Sequence[Any] = (),
    dram: Dram | str | None = None,
) -> Explanation:
    """Why `model` takes its cycles: the bound and the losses, each with its statement, cause and remedy.

    `model` is an executable, or what `compile` or `load` takes, or a kernel of `tw.kernel` with the shapes or arrays of
    its `inputs`. `config` is as for `load`; an executable has one. `dram` is the memory, or a text as `--dram` takes
    it. The figures are those of the timing model, of all launches of a run together; of a program that runs others
    depending on an input, those of the first kind of run. docs/explain.md lists the losses.

    >>> import tilewright as tw
    >>> found = tw.explain("examples/digits/digits.onnx")
    >>> found.cycles == found.bound + sum(loss.cycles for loss in found.losses)
    True

    Raises as `load` and `compile`, `InputError` for `inputs` of what is no kernel, `FingerprintError` for a program
    of another configuration, and `UnsupportedError` for a memory that the timing model does not know.
    """
    from tilewright.hw.config import load_config
    from tilewright.hw.errors import InputError
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.steps import turns
    from tilewright.sim.dram import load_dram
    from tilewright.sim.losses import explain, merged

    user_kernels: Any = sys.modules.get("tilewright.compiler.user_kernels")
    if user_kernels is not None and isinstance(model, user_kernels.UserKernel):
        executable = cast("UserKernel", model).compile(*inputs, config=config or _DEFAULT)
    elif inputs:
        raise InputError(
            f"inputs= with model of type {type(model).__name__}: they are for kernels of tw.kernel; drop them"
        )
    elif isinstance(model, Executable):
        executable = model
    elif hasattr(model, "__fspath__") or isinstance(model, str):
        executable = load(cast("str | Path", model), config)
    else:
        executable = compile(cast("Any", model), config or _DEFAULT)
    executable.check_config(None if config is None else load_config(config), executable.name)
    return merged([explain(step.launch, load_dram(dram)) for step in turns(executable.steps)[0]])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("tilewright")
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}; it has {', '.join(__all__)}")
    return globals().setdefault(name, getattr(importlib.import_module(_HOMES[name]), name))


def __dir__() -> list[str]:
    return sorted(__all__)
