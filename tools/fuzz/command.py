"""`make fuzz`: random programs on definition, behavioural model, timing model and circuit, until the time is over.

What differs is made shorter, written as a case, and the exit status is 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from tilewright.cli import report
from tilewright.cli.options import json_option
from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import Config, load_config
from tilewright.hw.errors import ExecutionError, UnsupportedError
from tilewright.hw.isa import FLAGS, INSN_BYTES, Op, known_isa
from tilewright.hw.units import channels
from tilewright.sim.model.device import at_random
from tilewright.sim.replay import write_case
from tilewright.sim.spec import SpecDevice
from tools.configs import random_config
from tools.faults.compare import executed, replace_by_nop

from .compare import Coverage, Devices, Difference, Found, compared, memory
from .programs import CONFIGS, TOGETHER, Generated, generated

_ORDERS = 4  # random ones in which a program is run to see that its result does not depend on the order
_MOST = 500  # programs that are tried


class _Shrinker:
    def __init__(self, cfg: Config, program: Generated, differs: Callable[[Generated], bool]):
        self.cfg, self.isa, self.program, self._differs = cfg, known_isa(cfg), program, differs
        self.left = _MOST

    def accept(self, words: np.ndarray) -> bool:
        """Go on with the instructions `words` where these show the difference, too."""
        if not self.left or np.array_equal(words, self.program.words):
            return False
        self.left -= 1
        new = with_words(self.program, words)
        if not self._differs(new) or (new.legal and not settled(self.cfg, new)):
            return False
        self.program = new
        return True

    def idle_runs(self) -> None:
        """Replace instructions by NOPs that exchange tokens: half of the program, quarters, single instructions."""
        size = self.program.count
        while size:
            for start in range(0, self.program.count - 1, size):
                image = self.program.image.copy()
                for k in range(start, min(start + size, self.program.count - 1)):
                    replace_by_nop(self.isa, image, self.program.address, k)
                self.accept(Generated(0, image, self.program.address, self.program.count).words)
            size //= 2

    def drop(self) -> None:
        """Without instructions that have no tokens, from the last on."""
        for k in range(self.program.count - 2, -1, -1):
            (f,) = self.isa.decode(self.program.words[k : k + 1])
            if not any(f[flag] for flag in FLAGS):
                self.accept(np.delete(self.program.words, k, axis=0))

    def drop_tokens(self) -> None:
        """Without a token and the one that waits for it, of every channel."""
        for channel in channels(self.cfg):
            at = 0
            while True:
                fields = self.isa.decode(self.program.words)
                queues = [self.isa.queue(f) for f in fields]
                pushes = [k for k, f in enumerate(fields) if queues[k] == channel.source and f[channel.push]]
                pops = [k for k, f in enumerate(fields) if queues[k] == channel.target and f[channel.pop]]
                if at >= min(len(pushes), len(pops)):
                    break
                words, head = self.program.words, self.isa.formats["FINISH"].fields
                for k, flag in ((pushes[at], channel.push), (pops[at], channel.pop)):
                    words[k, 0] &= ~np.uint64(1 << head[flag].lo)
                at += not self.accept(words)

    def lower(self) -> None:
        """Lower the values of fields to 0, 1, or their half."""
        for k in range(self.program.count - 1):
            f = self.isa.decode(self.program.words[k : k + 1])[0]
            form = self.isa.format_of(f)
            assert form is not None
            for name in form.fields:
                if name in ("op", "mem", "alu_op", *FLAGS):
                    continue
                for value in dict.fromkeys((0, 1, f[name] // 2)):
                    if abs(value) < abs(f[name]):
                        words = self.program.words
                        words[k] = form.encode(1, **{**f, name: value})[0]
                        if self.accept(words):
                            f[name] = value
                            break


def with_words(program: Generated, words: np.ndarray) -> Generated:
    """`program` with the instructions `words`, uint64 (n, 2), not more than it has."""
    image, end = program.image.copy(), program.address + INSN_BYTES * len(words)
    image[program.address : end] = np.ascontiguousarray(words).view(np.uint8).reshape(-1)
    return Generated(program.seed, image, program.address, len(words), program.legal)


def settled(cfg: Config, program: Generated) -> bool:
    """Whether `program` ends well and with the same memory in random orders: a shortened program may race."""
    results, rng = [], np.random.default_rng(0)
    for choose in (min, *(at_random(rng) for _ in range(_ORDERS))):
        image = program.image.copy()
        try:
            SpecDevice(cfg, choose=choose).run_image(image, program.address, program.count)
        except ExecutionError:
            return False
        results.append(image)
    return all(np.array_equal(results[0], other) for other in results[1:])


def shrink(cfg: Config, program: Generated, differs: Callable[[Generated], bool]) -> Generated:
    """The shortest program found for which `differs` holds, as it does for `program`."""
    found = _Shrinker(cfg, program, differs)
    count = None
    while count != found.program.count:
        count = found.program.count
        found.idle_runs()
        found.drop()
        found.drop_tokens()
        found.drop()
    found.lower()
    return found.program


def listing(cfg: Config, program: Generated) -> list[str]:
    """The disassembly, a line per instruction."""
    isa = known_isa(cfg)
    return [f"{k:4} {isa.disassemble(f)}" for k, f in enumerate(isa.decode(program.words)) if f["op"] in list(Op)]


_SPAN = 1 << 20  # of seeds: so far are those of two values of --seed apart
_CASES = 1  # differences that are made shorter: that takes hundreds of runs, and the others may have the same reason
_RANDOM_CONFIGS = 4  # drawn at random in every round, without their circuits


@dataclass(frozen=True)
class Job:
    """Programs `first` to `first + count` on `cfg`, with or without its circuit."""

    cfg: Config
    first: int
    count: int
    circuit: bool


def work(job: Job) -> Found:
    """Run and compare the programs of `job`."""
    return compared(job.cfg, job.first, job.count, circuit=job.circuit)


@click.command()
@click.option(
    "--seconds", default=60.0, show_default=True, type=click.FloatRange(0), help="Begin no round after these."
)
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1), help="Processes at a time.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Which programs.")
@click.option("--config", "names", multiple=True, help="A configuration of the fuzzer's or a preset; its own if none.")
@click.option("--circuits/--no-circuits", default=True, help="Simulate circuits, which are built where none is cached.")
@click.option("--folder", default="build/fuzz", show_default=True, help="Where cases of differences are written.")
@json_option
def command(
    seconds: float, jobs: int, seed: int, names: tuple[str, ...], circuits: bool, folder: str, as_json: bool
) -> int:
    """Run random programs everywhere and compare memory, errors, counts and cycles.

    Each round has programs on every configuration, and on some that are drawn at random, without circuits. The exit
    status is 1 where anything differs.
    """
    from tilewright.apps.explore.cluster import workers
    from tilewright.compiler.jobs import run

    cfgs, totals, start, number = configurations(names), dict[str, Found](), time.monotonic(), 0
    with report.progress("random programs") as advance, workers(jobs) as pool:
        while not number or time.monotonic() - start < seconds:
            todo = round_of(cfgs, seed, number, circuits, jobs, drawn=not names)
            for outcome in run(work, todo, key=_key, workers=pool).values():
                if outcome.error:
                    raise click.ClickException(f"{outcome.key}: {outcome.error}")
                found = outcome.value
                name = outcome.key.split()[0]
                if name in totals:
                    totals[name].add(found)
                else:
                    totals[name] = found
            number += 1
            advance(0, f"{sum(found.instructions for found in totals.values()):,} instructions")
            if any(found.differences for found in totals.values()):
                break
    took = time.monotonic() - start
    differences = [difference for found in totals.values() for difference in found.differences]
    known = {cfg.name: cfg for cfg in (*cfgs, *_drawn(seed, number))}
    own = {cfg.name for cfg in cfgs}
    cases = [kept(known[d.config], d, folder, circuits and d.config in own) for d in differences[:_CASES]]
    if as_json:
        report.emit_json(_facts(cfgs, totals, seed, took, cases))
    else:
        _show(cfgs, totals, seed, took)
        for line in cases:
            report.say(line)
    return int(bool(differences))


def configurations(names: Sequence[str]) -> list[Config]:
    """The configurations with these names, of the fuzzer or as `load_config` takes them; by default the fuzzer's."""
    own = {cfg.name: cfg for cfg in CONFIGS}
    return [own.get(name) or load_config(name) for name in names] or list(CONFIGS)


