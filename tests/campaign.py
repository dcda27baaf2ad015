"""Damaged `.tw` files, many of them: a part of `make campaign`, or `.venv/bin/python tests/campaign.py --files N`.

Damaged copies of two files are loaded, verified and run (tests/fuzz_tw.py). The exit status is 1 where anything but a
named error escapes.
"""

import argparse
import runpy
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def main(arguments: list[str] | None = None) -> int:
    """Run them, print what came of them; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    fuzz, programs = (runpy.run_path(str(TESTS / name)) for name in ("fuzz_tw.py", "test_fuzz_tw.py"))
    escaped = 0
    for make, share in (("two_launches", 0.6), ("every_operator", 0.4)):
        count = round(share * args.files)
        counts, out = fuzz["campaign"](programs[make]().to_bytes(), range(args.seed, args.seed + count))
        print(f"{count} damaged copies of a .tw file ({make}): {len(out)} escaped")
        for name, number in counts.most_common():
            print(f"{number:6} {name}")
        print(*(f"seed {seed}:\n{text}" for seed, text in out), sep="\n")
        escaped += len(out)
    return int(bool(escaped))


if __name__ == "__main__":
    sys.exit(main())
