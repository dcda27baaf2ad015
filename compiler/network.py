"""Quantised networks -> executables: operators are given to the modules of a target, which append their steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..hw.config import Config, load_config
from ..hw.errors import InputError
from ..hw.rounding import CONTRACTS
from ..runtime.executable import Executable
from . import cache, planes
from . import graph as g
from .accelerator import Accelerator, LayerAccelerator
from .assign import Assignment
from .frontend import import_model
from .host import HostCpu
from .steps import Steps
from .target import ExecModule, Refusal, Target


def compile_model(path: str | Path, config: Config | str, contract: str = "double") -> Executable:
    """The executable of the quantised network at `path`, .tflite or QDQ .onnx, for a configuration.

    `contract` is the rounding contract of the requantisation (hw/rounding.py). What was compiled before is taken from
    a cache on disk (compiler/cache.py). Raises `FileError` and `UnsupportedError` as `import_model` and `compile_graph`
    do.
    """
    cfg = load_config(config)
    try:
        kept = cache.network_file(Path(path).read_bytes(), cfg, contract)
    except OSError:  # the importer says what is wrong with the file
        return compile_graph(import_model(path), cfg, contract)
    executable = cache.read(kept)
    if executable is None:
        executable = compile_graph(import_model(path), cfg, contract)
        cache.write(kept, executable)
    return executable


def default_target(cfg: Config) -> Target:
    """The modules that a configuration has: the accelerator in the form that its extensions allow, and the host."""
    whole = {"requant", "acc8", "pad_value", "rescale"} <= cfg.extensions and cfg.block_in == cfg.block_out
    int8 = min(cfg.inp_bits, cfg.wgt_bits, cfg.out_bits) == 8
    modules: list[ExecModule] = [Accelerator(cfg)] if whole and int8 else [LayerAccelerator(cfg)]
    return Target(cfg.name, (*modules, HostCpu()))


def compile_graph(
    graph: g.Graph,
    cfg: Config,
    contract: str = "double",
    *,
    accumulators: bool = False,
    every_value: bool = False,
    target: Target | None = None,
) -> Executable:
    """The executable of a graph; its inputs and outputs are named as the graph's.

    `target` is `default_target(cfg)` unless given. With `accumulators` layers run one by one, and the int32
    accumulators of layer L are an output `L.acc`, too; with `every_value` every tensor of the graph is an output under
    its name, for compiler/compare.py. Raises `UnsupportedError` that lists every operator that no module can run.
    """
    if contract not in CONTRACTS:
        raise InputError(f"contract {contract!r}: must be one of {', '.join(CONTRACTS)}")
    if target is None:
        target = Target(cfg.name, (LayerAccelerator(cfg), HostCpu())) if accumulators else default_target(cfg)
    if every_value:
        graph = replace(
            graph, outputs=tuple({t.name: t for t in (*graph.outputs, *(o.output for o in graph.ops))}.values())
        )
    for module in target.modules:
        for transform in module.transformations:
            graph = transform(graph)
    refused: dict[str, dict[str, str]] = {}
    if accumulators:
        layers = [op for op in graph.layers if isinstance(op, (g.QConv2d, g.QDense)) and not planes.refusal(op, cfg)]
        refused["host"] = {op.name: "its accumulators are to be the device's" for op in layers}
    executable = _generated(graph, cfg, contract, target, refused)
    if accumulators:
        for op in graph.layers:
            executable.tensors[f"{op.name}.acc"].kind = "output"
    return executable


def _generated(graph: g.Graph, cfg: Config, contract: str, target: Target, refused: dict) -> Executable:
    """The executable; what a module refuses only when it generates code is assigned anew."""
    while True:
        steps = Steps(graph, cfg, contract)
        for module, ops in Assignment(graph, target, refused).parts():
            try:
                module.generate(steps, ops)
            except Refusal as exc:
                refused.setdefault(module.name, {}).update(exc.reasons)
                break
        else:
            return steps.executable()