def round_of(cfgs: Sequence[Config], seed: int, number: int, circuits: bool, jobs: int, *, drawn: bool) -> list[Job]:
    """The jobs of round `number`: for each configuration five tens of programs per process."""
    count = 5 * TOGETHER  # which has every kind of program
    firsts = [seed * _SPAN + (number * jobs + k) * count for k in range(jobs)]
    todo = [Job(cfg, first, count, circuits) for first in firsts for cfg in cfgs]
    return todo + [Job(cfg, firsts[0], TOGETHER, False) for cfg in (_of_round(seed, number) if drawn else ())]


def _of_round(seed: int, number: int) -> list[Config]:
    """Legal configurations drawn at random, of sizes that random programs and the definition can do with."""
    found, k = [], 1000 * (seed * 1000 + number)
    while len(found) < _RANDOM_CONFIGS:
        cfg, k = random_config(k), k + 1
        depths = (cfg.inp_depth, cfg.wgt_depth, cfg.acc_depth)
        small = cfg.macs_per_cycle <= 256 and max(depths) <= 4096 and "ternary" not in cfg.units
        if small and min(cfg.acc_depth, cfg.inp_depth, cfg.uop_depth) >= 64 and cfg.wgt_depth >= 16:
            try:
                check_buildable(cfg)  # the timing model asks, too
            except UnsupportedError:
                continue
            found.append(cfg)
    return found


