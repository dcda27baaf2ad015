"""The layers of ResNet-18 that are measured: their names and bounds, and that their programs are exact."""

import numpy as np
import pytest

from tilewright.cli.bench.layers import (
    CONVOLUTIONS,
    VTA_MS,
    BenchLayer,
    bounds,
    convolutions,
    convolutions_data,
    data,
    has_tiles,
    is_operator,
    layers,
    least_bytes,
    plain_convolution,
    plain_data,
    program,
    square,
    work_of,
)
from tilewright.compiler.schedule.tiling import best_tile
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify

PYNQ, VTA = PRESETS["pynq_z1"], PRESETS["vta"]
BY_NAME = {layer.name: layer for layer in layers()}
SUMS = [f"add{block}.{k}" for block in "2345" for k in "12"]
SUM = BenchLayer("s", "add", square(5, 48, 48, 1, 1, groups=48))
FIRST = BenchLayer("c", "conv2d", square(20, 3, 32, 7, 2))
MAXIMUM = BenchLayer("m", "max_pool", square(20, 32, 32, 3, 2, groups=32))


def test_the_network_has_its_layers():
    offloaded = [layer for layer in layers() if layer.offloaded]
    assert len(offloaded) == 19 and sum(layer.op == "conv2d" for layer in layers()) == 21  # with C1 and C3
    assert sum(layer.macs for layer in offloaded) == 256 * 6623232  # the ideal of the VTA paper's 16 x 16 array
    assert [name for name in BY_NAME if not name.startswith("C")] == ["maxpool", *SUMS, "fc"]
    assert {layer.shape_name for layer in offloaded} == set(VTA_MS)
    assert list(CONVOLUTIONS) == [f"C{k}" for k in range(2, 13)]
    assert sum(shape.macs for shape in CONVOLUTIONS.values()) == 667942912  # 1335.9 MOP


@pytest.mark.parametrize(
    "name, loaded, stored",
    [
        ("C2.1", 56 * 56 * 64 + 9 * 64 * 64 + 64 * 12, 56 * 56 * 64),
        ("C5", 28 * 56 * 64 + 64 * 128 + 128 * 12, 28 * 28 * 128),  # of two rows one is read
        ("add5.1", 2 * 49 * 512, 49 * 512),
        ("maxpool", 112 * 112 * 64, 56 * 56 * 64),
        ("fc", 512 + 512 * 1008 + 1008 * 12, 1008),
    ],
)
def test_every_tensor_counts_once(name, loaded, stored):
    assert least_bytes(BY_NAME[name], PYNQ) == (loaded, stored)
    assert bounds(BY_NAME[name], PYNQ) == {
        "gemm": BY_NAME[name].macs / 256,
        "load": loaded / 8,
        "store": stored / 8,
        "memory": (loaded + stored) / 16,
    }


def test_the_search_gets_the_work_that_the_schedule_has():
    layer = BY_NAME["C11"]
    given = program(layer, PYNQ, tile=best_tile(work_of(layer, PYNQ), PYNQ)).finish()
    assert np.array_equal(given.insn, program(layer, PYNQ).finish().insn)


def test_layers_that_are_lowered_as_operators_of_a_network():
    some = SUM, FIRST, MAXIMUM, *(BY_NAME[name] for name in ("C2.1", "C12.1", "fc"))
    assert [layer for layer in some if is_operator(layer, PYNQ)] == [SUM, FIRST, MAXIMUM]
    assert [layer for layer in some if has_tiles(layer, PYNQ)] == list(some[3:])
    assert not any(is_operator(layer, VTA) for layer in some) and has_tiles(FIRST, VTA)


def check(layer, cfg):
    made = program(layer, cfg)
    verify(made.finish())
    inputs, expected = data(layer, cfg)
    out, stats = run(made, inputs)
    assert np.array_equal(out["out"], expected)
    return stats, expected


@pytest.mark.parametrize("layer", [SUM, FIRST, MAXIMUM, BY_NAME["C8"], BY_NAME["fc"]], ids=lambda layer: layer.name)
def test_layers_are_exact_on_the_model(layer):
    stats, expected = check(layer, PYNQ)
    assert stats.insns["STORE.OUTQ"] + stats.insns["STORE.OUTR"] + stats.insns["STORE.OUT"]
    assert len(np.unique(expected)) > 100


@pytest.mark.parametrize("cfg", [VTA, PYNQ], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("name", ["C8", "C11"])
def test_convolutions_with_the_paper_s_epilogue_are_exact(name, cfg):
    launch = plain_convolution(name, cfg).finish()
    assert len(launch.insn) < 1000
    verify(launch)
    inputs, expected = plain_data(name, cfg)
    out, stats = run(plain_convolution(name, cfg), inputs)
    assert np.array_equal(out["out"], expected) and stats.macs == CONVOLUTIONS[name].macs


@pytest.mark.slow
@pytest.mark.parametrize("cfg", [PYNQ, VTA], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("name", [name for name in BY_NAME if name[-2:] not in (".2", ".3", ".4")])
def test_all_layers_are_exact_on_the_model(name, cfg):
    check(BY_NAME[name], cfg)


@pytest.mark.circuit
@pytest.mark.slow
def test_the_convolutions_are_exact_as_one_program():
    made = convolutions(PYNQ)
    inputs, expected = convolutions_data(PYNQ)
    assert len(expected) == 19 and set(expected) == {b.name for b in made.buffers.values() if b.kind == "output"}
    out, stats = run(made, inputs)
    assert all(np.array_equal(out[name], array) for name, array in expected.items())
    assert stats.macs == 256 * 6623232
