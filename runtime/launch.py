"""Encoded programs: instructions with relative addresses, the buffers that they name, and the check of their accesses.

A board's memory ports have no protection: they read and write whatever an instruction addresses.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..hw.config import UOP_BYTES, Config
from ..hw.errors import AccessError, EncodingError, ProgramError
from ..hw.isa import INSN_BYTES, INSTRUCTIONS, MICRO_OPS, Isa, Mem, entry_bytes, instruction, known_isa
from .access import dram_access, row_access
from .arrays import Array
from .buffer import Buffer
from .device import TRANSFERS
from .schema import NAME, is_a, shown
from .symbols import Patches
from .tokens import Row

INSN_ALIGN = 64  # bytes; of the instructions in memory
UOP_BUFFER = "uop"  # name of the constant buffer that holds a program's micro-op kernels
ARENA = "arena"  # name of the buffer that holds the activations of a network's launch
WRITABLE = ("output", "temp", "state")  # kinds of buffers that a program may store to


@functools.lru_cache(8)
def entry_sizes(cfg: Config) -> Array:
    """Bytes of an entry of the memory that opcode and memory id name, int64 (8, 8)."""
    sizes = np.tile(np.array([entry_bytes(cfg, Mem(k)) for k in range(8)], np.int64), (8, 1))  # where no row is
    for row in INSTRUCTIONS:
        if row.mem is not None and not row.missing(cfg):
            sizes[row.op, row.mem.id] = entry_bytes(cfg, row.mem)
    return sizes


@dataclass(frozen=True, eq=False)
class Origins:
    """The operator or statement for which each instruction of a launch was recorded.

    `of`, int32 (n,), is a position in `paths`: names from the outside in, such as an operator of a network and a
    statement of its schedule; () for instructions of the whole launch. `macs` are the useful multiply-accumulates of
    each path, None where they are not known.
    """

    paths: list[tuple[str, ...]]
    macs: list[int | None]
    of: Array

    def __post_init__(self) -> None:
        n = len(self.paths)
        if len(self.macs) != n or self.of.dtype.kind != "i" or self.of.ndim != 1:
            found = f"{n} paths, {len(self.macs)} macs, of {self.of.dtype} {self.of.shape}"
            raise ProgramError(f"origins: {found}; must be as many macs as paths, and signed integers (n,)")
        if self.of.size and not 0 <= int(self.of.min()) <= int(self.of.max()) < n:
            raise ProgramError(f"origins: of holds {self.of.min()} to {self.of.max()}; must be positions of {n} paths")


class OriginStack:
    """The nested origins of a recording; `number` is the position of the innermost in `Origins.paths`."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {(): 0}
        self._macs: list[int | None] = [None]
        self._outermost = [""]
        self._path: tuple[str, ...] = ()
        self.number = 0

    @contextmanager
    def inside(self, name: str, macs: int | None = None) -> Generator[None]:
        """The origin `name` within the present one; see `Program.origin`."""
        if not NAME.allows(name):
            raise ProgramError(f"origin name {shown(name)}: must be {NAME}")
        before = self._path, self.number
        path = self._path if self._path[-1:] == (name,) else (*self._path, name)
        number = self._numbers.setdefault(path, len(self._numbers))
        if number == len(self._macs):
            self._macs.append(None)
            self._outermost.append(path[0])
        if macs is not None:
            self._macs[number] = macs + (self._macs[number] or 0)
        self._path, self.number = path, number
        try:
            yield
        finally:
            self._path, self.number = before

    def outermost(self, row: Row) -> str:
        """The outermost name of the origin of `row`, empty outside of all origins."""
        return self._outermost[row.origin]

    def of(self, rows: Sequence[Row]) -> Origins:
        """The origins of `rows`."""
        return Origins(list(self._numbers), self._macs, np.array([row.origin for row in rows], np.int32))


