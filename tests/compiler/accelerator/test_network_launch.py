"""What a launch brings, computes and fetches."""

import numpy as np

from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.runtime.executable import HostStep
from tilewright.runtime.loader import run

CFG = PRESETS["pynq_z1"]
X = g.Tensor("x", (1, 16, 6, 6), scale=0.1, zero_point=3)


def test_an_input_is_brought_in_every_form_that_is_read(like, exact_graph):
    image = g.Tensor("x", (1, 3, 8, 8), scale=0.1, zero_point=3)
    weight = np.ones((3, 3, 3, 3), np.int8)
    parameters = np.full(3, 0.01, np.float32), np.zeros(3, np.int32)
    a, y = like("a", *image.shape), like("y", *image.shape)
    ops = (
        g.QConv2d("conv", (image,), a, weight, *parameters, pads=(1, 1, 1, 1)),
        g.Add("sum", (image, a), y),
    )
    graph = g.Graph("g", (image,), (y,), ops)
    executable = exact_graph(graph, refused={"host": {"sum": "the test wants the accelerator"}}).executable
    assert [s.op for s in executable.steps if isinstance(s, HostStep)] == ["fold_windows", "pack", "unpack"]


def test_tensors_may_have_the_names_of_buffers(exact, like):
    image, other = g.Tensor("uop", (1, 3, 8, 8), scale=0.1), like("conv.w", 1, 3, 8, 8)
    parameters = np.full(3, 0.01, np.float32), np.zeros(3, np.int32)
    a, b, y = like("arena", *other.shape), like("sum", *other.shape), like("conv.x", *other.shape)
    exact(
        g.QConv2d("conv", (image,), a, np.ones((3, 3, 3, 3), np.int8), *parameters, pads=(1, 1, 1, 1)),
        g.Add("add", (a, other), b),
        g.Add("last", (b, image), y),
    )


def test_a_concatenation_of_a_few_channels_is_exact(exact, like):
    narrow = like("narrow", 1, 5, 6, 6)
    exact(g.Concat("op", (X, X, narrow), like("y", 1, 37, 6, 6), 1))


def test_a_view_of_an_input_is_one_on_the_host(like):
    x, flat, y = like("x", 1, 64, 1, 1), like("f", 1, 64), like("y", 1, 64)
    ops = (g.Reshape("view", (x,), flat), g.Requantize("work", (flat,), y))
    graph = g.Graph("g", (x,), (flat, y), ops)
    refused = {"host": {op.name: "the test wants the accelerator" for op in ops}}
    executable = compile_for(graph, CFG, refused=refused).executable
    assert len(executable.launches) == 1
    value = np.arange(64, dtype=np.int8).reshape(x.shape)
    outputs = run(executable, {"x": value})[0]
    assert np.array_equal(outputs["f"], value.reshape(1, 64)) and np.array_equal(outputs["y"], value.reshape(1, 64))


def test_layers_of_constants_are_the_hosts(like):
    rng = np.random.default_rng(2)
    x, y, z = like("x", 1, 4), like("y", 1, 4), like("z", 1, 4)
    c = g.Tensor("c", (1, 16), data=rng.integers(-128, 128, (1, 16)).astype(np.int8))
    weight, parameters = rng.integers(-9, 9, (4, 16)).astype(np.int8), (np.full(4, 0.01), np.zeros(4, np.int32))
    graph = g.Graph("g", (x,), (z,), (g.QDense("fc", (c,), y, weight, *parameters), g.Add("sum", (y, x), z)))
    values = {"x": rng.integers(-128, 128, x.shape).astype(np.int8)}
    compiled = compile_for(graph, CFG, "double", refused={"host": {"sum": "the test wants the accelerator"}})
    assert [type(choice.module).__name__ for choice in compiled.assignment.choices] == ["HostCpu", "Accelerator"]
    found = run(compiled.executable, values)[0]
    assert np.array_equal(found["z"], reference.trace(graph, values, "double")["z"])
