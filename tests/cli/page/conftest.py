"""A report of a recorded program and one of a network, made once for all tests; pages in a browser."""

import json
from pathlib import Path

import pytest

pytest.importorskip("click")

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
# y = (x + x) * w over a few tiles, whose loads, products and stores wait for each other
PROGRAM = """
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.program import Program


def tiles(cfg):
    p = Program(cfg, "tiles")
    x = p.buffer("x", (12, cfg.batch, cfg.block_in))
    w = p.buffer("w", (1, cfg.block_out, cfg.block_in), cfg.wgt_bits)
    y = p.buffer("y", (12, cfg.batch, cfg.block_out), cfg.out_bits, kind="output")
    with p.origin("weights"):
        p.load(Mem.WGT, 0, w, 0, x_size=1)
    for k in range(3):
        with p.origin("products", macs=4 * cfg.macs_per_cycle):
            p.load(Mem.INP, 4 * (k % 2), x, 4 * k, x_size=4)
            p.gemm([(4, 1, 0, 0)], dst=4 * k, reset=True)
            p.gemm([(4, 1, 1, 0)], dst=4 * k, src=4 * (k % 2))
        with p.origin("results"):
            p.store(4 * k, y, 4 * k, x_size=4)
    return p
"""


@pytest.fixture(scope="session")
def tiles_py(tmp_path_factory) -> Path:
    """Python source that records a program of three operators, for any configuration."""
    path = tmp_path_factory.mktemp("source") / "tiles.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="session")
def recorded(tiles_py):
    """The report of that program on `tiny`."""
    from tilewright.cli.page import report

    return report(f"{tiles_py}:tiles", "tiny")


@pytest.fixture(scope="session")
def network():
    """The report of a small network on `tiny`."""
    pytest.importorskip("tvm")
    from tilewright.cli.page import report

    return report(DIGITS, "tiny")


@pytest.fixture
def data(recorded) -> dict:
    """A copy of the data of `recorded`, as a file has them."""
    return json.loads(recorded.to_json())
