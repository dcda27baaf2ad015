"""Faults on the simulated circuit, many of them: `make faults`, or `python -m tools.faults.command --count N`.

Errors and stalls of the buses, resets, corrupt instructions, programs that end too early, writes to registers
(tools/faults/kinds.py), on random programs of `--config` and on recorded cases. Prints a table by kind, what bus errors
hit, where behavioural model and circuit differ, and each defect. The exit status is 1 where there is one.
"""

import argparse
import sys
import time
from pathlib import Path

from tools.fuzz.command import configurations

from .campaign import Found, campaign, programs
from .cases import recorded_cases
from .kinds import KINDS

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
    """Try them, print what came of them; the exit status."""
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
