"""The simulated circuit with a bus, a clock and a host that misbehave when they are told to."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.hw.config import Config
from tilewright.hw.errors import ExecutionError
from tilewright.hw.regs import Command, Error, Register, Status, registers
from tilewright.sim.dram import Dram
from tilewright.sim.rtl.device import ALL_BYTES, ProtocolError, RtlDevice, Simulation

WATCHDOG = 8_000  # cycles without progress, of runs that are not about the watchdog
_STOPPING = 1 << 20  # cycles within which a reset must have ended all accesses: each may be stalled
_LOOK = 1000  # cycles between two looks at CONTROL
_UNMAPPED = 0x7F0  # an offset without a register


class Stopped(ExecutionError):
    """The host ended the run by a reset."""


class _State(ctypes.Structure):
    """`Disturbance` of sim/rtl/harness.cpp."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("at", "wait", "answer", "seen", "address")]


@dataclass(frozen=True)
class Disturbance:
    """At handshake `at` of `channel` the memory is not ready for `wait` cycles, or answers with the error `answer`."""

    channel: str
    at: int
    wait: int = 0
    answer: int = 0


Act = Callable[["Disturbed"], None]


def bus_channels(cfg: Config) -> list[str]:
    """The channels of the ports of `cfg`, in the order in which harness.cpp counts them."""
    loads = [f"load{k}.{name}" for k in range(cfg.load_ports) for name in ("ar", "r")]
    return loads + [f"store{k}.{name}" for k in range(cfg.store_ports) for name in ("aw", "w", "b")]


def every_register(cfg: Config) -> dict[str, Register]:
    """The registers of `cfg`, and an offset that is none."""
    return {**registers(cfg), "UNMAPPED": Register("UNMAPPED", _UNMAPPED, "rw", "")}


class Disturbed(Simulation):
    """A simulation of `cfg` that plays `disturbances`, and `acts` of the host by cycles since the start of a run."""

    def __init__(self, library: ctypes.CDLL, cfg: Config, dram: Dram, named: Mapping[str, Register]):
        self._channels = {name: k for k, name in enumerate(bus_channels(cfg))}
        sim, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
        for name, arguments in (
            ("sim_calm", [sim]),
            ("sim_disturb", [sim, u32, u64, u64, u64]),
            ("sim_disturbed", [sim, u32, ctypes.POINTER(_State)]),
        ):
            getattr(library, name).argtypes, getattr(library, name).restype = arguments, None
        self._acts: Sequence[tuple[int, Act]] = ()
        self._more, self._reset = 0, False
        super().__init__(library, dram, named=named)

    def plan(self, disturbances: Sequence[Disturbance], acts: Sequence[tuple[int, Act]]) -> None:
        """What happens in the next run; handshakes are counted from here on."""
        self._library.sim_calm(self._sim)
        for each in disturbances:
            channel = self._channels[each.channel]
            self._library.sim_disturb(self._sim, channel, each.at, each.wait, each.answer)
        self._acts = sorted(acts, key=lambda pair: pair[0])
        self._more = sum(each.wait for each in disturbances) + max((cycle for cycle, _ in acts), default=0)

    def calm(self) -> None:
        """End what disturbs the bus."""
        self._library.sim_calm(self._sim)

    def seen(self, channel: str) -> int:
        """Handshakes of `channel` since `plan` or `calm`."""
        return self._state(channel).seen

    def hit(self, channel: str) -> int | None:
        """The address of the beat or burst of `channel` that was answered with an error; None where none was."""
        address = self._state(channel).address
        return None if address == (1 << 64) - 1 else address

    def write(self, register: str, value: int, strobes: int = ALL_BYTES) -> None:
        """As of `Simulation`."""
        super().write(register, value, strobes)
        self._reset |= register == "CONTROL" and bool(value & Command.RESET and strobes & 1)

    def reset(self) -> None:
        """As of `Simulation`."""
        super().reset()
        self._reset = True

    def run(self, most: int) -> bool:
        """As of `Simulation`. Raises `Stopped` where a reset ended the program: no act follows it."""
        spent, self._reset = 0, False
        for cycle, act in self._acts:
            if super().run(cycle - spent):
                return True
            spent = cycle
            act(self)
            if self._reset:
                self._stop()
        return super().run(most + self._more - spent)

    def _stop(self) -> None:
        for _ in range(_STOPPING // _LOOK):
            if not self.read("CONTROL"):
                raise Stopped("the host stopped the program")
            super().run(_LOOK)
        raise ProtocolError(f"a reset did not end the program in {_STOPPING} cycles")

    def _state(self, channel: str) -> _State:
        found = _State()
        self._library.sim_disturbed(self._sim, self._channels[channel], ctypes.byref(found))
        return found


@dataclass(frozen=True)
class End:
    """How a run ended: `what` is done, error, stopped or hung; of an error its class, code and instruction."""

    what: str
    text: str = ""
    error: str = ""
    code: Error = Error.NONE
    index: int | None = None


class FaultyDevice(RtlDevice):
    """The circuit of `cfg` on a bus that can be disturbed."""

    def __init__(self, cfg: Config, dram: Dram):
        super().__init__(cfg, dram=dram)
        self._least = 4 * (dram.latency + dram.response)
        self._disturbed: Disturbed | None = None

    @property
    def sim(self) -> Disturbed:
        """The simulation, which starts anew after a hang."""
        if self._disturbed is None or not self._simulation:
            named = every_register(self.cfg)
            self._simulation = self._disturbed = Disturbed(self._library, self.cfg, self.dram, named)
        return self._disturbed

    def attempt(
        self,
        image: np.ndarray,
        address: int,
        count: int,
        disturbances: Sequence[Disturbance] = (),
        acts: Sequence[tuple[int, Act]] = (),
        watchdog: int = WATCHDOG,
    ) -> End:
        """Run the instructions in `image` with what happens on the way; 0 turns the watchdog off."""
        self._watchdog = watchdog and max(watchdog, self._least)
        sim = self.sim
        sim.plan(disturbances, acts)
        try:
            self.run_image(image, address, count)
        except Stopped as exc:
            return End("stopped", str(exc))
        except ProtocolError as exc:
            return End("hung", str(exc))
        except ExecutionError as exc:
            code, status = Error(sim.read("ERROR")), sim.read("CONTROL")
            what = "error" if status == Status.DONE | Status.ERROR and code else "hung"
            return End(what, str(exc), type(exc).__name__, code, exc.index)
        return End("done")

    def _open(self) -> Simulation:
        return self.sim