def _drawn(seed: int, rounds: int) -> list[Config]:
    return [cfg for number in range(rounds) for cfg in _of_round(seed, number)]


def _key(job: Job) -> str:
    return f"{job.cfg.name} {job.first}"


def kept(cfg: Config, difference: Difference, folder: str, circuit: bool) -> str:
    """Write the case of a difference, shortened if one program alone shows it; returns the lines to print."""

    def differs(program: Generated) -> bool:
        found = Devices(cfg, memory(cfg, difference.seed), circuit=circuit).difference(program, Found())
        return found is not None and found[0] == difference.kind

    program, alone = generated(cfg, difference.seed), "only behind those before it: the case has this program alone"
    if differs(program):
        before = program.count
        program = shrink(cfg, program, differs)
        alone = f"shortened from {before} to {program.count} instructions"
    end, _ = executed(SpecDevice(cfg), program.image, program.address, program.count)
    path = Path(folder) / f"{cfg.name}_{difference.seed}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    after = program.image if end.error else np.frombuffer(end.memory, np.uint8)
    write_case(path, cfg, program.image, after, program.address, program.count)
    text = f"{cfg.name}, seed {difference.seed} (devices since {difference.first}): {difference.text}; {alone}: {path}"
    return "\n".join([text, *listing(cfg, program)])


def _rows(cfgs: Sequence[Config], totals: dict[str, Found]) -> list[tuple[str, Found]]:
    own, drawn = [(cfg.name, totals[cfg.name]) for cfg in cfgs if cfg.name in totals], Found()
    others = [found for name, found in totals.items() if name not in {cfg.name for cfg in cfgs}]
    for found in others:
        drawn.add(found)
    return own + [(f"{len(others)} drawn at random", drawn)] * bool(others)


def _facts(cfgs: Sequence[Config], totals: dict[str, Found], seed: int, took: float, cases: list[str]) -> dict:
    rows = []
    for name, found in _rows(cfgs, totals):
        values = {key: value for key, value in vars(found).items() if key not in ("coverage", "differences", "error")}
        rows.append({"config": name, **values, "differences": len(found.differences)} | _mean(found))
    shares = [vars(share) for share in _coverage(totals).shares(cfgs)]
    return {"seed": seed, "seconds": took, "rows": rows, "cases": cases, "coverage": shares}


def _mean(found: Found) -> dict[str, float]:
    return {"mean": found.error / found.timed if found.timed else 0.0}


def _coverage(totals: dict[str, Found]) -> Coverage:
    every = Coverage()
    for found in totals.values():
        every.add(found.coverage)
    return every


def _show(cfgs: Sequence[Config], totals: dict[str, Found], seed: int, took: float) -> None:
    columns = ["config", "programs", "instructions", "by definition", "on the circuit", "cycles", "ended in errors"]
    columns += ["timing: mean %", "worst %", "differences"]
    rows = [
        [
            *(name, f.programs, f.instructions, f.defined, f.simulated, f.cycles, f.refused),
            *(f"{100 * _mean(f)['mean']:.3f}", f"{100 * f.worst:.2f}", len(f.differences)),
        ]
        for name, f in _rows(cfgs, totals)
    ]
    report.table(columns, rows)
    report.say()
    report.table(["instruction", "executed", "fields", "produced %", "used %", "not all of"], covered(cfgs, totals))
    every = sum(found.instructions for found in totals.values())
    report.say(f"seed {seed}: {every:,} instructions, {took:.0f} s")


def covered(cfgs: Sequence[Config], totals: dict[str, Found]) -> list[list[object]]:
    """A row for each instruction: how much of its fields was produced and used, and where values are missing."""
    coverage = _coverage(totals)
    counts, rows = coverage.instructions(), dict[str, list]()
    for share in coverage.shares(cfgs):
        rows.setdefault(share.instruction, []).append(share)
    table = []
    for name, shares in rows.items():
        runs, produced, used = (sum(getattr(s, key) for s in shares) for key in ("runs", "produced", "used"))
        missing = [f"{s.field} {s.produced}/{s.runs} ({s.low}..{s.high})" for s in shares if s.produced < s.runs]
        percent = [f"{100 * part / runs:.1f}" for part in (produced, used)]
        table.append([name, counts.get(name, 0), len(shares), *percent, ", ".join(missing)])
    return table


if __name__ == "__main__":
    raise SystemExit(command.main(standalone_mode=False))
