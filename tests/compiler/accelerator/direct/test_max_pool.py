"""Maxima over windows with copies by GEMM: exact, in separable steps, and only where the configuration can."""

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.graph import MaxPool, Tensor
from tilewright.compiler.kernels import table
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.compiler.kernels.pool import Part, max_pool, max_pool_sorted, parts
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Isa
from tilewright.sim.timing import predict

PYNQ = PRESETS["pynq_z1"]


def maximum(size, kernel, strides, pads=(0, 0, 0, 0), channels=20, images=1, clamp=(-128, 127)):
    x = Tensor("x", (images, channels, *size), zero_point=4)
    y = Tensor("y", (images, channels, *output_size(size, kernel, strides, pads)), zero_point=4)
    return MaxPool("op", (x,), y, kernel, strides, pads, *clamp)


@pytest.mark.parametrize(
    ("kernel", "stride", "expected"),
    [
        (1, 1, [(0, ())]),
        (2, 2, [(0, ()), (1, (0,))]),
        (3, 2, [(1, ()), (0, (0, 1))]),  # the middle, which no other window has
        (3, 1, [(0, ()), (1, (0, 1))]),
        (5, 2, [(1, ()), (0, (0, 1, 2)), (3, (0,))]),
    ],
)
def test_parts_of_a_direction(kernel, stride, expected):
    assert [(part.first, part.shifts) for part in parts(kernel, stride)] == expected
    taps = [part.first + shift * stride for part in parts(kernel, stride) for shift in part.shifts or (0,)]
    assert sorted(taps) == list(range(kernel))
    assert Part(0, (0, 2)).count(7) == 9


def issues(launch):
    """Instructions' issues by mnemonic."""
    isa, found = Isa(launch.cfg), {}
    for fields in isa.decode(launch.insn):
        if "uop_bgn" in fields:
            name = isa.mnemonic(fields)
            count = fields["iter_out"] * fields["iter_in"] * (fields["uop_end"] - fields["uop_bgn"])
            found[name] = found.get(name, 0) + count
    return found


def test_issues_of_the_first_maximum_of_resnet18(exact):
    launch = exact(maximum((112, 112), (3, 3), (2, 2), (1, 1, 1, 1), 16))
    found, pixels, results = issues(launch), 113 * 113, 56 * 56
    maxima = 2 * 56 * 113 + 2 * results  # of rows for all columns, then of columns
    assert maxima <= found["ALU.MAX"] <= 1.05 * maxima  # columns that two tiles need are done twice
    assert pixels <= sum(found.values()) - found["ALU.MAX"] <= 1.08 * pixels
    assert "LOAD.ACC8" not in {Isa(PYNQ).mnemonic(fields) for fields in Isa(PYNQ).decode(launch.insn)}


def test_the_alu_reads_what_it_compares_from_two_banks_in_one_cycle(exact):
    launch = exact(maximum((112, 112), (3, 3), (2, 2), (1, 1, 1, 1), 16))
    assert predict(launch).cycles < 1.15 * sum(issues(launch).values())


@pytest.mark.parametrize(
    ("op", "cfg"),
    [
        (maximum((9, 9), (7, 7), (7, 7)), PYNQ),  # copies of single rows and columns
        (maximum((9, 9), (2, 2), (2, 2), (2, 2, 2, 2)), PYNQ),  # windows of padding alone
        (maximum((9, 9), (2, 2), (2, 2)), dataclasses.replace(PYNQ, extensions=PYNQ.extensions - {"overwrite"})),
        (maximum((9, 9), (2, 2), (2, 2)), dataclasses.replace(PYNQ, inp_bytes=1 << 14)),  # too few to name
        (maximum((9, 9), (3, 3), (2, 2)), dataclasses.replace(PYNQ, inp_bytes=1 << 8, acc_bytes=1 << 10)),
    ],
)
def test_what_takes_another_way(op, cfg):
    assert why_not(max_pool_sorted, op, cfg)


def test_padding_counts_along_its_direction():
    assert not why_not(max_pool_sorted, maximum((9, 9), (1, 3), (1, 2), (0, 1, 0, 1)), PYNQ)
    assert why_not(max_pool_sorted, maximum((9, 9), (1, 3), (1, 2), (1, 0, 0, 0)), PYNQ)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad", "channels"),
    [((112, 112), 3, 2, 1, 64), ((24, 24), 2, 2, 0, 32), ((13, 13), 5, 1, 2, 64), ((64, 64), 7, 3, 3, 16)],
)
def test_large_images(exact, size, kernel, stride, pad, channels):
    exact(maximum(size, (kernel, kernel), (stride, stride), (pad, pad, pad, pad), channels))


def test_the_faster_one_of_both_units_and_of_the_alu_alone():
    large, small = maximum((24, 24), (2, 2), (2, 2)), maximum((5, 1), (5, 1), (1, 1))
    assert cycles(max_pool_sorted, large, PYNQ) < cycles(max_pool, large, PYNQ)
    assert cycles(max_pool_sorted, small, PYNQ) > cycles(max_pool, small, PYNQ)
    assert [table.chosen(op, PYNQ) for op in (large, small)] == [max_pool_sorted, max_pool]


SMALL = Config(
    "small", wgt_bytes=1 << 13, inp_bytes=1 << 11, acc_bytes=1 << 13, extensions=PYNQ.extensions, uop_bytes=1 << 12
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_maxima_are_exact(exact, data):
    kernel = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)), "kernel")
    strides = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)), "strides")
    pads = data.draw(st.tuples(*(st.integers(0, k - 1) for k in 2 * kernel)), "pads")
    size = tuple(k + data.draw(st.integers(0, 20)) for k in kernel)
    cfg = data.draw(st.sampled_from([PYNQ, SMALL, PRESETS["tiny"]]), "configuration")
    low = data.draw(st.integers(-128, 0), "low")
    op = maximum(size, kernel, strides, pads, 20, data.draw(st.integers(1, 2), "images"), (low, 100))
    assert not why_not(max_pool_sorted, op, cfg)
    exact(op, cfg=cfg)
