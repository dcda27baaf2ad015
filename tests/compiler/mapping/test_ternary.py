"""compiler/mapping/ternary.py: weights of one size, divided where every result stays."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph.regroup import capable, factors, relabelled
from tilewright.hw.errors import InputError
from tilewright.hw.rounding import CONTRACTS, requantise


def dense(weight, scale, bias, zero_point=0, **facts):
    weight = np.array(weight, np.int8)
    x = g.Tensor("x", (1, weight.shape[1]), scale=0.05, zero_point=zero_point)
    y = g.Tensor("y", (1, len(weight)), scale=0.1, zero_point=3)
    scale = np.full(len(weight), scale, np.float32)
    return g.QDense("fc", (x,), y, weight, scale, np.full(len(weight), bias, np.int32), **facts)


def results(op, sums, factor, contract):
    """What `op` gives for every sum of products of weights of size 1."""
    multiplier, exponent = op.multipliers
    acc = op.bias[0] + factor * sums
    return requantise(acc, multiplier[0], exponent[0], op.output.zero_point, op.low, op.high, contract)


def test_factors():
    op = dense([[0, 3, -3], [0, 0, 0], [1, -1, 1], [2, 1, 0], [-128, 0, -128]], 0.1, 0)
    assert factors(op).tolist() == [3, 1, 1, 0, 128]


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("seed", range(40))
def test_relabelled_layers_give_every_result_they_gave(seed, contract):
    rng = np.random.default_rng(seed)
    k, inputs = int(rng.integers(2, 128)), int(rng.integers(1, 40))
    bias = int(rng.integers(-999, 999)) * (1 if seed % 2 else k)
    low, high = sorted(int(v) for v in rng.integers(-128, 128, 2))
    op = dense(k * rng.integers(-1, 2, (1, inputs)), rng.uniform(0.5, 4) / k / inputs, bias, low=low, high=high)
    weight = op.weight // max(1, int(factors(op)[0]))
    most = int(np.abs(weight).sum()) * 128
    sums = np.arange(-most, most + 1)
    used = results(op, sums, int(factors(op)[0]), contract)
    if capable(op, contract)[0]:
        new = relabelled(op, [0], contract)
        assert np.abs(new.weight).max() <= 1
        assert np.array_equal(results(new, sums, 1, contract), used)
    else:  # neither of the nearest biases gives all results
        scale = (op.weight_scale * factors(op)).astype(np.float32)
        for bias in {int(op.bias[0]) // k, -(-int(op.bias[0]) // k)}:
            new = replace(op, weight=weight, weight_scale=scale, bias=np.array([bias], np.int32))
            assert not np.array_equal(results(new, sums, 1, contract), used)
        with pytest.raises(InputError, match="results would round otherwise"):
            relabelled(op, [0], contract)


def test_where_results_round_once_and_biases_are_multiples_layers_can_be_divided():
    rng, found = np.random.default_rng(0), {contract: [] for contract in CONTRACTS}
    for k in (2, 4, 5, 64, 127):
        for _ in range(20):
            op = dense(k * rng.integers(-1, 2, (1, 9)), rng.uniform(0.5, 4) / k / 9, k * int(rng.integers(-99, 99)))
            for contract in CONTRACTS:
                found[contract].append(bool(capable(op, contract)[0]))
    assert np.mean(found["single"]) == 1 and np.mean(found["double"]) < 0.1


def test_other_channels_stay():
    op = dense([[1, -1], [64, -64], [5, 3], [32, 0]], 0.0625, 0)
    assert relabelled(op, [], "double") is op and relabelled(op, [0], "double") is op
    new = relabelled(op, [1], "double")
    assert new.weight.tolist() == [[1, -1], [1, -1], [5, 3], [32, 0]]
    assert new.weight_scale.tolist() == [0.0625, 4.0, 0.0625, 0.0625]
    assert capable(op, "double").tolist() == [True, True, False, True]


def test_weights_of_several_sizes_are_refused():
    with pytest.raises(InputError) as caught:
        relabelled(dense([[1, -1, 0], [5, 3, 1]], 0.1, 0), [0, 1], "double")
    assert str(caught.value) == (
        "layer 'fc': channel 1 cannot be ternary: it has weights of size 3 and 5; all must be -k, 0 or k for one k; "
        "map it to gemm"
    )


def test_sums_beyond_int32_are_refused():
    op = dense([[2, -2]], 0.1, 2**31 - 1)
    assert not capable(op, "double")[0]
    with pytest.raises(InputError, match="round otherwise"):
        relabelled(op, [0], "double")
