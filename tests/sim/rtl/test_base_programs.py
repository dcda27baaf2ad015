"""Programs that know nothing of unit `ternary`, on configurations that have it: VTA's, and those of `tiny`."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import INSN_BYTES, Isa, Mem, Op
from tilewright.runtime.device import open_device
from tilewright.sim.replay import read_case, replay_case

TESTS = Path(__file__).parents[2]
TINY = sorted((TESTS / "data" / "programs").glob("tiny*.npz"))
VTA = sorted((TESTS.parents[1] / "shared" / "vectors").glob("*.npz"))
PYNQ = PRESETS["pynq_z1_two"]

circuit = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def translated(case, cfg):
    """Memory before and after of `case`, with its instructions and micro-ops as `cfg` encodes them.

    Fields keep their values: only the bits of indices, which follow from the sizes of the scratchpads, are others.
    """
    old, new = Isa(case.cfg), Isa(cfg)
    size = case.insn_count * INSN_BYTES
    insns = old.decode(case.dram_in[case.insn_addr : case.insn_addr + size].view("<u8").reshape(-1, 2))
    images = case.dram_in.copy(), case.dram_out.copy()
    formats = [new.format_of(f["op"], f.get("mem", 0)) for f in insns]
    words = np.concatenate([fmt.encode(1, **f) for fmt, f in zip(formats, insns) if fmt is not None])
    pieces = {case.insn_addr: words.astype("<u8").view(np.uint8).reshape(-1)}
    for f in insns:
        if f["op"] == Op.LOAD and f["mem"] == Mem.UOP.id and f["x_size"]:
            start, count = 4 * f["dram_base"], f["x_size"]
            uops = old.uop.decode(case.dram_in[start : start + 4 * count].view("<u4").astype(np.uint64)[:, None])
            pieces[start] = new.uop.encode(count, **uops).astype("<u4").view(np.uint8).reshape(-1)
    for image in images:
        for start, data in pieces.items():
            image[start : start + len(data)] = data
    return images


def runs(device, before, after, address, count):
    image = before.copy()
    stats = device.run_image(image, address, count)
    np.testing.assert_array_equal(image, after)
    return stats


@pytest.mark.circuit
@pytest.mark.parametrize("on", ["spec", "model", pytest.param("rtl", marks=circuit)])
def test_programs_of_tiny(on):
    """Bit for bit: sizes, and so the encoding, are the same."""
    two = PRESETS["tiny_two"]
    for path in TINY:
        case = read_case(path)
        assert case.cfg.replace(name="tiny") == PRESETS["tiny"]
        stats = runs(open_device(on, two), case.dram_in, case.dram_out, case.insn_addr, case.insn_count)
        assert stats.insns == replay_case(path).stats.insns


@pytest.mark.skipif(not VTA, reason="../shared/vectors is absent")
@pytest.mark.parametrize("on", ["model", pytest.param("rtl", marks=[circuit, pytest.mark.slow])])
def test_programs_of_vta_on_the_circuit_of_the_board(on):
    """All of them fit into its scratchpads, the smaller ones of the board, too."""
    for path in VTA:
        print(path.stem)
        case = read_case(path)
        images = translated(case, PYNQ)
        stats = runs(open_device(on, PYNQ), *images, case.insn_addr, case.insn_count)
        assert stats.insns == replay_case(path).stats.insns


@circuit
@pytest.mark.slow
@pytest.mark.skipif(not VTA, reason="../shared/vectors is absent")
def test_programs_of_vta_bit_for_bit():
    """On VTA's own sizes with the second unit."""
    for path in VTA:
        print(path.stem)
        case = read_case(path)
        cfg = case.cfg.replace(name="vta_two", units=["gemm", "ternary"], acc_banks=4)
        stats = runs(open_device("rtl", cfg), case.dram_in, case.dram_out, case.insn_addr, case.insn_count)
        assert stats.insns == replay_case(path).stats.insns
