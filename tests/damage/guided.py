"""Damage that coverage guides, by atheris: `make atheris SECONDS=n`, or `.venv/bin/python -m tests.damage.guided`.

libFuzzer changes the samples of tests/damage/formats.py for SECONDS a format, keeps what reaches new branches of
tilewright's code, and goes on from there; half of the changes are those of tests/damage/changes.py. Anything but a
named error is a finding: its file and traceback stay in build/atheris, one for each place, and the exit status is 1.
What was reached stays there, too, so that the next run goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "atheris"
_BASE = 1 << 30  # bytes that a process with TVM takes before it reads
_DAMAGED = 5  # of 10 changes are those of tests/damage/changes.py


def folder_of(name: str) -> Path:
    """Where the files of a format are."""
    return FOLDER / re.sub(r"\W+", "_", name)


def one(name: str, seconds: int, seed: int) -> None:
    """Fuzz a format in this process, which libFuzzer ends."""
    import atheris

    folder = folder_of(name)
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["tilewright"]):  # all that this process imports of it
        from tests.damage.formats import FORMATS
        from tests.damage.judge import MEMORY, SECONDS
        from tilewright.hw.errors import TilewrightError

        form = FORMATS[name]
        path = folder / f"now{form.suffix}"
        for sample in form.make():
            path.write_bytes(sample)
            form.read(path)
            (corpus / hashlib.sha1(sample).hexdigest()).write_bytes(sample)
    warnings.simplefilter("ignore")

    def read(data: bytes) -> None:
        path.write_bytes(data)
        try:
            form.read(path)
        except TilewrightError:
            return
        except Exception as exc:
            places = [f"{f.filename}:{f.lineno}" for f in traceback.extract_tb(exc.__traceback__)[-3:]]
            found = folder / f"finding_{hashlib.sha1(' '.join(places).encode()).hexdigest()[:12]}"
            if not found.exists():
                found.write_bytes(data)
                found.with_suffix(".txt").write_text(traceback.format_exc())

    def change(data: bytes, most: int, seed: int) -> bytes:
        if data and seed % 10 < _DAMAGED:
            try:
                return form.damage(data, seed)[:most]
            except Exception:  # what is damaged already is no archive any more, perhaps
                return atheris.Mutate(data, most)
        return atheris.Mutate(data, most)

    limits = [f"-timeout={SECONDS:.0f}", f"-rss_limit_mb={(_BASE + MEMORY) >> 20}", f"-malloc_limit_mb={MEMORY >> 20}"]
    most = 2 * max(len(sample) for sample in form.make())
    options = [f"-max_total_time={seconds}", f"-max_len={most}", "-print_final_stats=1", f"-seed={seed + 1}"]
    arguments = [*limits, *options, f"-artifact_prefix={folder}/finding_", str(corpus)]
    atheris.Setup([sys.argv[0], *arguments], read, custom_mutator=change)
    atheris.Fuzz()


def run(name: str, seconds: int, seed: int) -> tuple[int, int, int, list[Path]]:
    """(files read, branches reached at the start and at the end, findings) of a format, in a process of its own."""
    folder = folder_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "tests.damage.guided",
        "--one",
        name,
        "--seconds",
        str(seconds),
        "--seed",
        str(seed),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    (folder / "log.txt").write_text(done.stderr)
    reached = [int(n) for n in re.findall(r" cov: (\d+) ", done.stderr)] or [0]
    count = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    found = [path for path in sorted(folder.glob("finding_*")) if path.suffix != ".txt"]
    if count is None and not found:
        raise SystemExit(f"{name}: atheris ended with status {done.returncode}: {done.stderr[-2000:]}")
    return int(count[1]) if count else 0, reached[0], reached[-1], found


def main(arguments: list[str] | None = None) -> int:
    """Fuzz the formats that the command line asks for, print what came of it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.guided", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="a format; can be repeated")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        one(args.one, args.seconds, args.seed)
        os._exit(0)
    from tests.damage.formats import FORMATS  # not before: atheris marks the branches of what is imported after it

    wrong = [name for name in args.only or () if name not in FORMATS]
    if wrong:
        parser.error(f"no format {wrong[0]!r}; there are {', '.join(FORMATS)}")
    print("| format | seconds | files read | branches at first | at last | findings |")
    print("|---|--:|--:|--:|--:|--:|")
    failed = 0
    for name in args.only or FORMATS:
        count, before, after, found = run(name, args.seconds, args.seed)
        failed += len(found)
        print(f"| {name} | {args.seconds} | {count:,} | {before:,} | {after:,} | {len(found)} |", flush=True)
        print(*(f"  {path.relative_to(ROOT)}" for path in found), sep="\n", end="\n" if found else "")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
