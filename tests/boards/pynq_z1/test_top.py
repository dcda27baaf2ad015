"""The driver on the whole top level of the board: bridge, PS7's ports, clock, reset and interrupt are in its way.

tests/boards/pynq_z1/ps7.v stands in for the processing system. The top's modules have tests of their own, which are
fast; this one builds a second circuit.
"""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("amaranth")
from tilewright.boards.pynq_z1.board import Board
from tilewright.boards.pynq_z1.build import write_build
from tilewright.boards.selftest import self_test
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.sim.random_programs import Recorder, record_random
from tilewright.sim.rtl.device import HARNESS, build_harness
from tilewright.sim.rtl.verilator import cached, identity

CFG = PRESETS["tiny"]
PS7 = Path(__file__).with_name("ps7.v")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The simulation of the whole top, with the ports of a core."""
    build = write_build(CFG, Board(), tmp_path_factory.mktemp("build"))
    text = build.verilog.read_text() + PS7.read_text().replace("TOP dut", f"{build.name} dut")
    key = {"text": hashlib.sha256(text.encode() + HARNESS.read_bytes()).hexdigest(), **identity("amaranth")}

    def make(folder):
        (folder / "board.v").write_text(text)
        build_harness(folder, folder / "board.v", "board", CFG)

    return cached("board", key, make) / "core.so"


@pytest.fixture
def powered_top(powered, library):
    """(driver, fake board) whose circuit is the whole top."""
    return powered(CFG, fake={"library": library})


def test_programs_equal_the_model(powered_top):
    device, _ = powered_top
    launch, inputs, expected = self_test(CFG)
    with Loaded(launch, device) as loaded:
        np.testing.assert_array_equal(loaded.run(inputs)["y"], expected["y"])
    for seed in range(20):
        print(f"seed {seed}")
        recorder = Recorder(CFG, seed)
        record_random(recorder, 40)
        launch = recorder.program.finish()
        with Loaded(launch, device) as here, Loaded(launch, open_device("model", CFG)) as there:
            got, expected = here.run(recorder.inputs), there.run(recorder.inputs)
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array, err_msg=name)


@pytest.mark.parametrize("name, op, mem", [("LOAD", Op.LOAD, Mem.WGT), ("STORE", Op.STORE, Mem.OUT)])
def test_addresses_beyond_the_port_are_bus_errors(powered_top, name, op, mem):
    """Byte address 2**32 and the first buffer's low bits: without the guard it would be the buffer."""
    device, board = powered_top
    isa, at = Isa(CFG), device.allocate(64, 64)
    device.write(at, np.arange(64, dtype=np.uint8))
    size = CFG.wgt_entry_bytes if mem == Mem.WGT else CFG.out_entry_bytes
    beyond = ((1 << 32) + at) // size
    fields = {"op": op, "mem": mem, "dram_base": beyond, "y_size": 1, "x_size": 1, "x_stride": 1}
    if op == Op.STORE:
        words = [
            isa.formats[name].encode(1, **fields, push_prev=1),
            isa.formats["FINISH"].encode(1, op=Op.FINISH, pop_next=1),
        ]
    else:
        words = [isa.formats[name].encode(1, **fields), isa.formats["FINISH"].encode(1, op=Op.FINISH)]
    code = device.allocate(32, 64)
    device.write(code, np.concatenate(words).view(np.uint8).reshape(-1))
    with pytest.raises(AccessError, match="the bus answered a .* with an error") as caught:
        device.run(code, 2)
    assert caught.value.index == 0
    np.testing.assert_array_equal(device.read(at, 64), np.arange(64, dtype=np.uint8))
