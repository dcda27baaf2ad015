"""Quantised networks -> executables: every ungrouped convolution and dense layer is one program on the device.

Between two programs the host works in plain layout (NCHW): it packs a layer's input into blocks, puts the four byte
planes of its int32 accumulators together again, requantises and pools. Biases are added on the device, corrected for
the input's zero point. Padding has the value of that zero point: LOADP writes it where the configuration has the
extension `pad_value`, else the host pads.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..hw.config import Config, load_config
from ..hw.errors import InputError, UnsupportedError
from ..hw.rounding import CONTRACTS
from ..runtime import layout
from ..runtime.executable import Executable, HostStep, LaunchStep, Tensor
from ..runtime.program import Program
from . import graph as g
from .api import build
from .frontend import import_model
from .hostcall import host_calls
from .schedule.conv2d import conv2d
from .schedule.dense import dense
from .schedule.epilogue import PLANES


def compile_model(path: str | Path, config: Config | str, contract: str = "double") -> Executable:
    """The executable of the quantised network at `path`, .tflite or QDQ .onnx, for a configuration.

    `contract` is the rounding contract of the requantisation (hw/rounding.py). Raises `FileError` and
    `UnsupportedError` as `import_model` and `compile_graph` do.
    """
    return compile_graph(import_model(path), load_config(config), contract)


def compile_graph(graph: g.Graph, cfg: Config, contract: str = "double", *, accumulators: bool = False) -> Executable:
    """The executable of a graph; its inputs and outputs are named as the graph's.

    With `accumulators` the int32 accumulators of layer L are an output `L.acc`, too. Raises `UnsupportedError` that
    lists every layer that the configuration cannot run.
    """
    if contract not in CONTRACTS:
        raise InputError(f"contract {contract!r}: must be one of {', '.join(CONTRACTS)}")
    layers = [op for op in graph.layers if on_device(op)]
    problems = [f"{type(op).__name__} {op.name!r} {why}" for op in layers if (why := _refusal(op, cfg))]
    if problems:
        raise UnsupportedError(f"{graph.name}: configuration {cfg.name!r} cannot run {'; '.join(problems)}")
    return _Builder(graph, cfg, contract, accumulators).executable()


def on_device(op: g.Op) -> bool:
    """Whether the device runs the operator: convolutions of one group, and dense layers."""
    return isinstance(op, g.QDense) or (isinstance(op, g.QConv2d) and op.groups == 1)


def _refusal(op: g.Linear, cfg: Config) -> str:
    """Why `cfg` cannot run the layer; empty where it can."""
    if cfg.inp_bits < 8 or cfg.out_bits < 8:
        return f"with int8 activations: inp_bits is {cfg.inp_bits}, out_bits {cfg.out_bits}, 8 are needed"
    limit = 1 << cfg.wgt_bits - 1
    low, high = int(op.weight.min()), int(op.weight.max())
    if low < -limit or high >= limit:
        return f"with weights {low}..{high}: wgt_bits is {cfg.wgt_bits}, which holds {-limit}..{limit - 1}"
    return ""


class _Builder:
    """Appends steps and declares the tensors between them, operator by operator."""

    def __init__(self, graph: g.Graph, cfg: Config, contract: str, accumulators: bool):
        self.graph, self.cfg, self.contract, self.accumulators = graph, cfg, contract, accumulators
        self.tensors: dict[str, Tensor] = {}
        self.steps: list[LaunchStep | HostStep] = []

    def executable(self) -> Executable:
        """The whole graph."""
        for t in self.graph.inputs:
            self.declare(t.name, t.shape, t.dtype, "input")
        for t in (op.output for op in self.graph.ops):
            self.declare(t.name, t.shape, t.dtype, "output" if t in self.graph.outputs else "temp")
        for t in self.graph.constants:
            self.declare(t.name, t.shape, t.dtype, "constant", t.data)
        for op in self.graph.ops:
            if on_device(op):
                assert isinstance(op, (g.QConv2d, g.QDense))
                self.linear(op)
            else:
                self.on_host(op)
        return Executable(self.cfg, self.graph.name, self.tensors, self.steps)

    def declare(
        self, name: str, shape: tuple[int, ...], dtype: str, kind: str = "temp", data: np.ndarray | None = None
    ) -> str:
        """A new tensor; its name, which is `name` unless the graph has it for something else."""
        while name in self.tensors:
            name += "'"
        self.tensors[name] = Tensor(name, shape, dtype, kind, data)
        return name

    def host(
        self, name: str, kind: str, attrs: dict, inputs: list[str], shape: tuple[int, ...], dtype: str = "int8"
    ) -> str:
        """A host step whose output is a tensor of its own name, which the graph does not have."""
        output = self.declare(name, shape, dtype)
        self.steps.append(HostStep(name, kind, inputs, [output], attrs))
        return output

    def on_host(self, op: g.Op) -> None:
        """The host steps that compute an operator; the last one is named after it and counts its work."""
        inputs, calls = [t.name for t in op.inputs], host_calls(op, self.contract)
        for call in calls[:-1]:  # only layers have several, whose first gives the accumulators
            name = self.declare(f"{op.name}.acc", op.output.shape, call.dtype)
            self.steps.append(HostStep(name, call.name, inputs, [name], call.attrs, call.constants))
            if self.accumulators:
                self.tensors[name].kind = "output"
            inputs = [name]
        last = calls[-1]
        self.steps.append(HostStep(op.name, last.name, inputs, [op.output.name], last.attrs, last.constants, op.macs))

    def linear(self, op: g.QConv2d | g.QDense) -> None:
        """A convolution or dense layer: pack, launch, accumulators, requantise."""
        x, shape, on_host = op.x.name, op.x.shape, self._pads_on_host(op)
        if on_host and isinstance(op, g.QConv2d):
            top, left, bottom, right = op.pads
            shape = (*shape[:2], shape[2] + top + bottom, shape[3] + left + right)
            attrs = {"pads": [[0, 0], [0, 0], [top, bottom], [left, right]], "value": op.x.zero_point}
            x = self.host(f"{op.name}.pad", "pad", attrs, [x], shape)
        program = layer_program(op, self.cfg, padded=on_host)
        buffers = program.buffers
        blocks = {"batch": self.cfg.batch, "block": self.cfg.block_in}
        bind = {"x": self.host(f"{op.name}.pack", "pack", blocks, [x], buffers["x"].shape)}
        for key, data in layer_constants(op, self.cfg).items():
            bind[key] = self.declare(f"{op.name}.{key}", data.shape, str(data.dtype), "constant", data)
        for key in PLANES:
            bind[key] = self.declare(f"{op.name}.{key}", buffers[key].shape, "int8")
        self.steps.append(LaunchStep(op.name, program.finish(), bind, op.macs))
        n, c, *_ = op.output.shape
        planes, attrs = [bind[key] for key in PLANES], {"n": n, "c": c}
        acc = self.host(f"{op.name}.acc", "accumulators", attrs, planes, op.output.shape, "int32")
        if self.accumulators:
            self.tensors[acc].kind = "output"
        last = host_calls(op, self.contract)[-1]
        name = f"{op.name}.requantise"
        self.steps.append(HostStep(name, last.name, [acc], [op.output.name], last.attrs, last.constants))

    def _pads_on_host(self, op: g.Linear) -> bool:
        padded = isinstance(op, g.QConv2d) and any(op.pads)
        return padded and op.x.zero_point != 0 and "pad_value" not in self.cfg.extensions


def layer_program(op: g.QConv2d | g.QDense, cfg: Config, *, padded: bool = False) -> Program:
    """The program of one layer: buffers `x`, `w`, `b` (biases), and the accumulators' bytes `OUT0` to `OUT3`.

    With `padded` the input arrives padded.
    """
    channels = len(op.weight)
    if isinstance(op, g.QDense):
        n, c = op.x.shape
        return build(dense(cfg, n, c, channels, epilogue=[("add", "b")], planes=True), cfg, name=op.name)
    n, c, h, w = op.x.shape
    kh, kw = op.weight.shape[2:]
    pads = op.pads
    if padded:
        h, w, pads = h + pads[0] + pads[2], w + pads[1] + pads[3], (0, 0, 0, 0)
    schedule = conv2d(
        cfg,
        n,
        h,
        w,
        c,
        channels,
        kh,
        kw,
        op.strides,
        pads,
        op.dilations,
        pad_value=op.x.zero_point if any(pads) else 0,
        epilogue=[("add", "b")],
        planes=True,
    )
    return build(schedule, cfg, name=op.name)


def layer_constants(op: g.Linear, cfg: Config) -> dict[str, np.ndarray]:
    """Packed weights `w` and biases `b` of a layer's program."""
    pack = layout.pack_weights if isinstance(op, g.QConv2d) else layout.pack_dense_weights
    return {"w": pack(op.weight, cfg), "b": layout.pack_bias(op.folded_bias, cfg)}
