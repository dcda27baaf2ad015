"""Golden programs and networks, byte for byte on everything that executes programs: of tests/data, and recorded ones.

The cases of ../shared/vectors were recorded on VTA's own simulator.
"""

from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import INSN_BYTES, Isa, Mem, Op
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import LaunchStep
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.replay import read_case, replay_case

TESTS = Path(__file__).parent
PROGRAMS = sorted((TESTS / "data" / "programs").glob("*.npz"))
NETWORKS = sorted((TESTS / "data" / "networks").glob("*.tflite"))
RECORDED = sorted((TESTS.parents[1] / "shared" / "vectors").glob("*.npz"))


def cases(*devices):
    """(file, device); the definition takes minutes for the largest."""
    found = []
    for path in [*PROGRAMS, *RECORDED]:
        large = path.stat().st_size > 250_000
        for on in devices:
            slow = [pytest.mark.slow] if large and on == "spec" else []
            found.append(pytest.param(path, on, id=f"{path.stem}-{on}", marks=slow))
    return found


def test_the_files_are_there():
    assert len(PROGRAMS) == 7 and len(NETWORKS) == 2
    if not RECORDED:
        pytest.skip("../shared/vectors is absent")


@pytest.mark.parametrize("path, on", cases("spec", "model"))
def test_program(path, on):
    result = replay_case(path, on)
    assert result.passed, result.detail
    assert result.stats.insns["FINISH"] == 1


@pytest.mark.parametrize("path, on", cases("model"))
def test_a_second_unit_changes_nothing_for_programs_without_it(path, on):
    case = read_case(path)
    size = max(64, 2 * case.cfg.twgt_entry_bytes)
    cfg = case.cfg.replace(name="two", units=["gemm", "ternary"], acc_banks=4, twgt_bytes=size)
    image = case.dram_in.copy()
    stats = ModelDevice(cfg).run_image(image, case.insn_addr, case.insn_count)
    np.testing.assert_array_equal(image, case.dram_out)
    assert stats == replay_case(path, on).stats


@pytest.mark.circuit
@pytest.mark.parametrize("name", ["tiny", "tiny_two"])
def test_programs_on_the_circuit(name):
    pytest.importorskip("amaranth")
    from tilewright.sim.rtl import RtlDevice

    for path in PROGRAMS:
        if path.stem.startswith("tiny"):
            case = read_case(path)
            image = case.dram_in.copy()
            stats = RtlDevice(PRESETS[name]).run_image(image, case.insn_addr, case.insn_count)
            np.testing.assert_array_equal(image, case.dram_out)
            assert stats.cycles and stats.insns == replay_case(path).stats.insns


def encoded(case, cfg):
    """Memory before and after of `case`, with its instructions and micro-ops as `cfg` encodes them.

    Fields keep their values: only the bits of indices, which follow from the sizes of the scratchpads, are others.
    """
    old, new = Isa(case.cfg), Isa(cfg)
    size = case.insn_count * INSN_BYTES
    insns = old.decode(case.dram_in[case.insn_addr : case.insn_addr + size].view("<u8").reshape(-1, 2))
    formats = [new.format_of(f) for f in insns]
    words = np.concatenate([form.encode(**f) for form, f in zip(formats, insns) if form is not None])
    pieces = {case.insn_addr: words.astype("<u8").view(np.uint8).reshape(-1)}
    for f in insns:
        if f["op"] == Op.LOAD and f["mem"] == Mem.UOP.id and f["x_size"]:
            start, count = 4 * f["dram_base"], f["x_size"]
            uops = old.uop.decode(case.dram_in[start : start + 4 * count].view("<u4").astype(np.uint64)[:, None])
            pieces[start] = new.uop.encode(count, **uops).astype("<u4").view(np.uint8).reshape(-1)
    images = case.dram_in.copy(), case.dram_out.copy()
    for image in images:
        for start, data in pieces.items():
            image[start : start + len(data)] = data
    return images


@pytest.mark.slow
@pytest.mark.parametrize("change", [{}, {"name": "two", "units": ["gemm", "ternary"], "acc_banks": 4}, "pynq_z1_two"])
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_programs_on_the_circuit(path, change):
    """On VTA's own sizes, without and with a second unit, and encoded for the smaller scratchpads of the board."""
    from tilewright.sim.rtl import RtlDevice

    case = read_case(path)
    cfg = PRESETS[change] if isinstance(change, str) else case.cfg.replace(**change)
    image, expected = encoded(case, cfg)
    stats = RtlDevice(cfg).run_image(image, case.insn_addr, case.insn_count)
    np.testing.assert_array_equal(image, expected)
    assert stats.cycles and stats.insns == replay_case(path).stats.insns


@pytest.mark.parametrize("preset", ["vta", "pynq_z1", "tiny"])
@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
def test_network(path, preset):
    pytest.importorskip("tvm")
    from tilewright.compiler.network import compile_model

    executable = compile_model(path, PRESETS[preset])
    launches = [step for step in executable.steps if isinstance(step, LaunchStep)]
    assert launches
    for step in launches:
        verify(step.launch)
    with np.load(path.with_suffix(".npz")) as data, Loaded(executable, open_device("model", executable.cfg)) as loaded:
        (x,) = executable.inputs
        for k, sample in enumerate(data["inputs"]):
            (found,) = loaded.run({x.name: sample}).values()
            assert np.array_equal(found, data["outputs"][k]), f"sample {k}"
