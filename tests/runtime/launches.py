"""Launches made by hand or changed in one place, and program files with another manifest."""

import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import RaceError
from tilewright.hw.isa import Isa, Mem
from tilewright.hw.units import FLAGS
from tilewright.runtime.executable import Executable
from tilewright.runtime.launch import Launch
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify, without_pair


def product(seed: int, at: int = 0, loaded: int = 4) -> tuple[Program, np.ndarray]:
    """(y = w @ x for `tiny`, on 16 rows of constant weights; the weights).

    The first `loaded` entries of the weights are loaded to entry `at`.
    """
    w = np.random.default_rng(seed).integers(-8, 8, (16, 4)).astype(np.int8)
    program = Program(PRESETS["tiny"], f"product_{seed}")
    x, y = program.buffer("x", (1, 1, 4)), program.buffer("y", (4, 1, 4), kind="output")
    weights = program.buffer("w", (4, 4, 4), kind="constant", data=w.view(np.uint8).reshape(-1))
    program.load(Mem.INP, 0, x, 0, x_size=1)
    program.load(Mem.WGT, at, weights, 0, x_size=loaded)
    program.gemm([(4, 1, 0, 1)], reset=True)
    program.gemm([(4, 1, 0, 1)], wgt=at)
    program.store(0, y, 0, x_size=4)
    return program, w


def resident(program: Program) -> Executable:
    """An executable of `program` whose second run loads no constants that the first left on chip."""
    return Executable.from_launch(program.finish()).resident()


def hand_written(cfg, *rows, buffers=()):
    """A launch of rows (format, fields); loads count from the first of `buffers`, where there are any."""
    isa = Isa(cfg)
    insn = np.concatenate([isa.formats[name].encode(1, **fields) for name, fields in rows])
    reloc = [0 if buffers and name == "LOAD" else -1 for name, _ in rows]
    return Launch(cfg, "hand", insn, np.array(reloc, np.int32), list(buffers))


def first_of(launch, name):
    """The position of the first instruction with the mnemonic `name`, NOPs apart."""
    isa = Isa(launch.cfg)
    return next(k for k, f in enumerate(isa.decode(launch.insn)) if isa.mnemonic(f) == name and f.get("x_size", 1))


def changed(launch, k, **fields):
    """`launch` with other `fields` of instruction `k`."""
    isa, insn = Isa(launch.cfg), launch.insn.copy()
    f = isa.decode(insn)[k] | fields
    form = isa.format_of(f)
    assert form is not None
    insn[k] = form.encode(1, **{name: f[name] for name in form.fields})[0]
    return replace(launch, insn=insn)


def mnemonics(launch):
    """The names of all instructions but NOPs."""
    isa = Isa(launch.cfg)
    return [isa.mnemonic(f) for f in isa.decode(launch.insn) if "x_size" not in f or f["x_size"]]


def token_flags(launch):
    """The name and the flags of every instruction but loads of micro-ops."""
    isa, lines = Isa(launch.cfg), []
    for f in isa.decode(launch.insn):
        if isa.mnemonic(f) != "LOAD.UOP":
            lines.append(" ".join([isa.mnemonic(f), *(flag for flag in FLAGS if f.get(flag))]))
    return lines


def races_without_a_pair(launch, errors: type[Exception] | tuple[type[Exception], ...] = RaceError):
    """Without any one of its token pairs `launch` has a race, unless the proof says that the pair is implied."""
    report, races = verify(launch), 0
    for pair in report.pairs:
        if pair.implied:
            verify(without_pair(launch, pair))
        else:
            with pytest.raises(errors):
                verify(without_pair(launch, pair))
            races += 1
    assert races == len(report.pairs) - report.implied
    return races


def members(data):
    """The contents of the files in the archive `data`, by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {name: z.read(name) for name in z.namelist()}


def zipped(files):
    """The bytes of an archive of `files`, contents by name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in files.items():
            z.writestr(name, data)
    return out.getvalue()


def rewritten(data, change):
    """The archive `data` after `change` of its manifest."""
    files = members(data)
    manifest = json.loads(files["manifest.json"])
    change(manifest)
    return zipped(files | {"manifest.json": json.dumps(manifest)})
