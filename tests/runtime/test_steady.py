"""Steady launches: what they leave out, when they run, and what refuses wrong ones."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tests.runtime.launches import members, product, resident
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CertificateError, ExecutionError, FileError, ProgramError, SteadyError, UnwrittenError
from tilewright.hw.isa import Isa, Mem
from tilewright.hw.units import Queue
from tilewright.runtime.device import open_device, program_stats
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import Loaded
from tilewright.runtime.program import Program
from tilewright.runtime.steady import steady_launches
from tilewright.runtime.symbols import Symbol
from tilewright.runtime.verify import verify, verify_steady

TINY = PRESETS["tiny"]  # an entry of inputs is 4 values, one of weights 4 rows of 4


def proved(executable: Executable) -> Executable:
    """The executable, with certificates of all launches."""
    for step in executable.launches:
        step.certificate = verify(step.launch, memory=True).certificate
    for step in executable.launches:
        step.steady_certificate = verify_steady(executable.steps)[step.name].certificate
    return executable


@pytest.mark.parametrize("device", ["model", "timing", "spec", pytest.param("rtl", marks=pytest.mark.circuit)])
def test_programs_that_alternate_load_again_and_are_exact(device):
    """By hand: the first run of a stretch loads, the others do not; products by numpy."""
    rng, on = np.random.default_rng(3), open_device(device, TINY)
    (first, v), (second, w) = product(1), product(2)
    a, b = Loaded(resident(first), on), Loaded(resident(second), on)
    steady = []
    for loaded, weights in ((a, v), (a, v), (b, w), (b, w), (b, w), (a, v), (b, w), (a, v), (a, v)):
        x = rng.integers(-8, 8, (1, 1, 4)).astype(np.int8)
        y = loaded.run({"x": x})["y"]
        assert np.array_equal(y.reshape(-1), (weights.astype(int) @ x.reshape(-1)).astype(np.int8))
        steady.append(loaded.reports[0].steady)
        loads = loaded.reports[0].stats.bytes_loaded
        assert loads["WGT"] == (0 if steady[-1] else 64) and loads["INP"] == 4
    assert steady == [False, True, False, True, True, False, False, False, True]


def test_a_foreign_program_is_noticed():
    program, w = product(1)
    on = open_device("model", TINY)
    with Loaded(resident(program), on) as loaded:
        x = np.array([[[1, 2, 3, 4]]], np.int8)
        foreign, v = product(7)  # without steady launches, to the same entries
        for _ in range(2):
            loaded.run({"x": x})
        assert loaded.reports[0].steady
        assert np.array_equal(
            tw.run(foreign, {"x": x}, on)[0]["y"].reshape(-1), (v.astype(int) @ x[0, 0]).astype(np.int8)
        )
        assert np.array_equal(loaded.run({"x": x})["y"].reshape(-1), (w.astype(int) @ x[0, 0]).astype(np.int8))
        assert not loaded.reports[0].steady


def test_after_a_run_that_failed_all_is_loaded_again():
    program, _ = product(1)
    on = open_device("model", TINY)
    with Loaded(resident(program), on) as loaded:
        x = {"x": np.ones((1, 1, 4), np.int8)}
        loaded.run(x)
        with pytest.raises(ExecutionError, match="no FINISH"):
            on.run(64, 0)
        loaded.run(x)
        assert not loaded.reports[0].steady
        loaded.run(x)
        assert loaded.reports[0].steady


def test_a_launch_that_overwrites_its_constants_loads_these_again():
    """Weights of two kernels in the same entries: neither stays; micro-ops do."""
    rng = np.random.default_rng(5)
    program = Program(TINY, "two")
    x, y = program.buffer("x", (1, 1, 4)), program.buffer("y", (2, 1, 4), kind="output")
    program.load(Mem.INP, 0, x, 0, x_size=1)
    program.gemm([(2, 1, 0, 0)], reset=True)
    kernels = rng.integers(-8, 8, (2, 4, 4)).astype(np.int8)
    for k, kernel in enumerate(kernels):
        data = kernel.view(np.uint8).reshape(-1)
        program.load(Mem.WGT, 0, program.buffer(f"w{k}", (1, 4, 4), kind="constant", data=data), 0, x_size=1)
        program.gemm([(1, 0, 0, 0)], dst=k)
    program.store(0, y, 0, x_size=2)
    executable = resident(program)
    with Loaded(executable, open_device("model", TINY)) as loaded:
        for _ in range(3):
            value = rng.integers(-8, 8, (1, 1, 4)).astype(np.int8)
            found = loaded.run({"x": value})["y"][:, 0]
            assert np.array_equal(found, (kernels.astype(int) @ value[0, 0]).astype(np.int8))
        assert loaded.reports[0].steady
        assert loaded.reports[0].stats.bytes_loaded == {"INP": 4, "WGT": 32}


def mixture(seed: int) -> Program:
    """Constants loaded to entries at random, some of them again, and products of what is there."""
    rng = np.random.default_rng(seed)
    program = Program(TINY, f"mixture_{seed}")
    x = program.buffer("x", (4, 1, 4))
    y = program.buffer("y", (8, 1, 4), kind="output")
    temp = program.buffer("t", (8, 1, 4), kind="temp")
    data = rng.integers(-8, 8, (12, 4, 4)).astype(np.int8).view(np.uint8).reshape(-1)
    weights = program.buffer("w", (12, 4, 4), kind="constant", data=data)
    inputs = program.buffer("c", (12, 1, 4), kind="constant", data=data[:48])
    program.load(Mem.WGT, 0, weights, 0, x_size=8)
    program.load(Mem.INP, 0, inputs, 0, x_size=12)
    program.gemm([(8, 1, 0, 0)], reset=True)
    for _ in range(int(rng.integers(2, 20))):
        size = int(rng.integers(1, 5))
        at = int(rng.integers(0, 9 - size))
        kind = rng.integers(6)
        if kind < 2:
            mem, source = ((Mem.WGT, weights), (Mem.INP, inputs))[kind]
            program.load(mem, at, source, int(rng.integers(0, 13 - size)), x_size=size)
        elif kind == 2:
            program.load(Mem.INP, at, x, 0, x_size=size, pads=(0, int(at + size < 8), 0, 0))
        elif kind == 3:
            program.load(Mem.INP, at + 4, inputs, int(rng.integers(0, 9)), x_size=4, pads=(0, 0, 1, 1))
        elif kind == 4:
            program.store(at, temp, at, x_size=size)
            program.load(Mem.INP, int(rng.integers(0, 13 - size)), temp, at, x_size=size)
        else:
            dst, src, wgt = (int(n) for n in rng.integers(0, [9 - size, 13 - size, 9 - size]))
            program.gemm([(size, 1, 1, 1)], dst, src, wgt)
    program.store(0, y, 0, x_size=8)
    return program


@pytest.mark.parametrize("seed", range(25))
def test_random_programs_do_the_same_as_all_their_loads(seed):
    """Against the definition, which runs the whole launch on a fresh device."""
    program, rng = mixture(seed), np.random.default_rng(seed)
    executable = proved(resident(program))
    with Loaded(executable, open_device("model", TINY, rng=rng)) as loaded:
        for _ in range(3):
            x = {"x": rng.integers(-8, 8, (4, 1, 4)).astype(np.int8)}
            assert np.array_equal(loaded.run(x)["y"], tw.run(program, x, "spec")[0]["y"])
        assert loaded.reports[0].steady


def test_a_launch_may_begin_with_an_instruction_that_only_carries_a_token():
    """As VTA's do: the loads of the next step wait until the entries of this one are free."""
    rng, program = np.random.default_rng(9), Program(TINY, "explicit", tokens="explicit")
    w = rng.integers(-8, 8, (8, 4)).astype(np.int8)
    x, y = program.buffer("x", (1, 1, 4)), program.buffer("y", (2, 1, 4), kind="output")
    weights = program.buffer("w", (2, 4, 4), kind="constant", data=w.view(np.uint8).reshape(-1))
    program.dep_push(Queue.COMPUTE, Queue.LOAD)
    for k in range(2):
        program.dep_pop(Queue.COMPUTE, Queue.LOAD)
        program.load(Mem.INP, 0, x, 0)
        program.load(Mem.WGT, 0, weights, k)
        program.dep_push(Queue.LOAD, Queue.COMPUTE)
        program.dep_pop(Queue.LOAD, Queue.COMPUTE)
        program.gemm([(1, 0, 0, 0)], reset=True)
        program.gemm([(1, 0, 0, 0)])
        for source, target in ((Queue.COMPUTE, Queue.LOAD), (Queue.COMPUTE, Queue.STORE)):
            program.dep_push(source, target)
        program.dep_pop(Queue.COMPUTE, Queue.STORE)
        program.store(0, y, k)
        program.dep_push(Queue.STORE, Queue.COMPUTE)
        program.dep_pop(Queue.STORE, Queue.COMPUTE)
    program.dep_pop(Queue.COMPUTE, Queue.LOAD)
    with Loaded(proved(resident(program)), open_device("model", TINY)) as loaded:
        for _ in range(2):
            value = rng.integers(-8, 8, (1, 1, 4)).astype(np.int8)
            found = loaded.run({"x": value})["y"].reshape(-1)
            assert np.array_equal(found, (w.astype(int) @ value[0, 0]).astype(np.int8))
        assert loaded.reports[0].steady


