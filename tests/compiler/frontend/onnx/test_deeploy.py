"""Files in Deeploy's dialect: its own networks byte by byte, its operators against NumPy's integers, and damage."""

import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.frontend.source import read_source
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import load_config
from tilewright.hw.errors import FileError, InputError, UnsupportedError
from tilewright.hw.rounding import CONTRACTS
from tilewright.runtime.loader import run

FOLDER = Path(__file__).parents[5] / "shared" / "deeploy"
NETWORKS = sorted(path.parent for path in FOLDER.glob("*/network.onnx"))
MOST_SECONDS = 10
EVERY = np.arange(-128, 128)[None]
shared = pytest.mark.skipif(not NETWORKS, reason="../shared/deeploy is not there")
each_network = pytest.mark.parametrize("folder", NETWORKS, ids=lambda folder: folder.name)


def stored(folder, graph):
    """(inputs by name, outputs by name) of a network, from the arrays beside it, which are in order."""
    given, wanted = (np.load(folder / f"{name}.npz") for name in ("inputs", "outputs"))
    arrays = [given[key] for key in given.files if given[key].size]
    inputs = {t.name: array.astype(np.int8) for t, array in zip(graph.inputs, arrays, strict=True)}
    return inputs, {t.name: wanted[key] for t, key in zip(graph.outputs, wanted.files, strict=True)}


@pytest.mark.circuit
@shared
@each_network
def test_deeploys_networks_are_exact_byte_by_byte(folder):
    start = time.process_time()
    graph = import_onnx(folder / "network.onnx")
    executable = compile_graph(graph, load_config("pynq_z1"))
    assert time.process_time() - start < MOST_SECONDS
    inputs, wanted = stored(folder, graph)
    found = [reference.run(graph, inputs, contract)[0] for contract in CONTRACTS] + [run(executable, inputs)[0]]
    assert len(wanted) == 17
    assert all(np.array_equal(one[name], array) for one in found for name, array in wanted.items())


@pytest.mark.slow  # on the circuit: where it must be built first
@shared
@pytest.mark.parametrize(
    "folder, device",
    [*((folder, "model") for folder in NETWORKS), *((f, "rtl") for f in NETWORKS if f.name == "microLlama16")],
    ids=str,
)
def test_they_are_one_launch_that_computes_all_products(folder, device):
    graph = import_onnx(folder / "network.onnx")
    executable = compile_graph(graph, load_config("pynq_z1_plus"))
    inputs, wanted = stored(folder, graph)
    found = run(executable, inputs, device)[0]
    assert all(np.array_equal(found[name], array) for name, array in wanted.items())
    (launch,) = executable.launches
    assert launch.macs == sum(op.macs for op in graph.ops)


@shared
@each_network
def test_their_sums_are_parts_of_operators(folder):
    graph = import_onnx(folder / "network.onnx")
    assert {t.dtype for op in graph.ops for t in (*op.inputs, op.output) if t.data is None} == {"int8"}
    assert len(graph.layers) == 56 and sum(op.weight.size for op in graph.layers) == 524_288


def gelu(x, b=-98, one=9000):
    d = min(abs(x), -b) + b
    return x * ((one + (x > 0) * (one - d * d) - (x < 0) * (one - d * d)) >> 1)


def hardswish(x):
    return x * (min(max(x + 122, 0), 245) * 42)


SWISH = {"three": 122, "six": 245, "one_over_six": 42}


@pytest.mark.parametrize(
    ("op", "attrs", "function", "mul"),
    [
        ("iGELU", {"b": -98, "one": 9000}, gelu, 7),
        ("iHardswish", SWISH, hardswish, 9),
        ("TrueIntegerDiv", {"Delta": 16384, "eta": 200000, "eps": 1, "y": 2}, lambda x: x * 8191, 4),
        ("Relu", {}, lambda x: max(x, 0), 70000),
        ("Clip", {"min": -20.0, "max": 50.0}, lambda x: min(max(x, -20), 50), 900),
        ("DebugPrint", {}, lambda x: x, 7349),
    ],
)
def test_functions_of_one_value(net, op, attrs, function, mul):
    name, wanted = net.x(array=EVERY)[0], np.array([[function(int(v)) for v in EVERY[0]]])
    y = net.node(op, name, **attrs)
    if op != "DebugPrint":
        net.expect(y, wanted)
    net.expect(y, wanted, mul)
    net.expect(net.node("Transpose", y, perm=[1, 0]), wanted.T, mul, signed=0)
    net.check()


