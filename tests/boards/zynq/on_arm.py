"""Runs the programs of a folder as a board does, and keeps what comes out: `python on_arm.py FOLDER`.

X.tw runs with the inputs of X.npz on the behavioural model, and through the driver on a fake board with the model
behind it; the outputs go to X.model.npz and X.board.npz. It needs numpy, and pytest for what it takes from conftest.py.
"""

import importlib.util
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.boards.zynq.driver import PynqDevice
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import Loaded


def fake_board(cfg, folder):
    """The driver with the model of `cfg` behind it."""
    spec = importlib.util.spec_from_file_location("boards_conftest", Path(__file__).parents[1] / "conftest.py")
    assert spec and spec.loader
    shared = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shared)
    (folder / "x.bit").touch()
    (folder / "meminfo").write_text("CmaFree: 65536 kB\n")
    board = shared.FakePynq(cfg, modelled=True)
    return PynqDevice(cfg, pynq=board, bitstream=folder / "x.bit", meminfo=folder / "meminfo")


def main(folder):
    """Run them all, and say on what."""
    for path in sorted(folder.glob("*.tw")):
        program = Executable.load(path)
        with np.load(path.with_suffix(".npz")) as inputs:
            given = dict(inputs)
        devices = {"model": open_device("model", program.cfg), "board": fake_board(program.cfg, folder)}
        for name, device in devices.items():
            with Loaded(program, device) as loaded:
                outputs: dict[str, Any] = loaded.run(given)
            np.savez(path.with_suffix(f".{name}.npz"), **outputs)
    print(f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
