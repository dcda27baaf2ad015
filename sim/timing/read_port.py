"""The buses in the timing model: the order of bursts, the cycles of their last beats, and the answers to writes."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ...hw.config import Config
from ...hw.rtl import latencies as lat
from ...hw.rtl.latencies import ADDRESS_LATENCY, BURST_BEATS, OUTSTANDING, RETURN_LATENCY
from ..dram import Dram

NEVER = 1 << 60
_ROOM = lat.BEAT_LATENCY + lat.ROOM_LATENCY  # cycles from a beat to room for another one, where it is taken at once
_MARGIN = BURST_BEATS // 2  # beats less than those that would just bridge a latency


def beat_interval(cfg: Config, dram: Dram) -> int:
    """Cycles from beat to beat of one port, where nothing else waits."""
    return -(-cfg.axi_bits // 8 // dram.port_bytes)


class Plannable(Protocol):
    """A port that gives a client its turns."""

    def plan(self) -> None:
        """The client has a new request."""
        ...


class Client:
    """One client of a read port: its request in the splitter, and the beats that it has asked for and taken.

    `want`: first cycle in which it wants its next burst; `NEVER` without one. `taken` holds (beats taken so far, cycle)
    after each burst, `pace` cycles per beat; there a beat is `width` of those that are asked for. One that `yields` has
    a turn only where no other client wants one.
    """

    def __init__(self, buffer: int, width: int = 1, *, yields: bool = False):
        self.width, self.yields = width, yields
        self.want, self.address, self.left = NEVER, 0, 0
        self.port: Plannable | None = None
        self.pace = 1  # cycles from beat to beat on the port's bus
        self.valid = NEVER  # first cycle in which the request is in the splitter
        self.allowed, self.asked = buffer - BURST_BEATS, 0
        # beats on their way that bridge a latency of as many cycles
        self.flying = (min(buffer // BURST_BEATS, OUTSTANDING) - 1) * BURST_BEATS - _MARGIN
        self.taken: deque[tuple[int, int, int]] = deque()
        # a cycle in which something else may decide when its beats are written: no bursts are made ahead of that
        self.horizon: Callable[[], int] = lambda: NEVER

    def burst(self, beats: int, end: int, final: bool) -> None:
        """`beats` beats are on the bus until cycle `end`; `final` ends the request."""
        raise NotImplementedError

    def accept(self, free: int) -> None:
        """Put the next request into the splitter, free from cycle `free` on; sets `address`, `left`, `valid`."""
        raise NotImplementedError

    def lag(self, end: int) -> int:
        """The longest delay of beats that follow the one in cycle `end` without a pause, `NEVER` if unknown."""
        return NEVER

    def skip(self, beats: int, end: int) -> None:
        """Take `beats` beats that follow the one in cycle `end` without a pause; `lag` was known."""
        raise NotImplementedError

    def rows(self, now: int, until: int, limit: Callable[[int], int]) -> tuple[int, int]:
        """Grant bursts of several requests from cycle `now` on; returns the cycle of the next burst, and `until`.

        Nobody else wants a burst before cycle `until`, nor, asked again in cycle `c`, before `limit(c)`.
        """
        return now, until

    def update(self) -> None:
        """Compute `want`."""
        if not self.left:
            self.want = NEVER
            return
        due, taken = (self.asked - self.allowed) // self.width, self.taken
        want = self.valid
        if due > 0:
            while taken and taken[0][0] < due:
                taken.popleft()
            if not taken:
                self.want = NEVER
                return
            beats, cycle, pace = taken[0]
            room = cycle - (beats - due) * pace + lat.ROOM_LATENCY
            if room > want:
                want = room
        self.want = want


class ReadPort:
    """One AXI read port that grants bursts to `clients`, round robin; clients that yield come last.

    `next` is the cycle in which the next burst is granted.

    With `fast`, a step makes all bursts of a client that nobody can interrupt, in runs where their beats do not pause.
    """

    def __init__(self, cfg: Config, dram: Dram, clients: list[Client], *, fast: bool = True):
        self.clients, self.next, self.last = clients, NEVER, 0
        n = len(clients)  # whose turn it is first, by the client that had the latest one
        turns = [[(latest + at) % n for at in range(1, n + 1)] for latest in range(n)]
        self.turns = [sorted(turn, key=lambda k: clients[k].yields) for turn in turns]
        self.latency = dram.latency
        self.pace = beat_interval(cfg, dram)
        self.outstanding = min(dram.outstanding, OUTSTANDING)
        self.fast = fast
        self.steady = fast and self.pace == 1 and self.outstanding == OUTSTANDING  # the memory delays no burst of a run
        self.grant, self.sent, self.end = -1, -1, -1
        self.bursts: list[tuple[Client, int, int, int]] | None = None  # a log: client, beats, cycles of address and end
        self.ends: deque[int] = deque([-NEVER] * OUTSTANDING, OUTSTANDING)
        self.bounds: list[Callable[[int], int]] = [lambda now: NEVER] * len(clients)
        for client in clients:
            client.port, client.pace = self, self.pace

    def plan(self) -> None:
        """Compute `next`."""
        want = NEVER
        for client in self.clients:
            if client.want < want:
                want = client.want
        self.next = self.grantable(want) if want < NEVER else NEVER

    def grantable(self, want: int) -> int:
        """The cycle in which a burst that is wanted from cycle `want` on can be granted."""
        if want < self.grant + 1:
            want = self.grant + 1
        return want if want > self.ends[0] + RETURN_LATENCY else self.ends[0] + RETURN_LATENCY

    def step(self) -> None:
        """One burst, or several of a client that nobody can interrupt."""
        now, clients = self.next, self.clients
        for k in self.turns[self.last]:
            if clients[k].want <= now:
                break
        client = clients[k]
        if not client.yields:
            self.last = k
        limit = self._limit(k, now)
        while True:
            if client.left >= 2 * BURST_BEATS:
                after = self._steady(client, now, limit)
                if after == now < limit:
                    after, limit = client.rows(now, limit, partial(self._limit, k))
                if after >= limit and after > now:
                    break
                now = after
            final = self._burst(client, now)
            if client.want == NEVER:
                break
            limit = min(limit, client.horizon())
            now = self.grantable(client.want)
            if final:
                limit = self._limit(k, now)
                if now < limit and client.left < 2 * BURST_BEATS:
                    now, limit = client.rows(now, limit, partial(self._limit, k))
            if now >= limit:
                break
        self.plan()

    def _limit(self, k: int, now: int) -> int:
        """No client but `k` wants a burst before this cycle; some cycle up to `now` where one may by then."""
        if not self.fast:
            return now
        limit = self.clients[k].horizon()
        for other, client in enumerate(self.clients):
            if other != k:
                want = client.want
                if want == NEVER:
                    want = self.bounds[other](now)
                if want < limit:
                    limit = want
                    if limit <= now:
                        break
        return limit

    def _burst(self, client: Client, now: int) -> bool:
        """Grant the next burst of `client`; returns whether it ends the request."""
        beats = BURST_BEATS - (client.address & BURST_BEATS - 1)
        final = client.left <= beats
        if final:
            beats = client.left
        self.grant = now
        sent = now + ADDRESS_LATENCY if now + ADDRESS_LATENCY > self.sent else self.sent + 1
        if self.outstanding < OUTSTANDING:
            sent = max(sent, self.ends[-self.outstanding] + 1)
        pace = self.pace
        first = sent + self.latency if sent + self.latency > self.end + pace else self.end + pace
        self.sent = sent
        self.end = end = first + (beats - 1) * pace
        self.ends.append(end)
        if self.bursts is not None:
            self.bursts.append((client, beats, sent, end))
        client.asked += beats
        client.address += beats
        client.left -= beats
        client.burst(beats, end, final)
        if not final:
            client.valid = now + 1
        elif not client.left:  # else room for its description let the next move begin, with a request of its own
            client.accept(now)
        client.update()
        return final

    def _steady(self, client: Client, now: int, limit: int) -> int:
        """Grant all bursts but the last of a request whose beats do not pause; returns the cycle of the next one."""
        if limit < now + 2 or not self.steady:
            return now
        sent = now + ADDRESS_LATENCY if now + ADDRESS_LATENCY > self.sent else self.sent + 1
        end = sent + self.latency - 1  # the beats follow the one in this cycle
        if end < self.end:
            end = self.end
        lag, first = client.lag(end), BURST_BEATS - (client.address & BURST_BEATS - 1)
        if lag > client.flying - ADDRESS_LATENCY - self.latency or self._pauses(end, first):
            return now
        # before `limit`, at the latest: one in a cycle, behind the end of an earlier one, where its beats have room
        room = limit - 1 - (end + _ROOM + lag + first - client.allowed)
        count = min(limit - now, (client.left - 1 - first) // BURST_BEATS + 1, (room - 1) // BURST_BEATS + 2)
        if count < 2:
            return now
        ends = [*self.ends, *range(end + first, end + first + count * BURST_BEATS, BURST_BEATS)]
        count = min(count, bisect_left(ends, limit - RETURN_LATENCY))
        if count < 2:
            return now
        beats = first + (count - 1) * BURST_BEATS
        client.skip(beats, end)
        self.grant = max(now + count - 1, ends[count - 1] + RETURN_LATENCY)
        self.sent = self.grant + ADDRESS_LATENCY
        self.ends.extend(ends[count : count + OUTSTANDING])
        self.end = end + beats
        client.asked += beats
        client.address += beats
        client.left -= beats
        client.valid = self.grant + 1
        client.update()
        return self.grantable(client.want) if client.want < NEVER else NEVER

    def _pauses(self, end: int, first: int) -> bool:
        """True if beats may pause after the one in cycle `end`: of a burst of `first` beats, then of full ones."""
        lag = ADDRESS_LATENCY + self.latency
        ends, last = self.ends, end - lag - 1 + first
        for k in range(1, min(lag // BURST_BEATS + 2, OUTSTANDING)):
            if ends[k] > last:
                return True
            last += BURST_BEATS
        return False


_ROWS = lat.capacity(lat.PACKER_ROWS)  # whose data come after their addresses
_WAITING = lat.capacity(lat.ROW_DEPTH)  # rows between planner and splitter


class Writer:
    """Packer, splitter and write port, with the cycles of the latest rows and bursts.

    `row`: the latest row left the planner; `read_at`: first cycle in which an accumulator can be read, `plain_at` the
    same for one that is not requantised, which waits until the post-processing unit is empty; `word`: the latest beat;
    `answer`: the latest row is in memory. `waited` counts cycles in which there was nothing left to send.
    """

    def __init__(self, cfg: Config, dram: Dram):
        self._response, self._writes = dram.response, dram.outstanding_writes
        self._beat = beat_interval(cfg, dram)
        self.row = self.read_at = self.plain_at = -1
        self._read_rows: deque[int] = deque([-NEVER] * _ROWS, _ROWS)
        self._split: deque[int] = deque([-NEVER] * _WAITING, _WAITING)
        self._go = self._sent = self.word = self.answer = -1
        self._answers: deque[int] = deque([-NEVER] * OUTSTANDING, OUTSTANDING)
        self._awaited = -1  # cycle of the latest answer of the bus
        self.waited = 0

    @property
    def split(self) -> int:
        """The cycle in which the latest row's last burst left the splitter."""
        return self._go

    @property
    def rest(self) -> int:
        """Cycles from the latest beat to its answer, in which nothing is left to send."""
        return max(self._awaited - self.word - 1, 0)

    def nothing(self, cycle: int) -> None:
        """A row without entries passes, for its token."""
        self.put(cycle)
        self._go = max(self._split[-1] + lat.SPLIT_LATENCY, self._go + 1)
        self.answer = max(self._go + lat.ANSWER_LATENCY, self.answer + 1)

    def put(self, cycle: int) -> int:
        """A row leaves the planner, in `cycle` or later, for the packer and the splitter."""
        if self._split[0] >= cycle:
            cycle = self._split[0] + 1
        if self._read_rows[0] >= cycle:
            cycle = self._read_rows[0] + 1
        self.row = cycle
        begins = cycle + lat.FIFO_LATENCY
        if begins < self._go:
            begins = self._go
        self._split.append(begins)
        # nothing was left to send before this row, but answers to wait for
        waited = (cycle + 1 if cycle < self._awaited else self._awaited) - self.word - 1
        if waited > 0:
            self.waited += waited
        return cycle

    def read(self, cycle: int, last: int, plain: int = -1) -> None:
        """The row's last accumulator is read in cycle `last`; another one can be in `cycle`, a plain one in `plain`."""
        self.read_at, self.plain_at = cycle, max(cycle, plain)
        self._read_rows.append(last)

    def send(self, address: int, left: int, early: int, late: int, pace: float) -> None:
        """`left` beats in bursts: the first can be on the bus in cycle `early`, the last in `late`, `pace` apart."""
        answers, response = self._answers, self._response
        word, answer = self.word, self.answer
        go = self._split[-1] + lat.SPLIT_LATENCY  # `put` made the split no earlier than `_go`
        while left:
            beats = BURST_BEATS - (address & BURST_BEATS - 1)
            if beats > left:
                beats = left
            left -= beats
            address += beats
            if answers[0] >= go:
                go = answers[0] + 1
            word += beats * self._beat
            ready = (early if early > go else go + 1) + (beats - 1) * self._beat
            if ready > word:
                word = ready
            ready = late - (left if pace == 1 else int(left * pace))
            if ready > word:
                word = ready
            come = word
            if self._writes < OUTSTANDING:  # the memory's limit is the closer one
                self._sent = max(self._sent + 1, go + lat.ADDRESS_LATENCY, answers[-self._writes] + 1)
                come = max(word, self._sent)
            answer = come + response if come + response > answer else answer + 1
            answers.append(answer)
            go += 1
        self._go, self.word = go - 1, word
        self.answer = self._awaited = answer

    def state(self, now: int) -> tuple[int, ...]:
        """The state that decides about rows put in cycle `now` or later, as cycles from `now` on.

        Cycles too early to delay such a row are replaced by one value, except those in which nothing was left to send.
        """
        past = now - 1 - BURST_BEATS * (self._beat - 1)
        cycles = (*self._read_rows, *self._split, *self._answers)
        cycles += (self.read_at, self.plain_at, self._go, self._sent, self.answer, self._awaited)
        return (*[c - now if c > past else past - now for c in cycles], self._awaited - self.word)

    def restore(self, now: int, state: tuple[int, ...]) -> None:
        """Set the `state` of this or another cycle, for cycle `now`."""
        cycles = [now + c for c in state[:-1]]
        split, answers = _ROWS, _ROWS + _WAITING
        rest = answers + OUTSTANDING
        self._read_rows.extend(cycles[:split])
        self._split.extend(cycles[split:answers])
        self._answers.extend(cycles[answers:rest])
        self.read_at, self.plain_at, self._go, self._sent, self.answer, self._awaited = cycles[rest:]
        self.word = self._awaited - state[-1]
