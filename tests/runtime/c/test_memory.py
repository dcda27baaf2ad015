"""runtime/c/memory.py: nothing lies where something else still lives, and everything is aligned."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, UnsupportedError
from tilewright.hw.isa import INSN_BYTES
from tilewright.runtime.c.memory import LINE, host_lives, plan, staged
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import Program
from tilewright.runtime.steps import HostStep, LaunchStep, Tensor


def reshaped(name, x, y, shape):
    return HostStep(name, "reshape", [x], [y], {"shape": list(shape)})


def of_the_host(sizes, states=()):
    """A program that copies x from tensor to tensor, of int8 (n,)."""
    n = 100
    names = ["x", *(f"t{k}" for k in range(sizes)), "y"]
    kinds = ["input", *["temp"] * sizes, "output"]
    tensors = {name: Tensor(name, (n,), "int8", kind) for name, kind in zip(names, kinds)}
    tensors |= {t.name: t for t in states}
    steps = [reshaped(f"s{k}", *pair, (n,)) for k, pair in enumerate(zip(names, names[1:]))]
    return Executable(PRESETS["tiny"], "chain", tensors, [*steps])


def test_tensors_of_the_host_share_memory_once_they_are_dead():
    executable = of_the_host(5)
    found = plan(executable, 40)
    lives = host_lives(executable, {})
    assert set(lives) == {f"t{k}" for k in range(5)}
    for a, b in combinations(lives, 2):
        if set(lives[a]) & set(lives[b]):
            assert abs(found.at[a] - found.at[b]) >= 100
    assert found.total <= found.device + 2 * 128 + 2 * LINE + 40
    assert found.scratch % 8 == 0 and found.scratch >= max(found.at.values()) + 100


def test_a_state_and_its_next_value_share_with_nothing():
    states = [Tensor("kept", (100,), "int8", "state", np.zeros(100, np.int8), "t1")]
    executable = of_the_host(3, states)
    lives = host_lives(executable, {})
    whole = range(len(executable.steps) + 1)
    assert lives["kept"] == lives["t1"] == whole and lives["t0"] != whole


def test_states_that_take_each_others_values():
    zero = np.zeros(100, np.int8)
    states = [Tensor("a", (100,), "int8", "state", zero, "b"), Tensor("b", (100,), "int8", "state", zero, "t0")]
    assert [*staged(of_the_host(1, states))] == ["a"]


def test_regions_of_the_device(cache):
    executable = Executable.from_launch(cache().launch)
    found, regions = plan(executable, 0), executable.memory_plan()
    spans = sorted((found.at[name], name) for name in regions)
    ends = [at + regions[name].nbytes for at, name in spans]
    assert all(end <= at for end, (at, _) in zip(ends, spans[1:]))
    assert all(found.at[name] % regions[name].align == found.at[name] % LINE == 0 for name in regions)
    assert spans[0][0] >= found.align and ends[-1] <= found.device <= found.total
    assert found.align % LINE == 0 and all(found.align % r.align == 0 for r in regions.values())


def test_the_image_has_instructions_and_constants(cache):
    launch = cache().launch
    executable = Executable.from_launch(launch)
    found = plan(executable, 0)
    places = [found.at[executable.region(0, b)] for b in launch.buffers]
    words = found.image[found.launch(0) :][: len(launch.insn) * INSN_BYTES].view("<u8").reshape(-1, 2)
    assert np.array_equal(words, launch.relocate(places))
    for b, at in zip(launch.buffers, places):
        if b.data is not None:
            assert np.array_equal(found.image[at : at + b.nbytes], b.data)
        else:
            assert at >= len(found.image)


def test_memory_of_one_launch_alone_is_shared_by_launches():
    cfg, launches = PRESETS["tiny"], []
    for k in range(2):
        program = Program(cfg, f"p{k}")
        temp = program.buffer("between", (4, 1, cfg.block_out), kind="temp")
        y = program.buffer("y", (4, 1, cfg.block_out), kind="output")
        program.store(0, temp, 0, x_size=4)
        program.store(0, y, 0, x_size=4)
        launches.append(program.finish())
    tensors = {f"y{k}": Tensor(f"y{k}", (4, 1, cfg.block_out), "int8", "output") for k in range(2)}
    steps = [LaunchStep(f"s{k}", launch, {"y": f"y{k}"}) for k, launch in enumerate(launches)]
    found = plan(Executable(cfg, "two", tensors, [*steps]), 0)
    assert found.at["0.between"] == found.at["1.between"] and found.at["y0"] != found.at["y1"]


def test_elements_narrower_than_a_byte_are_refused():
    cfg = replace(PRESETS["vta"], name="narrow", out_bits=4, extensions=frozenset())
    program = Program(cfg, "narrow")
    y = program.buffer("y", (4, cfg.batch, cfg.block_out), 4, kind="output")
    program.store(0, y, 0, x_size=4)
    with pytest.raises(
        UnsupportedError, match=r"buffer 'y' has elements of 4 bits, .*; use a configuration with 8-bit"
    ):
        plan(Executable.from_launch(program.finish()), 0)


def test_more_than_2_gb_are_refused():
    with pytest.raises(CapacityError, match="needs 3,0.* bytes of memory; in C at most 2,147,483,648"):
        plan(of_the_host(1), 3_000_000_000)
