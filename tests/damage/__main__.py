"""Damaged files of every format: `make damage COUNT=n SEED=s`, or `.venv/bin/python -m tests.damage --count n`.

Each copy is read in a process that may take 20 s a file and 1 GB more than it had. It is accepted or refused by a named
error; a traceback, a process that ends, a file that takes too long or too much memory are failures, and the exit
status is 1.
"""

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.damage.formats import FORMATS
from tests.damage.judge import ACCEPTED, Found, judge

HEAD = "| format | files | accepted | refused by a named error | failures | control bytes | slowest | most memory |\n"
HEAD += "|---|--:|--:|--:|--:|--:|--:|--:|"


def row(name: str, found: Found) -> str:
    """A row of the table, in Markdown."""
    accepted, refused = found.counts[ACCEPTED], found.counts.total() - found.counts[ACCEPTED]
    counts = [accepted + refused + len(found.failures), accepted, refused, len(found.failures), found.controls]
    cells = [name, *(f"{count:,}" for count in counts), f"{found.slowest:.2f} s", f"{found.memory >> 20} MB"]
    return f"| {' | '.join(cells)} |"


def alike(failures: list[tuple[int, str]]) -> dict[str, list[int]]:
    """The seeds of failures that ended in the same place: the last lines of a traceback, or the text."""
    found: dict[str, list[int]] = {}
    for seed, text in failures:
        places = [line for line in text.splitlines() if line.startswith("  File")]
        said = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        found.setdefault("\n".join([*places[-3:], said] if places else [text]), []).append(seed)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Read the files that the command line asks for, print what came of them; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", action="append", choices=FORMATS, help="a format; can be repeated")
    args = parser.parse_args(arguments)
    start = time.perf_counter()
    names = args.only or list(FORMATS)
    seeds = range(args.seed, args.seed + args.count)
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        print(HEAD)
        found = {}
        for name, one in zip(names, pool.map(judge, names, [seeds] * len(names))):
            found[name] = one
            print(row(name, one), flush=True)
    failed = sum(len(one.failures) for one in found.values())
    for name, one in found.items():
        for text, seeds_ in alike(one.failures).items():
            print(f"{name}, {len(seeds_)} files, seed {', '.join(map(str, seeds_[:5]))}: {text}")
    print(f"seed {args.seed}: {failed} failures in {time.perf_counter() - start:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
