"""Kinds of faults on the simulated circuit, and a bus, a clock and a host that misbehave when they are told to.

Each kind makes a trial: a program, what happens while it runs, and how it may end.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.hw.config import ISA_VERSION, Config
from tilewright.hw.errors import ExecutionError
from tilewright.hw.isa import INSN_BYTES, MICRO_OPS, Isa, instruction, nop_of
from tilewright.hw.metrics import CYCLES, counters
from tilewright.hw.regs import MAGIC, Command, Error, Register, Status, registers
from tilewright.hw.rtl.axi import DECERR, SLVERR
from tilewright.hw.units import queues
from tilewright.runtime.access import dram_access
from tilewright.runtime.device import program_stats
from tilewright.sim.dram import Dram
from tilewright.sim.memory import program_bytes
from tilewright.sim.rtl.device import ALL_BYTES, ProtocolError, RtlDevice, Simulation

from .compare import Case, decoded

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
        """Schedule `disturbances` and `acts` for the next run, and start to count handshakes."""
        self._library.sim_calm(self._sim)
        for each in disturbances:
            channel = self._channels[each.channel]
            self._library.sim_disturb(self._sim, channel, each.at, each.wait, each.answer)
        self._acts = sorted(acts, key=lambda pair: pair[0])
        self._more = sum(each.wait for each in disturbances) + max((cycle for cycle, _ in acts), default=0)

    def calm(self) -> None:
        """End all disturbances of the bus."""
        self._library.sim_calm(self._sim)

    def seen(self, channel: str) -> int:
        """Handshakes of `channel` since `plan` or `calm`."""
        return self._state(channel).seen

    def hit(self, channel: str) -> int | None:
        """The address of the beat or burst of `channel` that was answered with an error; None where none was."""
        address = self._state(channel).address
        return None if address == (1 << 64) - 1 else address

    def write(self, register: str, value: int, strobes: int = ALL_BYTES) -> None:
        """Write a register, as `Simulation.write`, and note a reset."""
        super().write(register, value, strobes)
        self._reset |= register == "CONTROL" and bool(value & Command.RESET and strobes & 1)

    def reset(self) -> None:
        """Reset the core, as `Simulation.reset`, and note it."""
        super().reset()
        self._reset = True

    def run(self, most: int) -> bool:
        """Run up to `most` cycles plus those of the faults, with the acts in between.

        Raises `Stopped` where a reset ended the program: no act follows it.
        """
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
        """Run the instructions in `image` with `disturbances` and `acts`; `watchdog` 0 turns the watchdog off."""
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


CHANNELS = ("ar", "r", "aw", "w", "b")
_LONG = 10_000  # cycles of a stall, at most
_SHORT = 2_000  # cycles without progress that no run without a stall has
_FOREVER = 1 << 40
_MOST_UOPS, _MOST_BYTES = 20_000, 1 << 18  # of a changed program: a loop of a billion micro-ops ends, but not today
_RIGHT, _ERROR, _STOPPED = "right", "error", "stopped"


@dataclass(frozen=True)
class Undisturbed:
    """A program that ran without a fault: cycles, and handshakes by channel."""

    case: Case
    cycles: int
    handshakes: dict[str, int]


@dataclass
class Trial:
    """A run with a fault: instructions and memory, disturbances and acts of the host, and the ends that are no defect.

    `codes` are the errors that may be reported, `channel` is the bus channel that answers with an error. With
    `compared` the program was changed, and the behavioural model decides which end is right.
    """

    image: np.ndarray
    address: int
    count: int
    ends: tuple[str, ...]
    codes: tuple[Error, ...] = ()
    disturbances: Sequence[Disturbance] = ()
    acts: Sequence[tuple[int, Act]] = ()
    watchdog: int = WATCHDOG
    channel: str = ""
    compared: bool = False
    late: list[str] = field(default_factory=list)  # what an act saw that must not be


Make = Callable[[Undisturbed, np.random.Generator], "Trial | None"]


def _trial(run: Undisturbed, ends: Sequence[str], codes: Sequence[Error] = (), **options: Any) -> Trial:
    case = run.case
    return Trial(case.image.copy(), case.address, case.count, tuple(ends), tuple(codes), **options)


def _handshake(run: Undisturbed, rng: np.random.Generator, name: str) -> tuple[str, int] | None:
    """A channel of that name of any port that is used, and one of its handshakes."""
    used = [channel for channel, n in run.handshakes.items() if channel.endswith(f".{name}") and n]
    if not used:
        return None
    channel = str(rng.choice(used))
    return channel, int(rng.integers(run.handshakes[channel]))


def _answer(name: str, answer: int, code: Error) -> Make:
    def make(run: Undisturbed, rng: np.random.Generator) -> Trial | None:
        found = _handshake(run, rng, name)
        if found is None:
            return None
        return _trial(run, [_ERROR], [code], disturbances=[Disturbance(*found, answer=answer)], channel=found[0])

    return make


def _stall(name: str, watched: bool) -> Make:
    def make(run: Undisturbed, rng: np.random.Generator) -> Trial | None:
        found, wait = _handshake(run, rng, name), int(rng.integers(1000, _LONG))
        if found is None:
            return None
        disturbances = [Disturbance(*found, wait=wait)]
        if not watched:
            return _trial(run, [_RIGHT], disturbances=disturbances, watchdog=0)
        watchdog = int(rng.integers(_SHORT, _LONG))
        late = wait + _SHORT > watchdog
        return _trial(run, [_RIGHT, _ERROR][: 1 + late], [Error.WATCHDOG], disturbances=disturbances, watchdog=watchdog)

    return make


def _several(run: Undisturbed, rng: np.random.Generator) -> Trial | None:
    """An error on a read and one on a write, and stalls of all other channels."""
    disturbances = []
    for name in CHANNELS:
        found, wait = _handshake(run, rng, name), int(rng.integers(_LONG))
        if found is None:
            return None
        answer = int(rng.choice([SLVERR, DECERR])) if name in ("r", "b") else 0
        disturbances.append(Disturbance(*found, wait=0 if answer else wait, answer=answer))
    codes = [Error.READ_RESPONSE, Error.WRITE_RESPONSE, Error.WATCHDOG]
    return _trial(run, [_ERROR], codes, disturbances=disturbances)


def _endless(run: Undisturbed, rng: np.random.Generator) -> Trial | None:
    """A channel that never answers again, until the error is seen."""
    found = _handshake(run, rng, str(rng.choice(CHANNELS)))
    if found is None:
        return None
    trial = _trial(run, [_ERROR], [Error.WATCHDOG], disturbances=[Disturbance(*found, wait=_FOREVER)], watchdog=_SHORT)

    def look(sim: Disturbed) -> None:
        if sim.read("ERROR") != Error.WATCHDOG:
            trial.late.append("the watchdog is silent")
        sim.calm()

    trial.acts = [(run.cycles + 2 * _SHORT, look)]
    return trial


def _cycle(run: Undisturbed, rng: np.random.Generator, before_end: int = 0) -> int:
    return int(rng.integers(max(1, run.cycles - before_end)))


def _write(name: str, value: int) -> Act:
    return lambda sim: sim.write(name, value)


def _reset_by_register(run: Undisturbed, rng: np.random.Generator) -> Trial:
    value = int(rng.integers(1 << 32)) | Command.RESET
    return _trial(run, [_STOPPED, _RIGHT], acts=[(_cycle(run, rng), _write("CONTROL", value))])


def _reset_in_stall(run: Undisturbed, rng: np.random.Generator) -> Trial | None:
    """A reset after which the bus does not answer for a while; the program ends."""
    found = _handshake(run, rng, str(rng.choice(CHANNELS)))
    if found is None:
        return None
    disturbances = [Disturbance(*found, wait=int(rng.integers(1000, _LONG)))]
    acts = [(_cycle(run, rng), _write("CONTROL", Command.RESET))]
    return _trial(run, [_STOPPED, _RIGHT], disturbances=disturbances, acts=acts, watchdog=0)


def _reset_by_pin(run: Undisturbed, rng: np.random.Generator) -> Trial:
    return _trial(run, [_STOPPED, _RIGHT], acts=[(_cycle(run, rng), lambda sim: sim.reset())])


def _start_again(run: Undisturbed, rng: np.random.Generator) -> Trial | None:
    """CONTROL's other bits, while the program surely runs: a program that is done would start again."""
    far = run.cycles // 2 + 500
    if far > run.cycles:
        return None
    values = rng.integers(1 << 32, size=5) & ~Command.RESET.value
    return _trial(run, [_RIGHT], acts=[(_cycle(run, rng, far), _write("CONTROL", int(v))) for v in values])


