"""Verification: what it proves, what it names, and that every token pair is needed or implied."""

import tracemalloc

import numpy as np
import pytest

from tests.runtime.launches import changed, first_of, hand_written, races_without_a_pair
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import (
    AccessError,
    DeadlockError,
    ExecutionError,
    ProgramError,
    RaceError,
    TokenError,
)
from tilewright.hw.isa import AluOp, Mem, Op, Queue
from tilewright.runtime.buffer import Buffer
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.runtime.verify import check_depths, verify, without_pair

VTA = PRESETS["vta"]


def pipeline(tiles=5, threads=2):
    """Tiles of a matrix product that alternate between `threads` halves of every scratchpad."""
    program = Program(VTA)
    a = program.buffer("a", (2 * tiles, 1, 16))
    w = program.buffer("w", (8, 16, 16))
    out = program.buffer("out", (2 * tiles, 1, 16), kind="output")
    for t in range(tiles):
        v = t % threads
        program.load(Mem.INP, 8 * v, a, 2 * t, x_size=2)
        program.load(Mem.WGT, 8 * v, w, 0, x_size=8)
        program.gemm([(2, 1, 0, 0)], dst=4 * v, reset=True)
        program.gemm([(2, 1, 0, 4), (2, 0, 1, 2)], dst=4 * v, src=8 * v, wgt=8 * v)
        program.alu(AluOp.SHR, [(2, 1, 1)], dst=4 * v, imm=4)
        program.store(4 * v, out, 2 * t, x_size=2)
    return program.finish()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_removing_any_pair_is_a_race_or_the_pair_is_implied(threads):
    assert races_without_a_pair(pipeline(threads=threads)) > 5


def test_a_race_names_the_range_and_both_instructions():
    launch = pipeline(tiles=1)
    pair = next(p for p in verify(launch).pairs if p.source == Queue.LOAD)
    text = r"race on INP entries 0\.\.1: instruction 0 \(LOAD\.INP .*\d+ \(GEMM "
    with pytest.raises(RaceError, match=text) as caught:
        verify(without_pair(launch, pair))
    assert caught.value.pair is not None
    first, second = caught.value.pair
    assert f"instruction {first} (" in str(caught.value) and f"instruction {second} (" in str(caught.value)


NOP = {q: {"op": 0, "mem": m} for q, m in ((Queue.LOAD, Mem.INP), (Queue.COMPUTE, Mem.UOP))}
FINISH = ("FINISH", {"op": 3})


def test_dram_races_are_found():
    """A store and a later load of the same bytes, with no token between them."""
    program = Program(VTA, tokens="explicit")
    t = program.buffer("t", (4, 1, 16), kind="temp")
    program.store(0, t, 0, x_size=4)
    program.load(Mem.INP, 0, t, 2, x_size=2)
    with pytest.raises(RaceError, match=r"race on DRAM t\+0x20\.\.t\+0x3f: .*STORE\.OUT.*LOAD\.INP"):
        verify(program.finish())


def test_strided_rows_that_interleave_do_not_race():
    program = Program(VTA, tokens="explicit")
    t = program.buffer("t", (8, 1, 16), kind="temp")
    program.store(0, t, 0, y_size=4, x_size=1, x_stride=2)
    program.load(Mem.INP, 0, t, 1, y_size=4, x_size=1, x_stride=2)
    verify(program.finish())


def test_deadlock_names_what_each_queue_waits_for():
    launch = hand_written(
        VTA,
        ("LOAD", {**NOP[Queue.LOAD], "pop_next": 1, "push_next": 1}),
        ("LOAD", {**NOP[Queue.COMPUTE], "pop_prev": 1, "push_prev": 1}),
        FINISH,
    )
    with pytest.raises(DeadlockError, match=r"LOAD waits for a token COMPUTE -> LOAD at instruction 0 .*COMPUTE waits"):
        verify(launch)


