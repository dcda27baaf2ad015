"""Replaying a recorded case: a program with its memory before and after, in one .npz file.

| field | type | content |
|---|---|---|
| `insn` | uint64 (n, 2) | the instructions, the same bytes as `dram_in` at `insn_addr` |
| `uop` | uint32 (n,) | the micro-ops that the program loads, in its order |
| `dram_in`, `dram_out` | uint8 (n,) | memory before and after; the index is the byte address |
| `meta` | JSON text | `name`, `insn_addr`, `insn_count`, `config`, `buffers` [{`name`, `addr`, `size`}] |

`config` is a preset, a VTA string or the fields of a configuration; `name` and `buffers` only serve messages. A
case passes when all of memory equals `dram_out` after the run and no dependence token is left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from ..hw.config import Config, load_config
from ..hw.errors import ConfigError, FileError, ProgramError, UnsupportedError
from ..runtime.device import Stats, open_device
from ..runtime.files import read_npz


@dataclass(frozen=True)
class Case:
    """A case as read; `meta` holds what the file says beyond its arrays."""

    name: str
    cfg: Config
    dram_in: np.ndarray
    dram_out: np.ndarray
    insn_addr: int
    insn_count: int
    buffers: list[dict] = field(default_factory=list)


@dataclass(frozen=True)
class ReplayResult:
    """What became of a case: `detail` is one line that says why it failed, empty where it passed."""

    name: str
    passed: bool
    detail: str
    stats: Stats


class ImageDevice(Protocol):
    """A device that can execute in a memory given to it whole."""

    def run_image(self, image: np.ndarray, insn_address: int, insn_count: int) -> Stats:
        """Execute the instructions at `insn_address` of `image` to FINISH, in place."""
        ...


def replay_case(path: str | Path, on: str = "model", **options: object) -> ReplayResult:
    """Run the case in the file `path` on the device named `on`, opened with `options`, and compare memory.

    Raises `FileError` for a file that is no case, `ConfigError` for a configuration that cannot be.
    """
    case = read_case(path)
    device = open_device(on, case.cfg, **options)
    run_image = getattr(device, "run_image", None)
    if run_image is None:
        raise UnsupportedError(f"device {on!r} cannot replay cases: it has no memory at given addresses")
    image = case.dram_in.copy()
    try:
        stats = run_image(image, case.insn_addr, case.insn_count)
    except (ProgramError, UnsupportedError) as exc:
        return ReplayResult(case.name, False, str(exc), Stats())
    detail = _difference(image, case)
    return ReplayResult(case.name, not detail, detail, stats)


def read_case(path: str | Path) -> Case:
    """The case in the file `path`. Raises `FileError` in one line where it is none."""
    arrays = _arrays(path)
    for key, dtype in (("dram_in", np.uint8), ("dram_out", np.uint8)):
        if arrays[key].dtype != dtype or arrays[key].ndim != 1:
            raise FileError(f"{path}: {key} is {arrays[key].dtype} {arrays[key].shape}, must be uint8 (n,)")
    dram_in, dram_out = np.ascontiguousarray(arrays["dram_in"]), arrays["dram_out"]
    if dram_in.shape != dram_out.shape:
        raise FileError(f"{path}: dram_in has {len(dram_in)} bytes, dram_out {len(dram_out)}")
    try:
        meta = json.loads(str(arrays["meta"][()]))
        address, count, config = int(meta["insn_addr"]), int(meta["insn_count"]), meta["config"]
        buffers = [b for b in meta.get("buffers", []) if {"name", "addr", "size"} <= set(b)]
        name = str(meta.get("name", Path(path).stem))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise FileError(f"{path}: meta is not the JSON of a case ({type(exc).__name__}: {exc})") from None
    if not isinstance(config, (str, dict)):
        raise FileError(f"{path}: meta.config is {config!r}, must be a name or the fields of a configuration")
    try:
        cfg = load_config(config)
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc}") from None
    return Case(name, cfg, dram_in, dram_out, address, count, buffers)


def _arrays(path: str | Path) -> dict[str, np.ndarray]:
    arrays = read_npz(path)
    missing = [key for key in ("dram_in", "dram_out", "meta") if key not in arrays]
    if missing:
        raise FileError(f"{path}: no case, it lacks {', '.join(missing)}")
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