def _write_watchdog(run: Undisturbed, rng: np.random.Generator) -> Trial:
    value = int(rng.choice([0, 1, int(rng.integers(100)), int(rng.integers(1 << 32)), (1 << 32) - 1]))
    few = 0 < value < _SHORT
    acts = [(_cycle(run, rng), _write("WATCHDOG", value))]
    return _trial(run, [_RIGHT, _ERROR][: 1 + few], [Error.WATCHDOG], acts=acts)


def _write_others(run: Undisturbed, rng: np.random.Generator) -> Trial:
    """Write ten random registers other than CONTROL and WATCHDOG."""
    names = [name for name in every_register(run.case.cfg) if name not in ("CONTROL", "WATCHDOG")]
    writes = [_write(str(name), int(rng.integers(1 << 32))) for name in rng.choice(names, 10)]
    return _trial(run, [_RIGHT], acts=[(_cycle(run, rng), write) for write in writes])


def _write_some_bytes(run: Undisturbed, rng: np.random.Generator) -> Trial:
    """Write random bytes of ten random registers, except the first byte of CONTROL; WATCHDOG is read back."""
    trial = _trial(run, [_RIGHT])

    def write(name: str, value: int, strobes: int) -> Act:
        def act(sim: Disturbed) -> None:
            if name != "WATCHDOG":
                sim.write(name, value, strobes & ~(name == "CONTROL"))
                return
            mask = sum(255 << 8 * k for k in range(4) if strobes >> k & 1)
            merged = (sim.read(name) & ~mask) | (value & mask)
            if not 0 < merged < _SHORT:
                sim.write(name, value, strobes)
                if sim.read(name) != merged:
                    trial.late.append(f"WATCHDOG is {sim.read(name):#x} after a write of bytes {strobes:#x}")

        return act

    names = [*every_register(run.case.cfg), *["CONTROL", "WATCHDOG"] * 5]
    writes = [write(str(name), int(rng.integers(1 << 32)), int(rng.integers(16))) for name in rng.choice(names, 10)]
    trial.acts = [(_cycle(run, rng), act) for act in writes]
    return trial