def test_deadlock_of_a_full_command_queue():
    """The token is pushed further down the stream than the command queue is deep."""
    wait = ("LOAD", {**NOP[Queue.COMPUTE], "pop_prev": 1})
    rest = [("LOAD", dict(NOP[Queue.COMPUTE]))] * VTA.queue_depth
    give = ("LOAD", {**NOP[Queue.LOAD], "push_next": 1})
    verify(hand_written(VTA, wait, *rest[:-1], give, FINISH))
    with pytest.raises(DeadlockError, match=f"fetch waits for space in queue COMPUTE, which holds {VTA.queue_depth}"):
        verify(hand_written(VTA, wait, *rest, give, FINISH))


def test_tokens_left_over():
    with pytest.raises(TokenError, match=r"1 tokens LOAD -> COMPUTE are never taken; first pushed by instruction 0"):
        verify(hand_written(VTA, ("LOAD", {**NOP[Queue.LOAD], "push_next": 1}), FINISH))


def test_more_tokens_in_flight_than_are_counted():
    n = VTA.token_depth + 1
    gives = [("LOAD", {**NOP[Queue.LOAD], "push_next": 1})] * n
    takes = [("LOAD", {**NOP[Queue.COMPUTE], "pop_prev": 1})] * n
    launch = hand_written(VTA, *[row for pair in zip(gives, takes) for row in pair], FINISH)
    with pytest.raises(TokenError, match=f"{n} tokens LOAD -> COMPUTE can be in flight.*vta holds at most {n - 1}"):
        verify(launch)
    verify(hand_written(VTA, *[row for pair in zip(gives[1:], takes[1:]) for row in pair], FINISH))


def test_in_flight_is_the_most_that_any_execution_can_hold():
    assert verify(pipeline(tiles=6, threads=2)).in_flight["LOAD->COMPUTE"] == 2


@pytest.mark.parametrize(
    "rows, error, text",
    [
        ([FINISH, ("LOAD", dict(NOP[Queue.COMPUTE]))], ExecutionError, "program has FINISH at [0]: must have"),
        ([("LOAD", dict(NOP[Queue.COMPUTE]))], ExecutionError, "program has no FINISH: must have exactly one"),
        ([("LOAD", {"op": 7}), FINISH], ExecutionError, "0 (TERNARY): unit ternary is not in configuration vta"),
        ([("STORE", {"op": 1, "mem": 2}), FINISH], ExecutionError, "memory id 2 cannot be stored"),
        ([("LOAD", {"op": 0, "mem": 2, "sram_base": 2047, "x_size": 2, "y_size": 1}), FINISH], AccessError,
         "writes INP entry 2048, but vta has 2048"),
    ],
)  # fmt: skip
def test_wrong_programs_are_named(rows, error, text):
    with pytest.raises(error) as caught:
        verify(hand_written(VTA, *rows))
    assert text in str(caught.value)


def test_huge_loops_are_refused_before_they_are_counted():
    program = Program(VTA)
    program.gemm_uops(np.stack([np.arange(4096) % 2048] * 2 + [np.arange(4096) % 1024], axis=1))
    launch = program.finish()
    k = first_of(launch, "GEMM")
    most = {"iter_out": 16383, "iter_in": 16383, "dst_out": 2047, "dst_in": 1023, "src_out": 1, "wgt_in": 1}
    still = dict.fromkeys(most, 0) | {"iter_out": 16383, "iter_in": 16383}
    text = f"instruction {k} .* writes ACC entry {2047 + 16382 * (2047 + 1023)}, but vta has 2048"
    tracemalloc.start()
    try:
        with pytest.raises(AccessError, match=text):
            verify(changed(launch, k, **most))
        verify(changed(launch, k, **still))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


KERNELS = Buffer("kernels", (16,), 8, False, "constant", np.arange(16, dtype=np.uint8))
LOAD_UOPS = {"op": Op.LOAD, "mem": Mem.UOP, "y_size": 1, "x_size": 2}
RESET = {"op": Op.GEMM, "reset": 1, "uop_bgn": 3, "uop_end": 5, "iter_out": 1, "iter_in": 1}


