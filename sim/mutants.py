"""Programs that differ from a launch in one thing, by class of mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..hw.config import Config
from ..hw.isa import FLAGS, MICRO_OPS, Format, Op, instruction, known_isa
from ..hw.units import channels
from ..runtime.buffer import Buffer
from ..runtime.launch import UOP_BUFFER, Launch
from .memory import put

# fields that say where, and how much
_ADDRESSES = ("sram_base", "dram_base", "x_stride", "par_base", "par_step", "uop_bgn", "dst_", "src_", "wgt_")
_EXTENTS = ("y_size", "x_size", "y_pad_", "x_pad_", "uop_end", "iter_", "extra_taps")


@dataclass(frozen=True)
class Mutant:
    """A `launch` with one mistake of class `kind`, which `text` describes."""

    kind: str
    text: str
    launch: Launch


@dataclass(frozen=True)
class _Change:
    """Changed instructions and relocations; `order` are their former positions if they moved, `buffers` new buffers."""

    text: str
    insn: np.ndarray
    reloc: np.ndarray
    order: np.ndarray | None = None
    buffers: list[Buffer] | None = None


def mutants(launch: Launch, rng: np.random.Generator) -> Iterator[Mutant]:
    """Endless mutants of `launch`; every class comes equally often, where it can be had."""
    kinds = list(KINDS.items())
    while True:
        kind, make = kinds[int(rng.integers(len(kinds)))]
        change = make(launch, rng)
        if change is not None:
            yield Mutant(kind, change.text, _launch(launch, change))


def _launch(launch: Launch, change: _Change) -> Launch:
    insn, reloc = change.insn, change.reloc
    at = (np.arange(len(insn)) if change.order is None else change.order).copy()
    at[[k for k in range(len(insn)) if reloc[k] < 0 or _loads_uops(launch.cfg, insn[k])]] = -1
    buffers = launch.buffers if change.buffers is None else change.buffers
    return Launch(launch.cfg, launch.name, insn, reloc, buffers, patches=launch.patches.moved(at))


def _format(launch: Launch, k: int) -> Format:
    f = known_isa(launch.cfg).decode(launch.insn[k : k + 1])[0]
    found = known_isa(launch.cfg).format_of(f)
    assert found is not None
    return found


def _with(launch: Launch, text: str, changes: Sequence[tuple[int, str, int]]) -> _Change | None:
    """Write `changes` (instruction, field, value) into a copy of the launch; None where nothing changes."""
    insn = launch.insn.copy()
    for k, name, value in changes:
        put(insn[k], _format(launch, k).fields[name], value)
    reloc = launch.reloc.copy()
    reloc[[k for k in range(len(insn)) if not _has_address(insn[k])]] = -1
    return None if np.array_equal(insn, launch.insn) else _Change(text, insn, reloc)


def _loads_uops(cfg: Config, words: np.ndarray) -> bool:
    low = int(words[0])
    row = instruction(low & 7, low >> known_isa(cfg).formats["LOAD"].fields["mem"].lo & 7)
    return row is not None and row.loads in MICRO_OPS


def _has_address(words: np.ndarray) -> bool:
    return int(words[0]) & 7 in (Op.LOAD, Op.STORE, Op.LOADP)


def _chosen(rng: np.random.Generator, options: Sequence) -> int:
    return int(rng.integers(len(options)))


def _flag(launch: Launch, rng: np.random.Generator, now: int) -> _Change | None:
    """Invert one token flag whose value is `now`."""
    fields = known_isa(launch.cfg).decode(launch.insn)
    options = [(k, flag) for k, f in enumerate(fields) for flag in FLAGS if f[flag] == now]
    if not options:
        return None
    k, flag = options[_chosen(rng, options)]
    return _with(launch, f"{flag} of {k} {'dropped' if now else 'added'}", [(k, flag, 1 - now)])


def _flag_moved(launch: Launch, rng: np.random.Generator) -> _Change | None:
    """Move one token flag to the previous or the next instruction of its queue."""
    isa = known_isa(launch.cfg)
    fields = isa.decode(launch.insn)
    queues = [isa.queue(f) for f in fields]
    options = [(k, flag) for k, f in enumerate(fields) for flag in FLAGS if f[flag]]
    if not options:
        return None
    k, flag = options[_chosen(rng, options)]
    same = [at for at in range(len(fields)) if queues[at] == queues[k]]
    to = same.index(k) + (1 if rng.integers(2) else -1)
    if not 0 <= to < len(same) or fields[same[to]][flag]:
        return None
    return _with(launch, f"{flag} of {k} moved to {same[to]}", [(k, flag, 0), (same[to], flag, 1)])


def _pair(launch: Launch, rng: np.random.Generator, value: int) -> _Change | None:
    """Drop or add a push and a pop of one channel: set both flags to `value`."""
    isa, every = known_isa(launch.cfg), channels(launch.cfg)
    fields, channel = isa.decode(launch.insn), every[rng.integers(len(every))]
    sides = ((channel.source, channel.push), (channel.target, channel.pop))
    ends = [[k for k, f in enumerate(fields) if isa.queue(f) == q and f[flag] != value] for q, flag in sides]
    if not all(ends):
        return None
    at = _chosen(rng, ends[0])  # the n-th push belongs to the n-th pop
    push, pop = ends[0][at], ends[1][_chosen(rng, ends[1]) if value else min(at, len(ends[1]) - 1)]
    text = f"token {channel} from {push} to {pop} {'added' if value else 'dropped'}"
    return _with(launch, text, [(push, channel.push, value), (pop, channel.pop, value)])


def _swap(launch: Launch, rng: np.random.Generator) -> _Change | None:
    """Swap two instructions, often neighbours."""
    n = len(launch.insn)
    if n < 2:
        return None
    a = int(rng.integers(n - 1))
    b = a + 1 if rng.integers(2) else int(rng.integers(n))
    order = np.arange(n)
    order[[a, b]] = order[[b, a]]
    if np.array_equal(launch.insn[order], launch.insn) and np.array_equal(launch.reloc[order], launch.reloc):
        return None
    return _Change(f"{a} and {b} swapped", launch.insn[order], launch.reloc[order], order)


def _field(launch: Launch, rng: np.random.Generator, chosen: tuple[str, ...]) -> _Change | None:
    """Change a field whose name begins as `chosen`, () for other kinds, to any value, one near the old, or a limit."""
    k = int(rng.integers(len(launch.insn)))
    fields = _format(launch, k).fields
    others = (*_ADDRESSES, *_EXTENTS, *FLAGS)
    names = [name for name in fields if (name.startswith(chosen) if chosen else not name.startswith(others))]
    if not names:
        return None
    name = names[_chosen(rng, names)]
    low, high = fields[name].limits
    old = known_isa(launch.cfg).decode(launch.insn[k : k + 1])[0][name]
    near = [old - 1, old + 1, 2 * old, old // 2, old + 4, low, high, 0, 1]
    value = int(rng.integers(low, high + 1)) if rng.integers(2) else near[_chosen(rng, near)]
    value = min(max(value, low), high)
    return _with(launch, f"{name} of {k} from {old} to {value}", [(k, name, value)])


def _micro_op(launch: Launch, rng: np.random.Generator) -> _Change | None:
    """Change one field of one micro-op in the constant buffer."""
    at = [k for k, buffer in enumerate(launch.buffers) if buffer.name == UOP_BUFFER and buffer.data is not None]
    if not at:
        return None
    buffer, form = launch.buffers[at[0]], known_isa(launch.cfg).uop
    assert buffer.data is not None
    words = buffer.data.copy().view("<u4")
    k, names = int(rng.integers(len(words))), list(form.fields)
    declared = form.fields[names[_chosen(rng, names)]]
    mask = (1 << declared.bits) - 1
    old = int(words[k]) >> declared.lo & mask
    near = [old ^ 1, old + 1, old + 4, mask, 0]
    value = (int(rng.integers(mask + 1)) if rng.integers(2) else near[_chosen(rng, near)]) & mask
    if value == old:
        return None
    words[k] = int(words[k]) & ~(mask << declared.lo) & 0xFFFFFFFF | value << declared.lo
    buffers = list(launch.buffers)
    buffers[at[0]] = replace(buffer, data=words.view(np.uint8))
    return _Change(f"{declared.name} of micro-op {k} from {old} to {value}", launch.insn, launch.reloc, buffers=buffers)


def _relocation(launch: Launch, rng: np.random.Generator) -> _Change | None:
    """Relocate one instruction to another buffer, or to none."""
    moving = [k for k, words in enumerate(launch.insn) if _has_address(words)]
    if not moving:
        return None
    k = moving[_chosen(rng, moving)]
    reloc = launch.reloc.copy()
    reloc[k] = rng.integers(-1, len(launch.buffers))
    text = f"buffer of {k} from {launch.reloc[k]} to {reloc[k]}"
    return None if reloc[k] == launch.reloc[k] else _Change(text, launch.insn, reloc)


def _cut(launch: Launch, rng: np.random.Generator) -> _Change | None:
    """Remove one instruction, a run of instructions, or the rest of the program."""
    n = len(launch.insn)
    first = int(rng.integers(n))
    stop = [first + 1, int(rng.integers(first, n)) + 1, n][rng.integers(3)]
    keep = np.r_[0:first, stop:n]
    return _Change(f"{first}..{stop - 1} cut", launch.insn[keep], launch.reloc[keep], keep)


def _finish(launch: Launch, rng: np.random.Generator) -> _Change | None:
    """Move FINISH to an earlier position; the instructions after it stay or are removed."""
    n = len(launch.insn)
    if n < 2:
        return None
    at = int(rng.integers(n - 1))
    rest = [] if rng.integers(2) else list(range(at, n - 1))
    order = np.array([*range(at), n - 1, *rest])
    text = f"FINISH at {at}, {'with' if rest else 'without'} what was behind it"
    return _Change(text, launch.insn[order], launch.reloc[order], order)


KINDS: dict[str, Callable[[Launch, np.random.Generator], _Change | None]] = {
    "token flag dropped": partial(_flag, now=1),
    "token flag added": partial(_flag, now=0),
    "token flag moved": _flag_moved,
    "token dropped": partial(_pair, value=0),
    "token added": partial(_pair, value=1),
    "instructions swapped": _swap,
    "instructions cut": _cut,
    "early FINISH": _finish,
    "address": partial(_field, chosen=_ADDRESSES),
    "extent": partial(_field, chosen=_EXTENTS),
    "other field": partial(_field, chosen=()),
    "micro-op": _micro_op,
    "buffer": _relocation,
}
