"""The build directory of a bitstream, and the tools that build it.

It holds the top level as Verilog, its constraints, the .hwh file that PYNQ's `Overlay` reads beside a bitstream, and a
script for each way: Vivado without a block design (the default), the open tools (yosys, nextpnr, prjxray; for the 7
series), and a block design for Vivado. Writing it needs none of these tools.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ...hw.config import Config
from ...hw.errors import ExecutionError, FileError, UnsupportedError
from ...hw.needs import need
from ...runtime.files import atomic_write
from .board import SPAN, Board, check_board
from .handoff import MODULE, handoff, parameters, widths
from .system import Port

_NEXTPNR = ("nextpnr-xilinx", "nextpnr-himbaechel")  # either
_OPEN_TOOLS = ("yosys", "fasm2frames", "xc7frames2bit")  # all of them too
_VARIABLES = ("PRJXRAY_DB", "CHIPDB")
_OPEN = """\
#!/bin/sh
# {name}: yosys, nextpnr for Xilinx's 7 series and prjxray make {name}.bit. Written by tilewright.
#   PRJXRAY_DB   folder of the prjxray database, with zynq7 in it
#   PYTHON       a Python with tilewright [python3]
#   CHIPDB       nextpnr's chip database of {part}: the file
set -e
: "${{PRJXRAY_DB:?folder of the prjxray database}}" "${{CHIPDB:?chip database of {part} for nextpnr}}"
# without ABC9, which fails on some modules; without shift registers in LUTs, which nextpnr packs wrongly
yosys -q -l {name}_yosys.log -p "read_verilog {name}.v; rename -hide w:*; \\
    synth_xilinx -flatten -nosrl -family xc7 -top {name}; write_json {name}.json"
if command -v nextpnr-xilinx >/dev/null; then
    nextpnr-xilinx --chipdb "$CHIPDB" --xdc {name}_open.xdc --json {name}.json --fasm {name}.fasm --freq {mhz:g} \\
        --write {name}_routed.json --sdf {name}_routed.sdf
else
    nextpnr-himbaechel --device {part} --chipdb "$CHIPDB" -o xdc={name}_open.xdc -o fasm={name}.fasm \\
        --placer static --json {name}.json --freq {mhz:g} --write {name}_routed.json --sdf {name}_routed.sdf
fi
# nextpnr does not know the delays of block RAMs and DSPs; a bitstream that misses its clock is not made
"${{PYTHON:-python3}}" -m tilewright.boards.route {name}_routed.json {name}_routed.sdf {mhz:g}
fasm2frames --part {part} --db-root "$PRJXRAY_DB/zynq7" {name}.fasm {name}.frames
xc7frames2bit --part_file "$PRJXRAY_DB/zynq7/{part}/part.yaml" --part_name {part} \\
    --frm_file {name}.frames --output_file {name}.bit
"""
# Tcl that stops a build without a clock constraint or with missed timing: on a board neither may be noticed
_TIMING = (
    "if {[get_property SLACK [get_timing_paths]] < 0} "
    '{ error "ERROR: timing is missed by [get_property SLACK [get_timing_paths]] ns; use a lower clock" }'
)
VIVADO_CHECKS = {
    "script_after_synth": 'if {[llength [get_clocks -quiet fclk0]] != 1} { error "ERROR: FCLK0 is not constrained" }',
    "script_before_bitstream": _TIMING,
}
_BLOCK_FLOW = """\
#!/bin/sh
# {name}: Vivado's block design makes {name}.bit and {name}.hwh. Written by tilewright.
set -e
vivado -mode batch -log {name}_bd.log -source {name}_bd.tcl
"""
_BLOCK_DESIGN = """\
# {name}: the core as a module of a block design; PYNQ's Overlay reads its .hwh file. Written by tilewright.
create_project -force {name}_bd {name}_bd -part {part}
add_files [list {name}_core.v {name}_bd.v]
update_compile_order -fileset sources_1
create_bd_design system
set ps [create_bd_cell -type ip -vlnv xilinx.com:ip:{family} ps]
apply_bd_automation -rule xilinx.com:bd_rule:{family} -config {{{automation}}} $ps
# DRAM and peripherals are as the boot image has set them; only what the programmable logic sees is set here
set_property -dict [list \\
{settings}
] $ps
set core [create_bd_cell -type module -reference {module} core]
set resets [create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset resets]
{doubler}connect_bd_net [get_bd_pins {clock}] [get_bd_pins $core/clk] [get_bd_pins $resets/slowest_sync_clk] \\
    {clocks}
