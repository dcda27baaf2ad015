"""sim/timing/mover.py: loads through a port to the scratchpads."""

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rtl.latencies import NOTHING_LATENCY
from tilewright.sim.dram import ZYNQ_HP
from tilewright.sim.timing.mover import Mover
from tilewright.sim.timing.program import Move
from tilewright.sim.timing.read_port import NEVER, ReadPort

PYNQ = PRESETS["pynq_z1"]
EMPTY = Move(Mem.INP, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, -1, True, 0)
LATENCY = 48  # from a command to its beat: 4 to the request, 2 to the bus, 40 in memory, 2 to the mover


def run(*moves):
    """Cycles in which the tokens of `moves`, taken as early as possible, are due."""
    done, queue = [], list(enumerate(moves))

    def ready():
        while queue and mover.free < NEVER:
            at, move = queue.pop(0)
            mover.take(at, move, max(at, mover.free))

    mover = Mover(128, lambda *row: done.append(row), ready)
    port = ReadPort(PYNQ, ZYNQ_HP, [mover])
    ready()
    while True:
        ready()
        port.plan()
        if port.next == NEVER:
            return done
        port.step()


def test_nothing_to_move():
    assert run(EMPTY)[0][2] == NOTHING_LATENCY


def test_one_beat():
    assert [row[2] for row in run(EMPTY._replace(rows=1, length=1, lead=0))] == [LATENCY + 1]


def test_beats_and_padding():
    plain = EMPTY._replace(rows=4, step=16, length=16, lead=0)
    assert run(plain)[0][2] == LATENCY + 64
    assert run(plain._replace(tail=10))[0][2] == LATENCY + 74
    assert run(plain._replace(lead=10))[0][2] == LATENCY + 64  # written while the first beat is on its way
    assert run(plain._replace(between=3))[0][2] == LATENCY + 64 + 9


def test_entries_of_half_a_beat_take_a_cycle_each():
    assert run(EMPTY._replace(rows=1, length=64, per_beat=2, lead=0))[0][2] == LATENCY + 64


def test_requests_run_ahead_of_the_data():
    moves = [EMPTY._replace(rows=1, first=1024 * k, length=512, lead=0) for k in range(4)]
    assert [row[2] for row in run(*moves)] == [LATENCY + 512 * (k + 1) for k in range(4)]
