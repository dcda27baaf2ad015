"""sim/timing/mover.py: requests and entries in their cycles, over one port and over several."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rtl.latencies import BURST_BEATS, NOTHING_LATENCY
from tilewright.hw.units import striped
from tilewright.sim.dram import ZYNQ_HP
from tilewright.sim.timing.mover import Mover, Stripes
from tilewright.sim.timing.program import Move, _sizes
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


TWO_PORTS = PRESETS["pynq_z1"].replace(load_ports=2)


SPREAD_LATENCY = 49  # from a command to its beat: as of one port, and a cycle to spread its bursts


LAST = 1 << 60


def run_spread(*moves, interval=1):
    """Cycles in which the tokens of `moves` are due, and the beats and the last cycle of each port."""
    done, queue = [], list(enumerate(moves))

    def ready():
        while queue and mover.free < LAST:
            at, move = queue.pop(0)
            mover.take(at, move, max(at, mover.free))

    mover = Mover(128, lambda *row: done.append(row), ready)
    dram = ZYNQ_HP.replace(port_bytes=8 // interval)
    clients = Stripes(TWO_PORTS, 128, mover, interval).clients
    ports = [ReadPort(TWO_PORTS, dram, [client], fast=False) for client in clients]
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
    done, asked, _ = run_spread(move(1))
    assert asked == [2, 0] and done[0][2] == SPREAD_LATENCY + 1 + 1


def test_two_beats_of_every_cycle_once_both_ports_give():
    for bursts in (2, 10, 40, 200):
        done, asked, ends = run_spread(move(bursts * BURST_BEATS // 2))
        assert asked == [bursts // 2 * BURST_BEATS] * 2 and abs(ends[0] - ends[1]) <= 1
        # the first burst takes as long as a port needs for it, then every cycle brings a wide beat
        assert done[0][2] == SPREAD_LATENCY + BURST_BEATS + (bursts - 1) * BURST_BEATS // 2


def test_rows_alternate_from_row_to_row():
    _, asked, _ = run_spread(move(4, rows=8, step=8))
    assert asked == [4 * 8, 4 * 8]
    _, asked, _ = run_spread(move(6, rows=3, step=6, first=5))  # 3 + 3, 5 + 1, 7 - 1: bursts end at multiples of 8
    assert sum(asked) == 3 * 6 * 2


def test_the_next_move_goes_on_where_the_last_one_ended():
    apart, _, _ = run_spread(move(40))
    both, asked, _ = run_spread(move(40), move(40, first=40))
    assert asked == [80, 80] and both[1][2] == both[0][2] + 40 == apart[0][2] + 40


@pytest.mark.parametrize("interval", [1, 2, 4])
def test_a_slow_bus_gives_its_beats_at_that_interval(interval):
    done, _, _ = run_spread(move(400), interval=interval)
    assert abs(done[0][2] - SPREAD_LATENCY - 400 * interval) <= BURST_BEATS * interval


def test_the_load_unit_counts_in_wide_beats():
    sizes = _sizes(TWO_PORTS)
    assert sizes[0, Mem.WGT] == 256 // 16 and sizes[0, Mem.INP] == 1, "units of an entry"
    assert sizes[0, Mem.ACC] == 64 // 8, "which the compute unit reads through one port"
    assert striped(TWO_PORTS).axi_bits == 128
