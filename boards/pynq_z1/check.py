"""Checks that a board is ready, each of which relies on the ones before it."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...hw.config import Config
from ...hw.errors import BoardError, TilewrightError
from ...runtime.loader import Loaded
from ..selftest import self_test
from .driver import PynqDevice, find_bitstream


@dataclass(frozen=True)
class Check:
    """One check: `found` is its result as text, `fine` whether it passed. The first that fails is the last one made."""

    name: str
    fine: bool
    found: str


def check_board(cfg: Config, **options: Any) -> Iterator[Check]:
    """Check this machine as a board with the accelerator of `cfg`, up to the first check that fails.

    `options` are those of `PynqDevice`. An error is not raised: its text is the result of the check.
    """
    devices: list[PynqDevice] = []

    def pynq() -> str:
        devices.append(PynqDevice(cfg, **options))
        return f"pynq {getattr(devices[0].pynq, '__version__', 'of unknown version')}"

    def memory() -> str:
        return f"{devices[0].free_bytes() >> 10:,} kB of contiguous memory are free"

    def bitstream() -> str:
        return str(find_bitstream(cfg, devices[0].board, options.get("bitstream")))

    def registers() -> str:
        devices[0].open()
        return f"{cfg.name} ({cfg.fingerprint:016x}) answers at {devices[0].board.base:#010x}"

    def product() -> str:
        return run_self_test(cfg, lambda launch: Loaded(launch, devices[0]))

    machine = f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}"
    yield Check("machine", True, machine)
    yield from stepwise(
        (
            ("user", _user),
            ("pynq", pynq),
            ("memory", memory),
            ("bitstream", bitstream),
            ("registers", registers),
            ("self-test", product),
        )
    )


def stepwise(steps: Iterable[tuple[str, Callable[[], str]]]) -> Iterator[Check]:
    """The check of each of `steps`, up to the first that raises a `TilewrightError`."""
    for name, look in steps:
        try:
            found = look()
        except TilewrightError as exc:
            yield Check(name, False, str(exc))
            return
        yield Check(name, True, found)


def run_self_test(cfg: Config, load: Callable[[Any], Any]) -> str:
    """Run the self-test on the device of `load`; its result as text. Raises `BoardError` where values are wrong."""
    launch, inputs, expected = self_test(cfg)
    with load(launch) as loaded:
        (found,) = loaded.run(inputs).values()
        cycles = loaded.stats.cycles
    wrong = int((found != expected["y"]).sum())
    if wrong:
        raise BoardError(
            f"{wrong} of {found.size} values are wrong: the bitstream needs other memory ports or another clock; "
            "try half the clock, then check the ports' width in docs/board.md"
        )
    return f"{found.size} values are right" + (f", {cycles:,} cycles" if cycles is not None else "")


def _user() -> str:
    if os.geteuid():
        raise BoardError("not root: pynq maps registers through /dev/mem; run with sudo -E, or as root")
    return "root"
