"""The modelled host."""

import numpy as np

from tilewright.compiler import graph as g
from tilewright.compiler.target.host import HostCpu, HostModel
from tilewright.compiler.target.steps import Steps
from tilewright.hw.config import PRESETS

X, Y = g.Tensor("x", (1, 8, 4, 4)), g.Tensor("y", (1, 8, 4, 4))


def conv(groups):
    weight = np.ones((8, 8 // groups, 3, 3), np.int8)
    parameters = np.ones(8, np.float32), np.zeros(8, np.int32)
    return g.QConv2d("conv", (X,), Y, weight, *parameters, pads=(1, 1, 1, 1), groups=groups)


def test_times_follow_the_fields():
    model = HostModel(clock=1e6, mac=2, depthwise_mac=5, byte=3, moved_byte=1, softmax_byte=100, dispatch=10)
    cycles = {
        conv(1): 2 * 9216 + 3 * 128,
        conv(8): 5 * 1152 + 3 * 128,
        g.Add("add", (X, X), Y): 3 * 384,
        g.BatchMatMul("matmul", (X, X), Y): 2 * 512 + 3 * 384,
        g.Reshape("reshape", (X,), g.Tensor("r", (1, 128))): 256,
        g.Softmax("softmax", (X,), g.Tensor("s", X.shape, scale=1 / 256, zero_point=-128), 1): 3 * 12 * 128 + 200 * 16,
    }
    gates, cells = g.Tensor("g", (1, 3, 8), "int16"), g.Tensor("c", (1, 2), "int16", 2.0**-12)
    facts = np.ones((8, 2), np.int8), np.zeros(8, np.int32), np.ones(8), 1.0
    steps = g.Lstm("lstm", (gates, g.Tensor("h", (1, 2)), cells), g.Tensor("w", (1, 4, 2), "int16"), *facts)
    cycles[steps] = 2 * 48 + 100 * 30 + 3 * (48 + 2 + 4 + 16)
    for op, expected in cycles.items():
        assert np.isclose(model.seconds(op), (expected + 10) / 1e6), op.name
    assert np.isclose(model.moved_seconds(90), 100e-6)


def test_the_module_runs_kernels_and_needs_no_transfer():
    host, op = HostCpu(), conv(1)
    assert host.transfer_seconds(X) == 0 and host.seconds((op,)) == host.model.seconds(op)
    steps = Steps(g.Graph("g", (X,), (Y,), (op,)), PRESETS["tiny"])
    host.generate(steps, (op,))
    assert [s.name for s in steps.steps] == ["conv.acc", "conv"]
