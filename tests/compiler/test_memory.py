"""Memory plans against their definition and against the best of all orders, and their pictures."""

import sys
import xml.etree.ElementTree
from itertools import permutations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import Add, Dequantize, Graph, Reshape, Tensor, Transpose
from tilewright.compiler.memory import Lifetime, draw, graph_buffers, lower_bound, plan
from tilewright.hw.errors import CapacityError, FileError, InputError, UnsupportedError

MODELS = Path(__file__).parents[4] / "shared" / "models"
# of the files' tensors as they are: buffers, their sum, bound, greedy by size
FILES = {
    "resnet8_int8": (16, 117_844, 49_152, 49_152),
    "vww_int8": (31, 259_460, 55_296, 64_512),
    "kws_int8": (13, 72_578, 16_000, 16_000),
    "ad01_int8": (11, 2_312, 768, 768),
}


def check(found):
    """No two buffers that are alive together overlap, unless one takes the other's place exactly."""
    for b in found.buffers:
        address = found.addresses[b.name]
        assert address % b.align == 0 and 0 <= address <= found.nbytes - b.nbytes
        for o in found.buffers:
            if o is not b and b.first <= o.last and o.first <= b.last:
                other = found.addresses[o.name]
                shared = address == other and (
                    (b.name in o.in_place_of and b.last == o.first and o.nbytes <= b.nbytes)
                    or (o.name in b.in_place_of and o.last == b.first and b.nbytes <= o.nbytes)
                )
                assert shared or address + b.nbytes <= other or other + o.nbytes <= address


def best(buffers):
    """The smallest arena: some order in which every buffer goes to the lowest free place gives it."""
    sizes = []
    for order in permutations(buffers):
        placed = []
        for b in order:
            taken = sorted((a, a + o.nbytes) for o, a in placed if b.meets(o))
            address = 0
            for start, end in taken:
                if address + b.nbytes > start:
                    address = max(address, end)
            placed.append((b, address))
        sizes.append(max(a + b.nbytes for b, a in placed))
    return min(sizes)


@st.composite
def lifetimes(draw, most=6, align=(1,)):
    found = []
    for k in range(draw(st.integers(1, most))):
        first = draw(st.integers(0, 6))
        last = draw(st.integers(first, 7))
        found.append(Lifetime(f"b{k}", draw(st.integers(1, 9)), first, last, draw(st.sampled_from(align))))
    return found


@settings(max_examples=40, deadline=None, derandomize=True)
@given(lifetimes())
def test_plans_are_the_best_of_all_orders(buffers):
    found = plan(buffers)
    check(found)
    assert found.nbytes == best(buffers) >= found.bound
    assert found.nbytes <= found.greedy
    assert plan(buffers).addresses == found.addresses


@settings(max_examples=60, deadline=None, derandomize=True)
@given(lifetimes(12, (1, 4, 6)), st.data())
def test_alignment_and_places_that_are_taken_over(buffers, data):
    others = []
    for b in buffers:
        dying = [o.name for o in buffers if o.last == b.first and o is not b]
        places = tuple(data.draw(st.lists(st.sampled_from(dying), unique=True))) if dying else ()
        others.append(Lifetime(b.name, b.nbytes, b.first, b.last, b.align, places))
    found = plan(others)
    check(found)
    assert found.bound <= found.nbytes <= found.greedy


HARD = (
    Lifetime("a", 5, 0, 2),
    Lifetime("b", 2, 4, 4),
    Lifetime("c", 3, 2, 4),
    Lifetime("d", 6, 0, 1),
    Lifetime("e", 4, 2, 4),
)


def test_greedy_alone_is_not_enough_but_all_there_is_beside_tensorflow(monkeypatch):
    """The solver crashes in a process that has loaded TensorFlow, unless it was there before."""
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    found = plan(HARD)
    assert found.method == "exact" and found.nbytes == best(list(HARD)) < found.greedy
    monkeypatch.delitem(sys.modules, "ortools")
    found = plan(HARD)
    check(found)
    assert found.method == "greedy" and found.nbytes == found.greedy


@pytest.mark.skipif(not MODELS.is_dir(), reason="../shared/models is not there")
@pytest.mark.parametrize("name", FILES)
def test_plans_of_the_four_networks_reach_the_bound(name):
    buffers = graph_buffers(import_tflite(MODELS / f"{name}.tflite"))
    found = plan(buffers)
    check(found)
    assert (len(buffers), sum(b.nbytes for b in buffers), found.bound, found.greedy) == FILES[name]
    assert found.nbytes == found.bound
    assert found.method == ("greedy" if found.greedy == found.bound else "exact")