connect_bd_net [get_bd_pins $ps/{reset}] [get_bd_pins $resets/ext_reset_in]
connect_bd_net [get_bd_pins $resets/peripheral_reset] [get_bd_pins $core/rst]
connect_bd_net [get_bd_pins $core/done] [get_bd_pins $ps/{interrupt}]
{connections}
assign_bd_address -offset {base:#010x} -range {span} -target_address_space [get_bd_addr_spaces $ps/Data] \\
    [get_bd_addr_segs $core/s_axil/reg0] -force
{addresses}
validate_bd_design
save_bd_design
make_wrapper -files [get_files system.bd] -top -import
set_property top system_wrapper [current_fileset]
launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1
if {{[get_property PROGRESS [get_runs impl_1]] != "100%"}} {{ error "ERROR: implementation failed" }}
open_run impl_1
{timing}
file copy -force [glob {name}_bd/{name}_bd.runs/impl_1/system_wrapper.bit] {name}.bit
file copy -force [lindex [glob {name}_bd/{name}_bd.*/sources_1/bd/system/hw_handoff/system.hwh] 0] {name}.hwh
quit
"""
_JOIN = """\
set join_{n} [create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect join_{n}]
set_property -dict [list CONFIG.NUM_SI {inputs} CONFIG.NUM_MI 1] $join_{n}
connect_bd_net [get_bd_pins {clock}] [get_bd_pins $join_{n}/aclk]
connect_bd_net [get_bd_pins $resets/peripheral_aresetn] [get_bd_pins $join_{n}/aresetn]"""

# with array_clock 2 everything has clocks of one oscillator, so that their edges fall together
_DOUBLER = """\
set doubler [create_bd_cell -type ip -vlnv xilinx.com:ip:clk_wiz doubler]
set_property -dict [list CONFIG.PRIM_SOURCE Global_buffer CONFIG.PRIM_IN_FREQ {mhz:g} CONFIG.USE_RESET false \\
    CONFIG.CLKOUT1_REQUESTED_OUT_FREQ {mhz:g} CONFIG.CLKOUT2_USED true \\
    CONFIG.CLKOUT2_REQUESTED_OUT_FREQ {fast:g}] $doubler
connect_bd_net [get_bd_pins $ps/{clock}] [get_bd_pins $doubler/clk_in1]
connect_bd_net [get_bd_pins $doubler/clk_out2] [get_bd_pins $core/clk2x]
connect_bd_net [get_bd_pins $doubler/locked] [get_bd_pins $resets/dcm_locked]
"""


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
    from .platform import Platform, Top

    check_board(cfg, board)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise FileError(f"{folder}: cannot be created ({exc.strerror or exc})") from None
    name = board.design_name(cfg)
    plan = Platform(board).build(Top(cfg, board), name=name, do_build=False, **VIVADO_CHECKS)
    files = {}
    for file in (f"build_{name}.sh", f"{name}.v", f"{name}.tcl", f"{name}.xdc"):
        content = plan.files[file]
        files[file] = content if isinstance(content, str) else content.decode()
    ways = {"vivado": f"build_{name}.sh"}
    if has_open_tools(cfg, board):
        ways["open"] = f"build_{name}_open.sh"
        files[f"{name}_open.xdc"] = open_constraints(files[f"{name}.xdc"])
        files[ways["open"]] = open_flow(name, board)
    ways["block design"] = f"build_{name}_bd.sh"
    files[f"{name}.hwh"] = handoff(cfg, board, name)
    files[f"{name}_core.v"] = to_verilog(cfg, name=f"{name}_core")
    files[f"{name}_bd.v"] = block_wrapper(files[f"{name}_core.v"], name, cfg, board)
    files[f"{name}_bd.tcl"] = block_design(cfg, board, name)
    files[ways["block design"]] = block_flow(name)
    for file, text in files.items():
        with atomic_write(folder / file) as temporary:
            temporary.write_text(text)
    for file in files:
        if file.endswith(".sh"):
            (folder / file).chmod(0o755)
    return Build(name, folder, ways)


def has_open_tools(cfg: Config, board: Board) -> bool:
    """Whether there are open tools: nextpnr and prjxray know the 7 series, our analysis of their wires one clock."""
    return board.system == "zynq7" and cfg.array_clock == 1


def way_to_build(cfg: Config, board: Board) -> str:
    """`vivado` or `open`: the first whose tools are installed. Raises `UnsupportedError` that names what to install."""
    if shutil.which("vivado"):
        return "vivado"
    if not has_open_tools(cfg, board):
        what = f"an {board.part}" + " with array_clock 2" * (cfg.array_clock > 1)
        raise UnsupportedError(f"no tool for {what} is on PATH: install Vivado; the open tools do not have it")
    missing = [tool for tool in _OPEN_TOOLS if not shutil.which(tool)]
    if not any(map(shutil.which, _NEXTPNR)):
        missing.append(" or ".join(_NEXTPNR))
    missing += [f"the variable {name}" for name in _VARIABLES if not os.environ.get(name)]
    if missing:
        raise UnsupportedError(
            f"no tool for an {board.part} is on PATH: install Vivado (the free edition has this part), or the open "
            f"tools, of which {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        )
    return "open"


def run_build(build: Build, way: str) -> Path:
    """Run the script of `way`; the bitstream. Raises `ExecutionError` with the line that says why it failed."""
    log = build.folder / "build.log"
    with open(log, "w") as file:
        done = subprocess.run(
            ["/bin/sh", build.scripts[way]],
            cwd=build.folder,
            env=os.environ | {"PYTHON": sys.executable},  # the interpreter that has tilewright
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    lines = log.read_text(errors="replace").splitlines()
    if done.returncode or not build.bitstream.is_file():
        shown = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "no message")
        raise ExecutionError(f"{build.scripts[way]} failed with status {done.returncode}: {shown.strip()}; see {log}")
    return build.bitstream


def open_flow(name: str, board: Board) -> str:
    """The script of the open tools."""
    return _OPEN.format(name=name, part=board.part, mhz=board.clock_mhz)


def open_constraints(xdc: str) -> str:
    """The pin constraints of `xdc`: nextpnr takes the clock as an argument."""
    return "".join(line for line in xdc.splitlines(keepends=True) if line.startswith("set_property"))


def block_flow(name: str) -> str:
    """The script that runs the block design."""
    return _BLOCK_FLOW.format(name=name)


def memory_ports(cfg: Config, board: Board) -> dict[Port, list[str]]:
    """The core's memory interfaces by the port of the processing system that serves them."""
    found: dict[Port, list[str]] = {}
    for k in range(cfg.load_ports):
        found.setdefault(board.load_port(k), []).append(f"m_load{k}")
    found.setdefault(board.store_port, []).append("m_store0")
    return found


def block_design(cfg: Config, board: Board, name: str) -> str:
    """The block design as a Tcl script for Vivado."""
    ps, ports = board.ps, memory_ports(cfg, board)
    connections, addresses = [], []
    clock, doubler = f"$ps/{ps.block_clock}", ""
    if cfg.array_clock == 2:
        doubler = _DOUBLER.format(mhz=board.clock_mhz, fast=2 * board.clock_mhz, clock=ps.block_clock)
        clock = "$doubler/clk_out1"
    joins = [([f"$ps/{ps.registers.block}"], "$core/s_axil")]
    joins += [([f"$core/{one}" for one in masters], f"$ps/{port.block}") for port, masters in ports.items()]
    for n, (sources, target) in enumerate(joins):
        connections.append(_JOIN.format(n=n, inputs=len(sources), clock=clock))
        for k, source in enumerate(sources):
            connections.append(
                f"connect_bd_intf_net [get_bd_intf_pins {source}] [get_bd_intf_pins $join_{n}/S{k:02d}_AXI]"
            )
        connections.append(f"connect_bd_intf_net [get_bd_intf_pins $join_{n}/M00_AXI] [get_bd_intf_pins {target}]")
    for port, masters in ports.items():
        for one in masters:
            addresses.append(
                f"assign_bd_address -offset 0x00000000 -range {board.reachable >> 20}M -target_address_space "
                f"[get_bd_addr_spaces $core/{one}] [lindex [get_bd_addr_segs $ps/{port.segment}] 0] -force"
            )
    settings = [text.format(crystal=board.crystal_mhz, mhz=board.clock_mhz) for text in ps.settings]
    settings += [f"{port.enable} 1" for port in (ps.registers, *ports)]
    if board.coherent:
        settings.append("PCW_USE_DEFAULT_ACP_USER_VAL 1")
    settings += [f"PSU__{port.name}__DATA_WIDTH {bits}" for port, bits in widths(cfg, board).items()]
    return _BLOCK_DESIGN.format(
        name=name,
        module=MODULE,
        part=board.part,
        base=board.base,
        span=f"{SPAN >> 10}K",
        family=ps.family,
        automation=ps.automation,
        settings="\n".join(f"    CONFIG.{setting} \\" for setting in settings),
        clock=clock,
        doubler=doubler,
        reset=ps.block_reset,
        interrupt=ps.block_interrupt,
        clocks=" ".join(f"[get_bd_pins $ps/{port.block_clock}]" for port in (ps.registers, *ports)),
        connections="\n".join(connections),
        addresses="\n".join(addresses),
        timing=_TIMING,
    )


def module_ports(verilog: str, module: str) -> list[tuple[str, str, int]]:
    """(name, `input` or `output`, bits) of each port of `module` in the text that `hw.verilog` emits."""
    (body,) = re.findall(rf"^module {module}\(.*?^endmodule", verilog, re.S | re.M)
    found = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", body, re.M)
    return [(name, way, int(high or 0) + 1) for way, high, name in found]


def block_wrapper(core: str, name: str, cfg: Config, board: Board) -> str:
    """Verilog of `MODULE`, a wrapper around the Verilog module `core`, with its buses declared as Vivado's interfaces.

    The prefix of a signal names its bus: `m_load0` of `m_load0_araddr`.
    """
    ports = module_ports(core, f"{name}_core")
    buses = sorted({bus for bus, _ in map(_split, (port for port, _, _ in ports)) if bus})
    lines, extra = [], []
    declared = {
        "clk": f'(* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 clk CLK", X_INTERFACE_PARAMETER = '
        f'"ASSOCIATED_BUSIF {":".join(buses)}, ASSOCIATED_RESET rst" *)\n    ',
        "clk2x": '(* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 clk2x CLK" *)\n    ',
        "rst": '(* X_INTERFACE_INFO = "xilinx.com:signal:reset:1.0 rst RST", X_INTERFACE_PARAMETER = '
        '"POLARITY ACTIVE_HIGH" *)\n    ',
        "done": '(* X_INTERFACE_INFO = "xilinx.com:signal:interrupt:1.0 done INTERRUPT", X_INTERFACE_PARAMETER = '
        '"SENSITIVITY LEVEL_HIGH" *)\n    ',
    }
    started = set()
    for port, way, bits in ports:
        bus, signal = _split(port)
        attribute = declared.get(port, "")
        if bus:
            parameter = "" if bus in started else f', X_INTERFACE_PARAMETER = "{_parameters(bus, cfg, board)}"'
            started.add(bus)
            info = f"xilinx.com:interface:aximm:1.0 {bus} {signal.upper()}"
            attribute = f'(* X_INTERFACE_INFO = "{info}"{parameter} *)\n    '
        lines.append(f"    {attribute}{way} {_range(bits)}{port}")
        if signal in ("araddr", "awaddr") and bus.startswith("m_"):
            cache = f"{bus}_{signal[:2]}cache"
            info = f"xilinx.com:interface:aximm:1.0 {bus} {signal[:2].upper()}CACHE"
            lines.append(f'    (* X_INTERFACE_INFO = "{info}" *)\n    output [3:0] {cache}')
            extra.append(f"    assign {cache} = 4'b{'1111' if board.coherent else '0011'};")
    inside = ",\n".join(f"        .{port}({port})" for port, _, _ in ports)
    declarations = ",\n".join(lines)
    assigns = "\n".join(extra)
    facts = ", ".join(f'{key} = "{value}"' for key, value in parameters(board).items())
    head = f"module {MODULE} #(parameter {facts}) ("
    return (
        f"// {name}: the core with its buses as Vivado's interfaces. Written by tilewright.\n"
        f"{head}\n{declarations}\n);\n{assigns}\n    {name}_core core (\n{inside}\n    );\nendmodule\n"
    )


def _split(port: str) -> tuple[str, str]:
    """(`m_load0`, `araddr`) of `m_load0_araddr`; no bus for `clk`."""
    bus, _, signal = port.rpartition("_")
    return (bus, signal) if port.startswith(("m_", "s_")) else ("", port)


def _parameters(bus: str, cfg: Config, board: Board) -> str:
    if bus.startswith("s_"):
        return "PROTOCOL AXI4LITE, ADDR_WIDTH 12, DATA_WIDTH 32"
    mode = "READ_ONLY" if "load" in bus else "WRITE_ONLY"
    return (
        f"PROTOCOL {board.ps.axi}, ADDR_WIDTH 40, DATA_WIDTH {cfg.axi_bits}, READ_WRITE_MODE {mode}, "
        "MAX_BURST_LENGTH 16"
    )


def _range(bits: int) -> str:
    return f"[{bits - 1}:0] " if bits > 1 else ""
