"""Networks for several images at once: exactly what the golden interpreter makes of each alone."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_graph, launch_cycles
from tilewright.compiler.target.variants import apart, of_images, of_one, together
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, InputError, UnsupportedError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.sim.memory import CAPACITY

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
PYNQ = PRESETS["pynq_z1"]
ROWS = PYNQ.replace(name="rows", batch=2, block_in=8, block_out=8, inp_bytes=16384)
SEED = 20261123


def random_images(graph, count):
    print("seed", SEED)
    rng = np.random.default_rng(SEED)
    return [{t.name: rng.normal(size=t.shape).astype(t.dtype) for t in graph.inputs} for _ in range(count)]


@pytest.mark.parametrize("cfg", [PRESETS["tiny"], ROWS], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("images", [4, 5])
def test_each_image_is_exact(cfg, images):
    graph = import_model(DIGITS)
    samples = random_images(graph, images)
    with Loaded(compile_graph(of_images(graph, 4), cfg), open_device("model", cfg)) as loaded:
        found = apart([loaded.run(group) for group in together(samples, 4)], 4, images)
    assert len(found) == images
    for sample, one in zip(samples, found):
        assert np.array_equal(one["logits"], reference.run(graph, sample)[0]["logits"])


@pytest.mark.parametrize("cfg", [PYNQ, ROWS], ids=lambda cfg: cfg.name)
def test_images_share_weights_and_rows(cfg):
    graph = import_model(DIGITS)
    alone, several = (launch_cycles(compile_graph(of_images(graph, n), cfg)) for n in (1, 4))
    assert several < 0.7 * 4 * alone


def one_operator(op, *inputs):
    return g.Graph("one", inputs, (op.output,), (op,))


def test_what_may_mix_images_is_named():
    x, y = g.Tensor("x", (1, 4)), g.Tensor("y", (2, 2))
    mixed = one_operator(g.Reshape("fold", (x,), y), x)
    with pytest.raises(UnsupportedError, match="batch 2: Reshape 'fold' may mix images; use batch 1"):
        of_images(mixed, 2)
    flipped = one_operator(g.Transpose("flip", (x,), g.Tensor("z", (4, 1)), (1, 0)), x)
    with pytest.raises(UnsupportedError, match="Transpose 'flip' may mix images"):
        of_images(flipped, 2)
    constant = g.Tensor("c", (1, 4), data=np.zeros((1, 4), np.int8))
    joined = one_operator(g.Concat("join", (x, constant), g.Tensor("z", (1, 8)), 1), x)
    with pytest.raises(UnsupportedError, match="Concat 'join' may mix images"):
        of_images(joined, 2)
    padded = one_operator(g.Pad("pad", (x,), g.Tensor("z", (2, 4)), ((0, 1), (0, 0)), 0), x)
    with pytest.raises(UnsupportedError, match="Pad 'pad' may mix images"):
        of_images(padded, 2)


def test_constants_of_one_row_stay():
    x, constant = g.Tensor("x", (1, 4)), g.Tensor("c", (1, 4), data=np.arange(4, dtype=np.int8)[None])
    graph = one_operator(g.Add("add", (x, constant), g.Tensor("y", (1, 4))), x)
    (op,) = of_images(graph, 3).ops
    assert [t.shape for t in (*op.inputs, op.output)] == [(3, 4), (1, 4), (3, 4)]


def test_refusals():
    graph = import_model(DIGITS)
    assert of_images(graph, 1) is graph
    for count in (0, -1, 1.5, "3"):
        with pytest.raises(InputError, match=f"batch {count!r}: must be an integer of at least 1"):
            of_images(graph, cast(int, count))
    state, y = g.Tensor("s", (1, 4)), g.Tensor("y", (1, 4))
    op = g.Requantize("copy", (state,), y)
    kept = g.Graph("kept", (), (y,), (op,), (g.State(state, np.zeros((1, 4), np.int8), y),))
    with pytest.raises(UnsupportedError, match="keeps values from one input to the next; use batch 1"):
        of_images(kept, 2)


def test_shapes_of_one_image():
    executable = compile_graph(of_images(import_model(DIGITS), 4), PRESETS["tiny"])
    one = of_one(executable, 4)
    assert [t.shape for t in (*executable.inputs, *executable.outputs)] == [(4, 1, 8, 8), (4, 10)]
    assert [t.shape for t in (*one.inputs, *one.outputs)] == [(1, 1, 8, 8), (1, 10)]
    assert [t.shape for t in one.entries[0]] == [(1, 1, 8, 8)]


def test_more_than_the_memory_holds_is_refused():
    x, y = g.Tensor("x", (1, 1 << 20)), g.Tensor("y", (1, 1 << 20))
    graph = one_operator(g.Requantize("copy", (x,), y), x)
    most = CAPACITY // (2 << 20)
    assert of_images(graph, most).inputs[0].shape == (most, 1 << 20)
    with pytest.raises(
        CapacityError,
        match=f"batch {most + 1}: inputs and results take 2,097,152 bytes of each image.*use batch {most} or",
    ):
        of_images(graph, most + 1)
    image, wide, mean = g.Tensor("i", (1, 1, 1024, 1024)), g.Tensor("m", (1, 3, 1024, 1024)), g.Tensor("e", (1, 3))
    ops = g.Concat("grow", (image, image, image), wide, 1), g.Mean("mean", (wide,), mean, (2, 3))
    with pytest.raises(CapacityError, match=f"'m' takes 3,145,728 .*use batch {CAPACITY // (3 << 20)} or"):
        of_images(g.Graph("grown", (image,), (mean,), ops), most)
