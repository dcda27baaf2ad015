"""The tiers of the tests: quick ones, those that need a simulated circuit or seconds, and slow ones.

`make test` runs tests without a mark, `make check` also those marked `circuit`, `make test-full` those marked `slow`.
With the option --cpu-limit, as in `make test`, a test without a mark fails that takes more seconds of CPU time in its
own call, or loads a simulated circuit, which a new machine builds for half a minute.
"""

import builtins
import os
import sys

import pytest

_loaded = list[str]()  # the libraries of circuits that this process has loaded
_importing = {"depth": 0, "seconds": 0.0}  # the first test that imports a module does not pay for it


def _seconds() -> float:
    return sum(os.times()[:4])


def _watch(event: str, facts: tuple) -> None:
    if event == "ctypes.dlopen" and str(facts[0]).endswith("core.so"):
        _loaded.append(str(facts[0]))


def _import(*facts, **named):
    """`__import__`, timed."""
    outermost, began = not _importing["depth"], _seconds()
    _importing["depth"] += 1
    try:
        return _builtin(*facts, **named)
    finally:
        _importing["depth"] -= 1
        if outermost:
            _importing["seconds"] += _seconds() - began


_builtin = builtins.__import__


def watch(config: pytest.Config) -> None:
    """Watch what tests take, where the option asks for it."""
    if config.getoption("cpu_limit"):
        builtins.__import__ = _import
        sys.addaudithook(_watch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Fail a test without a mark that takes too long, or loads a circuit."""
    limit, circuits = item.config.getoption("cpu_limit"), len(_loaded)
    began = _seconds() - _importing["seconds"]
    found = yield
    seconds = _seconds() - _importing["seconds"] - began
    marked = item.get_closest_marker("circuit") or item.get_closest_marker("slow")
    if limit and not marked:
        what = "loads a simulated circuit" if len(_loaded) > circuits else ""
        what = what or (f"takes {seconds:.1f} s of CPU time, more than {limit:g}" if seconds > limit else "")
        if what:
            pytest.fail(f"{what}: make it smaller, or mark it circuit (make check) or slow (make test-full)", False)
    return found
