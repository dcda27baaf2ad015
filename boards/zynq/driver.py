"""The board as a device: bitstream, registers and contiguous memory through pynq, which is imported when needed.

The processors' caches do not see the accelerator's reads and writes. The driver flushes a buffer that the CPU wrote
before the next run, and invalidates it before the CPU reads what the accelerator may have written. pynq does both for
whole buffers, so every allocation is a buffer of its own, flushed once per run however often it was written.

The interrupt comes through the kernel's UIO: PYNQ's image offers IRQF2P[0] as the device `fabric`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import select
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ...hw.config import ISA_VERSION, PRESETS, Config
from ...hw.errors import (
    AccessError,
    BoardError,
    CapacityError,
    FileError,
    FingerprintError,
    HangError,
    InputError,
    TilewrightError,
)
from ...hw.isa import INSN_BYTES, Isa
from ...hw.regs import MAGIC, Status, registers
from ...runtime.device import Allocation, Stats, check_fits, program_stats, without_addresses
from ...runtime.loader import Loaded
from ...runtime.session import Session
from ..selftest import Check, run_self_test, stepwise
from .board import SPAN, Board, load_board
from .handoff import port_widths

Pynq = Any  # the module pynq or one of its objects, which have no types
PAGE = 4096
LEAST = 8192  # bytes of a buffer; XRT gives smaller ones addresses beyond 32 bits
WATCHDOG = 10_000_000  # cycles without progress: 0.1 s at 100 MHz
FOLDERS = (Path("."), Path.home() / "tilewright")  # searched for a bitstream, after the build's
_LOOK = 0.02  # seconds between two reads of CONTROL while waiting for the interrupt
UIO = Path("/sys/class/uio")
UIO_NAME = "fabric"
_ENABLE = (1).to_bytes(4, "little")
_COUNT_BYTES = 4
_READ_WIDTH, _WRITE_WIDTH = 0x0, 0x14  # registers of a memory port of UltraScale+, whose bits 1:0 are its width
_WIDTHS = {128: 0, 64: 1}
_OF_RUN = ("INSN_ADDR_LO", "INSN_ADDR_HI", "INSN_COUNT", "CYCLES")  # registers that tell the latest run from others


class NamedRegisters:
    """The registers of `cfg` in `mmio`, which knows them by their offsets."""

    def __init__(self, cfg: Config, mmio: Pynq):
        self._mmio, self._named = mmio, registers(cfg)

    def read(self, name: str) -> int:
        """The value of a register."""
        return int(self._mmio.read(self._named[name].offset))

    def write(self, name: str, value: int) -> None:
        """Write `value` to the register `name`."""
        self._mmio.write(self._named[name].offset, int(value))  # pynq accepts int only, not numpy's integers


class Interrupt:
    """The open device `file`; `close` closes it.

    The line is high while the core is done, so an interrupt may come from the run before: it only wakes the driver.
    """

    def __init__(self, file: int):
        self._file = file

    @staticmethod
    def find(folder: Path = UIO) -> Interrupt | None:
        """The device `UIO_NAME`; None where the kernel does not have it, or this user may not open it."""
        try:
            for entry in sorted(folder.iterdir()):
                if (entry / "name").read_text().strip() == UIO_NAME:
                    return Interrupt(os.open(f"/dev/{entry.name}", os.O_RDWR))
        except OSError:
            pass
        return None

    def wait(self, seconds: float) -> bool:
        """Wait until the line is high, at most `seconds`; True if it was."""
        os.write(self._file, _ENABLE)
        ready, _, _ = select.select([self._file], [], [], seconds)
        if ready:
            os.read(self._file, _COUNT_BYTES)
        return bool(ready)

    def close(self) -> None:
        """Close the device."""
        os.close(self._file)


@dataclass
class _Buffer:
    """One contiguous buffer: the CPU's view `array`, from address `start` on, of which `used` was requested.

    `stale`: the accelerator may have written it since the CPU's view was current. `written`: the CPU has, since it was
    flushed. `programs` holds the
    instructions in it without their addresses, and their counts, by offset and number.
    """

    array: Pynq
    start: int
    nbytes: int
    used: range
    stale: bool = False
    written: bool = False
    programs: dict[tuple[int, int], tuple[np.ndarray, Stats]] = field(default_factory=dict)


class PynqDevice:
    """A board with the accelerator of `cfg`; `board` is one of `boards/zynq`, its name or a file (default: PYNQ-Z1).

    The first allocation loads the bitstream, sets the clock, and checks the identity registers. `bitstream` is a .bit
    file (default: `Board.design_name` in the build's folder or one of `FOLDERS`), which `loaded` says is in the FPGA
    already. `timeout` are the seconds that one run may take, `watchdog` the
    cycles without progress after which the accelerator stops. `pynq` and `target` replace the module and its active
    device, `meminfo` the kernel's report, `interrupt` the kernel's device; without an interrupt the driver polls for
    the end of a run.

    Raises `BoardError` for wrong or missing pynq, board or clock, `FileError` for a missing bitstream,
    `FingerprintError` for a bitstream of another configuration.
    """

    def __init__(
        self,
        cfg: Config,
        *,
        bitstream: str | Path | None = None,
        board: Board | str | None = None,
        loaded: bool = False,
        timeout: float = 30.0,
        watchdog: int = WATCHDOG,
        pynq: Pynq | None = None,
        target: object = None,
        meminfo: str | Path = "/proc/meminfo",
        interrupt: Interrupt | None = None,
    ):
        self.cfg, self.board = cfg, board if isinstance(board, Board) else load_board(board)
        self._programmed = loaded
        self._starts, self._left = 0, list[int]()  # the registers `_OF_RUN` after the latest of these runs
        self.timeout, self._watchdog, self._meminfo = timeout, watchdog, Path(meminfo)
        self._bitstream = bitstream
        self.pynq, self._target = pynq or _import_pynq(), target
        self._isa = Isa(cfg)
        self._interrupt = interrupt or Interrupt.find()
        self._session: Session | None = None
        self._buffers: dict[int, _Buffer] = {}  # by the address that `allocate` returned

    @property
    def starts(self) -> int:
        """The runs that are known: those of this driver, and any that another one, or another process, left behind."""
        if self._session and self._registers_of_run() != self._left:
            self._starts, self._left = self._starts + 1, self._registers_of_run()
        return self._starts

    def check_room(self, regions: Mapping[str, Allocation]) -> None:
        """Raise `CapacityError` where `regions` do not fit the free contiguous memory."""
        rounded = {name: Allocation(_size(r.nbytes, r.align), r.align) for name, r in regions.items()}
        check_fits(rounded, self.free_bytes(), "contiguous memory (CmaFree)")

    def free_bytes(self) -> int:
        """Bytes of contiguous memory that are free. Raises `BoardError` where the kernel does not report them."""
        try:
            for line in self._meminfo.read_text().splitlines():
                if line.startswith("CmaFree:"):
                    return int(line.split()[1]) << 10
        except (OSError, ValueError, IndexError):
            pass
        raise BoardError(
            f"{self._meminfo} has no CmaFree: this kernel reserves no contiguous memory; use the PYNQ image's kernel"
        )

    def open(self) -> Session:
        """Load the bitstream, set the clock, and check the identity registers against `cfg`; done once."""
        if self._session:
            return self._session
        path = find_bitstream(self.cfg, self.board, self._bitstream)
        try:
            if not self._programmed:
                self._set_clock()  # before: an oscillator of the bitstream starts from it
                self.pynq.Bitstream(str(path), device=self._target).download()
            self._programmed = True
            self._set_clock()
            self._set_widths(path)
            mmio = self.pynq.MMIO(self.board.base, SPAN, device=self._target)
        except TilewrightError:
            raise
        except Exception as exc:  # pynq raises OSError, RuntimeError, ValueError and others
            raise BoardError(
                f"{path}: loading the bitstream failed ({_one_line(exc)}); check that this runs as root"
            ) from None
        session = Session(self.cfg, NamedRegisters(self.cfg, mmio), watchdog=self._watchdog)
        self._check_identity(session, path)
        self._session = session
        return session

    def allocate(self, nbytes: int, align: int) -> int:
        """The address of `nbytes` of zeroed memory, a multiple of `align`. Raises `CapacityError` when full."""
        if nbytes < 0 or align < 1:
            raise InputError(f"cannot allocate {nbytes} bytes aligned to {align}")
        self.open()
        size = _size(nbytes, align)
        try:
            array = self.pynq.allocate((size,), np.uint8, target=self._target)
        except (RuntimeError, MemoryError, OSError) as exc:
            raise CapacityError(f"{nbytes} bytes of contiguous memory are not available ({_one_line(exc)})") from None
        start = int(array.device_address)
        if start + size > self.board.ps.low_memory:
            array.freebuffer()
            raise BoardError(
                f"pynq allocated a buffer at {start:#x}, but programs use DRAM below {self.board.ps.low_memory:#x}"
            )
        address = -(-start // align) * align
        array[:] = 0
        self._buffers[address] = _Buffer(array, start, size, range(address, address + nbytes))
        self._flush(array)
        return address

    def free(self, address: int) -> None:
        """Free the memory that `allocate` returned."""
        if address not in self._buffers:
            raise InputError(f"address {address:#x} was not allocated")
        self._buffers.pop(address).array.freebuffer()

    def write(self, address: int, data: np.ndarray) -> None:
        """Copy `data`, uint8 (n,), to memory."""
        buffer, at = self._find(address, len(data))
        if range(address, address + len(data)) == buffer.used:
            buffer.stale = False
        self._refresh(buffer)  # the flush writes all of it
        buffer.array[at : at + len(data)] = data
        buffer.written = True

    def read(self, address: int, nbytes: int) -> np.ndarray:
        """A copy of memory, uint8 (nbytes,)."""
        buffer, at = self._find(address, nbytes)
        self._refresh(buffer)
        return np.array(buffer.array[at : at + nbytes], copy=True, subok=False)

    def run(self, insn_address: int, insn_count: int) -> Stats:
        """Execute the instructions at `insn_address` to FINISH.

        Raises what the error register says (`runtime.session.explain`), and `HangError` where the accelerator is
        not done after `timeout`: then it is reset, or its bitstream is loaded again if it does not react to the reset.
        """
        self._starts += 1
        buffer, at = self._find(insn_address, insn_count * INSN_BYTES)
        session = self.open()
        words = np.frombuffer(bytes(buffer.array[at : at + insn_count * INSN_BYTES]), "<u8").reshape(-1, 2)
        text = without_addresses(self._isa, words)
        known, counts = buffer.programs.get((at, insn_count), (None, Stats()))
        if known is None or not np.array_equal(known, text):
            counts = program_stats(self._isa, words)
            buffer.programs[at, insn_count] = text, counts
        for each in self._buffers.values():
            if each.written:
                self._flush(each.array)
            each.written, each.stale = False, True
        try:
            stats = session.run(words, insn_address, counts, lambda: self._wait(session, words))
            self._left = self._registers_of_run()
            return stats
        except TilewrightError:  # the core is done, or was stopped
            raise
        except BaseException:  # an interrupt from the keyboard too: what still runs would write to freed memory
            self._stop(session)
            raise

    def close(self) -> None:
        """Free all memory."""
        for address in list(self._buffers):
            self.free(address)

    def _registers_of_run(self) -> list[int]:
        read = self.open().registers.read
        return [read(name) for name in _OF_RUN]

    def _wait(self, session: Session, words: np.ndarray) -> int:
        """CONTROL when the core is done with `words`. Raises `HangError` where it is not in time."""
        deadline, pause = time.monotonic() + self.timeout, 0.0
        while True:
            late = time.monotonic() > deadline  # before CONTROL is read, so that the last read is after the deadline
            status = session.registers.read("CONTROL")
            if status & Status.DONE:
                return status
            if late:
                raise self._hung(session, words, status)
            if self._interrupt and pause:
                self._interrupt.wait(_LOOK)  # CONTROL is read again in any case: an interrupt may be lost
            else:
                time.sleep(pause)
            pause = min(pause + 1e-5, 1e-3)

    def _hung(self, session: Session, words: np.ndarray, status: int) -> HangError:
        what, index = session.waiting(words)
        answered = self._stop(session)
        after = "it was reset" if answered else "it did not react to a reset, so the bitstream was loaded again"
        return HangError(f"not done after {self.timeout:g} s (CONTROL = {status:#x}); {what}; {after}", index)

    def _stop(self, session: Session) -> bool:
        """Reset the accelerator; True if its memory accesses ended. Otherwise loading the bitstream again ends them."""
        with contextlib.suppress(Exception):
            if session.reset():
                return True
        self._session, self._programmed = None, False
        with contextlib.suppress(Exception):  # the next use tries again, and reports the error
            self.open()
        return False

    def _set_clock(self) -> None:
        wanted, clocks = self.board.clock_mhz, self.pynq.Clocks
        clocks.fclk0_mhz = wanted
        if abs(clocks.fclk0_mhz - wanted) > 0.01 * wanted:
            raise BoardError(
                f"{self.board.ps.clock_name} runs at {clocks.fclk0_mhz:g} MHz instead of {wanted:g}; use a clock that "
                "it can divide to"
            )

    def _set_widths(self, bitstream: Path) -> None:
        """Set the memory ports to the widths of the bitstream's: the boot software may have left them otherwise."""
        settable = {port.name: port.width_registers for port in self.board.ps.memories[self.board.memory]}
        if None in settable.values():
            return
        for name, bits in port_widths(bitstream.with_suffix(".hwh")).items():
            mmio = self.pynq.MMIO(settable[name], SPAN, device=self._target)
            for offset in (_READ_WIDTH, _WRITE_WIDTH):
                mmio.write(offset, int(mmio.read(offset)) & ~3 | _WIDTHS[bits])

    def _check_identity(self, session: Session, path: Path) -> None:
        version, found = session.identity()
        if version >> 16 != MAGIC:
            raise BoardError(
                f"{path}: VERSION at {self.board.base:#x} reads {version:#010x}, its upper half must be {MAGIC:#06x}; "
                "the bitstream is not tilewright's, or is for another base address"
            )
        if version & 0xFFFF != ISA_VERSION:
            raise BoardError(
                f"{path}: executes version {version & 0xFFFF} of the instruction set, must be version {ISA_VERSION}; "
                "build the bitstream again"
            )
        if found != self.cfg.fingerprint:
            names = [cfg.name for cfg in PRESETS.values() if cfg.fingerprint == found]
            its = f"{names[0]} ({found:016x})" if names else f"fingerprint {found:016x}"
            raise FingerprintError(
                f"{path}: the bitstream is for {its}, the program for {self.cfg.name} ({self.cfg.fingerprint:016x}); "
                "compile the program for the bitstream's configuration, or build the other bitstream"
            )

    def _find(self, address: int, nbytes: int) -> tuple[_Buffer, int]:
        for buffer in self._buffers.values():
            if buffer.start <= address and 0 <= nbytes <= buffer.start + buffer.nbytes - address:
                return buffer, address - buffer.start
        raise AccessError(f"{nbytes} bytes at {address:#x} are not inside one allocated buffer")

    def _refresh(self, buffer: _Buffer) -> None:
        if buffer.stale:
            if not self.board.coherent:
                buffer.array.invalidate()
            buffer.stale = False

    def _flush(self, array: Pynq) -> None:
        if not self.board.coherent:
            array.flush()


def find_bitstream(cfg: Config, board: Board, path: str | Path | None = None) -> Path:
    """The .bit file: `path`, or the one for `cfg` in one of `FOLDERS`. Raises `FileError` where it is missing."""
    if path is not None:
        if not Path(path).is_file():
            raise FileError(f"{path}: no such bitstream")
        return Path(path).resolve()
    name = f"{board.design_name(cfg)}.bit"
    searched = (Path("build", board.name), *FOLDERS)
    for folder in searched:
        if (folder / name).is_file():
            return (folder / name).resolve()
    raise FileError(
        f"{name}: not found in {', '.join(map(str, searched))}; build it with `tilewright bitstream` and copy it, or "
        "give --bitstream"
    )


def _import_pynq() -> ModuleType:
    try:
        return importlib.import_module("pynq")
    except ImportError:
        raise BoardError(
            "pynq is not installed: `--on board` runs on the board itself; on another machine add --host NAME:PORT"
        ) from None


def _size(nbytes: int, align: int) -> int:
    """Bytes to request: pynq's buffers begin at a page."""
    slack = 0 if PAGE % align == 0 else align
    return max(LEAST, -(-(nbytes + slack) // PAGE) * PAGE)


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__


def check_machine(cfg: Config, **options: Any) -> Iterator[Check]:
    """Check this machine as a board with the accelerator of `cfg`, up to the first check that fails.

    `options` are those of `PynqDevice`. An error is not raised: its text is the result of the check.
    """
    devices: list[PynqDevice] = []

    def pynq() -> str:
        devices.append(PynqDevice(cfg, **options))
        return f"pynq {getattr(devices[0].pynq, '__version__', 'of unknown version')}"

    def memory() -> str:
        return f"{devices[0].free_bytes() >> 10:,} kB of contiguous memory are free"

    def bitstream() -> str:
        return str(find_bitstream(cfg, devices[0].board, options.get("bitstream")))

    def registers() -> str:
        devices[0].open()
        return f"{cfg.name} ({cfg.fingerprint:016x}) answers at {devices[0].board.base:#010x}"

    def product() -> str:
        return run_self_test(cfg, lambda launch: Loaded(launch, devices[0]))

    machine = f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}"
    yield Check("machine", True, machine)
    yield from stepwise(
        (
            ("user", _user),
            ("pynq", pynq),
            ("memory", memory),
            ("bitstream", bitstream),
            ("registers", registers),
            ("self-test", product),
        )
    )


def _user() -> str:
    if os.geteuid():
        raise BoardError("not root: pynq maps registers through /dev/mem; run with sudo -E, or as root")
    return "root"