def test_verify_refuses_a_steady_launch_without_its_first():
    step = resident(product(1)[0]).launches[0]
    assert step.steady is not None
    with pytest.raises(ProgramError, match="micro-ops that no LOAD.UOP loads"):
        verify(step.steady, memory=True)
    verify(step.steady, memory=True, before=[step.launch])


def test_verify_refuses_one_that_reads_what_its_first_did_not_write():
    steady = resident(product(1)[0]).launches[0].steady
    assert steady is not None
    with pytest.raises(UnwrittenError, match="reads WGT entries 3..3 before any instruction writes them"):
        verify(steady, memory=True, before=[product(1, loaded=3)[0].finish()])


def test_other_contents_are_refused():
    """The same loads and products, without the load of the weights that replaces others: entries were written."""

    def two_kernels(again: bool, kernels: int = 2) -> Program:
        program = Program(TINY, "two")
        x, y = program.buffer("x", (1, 1, 4)), program.buffer("y", (1, 1, 4), kind="output")
        data = np.arange(32, dtype=np.uint8)
        weights = program.buffer("w", (2, 4, 4), kind="constant", data=data)
        program.load(Mem.INP, 0, x, 0, x_size=1)
        program.gemm([(1, 0, 0, 0)], reset=True)
        for k in range(kernels):
            if k or again:
                program.load(Mem.WGT, 0, weights, k, x_size=1)
            program.gemm([(1, 0, 0, 0)])
        program.store(0, y, 0, x_size=1)
        return program

    executable = Executable.from_launch(two_kernels(again=True).finish())
    (step,) = executable.launches
    fewer = replace(two_kernels(again=False).finish(), buffers=step.launch.buffers)
    with pytest.raises(SteadyError, match="GEMM.*finds other values on chip or in DRAM than after all loads"):
        verify_steady([replace(step, steady=fewer)])
    shorter = replace(two_kernels(again=True, kernels=1).finish(), buffers=step.launch.buffers)
    with pytest.raises(SteadyError, match="FINISH.* is not its instruction 6 .GEMM"):
        verify_steady([replace(step, steady=shorter)])
    with pytest.raises(SteadyError, match="GEMM.* is not its instruction"):
        verify_steady([replace(step, steady=replace(product(1)[0].finish(), buffers=step.launch.buffers))])


