"""hw/rtl/core.py, hw/rtl/verilog.py: ports and configurations; tests/sim/rtl/test_device.py has what it computes."""

import re

import pytest

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import UnsupportedError
from tilewright.hw.rtl.verilog import emit, to_verilog, top_name

READ = {"araddr": 40, "arlen": 4, "arsize": 3, "arburst": 2, "arvalid": 1, "rready": 1}
READ_BACK = {"arready": 1, "rdata": 64, "rresp": 2, "rlast": 1, "rvalid": 1}
WRITE = {"awaddr": 40, "awlen": 4, "awsize": 3, "awburst": 2, "awvalid": 1, "bready": 1}
WRITE |= {"wdata": 64, "wstrb": 8, "wlast": 1, "wvalid": 1}
WRITE_BACK = {"awready": 1, "wready": 1, "bresp": 2, "bvalid": 1}
LITE = {"awaddr": 12, "awvalid": 1, "wdata": 32, "wstrb": 4, "wvalid": 1, "bready": 1}
LITE |= {"araddr": 12, "arvalid": 1, "rready": 1}
LITE_BACK = {"awready": 1, "wready": 1, "bresp": 2, "bvalid": 1, "arready": 1, "rdata": 32, "rresp": 2, "rvalid": 1}


def ports_of(text, top):
    (body,) = re.findall(rf"^module {top}\(.*?^endmodule", text, re.S | re.M)
    found = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", body, re.M)
    return {(way, name): int(high or 0) + 1 for way, high, name in found}


@pytest.mark.circuit
def test_top_level_ports(tmp_path):
    cfg = PRESETS["tiny"].replace(name="tiny-2", load_ports=2)
    top = emit(cfg, tmp_path / "core.v")
    assert top == top_name(cfg) == "tilewright_tiny_2"
    expected = {("input", "clk"): 1, ("input", "rst"): 1, ("output", "done"): 1, ("output", "error"): 1}
    expected |= {("output", "watch"): 18}
    for prefix, out, back in (
        ("m_load0", READ, READ_BACK),
        ("m_load1", READ, READ_BACK),
        ("m_store0", WRITE, WRITE_BACK),
        ("s_axil", LITE_BACK, LITE),
    ):
        expected |= {("output", f"{prefix}_{name}"): bits for name, bits in out.items()}
        expected |= {("input", f"{prefix}_{name}"): bits for name, bits in back.items()}
    assert ports_of((tmp_path / "core.v").read_text(), top) == expected


@pytest.mark.circuit
@pytest.mark.parametrize(
    "cfg",
    [
        Config(name="odd", batch=2, block_in=8, block_out=4, wgt_bits=4, uop_bytes=4096, inp_bytes=4096,
               wgt_bytes=4096, acc_bytes=4096),
        PRESETS["tiny"].replace(name="narrow", inp_bits=4, out_bits=4, wgt_bits=2, axi_bits=32, extensions=()),
        PRESETS["tiny"].replace(name="wide", axi_bits=512, batch=1, block_in=1, block_out=2, wgt_bytes=512,
                                inp_bytes=512, acc_bytes=1024, extensions={"overwrite", "pad_value"}),
    ],
    ids=lambda cfg: cfg.name,
)  # fmt: skip
def test_odd_configurations_elaborate(cfg):
    assert "module core(" in to_verilog(cfg, name="core")


@pytest.mark.parametrize(
    ("ports", "text"),
    [
        ({"load_ports": 4, "axi_bits": 512}, "load_ports = 4"),
        ({"store_ports": 2}, "store_ports"),
        (
            {"axi_bits": 256},
            "axi_bits = 256: extension requant needs .* block_out = 4 they have 384 bits; use at most 128",
        ),
    ],
)
def test_numbers_of_ports_that_do_not_exist_are_refused(ports, text):
    with pytest.raises(UnsupportedError, match=text):
        to_verilog(PRESETS["tiny"].replace(**ports))