@dataclass(eq=False)
class Launch:
    """The program of one start of the accelerator.

    `insn` is uint64 (n, 2). `dram_base` of instruction k counts from the start of buffer number `reloc[k]`, int32 (n,);
    -1 marks an instruction without an address, neither load nor store. `origins` name the operators of instructions,
    None where they are not known. `patches` are the symbols that move addresses from run to run. Raises
    `ProgramError` where these disagree.
    """

    cfg: Config
    name: str
    insn: Array
    reloc: NDArray[np.int32]
    buffers: list[Buffer]
    origins: Origins | None = None
    patches: Patches = field(default_factory=Patches)

    def __post_init__(self) -> None:
        insn, reloc = self.insn, self.reloc
        if not is_a(insn, np.ndarray) or insn.dtype != np.uint64 or insn.ndim != 2 or insn.shape[1] != 2:
            raise ProgramError(f"launch {self.name!r}: instructions must be uint64 (n, 2)")
        if not is_a(reloc, np.ndarray) or reloc.dtype.kind != "i" or reloc.shape != (len(insn),):
            raise ProgramError(f"launch {self.name!r}: reloc must hold one number per instruction, a signed integer")
        has_address = TRANSFERS[(insn[:, 0] & np.uint64(7)).astype(np.intp)]
        wrong = np.flatnonzero((reloc < -1) | (reloc >= np.where(has_address, len(self.buffers), 0)))
        if len(wrong):
            k = int(wrong[0])
            known = f"-1 or the position of one of {len(self.buffers)} buffers"
            allowed = known if has_address[k] else "-1: it has no address"
            raise ProgramError(
                f"launch {self.name!r}: reloc must hold one number per instruction; that of instruction {k} is "
                f"{reloc[k]}, which must be {allowed}"
            )
        if self.origins is not None and len(self.origins.of) != len(insn):
            known = f"{len(insn)} instructions, origins of {len(self.origins.of)}"
            raise ProgramError(f"launch {self.name!r}: {known}; must be one of each")
        self._check_patches()
        names = Counter(b.name for b in self.buffers)
        for b in self.buffers:
            if names[b.name] > 1:
                raise ProgramError(f"launch {self.name!r}: {names[b.name]} buffers are named {b.name!r}")
            if b.name == UOP_BUFFER and (b.data is None or b.nbytes % UOP_BYTES):
                raise ProgramError(
                    f"launch {self.name!r}: buffer {b.name!r} is {b.kind}, {b.nbytes} bytes: must be constant, and "
                    f"whole micro-ops of {UOP_BYTES} bytes"
                )

    def _check_patches(self) -> None:
        at, field = self.patches.at, known_isa(self.cfg).formats["LOAD"].fields["mem"]
        for k in at.tolist():
            if k >= len(self.insn) or self.reloc[k] < 0:
                named = f"symbol {self.patches.symbols[k].name!r} of instruction {k}"
                raise ProgramError(f"launch {self.name!r}: {named}: only an address that counts from a buffer has one")
            row = instruction(int(self.insn[k, 0]) & 7, int(self.insn[k, 0]) >> field.lo & 7)
            if row is not None and row.loads in MICRO_OPS:
                raise ProgramError(f"launch {self.name!r}: instruction {k} loads micro-ops: they have no symbol")

    @property
    def uops(self) -> Array:
        """The micro-op words, uint32 (n,), that its LOAD UOP instructions read."""
        data = [b.data for b in self.buffers if b.name == UOP_BUFFER and b.data is not None]
        return data[0].view("<u4") if data else np.zeros(0, np.uint32)

    def relocate(self, addresses: Sequence[int], values: Mapping[str, int] | None = None) -> Array:
        """The instructions, uint64 (n, 2), with buffer k at byte address `addresses[k]`.

        Symbols have the `values`, those absent 0. Raises `EncodingError` for an address that is not aligned to an
        entry or does not fit `dram_base`, whatever the values.
        """
        field = known_isa(self.cfg).formats["LOAD"].fields["dram_base"]
        at, sizes = self._addressed()
        words = self.insn.copy()
        low = words[at, 0]
        most = max(addresses, default=0)
        if most >> 63:
            raise EncodingError(f"a buffer begins at byte {most:#x}, which does not fit dram_base ({field.bits} bits)")
        base = np.asarray(addresses, np.int64)[self.reloc[at]]
        first, rest = np.divmod(base, sizes)
        if rest.any():
            k = int(np.nonzero(rest)[0][0])
            name = self.buffers[self.reloc[at[k]]].name
            raise EncodingError(f"buffer {name!r} at {base[k]:#x}: must be a multiple of {sizes[k]} bytes")
        mask = np.uint64((1 << field.bits) - 1)
        entry = (low >> np.uint64(field.lo) & mask).astype(np.int64) + first
        last = entry + self.reach[at]
        if len(entry) and last.max() > field.limits[1]:
            raise EncodingError(f"dram_base = {last.max()}: outside 0..{field.limits[1]} ({field.bits} bits)")
        words[at, 0] = low & ~(mask << np.uint64(field.lo)) | entry.astype(np.uint64) << np.uint64(field.lo)
        words[self.patches.at] = self.patched(words[self.patches.at], values or {})
        return words

    def patched(self, words: Array, values: Mapping[str, int]) -> Array:
        """The instructions of `patches`, uint64 (n, 2), with these `values` of symbols, absent ones 0.

        `words` are those that `relocate` makes where all symbols are 0.
        """
        lowest = np.uint64(known_isa(self.cfg).formats["LOAD"].fields["dram_base"].lo)
        moved = words.copy()
        moved[:, 0] += self.patches.offsets(values).astype(np.uint64) << lowest
        return moved

    @property
    def reach(self) -> Array:
        """How many entries the address of each instruction moves at most, by its symbol; int64 (n,)."""
        most = np.zeros(len(self.insn), np.int64)
        most[self.patches.at] = self.patches.most
        return most

    def check_aligned(self) -> None:
        """Raise `EncodingError` for a buffer that a device may place where `relocate` cannot address it."""
        at, sizes = self._addressed()
        for k, size in zip(at.tolist(), sizes.tolist()):
            buffer = self.buffers[self.reloc[k]]
            if buffer.align % size:
                raise EncodingError(
                    f"launch {self.name!r}, instruction {k}: buffer {buffer.name!r} is aligned to {buffer.align} "
                    f"bytes; must be to a multiple of {size}, the bytes of an entry"
                )

    def _addressed(self) -> tuple[Array, Array]:
        """The instructions that count from a buffer, and the bytes of an entry of the memory that each names."""
        field = known_isa(self.cfg).formats["LOAD"].fields["mem"]
        at = np.flatnonzero(self.reloc >= 0)
        ops, mems = (self.insn[at, 0] >> np.uint64(low) & np.uint64(7) for low in (0, field.lo))
        return at, entry_sizes(self.cfg)[ops.astype(np.int64), mems.astype(np.int64)]

    @property
    def known_origins(self) -> Origins:
        """`origins`, or a single origin for the whole launch if they are not known."""
        return self.origins or Origins([()], [None], np.zeros(len(self.insn), np.int32))

    @property
    def depth(self) -> int:
        """The most names that an origin of an instruction has; 0 where origins are not known."""
        return max(map(len, self.known_origins.paths))

    @property
    def insn_bytes(self) -> int:
        """Bytes of the instruction stream."""
        return len(self.insn) * INSN_BYTES


