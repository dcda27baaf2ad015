"""The mover of loads in the timing model (hw/rtl/mover.py): instructions to requests, beats to entries.

`Stripes` is the load unit on several read ports (hw/rtl/load.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...hw.config import Config
from ...hw.rtl import latencies as lat
from ...hw.rtl.latencies import BURST_BEATS
from ...hw.units import stripes
from .program import Move
from .read_port import NEVER, Client, ReadPort

_DESCRIPTORS = lat.capacity(lat.TILE_DEPTH)  # tiles between planner and walker, with the one that is walked
_COMMANDS = lat.capacity(lat.COMMAND_DEPTH) + 1  # moves that wait for the planner's second stage, with the queue's


class _Tile:
    """A move that is not finished: `begun` is the cycle in which the planner begins with it, `described` that in which
    its description leaves, `NEVER` while unknown.
    """

    __slots__ = ("at", "move", "rows", "begun", "described")

    def __init__(self, at: int, move: Move, begun: int, described: int):
        self.at, self.move, self.begun, self.described, self.rows = at, move, begun, described, move.rows


class Mover(Client):
    """Front: one move after another becomes requests. Back: the entries of each are written as their beats come.

    `hold(at)` is the first cycle in which that instruction's first entry may be written, `NEVER` while unknown.
    `planned` is the cycle in which the front has finished the latest move, `NEVER` while that is unknown; moves that
    were taken meanwhile wait for it. `done(at, first, cycle, waited)` is called in order for each instruction `at`,
    whose first entry is written in cycle `first`, whose token is due in cycle `cycle`, and which waited for beats for
    `waited` cycles; `ready()` when `planned` becomes known.
    """

    def __init__(
        self,
        buffer: int,
        done: Callable[[int, int, int, int], None],
        ready: Callable[[], None],
        hold: Callable[[int], int] = lambda at: -1,
    ):
        super().__init__(buffer)
        self._done, self._ready, self._hold = done, ready, hold
        self.spread = False  # bursts wait at several ports
        self.planned = -1
        self._begun: deque[int] = deque([-1] * _COMMANDS, _COMMANDS)  # the latest moves
        self._commands: deque[tuple[int, Move, int]] = deque()  # taken, of which the front does not know when to begin
        self._rows = self._unit = self._asked_row = 0
        self._move: Move | None = None
        self._described = self._requested = -1
        self._put = self._s1 = (
            self._s2
        ) = -NEVER  # cycles of the latest requests: given, in the splitter, the one before
        self._splitter = -1  # first cycle in which the splitter is free
        self._popped: deque[int] = deque([-NEVER] * _DESCRIPTORS, _DESCRIPTORS)
        self._tiles: deque[_Tile] = deque()
        self._entry_cycle, self._first, self._waited = -1, -1, 0  # of the next entry, the tile's first one
        self._left = 0  # units of the row that are not here
        self._open = False  # the first tile is being written
        self._backlog: deque[tuple[int, int, bool, int]] = deque()  # bursts of tiles whose `hold` is unknown
        self.pauses: list[tuple[int, int]] = []  # cycles without a beat that was due: from, to

    def take(self, at: int, move: Move, cycle: int) -> None:
        """Take `move` of instruction `at` in `cycle`, `free` or later."""
        self._commands.append((at, move, cycle))
        self._proceed()

    @property
    def free(self) -> int:
        """First cycle in which the next move can be taken, `NEVER` if unknown."""
        waiting = len(self._commands)
        return self._begun[waiting] if waiting < _COMMANDS else NEVER

    @property
    def waits(self) -> bool:
        """True if a move waits of which it is not known when it begins."""
        return bool(self._commands)

    def _proceed(self) -> None:
        """Begin with the moves that wait, as far as it is known when."""
        while self._commands and self.planned < NEVER:
            self._start(*self._commands.popleft())

    def _start(self, at: int, move: Move, cycle: int) -> None:
        begun = cycle + lat.TILE_LATENCY
        if begun <= self.planned:
            begun = self.planned + 1
        described = NEVER  # until a tile is written so that there is room
        if len(self._tiles) < _DESCRIPTORS:
            described = max(begun, self._popped[len(self._tiles)] + 1)
        self._begun.append(begun)
        self._described, self._move = described, move
        self._tiles.append(_Tile(at, move, begun, described))
        self._rows, self._unit = move.rows, move.first
        self._requested = begun if not self._rows else NEVER
        if not self._rows:
            self.planned = described
        elif self.left:
            self.planned = NEVER
        else:
            self.planned = NEVER
            if self._put < begun - 1:
                self._put = begun - 1
            self.accept(self._splitter)
            self.update()
            if self.port is not None:
                self.port.plan()
        if not self._tiles[0].move.rows:
            self._without_data()

    @property
    def held(self) -> bool:
        """True if a tile waits of which nothing is written yet."""
        return not self._open and bool(self._tiles)

    def rest(self) -> int:
        """The least number of beats to ask for before the first tile is written, where no burst waits."""
        if self.spread:
            return 0
        move = self._move
        assert move is not None
        return self.left + (self._rows * move.length if len(self._tiles) == 1 and move.per_beat == 1 else 0)

    def accept(self, free: int) -> None:
        """The next row's request, as early as the registers between planner and splitter allow."""
        self._splitter = free
        move = self._move
        assert move is not None
        if not self._rows:
            self.left = 0
            if self.planned == NEVER and move.ahead:
                self._plan(max(self._put, free - move.ahead))
            return
        put = (self._put if self._put > self._s2 else self._s2) + 1
        if put < self._begun[-1]:
            put = self._begun[-1]
        taken = put + lat.FIFO_LATENCY
        if taken < free:
            taken = free
        self._put, self._s2, self._s1 = put, self._s1, taken
        unit, per_beat = self._unit, move.per_beat
        self._unit = unit + move.step
        self._rows -= 1
        if per_beat == 1:
            self.address, self.left = unit, move.length
        else:
            self.address = unit // per_beat
            self.left = (unit % per_beat + move.length + per_beat - 1) // per_beat
        self.valid = taken + lat.SPLIT_LATENCY
        if not self._rows and not move.ahead:
            self._plan(put)

    def _plan(self, requested: int) -> None:
        """The latest move is requested in `requested`; it is planned when its description has left, too."""
        self._requested = requested
        if self._described < NEVER:
            self.planned = max(requested, self._described)
            self._proceed()
            self._ready()

    def _begin(self) -> bool:
        """Begin the first tile, if it is known when that may be."""
        tile = self._tiles[0]
        hold = self._hold(tile.at)
        if hold == NEVER:
            return False
        self._open, self._waited = True, 0
        entry_cycle = tile.described + lat.ENTRY_LATENCY
        if entry_cycle < self._entry_cycle:
            entry_cycle = self._entry_cycle
        if entry_cycle < hold:
            entry_cycle = hold
        self._first, self._entry_cycle = entry_cycle, entry_cycle + tile.move.lead
        self._left = tile.move.length
        return True

    def _without_data(self) -> None:
        """Write the tiles that need no beats."""
        while self._tiles and not self._tiles[0].move.rows and self._begin():
            self._end(0, lat.ENTRY_INTERVAL)

    def proceed(self) -> None:
        """Write tiles and bursts whose `hold` has become known."""
        if not self._open:
            self._without_data()
        backlog = self._backlog
        while backlog and (self._open or self._begin()):
            self._write(*backlog.popleft())
            if not backlog:
                self.update()
                if self.port is not None:
                    self.port.plan()

    def _end(self, tail: int, final: int) -> None:
        tile = self._tiles.popleft()
        self._open = False
        self._entry_cycle += tail
        entry_cycle = self._entry_cycle - 1
        popped = entry_cycle - final if entry_cycle - final > tile.described else tile.described + 1
        self._popped.append(popped)
        if len(self._tiles) >= _DESCRIPTORS:
            self._make_room(self._tiles[_DESCRIPTORS - 1], popped)
        self._done(tile.at, self._first, entry_cycle + lat.WRITE_LATENCY, self._waited)
        if self.planned == NEVER and self._requested < NEVER:
            self._plan(self._requested)

    def _make_room(self, tile: _Tile, popped: int) -> None:
        """The description of the waiting `tile` leaves the planner when the description of another tile is `popped`."""
        tile.described = max(tile.begun, popped + 1)
        if tile is self._tiles[-1]:
            self._described = tile.described

    def burst(self, beats: int, end: int, final: bool) -> None:
        """Write the entries of a burst, now or when it is known when that may be."""
        here = end + lat.BEAT_LATENCY - beats  # before the first one is written, where none waits for its beat
        one = self._tiles[0].move.per_beat == 1 or self._tiles[0].move.at_once
        if one and (self.pace == 1 or (self._open and not self._backlog and self._entry_cycle > here)):
            self._arrive(beats, end, final, self.asked)
            return
        for left in range(beats - 1, -1, -1):  # entries do not come one per cycle
            self._arrive(1, end - left * self.pace, final and not left, self.asked - left)

    def _arrive(self, beats: int, end: int, final: bool, asked: int) -> None:
        if self._backlog or not (self._open or self._begin()):
            self._backlog.append((beats, end, final, asked))
        else:
            self._write(beats, end, final, asked)

    def _write(self, beats: int, end: int, final: bool, asked: int) -> None:
        tile = self._tiles[0]
        move = tile.move
        entry_cycle, here = self._entry_cycle, end + lat.BEAT_LATENCY
        per_beat = move.per_beat
        if per_beat == 1:
            work = units = beats
        else:
            offset = self._unit_offset(move, tile) if self._left == move.length else 0
            work = units = min(self._left, beats * per_beat - offset)
            if move.at_once:
                work, per_beat = beats, 1
        if move.between and move.rows == 1:
            work += self._between(move, units)
        self._left -= units
        wait = here - beats + 1 - entry_cycle
        if wait > 0:
            self._waited += wait
            self.pauses.append((entry_cycle, entry_cycle + wait))
            entry_cycle += wait
        soonest = here + (work if work < per_beat else per_beat)
        entry_cycle = entry_cycle + work if entry_cycle + work > soonest else soonest
        self.taken.append((asked, entry_cycle - 1, per_beat))
        self._entry_cycle = entry_cycle
        if final:
            tile.rows -= 1
            if tile.rows:
                self._entry_cycle += move.between
                self._left = move.length
            else:
                self._end(move.tail, move.final)
                if self._tiles and not self._tiles[0].move.rows:
                    self._without_data()

    def _between(self, move: Move, units: int) -> int:
        """Padding entries among the next `units` of rows that are one request, spread evenly."""
        done = move.length - self._left
        return move.between * (done + units) // move.length - move.between * done // move.length

    def _unit_offset(self, move: Move, tile: _Tile) -> int:
        return (move.first + (move.rows - tile.rows) * move.step) % move.per_beat

    def lag(self, end: int) -> int:
        """The longest delay of entries whose beats follow the one in cycle `end` without a pause."""
        if self._backlog or not (self._open or self._begin()):
            return NEVER
        move = self._tiles[0].move
        if move.per_beat > 1:
            return NEVER
        pads = self._between(move, self._left) if move.between and move.rows == 1 else 0
        late = self._entry_cycle - end - lat.BEAT_LATENCY - 1
        return late + pads if late > 0 else pads

    def skip(self, beats: int, end: int) -> None:
        """Write `beats` beats that follow the one in cycle `end` without a pause."""
        move = self._tiles[0].move
        here = end + lat.BEAT_LATENCY + 1  # cycle of the first of these beats
        if here > self._entry_cycle:
            self._waited += here - self._entry_cycle
            self.pauses.append((self._entry_cycle, here))
            self._entry_cycle = here
        asked, part = self.asked, beats
        padded = move.between and move.rows == 1
        while beats:
            if padded:  # entries are spread over the bursts; room depends on when the latest ones are taken
                part = beats - self.allowed if beats > self.allowed else (beats - 1) % BURST_BEATS + 1
                self._entry_cycle += self._between(move, part)
            self._entry_cycle += part
            self._left -= part
            beats -= part
            asked += part
            self.taken.append((asked, self._entry_cycle - 1, 1))

    def rows(self, now: int, until: int, limit: Callable[[int], int]) -> tuple[int, int]:
        """Bursts of rows, or of one row with padding, except those that end the last two: one loop for all parts."""
        port = self.port
        assert isinstance(port, ReadPort)
        if self._backlog or not self._open or not port.steady:
            return now, until
        tile = self._tiles[0]
        move = tile.move
        padded = move.rows == 1 and move.between > 0
        if move.per_beat > 1 or not padded and (self._rows < 2 or len(self._tiles) > 1):
            return now, until
        taken, entry_cycle, ends = self.taken, self._entry_cycle, port.ends
        while True:
            beats = BURST_BEATS - (self.address & BURST_BEATS - 1)
            if beats >= self.left:
                if padded or self._rows < 2:
                    break
                beats = self.left
            if now >= until:
                until = limit(now)
                if now >= until:
                    break
            # the port
            port.grant = now
            sent = port.sent = now + lat.ADDRESS_LATENCY if now + lat.ADDRESS_LATENCY > port.sent else port.sent + 1
            end = port.end = sent + port.latency + beats - 1 if sent + port.latency > port.end else port.end + beats
            ends.append(end)
            # the back
            wait = end + lat.BEAT_LATENCY - beats + 1 - entry_cycle
            if wait > 0:
                self._waited += wait
                self.pauses.append((entry_cycle, entry_cycle + wait))
                entry_cycle += wait
            entry_cycle += beats + self._between(move, beats) if padded else beats
            self.asked += beats
            taken.append((self.asked, entry_cycle - 1, 1))
            self.left -= beats
            self._left -= beats
            if self.left:
                self.address += beats
                self.valid = now + 1
            else:
                entry_cycle += move.between
                self._left = move.length
                tile.rows -= 1
                self.accept(now)
            self.update()
            want = self.want if self.want > now else now + 1
            now = want if want > ends[0] + lat.RETURN_LATENCY else ends[0] + lat.RETURN_LATENCY
        self._entry_cycle = entry_cycle
        return now, until


