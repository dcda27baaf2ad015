"""Faults on the simulated circuit, many of them: `make faults`, or `python -m tools.faults.command --count N`.

Errors and stalls of the buses, resets, corrupt instructions, programs that end too early, writes to registers
(tools/faults/kinds.py), on random programs of `--config` and on recorded cases. Prints a table by kind, what bus errors
hit, where behavioural model and circuit differ, and each defect. The exit status is 1 where there is one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

from tilewright.hw.config import Config
from tilewright.hw.errors import ExecutionError
from tilewright.hw.isa import INSN_BYTES, Isa
from tilewright.hw.regs import Command
from tilewright.hw.rtl.latencies import BURST_BEATS
from tilewright.hw.stages import bus_bits
from tilewright.runtime.access import dram_access
from tilewright.sim.dram import Dram
from tools.fuzz.command import configurations

from .compare import SAME, UNEXPLAINED, Case, Result, difference, random_program, recorded_cases, stored
from .kinds import KINDS, End, FaultyDevice, Trial, Undisturbed, bus_channels

_TOGETHER = 30  # trials of one program


@dataclass
class Row:
    """How many trials of a kind were tried, and how they ended.

    `error`: in the error register. `right`: done, with the right memory. `stopped`: idle after a reset. `unlike`:
    done, unlike the model, for a reason (tools/faults/compare.py). `wrong`: any other end, and `hung`: none.
    `next_right`: the run after it was right.
    """

    tried: int = 0
    error: int = 0
    right: int = 0
    stopped: int = 0
    unlike: int = 0
    wrong: int = 0
    hung: int = 0
    next_right: int = 0


@dataclass
class Found:
    """Results of a campaign: rows and error codes by kind, mnemonics of instructions hit by bus errors, differences
    between model and circuit by (difference, reason), and one text per defect."""

    rows: dict[str, Row] = field(default_factory=lambda: {kind: Row() for kind in KINDS})
    codes: Counter[tuple[str, str]] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    differences: Counter[tuple[str, str]] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)


def campaign(cases: Iterable[Case], trials: int, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> Found:
    """Try `trials` faults of `kinds`, which `seed` makes, on `cases`, `_TOGETHER` on each, with memories that stall at
    random. Raises `ExecutionError` for a case that fails without a fault.
    """
    found, done = Found(), 0
    for number, case in enumerate(cases):
        rng = np.random.default_rng([seed, number])
        device = FaultyDevice(case.cfg, Dram.random(int(rng.integers(1 << 31))))
        run = _undisturbed(device, case)
        for _ in range(min(_TOGETHER, trials - done)):
            kind = kinds[int(rng.integers(len(kinds)))]
            _try(found, device, run, kind, rng, f"{case.name}, seed {seed}, case {number}, trial {done}")
            done += 1
        device.close()
        if done >= trials:
            break
    return found


def programs(cfgs: Sequence[Config], recorded: Sequence[Case], seed: int) -> Iterator[Case]:
    """Endless random programs of `cfgs` in turn; one of `recorded` follows each turn."""
    for number in count():
        for k, cfg in enumerate(cfgs):
            yield random_program(cfg, (seed << 20) + number * len(cfgs) + k)
        if recorded:
            yield recorded[number % len(recorded)]


def _undisturbed(device: FaultyDevice, case: Case) -> Undisturbed:
    image = case.image.copy()
    end = device.attempt(image, case.address, case.count)
    if end.what != "done" or not np.array_equal(image, case.expected):
        raise ExecutionError(f"{case.name} fails without a fault: {end.text or 'another result'}")
    sim = device.sim
    return Undisturbed(case, sim.read("CYCLES"), {name: sim.seen(name) for name in bus_channels(case.cfg)})


def _try(found: Found, device: FaultyDevice, run: Undisturbed, kind: str, rng: np.random.Generator, name: str) -> None:
    trial = KINDS[kind](run, rng)
    if trial is None:
        return
    row, case = found.rows[kind], run.case
    row.tried += 1
    if trial.compared:
        device.close()  # its result may depend on what the scratchpads hold: the model begins with zeros, too
    before = trial.image.copy()
    end = device.attempt(trial.image, trial.address, trial.count, trial.disturbances, trial.acts, trial.watchdog)
    hit = device.sim.hit(trial.channel) if trial.channel else None
    what, why = _judge(found, case, trial, before, end, hit)
    setattr(row, what, getattr(row, what) + 1)
    if end.what == "error":
        found.codes[kind, end.code.name] += 1
    if hit is not None and what == "error":
        found.hits[_hit(case, end, hit)] += 1
    if what in ("wrong", "hung"):
        found.defects.append(f"{kind}: {name}: {why}: {end}")
    if rng.integers(2) and end.what != "hung":
        device.sim.write("CONTROL", Command.RESET)
    image = case.image.copy()
    after = device.attempt(image, case.address, case.count)
    if after.what == "done" and np.array_equal(image, case.expected):
        row.next_right += 1
    else:
        found.defects.append(f"{kind}: {name}: the next run: {after}")


def _judge(found: Found, case: Case, trial: Trial, before: np.ndarray, end: End, hit: int | None) -> tuple[str, str]:
    """(the count of `Row`, why it is a defect)."""
    if end.what == "hung":
        return "hung", "hung"
    if trial.late:
        return "wrong", trial.late[0]
    allowed = stored(case.cfg, before, trial.address, trial.count)
    if not np.array_equal(trial.image[~allowed], before[~allowed]):
        return "wrong", "it wrote where no STORE does"
    if trial.compared:
        return _compare(found, case, trial, before, end)
    what = "right" if end.what == "done" else end.what
    if what not in trial.ends:
        return "wrong", f"{what}, expected {' or '.join(trial.ends)}"
    if what == "right" and not np.array_equal(trial.image, case.expected):
        return "wrong", "a wrong result, reported as right"
    if what == "error" and end.code not in trial.codes:
        return "wrong", "another error"
    if what == "error" and trial.channel and (hit is None or not _touches(case, end.index, hit)):
        return "wrong", f"the error at address {hit} is not this instruction's"
    return what, ""


def _compare(found: Found, case: Case, trial: Trial, before: np.ndarray, end: End) -> tuple[str, str]:
    """Judge a changed program by the behavioural model."""
    memory = trial.image.tobytes() if end.what == "done" else b""
    what, reason = difference(case.cfg, before, trial.address, trial.count, Result(end.error, end.index, memory))
    if what != SAME:
        found.differences[what, reason] += 1
    if reason == UNEXPLAINED:
        return "wrong", what
    if end.what == "error":
        return "error", ""
    return ("right" if what == SAME else "unlike"), ""


def _hit(case: Case, end: End, address: int) -> str:
    """The access that a bus error hit: "fetch", or the mnemonic of the instruction."""
    if case.address <= address < case.address + INSN_BYTES * case.count:
        return "fetch"
    (f,) = Isa(case.cfg).decode(_words(case, end.index or 0))
    return Isa(case.cfg).mnemonic(f)


def _touches(case: Case, index: int | None, address: int) -> bool:
    """Whether instruction `index` reads or writes in the burst at `address`, or stands in the beat there."""
    if index is None or index >= case.count:
        return False
    beat = case.cfg.axi_bits // 8
    at = case.address + INSN_BYTES * index
    if at < address + beat and address < at + INSN_BYTES:
        return True
    (f,) = Isa(case.cfg).decode(_words(case, index))
    access = dram_access(case.cfg, f)
    if access is None:
        return False
    length = BURST_BEATS * beat if access.write else bus_bits(case.cfg, f["mem"]) // 8  # two ports' beats are one read
    begin, spans = address // beat * beat if access.write else address // length * length, access.spans()
    return bool(((spans[:, 0] < begin + length) & (spans[:, 1] > begin)).any())


def _words(case: Case, index: int) -> np.ndarray:
    at = case.address + INSN_BYTES * index
    return case.image[at : at + INSN_BYTES].view("<u8").reshape(1, 2)


CONFIGS = ("tiny", "tiny_two", "pynq_z1")


def table(found: Found) -> str:
    """The counts by kind in Markdown."""
    lines = [
        "| fault | tried | ended in an error | stopped | right | unlike the model | wrong | hung | next run right |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    sums = [0] * 8
    for kind, row in found.rows.items():
        values = [row.tried, row.error, row.stopped, row.right, row.unlike, row.wrong, row.hung, row.next_right]
        sums = [a + b for a, b in zip(sums, values)]
        lines.append(f"| {kind} | {' | '.join(map(str, values))} |")
    return "\n".join([*lines, f"| all | {' | '.join(map(str, sums))} |"])


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign of the command line and print its results; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--config",
        action="append",
        help="a preset or one of the fuzzer's, such as wide; may be repeated; tiny, tiny_two and pynq_z1 without",
    )
    parser.add_argument("--cases", type=Path, help="a folder of recorded cases")
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be repeated; all without")
    args = parser.parse_args(arguments)
    start = time.monotonic()
    recorded = recorded_cases(args.cases) if args.cases else []
    cfgs = configurations(args.config or CONFIGS)
    found = campaign(programs(cfgs, recorded, args.seed), args.count, args.seed, args.kind or tuple(KINDS))
    print(
        f"{args.count} faults, seed {args.seed}, {', '.join(cfg.name for cfg in cfgs)}, {len(recorded)} recorded cases:"
    )
    print(table(found))
    print("errors by kind:", ", ".join(f"{kind} {code} {n}" for (kind, code), n in sorted(found.codes.items())))
    print("bus errors hit:", ", ".join(f"{what} {n}" for what, n in found.hits.most_common()))
    print("model / circuit, where they differ:")
    print(*(f"{n:6} {what}; {why}" for (what, why), n in found.differences.most_common()), sep="\n")
    print(f"{len(found.defects)} defects, {time.monotonic() - start:.0f} s")
    print(*found.defects, sep="\n")
    return int(bool(found.defects))


if __name__ == "__main__":
    sys.exit(main())