def test_a_place_is_taken_over_exactly():
    buffers = [Lifetime("x", 100, 0, 1), Lifetime("y", 100, 1, 2, in_place_of=("x",)), Lifetime("z", 50, 1, 1)]
    found = plan(buffers)
    assert found.nbytes == found.bound == 150 and found.addresses["x"] == found.addresses["y"]
    for larger in (  # or alive for longer
        [Lifetime("x", 100, 0, 1), Lifetime("y", 101, 1, 2, in_place_of=("x",))],
        [Lifetime("x", 101, 0, 2), Lifetime("y", 100, 1, 2, in_place_of=("x",))],
    ):
        assert plan(larger).nbytes == 201


def test_long_lived_buffers_share_with_nobody():
    buffers = [Lifetime("state", 8, 0, 3), *(Lifetime(f"b{k}", 5, k, k) for k in range(4))]
    found = plan(buffers)
    assert found.nbytes == 13
    assert len({found.addresses[f"b{k}"] for k in range(4)}) == 1


def test_the_bound_rounds_sizes_up_to_the_common_alignment():
    assert lower_bound([Lifetime("a", 10, 0, 0, 8), Lifetime("b", 17, 0, 1, 16)]) == (40, 0)
    assert lower_bound([]) == (0, 0) and plan([]).nbytes == 0


def test_too_little_memory_names_the_buffers():
    buffers = [Lifetime("first", 600, 0, 1), Lifetime("second", 500, 1, 2), Lifetime("later", 300, 2, 2)]
    with pytest.raises(CapacityError) as caught:
        plan(buffers, 1099)
    text = str(caught.value)
    assert "needs 1,100 bytes, the capacity is 1,099" in text and "'first' (600), 'second' (500)" in text
    assert "later" not in text
    assert plan(buffers, 1100).nbytes == 1100


@pytest.mark.parametrize(
    "count, facts, text",
    [
        (1, (0, 0, 1), "buffer 'x': 0 bytes"),
        (1, (1, 2, 1), "alive from step 2 to 1"),
        (2, (1, 0, 0), "two buffers of a memory plan have the same name"),
        (1, (1, 0, 0, 1, ("y",)), "'x' replaces 'y', which the plan does not have"),
    ],
)
def test_impossible_buffers(count, facts, text):
    with pytest.raises(InputError, match=text):
        plan([Lifetime("x", *facts)] * count)


def test_buffers_of_a_graph():
    """A relayout and a reshape rename; a sum may take the place of what dies; float32 counts four times."""
    x = Tensor("x", (1, 2, 3, 4))
    y = Tensor("x.nchw", (1, 4, 2, 3))
    s, r, f = Tensor("s", (1, 4, 2, 3)), Tensor("r", (1, 24)), Tensor("f", (1, 24), "float32")
    constant = Tensor("k", (1, 4, 1, 1), data=np.ones((1, 4, 1, 1), np.int8))
    ops = (
        Transpose("t", (x,), y, (0, 3, 1, 2), True),
        Add("sum", (y, constant), s),
        Reshape("flat", (s,), r),
        Dequantize("real", (r,), f),
    )
    graph = Graph("g", (x,), (f,), ops)
    assert graph_buffers(graph) == [Lifetime("x", 24, 0, 0), Lifetime("sum", 24, 0, 1), Lifetime("real", 96, 1, 1)]
    assert graph_buffers(graph, in_place=True)[1].in_place_of == ("x",)


pytest.importorskip("matplotlib")
DRAWN = plan([Lifetime("wide", 100, 0, 9), Lifetime("tall_and_thin", 900, 4, 4), Lifetime("tiny", 1, 5, 5)])


def test_pictures(tmp_path):
    for name in ("a.svg", "b.svg", "a.png"):
        draw(DRAWN, tmp_path / name, "one plan")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    text = (tmp_path / "a.svg").read_text()
    assert xml.etree.ElementTree.fromstring(text).tag.endswith("svg")
    assert "<!-- wide -->" in text and "<!-- tall_and_thin -->" in text  # matplotlib's comments before drawn text
    assert "<!-- tiny -->" not in text  # which would not fit its rectangle


def test_names_that_cannot_be_written(tmp_path):
    with pytest.raises(UnsupportedError, match=r"a\.pdf: a picture must end in png or svg"):
        draw(DRAWN, tmp_path / "a.pdf")
    with pytest.raises(FileError, match="does not exist"):
        draw(DRAWN, tmp_path / "none" / "a.svg")
    assert not list(tmp_path.iterdir())
