"""The layers of ResNet-18: their names, their bounds, and that they are exact."""

import numpy as np
import pytest

from tilewright.cli.bench.network import (
    VTA_MS,
    bounds,
    convolutions,
    convolutions_data,
    data,
    has_tiles,
    is_offloaded,
    layers,
    least_bytes,
    program,
    schedule,
    work_of,
)
from tilewright.compiler.schedule.tiling import best_tile
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify

PYNQ, VTA = PRESETS["pynq_z1"], PRESETS["vta"]
BY_NAME = {layer.name: layer for layer in layers()}


def test_the_network_has_its_layers():
    names = [layer.name for layer in layers()]
    offloaded = [layer for layer in layers() if is_offloaded(layer)]
    assert len(offloaded) == 19 and sum(layer.op == "conv2d" for layer in layers()) == 21  # with C1 and C3
    assert sum(layer.macs for layer in offloaded) == 256 * 6623232  # the ideal of the VTA paper's 16 x 16 array
    assert [name for name in names if not name.startswith("C")] == [
        "maxpool",
        *(f"add{block}.{k}" for block in "2345" for k in "12"),
        "fc",
    ]
    assert {layer.shape_name for layer in offloaded} == set(VTA_MS)


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
    found = bounds(BY_NAME[name], PYNQ)
    assert found == {
        "gemm": BY_NAME[name].macs / 256,
        "load": loaded / 8,
        "store": stored / 8,
        "memory": (loaded + stored) / 16,
    }


def test_the_search_gets_the_work_that_the_schedule_has():
    layer = BY_NAME["C11"]
    alone = schedule(layer, PYNQ, tile=best_tile(work_of(layer, PYNQ), PYNQ))
    assert alone.mod.script() == schedule(layer, PYNQ).mod.script()


def test_what_is_searched_and_what_goes_the_way_of_a_network():
    assert [name for name in BY_NAME if not has_tiles(BY_NAME[name], PYNQ)] == [
        "C1",
        "maxpool",
        *(f"add{block}.{k}" for block in "2345" for k in "12"),
    ]
    assert has_tiles(BY_NAME["C1"], VTA)


def check(name, cfg):
    made = program(BY_NAME[name], cfg)
    verify(made.finish())
    inputs, expected = data(BY_NAME[name], cfg)
    out, stats = run(made, inputs)
    assert np.array_equal(out["out"], expected)
    return stats


@pytest.mark.parametrize("name", ["C1", "C8", "C12.1", "add5.1", "fc"])
def test_layers_are_exact_on_the_model(name):
    stats = check(name, PYNQ)
    assert stats.insns["STORE.OUTQ"] and not stats.insns["STORE.OUT"]


@pytest.mark.slow
@pytest.mark.parametrize("cfg", [PYNQ, VTA], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("name", [name for name in BY_NAME if name[-2:] not in (".2", ".3", ".4")])
def test_all_layers_are_exact_on_the_model(name, cfg):
    check(name, cfg)


def test_the_convolutions_are_exact_as_one_program():
    made = convolutions(PYNQ)
    inputs, expected = convolutions_data(PYNQ)
    assert len(expected) == 19 and set(expected) == {b.name for b in made.buffers.values() if b.kind == "output"}
    out, stats = run(made, inputs)
    assert all(np.array_equal(out[name], array) for name, array in expected.items())
    assert stats.macs == 256 * 6623232
