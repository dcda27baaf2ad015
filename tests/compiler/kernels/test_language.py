"""The tile language: views as NumPy has them, statements as loops, what stays on chip, and what mistakes say."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tests.compiler.kernels.operators import (
    attention,
    gather,
    read,
    requantised,
    rms_norm,
    rotation,
    write_columns,
    write_rows,
)  # fmt: skip
from tilewright.compiler.graph import Add, Maximum, Mul, Requantize, Tensor
from tilewright.compiler.graph.integer_forms import Requant
from tilewright.compiler.kernels.checked import CheckedKernel
from tilewright.compiler.kernels.elementwise import lookup, pair, requantise, weighted_sum
from tilewright.compiler.kernels.language import (
    Kernel,
    added,
    by_shape,
    case_of,
    cycles,
    every,
    lower,
    why_not,
)  # fmt: skip
from tilewright.compiler.kernels.norm import rms_norm as norm_kernel
from tilewright.compiler.kernels.recording import Recording, limits, packed_shape
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, KernelError, ScheduleError, Unfit
from tilewright.hw.isa import Isa, Mem
from tilewright.runtime.symbols import MOST_LIMIT
from tilewright.sim.timing import predict

CFG, PLUS = PRESETS["tiny"], PRESETS["pynq_z1_plus"]
SHAPE = (1, 8, 6, 5)  # two blocks of four channels


def operator():
    x, y, z = (Tensor(name, SHAPE, scale=0.1) for name in "xyz")
    return Maximum("op", (x, y), z)


def recording(op, cfg=CFG):
    rec = Recording(cfg, "double", op.name)
    for t in (*op.inputs, op.output):
        kind = "output" if t is op.output else "input"
        rec.activations[t.name] = rec.buffer(t.name, packed_shape(t.shape, cfg), kind=kind)
    return rec


@contextmanager
def kernel():
    op = operator()
    k = Kernel(recording(op), op)
    with k.scope():
        yield k


def ran(record):
    """(inputs, output) of the operator by `record` on the behavioural model, in packed entries."""
    rec, rng = recording(operator()), np.random.default_rng(3)
    lower(record, rec, operator())
    inputs = {name: rng.integers(-128, 128, (1, 2, 6, 5, 1, 4)).astype(np.int8) for name in "xy"}
    return inputs, tw.run(rec.program, inputs)[0]["z"]


def pixels(image):
    return image[0].merged("p", "h", "w")


def numbers(view):
    """The entries of a view, one after the other."""
    found = np.array([view.base])
    for axis in view.axes:
        found = (found[:, None] + np.arange(axis.extent) * axis.step).reshape(-1)
    return found


def test_views_are_indexed_as_arrays():
    rng, array = np.random.default_rng(1), np.arange(2 * 6 * 5).reshape(1, 2, 6, 5)
    with kernel() as k:
        x = k.input(0)
        assert x.shape == {"n": 1, "b": 2, "h": 6, "w": 5} and x.size == 60 and x.dense()
        for _ in range(200):
            key = tuple(
                int(rng.integers(n))
                if rng.random() < 0.3
                else slice(a := int(rng.integers(n)), int(rng.integers(a, n)) + 1)
                for n in array.shape[: rng.integers(1, 5)]
            )
            assert numbers(x[key]).tolist() == array[key].reshape(-1).tolist(), key
        assert numbers(x[0, :, 1::2]).tolist() == array[0, :, 1::2].reshape(-1).tolist()
        assert numbers(x[..., 2]).tolist() == array[..., 2].reshape(-1).tolist()
        merged = x.merged("channel", "n", "b").merged("pixel", "h", "w")
        assert merged.shape == {"channel": 2, "pixel": 30}
        assert merged.split("pixel", y=3, x=10).shape == {"channel": 2, "y": 3, "x": 10}
        assert x.named(h="row").shape == {"n": 1, "b": 2, "row": 6, "w": 5}


def test_a_window_beyond_the_edge_is_padded():
    with kernel() as k:
        source = k.input(0)[0].window(fill=-128, h=(-1, 3), w=(3, 4))
        assert [axis.pads for axis in source.axes] == [(0, 0), (1, 0), (0, 2)]
        assert source.padded == {"b": 2, "h": 3, "w": 4} and source.fill == -128
        inside = k.input(0)[0].window(fill=-128, h=(1, 3), w=(0, 5))
        assert inside.padded == inside.shape and inside.fill == 0
        assert k.input(0)[0, 0].window(h=(-2, 4)).padded == {"h": 4, "w": 5}


def test_statements_compute_as_numpy_does():
    def record(k, op):
        one = k.identity()
        xs, ys, acc = k.slots(30), k.banks(30), k.tile(Mem.ACC, b=2)
        for block in range(2):
            x = xs.load(k.input(0)[0, block].merged("p"))
            y = ys.next(p=30)
            y[...] = x @ one
            y += xs.load(k.input(1)[0, block].merged("p")) @ one
            y += 7
            y *= 3
            y >>= 1
            y.maximum(-60)
            y.minimum(50)
            k.store(k.output[0, block].merged("p"), y)
        acc[...] = 0

    inputs, found = ran(record)
    x, y = (inputs[name].astype(np.int64) for name in "xy")
    assert np.array_equal(found, np.clip((x + y + 7) * 3 >> 1, -60, 50))


def test_axes_that_the_result_lacks_are_summed_and_those_of_the_operand_repeated():
    def record(k, op):
        one = k.identity()
        x = k.slots(60).load(pixels(k.input(0)))
        sums, wide = k.tile(Mem.ACC, 0, k.bank, p=30), k.tile(Mem.ACC, k.bank, b=2, p=30)
        sums[...] = x @ one  # over b: the first replaces what is there
        wide[...] = 0
        wide += sums  # along b
        k.store(pixels(k.output), wide)

    inputs, found = ran(record)
    expected = inputs["x"].astype(np.int64).sum(1, keepdims=True).repeat(2, 1)
    assert np.array_equal(found, expected.astype(np.int8))


def test_parts_along_an_axis_become_one():
    def record(k, op):
        acc = k.load(k.tile(Mem.ACC, b=2, h=6, w=5), k.input(0)[0])
        largest = acc.sum_along("h").max_along("w")
        for block in range(2):
            k.store(k.output[0, block, 0, 0], largest[block])

    inputs, found = ran(record)
    expected = inputs["x"].astype(np.int64).sum(2).max(2)
    assert np.array_equal(found[:, :, 0, 0], expected.astype(np.int8))


def test_tiles_of_a_scope_are_apart_from_others_while_it_lasts():
    with kernel() as k:
        outer = k.tile(Mem.INP, p=k.slot)
        for _ in range(3):
            with k.scope():
                first, second = k.tiles(Mem.INP, {"p": 3, "q": 2}, {"r": k.slot - 6})
                used = np.concatenate([numbers(outer), numbers(first), numbers(second)])
                assert np.array_equal(np.sort(used), np.arange(CFG.inp_depth))
        assert k.most(9, lambda count: ([{"p": count}], [{"p": count, "q": 9}, {"r": k.bank - 45}])) == 5


def test_a_held_tile_is_loaded_once_and_the_alu_reads_the_other_bank():
    def record(k, op):
        one, xs, ys = k.identity(), k.slots(60, count=1), k.banks(30)
        for block in range(2):
            x = xs.hold(pixels(k.input(0)))
            y, z = ys.next(p=30), ys.other(p=30)
            assert abs(y.base - z.base) >= k.bank
            y[...] = x[block] @ one
            z[...] = x[1 - block] @ one
            z *= -1
            y += z
            k.store(k.output[0, block].merged("p"), y)

    inputs, found = ran(record)
    x = inputs["x"].astype(np.int64)
    assert np.array_equal(found, (x - x[:, ::-1]).astype(np.int8))
    rec = recording(operator())
    lower(record, rec, operator())
    assert sum(row.fields.get("mem") == Mem.INP.id for row in rec.program._rows if row.format == "LOAD") == 1


def test_what_is_held_is_loaded_again_where_another_tile_took_its_place_or_it_is_another():
    with kernel() as k:
        xs, image = k.slots(40), k.input(0)[0, 0]
        padded = xs.hold(image.window(h=(-1, 3), w=(0, 5)))
        other = xs.hold(image[:2])
        assert other.base != padded.base and xs.hold(image[:2]).base == other.base
        xs.load(image)
        xs.load(image)
        assert xs.hold(image[:2]).base == padded.base
        recorded = len(k.rec.program._rows)
        assert xs.hold(image[:2]).base == padded.base and len(k.rec.program._rows) == recorded
        xs.hold(image)  # so that the next place is that of the part
        assert xs.other(p=40).base == padded.base
        recorded = len(k.rec.program._rows)
        xs.hold(image[:2])
        assert len(k.rec.program._rows) == recorded + 1


def test_rows_multiply_lane_by_lane_and_rows_of_a_store_have_their_parameters():
    rows, bias = np.arange(-3, 5).reshape(2, 4), np.arange(0, 80, 10)

    def record(k, op):
        weights = k.rows("b", rows)
        pars = k.load(k.tile(Mem.PAR, b=2), k.requant(Requant(0, 1 << 30, 1, 0), bias=bias))
        x, y = k.slots(60).load(pixels(k.input(0))), k.tile(Mem.ACC, b=2, p=30)
        y[...] = x * weights
        k.store(pixels(k.output), y, pars)

    inputs, found = ran(record)
    product = inputs["x"] * rows[:, None, None, None, :].astype(np.int64)
    assert np.array_equal(found, np.clip(product + bias.reshape(2, 1, 1, 1, 4), -128, 127))


def test_a_store_is_cut_where_rows_are_not_those_of_its_parameters():
    bias = np.arange(0, 120, 5)  # of six rows

    def record(k, op):
        pars = k.load(k.tile(Mem.PAR, h=6), k.requant(Requant(0, 1 << 30, 1, 0), bias=bias).named(b="h"))
        k.store(k.output[0], k.load(k.tile(Mem.ACC, b=2, h=6, w=5), k.input(0)[0]), pars)

    inputs, found = ran(record)
    wide = inputs["x"].astype(np.int64) + bias.reshape(1, 1, 6, 1, 1, 4)
    assert np.array_equal(found, np.clip(wide, -128, 127))


def test_statements_together_are_one_instruction():
    def record(k, op):
        one = k.identity()
        x, y = k.slots(60).load(pixels(k.input(0))), k.tile(Mem.ACC, 0, 60, b=2, p=30)
        with k.together():
            y[0] = x[1] @ one
            y[1] = x[0] @ one
        k.store(pixels(k.output), y)

    inputs, found = ran(record)
    assert np.array_equal(found, inputs["x"][:, ::-1])
    rec = recording(operator())
    lower(record, rec, operator())
    assert sum(row.format == "GEMM" for row in rec.program._rows) == 1


def loads_together(k):
    with k.together():
        k.load(k.tile(Mem.INP, w=5), k.input(0)[0, 0, 0])


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda k: k.input(0)[0, 2], r"\[b 2\]: must be 0 to 1"),
        (lambda k: k.input(0)[0, 1:3], r"\[b 1:3\]: outside"),
        (lambda k: k.input(0)[0, 0, 0, 0, 0], "5 indices: it has 4 axes"),
        (lambda k: k.input(0).axis("q"), "has no axis q; its axes are n, b, h, w"),
        (lambda k: k.input(0)[:, :, :3].merged("p", "b", "h"), "axes b, h are not one piece of memory"),
        (lambda k: k.input(0).merged("p", "b", "w"), "axes b, w are not beside each other"),
        (lambda k: k.input(0).split("w", y=2, x=2), "axis w cannot be split"),
        (lambda k: k.load(k.tile(Mem.INP, p=4), k.input(0)[0, 0, 0]), "they must have one size"),
        (lambda k: k.slots(60).load(k.input(0)[0, 0, :, ::2].window(h=(-1, 3), w=(0, 2))), "h has padding"),
        (lambda k: k.tile(Mem.ACC, p=4).pieces({"p": 2}, {"p": 3}), "is no one piece of 5 entries"),
        (lambda k: k.tile(Mem.ACC, p=4).at(q=0), "has no axis q"),
        (lambda k: k.tile(Mem.WGT, p=1).rows(p=5), "has no 5 rows of weights"),
        (lambda k: k.slots(4).next(p=5), "is no one piece of 5 entries"),
        (lambda k: k.tile(Mem.INP, p=4).reshaped(h=2, w=3), "outside, or without entries"),
        (lambda k: k.store(k.output[0, 0, 0], k.tile(Mem.ACC, p=5)), "the same axes"),
        (lambda k: k.tile(Mem.ACC, p=4).add(k.tile(Mem.ACC, p=5), "p"), "axis p has different extents"),
        (lambda k: k.tile(Mem.ACC, p=4).add(k.tile(Mem.ACC, p=4), "q"), "loops over q: the axes are p"),
        (lambda k: k.input(0)[0, 0].named(h="w"), "two of them have one name"),
        (lambda k: k.input(0)[0, 0, ::0], "steps must be at least 1"),
        (lambda k: every(1, 0, 2), "at least one"),
        (lambda k: k.input(0)[0, 0].window(h=(-1, 3), w=(0, 5)).merged("p"), "take the window last"),
        (lambda k: k.input(0)[0].window(h=(-1, 3))[:, 1], "h has padding"),
        (lambda k: k.store(k.output[0, 0], k.tile(Mem.ACC, w=5, h=6)), "the same axes"),
        (lambda k: k.load(k.tile(Mem.INP, w=5, h=6), k.input(0)[0, 0]), "in another order"),
        (lambda k: k.store(k.output[0, 0, 0], k.tile(Mem.INP, w=5)), "is in INP: the statement takes one in ACC"),
        (lambda k: k.tile(Mem.ACC, p=4).maximum(k.tile(Mem.INP, p=4)), "is in INP"),
        (lambda k: k.zero(k.tile(Mem.INP, p=4)), "is in INP"),
        (lambda k: k.multiply(k.tile(Mem.ACC, p=4), k.tile(Mem.ACC, p=4) @ k.identity()), "takes one in INP"),
        (lambda k: k.multiply(k.tile(Mem.ACC, p=4), k.tile(Mem.INP, p=4) * k.identity()), "their rows"),
        (lambda k: k.tile(Mem.ACC, p=4).rescale(k.tile(Mem.PAR, p=2)), "one entry of parameters"),
        (lambda k: k.store(k.output[0, 0, 0], k.tile(Mem.ACC, w=5), k.tile(Mem.PAR, b=2)), "one for each of an axis"),
        (lambda k: k.matrices("m", np.eye(4)[None] * 200), "weights m are 0.0 to 200.0"),
        (lambda k: k.rows("r", np.full((1, 4), -129)), "must be within -128 to 127"),
        (loads_together, "inside of `together`"),
        (lambda k: k.tile(Mem.ACC, p=4).__setitem__(..., 5), "set to a product or to 0"),
        (lambda k: k.tile(Mem.ACC, p=4).__setitem__(..., k.tile(Mem.ACC, p=4)), "copied by a product"),
    ],
)
def test_mistakes_are_one_sentence(mistake, says):
    with kernel() as k, pytest.raises(KernelError, match=says) as found:
        mistake(k)
    assert "\n" not in str(found.value)


def test_a_checked_kernel_finds_what_was_never_written_and_numbers_beyond_16_bits():
    with kernel() as k:
        checked = CheckedKernel.of(k)
        y = checked.load(checked.tile(Mem.ACC, p=30), checked.input(0)[0, 0].merged("p"))
        y += (1 << 15) - 1
        with pytest.raises(KernelError, match="ADD of .* with 32768: must be within -32768 to 32767"):
            y += 1 << 15
        copy = checked.temporary("copy", p=30)
        checked.store(copy[:29], y[:29])
        with pytest.raises(KernelError, match="is loaded, but was never stored"):
            checked.load(y, copy)
        with pytest.raises(KernelError, match="it stores 0 of the 60 entries of its output"):
            checked.finish()


def test_constants_that_stay_are_apart_from_all_that_a_kernel_takes():
    with kernel() as k:
        first = k.constant(Mem.INP, "first", np.ones((CFG.inp_depth // 16, 1, 4), np.int8), kept=True)
        second = k.constant(Mem.INP, "second", np.full((1, 1, 4), 2, np.int8), kept=True)
        with k.scope():
            inside = k.tile(Mem.INP, p=CFG.inp_depth - first.size - second.size)
            taken = [numbers(tile) for tile in (first, second, inside)]
            assert np.array_equal(np.sort(np.concatenate(taken)), np.arange(CFG.inp_depth))
        with pytest.raises(CapacityError, match="do not fit"):
            k.tile(Mem.INP, p=CFG.inp_depth - first.size - second.size)
            k.constant(Mem.INP, "third", np.full((1, 1, 4), 3, np.int8), kept=True)


def test_what_does_not_fit_is_unfit():
    with kernel() as k:
        for make in (
            lambda: k.tile(Mem.INP, p=CFG.inp_depth + 1),
            lambda: k.slots(k.slot + 1),
            lambda: (k.tile(Mem.ACC, low=k.bank, p=4), k.banks(k.bank - 3)),
            lambda: k.tile(Mem.ACC, p=0),
            lambda: (k.tile(Mem.INP, p=k.slot), k.tile(Mem.INP, p=k.slot + 1)),
        ):
            with pytest.raises(Unfit, match="do not fit"):
                make()
        with pytest.raises(Unfit, match="2 elements of h from 6 on lie in the padding alone"):
            k.input(0)[0, 0].window(h=(6, 2), w=(0, 5))
        with pytest.raises(Unfit, match="padding of 16: at most 15"):
            k.load(k.tile(Mem.INP, p=5 * 22), k.input(0)[0, 0].window(h=(-16, 22), w=(0, 5)))
        with pytest.raises(Unfit, match="it needs the extension ternary"):
            k.need("ternary")
        with pytest.raises(Unfit, match="batch 1: it needs batch 2"):
            k.need(batch=2)

    def large(k, op):
        k.banks(CFG.acc_depth)

    assert "do not fit" in why_not(large, operator(), CFG)


def loads_of(rec, mem=Mem.WGT):
    decoded = Isa(rec.cfg).decode(rec.program.finish().insn)
    return [(f["sram_base"], f["x_size"]) for f in decoded if f.get("mem") == mem]


def test_what_is_kept_is_loaded_once_unless_something_takes_its_place():
    rec = recording(operator())
    one, two = (np.full((2, 4, 4), value, np.int8) for value in (1, 2))
    first, second, third, last = (Kernel(rec, operator()) for _ in range(4))
    with first.scope():
        places = [first.constant(Mem.WGT, "w", data, kept=True).base for data in (one, two, one)]
    assert places[0] == places[2] != places[1] and min(places) >= CFG.wgt_depth * 15 // 16
    with second.scope():
        assert second.tile(Mem.WGT, entry=16).base < CFG.wgt_depth // 2  # others have no reason to take it
        with second.scope():
            assert second.constant(Mem.WGT, "w", one, kept=True).base == places[0]
    with third.scope():
        third.tile(Mem.WGT, entry=CFG.wgt_depth)
    with last.scope():
        last.constant(Mem.WGT, "w", two, kept=True)
    assert len(loads_of(rec)) == 3


def test_a_place_that_was_given_back_is_taken_last():
    with kernel() as k:
        with k.scope():
            first = k.tile(Mem.INP, p=8)
        assert k.rec.placement.last_use(Mem.INP, first.base, 8) > 0
        with k.scope():
            assert k.tile(Mem.INP, p=8).base == first.base + 8  # free for longer
            assert k.tile(Mem.INP, first.base, first.base + 8, p=4).base == first.base
        with pytest.raises(ScheduleError), k.scope():
            k.tile(Mem.WGT, p=4)
            raise ScheduleError("too large")
        assert k.rec.placement.last_use(Mem.WGT, 0, CFG.wgt_depth) == 0  # it has used nothing


def test_the_latest_tables_stay():
    rec = recording(operator(), PLUS)
    tables, k = [np.arange(256) - number for number in range(PLUS.tables + 1)], Kernel(rec, operator())
    for each, number in ((tables[0], 0), (tables[1], 1), (tables[0], 0)):
        assert k.table("table", each) == number
    for number in range(2, PLUS.tables):
        k.table("table", tables[number])
    again = Kernel(rec, operator())
    assert again.table("table", tables[0]) == 0  # it was used before those from the third on, and stays
    assert again.table("new", tables[-1]) == 1
    with pytest.raises(Unfit, match=f"it needs {PLUS.tables + 1} tables; pynq_z1_plus has {PLUS.tables}"):
        k.table("table", tables[-1])
    assert len(loads_of(rec, Mem.PAR)) == PLUS.tables + 1


def alone(record, op):
    """(why it does not fit, cycles) of an operator in a program of its own, recorded afresh."""
    rec = recording(op, PLUS)
    try:
        lower(record, rec, op)
    except (CapacityError, ScheduleError) as exc:
        return str(exc), 0
    return "", predict(rec.program, PLUS).cycles


RNG = np.random.default_rng(11)
SCALES = (RNG.choice([0.02, 0.04, 0.08], (12, 3)) * RNG.uniform(0.8, 1.2, (12, 1))).tolist()
KERNELS = (pair, Mul, 2), (weighted_sum, Add, 2), (requantise, Requantize, 1), (lookup, Requantize, 1)


@pytest.mark.parametrize("record, kind, count", KERNELS)
def test_operators_that_are_tried_once_are_alike(record, kind, count):
    """What `by_shape` says of a kernel: scales change neither whether it fits nor its cycles. Seed 11."""
    found = dict[object, set[tuple[str, int]]]()
    for *scales, last in SCALES:
        inputs = tuple(Tensor(f"x{n}", SHAPE, scale=scales[n], zero_point=3) for n in range(count))
        op = kind("op", inputs, Tensor("y", SHAPE, scale=last, zero_point=-5))
        case = case_of(record, op)
        found.setdefault(case, set()).add(alone(record, op))
    assert all(len(each) == 1 for each in found.values()) and len(found) < len(SCALES)


@pytest.mark.parametrize("record, kind, count", KERNELS)
def test_what_an_operator_adds_to_a_row_of_its_like(record, kind, count):
    """Each reads what the one before wrote, and has a table of its own; recorded one by one, with buffers apart."""
    tensors = [Tensor(f"t{n}", SHAPE, scale=0.04 + (count == 1) * n * n / 999, zero_point=3) for n in range(9)]
    other = Tensor("other", SHAPE, scale=0.04, zero_point=3)
    ops = [kind(f"op{n}", (x, other)[:count], y) for n, (x, y) in enumerate(zip(tensors, tensors[1:]))]

    def row(length):
        rec = Recording(PLUS, "double", "row")
        rec.program.uops_ahead = True  # as launches of networks have it
        for t in (*tensors, other):
            kind = "input" if t in (tensors[0], other) else "temp"
            rec.activations[t.name] = rec.buffer(t.name, packed_shape(SHAPE, PLUS), kind=kind)
        for op in ops[:length]:
            with rec.program.origin(op.name):
                lower(record, rec, op)
        return predict(rec.program, PLUS).cycles

    found = added(record, ops[1], PLUS)
    assert found == pytest.approx(row(2) - row(1), rel=0.15)
    assert 7 * found == pytest.approx(row(8) - row(1), rel=0.2)


ALIKE = {
    "gather": (gather(9, 40),),
    "norm": (rms_norm((2, 40)),),
    "rotation": (rotation(2, 16),),
    "caches": (*write_columns(32, 32), read(32)),
    "rows": (write_rows(40, 48, 16), read(40, 16)),
    "attention": (attention("two queries of each of four", 32, 32),),
}


def other(op):
    """`op` of other scales and constants."""
    inputs = (replace(t, scale=t.scale / 3, data=None if t.data is None else t.data // 2) for t in op.inputs)
    found = replace(op, inputs=tuple(inputs), output=replace(op.output, scale=op.output.scale / 3))
    return replace(found, **{name: getattr(op, name) // 2 for name in ("gain", "cosine", "sine") if hasattr(op, name)})


@pytest.mark.parametrize("ops", ALIKE.values(), ids=ALIKE)
def test_scales_and_constants_change_no_instruction(steps, ops):
    symbols = [dict.fromkeys((t.name for op in ops for t in op.inputs if t.shape == (1,)), 0)]
    first, second = steps(*ops, symbols=symbols), steps(*map(other, ops), symbols=symbols)
    assert np.array_equal(first.insn, second.insn)
    assert any(a.data is not None and not np.array_equal(a.data, b.data) for a, b in zip(first.buffers, second.buffers))


def test_operators_of_equal_shapes_are_tried_once():
    tried = []

    @by_shape()
    def counted(k, op):
        tried.append(op)
        norm_kernel(k, op)

    op = rms_norm((1, 64))
    assert cycles(counted, op, PLUS) == cycles(counted, other(op), PLUS) and tried == [op]
    assert cycles(counted, rms_norm((1, 80)), PLUS) and len(tried) == 2


def test_each_symbol_has_the_smallest_limit_of_its_operators():
    ops = gather(9, 16), rotation(1, 16, 48), write_rows(16, 8), write_columns(32, 32)[1], requantised()
    assert [op.symbol and op.symbol[1] for op in ops] == [9, 48, MOST_LIMIT, 32, None]
    assert limits(ops) == {"token": 9, "position": 32} and limits(ops[:2])["position"] == 48