def _read_registers(run: Undisturbed, rng: np.random.Generator) -> Trial:
    """Read thirty random registers: the program's are as written, counters never fall, there is no error."""
    case, trial, latest = run.case, _trial(run, [_RIGHT]), dict[str, int]()
    known = {"INSN_COUNT": case.count, "INSN_ADDR_LO": case.address & 0xFFFFFFFF, "INSN_ADDR_HI": case.address >> 32}
    known |= {"ERROR": 0, "UNMAPPED": 0, "VERSION": MAGIC << 16 | ISA_VERSION}
    counted, kept = {CYCLES.register, *counters(case.cfg)}, ("WATCHDOG", "FINGERPRINT_LO", "FINGERPRINT_HI")

    def look(name: str) -> Act:
        def act(sim: Disturbed) -> None:
            value = sim.read(name)
            wrong = value != (latest if name in kept else known).get(name, value)
            wrong |= name in counted and value < latest.get(name, 0)
            if wrong or (name == "CONTROL" and value not in (Status.RUNNING, Status.DONE)):
                trial.late.append(f"{name} reads {value:#x}")
            latest[name] = value

        return act

    names = rng.choice([*every_register(case.cfg), *["CONTROL", CYCLES.register] * 5], 30)
    trial.acts = [(_cycle(run, rng), look(str(name))) for name in names]
    return trial


