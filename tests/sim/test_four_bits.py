"""Weights of 4 bits and scales of their rows: layers against NumPy, and cycles of long loads."""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import AccessError, ProgramError
from tilewright.hw.isa import Mem, Op
from tilewright.runtime.layout import pack_dense_weights, pack_four_bits
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify
from tilewright.sim.dram import unshared
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import FOUR, FOUR_TWO
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.spec import SpecDevice
from tilewright.sim.timing import predict

BLOCK16 = PRESETS["vta"].replace(
    name="four16", inp_bytes=1 << 12, acc_bytes=1 << 13, wgt_bytes=1 << 16, extensions={"pad_value", "wgt4"}
)
BUILT = [pytest.param(FOUR, id="one port"), pytest.param(FOUR_TWO, id="two ports", marks=pytest.mark.slow)]
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def weights(rng, outputs, inputs, block_in):
    """Integers from -8 to 7, times a scale from 0 to 15 for each row of a block."""
    values = rng.integers(-8, 8, (outputs, inputs // block_in, block_in))
    return (values * rng.integers(0, 16, values.shape[:2])[..., None]).reshape(outputs, inputs)


def layer(cfg: Config, rng: np.random.Generator, rows: int, columns: int, parts: int = 1):
    """(program, inputs, result modulo 256) of a dense layer of `rows` blocks of outputs and `columns` of inputs.

    Weights are loaded in `parts` loads, each of so many columns of every row of blocks.
    """
    w = weights(rng, rows * cfg.block_out, columns * cfg.block_in, cfg.block_in)
    x = rng.integers(-128, 128, (cfg.batch, columns * cfg.block_in))
    data = pack_four_bits(pack_dense_weights(w, cfg), cfg)
    p, each = Program(cfg), columns // parts
    xs = p.buffer("x", (columns, cfg.batch, cfg.block_in))
    ws = p.buffer("w", data.shape, signed=False, kind="constant", data=data.reshape(-1))
    y = p.buffer("y", (rows, cfg.batch, cfg.block_out), kind="output")
    p.load(Mem.INP, 0, xs, 0, x_size=columns)
    p.gemm([(rows, 1, 0, 0)], reset=True)
    for part in range(parts):
        p.load(Mem.WGT4, 0, ws, part * each, y_size=rows, x_size=each, x_stride=columns)
        p.gemm([(rows, 1, 0, each), (each, 0, 1, 1)], src=part * each)
    p.store(0, y, 0, x_size=rows)
    packed = x.reshape(cfg.batch, columns, cfg.block_in).transpose(1, 0, 2)
    product = (x @ w.T).reshape(cfg.batch, rows, cfg.block_out).transpose(1, 0, 2)
    return p, {"x": packed}, product.astype(np.int8)


@pytest.fixture
def rng():
    return np.random.default_rng(4)


@pytest.mark.parametrize("cfg", [FOUR, BLOCK16], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("parts", [1, 3])
def test_a_dense_layer_is_numpys_product(rng, cfg, parts):
    program, inputs, wanted = layer(cfg, rng, 2, 6, parts)
    verify(program.finish())
    for device in (SpecDevice(cfg), ModelDevice(cfg)):
        outputs, stats = run(program, inputs, device)
        np.testing.assert_array_equal(outputs["y"], wanted)
        assert stats.bytes_loaded["WGT4"] == 12 * cfg.wgt4_entry_bytes and stats.insns["LOADP.WGT4"] == parts


def test_constants_are_packed_where_all_their_loads_allow_it(rng):
    """Not one that is also loaded as something else, nor one of which a row has no such form."""
    w = weights(rng, 3 * FOUR.block_out, FOUR.block_in, FOUR.block_in).reshape(3, FOUR.block_out, FOUR.block_in)
    other = w.copy()
    other[1, 2, 3] = 127
    p, found = Program(FOUR), []
    for name, data in (("few", w), ("also inputs", w), ("no form", other)):
        raw = data.astype(np.int8).view(np.uint8).reshape(-1)
        found.append(p.buffer(name, data.shape, kind="constant", data=raw))
    p.load(Mem.INP, 0, found[1], 0)
    y = p.buffer("y", (4, FOUR.batch, FOUR.block_out), kind="output")
    for at, (buffer, entry) in enumerate(zip((found[0], *found), (2, 1, 1, 1))):
        p.load(Mem.WGT, 4 * at, buffer, entry)
        p.gemm([], dst=at, wgt=4 * at)
    p.pack_constants()
    p.store(0, y, 0, x_size=4)
    assert [b.nbytes // 3 for b in found] == [FOUR.wgt4_entry_bytes, FOUR.wgt_entry_bytes, FOUR.wgt_entry_bytes]
    verify(p.finish())
    outputs, stats = run(p, {}, ModelDevice(FOUR))
    wanted = [(data[entry] @ w[0, 0]).astype(np.int8) for data, entry in ((w, 2), (w, 1), (w, 1), (other, 1))]
    np.testing.assert_array_equal(outputs["y"][:, 0], wanted)
    assert (stats.insns["LOADP.WGT4"], stats.insns["LOAD.WGT"]) == (2, 2)


def test_a_load_beyond_its_buffer_is_refused():
    """By the recorder, and by the verifier, in the bytes that such entries have in DRAM."""
    p = Program(FOUR)
    w = p.buffer("w", (4, FOUR.wgt4_entry_bytes), signed=False)
    with pytest.raises(ProgramError, match="loadp: reaches byte 180 of buffer 'w', which has 144"):
        p.load(Mem.WGT4, 0, w, 1, x_size=4)
    p.load(Mem.WGT4, 0, w, 1, x_size=3)
    launch = p.finish()
    verify(launch)
    (at,) = np.flatnonzero(launch.insn[:, 0] & np.uint64(7) == Op.LOADP)
    launch.insn[at] += np.array([1 << 26, 0], np.uint64)  # the next entry of DRAM
    with pytest.raises(AccessError, match="ends at byte 180 of buffer .w., which has 144"):
        verify(launch)


@pytest.mark.circuit
@needs_compiler
@pytest.mark.parametrize("cfg", BUILT)
def test_a_dense_layer_of_the_circuit_is_numpys_product(rng, cfg):
    device = RtlDevice(cfg, dram=unshared(cfg))
    for rows, columns, parts in ((1, 1, 1), (3, 5, 1), (3, 5, 5), (4, 12, 4), (2, 15, 3), (7, 9, 3)):
        program, inputs, wanted = layer(cfg, rng, rows, columns, parts)
        outputs, stats = run(program, inputs, device)
        np.testing.assert_array_equal(outputs["y"], wanted)
        assert stats.cycles == predict(program, dram=unshared(cfg)).cycles, (rows, columns, parts)


def loading(cfg: Config, mem: Mem, rounds: int, stride: int = 0) -> Program:
    """`rounds` loads that fill the weights, of rows of 16 entries, one behind the other or `stride` entries apart."""
    p, rows = Program(cfg), cfg.wgt_depth // 16
    size = cfg.wgt4_entry_bytes if mem == Mem.WGT4 else cfg.wgt_entry_bytes
    data = p.buffer("w", ((rows + 1) * max(stride, 16), size), signed=False)
    y = p.buffer("y", (1, cfg.batch, cfg.block_out), kind="output")
    for _ in range(rounds):
        p.load(mem, 0, data, 1, y_size=rows, x_size=16, x_stride=stride or 16)
    p.gemm([(1, 0, 0, 0)])
    p.store(0, y, 0)
    return p


@pytest.mark.parametrize("ports", [1, 2])
def test_a_long_load_takes_as_long_as_its_bytes(ports):
    cfg = BLOCK16.replace(load_ports=ports)
    plain, few = (predict(loading(cfg, mem, 8), dram=unshared(cfg)).cycles for mem in (Mem.WGT, Mem.WGT4))
    wanted = (16 + 1) / 32
    print(f"{ports} ports: {plain} cycles for 8 bits, {few} for 4: {few / plain:.4f}")
    assert wanted < few / plain < wanted + 0.01


@pytest.mark.circuit
@needs_compiler
@pytest.mark.parametrize("cfg", BUILT)
def test_long_loads_take_as_long_as_in_the_circuit(cfg):
    device = RtlDevice(cfg, dram=unshared(cfg))
    for stride in (0, 16, 17, 19, 24):
        program = loading(cfg, Mem.WGT4, 6, stride)
        inputs = {name: np.zeros(b.shape, np.uint8) for name, b in program.buffers.items() if b.kind == "input"}
        expected = run(program, inputs, device)[1].cycles
        got = predict(program, dram=unshared(cfg)).cycles
        print(f"stride {stride}: {got} cycles, circuit {expected}")
        assert expected and abs(got / expected - 1) < 0.001