def test_loads_of_stored_data_find_the_same_stores():
    """Two stores to one place, with a load behind each, or both stores before both loads: each queue does the same."""

    def program(both_first: bool) -> Program:
        program = Program(TINY, "stores")
        x, y = program.buffer("x", (2, 1, 4)), program.buffer("y", (2, 1, 4), kind="output")
        temp = program.buffer("t", (1, 1, 4), kind="temp")
        data = np.eye(4, dtype=np.uint8).reshape(-1)
        weights = program.buffer("w", (1, 4, 4), kind="constant", data=data)
        program.load(Mem.INP, 0, x, 0, x_size=2)
        program.load(Mem.WGT, 0, weights, 0, x_size=1)
        program.gemm([(2, 1, 1, 0)], reset=True)
        program.gemm([(2, 1, 1, 0)])
        program.store(0, temp, 0)
        if both_first:
            program.store(1, temp, 0)
        program.load(Mem.INP, 2, temp, 0)
        if not both_first:
            program.store(1, temp, 0)
        program.load(Mem.INP, 3, temp, 0)
        program.gemm([(2, 1, 1, 0)], reset=True)
        program.gemm([(2, 1, 1, 0)], src=2)
        program.store(0, y, 0, x_size=2)
        return program

    (step,) = resident(program(both_first=False)).launches
    verify_steady([step])
    other = replace(program(both_first=True).finish(), buffers=step.launch.buffers)
    with pytest.raises(SteadyError, match="LOAD.INP.*finds other values on chip or in DRAM than after all loads"):
        verify_steady([replace(step, steady=other)])


