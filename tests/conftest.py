"""What tests of several folders share."""

import contextlib
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests import tiers
from tests.modules import module_of
from tests.tiers import pytest_runtest_call as pytest_runtest_call
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Mem
from tilewright.runtime.program import Program
from tilewright.runtime.symbols import Symbol

# a busy or an emulated machine is no error, and the same examples are tried everywhere
settings.register_profile("tilewright", deadline=None, derandomize=True)
settings.load_profile("tilewright")


def pytest_addoption(parser):
    """The limit of a test's CPU time (tests/tiers.py)."""
    parser.addoption("--cpu-limit", type=float, default=0.0, help="seconds of CPU time of a test without a mark")


def pytest_configure(config):
    """Watch the tests (tests/tiers.py)."""
    tiers.watch(config)
    with contextlib.suppress(ImportError):  # ai-edge-quantizer's logging closes a stderr that is none of the process's
        from absl import logging

        logging.get_absl_handler().python_handler.stream = sys.__stderr__


@pytest.fixture(autouse=True)
def own_numbers(request):
    """The generator `RNG` of a test's module begins again for each test, whatever ran before it."""
    if hasattr(request.module, "RNG"):
        request.module.RNG = np.random.default_rng(7)
        print("RNG: seed 7")


@pytest.fixture
def no_pynq(monkeypatch, tmp_path_factory):
    """As on a machine without pynq, whether or not it is installed on this one; for processes started here, too."""
    folder = tmp_path_factory.mktemp("no_pynq")
    (folder / "pynq.py").write_text("raise ImportError('no module of that name')\n")
    monkeypatch.delitem(sys.modules, "pynq", raising=False)
    monkeypatch.syspath_prepend(folder)  # a spawned process gets the path of its parent


@pytest.fixture(scope="session")
def generator():
    """The module docs/generate.py, which is no part of the package."""
    pytest.importorskip("click")
    return module_of(Path(__file__).parents[1] / "docs" / "generate.py")


class Cache:
    """A program of configuration `cfg` that keeps a row x at `position` of `limit`, and what it must do.

    It writes the row to the state, in place; y are the `BLOCK` rows around it, multiplied by 2.
    """

    BLOCK = 4

    def __init__(self, limit: int = 16, cfg: Config = PRESETS["tiny"], name: str = "cache"):
        self.limit, self.cfg, self.width = limit, cfg, cfg.block_out
        self.rows = np.zeros((limit, 1, self.width), np.int8)
        program, lanes = Program(cfg, name), (1, self.width)
        x, y = program.buffer("x", (1, *lanes), 32), program.buffer("y", (self.BLOCK, *lanes), kind="output")
        state = program.buffer("rows", (limit, *lanes), kind="state")
        twice = 2 * np.eye(self.width, dtype=np.int8)
        wgt = program.buffer("wgt", twice.shape, kind="constant", data=twice.view(np.uint8).reshape(-1))
        program.load(Mem.ACC, 0, x, 0)
        program.store(0, state, 0, at=Symbol("position", limit, step=1))
        block = Symbol("position", limit, step=self.BLOCK, block=self.BLOCK)
        program.load(Mem.INP, 0, state, 0, x_size=self.BLOCK, at=block)
        program.load(Mem.WGT, 0, wgt, 0)
        program.gemm([(self.BLOCK, 1, 0, 0)], dst=4, reset=True)
        program.gemm([(self.BLOCK, 1, 1, 0)], dst=4)
        program.store(4, y, 0, x_size=self.BLOCK)
        self.launch = program.finish()

    def inputs(self, position: int, value: int) -> dict[str, np.ndarray]:
        """A row of `value`, value + 1, ... for `position`."""
        x = value + np.arange(self.width, dtype=np.int32).reshape(1, 1, -1)
        return {"x": x, "position": np.array([position], np.int32)}

    def expect(self, position: int, value: int) -> np.ndarray:
        """Keep the row, and return y."""
        self.rows[position] = self.inputs(position, value)["x"][0]
        first = position // self.BLOCK * self.BLOCK
        return 2 * self.rows[first : first + self.BLOCK]


@pytest.fixture
def cache() -> type[Cache]:
    """A program whose addresses depend on an input, and which writes a state in place."""
    return Cache
