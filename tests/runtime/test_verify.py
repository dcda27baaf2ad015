"""Verification: what it proves, what it names, and that every token pair is needed or implied."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, DeadlockError, ExecutionError, ProgramError, RaceError, TokenError
from tilewright.hw.isa import AluOp, Isa, Mem, Queue
from tilewright.runtime.launch import Launch
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify, without_pair

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
    launch = pipeline(threads=threads)
    report = verify(launch)
    assert len(report.pairs) > 10
    races = 0
    for pair in report.pairs:
        if pair.implied:
            verify(without_pair(launch, pair))
        else:
            with pytest.raises(RaceError):
                verify(without_pair(launch, pair))
            races += 1
    assert races == len(report.pairs) - report.implied > 0


def test_a_race_names_both_instructions_and_the_range():
    launch = pipeline(tiles=1)
    pair = next(p for p in verify(launch).pairs if p.source == Queue.LOAD)
    with pytest.raises(RaceError, match=r"race on INP entries 0\.\.1: instruction 0 \(LOAD\.INP .*\d+ \(GEMM "):
        verify(without_pair(launch, pair))


def hand_written(*rows):
    """A launch of explicit (format, fields) rows, without buffers."""
    isa = Isa(VTA)
    insn = np.concatenate([isa.formats[name].encode(1, **fields) for name, fields in rows])
    return Launch(VTA, "hand", insn, np.full(len(insn), -1, np.int32), [])


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
    verify(hand_written(wait, *rest[:-1], give, FINISH))
    with pytest.raises(DeadlockError, match=f"fetch waits for space in queue COMPUTE, which holds {VTA.queue_depth}"):
        verify(hand_written(wait, *rest, give, FINISH))


def test_tokens_left_over():
    with pytest.raises(TokenError, match=r"1 tokens LOAD -> COMPUTE are never taken; first pushed by instruction 0"):
        verify(hand_written(("LOAD", {**NOP[Queue.LOAD], "push_next": 1}), FINISH))


def test_more_tokens_in_flight_than_are_counted():
    n = VTA.token_depth + 1
    gives = [("LOAD", {**NOP[Queue.LOAD], "push_next": 1})] * n
    takes = [("LOAD", {**NOP[Queue.COMPUTE], "pop_prev": 1})] * n
    launch = hand_written(*[row for pair in zip(gives, takes) for row in pair], FINISH)
    with pytest.raises(TokenError, match=f"{n} tokens LOAD -> COMPUTE can be in flight.*vta holds at most {n - 1}"):
        verify(launch)
    verify(hand_written(*[row for pair in zip(gives[1:], takes[1:]) for row in pair], FINISH))


def test_in_flight_is_the_most_that_any_execution_can_hold():
    assert verify(pipeline(tiles=6, threads=2)).in_flight["LOAD->COMPUTE"] == 2


@pytest.mark.parametrize(
    "rows, error, text",
    [
        ([FINISH, ("LOAD", dict(NOP[Queue.COMPUTE]))], ExecutionError, "program has FINISH at [0]: must have"),
        ([("LOAD", dict(NOP[Queue.COMPUTE]))], ExecutionError, "program has no FINISH: must have exactly one"),
        ([("LOAD", {"op": 7}), FINISH], ExecutionError, "0 (undecodable opcode 7): opcode 7 is not declared"),
        ([("STORE", {"op": 1, "mem": 2}), FINISH], ExecutionError, "memory id 2 cannot be stored"),
        ([("LOAD", {"op": 0, "mem": 2, "sram_base": 2047, "x_size": 2, "y_size": 1}), FINISH], AccessError,
         "writes INP entry 2048, but vta has 2048"),
    ],
)  # fmt: skip
def test_wrong_programs_are_named(rows, error, text):
    with pytest.raises(error) as caught:
        verify(hand_written(*rows))
    assert text in str(caught.value)


def test_micro_ops_that_the_program_stores_are_refused():
    program = Program(VTA, tokens="explicit")
    t = program.buffer("t", (8, 1, 16), kind="temp")
    program.store(0, t, 0, x_size=2)
    launch = program.finish()
    rows = Isa(VTA).formats["LOAD"].encode(1, op=0, mem=0, y_size=1, x_size=2)
    insn = np.concatenate([launch.insn[:1], rows, launch.insn[1:]])
    reloc = np.array([0, 0, *([-1] * (len(insn) - 2))], np.int32)
    with pytest.raises(ProgramError, match="loads micro-ops that the program stores"):
        verify(Launch(VTA, "self", insn, reloc, launch.buffers))