def encode(isa: Isa, name: str, rows: Sequence[Row], buffers: list[Buffer], origins: Origins) -> Launch:
    """The launch of the instructions `rows`, which name `buffers`."""
    number = {id(buffer): k for k, buffer in enumerate(buffers)}
    insn = np.zeros((len(rows), 2), np.uint64)
    for kind in {row.format for row in rows}:
        fmt, at = isa.formats[kind], [k for k, row in enumerate(rows) if row.format == kind]
        columns = {key: [rows[k].fields.get(key, 0) for k in at] for key in fmt.fields}
        insn[at] = fmt.encode(len(at), **columns)
    reloc = np.array([-1 if row.buffer is None else number[id(row.buffer)] for row in rows], np.int32)
    return Launch(isa.cfg, name, insn, reloc, buffers, origins, Patches.of([row.symbol for row in rows]))


def check_dram(launch: Launch) -> None:
    """Raise `AccessError`, naming the instruction, for DRAM bytes outside the buffer that it is relocated to.

    An address with a symbol stays inside for every value of it.

    The same for a store to a buffer that only the host fills; `ProgramError` for a relocation of an instruction that
    has no address, `EncodingError` for a buffer that may lie between entries. Instructions that cannot be decoded are
    left to the accelerator, which refuses them.
    """
    launch.check_aligned()
    isa = known_isa(launch.cfg)
    nbytes = np.array([b.nbytes for b in launch.buffers] + [-1], np.int64)  # the last element is for reloc = -1
    writable = np.array([b.kind in WRITABLE for b in launch.buffers] + [False])
    head = isa.formats["LOAD"].decode(launch.insn)
    suspect, reach = launch.reloc >= 0, launch.reach
    for row in INSTRUCTIONS:
        if row.mem is None:
            continue
        at = np.flatnonzero((head["op"] == row.op) & (head["mem"] == row.mem.id))
        if not len(at):
            continue
        f = isa.formats[row.format].decode(launch.insn[at])
        access, reloc = row_access(launch.cfg, row, f), launch.reloc[at]
        outside = access.end + reach[at] * entry_bytes(launch.cfg, row.mem) > nbytes[reloc]
        wrong = outside | ~writable[reloc] if access.write else outside
        suspect[at] = wrong & (f["x_size"] > 0) & (access.rows > 0)
    for k in np.flatnonzero(suspect).tolist():
        _check(isa, launch, k)


def _check(isa: Isa, launch: Launch, k: int) -> None:
    """Raise the error of instruction `k`, if it can be decoded."""
    (f,) = isa.decode(launch.insn[k : k + 1])
    if isa.undecodable(f):
        return
    at = f"launch {launch.name!r}, instruction {k} ({isa.disassemble(f)})"
    if "dram_base" not in f:
        raise ProgramError(f"{at}: has no DRAM address, but is relocated to buffer {launch.reloc[k]}; use -1")
    if launch.reloc[k] < 0:
        raise AccessError(f"{at}: accesses DRAM, but its address belongs to no buffer", k)
    symbol = launch.patches.symbols.get(k)
    buffer, access = launch.buffers[int(launch.reloc[k])], dram_access(launch.cfg, f, symbol)
    assert access is not None
    if access.end > buffer.nbytes:
        ends = f"ends at byte {access.end}{f' for some {symbol.name}' if symbol else ''} of buffer {buffer.name!r}"
        raise AccessError(f"{at}: {ends}, which has {buffer.nbytes}", k)
    allowed = f"{', '.join(WRITABLE[:-1])} and {WRITABLE[-1]}"
    raise AccessError(f"{at}: stores to buffer {buffer.name!r}, which is {buffer.kind}; only {allowed} are written", k)
