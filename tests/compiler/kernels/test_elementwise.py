"""Element-wise operators, movements and windows: which kernel and which instructions, in how many cycles."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiler.kernels.conftest import PLUS, SMALL, TINY
from tests.compiler.kernels.operators import (
    binary,
    cut,
    function,
    gated,
    joined,
    leaky,
    looked_up,
    mean,
    of_channels,
    of_pixels,
    padded,
    pool,
    requantised,
    resized,
    tensor,
)  # fmt: skip
from tilewright.compiler import graph as g
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import tables
from tilewright.compiler.graph.integer_forms import pair_form
from tilewright.compiler.kernels import table
from tilewright.compiler.kernels.elementwise import constant_per_channel, lines_of, pair
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.compiler.kernels.movement import concatenate, join_channels, move_channels
from tilewright.compiler.kernels.movement import cut as copy
from tilewright.compiler.kernels.pool import max_pool, max_pool_sorted, mean_of_pixels
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Isa, Mem
from tilewright.runtime.hostops.elementwise import squared_difference
from tilewright.runtime.loader import run

CFG = PRESETS["pynq_z1"]
EVERY = np.arange(-128, 128).reshape(1, 256, 1, 1)
LESS = CFG.replace(extensions=CFG.extensions - {"overwrite"})


def mnemonics(launch):
    isa = Isa(launch.cfg)
    return {isa.mnemonic(fields) for fields in isa.decode(launch.insn)}


# which kernel


def test_sums_are_products_of_the_array_where_weights_have_few_digits(exact):
    found = mnemonics(exact(binary(g.Add, (1, 20, 9, 11))))
    assert "DWGEMM" in found and not {"ALU.RESCALE", "LOAD.ACC8"} & found
    assert "ALU.RESCALE" in mnemonics(exact(binary(g.Sub, (1, 20, 5, 7), scales=(0.5, 0.0000007, 0.000001))))
    tiny = TINY.replace(inp_bytes=64, block_in=32, block_out=32, wgt_bytes=1 << 14, acc_bytes=1 << 12)
    assert tiny.inp_depth == 2  # too few for two slots
    less = [Config("less", wgt_bytes=1 << 17, uop_bytes=1 << 14, extensions=CFG.extensions - {name})
            for name in ("depthwise", "overwrite")]  # fmt: skip
    for cfg in (tiny, *less):
        assert "ALU.RESCALE" in mnemonics(exact(binary(g.Add, (1, 16, 4, 4)), cfg=cfg))


@pytest.mark.parametrize("name, scale, by", [("pynq_z1", 0.11, "STORE.OUTQ"), ("pynq_z1_plus", 0.1, "ALU.LOOKUP")])
def test_requantisation_to_the_nearest_is_a_store_or_a_table(exact, name, scale, by):
    op = requantised(scales=(0.05, scale), kind=g.NearestRequantize)
    assert by in mnemonics(exact(op, cfg=PRESETS[name], contract="single"))


def test_the_faster_kernel_moves():
    whole = joined((80, 7), 64, 64)
    assert table.chosen(whole, CFG) is concatenate and "computed at their place" in why_not(join_channels, whole, CFG)
    shape = (1, 64, 80, 7)
    for op in (cut(shape, (0, 16, 0, 0), (1, 48, 9, 7)), cut(shape, (0, 0, 0, 1), (1, 16, 4, 4))):
        found = {record: cycles(record, op, CFG) for record in (move_channels, copy)}
        assert table.chosen(op, CFG) is min(found, key=found.__getitem__) and table.chosen(op, LESS) is copy
    lanes = cut(shape, (0, 8, 0, 0), (1, 24, 80, 7)), cut(shape, (0,) * 4, shape, (1, 1, 2, 1)), joined((80, 7), 3, 64)
    for op in (*lanes, padded(shape, (0, 4), (0, 0), (0, 0))):
        kernel = join_channels if isinstance(op, g.Concat) else move_channels
        assert table.chosen(op, CFG) is kernel and table.refusal(op, LESS)


def test_the_faster_unit_takes_maxima():
    large, small = pool(g.MaxPool, (2, 2), (2, 2), size=(24, 24)), pool(g.MaxPool, (5, 1), size=(5, 1), images=1)
    assert cycles(max_pool_sorted, large, CFG) < cycles(max_pool, large, CFG)
    assert cycles(max_pool_sorted, small, CFG) > cycles(max_pool, small, CFG)
    assert [table.chosen(op, CFG) for op in (large, small)] == [max_pool_sorted, max_pool]


@pytest.mark.parametrize("op, cfg, sorts", [
    (pool(g.MaxPool, (7, 7), (7, 7)), CFG, False),  # copies of single rows and columns
    (pool(g.MaxPool, (2, 2), (2, 2), (2, 2, 2, 2)), CFG, False),  # windows of padding alone
    (pool(g.MaxPool, (2, 2), (2, 2)), LESS, False),
    (pool(g.MaxPool, (2, 2), (2, 2)), CFG.replace(inp_bytes=1 << 14), False),  # too few to name
    (pool(g.MaxPool, (3, 3), (2, 2)), CFG.replace(inp_bytes=1 << 8, acc_bytes=1 << 10), False),
    (pool(g.MaxPool, (1, 3), (1, 2), (1, 0, 0, 0)), CFG, False),
    (pool(g.MaxPool, (1, 3), (1, 2), (0, 1, 0, 1)), CFG, True),
])  # fmt: skip
def test_what_both_units_sort(op, cfg, sorts):
    assert (why_not(max_pool_sorted, op, cfg) == "") == sorts


def test_constants_that_do_not_fit_the_output_have_a_reason():
    op = mean((1, 32, 4, 4))
    constant = tensor("x", op.x.shape, data=np.zeros(op.x.shape, np.int8))
    assert "a constant of shape (1, 32, 4, 4)" in why_not(
        mean_of_pixels, g.Mean("op", (constant,), op.output, (2, 3)), CFG
    )


# integers


@pytest.mark.parametrize("scales", [(0.1, 0.02), (0.02, 0.1), (0.1, 0.1)])
def test_the_form_of_a_square_is_its_definition(scales):
    op, every = of_pixels(g.SquaredDifference, (1, 16, 1, 16), scales), np.arange(-128, 128)
    form, (m, e) = pair_form(op), zip(*op.multipliers)
    total = (form.x.apply(every[:, None]) - form.y.apply(every[None, :])) ** 2
    facts = {"zero_points": (3, -7, -20), "multipliers": m, "exponents": e, "shift": 7}
    x = every.astype(np.int8)
    np.testing.assert_array_equal(form.store.apply(total), squared_difference(x[:, None], x[None, :], **facts))


@pytest.mark.parametrize("kind", [g.Add, g.Sub, g.Mul])
@pytest.mark.parametrize("scales, points, first", [
    ((0.1, 0.02), (0, 0), True), ((0.02, 0.1), (-128, 127), False), ((0.1, 0.1), (127, -128), True),
    ((0.1, 0.05), (0, 0), False), ((0.0371, 0.00913), (-128, 127), True),
])  # fmt: skip
def test_every_constant_of_a_channel(exact, only, kind, scales, points, first):
    for each in (g.Add, g.Mul):
        only(each, constant_per_channel)
    exact(of_channels(kind, (1, 256, 1, 16), scales, points, first, EVERY))


@pytest.mark.parametrize("shape", [(2, 20, 1, 20), (1, 3, 40, 9), (3, 600, 1, 7), (1, 1100, 1, 3)])
def test_constants_of_channels_of_every_size(exact, only, shape):
    for kind in (g.Add, g.Mul):
        only(kind, constant_per_channel)
        exact(of_channels(kind, shape))
        exact(of_channels(kind, (2, 20, 5, 7)), cfg=TINY)
    exact(of_channels(g.Mul, shape, values=np.array(55).reshape(1)))


@pytest.mark.parametrize("constant", [(1, 20, 1, 1), (20, 1, 1), (1, 1, 1, 1), (1,)])
def test_constant_gates_on_the_alu(exact, only, constant):
    only(g.Mul, pair)
    exact(gated((2, 20, 5, 7), constant=constant))


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1])
def test_both_forms_of_rectifiers_are_exact(alpha):
    rng, forms = np.random.default_rng(int(1000 * alpha)), set()
    for _ in range(12):
        op = leaky(alpha, rng.uniform(0.05, 0.2, 2).tolist(), rng.integers(-128, 128, 2).tolist())
        forms.add(not lines_of(op).scales)
        assert np.array_equal(lines_of(op).apply(np.arange(-128, 128)), op.table)
    assert True in forms


# tiles


# tables


def loads_of_tables(launch):
    return [f["sram_base"] for f in Isa(launch.cfg).decode(launch.insn) if f.get("mem") == Mem.PAR]


def test_tables_stay_on_chip_until_others_need_their_place(exact):
    """Two places: the third table takes that of the one used longest ago."""
    small, ops, x = SMALL.replace(tables=2), [], tensor("x", (1, 4, 3, 3), 0.05)
    for k, kind in enumerate(("tanh", "logistic", "tanh", "hard_swish", "tanh", "logistic")):
        ops.append(function(kind, x, x := tensor(f"t{k}", x.shape, 0.05)))
    first = [small.par_entries, small.par_entries + small.table_entries]
    assert loads_of_tables(exact(*ops, cfg=small)) == [first[0], first[1], first[1], first[1]]


def test_a_network_of_functions_equals_litert(tflite, litert_outputs):
    """LOGISTIC, TANH, HARD_SWISH and LEAKY_RELU, two of them at a time on the same values, in one launch."""
    m, shape = tflite(), (1, 6, 5, 20)
    x = m.input(shape, 0.05, 3)
    swish = m.op("HARD_SWISH", [x], shape, 0.04, -100)
    gate = m.op("LOGISTIC", [x], shape, 1 / 256, -128)
    found = m.op("MUL", [m.op("LEAKY_RELU", [swish], shape, 0.04, -90, alpha=0.1), gate], shape, 0.03, 5)
    m.output(m.op("TANH", [found], shape, 1 / 128, 0))
    path = m.save()
    graph = import_model(path)
    names = {
        "host": {op.name: "the test wants the accelerator" for op in graph.ops if isinstance(op, (g.Lookup, g.Mul))}
    }
    executable = compile_for(graph, PLUS, "double", refused={"host": dict.fromkeys(names, "no")}).executable
    (launch,) = (step.launch for step in executable.launches)
    assert len(loads_of_tables(launch)) == 4 + 1  # and the product's parameters
    values = np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
    (got,) = run(executable, {graph.inputs[0].name: values})[0].values()
    np.testing.assert_array_equal(got, litert_outputs(path, values)[0])


# cycles


BOUNDS = {  # an operator, its configuration, and cycles that it takes at most
    "table": (looked_up("tanh", (1, 64, 32, 32)), PLUS, 3 * 4096),
    "gate": (gated((1, 96, 14, 14)), CFG, 6 * 6 * 196),
    "sum with a constant": (of_channels(g.Add, (1, 256, 1, 128)), CFG, 4 * 16 * 128),
    "product with a constant": (of_channels(g.Mul, (1, 256, 1, 128)), CFG, 5 * 16 * 128),
    "sum of pixels": (of_pixels(g.Add, (1, 256, 1, 128)), CFG, 6 * 16 * 128),
    "square": (of_pixels(g.SquaredDifference, (1, 256, 1, 128)), CFG, 9 * 16 * 128),
    "rectifier of multiples": (leaky(0.01, shape=(1, 64, 28, 28)), CFG, 6 * 4 * 28**2),
    "rectifier with scales": (leaky(0.3, shape=(1, 64, 28, 28)), CFG, 11 * 4 * 28**2),
    "mean of pixels": (mean((1, 1280, 7, 7)), CFG, 2.4 * 80 * 49 + 1500),
    "maximum": (pool(g.MaxPool, (3, 3), (2, 2), (1, 1, 1, 1), (56, 56), channels=16, images=1), CFG, 3.2 * 56 * 56),
    "padding": (padded((1, 24, 64, 64), (0, 4), (0, 0), (0, 0)), CFG, 2.6 * 2 * 64 * 64),
    "resize": (resized((1, 24, 24, 24), (48, 48), half=True), CFG, 5 * 2 * 48 * 48),
}


@pytest.mark.parametrize("op, cfg, most", BOUNDS.values(), ids=BOUNDS)
def test_bounds(op, cfg, most):
    assert most / 4 < table.cycles(op, cfg) < most


# random ones


FEW = Config(
    "small", wgt_bytes=1 << 13, inp_bytes=1 << 11, acc_bytes=1 << 13, extensions=CFG.extensions, uop_bytes=1 << 12
)


@pytest.mark.circuit
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_maxima(exact, data):
    draw = data.draw
    kernel, strides = draw(st.tuples(*[st.integers(1, 5)] * 2)), draw(st.tuples(*[st.integers(1, 3)] * 2))
    pads = draw(st.tuples(*(st.integers(0, k - 1) for k in 2 * kernel)))
    size, clamp = tuple(k + draw(st.integers(0, 20)) for k in kernel), (draw(st.integers(-128, 0)), 100)
    op = pool(g.MaxPool, kernel, strides, pads, size, images=draw(st.integers(1, 2)), clamp=clamp)
    cfg = draw(st.sampled_from([CFG, FEW, TINY]))
    assert not why_not(max_pool_sorted, op, cfg)
    exact(op, cfg=cfg)


@pytest.mark.parametrize("name", ["pynq_z1", "pynq_z1_plus", "tiny"])
def test_operators_between_others_read_what_these_left_in_the_arena(exact, name):
    shape, pixels = (1, 20, 5, 7), (1, 1, 5, 7)
    x, a, b, c, d, e, f = (tensor(t, shape, 0.09, -9) for t in "xabcdef")
    y, gate = (tensor(t, (1, 20, 1, 1), 0.02, 0) for t in ("y", "gate"))
    p, q = (tensor(t, pixels, 0.08, 0) for t in "pq")
    k = tensor("k", (1, 20, 1, 1), 0.01, 3, np.arange(20, dtype=np.int8).reshape(1, 20, 1, 1))
    exact(
        g.Requantize("input", (x,), a),
        g.Requantize("gates", (y,), gate),
        g.Requantize("pixels", (p,), q),
        g.Mul("gated", (a, gate), b),
        g.Sub("centred", (b, q), c),
        g.Mul("scaled", (c, k), d),
        g.Add("sum", (d, a), e),
        g.LeakyRelu("op", (e,), f, "leaky_relu", tables.leaky_relu(0.1, e, f), tables.slopes(0.1, e, f)),
        cfg=PRESETS[name],
    )
