"""The timing model against the circuit, for every legal value of every field that describes the circuit alone."""

import itertools
import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import UnsupportedError
from tilewright.hw.isa import INSN_BYTES, AluOp, Mem, Queue
from tilewright.hw.units import stripes
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.dram import PRESETS as MEMORIES
from tilewright.sim.dram import load_dram, unshared
from tilewright.sim.random_programs import FOUR, FOUR_TWO, random_case
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.timing import predict
from tilewright.sim.timing.device import TimingDevice

TINY = PRESETS["tiny"]
# Its parameters are no whole beats of more than 128 bits; entries of all other memories are smaller than a beat.
PLAIN = TINY.replace(extensions=TINY.extensions - {"requant", "rescale"})
BLOCK16 = PRESETS["pynq_z1"].replace(uop_bytes=1 << 11, inp_bytes=1 << 12, wgt_bytes=1 << 14, acc_bytes=1 << 13)
FAST = [PLAIN.replace(axi_bits=32, load_ports=2, array_clock=2)]  # `PORTS` of sim/random_programs.py
SLOW = [
    TINY.replace(axi_bits=32, load_ports=2),
    PLAIN.replace(axi_bits=32, load_ports=2),
    PLAIN.replace(axi_bits=512, queue_depth=4),
]
SLOW += [PLAIN.replace(axi_bits=bits) for bits in (256, 512)]
SLOW += [TINY.replace(axi_bits=bits) for bits in (64, 128)]
SLOW += [BLOCK16.replace(axi_bits=bits) for bits in (256, 512)]
# Two ports: loads spread over both, but for 512 bits, where the load unit has one of its own.
SLOW += [TINY.replace(load_ports=2), *(PLAIN.replace(load_ports=2, axi_bits=bits) for bits in (128, 256, 512))]
SLOW += [BLOCK16.replace(load_ports=2, axi_bits=bits) for bits in (64, 256)]
SLOW += [TINY.replace(axi_bits=32, load_ports=4), PLAIN.replace(load_ports=4), BLOCK16.replace(load_ports=4)]
SLOW += [TINY.replace(queue_depth=depth) for depth in (4, 8, 1024)]
SLOW += [TINY.replace(token_depth=depth) for depth in (1, 2, 3, 65535)]
SLOW += [TINY.replace(acc_banks=banks) for banks in (1, 4)]
SLOW += [TINY.replace(ppu_lanes=lanes) for lanes in (1, 2, 64)]
SLOW += [BLOCK16.replace(ppu_lanes=lanes) for lanes in (4, 16)]
SLOW += [BLOCK16.replace(dsp_packing=packing) for packing in (False, True)]
SLOW += [BLOCK16.replace(array_clock=2), TINY.replace(array_clock=2), FOUR, FOUR_TWO]

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def named(cfg: Config) -> str:
    base = min((TINY, PLAIN, BLOCK16), key=lambda other: len(changes(cfg, other)))
    return ",".join(["tiny" if base != BLOCK16 else "block16", *map(str, changes(cfg, base))])


def changes(cfg: Config, base: Config) -> list[str]:
    theirs = base.to_dict()
    return [f"{name}={value}" for name, value in cfg.to_dict().items() if value != theirs.get(name) and name != "name"]


CIRCUITS = [pytest.param(cfg, id=named(cfg)) for cfg in FAST]
CIRCUITS += [pytest.param(cfg, id=named(cfg), marks=pytest.mark.slow) for cfg in SLOW]


@pytest.fixture(scope="module", params=CIRCUITS)
def cfg(request):
    """Circuit after circuit: there are more than the cache keeps."""
    return request.param


@pytest.mark.circuit
@needs_compiler
@pytest.mark.parametrize("memory", ["zynq_hp", "wide", "ideal"])
def test_random_programs_take_as_long_as_in_the_circuit(cfg, memory):
    dram = unshared(cfg, MEMORIES[memory])
    circuit, timing, errors = RtlDevice(cfg, dram=dram), TimingDevice(cfg, dram=dram), []
    for seed in range(20):
        image, address, count = random_case(cfg, seed)
        expected = circuit.run_image(image.copy(), address, count).cycles
        got = timing.run_image(image, address, count).cycles
        assert got and expected
        print(f"seed {seed}: {got} cycles, circuit {expected}")
        errors.append(abs(got / expected - 1))
    mean, worst = (0.005, 0.02) if stripes(cfg) > 1 else (0.01, 0.03)
    assert np.mean(errors) < mean and max(errors) < worst