@pytest.mark.parametrize("limits", [{"position": 8}, {"position": 3}, {"other": 4}])
def test_a_steady_launch_has_the_symbols_of_its_launch(limits):
    """Its proof and the checks of a run must be for the same values."""
    program = Program(TINY, "rows")
    x, y = program.buffer("x", (1, 1, 4)), program.buffer("y", (8, 1, 4), kind="output")
    program.load(Mem.INP, 0, x, 0)
    program.gemm([(1, 0, 0, 0)], reset=True)
    program.store(0, y, 0, at=Symbol("position", 4, step=1))
    executable = resident(program)
    (step,) = executable.launches
    assert step.steady is not None and step.steady.patches.limits == {"position": 4}
    steady = replace(step.steady, patches=replace(step.steady.patches, limits=limits))
    text = f"its steady launch has symbols {limits}, its launch {{'position': 4}}; compile it again"
    with pytest.raises(ProgramError, match=re.escape(text)):
        Executable(TINY, "rows", executable.tensors, [replace(step, steady=steady)])


def test_launches_in_turn_keep_what_none_of_them_overwrites():
    """Both load weights to the same entries in one turn, to different ones in the other."""
    together = [product(1)[0].finish(), product(2)[0].finish()]
    apart = [product(1)[0].finish(), product(2, at=4)[0].finish()]
    loads = []
    for turn in (together, apart):
        steady = [one for one in steady_launches(turn) if one is not None]
        loads.append([program_stats(Isa(TINY), one.insn).bytes_loaded["WGT"] for one in steady])
    assert loads == [[64, 64], [0, 0]]


def test_the_file_keeps_steady_launches_with_their_certificates():
    executable = proved(resident(product(1)[0]))
    data = executable.to_bytes()
    again = Executable.from_bytes(data, "again")
    (step,), (before,) = again.launches, executable.launches
    assert step.steady is not None and before.steady is not None
    assert np.array_equal(step.steady.insn, before.steady.insn) and step.steady.buffers is step.launch.buffers
    verify_steady(again.steps)  # checks the certificate, too
    certificate = step.steady_certificate
    assert certificate is not None
    step.steady_certificate = replace(certificate, clocks=certificate.clocks + 1)
    with pytest.raises(CertificateError, match="clock"):
        verify_steady(again.steps)


def test_the_first_file_versions_have_no_steady_launches():
    plain = Executable.from_launch(product(1)[0].finish()).to_bytes()
    found = []
    for data in (plain, resident(product(1)[0]).to_bytes()):
        manifest = json.loads(members(data)["manifest.json"])
        found.append((manifest["version"], "steady" in manifest["steps"][0], "0.steady" in manifest["memory"]))
    assert found == [(3, False, False), (4, True, True)]
    with pytest.raises(FileError):
        Executable.from_bytes(plain[:-40], "cut")
