"""The choice between a schedule and rows that stay on chip, for single layers and in networks."""

import numpy as np
import pytest

from tilewright.compiler import cost
from tilewright.compiler.api import build
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.graph import QConv2d, Tensor
from tilewright.compiler.kernels.depthwise import depthwise_program, faster_rows
from tilewright.compiler.schedule.depthwise import depthwise_of
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError, UnsupportedError
from tilewright.runtime import layout
from tilewright.runtime.loader import run
from tilewright.sim.dram import ZYNQ_HP, load_dram
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]
EPILOGUE = [("requant", "par")]


def shape(channels, size, stride=1, kernel=3):
    pad, pairs = kernel // 2, ((kernel, kernel), (stride, stride))
    return ConvShape(1, channels, size, size, channels, *pairs, (pad, pad, pad, pad), groups=channels)


@pytest.mark.parametrize(
    ("of", "cfg"), [(shape(144, 28, 2), PLUS), (shape(33, 9, 1, 1), PLUS), (shape(20, 6), PRESETS["tiny"])]
)
def test_a_layer_as_a_program_of_its_own(of, cfg):
    """Inputs and output are those of the schedule, and so are the values; it is no slower."""
    program, scheduled = (
        depthwise_program(cfg, of, -3),
        build(depthwise_of(cfg, of, pad_value=-3, epilogue=EPILOGUE), cfg),
    )
    rng = np.random.default_rng(4)
    weights = rng.integers(-128, 128, (of.c, *of.kernel)).astype(np.int8)
    scale = {"multiplier": rng.integers(1 << 30, 1 << 31, of.c), "exponent": np.full(of.c, -9)}
    limits = {"zero_point": 3, "low": -128, "high": 127, "contract": "double"}
    values = {"w": layout.pack_depthwise_weights(weights, cfg)}
    values["par"] = layout.pack_par(cfg, bias=rng.integers(-999, 999, of.c), **scale, **limits)
    values["x"] = layout.pack_activations(rng.integers(-128, 128, (1, of.c, *of.size)).astype(np.int8), cfg)
    assert np.array_equal(run(program, values)[0]["out"], run(scheduled, values)[0]["out"])
    assert predict(program, cfg).cycles <= predict(scheduled, cfg).cycles


def test_two_load_ports_reach_28_products_per_cycle():
    """With stride 2, where all ports get what they can move."""
    cfg, memory = PLUS.replace(load_ports=2), load_dram("zynq_hp4")
    for channels, size in ((96, 112), (144, 56), (192, 28), (576, 14)):
        cycles = predict(depthwise_program(cfg, shape(channels, size, 2)), cfg, memory).cycles
        assert shape(channels, size, 2).macs / cycles >= 28


def test_the_memory_around_is_that_of_the_timing_model():
    of = shape(96, 56, 2)
    assert faster_rows(PLUS, of, 0, alone=True) is not None
    assert cost.timed_memory(PLUS) == ZYNQ_HP
    with cost.on_memory(load_dram("zynq_hp,latency=400,port_bytes=4"), PLUS):
        memory = cost.timed_memory(PLUS)
        assert (memory.latency, memory.port_bytes, memory.outstanding) == (400, 4, 8)


def test_products_that_bound_a_layer_leave_it_to_the_schedule():
    """Behind another layer, whose products hide the first loads; where it is alone they do not."""
    of, cfg = shape(64, 12), PRESETS["pynq_z1"]
    ways = [faster_rows(cfg, of, -128, alone=alone) for alone in (True, False)]
    assert ways[0] is not None and ways[1] is None


def test_parts_of_several_planes_are_for_layers_that_nothing_waits_for():
    """Where another layer follows, its loads wait for the last part: with larger buffers kws took 3 % more."""
    of = ConvShape(1, 64, 25, 5, 64, (3, 3), (1, 1), (1, 1, 1, 1), groups=64)
    half = {name: getattr(PLUS, name) // 2 for name in ("inp_bytes", "wgt_bytes", "acc_bytes", "uop_bytes")}
    cfg = PLUS.replace(load_ports=2, **half)
    found = [faster_rows(cfg, of, 0, alone=alone) for alone in (True, False)]
    assert [cut and cut.rows for cut in found] == [50, 25]


@pytest.mark.parametrize("bits", [{"inp_bits": 4}, {"wgt_bits": 4}])
def test_widths_of_buffers_are_those_of_the_configuration(bits):
    of, cfg = shape(9, 17, 2), PRESETS["tiny"].replace(**bits)
    scheduled = depthwise_of(cfg, of, epilogue=EPILOGUE)
    assert faster_rows(cfg, of, 0, alone=True) is not None
    buffers = [program.buffers for program in (depthwise_program(cfg, of), build(scheduled, cfg))]
    widths = [{name: (b.bits, b.nbytes) for name, b in every.items()} for every in buffers]
    assert widths[0] == widths[1]


def test_configurations_without_depthwise_are_named():
    with pytest.raises(ScheduleError, match="extension depthwise is not in configuration vta"):
        depthwise_program(PRESETS["vta"], shape(32, 24))


def test_circuits_that_cannot_be_built_are_named():
    """The timing model has none; the schedule alone would be a program for the behavioural model."""
    with pytest.raises(UnsupportedError, match="axi_bits = 256: extension requant needs entries of PAR"):
        depthwise_program(PRESETS["tiny"].replace(axi_bits=256), shape(8, 12))


def test_layers_of_networks_load_every_row_once(exact):
    """A stride of 2, with a zero point of the input that is the value of the padding."""
    rng = np.random.default_rng(6)
    x, y = (
        Tensor("x", (1, 96, 56, 56), scale=0.02, zero_point=-11),
        Tensor("y", (1, 96, 28, 28), scale=0.5, zero_point=4),
    )
    weight, scale = rng.integers(-128, 128, (96, 1, 3, 3)).astype(np.int8), rng.uniform(0.001, 0.01, 96)
    bias = rng.integers(-999, 999, 96).astype(np.int32)
    geometry = {"strides": (2, 2), "pads": (1, 1, 1, 1), "groups": 96}
    op = QConv2d("op", (x,), y, weight, scale.astype(np.float32), bias, -128, 127, **geometry)
    launch = exact(op, cfg=PLUS)
    assert len(launch.insn) < 200
