"""`tilewright replay`: recorded cases, compared with all of memory afterwards."""

from __future__ import annotations

import click

from ..hw.errors import ConfigError, FileError
from ..sim.replay import replay_case
from . import report
from .options import device_option, device_options, dram_option, json_option, skip_option, waves_option
from .profile import Profile, profile_option


@click.command()
@click.argument("cases", nargs=-1, required=True, metavar="CASE.npz...")
@device_option()
@waves_option
@skip_option
@dram_option
@profile_option
@json_option
def command(
    cases: tuple[str, ...],
    device: str,
    waves: str | None,
    skip: tuple[str, ...],
    dram: str | None,
    profiles: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run recorded cases and compare all of memory with what they recorded.

    Each case names its configuration. The exit status is 0 only if every case matches and leaves no dependence token; a
    file that is not a case counts as failed. A case that stops before its end has no metrics.
    """
    options, rows = device_options(device, waves, skip, dram), []
    profile = Profile(profiles, device, {f"case {k}": path for k, path in enumerate(cases, 1)})
    if waves and len(cases) > 1:
        raise click.UsageError(f"--waves records one case, {len(cases)} are given; give one")
    with report.progress("replaying", len(cases)) as advance:
        for path in cases:
            rows.append(_replay(path, device, options, profile))
            advance()
    failed = sum(not row["passed"] for row in rows)
    result = {"device": device, "passed": len(rows) - failed, "failed": failed, "cases": rows}
    result |= profile.write("replay", result)
    if as_json:
        report.emit_json(result)
        return int(failed > 0)
    for row in rows:
        report.say(f"{'passed' if row['passed'] else 'FAILED'}  {row['name']}{_details(row)}")
    profile.say(result)
    report.say(f"{len(rows) - failed} passed, {failed} failed")
    return int(failed > 0)


def _replay(path: str, device: str, options: dict[str, object], profile: Profile) -> dict:
    try:
        result = replay_case(path, device, **options)
    except (FileError, ConfigError) as exc:
        return {"file": path, "name": path, "passed": False, "detail": str(exc).removeprefix(f"{path}: ")}
    if result.ran:
        profile.add(result.name, result.case.launch, result.stats)
    row = {"file": path, "name": result.name, "passed": result.passed, "detail": result.detail}
    return row | result.stats.to_dict() | {"seconds": result.seconds}


def _details(row: dict) -> str:
    if not row["passed"]:
        return f": {row['detail']}"
    cycles = f"{row['cycles']:,} cycles, " if "cycles" in row else ""
    return f"  ({row['instructions']:,} instructions, {row['macs']:,} MACs, {cycles}{1e3 * row['seconds']:.0f} ms)"