def _changed(change: Callable[[Case, np.ndarray, np.random.Generator], int | None]) -> Make:
    """A program whose words, uint64 (n, 2), were changed in place; the result is another number of instructions.

    Some words that follow the program are among them.
    """

    def make(run: Undisturbed, rng: np.random.Generator) -> Trial | None:
        case = run.case
        room = min(case.count + 8, (len(case.image) - case.address) // INSN_BYTES)
        for _ in range(20):
            image = case.image.copy()
            words = image[case.address : case.address + room * INSN_BYTES].view("<u8").reshape(-1, 2)
            count = change(case, words, rng)
            count = case.count if count is None else min(count, room)
            found = np.frombuffer(program_bytes(image, case.address, count), np.uint64).reshape(-1, 2)
            stats = program_stats(Isa(case.cfg), found)
            moved = stats.bytes_loaded.total() + stats.bytes_stored.total()
            if stats.uops < _MOST_UOPS and moved < _MOST_BYTES:
                return Trial(image, case.address, count, (_RIGHT, _ERROR), tuple(Error)[1:], compared=True)
        return None

    return make


def _flip_micro_ops(run: Undisturbed, rng: np.random.Generator) -> Trial | None:
    """Bits of the micro-ops in memory."""
    case, image = run.case, run.case.image.copy()
    rows = ((f, instruction(f["op"], f.get("mem"))) for f in decoded(case.cfg, image, case.address, case.count))
    loads = [f for f, row in rows if row is not None and row.loads in MICRO_OPS]
    spans = [a for a in (dram_access(case.cfg, f) for f in loads) if a is not None]
    if not spans:
        return None
    for _ in range(int(rng.choice([1, 1, 2, 8]))):
        a = spans[int(rng.integers(len(spans)))]
        image[a.start + int(rng.integers(a.nbytes))] ^= np.uint8(1 << int(rng.integers(8)))
    return Trial(image, case.address, case.count, (_RIGHT, _ERROR), tuple(Error)[1:], compared=True)


def _flip(case: Case, words: np.ndarray, rng: np.random.Generator) -> None:
    for _ in range(int(rng.choice([1, 1, 1, 2, 3, 8]))):
        words[rng.integers(case.count), rng.integers(2)] ^= np.uint64(1 << int(rng.integers(64)))


def _garbage(case: Case, words: np.ndarray, rng: np.random.Generator) -> None:
    """Random words from some instruction on, one or all that follow; often with the opcodes of before."""
    first = int(rng.integers(case.count))
    behind = first + 1 if rng.integers(2) else case.count
    opcodes = words[first:behind, 0] & np.uint64(7)
    words[first:behind] = rng.integers(1 << 64, size=(behind - first, 2), dtype=np.uint64)
    if rng.integers(2):
        words[first:behind, 0] = words[first:behind, 0] & ~np.uint64(7) | opcodes


def _too_few(case: Case, words: np.ndarray, rng: np.random.Generator) -> int:
    return int(rng.integers(case.count))


def _too_many(case: Case, words: np.ndarray, rng: np.random.Generator) -> int:
    """Append the words that memory holds there, or copies of the program's own instructions."""
    if rng.integers(2):
        words[case.count :] = words[rng.integers(case.count, size=len(words) - case.count)]
    return case.count + 1 + int(rng.integers(8))


def _finish_early(case: Case, words: np.ndarray, rng: np.random.Generator) -> None:
    words[rng.integers(case.count - 1)] = words[case.count - 1]


def _no_finish(case: Case, words: np.ndarray, rng: np.random.Generator) -> None:
    """Another instruction, or one that does nothing, in place of FINISH."""
    last, isa = case.count - 1, Isa(case.cfg)
    every = queues(case.cfg)
    nop = nop_of(every[int(rng.integers(len(every)))])
    words[last] = words[rng.integers(last)] if rng.integers(2) else isa.formats[nop.format].encode(1, **nop.fields)[0]


KINDS: dict[str, Make] = {
    "SLVERR on a beat read": _answer("r", SLVERR, Error.READ_RESPONSE),
    "DECERR on a beat read": _answer("r", DECERR, Error.READ_RESPONSE),
    "SLVERR on a write": _answer("b", SLVERR, Error.WRITE_RESPONSE),
    "DECERR on a write": _answer("b", DECERR, Error.WRITE_RESPONSE),
    **{f"stall of {name.upper()}, no watchdog": _stall(name, False) for name in CHANNELS},
    **{f"stall of {name.upper()}, watchdog": _stall(name, True) for name in CHANNELS},
    "endless stall of any channel": _endless,
    "errors and stalls at once": _several,
    "reset by CONTROL": _reset_by_register,
    "reset by CONTROL, with a stall": _reset_in_stall,
    "reset of the circuit": _reset_by_pin,
    "writes to CONTROL": _start_again,
    "writes to WATCHDOG": _write_watchdog,
    "writes to other registers": _write_others,
    "some bytes of registers written": _write_some_bytes,
    "registers read": _read_registers,
    "bit flips in instructions": _changed(_flip),
    "bit flips in micro-ops": _flip_micro_ops,
    "garbage for instructions": _changed(_garbage),
    "too few instructions": _changed(_too_few),
    "too many instructions": _changed(_too_many),
    "FINISH too early": _changed(_finish_early),
    "no FINISH": _changed(_no_finish),
}