def half_away(x, divisor):
    return np.sign(x) * ((np.abs(x) + divisor // 2) // divisor)


def test_quotients_of_two_tensors(net):
    """By a table, within int32, and where the numerator leaves it."""
    (a, x), (b, y) = net.x(1, 4, 6), net.x(array=np.arange(4).reshape(1, 4, 1))
    net.expect(net.node("TrueIntegerDiv", a, b, Delta=1024, eta=100, eps=1), x * (1024 * 100 // (y * 100 + 1)))
    small = half_away(128 * x, 16 * y + 1)
    net.expect(net.node("IntegerDiv", a, b, Delta=8, eta=16, eps=1), small)
    large = net.node("Mul", a, net.const(1 << 10))
    net.expect(net.node("IntegerDiv", large, b, Delta=1000, eta=50, eps=7), half_away((50000 << 10) * x, 50 * y + 7))
    last = [net.const(v) for v in (900, -31, 1 << 10)]
    fused = net.node("RQIntegerDiv", a, b, *last, Delta=8, eta=16, eps=1, n_levels=256, signed=1)
    net.expect(fused, net.shifted(small, 900, -31, 10))
    net.check()


ROOT = {"coeffA": [2.0], "coeffB": [25.0], "coeffC": [331.0], "log2": [19.0], "n_levels": [256.0]}


@pytest.mark.parametrize("levels", [256, 128])
def test_softmax_with_a_shift_or_without(net, levels):
    name, x = net.x(1, 2, 3, 9)
    y = net.node("iSoftmax", name, **{**ROOT, "n_levels": [float(levels)]})
    below = x - x.max(-1, keepdims=True)
    z = np.minimum(-below // 19, 31)
    e = (2 * (below + z * 19 + 25) ** 2 + 331) >> z
    shares = e * (levels - 1) // e.sum(-1, keepdims=True)
    net.expect(y, shares)
    net.expect(y, shares, 100000)
    net.expect(y, shares, 90000, signed=0)
    assert [type(op) for op in net.check().ops].count(g.IntegerSoftmax) == 3


def ita(x, levels):
    below = (x.max(-1, keepdims=True) - x + 16) >> 5
    return (levels - 1) * 256 // (256 >> below).sum(-1, keepdims=True) >> below


def ita_partial(row, width, levels):
    most, total = -128, 0
    for k in range(0, len(row), width):
        group = [int(v) for v in row[k : k + width]]
        if max(group) > most:
            total, most = total >> ((max(group) - most + 16) >> 5), max(group)
        total += sum(256 >> ((most - v + 16) >> 5) for v in group)
    return [(levels // 2 - 1) * 256 // total >> ((most - int(v) + 16) >> 5) for v in row]


def test_the_softmax_of_ita(net):
    x = net.int8(1, 2, 5, 48)
    x[0, 0, 0] = -128
    name, _ = net.x(array=x)
    y = net.node("ITAMax", name, n_levels=256)
    net.expect(y, ita(x, 256))
    net.expect(y, ita(x, 256), 1 << 15, signed=0)
    parts = np.reshape([ita_partial(row, 16, 256) for row in x.reshape(10, 48)], x.shape)
    net.expect(net.node("ITAPartialMax", name, n_levels=[256.0], group_width=16), parts)
    net.check()


def test_norms(net):
    (name, x), weight, bias = net.x(1, 5, 12), *(net.rng.integers(-(2**n), 2**n, 12) for n in (21, 19))

    def normed(values, weight, bias, shift):
        root = np.floor(np.sqrt((values**2).sum(-1, keepdims=True) // values.shape[-1] + 1)).astype(int)
        quotient = np.sign(values * weight) * (np.abs(values * weight) // root)
        return np.clip((quotient + bias) >> shift, -128, 127)

    weights = [net.const(weight), net.const(bias)]
    net.expect(net.node("iRMSNorm", name, weights[0], D=1 << 16, n_levels=256), normed(x, weight, 0, 16))
    centred = x - np.trunc(x.sum(-1, keepdims=True) / 12).astype(int)
    net.expect(net.node("iLayerNorm", name, *weights, D=1 << 16, n_levels=256), normed(centred, weight, bias, 16))
    one = net.node("iRMSNorm", name, net.const(1 << 20), D=1 << 14, n_levels_out=[256.0])
    net.expect(one, normed(x, 1 << 20, 0, 14))
    net.check()


def test_a_norm_that_only_scales(net):
    (name, x), weight, bias = net.x(1, 4, 6), net.int8(6), net.rng.integers(-9999, 9999, 6)
    wanted = np.clip(((x * weight + bias) * 425) >> 16, -128, 127)
    for arrays in ((weight, bias), [np.broadcast_to(v, (4, 6)).reshape(-1) for v in (weight, bias)]):
        attrs = {"D": [1 << 16], "mul": [425], "n_levels": [256]}
        net.expect(net.node("iNoNorm", name, *map(net.const, arrays), **attrs), wanted)
    net.check()


@pytest.mark.parametrize("op", ["IntegerMean", "ReduceMean", "ReduceSum"])
@pytest.mark.parametrize(("axes", "keep"), [([2, 3], 0), ([1], 1), ([-1], 0), (2, 1)])
def test_means_and_sums(net, op, axes, keep):
    (name, x), along = net.x(2, 3, 5, 4), tuple(np.atleast_1d(axes).tolist())
    sums, count = x.sum(along, keepdims=bool(keep)), x.size // x.sum(along).size
    up = op == "ReduceMean" and count == 4 and not keep  # a power of two, whose dimension goes: a shift
    wanted = sums if op == "ReduceSum" else (sums + count // 2) // count if up else half_away(sums, count)
    y = net.node(op, name, axes=axes, keepdims=keep)
    net.expect(y, wanted)
    net.expect(y, wanted, 70000)
    net.check()


def test_caches_are_joined_with_new_rows(net):
    (a, cache), (b, new) = net.x(1, 2, 3, 4), net.x(1, 2, 1, 4)
    name = net.expect(net.node("Concat", a, b, axis=-2), np.concatenate([cache, new], 2), 1 << 16)
    assert net.check(g.Concat).ops[0].output.name == name  # the shift does nothing here


def test_an_empty_cache_is_no_input(net):
    empty, (b, new) = net.input(1, 2, 0, 4), net.x(1, 2, 1, 4)
    net.expect(net.node("Concat", empty, b, axis=-2), new, 70000)
    assert [t.name for t in net.check().inputs] == [b]


def test_values_move_at_any_width(net):
    (a, x), w = net.x(2, 6), net.int8(6, 8)
    rows, sums = net.node("Reshape", a, net.const([1, 2, 6], np.int64)), (x @ w)[None].transpose(0, 2, 1)
    y = net.node("Transpose", net.node("MatMul", rows, net.const(w)), perm=[0, 2, 1])
    net.expect(y, sums)
    net.expect(y, sums, 700)
    net.expect(net.node("Slice", rows, *(net.const([n], np.int64) for n in (1, 2, 1))), x[None, 1:2])
    net.expect(net.node("Gather", rows, net.const([3, 0], np.int64), axis=2), x[None][..., [3, 0]])
    graph = net.check()
    assert graph.outputs[0].dtype == "int32" and [type(op) for op in graph.ops].count(g.QDense) == 1


def test_wide_arithmetic(net):
    (a, x), (b, y) = net.x(1, 6), net.x(1, 6)
    product = net.node("Mul", a, b)
    net.expect(net.node("Sub", product, a), x * y - x)
    tripled = net.node("Mul", product, net.const(3))
    net.expect(net.node("Add", tripled, net.const(np.arange(6) * 1000)), x * y * 3 + np.arange(6) * 1000)
    net.expect(net.node("Mul", net.node("Add", a, net.const(200)), net.const(-4)), (x + 200) * -4)
    net.expect(net.node("Concat", product, b, axis=1), np.concatenate([x * y, y], 1))
    net.expect(net.node("MatMul", product, net.const(np.eye(6))), x * y)
    net.expect(product, x * y, 5, 999)
    net.expect(net.node("Relu", product), np.maximum(x * y, 0))
    net.check()


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_sums_and_products_of_two_tensors(net, op):
    (a, x), (b, y), (c, z) = net.x(1, 3, 2, 5), net.x(1, 3, 2, 5), net.x(5)
    both = {"Add": np.add, "Mul": np.multiply}[op]
    net.expect(net.node(op, a, b), both(x, y), 777)
    net.expect(net.node(op, a, c), both(x, z), 777)
    net.expect(net.node(op, a, net.const(y)), both(x, y), 777)
    net.expect(net.node(op, a, c), both(x, z), 60000, 12345)
    one = g.ShiftAdd if op == "Add" else g.ShiftMul
    assert [type(op) for op in net.check().ops if not isinstance(op, g.Reshape)].count(one) == 3


def test_layers(net):
    """Factors and offsets for all channels or each; biases before or behind the product; unsigned values."""
    (a, x), w, bias = net.x(5, 24), net.int8(24, 20), net.rng.integers(-900, 900, 20)
    y = net.node("MatMul", a, net.const(w))
    net.expect(net.node("Add", net.const(bias), y), x @ w + bias, 700)
    mul = net.rng.integers(100, 4000, 20)
    net.expect(y, x @ w, mul, mul * bias)
    gemm = net.node("Gemm", a, net.const(w.T), net.const(bias), transB=1)
    net.expect(gemm, x @ w + bias, 900)
    net.check(*[g.QDense] * 3)


def test_layers_of_unsigned_values_and_of_more_dimensions(net):
    (a, x), (b, v), w = net.x(5, 24), net.x(1, 6, 24), net.int8(24, 20)
    y = net.expect(a, x, 100000, signed=0)
    net.expect(net.node("MatMul", y, net.const(w)), net.shifted(x, 100000, high=255, low=0) @ w, 900, 0, 16, 128, 0)
    net.expect(net.node("MatMul", b, net.const(w)), v @ w, 700)
    assert [t.dtype for t in net.check().outputs] == ["uint8", "int8", "int8"]


def test_layers_that_are_int32_on_the_host(net):
    """Offsets that are no multiples of the factor, wide inputs or weights, more levels than int8 has."""
    (a, x), w, add = net.x(5, 24), net.int8(24, 20), net.rng.integers(-(1 << 20), 1 << 20, 20)
    y = net.node("MatMul", a, net.const(w))
    net.expect(y, x @ w, 4000, add)
    wide = net.expect(y, x @ w, 3000, levels=1 << 16)
    net.expect(wide, net.shifted(x @ w, 3000, 0, 16, -(1 << 15), (1 << 15) - 1), 123, bits=12)
    net.expect(
        net.node("Gemm", net.node("Mul", a, a), net.const(w), net.const(np.arange(20))), x * x @ w + np.arange(20)
    )
    net.expect(net.node("Gemm", a, net.const(w * 9)), x @ w * 9)
    graph = net.check()
    assert [t.dtype for t in graph.outputs] == ["int8", "int32", "int8", "int32", "int32"] and not graph.layers


def test_products_of_two_tensors(net):
    (a, x), (b, y) = net.x(1, 4, 3, 8), net.x(1, 4, 8, 5)
    net.expect(net.node("MatMul", a, b), x @ y, 700)
    net.check(g.ShiftMatMul)


def test_one_value_is_a_fraction_or_a_table(net):
    name, x = net.x(array=EVERY)
    for mul, add in [(4171896, 0), (50000, 777), (65536, 0), (-70000, 0)]:
        net.expect(name, x, mul, add)
    net.check(g.ShiftRequantize, g.Lookup, g.Lookup, g.Reshape)  # nothing but a copy of what stays


@pytest.mark.parametrize(
    ("x", "y", "bias", "attrs"),
    [
        ((5, 6), (6, 7), (5, 7), {}),
        ((5, 6), (6, 7), (5, 1), {"alpha": 2.0, "beta": 3.0}),
        ((6, 5), (7, 6), (7,), {"transA": 1, "transB": 1}),
        ((3, 5, 6), (3, 6, 7), (3, 5, 7), {}),
    ],
)
@pytest.mark.parametrize("constant", [True, False])
def test_products_of_matrices_with_sums(net, x, y, bias, attrs, constant):
    names, arrays = zip(net.x(*x), *((net.const(a := net.int8(*s)), a) if constant else net.x(*s) for s in (y, bias)))
    a, b = (v.swapaxes(-1, -2) if attrs.get(key) else v for v, key in zip(arrays, ("transA", "transB")))
    wanted = (a @ b) * int(attrs.get("alpha", 1)) + arrays[2] * int(attrs.get("beta", 1))
    z, factor = net.node("Gemm", *names, **attrs), net.rng.integers(1, 99, (5, 1))
    net.expect(z, wanted)
    net.expect(z, wanted, factor, 77)
    net.check()


@pytest.mark.parametrize("levels", [256, 1 << 16])
def test_sums_that_move_2001_times_before_they_are_requantised(net, levels):
    w, x = net.rng.integers(-8, 8, (6, 4)), net.rng.integers(-128, 128, (3, 6))
    y = net.node("MatMul", net.input(3, 6), net.const(w))
    for _ in range(2001):
        y = net.node("Transpose", y, perm=[1, 0])
    net.output(net.shift(y, 700, levels=levels))
    (found,) = reference.run(net.graph(), {"x0": x.astype(np.int8)})[0].values()
    np.testing.assert_array_equal(found, net.shifted((x @ w).T, 700, low=-levels // 2, high=levels // 2 - 1))


def convolved(x, w, stride, pad, dilation=1, groups=1):
    """Sums by Python's loops over outputs and taps."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    (n, _, h, width), (o, c, kh, kw) = x.shape, w.shape
    size = [(s - (k - 1) * dilation - 1) // stride + 1 for s, k in ((h, kh), (width, kw))]
    sums = np.zeros((n, o, *size), np.int64)
    for m, i, j in np.ndindex(o, *size):
        first = m // (o // groups) * c
        seen = x[:, first : first + c, i * stride :, j * stride :]
        seen = seen[:, :, : (kh - 1) * dilation + 1 : dilation, : (kw - 1) * dilation + 1 : dilation]
        sums[:, m, i, j] = (seen * w[m]).sum((1, 2, 3))
    return sums


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "dilation", "groups"),
    [(3, 1, 1, 1, 1), (1, 1, 0, 1, 1), (1, 2, 0, 1, 1), (3, 2, 1, 1, 2), (2, 1, 0, 2, 4), (5, 3, 2, 1, 1)],
)
def test_convolutions(net, kernel, stride, pad, dilation, groups):
    """Offsets are multiples of the factors, or each channel has its own, as where files had batch norms."""
    (a, x), w = net.x(1, 4, 9, 8), net.int8(8, 4 // groups, kernel, kernel)
    attrs = {"strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2, "group": groups}
    y = net.node("Conv", a, net.const(w), net.const(np.arange(8)), **attrs)
    sums = convolved(x, w, stride, pad, dilation, groups) + np.arange(8).reshape(-1, 1, 1)
    factor, offset = net.rng.integers(-9, 99, (1, 8, 1, 1)), net.rng.integers(-(10**6), 10**6, (1, 8, 1, 1))
    net.expect(y, sums)
    net.expect(y, sums, factor, offset)
    net.expect(y, sums, factor, offset, signed=0)
    net.expect(y, sums, np.full((1, 8, 1, 1), 500), np.full((1, 8, 1, 1), 3500))
    assert [type(op) for op in net.check().ops].count(g.QConv2d) == 1


@pytest.mark.parametrize("shape", [(1, 6, 1), (6, 1), (1, 6, 1, 1), (6,)])
@pytest.mark.parametrize("offset", [0, 12345])
def test_rows_are_convolved(net, shape, offset):
    """Factors are one per channel in whatever shape the file has them."""
    (a, x), w, factor = net.x(1, 4, 9), net.int8(6, 4, 3), net.rng.integers(1, 99, 6)
    y = net.node("Conv", a, net.const(w), pads=[1, 1], strides=[2])
    padded, sums = np.pad(x, ((0, 0), (0, 0), (1, 1))), np.zeros((1, 6, 5), np.int64)
    for k in range(5):
        sums[..., k] = (padded[:, None, :, 2 * k : 2 * k + 3] * w).sum((2, 3))
    net.output(net.shift(y, factor.reshape(shape), offset))
    net.wanted.append(net.shifted(sums, factor[:, None], offset))
    assert any(isinstance(op, g.QConv2d) for op in net.check().ops) == (not offset)


def test_a_convolution_takes_a_sum_or_a_product_before_it_is_shifted(net):
    (a, x), w, more = net.x(1, 2, 5, 5), net.int8(4, 2, 1, 1), net.rng.integers(-99, 99, (1, 4, 1, 1))
    y, sums = net.node("Conv", a, net.const(w)), convolved(x, w, 1, 0)
    net.expect(net.node("Add", y, net.const(more)), sums + more, 500)
    net.expect(net.node("Sub", y, net.const(-7)), sums + 7, 500)
    net.expect(net.node("Relu", net.node("Mul", y, net.const(more))), np.maximum(sums * more, 0), 9)
    assert [isinstance(op, g.QConv2d) for op in net.check().ops][:2] == [True, True]


def test_a_convolution_of_unsigned_values_pads_with_zeros(net):
    (a, x), w = net.x(1, 3, 6, 6), net.int8(5, 3, 3, 3)
    y = net.node("Conv", net.shift(a, 1 << 17, signed=0), net.const(w), pads=[1] * 4)
    net.expect(y, convolved(np.clip(x * 2, 0, 255), w, 1, 1))
    net.check()


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float64])
def test_numbers_of_any_type(net, dtype):
    (a, x), w, bias = net.x(1, 3, 6, 6), net.int8(4, 3, 3, 3), net.int8(1, 4, 1, 1)
    y = net.node("Conv", a, net.const(w, dtype))
    net.expect(net.node("Add", y, net.const(bias, dtype)), convolved(x, w, 1, 0) + bias, 50)
    net.check()


@pytest.mark.parametrize("signed", [0, 1])
def test_the_largest_of_windows(net, signed):
    (a, x), (b, rows) = net.x(1, 3, 7, 6), net.x(2, 3, 8)
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 0}
    values = np.pad(x if signed else np.maximum(x, 0), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-128)
    windows = np.lib.stride_tricks.sliding_window_view(values, (3, 3), (2, 3))[:, :, ::2, ::2]
    net.expect(net.node("MaxPool", net.shift(a, 1 << 16, signed=signed), **pool), windows.max((-1, -2)), 7349)
    pool = {"kernel_shape": [2], "strides": [2], "pads": [0, 0]}
    net.expect(net.node("MaxPool", b, **pool), rows.reshape(2, 3, 4, 2).max(-1), 7349)
    assert sum(isinstance(op, g.MaxPool) for op in net.check().ops) == 2


@pytest.mark.parametrize("wide", [5000, np.iinfo(np.int32).max])
def test_padding_pooling_and_convolution_of_wide_values(net, wide):
    (a, x), (b, y), w = net.x(array=net.rng.integers(-wide, wide, (1, 3, 7, 6))), net.x(1, 2, 8), net.int8(4, 3, 2, 2)
    np.savez(net.folder / "inputs.npz", input_0=x, input_1=y)
    pads, around = [0, 0, 1, 2, 0, 0, 3, 0], ((0, 0), (0, 0), (1, 3), (2, 0))
    net.expect(net.node("Pad", a, mode="constant", pads=pads, value=7.0), np.pad(x, around, constant_values=7))
    padded = net.node("Pad", b, mode="constant", pads=[0, 1, 0, 0, 0, 2], value=1000.0)  # which int8 does not hold
    net.expect(padded, np.pad(y, ((0, 0), (1, 0), (0, 2)), constant_values=1000))
    images = np.pad(x, ((0, 0), (0, 0), (1, 0), (1, 1)), constant_values=np.iinfo(np.int32).min)
    largest = np.lib.stride_tricks.sliding_window_view(images, (3, 2), (2, 3))[:, :, ::2, ::3].max((-1, -2))
    net.expect(net.node("MaxPool", a, kernel_shape=[3, 2], strides=[2, 3], pads=[1, 1, 0, 1]), largest)
    net.expect(
        net.node("MaxPool", net.node("Mul", b, b), kernel_shape=[2], strides=[2]), (y * y).reshape(1, 2, 4, 2).max(-1)
    )
    if wide < 1 << 20:
        net.expect(net.node("Conv", a, net.const(w)), convolved(x, w, 1, 0), 9)
    net.check()


def test_one_factor_may_have_more_dimensions_than_the_values(net):
    (a, x), numbers = net.x(1, 1, 10), {"div": 1 << 13, "n_levels_out": 256, "signed": 1}
    wide = net.node("Reshape", net.node("Mul", a, a), net.const([1, 1, 2, 5], np.int64))
    net.output(net.node("RequantShift", wide, net.const(np.full((1, 1, 1, 1), 77)), net.const([[[[5]]]]), **numbers))
    net.wanted.append(net.shifted(x * x, 77, 5, 13).reshape(1, 1, 2, 5))
    net.check()


def test_attributes_of_old_opsets(net):
    a, x = net.x(1, 3, 5, 6)
    padded = net.node("Pad", a, mode="constant", pads=[0, 0, 1, 2, 0, 0, 3, 0], value=9.0)
    net.expect(padded, np.pad(x, ((0, 0), (0, 0), (1, 3), (2, 0)), constant_values=9), 7349)
    net.expect(net.node("Slice", a, starts=[1, 0], ends=[3, -1], axes=[2, 3]), x[:, :, 1:3, :-1], 7349)
    net.check()


def test_operators_with_their_shift_in_one_node(net):
    """The factor, the offset and the divisor, or its logarithm, are inputs or attributes."""
    (a, x), (b, rows), w = net.x(1, 4, 6, 6), net.x(3, 4), net.int8(5, 4, 1, 1)
    factors = np.arange(1, 6).reshape(1, 5, 1, 1)
    shift = {"div": 1 << 8, "n_levels_out": 256, "signed": 1}
    y = net.node("RequantizedConv", a, net.const(w), net.const(factors), net.const(33), **shift, pads=[0] * 4)
    net.expect(y, net.shifted(convolved(x, w, 1, 0), factors, 33, 8))
    last = [net.const(v) for v in (3, -4, 12)]
    y = net.node("RequantizediGELU", a, *last, b=-30, one=900, n_levels_out=256, signed=1)
    net.expect(y, net.shifted(np.vectorize(lambda v: gelu(int(v), -30, 900))(x), 3, -4, 12))
    y = net.node("RequantizediGELU", a, *last[:2], div=1 << 10, b=-30, one=900, n_levels_out=256, signed=1)
    net.expect(y, net.shifted(np.vectorize(lambda v: gelu(int(v), -30, 900))(x), 3, -4, 10))
    y = net.node("RequantizediHardswish", a, **SWISH, mul=9, add=5, shift=16, n_levels=256, signed=1)
    net.expect(y, net.shifted(np.vectorize(lambda v: hardswish(int(v)))(x), 9, 5))
    y = net.node("RequantizedGemm", b, net.const(w.reshape(5, 4).T), net.const(7), net.const(70), **shift)
    net.expect(y, net.shifted(rows @ w.reshape(5, 4).T, 7, 70, 8))
    net.check()


def test_outputs_keep_their_names(net):
    a, x = net.x(1, 4)
    first = net.expect(a, x, 70000)
    net.expect(first, net.wanted[0], 1 << 16)
    net.expect(a, x, 1 << 16)
    net.expect(first, net.wanted[0], 7349, signed=0)
    assert [t.name for t in net.check().outputs] == [v.name for v in net.outputs]


def test_a_file_of_layers_of_whole_numbers_is_in_the_dialect(net):
    """Where nothing else says so: its sums are int32, not float32."""
    (a, x), w, bias = net.x(1, 3, 6, 6), net.int8(4, 3, 3, 3), net.int8(4)
    y = net.node("Conv", a, net.const(w), net.const(bias))
    net.expect(
        net.node("Relu", net.node("Add", y, y)), np.maximum(2 * convolved(x, w, 1, 0) + 2 * bias.reshape(-1, 1, 1), 0)
    )
    assert net.check().outputs[0].dtype == "int32"


def test_files_without_layers_of_whole_numbers_are_not(net):
    net.output(net.node("Conv", net.input(1, 1, 4, 4), net.const([[[[0.5]]]])))
    assert net.graph().outputs[0].dtype == "float32"


def test_inputs_have_the_type_that_those_beside_the_file_need(net):
    images, wide = net.rng.integers(0, 256, (1, 3, 6, 6)), net.rng.integers(-(10**6), 10**6, (1, 5))
    (a, _), (b, _), w = net.x(array=images), net.x(array=wide), net.int8(4, 3, 3, 3)
    net.expect(net.node("Conv", a, net.const(w), pads=[1] * 4), convolved(images, w, 1, 1), 9)
    net.expect(b, wide, 7)
    np.savez(net.folder / "inputs.npz", input_0=images, input_1=wide)
    graph = net.check()
    assert [t.dtype for t in graph.inputs] == ["uint8", "int32"] and isinstance(graph.ops[1], g.QConv2d)


@pytest.mark.parametrize(
    "names", [("x0", "x1"), ("arr_0", "arr_1", "arr_2"), ("_0", "_1"), ("image", "row")], ids=lambda names: names[0]
)
def test_arrays_beside_the_file_are_in_the_order_of_its_inputs(net, names):
    """They may be of any type, and the weights may be among them."""
    images, wide = net.rng.integers(0, 256, (1, 3, 6, 6)), net.rng.integers(-(10**6), 10**6, (1, 5))
    (a, _), (b, _), w = net.x(array=images), net.x(array=wide), net.int8(4, 3, 3, 3)
    net.expect(net.node("Conv", a, net.const(w)), convolved(images, w, 1, 0), 9)
    net.expect(b, wide, 7)
    np.savez(net.folder / "inputs.npz", **dict(zip(names, (images.astype(np.float64), wide, w))))
    assert [t.dtype for t in net.check().inputs] == ["uint8", "int32"]


def test_types_of_inputs_that_the_user_or_the_file_says(net):
    images = net.rng.integers(0, 256, (1, 3, 6, 6))
    (a, _), (b, _) = net.x(array=images), net.x(array=images)
    net.inputs[1].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    net.expect(net.node("Add", a, b), images + images, 9)
    np.savez(net.folder / "inputs.npz", input_0=images, input_1=images)
    assert [t.dtype for t in net.check().inputs] == ["uint8", "uint8"]
    (net.folder / "inputs.npz").unlink()
    assert [t.dtype for t in net.graph().inputs] == ["int8", "uint8"]
    source = read_source(net.save(), {"x0": "int32"})
    assert [t.dtype for t in import_onnx(source).inputs] == ["int32", "uint8"]
    assert len({source.digest, read_source(source.path).digest}) == 2
    for types, text in (
        ({"z": "int8"}, "has no input 'z' that could be int8; its inputs are x0, x1"),
        (
            {"x0": "int4"},
            "input 'x0' cannot be int4; its type must be one of int8, uint8, int32, float32",
        ),
    ):
        with pytest.raises(InputError, match=text):
            read_source(source.path, types)


def test_a_sum_alone_is_in_the_dialect_where_the_user_says_that_it_is_of_integers(net, qdq):
    net.output(net.node("Add", net.input(1, 5), net.input(1, 5)))
    path = net.save()
    for types, dtype in ({}, "float32"), ({"x0": "int8"}, "float32"), ({"x0": "int8", "x1": "uint8"}, "int32"):
        assert import_onnx(read_source(path, types)).outputs[0].dtype == dtype
    with pytest.raises(UnsupportedError, match="the type int8 for input 'x' is not needed: the file has it; drop it"):
        read_source(qdq().dense(), {"x": "int8"})


def test_a_file_that_is_read_only_with_the_types_of_its_inputs(net):
    x = net.input(1, 5)
    net.output(net.node("Pad", x, mode="constant", pads=[0, 1, 0, 0], value=0.0))
    model = net.proto()
    model.opset_import[0].version = 13  # where Pad has no such attributes
    onnx.save(model, path := net.folder / "pad.onnx")
    with pytest.raises(FileError, match=r"give the types of its inputs \(--input-type\) if it is Deeploy's"):
        import_onnx(path)
    assert import_onnx(read_source(path, {x: "int8"})).outputs[0].shape == (1, 6)


def test_operators_of_another_domain_of_deeploys(net):
    (a, x), w = net.x(2, 3, 8), net.int8(8, 4)
    product = net.node("MatMul", a, net.const(w))
    numbers = {"div": 1 << 10, "n_levels_out": 256, "signed": 1}
    net.output(net.node("RequantShift", product, net.const([700]), net.const([0]), **numbers, domain="ai.onnx.contrib"))
    net.wanted.append(net.shifted(x @ w, 700, 0, 10))
    net.check(g.Reshape, g.QDense, g.Reshape)


def test_files_without_operators_of_the_dialect_are_in_it_where_their_inputs_are_integers(net):
    a, x = net.x(1, 3, 5, 4)
    net.expect(net.node("ReduceMean", net.node("Add", a, a), axes=[2], keepdims=0), half_away((2 * x).sum(2), 5))
    np.savez(net.folder / "inputs.npz", input_0=x)
    assert net.check().outputs[0].dtype == "int32"
    np.savez(net.folder / "inputs.npz", input_0=x + 0.5)
    assert net.graph().outputs[0].dtype == "float32"


def test_float_operators_that_onnx_does_not_have_so(net):
    """RMSNorm with its epsilon or Deeploy's, and a Gemm of three dimensions."""
    x, w, scale, bias = (net.rng.normal(size=shape).astype(np.float32) for shape in ((2, 3, 8), (5, 8), (8,), (5,)))
    name = net.input(*x.shape)
    wanted = []
    for attrs, eps in ({"eps": 0.5}, 0.5), ({}, 1e-6):
        net.output(net.node("RMSNorm", name, net.const(scale), **attrs))
        wanted.append(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * scale)
    net.output(net.node("Gemm", name, net.const(w), net.const(bias), transB=1, alpha=2.0))
    found = reference.run(net.graph(), {name: x})[0].values()
    for one, expected in zip(found, [*wanted, 2 * x @ w.T + bias], strict=True):
        np.testing.assert_allclose(one, expected, 1e-5, 1e-5)


REFUSED = {
    "iGELU 'iGELU_0' has no attribute 'one'": lambda n, x: n.node("iGELU", x, b=-98),
    "has one of 0.5, which is no integer": lambda n, x: n.node("iGELU", x, b=-98, one=0.5),
    "has 2 values of 'b'; 1 is needed": lambda n, x: n.node("iGELU", x, b=[-98, 3], one=9),
    "iSoftmax 'iSoftmax_0' is not along the last axis": lambda n, x: n.node("iSoftmax", x, axis=1, **ROOT),
    "ITAMax 'ITAMax_0' is not along the last axis": lambda n, x: n.node("ITAMax", x, axis=1, n_levels=256),
    "has groups of 5 of 16; 1 to 64 whole": lambda n, x: n.node("ITAPartialMax", x, n_levels=256, group_width=5),
    "iRMSNorm 'iRMSNorm_0' has weights that are not constant": lambda n, x: n.node("iRMSNorm", x, x, D=4, n_levels=256),
    "has D = 0 and 256 levels; at least 1, and 2": lambda n, x: n.node("iRMSNorm", x, n.const(1), D=0, n_levels=256),
    "has 2 inputs; 3 are needed": lambda n, x: n.node("iLayerNorm", x, n.const(1), D=4, n_levels=256),
    "iNoNorm 'iNoNorm_0' has weights that are not constant": lambda n, x: n.node(
        "iNoNorm", x, x, x, D=4, mul=1, n_levels=256
    ),
    "has D = 0 and 9 levels": lambda n, x: n.node("iNoNorm", x, n.const(1), n.const(1), D=0, mul=1, n_levels=9),
    "divides by 0": lambda n, x: n.node("TrueIntegerDiv", x, Delta=4, eta=1, eps=-2, y=2),
    "iHardswish 'iHardswish_1' is on values of more than 8 bits": lambda n, x: n.node(
        "iHardswish", n.node("Mul", x, x), **SWISH
    ),
    "MaxPool 'MaxPool_1' has dilations or an index output": lambda n, x: n.node(
        "MaxPool", n.node("Mul", x, x), kernel_shape=[2], dilations=[2]
    ),
    "Pad 'Pad_0' has values of inf, which is no integer of 32 bits": lambda n, x: n.node(
        "Pad", x, pads=[0] * 6, value=np.inf
    ),
    "multiplies by a vector": lambda n, x: n.node("MatMul", x, n.const(np.arange(16))),
    "Conv 'Conv_1' has weights that are not constant": lambda n, x: n.node("Conv", x, n.node("Mul", x, x)),
    "MatMul 'MatMul_0' has weights of 0.25, which is no integer": lambda n, x: n.node(
        "MatMul", x, n.const(np.full((16, 5), 0.25))
    ),
    "Clip 'Clip_0' has bounds that are not constant": lambda n, x: n.node("Clip", x, x),
    "GlobalAveragePool 'GlobalAveragePool_0' is not supported beside": lambda n, x: n.node("GlobalAveragePool", x),
    "RequantShift 'RequantShift_0' has 1 inputs; 3 are needed": lambda n, x: n.node("RequantShift", x),
    "RequantShift 'RequantShift_0' has factors that are not constant": lambda n, x: n.node(
        "RequantShift", x, x, n.const(0), div=2, n_levels=4, signed=1
    ),
    "RequantizediGELU 'RequantizediGELU_0' is not supported beside Deeploy": lambda n, x: n.node(
        "RequantizediGELU", x, x, x, x, b=-30, one=900
    ),
    "has div = 0 and 256 levels": lambda n, x: n.shift(x, div=0),
    "has div = 65536 and 1 levels": lambda n, x: n.shift(x, levels=1),
    "has factors of 0.5, which is no integer of 32 bits": lambda n, x: n.shift(x, mul=0.5),
    "has offsets of inf": lambda n, x: n.shift(x, add=np.inf),
    "3 unsupported operators: 2 times: Sigmoid 'Sigmoid_1' is not supported beside Deeploy's": lambda n, x: n.node(
        "Sigmoid", n.node("Sigmoid", n.node("iGELU", x, b=-98, one=9000, domain="org.foreign"))
    ),
    "iGELU 'iGELU_0' of domain 'org.foreign' is not supported": lambda n, x: n.node(
        "Sigmoid", n.node("iGELU", x, b=-98, one=9000, domain="org.foreign")
    ),
    "unsupported operator: iFoo 'iFoo_0' is not supported; docs/networks.md lists": lambda n, x: n.node("iFoo", x),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(net, text):
    net.output(net.shift(REFUSED[text](net, net.input(1, 2, 16))))
    model, path = net.proto(), net.folder / "small.onnx"
    model.opset_import.add(domain="org.foreign", version=1)
    onnx.save(model, path)
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(path)
    found = str(caught.value).replace(str(net.folder), "")
    assert text in found and "\n" not in found and len(found) <= 300


def test_outputs_that_are_no_results(net):
    x = net.input(1, 4)
    net.output(net.shift(x), net.const([1.0]), x)
    texts = "output 'c[0-9]+' does not come from the inputs; output 'x0' is an input, which is not supported"
    with pytest.raises(UnsupportedError, match=texts):
        net.graph()


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda graph: graph.node[0].input.__setitem__(1, "nowhere"), FileError,
         "damaged: MatMul 'MatMul_0' reads 'nowhere', which nothing made"),
        (lambda graph: setattr(graph.initializer[0], "raw_data", b"123"), FileError, "damaged: constant 'c0'"),
        (lambda graph: setattr(graph.input[0].type.tensor_type.shape.dim[1], "dim_value", 3), FileError,
         "inconsistent"),
        (lambda graph: setattr(graph.input[0].type.tensor_type.shape.dim[1], "dim_param", "N"), UnsupportedError,
         "only the first size may be open"),
    ],
)  # fmt: skip
def test_damaged_files(net, change, error, text):
    net.output(net.shift(net.node("MatMul", net.input(1, 4), net.const(net.int8(4, 5)))))
    model, path = net.proto(), net.folder / "changed.onnx"
    change(model.graph)
    onnx.save(model, path)
    with pytest.raises(error, match=text):
        import_onnx(path)
