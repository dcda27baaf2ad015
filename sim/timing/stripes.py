"""The load unit on several read ports in the timing model (hw/rtl/load/stripes.py)."""

from __future__ import annotations

from collections import deque

from ...hw.config import Config
from ...hw.rtl import latencies as lat
from ...hw.rtl.latencies import BURST_BEATS
from ...hw.units import stripes
from .mover import Mover
from .read_port import NEVER, Client


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
        """A port is free, and beats come: give it a burst, and the mover what is next in order."""
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