@pytest.mark.parametrize(
    "load, rows, buffer, error",
    [
        ({"dram_base": 2}, [], KERNELS, None),
        ({"dram_base": 3}, [], KERNELS, "instruction 0 .* ends at byte 20 of buffer 'kernels', which has 16"),
        ({}, [], Buffer("x", (16,)), "instruction 0 .* micro-ops are loaded from buffer 'x', which is not constant"),
        # a device keeps the micro-ops of the program before, so nobody knows what they are
        ({"sram_base": 2, "x_size": 3}, [("GEMM", RESET)], KERNELS, None),
        ({"sram_base": 2}, [("GEMM", RESET)], KERNELS, "instruction 1 .* executes micro-ops that no LOAD.UOP loads"),
        ({"sram_base": 2}, [("GEMM", RESET | {"iter_in": 0})], KERNELS, None),
    ],
)
def test_micro_ops_come_from_constants_that_hold_them(load, rows, buffer, error):
    launch = hand_written(VTA, ("LOAD", LOAD_UOPS | load), *rows, FINISH, buffers=[buffer])
    if error is None:
        verify(launch)
        return
    with pytest.raises((AccessError, ProgramError), match=error):
        verify(launch)


def test_micro_ops_that_the_program_stores_are_refused():
    store = ("STORE", {"op": Op.STORE, "mem": Mem.OUT, "y_size": 1, "x_size": 2, "push_prev": 1})
    temporary = Buffer("t", (8, 1, 16), kind="temp")
    launch = hand_written(VTA, ("LOAD", LOAD_UOPS), store, ("FINISH", {"op": 3, "pop_next": 1}), buffers=[temporary])
    launch.reloc[1] = 0
    with pytest.raises(ProgramError, match="loads micro-ops that the program stores"):
        verify(launch)


UOPS = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}


@pytest.mark.parametrize("bgn, end", [(2, 1), (0, 8193), (8191, 0), (5, 16383)])
@pytest.mark.parametrize("trips", [0, 1])
def test_micro_ops_that_do_not_exist_are_refused_as_the_model_refuses_them(bgn, end, trips):
    launch = hand_written(VTA, ("GEMM", {"op": 2, **UOPS, "uop_bgn": bgn, "uop_end": end, "iter_in": trips}), FINISH)
    with pytest.raises(AccessError, match=rf"instruction 0 .* micro-ops {bgn}\.\.{end - 1}: must be among 0\.\.8191"):
        verify(launch)
    with pytest.raises(AccessError, match="instruction 0 "):
        run(launch, {})


def test_what_always_executes_after_finish_is_named():
    """The load takes a token that FINISH gives."""
    launch = hand_written(VTA, ("LOAD", {**NOP[Queue.LOAD], "pop_next": 1}), ("FINISH", {"op": 3, "push_prev": 1}))
    with pytest.raises(ExecutionError, match="instruction 0 .* executes after FINISH"):
        verify(launch)


def test_too_many_tokens_are_named_before_a_deadlock():
    """As the model does: they come first."""
    cfg = VTA.replace(token_depth=1)
    rows = [("LOAD", {**NOP[Queue.LOAD], "push_next": 1})] * 2
    rows += [("LOAD", {**NOP[Queue.COMPUTE], "pop_prev": 1})] * 2 + [("LOAD", {**NOP[Queue.COMPUTE], "pop_next": 1})]
    launch = hand_written(VTA, *rows, FINISH)
    with pytest.raises(DeadlockError):
        verify(launch)
    with pytest.raises(TokenError):
        check_depths(launch, cfg)


def test_depths_are_checked_without_what_the_program_touches():
    launch = pipeline(tiles=6)
    most = max(verify(launch).in_flight.values())
    check_depths(launch, VTA.replace(token_depth=most, queue_depth=4))
    with pytest.raises(TokenError, match=f"{most} tokens .* can be in flight"):
        check_depths(launch, VTA.replace(token_depth=most - 1))
