"""Replaying a recorded case: a program with its memory before and after, in one .npz file.

docs/files.md describes the format.
"""

from __future__ import annotations

import json
import reprlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..hw.config import UOP_BYTES, Config, load_config
from ..hw.errors import ConfigError, FileError, ProgramError, UnsupportedError
from ..hw.foreign import parse_json, read_npz
from ..hw.isa import INSN_BYTES, MICRO_OPS, Isa, instruction
from ..runtime.buffer import Buffer
from ..runtime.device import Stats, open_device
from ..runtime.formats import ARRAYS, check_format
from ..runtime.launch import UOP_BUFFER, Launch


@dataclass(frozen=True)
class Case:
    """A case that was read and checked."""

    name: str
    cfg: Config
    dram_in: np.ndarray
    dram_out: np.ndarray
    insn_addr: int
    insn_count: int
    buffers: list[dict] = field(default_factory=list)

    @property
    def launch(self) -> Launch:
        """The program as a launch whose addresses count from the start of memory, all of which may be micro-ops."""
        count = len(self.dram_in) // UOP_BYTES
        buffers = (
            [Buffer(UOP_BUFFER, (count,), 32, kind="constant", data=self.dram_in[: count * UOP_BYTES])] if count else []
        )
        words = self.dram_in[self.insn_addr : self.insn_addr + self.insn_count * INSN_BYTES].copy()
        insn = words.view("<u8").astype(np.uint64).reshape(-1, 2)
        return Launch(self.cfg, self.name, insn, np.full(len(insn), -1, np.int32), buffers)


@dataclass(frozen=True)
class ReplayResult:
    """Result of a case: `detail` is one line that says why it failed, empty where it passed.

    `ran`: whether the program came to its end; `seconds` that took.
    """

    case: Case
    passed: bool
    detail: str
    stats: Stats
    ran: bool = True
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The case's."""
        return self.case.name


def replay_case(path: str | Path, on: str = "model", **options: object) -> ReplayResult:
    """Run the case in the file `path` on the device named `on`, opened with `options`, and compare memory.

    Raises `FileError` for a file that is not a case, `ConfigError` for an invalid configuration.
    """
    case = read_case(path)
    device = open_device(on, case.cfg, **options)
    run_image = getattr(device, "run_image", None)
    if run_image is None:
        raise UnsupportedError(
            f"device {on!r} cannot replay cases, which need memory at fixed addresses; use model, spec, timing or rtl"
        )
    image, start = case.dram_in.copy(), time.perf_counter()
    try:
        stats = run_image(image, case.insn_addr, case.insn_count)
    except (ProgramError, UnsupportedError) as exc:
        return ReplayResult(case, False, str(exc), Stats(), ran=False)
    seconds, detail = time.perf_counter() - start, _difference(image, case)
    return ReplayResult(case, not detail, detail, stats, seconds=seconds)


def read_case(path: str | Path) -> Case:
    """The case in the file `path`. Raises `FileError` for a file that is not one."""
    arrays = _arrays(path)
    for key, dtype in (("dram_in", np.uint8), ("dram_out", np.uint8)):
        if arrays[key].dtype != dtype or arrays[key].ndim != 1:
            raise FileError(f"{path}: {key} is {arrays[key].dtype} {arrays[key].shape}, must be uint8 (n,)")
    dram_in, dram_out = np.ascontiguousarray(arrays["dram_in"]), arrays["dram_out"]
    if dram_in.shape != dram_out.shape:
        raise FileError(f"{path}: dram_in has {len(dram_in)} bytes, dram_out {len(dram_out)}")
    if not len(dram_in):
        raise FileError(f"{path}: dram_in has no bytes; it must hold the whole memory")
    meta = _meta(path, arrays["meta"])
    try:
        cfg = load_config(meta["config"])
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc}") from None
    address, count = meta["insn_addr"], meta["insn_count"]
    end = address + count * INSN_BYTES
    if end > len(dram_in):
        raise FileError(f"{path}: instructions at {address:#x} to {end:#x} are outside its memory")
    case = Case(meta.get("name", Path(path).stem), cfg, dram_in, dram_out, address, count, meta.get("buffers", []))
    problem = _copies_differ(case, arrays.get("insn"), arrays.get("uop"))
    if problem:
        raise FileError(f"{path}: {problem}")
    return case


