"""The accelerator as a driver that pynq binds: `Overlay("x.bit").core`. Importing this module registers it.

An overlay reads the .hwh file beside its bitstream; the driver below it is `PynqDevice`, the one of `--on board`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ...hw.errors import BoardError
from ...runtime.executable import Executable
from ...runtime.launch import Launch
from ...runtime.loader import Loaded
from .board import BOARDS, Board, load_board
from .driver import PynqDevice
from .handoff import TYPE, parameters

pynq: Any = importlib.import_module("pynq")  # it has no types
_DefaultIP: Any = pynq.DefaultIP


class Accelerator(_DefaultIP):
    """The core of an overlay. `load` makes programs ready to run; the registers are `mmio` and `register_map`."""

    bindto = (TYPE,)

    def __init__(self, description: dict[str, Any]):
        super().__init__(description)
        self._base, self._facts = description["phys_addr"], description["parameters"]

    def board(self) -> Board:
        """The board that the bitstream was built for, with its clock, ports and address.

        Raises `BoardError` where the .hwh file does not say it, or names a board that is no row of `boards/zynq`.
        """
        try:
            name, clock, memory = (self._facts[key] for key in parameters(load_board()))
        except KeyError as exc:
            raise BoardError(f"the .hwh file has no parameter {exc} of the core: build the bitstream again") from None
        if name not in BOARDS:
            raise BoardError(f"the bitstream is for board {name!r}: give load() a Board; known are {', '.join(BOARDS)}")
        return load_board(name).replace(clock_mhz=float(clock), memory=memory, base=self._base)

    def load(self, program: Executable | Launch | str | Path, board: Board | None = None, **options: Any) -> Loaded:
        """`program`, an executable, a launch or a .tw file, ready to run here: a `Loaded`.

        `board` (default: `board()`) says how the bitstream is connected; `options` are those of `PynqDevice`.
        Raises what `PynqDevice` and `Loaded` raise.
        """
        loaded = Executable.load(program) if isinstance(program, (str, Path)) else program
        options = {"pynq": pynq, "target": self.device, "bitstream": self.device.bitfile_name} | options
        return Loaded(loaded, PynqDevice(loaded.cfg, board=board or self.board(), loaded=True, **options))
