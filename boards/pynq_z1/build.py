"""The build directory of a bitstream, and the tools that build it.

It holds the top level as Verilog, its constraints, and a script for each way: Vivado without a block design (the
default), the open tools (yosys, nextpnr, prjxray), and a block design for Vivado, which also yields the .hwh file that
PYNQ's `Overlay` reads. Writing it needs none of these tools.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ...hw.config import Config
from ...hw.errors import ExecutionError, FileError, UnsupportedError
from ...hw.needs import need
from ...runtime.files import atomic_write
from . import scripts
from .board import PART, Board, check_board

_NEXTPNR = ("nextpnr-xilinx", "nextpnr-himbaechel")  # either
_OPEN = ("yosys", "fasm2frames", "xc7frames2bit")  # all of them too
_VARIABLES = ("PRJXRAY_DB", "CHIPDB")


@dataclass(frozen=True)
class Build:
    """A written build directory: file stem and top module `name`, and the script of each way by its name."""

    name: str
    folder: Path
    scripts: dict[str, str]

    @property
    def verilog(self) -> Path:
        """The whole top level, PS7 included."""
        return self.folder / f"{self.name}.v"

    @property
    def bitstream(self) -> Path:
        """The bitstream that the scripts make."""
        return self.folder / f"{self.name}.bit"


def write_build(cfg: Config, board: Board, folder: str | Path) -> Build:
    """Write everything that a bitstream of `cfg` needs to `folder`, which is made if it does not exist.

    Raises `UnsupportedError` for a configuration that does not fit the board's ports, or where Amaranth is missing,
    `FileError` for a folder that cannot be written.
    """
    need("the circuit", "rtl", "amaranth")
    from ...hw.rtl.verilog import to_verilog
    from .platform import PynqZ1, Top

    check_board(cfg, board)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise FileError(f"{folder}: cannot be created ({exc.strerror or exc})") from None
    name = board.design_name(cfg)
    plan = PynqZ1(toolchain="Vivado").build(Top(cfg, board), name=name, do_build=False, **scripts.VIVADO_CHECKS)
    files = {}
    for file in (f"build_{name}.sh", f"{name}.v", f"{name}.tcl", f"{name}.xdc"):
        content = plan.files[file]
        files[file] = content if isinstance(content, str) else content.decode()
    files[f"{name}_open.xdc"] = scripts.open_constraints(files[f"{name}.xdc"])
    files[f"build_{name}_open.sh"] = scripts.open_flow(name, board)
    files[f"{name}_core.v"] = to_verilog(cfg, name=f"{name}_core")
    files[f"{name}_bd.v"] = scripts.block_wrapper(files[f"{name}_core.v"], name, board)
    files[f"{name}_bd.tcl"] = scripts.block_design(cfg, board, name)
    files[f"build_{name}_bd.sh"] = scripts.block_flow(name)
    for file, text in files.items():
        with atomic_write(folder / file) as temporary:
            temporary.write_text(text)
    for file in files:
        if file.endswith(".sh"):
            (folder / file).chmod(0o755)
    ways = {"vivado": f"build_{name}.sh", "open": f"build_{name}_open.sh", "block design": f"build_{name}_bd.sh"}
    return Build(name, folder, ways)


def way_to_build() -> str:
    """`vivado` or `open`: the first whose tools are installed. Raises `UnsupportedError` that names what to install."""
    if shutil.which("vivado"):
        return "vivado"
    missing = [tool for tool in _OPEN if not shutil.which(tool)]
    if not any(map(shutil.which, _NEXTPNR)):
        missing.append(" or ".join(_NEXTPNR))
    missing += [f"the variable {name}" for name in _VARIABLES if not os.environ.get(name)]
    if missing:
        raise UnsupportedError(
            f"no tool for an {PART} is on PATH: install Vivado (the free edition has this part), or the open tools, of "
            f"which {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        )
    return "open"


def run_build(build: Build, way: str) -> Path:
    """Run the script of `way`; the bitstream. Raises `ExecutionError` with the line that says why it failed."""
    log = build.folder / "build.log"
    with open(log, "w") as file:
        done = subprocess.run(
            ["/bin/sh", build.scripts[way]], cwd=build.folder, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    lines = log.read_text(errors="replace").splitlines()
    if done.returncode or not build.bitstream.is_file():
        shown = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "no message")
        raise ExecutionError(f"{build.scripts[way]} failed with status {done.returncode}: {shown.strip()}; see {log}")
    return build.bitstream
