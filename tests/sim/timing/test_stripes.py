"""sim/timing/mover.py: the load unit's bursts over two ports, in turn."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rtl.latencies import BURST_BEATS
from tilewright.hw.units import striped
from tilewright.sim.dram import ZYNQ_HP
from tilewright.sim.timing.mover import Mover, Stripes
from tilewright.sim.timing.program import Move, _sizes
from tilewright.sim.timing.read_port import ReadPort

PYNQ = PRESETS["pynq_z1"].replace(load_ports=2)
LATENCY = 49  # from a command to its beat: as of one port, and a cycle to spread its bursts
LAST = 1 << 60


def run(*moves, interval=1):
    """Cycles in which the tokens of `moves` are due, and the beats and the last cycle of each port."""
    done, queue = [], list(enumerate(moves))

    def ready():
        while queue and mover.free < LAST:
            at, move = queue.pop(0)
            mover.take(at, move, max(at, mover.free))

    mover = Mover(128, lambda *row: done.append(row), ready)
    dram = ZYNQ_HP.replace(port_bytes=8 // interval)
    clients = Stripes(PYNQ, 128, mover, interval).clients
    ports = [ReadPort(PYNQ, dram, [client], fast=False) for client in clients]
    for port in ports:
        port.plan()
    while True:
        ready()
        port = min(ports, key=lambda one: one.next)
        if port.next == LAST:
            return done, [client.asked for client in clients], [port.end for port in ports]
        port.step()


def move(beats, rows=1, step=0, first=0, **fields):
    empty = Move(Mem.WGT, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, -1, False, 0)
    return empty._replace(rows=rows, first=first, step=step, length=beats, **fields)


def test_one_wide_beat_is_two_of_one_port():
    done, asked, _ = run(move(1))
    assert asked == [2, 0] and done[0][2] == LATENCY + 1 + 1


def test_two_beats_of_every_cycle_once_both_ports_give():
    for bursts in (2, 10, 40, 200):
        done, asked, ends = run(move(bursts * BURST_BEATS // 2))
        assert asked == [bursts // 2 * BURST_BEATS] * 2 and abs(ends[0] - ends[1]) <= 1
        # the first burst takes as long as a port needs for it, then every cycle brings a wide beat
        assert done[0][2] == LATENCY + BURST_BEATS + (bursts - 1) * BURST_BEATS // 2


def test_rows_alternate_from_row_to_row():
    _, asked, _ = run(move(4, rows=8, step=8))
    assert asked == [4 * 8, 4 * 8]
    _, asked, _ = run(move(6, rows=3, step=6, first=5))  # 3 + 3, 5 + 1, 7 - 1: bursts end at multiples of 8
    assert sum(asked) == 3 * 6 * 2


def test_the_next_move_goes_on_where_the_last_one_ended():
    apart, _, _ = run(move(40))
    both, asked, _ = run(move(40), move(40, first=40))
    assert asked == [80, 80] and both[1][2] == both[0][2] + 40 == apart[0][2] + 40


@pytest.mark.parametrize("interval", [1, 2, 4])
def test_a_slow_bus_gives_its_beats_at_that_interval(interval):
    done, _, _ = run(move(400), interval=interval)
    assert abs(done[0][2] - LATENCY - 400 * interval) <= BURST_BEATS * interval


def test_the_load_unit_counts_in_wide_beats():
    sizes = _sizes(PYNQ)
    assert sizes[0, Mem.WGT] == 256 // 16 and sizes[0, Mem.INP] == 1, "units of an entry"
    assert sizes[0, Mem.ACC] == 64 // 8, "which the compute unit reads through one port"
    assert striped(PYNQ).axi_bits == 128