def write_case(
    path: str | Path, cfg: Config, dram_in: np.ndarray, dram_out: np.ndarray, insn_addr: int, insn_count: int
) -> None:
    """Write a case: memory before and after, uint8 (n,) each, and where in it the instructions are."""
    meta = {"name": Path(path).stem, "config": cfg.to_dict(), "insn_addr": insn_addr, "insn_count": insn_count}
    np.savez_compressed(path, dram_in=dram_in, dram_out=dram_out, meta=np.array(json.dumps(meta)))


def _meta(path: str | Path, member: np.ndarray) -> dict:
    meta = parse_json(str(member[()]), f"{path}: meta")
    _check(path, "meta", meta, ("insn_addr", "insn_count", "config"), ("name", "buffers"))
    for k, buffer in enumerate(meta.get("buffers", [])):
        _check(path, f"meta.buffers[{k}]", buffer, ("name", "addr", "size"))
    return meta


def _check(path: str | Path, where: str, values: object, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    if not isinstance(values, dict):
        raise FileError(f"{path}: {where} is {reprlib.repr(values)}, must be an object")
    for key in (*required, *optional):
        if key in values:
            allowed, text = _FIELDS[key]
            if not allowed(values[key]):
                raise FileError(f"{path}: {where}.{key} is {reprlib.repr(values[key])}, must be {text}")
        elif key in required:
            raise FileError(f"{path}: {where} lacks {key}")


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _is_config(value: object) -> bool:
    return isinstance(value, dict) or (
        _is_text(value) and not str(value).endswith(".json")
    )  # a case refers to no other file


_COUNT = (_is_count, "an integer from 0 to 2**63 - 1")
_TEXT = (_is_text, "text of printable characters")
_FIELDS = {
    "insn_addr": _COUNT,
    "insn_count": _COUNT,
    "config": (_is_config, "a preset, a VTA string or the fields of a configuration"),
    "name": _TEXT,
    "buffers": (lambda v: isinstance(v, list), "a list"),
    "addr": _COUNT,
    "size": _COUNT,
}


def _copies_differ(case: Case, insn: np.ndarray | None, uop: np.ndarray | None) -> str:
    """A message where the members `insn` or `uop` differ from memory, which is executed; empty where they agree."""
    region = case.dram_in[case.insn_addr : case.insn_addr + case.insn_count * INSN_BYTES]
    words = np.frombuffer(region.tobytes(), "<u8").reshape(-1, 2)
    if insn is not None:
        if insn.dtype != np.uint64 or insn.shape != words.shape:
            return f"insn is {insn.dtype} {insn.shape}, must be uint64 {words.shape} as meta.insn_count says"
        wrong = np.flatnonzero((insn != words).any(axis=1))
        if len(wrong):
            return f"insn and dram_in differ in {len(wrong)} instructions; the first is instruction {wrong[0]}"
    return "" if uop is None else _uops_differ(case, words, uop)


def _uops_differ(case: Case, words: np.ndarray, uop: np.ndarray) -> str:
    if uop.dtype != np.uint32 or uop.ndim != 1:
        return f"uop is {uop.dtype} {uop.shape}, must be uint32 (n,)"
    done = 0
    for f in Isa(case.cfg).decode(words):
        row = instruction(f["op"], f.get("mem"))
        if row is not None and row.loads in MICRO_OPS:
            start, count = f["dram_base"] * UOP_BYTES, f["x_size"]
            loaded = np.frombuffer(case.dram_in[start : start + count * UOP_BYTES].tobytes(), np.uint8)
            if len(loaded) < count * UOP_BYTES:
                return ""  # reads beyond memory: executing it reports that
            if not np.array_equal(uop[done : done + count], loaded.view("<u4")):
                return f"uop and dram_in differ between micro-ops {done} and {done + count - 1}"
            done += count
    return "" if done == len(uop) else f"uop has {len(uop)} micro-ops, the program loads {done}"


def _arrays(path: str | Path) -> dict[str, np.ndarray]:
    check_format(path, "a recorded case, .npz", ARRAYS)
    arrays = read_npz(path)
    missing = [key for key in ("dram_in", "dram_out", "meta") if key not in arrays]
    if missing:
        raise FileError(f"{path}: not a case: it lacks {', '.join(missing)}")
    return arrays


def _difference(image: np.ndarray, case: Case) -> str:
    wrong = np.flatnonzero(image != case.dram_out)
    if not len(wrong):
        return ""
    at = int(wrong[0])
    where = next((f" ({b['name']} + {at - b['addr']})" for b in case.buffers if 0 <= at - b["addr"] < b["size"]), "")
    return (
        f"{len(wrong)} of {len(image)} bytes differ; the first at {at:#x}{where}: "
        f"expected {case.dram_out[at]}, got {image[at]}"
    )
