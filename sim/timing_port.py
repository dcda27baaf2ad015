"""The read port as the timing model sees it: whose burst goes when, and when its last beat is on the bus."""

from __future__ import annotations

from collections import deque

from ..hw import fifo, read_port
from ..hw.config import Config
from ..hw.ports import BURST_BEATS, OUTSTANDING
from .dram import Dram

NEVER = 1 << 60
SPLIT = read_port.REQUEST_LATENCY - fifo.FIFO_LATENCY  # cycles from a request to its first burst
ADDRESS = fifo.FIFO_LATENCY  # cycles from a burst to its address on the bus
_STEADY = OUTSTANDING + 1


class Client:
    """One client of a read port: its request in the splitter, and the beats that it has asked for and taken.

    `want`: first cycle in which it wants its next burst; `NEVER` without one. `taken` holds (beats taken so far, cycle)
    after each burst, `pace` cycles per beat.
    """

    def __init__(self, buffer: int):
        self.want, self.address, self.left = NEVER, 0, 0
        self.valid = NEVER  # first cycle in which the request is in the splitter
        self.allowed, self.asked = buffer - BURST_BEATS, 0
        self.taken: deque[tuple[int, int, int]] = deque()

    def burst(self, beats: int, end: int, final: bool) -> None:
        """`beats` beats are on the bus until cycle `end`; `final` ends the request."""
        raise NotImplementedError

    def accept(self, free: int) -> None:
        """Put the next request into the splitter, free from cycle `free` on; sets `address`, `left`, `valid`."""
        raise NotImplementedError

    def update(self) -> None:
        """Find `want` anew."""
        if not self.left:
            self.want = NEVER
            return
        due, taken = self.asked - self.allowed, self.taken
        want = self.valid
        if due > 0:
            while taken and taken[0][0] < due:
                taken.popleft()
            if not taken:
                self.want = NEVER
                return
            beats, cycle, pace = taken[0]
            want = max(want, cycle - (beats - due) * pace + 1)
        self.want = want


class ReadPort:
    """Bursts of `clients` on one AXI port, in turns. `next` is the cycle of the next burst's turn."""

    def __init__(self, cfg: Config, dram: Dram, clients: list[Client]):
        self.clients, self.next, self.last = clients, NEVER, 0
        self.latency = dram.latency
        self.pace = max(1, cfg.axi_bits // 8 / dram.port_bytes)
        self.outstanding = min(dram.outstanding, OUTSTANDING)
        self.grant, self.sent, self.end = -1, -1, -1
        self.ends: deque[int] = deque([-NEVER] * OUTSTANDING, OUTSTANDING)
        self.bounds = [lambda now: NEVER] * len(clients)

    def plan(self) -> None:
        """Find `next` anew."""
        want = min(client.want for client in self.clients)
        self.next = max(want, self.grant + 1, self.ends[0] + 2) if want < NEVER else NEVER

    def step(self) -> None:
        """One burst, or several of a client that nobody can interrupt."""
        now, clients, n = self.next, self.clients, len(self.clients)
        for k in range(self.last + 1, self.last + 1 + n):
            k %= n
            if clients[k].want <= now:
                break
        client = clients[k]
        self.last = k
        limit = NEVER
        for other in range(n):
            if other != k:
                want = clients[other].want
                limit = min(limit, want if want < NEVER else self.bounds[other](now))
        while True:
            self._burst(client, now)
            if client.want == NEVER:
                break
            now = max(client.want, self.grant + 1, self.ends[0] + 2)
            if now >= limit:
                break
            if client.left >= 2 * BURST_BEATS:
                now = self._steady(client, now, limit)
                if now >= limit:
                    break
        self.plan()

    def _burst(self, client: Client, now: int) -> None:
        beats = BURST_BEATS - (client.address & BURST_BEATS - 1)
        final = client.left <= beats
        if final:
            beats = client.left
        self.grant = now
        sent = max(now + ADDRESS, self.sent + 1)
        if self.outstanding < OUTSTANDING:
            sent = max(sent, self.ends[-self.outstanding] + 1)
        first = max(sent + self.latency, self.end + 1)
        self.sent = sent
        self.end = end = first + beats - 1 if self.pace == 1 else int(first + beats * self.pace) - 1
        self.ends.append(end)
        client.asked += beats
        client.address += beats
        client.left -= beats
        client.burst(beats, end, final)
        if final:
            client.accept(now)
        else:
            client.valid = now + 1
        client.update()

    def _steady(self, client: Client, now: int, limit: int) -> int:
        """Whole bursts at once, where each follows the one before without a pause; returns the next turn."""
        count = min((limit - now - 1) // BURST_BEATS, client.left // BURST_BEATS - 1)
        ends = self.ends
        if count < 1 or self.pace > 1 or client.address % BURST_BEATS:
            return now
        if ends[-1] - ends[0] != BURST_BEATS * (OUTSTANDING - 1) or now + ADDRESS + self.latency > self.end + 1:
            return now
        if not client.skip(count):
            return now
        cycles = count * BURST_BEATS
        self.ends = deque((end + cycles for end in ends), OUTSTANDING)
        self.end += cycles
        self.grant += cycles
        self.sent += cycles
        client.asked += cycles
        client.address += cycles
        client.left -= cycles
        client.valid += cycles
        client.update()
        return max(client.want, self.grant + 1, self.ends[0] + 2)
