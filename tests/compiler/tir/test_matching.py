"""Which instructions copies, tensorized loops and expressions become; test_record.py checks what they compute."""

import pytest

from tilewright.compiler.intrin import ACC
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.tile import Tile
from tilewright.compiler.tvm_compat import Schedule, T, te, tirx
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError


def loaded(shape, index, source=(6, 6)):
    """A schedule that copies `index(x, *position)` of x (*source, 1, 16), int32, to accumulators of `shape` entries."""
    x = te.placeholder((*source, 1, 16), "int32", "x")
    tile = te.compute((*shape, 1, 16), lambda *i: index(x, i[:-2], i[-2:]), name="tile")
    out = te.compute(tile.shape, lambda *i: tile(*i).astype("int8"), name="out")
    sch = Schedule(te.create_prim_func([x, out]))
    sch.set_scope(sch.get_sblock("tile"), 0, ACC)
    return sch


def cut(i, j):
    return lambda x, at, lane: x(at[0] + i, at[1] + j, *lane)


def padded(i, j, value=0):
    def element(x, at, lane):
        row, column = at[0] - i, at[1] - j
        inside = tirx.all(row >= 0, row < 6, column >= 0, column < 6)
        return tirx.if_then_else(inside, x(row, column, *lane), tirx.const(value, "int32"))

    return element


SHAPE = ("y_size", "x_size", "x_stride", "dram_base", "sram_base")
PADS = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")


@pytest.mark.parametrize(
    "shape, index, expected",
    [
        ((6, 6), cut(0, 0), [(1, 36, 36, 0, 0)]),  # all of it is one row
        ((2, 6), cut(3, 0), [(1, 12, 12, 18, 0)]),
        ((4, 3), cut(1, 2), [(4, 3, 6, 8, 0)]),
        ((6, 6), lambda x, at, lane: x(at[1], at[0], *lane), [(6, 1, 6, k, 6 * k) for k in range(6)]),
        ((6, 6), lambda x, at, lane: x(5 - at[0], at[1], *lane), [(1, 6, 6, 30 - 6 * k, 6 * k) for k in range(6)]),
    ],
)
def test_loads(instructions, shape, index, expected):
    loads = [fields for name, fields in instructions(loaded(shape, index)) if name == "LOAD.ACC"]
    assert [tuple(f[key] for key in SHAPE) for f in loads] == expected


def test_padding_belongs_to_the_load(instructions):
    (load,) = [fields for name, fields in instructions(loaded((9, 10), padded(1, 3))) if name == "LOAD.ACC"]
    assert tuple(load[key] for key in SHAPE) == (6, 6, 6, 0, 0)
    assert tuple(load[key] for key in PADS) == (1, 2, 3, 1)


def test_padding_beyond_the_fields_is_loads_of_nothing(instructions):
    loads = [fields for name, fields in instructions(loaded((30, 6), padded(20, 0))) if name == "LOAD.ACC"]
    covered = [(f["y_pad_0"] + f["y_size"] + f["y_pad_1"]) * (f["x_pad_0"] + f["x_size"] + f["x_pad_1"]) for f in loads]
    assert sum(covered) == 30 * 6 and sum(f["y_size"] * f["x_size"] for f in loads) == 36
    assert [f["sram_base"] for f in loads] == [sum(covered[:k]) for k in range(len(loads))]


def test_a_store_has_the_stride_of_the_tensor(instructions):
    sch = loaded((6, 6), cut(0, 0))
    tile, out = sch.get_sblock("tile"), sch.get_sblock("out")
    _, j, *_ = sch.get_loops(out)
    half, _ = sch.split(j, [2, 3])
    sch.reorder(half, sch.get_loops(out)[0])
    sch.compute_at(tile, half)
    stores = [fields for name, fields in instructions(sch) if name == "STORE.OUT"]
    assert [tuple(f[key] for key in SHAPE[:4]) for f in stores] == [(6, 3, 6, 0), (6, 3, 6, 3)]


@pytest.mark.parametrize(
    "other, inside, text",
    [
        (lambda x, lane: x(0, 0, *lane), lambda at, lane: at[0] < 3, "the padding .* is not a constant"),
        (
            lambda x, lane: tirx.const(0, "int32"),
            lambda at, lane: lane[1] < 3,
            "padding cuts through an entry of 16",
        ),
    ],
)
def test_padding_that_no_load_has_is_refused(instructions, other, inside, text):
    def element(x, at, lane):
        return tirx.if_then_else(inside(at, lane), x(at[0], at[1], *lane), other(x, lane))

    with pytest.raises(ScheduleError, match=f"^tile.*: {text}"):
        instructions(loaded((6, 6), element))


def test_a_constant_is_not_stored_to_dram(instructions):
    x = te.placeholder((6, 1, 16), "int8", "x")
    out = te.compute(x.shape, lambda *i: tirx.const(3, "int8"), name="out")
    with pytest.raises(ScheduleError, match=r"^out.*a constant cannot be stored to DRAM; set_scope"):
        instructions(Schedule(te.create_prim_func([x, out])))


VTA = PRESETS["vta"]


def test_a_tile_is_a_reset_and_a_product(instructions):
    sch = dense(VTA, 4, 3 * 16, 2 * 16, tile=Tile(n=4, co=2, ci=3))
    gemm = [fields for name, fields in instructions(sch) if name == "GEMM"]
    assert [f["reset"] for f in gemm] == [1, 0]
    runs = [f["iter_out"] * f["iter_in"] * (f["uop_end"] - f["uop_bgn"]) for f in gemm]
    assert runs == [4 * 2, 4 * 2 * 3]


@T.prim_func
def stranger(px: T.handle, py: T.handle):
    x = T.match_buffer(px, (8, 1, 16), "int32")
    y = T.match_buffer(py, (8, 1, 16), "int8")
    acc = T.alloc_buffer((8, 1, 16), "int32", scope="local.acc")
    for i, b, c in T.grid(8, 1, 16):
        acc[i, b, c] = x[i, b, c]
    T.evaluate(T.call_extern("int32", "somebody.elses"))
    for i, b, c in T.grid(8, 1, 16):
        y[i, b, c] = T.cast(acc[i, b, c], "int8")


def test_other_calls_are_refused(instructions):
    with pytest.raises(ScheduleError, match="somebody.elses.*is not an instruction of the accelerator"):
        instructions(stranger)