def fetched(cfg: Config, count: int, issues: int) -> Program:
    """`count` instructions of one micro-op but for the first, of `issues`, and a load at the end."""
    program = Program(cfg, "fetched", tokens="explicit")
    x = program.buffer("x", (1, cfg.inp_entry_bytes))
    program.alu(AluOp.ADD, [(issues, 0, 0)], imm=1)
    for _ in range(count - 1):
        program.alu(AluOp.ADD, [(1, 0, 0)], imm=1)
    program.load(Mem.INP, 0, x, 0)
    return program


@pytest.mark.circuit
@needs_compiler
def test_fetching_takes_as_long_as_in_the_circuit_wherever_queues_fill_up(cfg):
    for memory in ("zynq_hp", "wide"):
        dram = unshared(cfg, MEMORIES[memory])
        circuit, timing = RtlDevice(cfg, dram=dram), TimingDevice(cfg, dram=dram)
        for count, issues in itertools.product((1, 2, 3, 4, 30, 101), (1, 40)):
            launch = fetched(cfg, count, issues).finish()
            inputs = {"x": np.zeros((1, cfg.inp_entry_bytes), np.int8)}
            cycles = [run(launch, inputs, device)[1].cycles for device in (timing, circuit)]
            assert cycles[0] == cycles[1], (memory, count, issues)


@pytest.mark.circuit
@needs_compiler
def test_programs_may_begin_inside_a_beat(cfg):
    dram = unshared(cfg, MEMORIES["wide"])
    circuit, timing = RtlDevice(cfg, dram=dram), TimingDevice(cfg, dram=dram)
    image, address, count = random_case(cfg, 1)
    words = image[address : address + INSN_BYTES * count]
    for skipped in range(4):
        moved = np.concatenate([image, np.zeros(-len(image) % 64 + INSN_BYTES * skipped, np.uint8)])
        at, moved = len(moved), np.concatenate([moved, words])
        got, expected = (device.run_image(moved.copy(), at, count).cycles or 0 for device in (timing, circuit))
        assert abs(got - expected) <= 0.005 * expected, skipped


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_a_beat_brings_its_instructions_one_per_cycle(bits):
    timing = predict(fetched(PLAIN.replace(axi_bits=bits), 40, 1), dram=MEMORIES["wide"])
    arrive = timing.arrive[timing.queue == Queue.COMPUTE]
    assert arrive[1] - arrive[0] == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"load_ports": 4, "axi_bits": 256}, "Config.load_ports = 4: the load unit takes 512 bits at once"),
        ({"store_ports": 2}, "Config.store_ports = 2: the core has 1; use that"),
        ({"store_ports": 4}, "Config.store_ports = 4: the core has 1; use that"),
        ({"axi_bits": 256}, "Config.axi_bits = 256: extension requant needs entries of PAR that are whole beats"),
    ],
)
def test_circuits_that_do_not_exist_are_refused_alike(change, text):
    cfg = TINY.replace(**change)
    for refused in (lambda: RtlDevice(cfg), lambda: predict(Program(cfg), dram=MEMORIES["wide"])):
        with pytest.raises(UnsupportedError) as caught:
            refused()
        assert text in str(caught.value)


def test_two_load_ports_need_a_memory_with_three_ports_of_bandwidth():
    cfg = TINY.replace(load_ports=2)
    with pytest.raises(UnsupportedError, match="zynq_hp: moves 16 bytes .* together 24; .* with --dram zynq_hp4, or"):
        predict(Program(cfg))
    assert predict(Program(cfg), dram=MEMORIES["zynq_hp4"]).cycles
    with pytest.raises(UnsupportedError, match="with --dram zynq_hp4,total_bytes=40, or"):
        predict(Program(cfg.replace(load_ports=4)))
    assert predict(Program(cfg.replace(load_ports=4)), dram=load_dram("zynq_hp4,total_bytes=40")).cycles