class Stripe(Client):
    """The load unit at one of the ports: a request is one burst, which `Stripes` gave in order.

    `free`: cycle of its latest grant, since when the port takes the next burst. `came` are the bursts that are granted
    and not yet handed to the mover: (wide beats, cycle of the last beat, whether it ends a row's request). `delivered`
    counts wide beats, which `taken` does too.
    """

    def __init__(self, buffer: int, owner: Stripes, width: int):
        super().__init__(buffer, width)
        self._owner = owner
        self.free, self.final, self.delivered = -1, False, 0
        self.came: deque[tuple[int, int, bool]] = deque()

    def give(self, address: int, beats: int, final: bool, cycle: int) -> None:
        """The burst enters the port's splitter in `cycle`."""
        self.address, self.left, self.final, self.valid = address, beats, final, cycle + lat.SPLIT_LATENCY
        self.update()

    def burst(self, beats: int, end: int, final: bool) -> None:
        """The burst is granted; its beats are on the bus until cycle `end`."""
        self.came.append((beats // self.width, end, self.final))

    def accept(self, free: int) -> None:
        """The port takes the next burst from cycle `free` on."""
        self.free = free
        self._owner.proceed()


class Stripes:
    """Between `mover`, which counts in wide beats, and one client for each port, in `clients`.

    For the mover it is the port: `plan` follows each new request.
    """

    def __init__(self, cfg: Config, buffer: int, mover: Mover, interval: int):
        width = stripes(cfg)
        self.clients = [Stripe(buffer, self, width) for _ in range(width)]
        self._mover, self._width = mover, width
        self._sending = self._reading = 0  # the stripe of the next burst, and of the next one to be written
        mover.port, mover.pace, mover.allowed, mover.spread = self, width * interval, NEVER, True

    def plan(self) -> None:
        """Give the bursts of the mover's request to the ports that are free, in turn."""
        mover, width = self._mover, self._width
        most = BURST_BEATS // width
        while mover.left:
            stripe = self.clients[self._sending]
            if stripe.left:
                return
            beats = most - mover.address % most
            final = mover.left <= beats
            beats = min(beats, mover.left)
            cycle = max(mover.valid, stripe.free)
            address = mover.address * width
            mover.address += beats
            mover.left -= beats
            self._sending = (self._sending + 1) % width
            stripe.give(address, beats * width, final, cycle)
            if final:
                mover.accept(cycle)
            else:
                mover.valid = cycle + 1
            if stripe.port is not None:
                stripe.port.plan()

    def proceed(self) -> None:
        """A port is free: pass the beats that came to the mover, in order, and give the port the next burst."""
        self._deliver()
        self.plan()

    def _deliver(self) -> None:
        mover = self._mover
        while self.clients[self._reading].came:
            stripe = self.clients[self._reading]
            beats, end, final = stripe.came.popleft()
            stripe.delivered += beats
            mover.asked, mover.taken = stripe.delivered, stripe.taken
            self._reading = (self._reading + 1) % self._width
            mover.burst(beats, end, final)
        for stripe in self.clients:
            stripe.update()
            if stripe.port is not None:
                stripe.port.plan()
