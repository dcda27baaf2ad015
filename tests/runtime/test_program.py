"""The recorder against numpy loops that run beside it, on the behavioural model."""

import numpy as np
import pytest

from tests.runtime.launches import races_without_a_pair, token_flags
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, EncodingError, ProgramError
from tilewright.hw.isa import AluOp, Isa, Mem, Op, Queue
from tilewright.runtime.buffer import Region
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import FOUR, ODD, ROWS, WIDE, Recorder, record_random

VTA, TINY, TWO = PRESETS["vta"], PRESETS["tiny"], PRESETS["tiny_two"]


def wrap(x):
    return (np.asarray(x, np.int64) + 2**31) % 2**32 - 2**31


def alu(op, a, b):
    if op == AluOp.SHR:
        return wrap(a >> b if b >= 0 else a << -b)
    return wrap({AluOp.MIN: np.minimum, AluOp.MAX: np.maximum, AluOp.ADD: np.add, AluOp.MUL: np.multiply}[op](a, b))


FIELDS = [("bias", 0, 32), ("multiplier", 32, 31), ("exponent", 63, 6), ("zero_point", 69, 8), ("low", 77, 8)]
FIELDS += [("high", 85, 8), ("mode", 93, 1)]


def signed(x, bits):
    half = 1 << bits - 1
    return (x + half) % (2 * half) - half


def scaled(x, multiplier, exponent, mode, **rest):
    """x * multiplier * 2 ** (exponent - 31) on Python's integers, rounded once (mode 1) or twice."""
    if mode:
        return (2 * x * multiplier + 2 ** (31 - exponent)) // 2 ** (32 - exponent)
    high = (2 * signed(x * 2 ** max(exponent, 0), 32) * multiplier + 2**31) // 2**32
    away = (2 * abs(high) + 2 ** max(-exponent, 0)) // 2 ** (max(-exponent, 0) + 1)
    return away if high > 0 else -away


def quantised(values, p):
    """int8 of int64 accumulators (any shape) of one channel."""
    out = [scaled(signed(v + p["bias"], 32), **p) + p["zero_point"] for v in values.reshape(-1).tolist()]
    return np.array([min(max(v, p["low"]), p["high"]) for v in out]).reshape(values.shape)


def four_bits(cfg, data):
    """The weights (n, block_out, block_in) of the whole entries of WGT4 in `data`, uint8."""
    size, count = cfg.block_out * (cfg.block_in + 1) // 2, cfg.block_out
    data = data[: len(data) // size * size].astype(np.int64)
    nibbles = np.stack([data & 15, data >> 4], -1).reshape(-1, 2 * size)
    values = signed(nibbles[:, count:], 4).reshape(-1, count, cfg.block_in)
    return values * nibbles[:, :count, None]


class Shadow(Recorder):
    """Records a program and does the same with plain loops on numpy arrays."""

    def __init__(self, cfg, seed, words=4096):
        super().__init__(cfg, seed, words)
        self.par = np.zeros((cfg.par_room, cfg.block_out, 3), np.int64)
        self.inp = np.zeros((cfg.inp_depth, cfg.batch, cfg.block_in), np.int64)
        self.wgt = np.zeros((cfg.wgt_depth, cfg.block_out, cfg.block_in), np.int64)
        self.acc = np.zeros((cfg.acc_depth, cfg.batch, cfg.block_out), np.int64)
        self.out = np.zeros((words, *self.acc.shape[1:]), np.int64)

    def load(self, mem, sram, offset, y=1, x=1, stride=None, pads=(0, 0, 0, 0), pad_value=0):
        stride = x if stride is None else stride
        super().load(mem, sram, offset, y, x, stride, pads, pad_value)
        scratchpad, bits = self.memory(mem)
        value = signed(pad_value, bits)
        tile = np.full((pads[0] + y + pads[1], pads[2] + x + pads[3], *scratchpad.shape[1:]), value, np.int64)
        source = self.data[mem]
        if mem == Mem.WGT4:
            source = four_bits(self.cfg, source.astype(np.uint8).reshape(-1))
        for row in range(y):
            tile[pads[0] + row, pads[2] : pads[2] + x] = source[offset + row * stride :][:x]
        flat = tile.reshape(-1, *scratchpad.shape[1:])
        scratchpad[sram : sram + len(flat)] = flat

    def gemm(self, loops, uops=((0, 0, 0),), reset=False, overwrite=False, depthwise=False, taps=1):
        super().gemm(loops, np.array(uops), reset, overwrite, depthwise, taps)
        rows = self.wgt.reshape(-1, self.cfg.block_out)
        for d, s, w in indices(loops, uops):
            first = w * self.cfg.row_taps if taps > 1 else w
            if depthwise:
                dot = sum(self.inp[s + t] * rows[first + t] for t in range(taps))
            else:
                dot = self.inp[s] @ self.wgt[w].T
            self.acc[d] = 0 if reset else wrap(dot if overwrite else self.acc[d] + dot)

    def alu(self, op, loops, uops=((0, 0),), imm=None):
        super().alu(op, loops, np.array(uops), imm)
        for d, s in indices(loops, uops):
            if op == AluOp.RESCALE:
                for c, p in enumerate(self.parameters(imm)):
                    self.acc[d][:, c] = [wrap(scaled(v, **p)) for v in self.acc[d][:, c].tolist()]
            elif op == AluOp.LOOKUP:
                self.acc[d] = self.table(imm)[np.clip(self.acc[d], -128, 127) + 128]
            elif op == AluOp.REDUCE:
                self.acc[d] = wrap((self.acc[d].max if imm else self.acc[d].sum)(-1, keepdims=True))
            else:
                self.acc[d] = alu(op, self.acc[d], self.acc[s] if imm is None else imm)

    def table(self, number):
        """The values of a table: the first words of its PAR entries, two for each channel."""
        cfg = self.cfg
        parts = self.par[cfg.par_entries :].reshape(cfg.tables, -1, 3 * cfg.block_out)[number]
        return signed(parts[:, : 2 * cfg.block_out].reshape(-1), 32)

    def parameters(self, entry):
        """Fields by name of each channel of a PAR entry."""
        numbers = [sum((int(v) % 2**32) << 32 * k for k, v in enumerate(words)) for words in self.par[entry]]
        return [
            {name: signed(n >> low, bits) if name not in ("multiplier", "mode") else (n >> low) % 2**bits
             for name, low, bits in FIELDS}
            for n in numbers
        ]  # fmt: skip

    def store(self, sram, offset, y=1, x=1, stride=None, par=None, par_step=0):
        stride = x if stride is None else stride
        super().store(sram, offset, y, x, stride, par, par_step)
        for row in range(y):
            values = self.acc[sram + row * x :][:x]
            if par is None:
                stored = signed(values, self.cfg.out_bits)
            else:
                stored = np.stack(
                    [quantised(values[..., c], p) for c, p in enumerate(self.parameters(par + row * par_step))], -1
                )
            self.out[offset + row * stride :][:x] = stored

    def reload(self, mem, sram, offset, y, x, stride):
        super().reload(mem, sram, offset, y, x, stride)
        scratchpad, bits = self.memory(mem)
        assert self.cfg.out_bits == 8
        stored = self.out.astype(np.uint8).reshape(-1)
        if bits < 8:  # the first value is the lowest bits
            stored = np.stack([stored >> low & (1 << bits) - 1 for low in range(0, 8, bits)], -1).reshape(-1)
        values = signed(stored.view(f"<i{bits // 8}").astype(np.int64) if bits > 8 else stored.astype(np.int64), bits)
        values = values[: values.size - values.size % scratchpad[0].size].reshape(-1, *scratchpad.shape[1:])
        if mem == Mem.WGT4:
            values = four_bits(self.cfg, self.out.astype(np.uint8).reshape(-1))
        for row in range(y):
            scratchpad[sram + row * x :][:x] = values[offset + row * stride :][:x]

    def memory(self, mem):
        """The scratchpad that loads of `mem` write, and the bits of its elements in DRAM."""
        cfg = self.cfg
        known = {Mem.INP: (self.inp, cfg.inp_bits), Mem.WGT: (self.wgt, cfg.wgt_bits), Mem.PAR: (self.par, 32)}
        known[Mem.WGT4] = (self.wgt, 8)
        return known.get(mem, (self.acc, 8 if mem == Mem.ACC8 else 32))

    def check(self, interleavings=0):
        launch = self.program.finish()
        assert verify(launch).pairs
        stats = None
        for device in ["model"] + [ModelDevice(self.cfg, rng=self.rng) for _ in range(interleavings)]:
            outputs, stats = run(self.program, self.inputs, device)
            np.testing.assert_array_equal(outputs["out"], self.out)
        return launch, stats


def indices(loops, uops):
    """The index tuples that `uops` within `loops` step through, in order."""
    for trips in np.ndindex(*(n for n, *_ in loops)):
        for uop in uops:
            yield tuple(b + sum(t * loop[k] for t, loop in zip(trips, loops)) for k, b in enumerate(uop, 1))


def random_program(cfg, seed, length=25):
    s = Shadow(cfg, seed)
    record_random(s, length)
    return s


@pytest.mark.parametrize("cfg", [VTA, TINY, ODD, WIDE, ROWS, FOUR, PRESETS["pynq_z1"]], ids=lambda c: c.name)
@pytest.mark.parametrize("seed", range(8))
def test_random_programs_equal_numpy(cfg, seed):
    print(f"seed {seed}")
    random_program(cfg, seed).check(interleavings=3)


@pytest.mark.parametrize("count", [8193, 20000])
def test_more_micro_ops_than_the_buffer_holds(count):
    """One kernel, and many kernels, beyond 8192 micro-ops in one launch: VTA is silently wrong there."""
    s = Shadow(VTA, count)
    s.load(Mem.INP, 0, 0, x=64)
    s.load(Mem.WGT, 0, 0, x=64)
    index = s.rng.integers(0, [2048, 64, 64], (count, 3))
    s.program.gemm([(2048, 1, 0, 0)], reset=True)
    s.program.gemm_uops(index)
    for d, src, w in index:
        s.acc[d] = wrap(s.acc[d] + s.inp[src] @ s.wgt[w].T)
    for part in np.array_split(s.rng.permutation(2048)[:, None].repeat(2, 1), 7):  # kernels that evict each other
        s.program.alu_uops(AluOp.SHR, part, imm=5)
        s.acc[part[:, 0]] >>= 5
    s.store(0, 0, x=2048)
    launch, stats = s.check()
    assert stats is not None and stats.uops == 2048 + count + 2048
    assert launch.uops.size > 8192


def test_many_kernels_evict_and_reload():
    s = Shadow(ODD, 3)  # 32 micro-ops on chip
    s.load(Mem.ACC, 0, 0, x=32)
    kernels = [s.rng.permutation(32)[: s.rng.integers(5, 20)] for _ in range(6)]
    for k in [0, 1, 2, 0, 3, 4, 5, 1, 0, 0]:
        s.program.alu_uops(AluOp.ADD, np.stack([kernels[k]] * 2, 1), imm=k + 1)
        s.acc[kernels[k]] += k + 1
    s.acc = wrap(s.acc)
    s.store(0, 0, x=32)
    launch, _ = s.check()
    loads = [f for f in Isa(ODD).decode(launch.insn) if f["op"] == Op.LOAD and f["mem"] == Mem.UOP and f["x_size"]]
    assert len(loads) > 6, "some kernel must have been evicted and loaded again"
    assert launch.uops.size == sum(map(len, kernels)), "each kernel lies once in DRAM"


def test_kernels_whose_order_counts_are_cut_in_order():
    """A chain acc[d] = op(acc[d], acc[d - 1]), and products of which the last one counts."""
    for op in (AluOp.ADD, AluOp.MAX, AluOp.MUL):
        s = Shadow(ODD, 11)
        s.load(Mem.ACC, 0, 0, x=60)
        s.alu(op, [(2, 0, 0), (50, 1, 1)], np.array([(1, 0)]))
        s.alu(op, [(3, 1, 1), (13, 1, 1), (2, 0, 1)], np.array([(1, 0)]))
        s.store(0, 0, x=60)
        s.check()
    s = Shadow(ODD, 5)
    s.load(Mem.INP, 0, 0, x=32)
    s.load(Mem.WGT, 0, 0, x=16)
    s.gemm([(3, 1, 2, 0), (40, 0, 0, 0), (5, 1, 3, 1)], overwrite=True)
    s.gemm([(3, 0, 1, 0), (4, 1, 1, 1), (5, 2, 1, 1), (4, 1, 0, 2)], overwrite=True)
    s.store(0, 0, x=32)
    s.check()


def test_loops_longer_than_an_instruction_counts():
    s = Shadow(TINY, 1)
    s.load(Mem.INP, 0, 0, x=4)
    s.load(Mem.WGT, 0, 0, x=4)
    s.program.gemm([(20000, 0, 0, 0), (2, 1, 1, 1)])
    for d in range(2):
        s.acc[d] = wrap(20000 * (s.inp[d] @ s.wgt[d].T))
    s.store(0, 0, x=2)
    s.check()
    program = Program(VTA)
    program.alu(AluOp.ADD, [(200, 0, 0), (200, 0, 0)], imm=1)  # merged, they would be too long
    launch = program.finish()
    assert len(launch.uops) == 1 and len(launch.insn) == 3, "one micro-op: its load, the instruction, FINISH"


def test_the_stride_of_a_single_row_is_of_no_account():
    program, far = Program(VTA), 1 << 20
    x, y = program.buffer("x", (4, 1, 16)), program.buffer("y", (4, 1, 16), kind="output")
    program.load(Mem.INP, 0, x, 0, x_size=3, x_stride=far)
    program.gemm([(3, 1, 0, 0)], 0, reset=True)
    program.store(0, y, 0, x_size=3, x_stride=far)
    with pytest.raises(EncodingError, match="x_stride"):
        program.load(Mem.INP, 0, x, 0, y_size=2, x_stride=far)
    moved = [f for f in Isa(VTA).decode(program.finish().insn) if f.get("mem") in (Mem.INP, Mem.OUT)]
    assert [f["x_stride"] for f in moved] == [3, 3]


def explicit(push=True):
    program = Program(VTA, tokens="explicit")
    a, out = program.buffer("a", (4, 1, 16), 32), program.buffer("out", (4, 1, 16), kind="output")
    program.load(Mem.ACC, 0, a, 0, x_size=4)
    program.alu(AluOp.ADD, [(4, 1, 1)], imm=3)
    if push:
        program.dep_push(Queue.COMPUTE, Queue.STORE)
        program.dep_pop(Queue.COMPUTE, Queue.STORE)
    program.store(0, out, 0, x_size=4)
    return program


def test_explicit_tokens():
    x = np.arange(64).reshape(4, 1, 16)
    program = explicit()
    verify(program.finish())
    outputs, _ = run(program, {"a": x})
    np.testing.assert_array_equal(outputs["out"], (x + 3 + 128) % 256 - 128)


def test_explicit_tokens_use_nops_where_no_instruction_can_carry_them():
    program = Program(VTA, tokens="explicit")
    for _ in range(2):
        program.dep_push(Queue.LOAD, Queue.COMPUTE)
        program.dep_pop(Queue.LOAD, Queue.COMPUTE)
    launch = program.finish()
    verify(launch)
    carried = [f for f in Isa(VTA).decode(launch.insn) if f.get("x_size") == 0]
    assert len(carried) == 5  # two pushes, two pops, one drain of the load queue


@pytest.mark.parametrize("seed", range(4))
def test_no_token_of_a_random_program_is_superfluous(seed):
    races_without_a_pair(random_program(VTA, 100 + seed).program.finish())


def test_finish_twice_gives_the_same_launch():
    program = explicit()
    assert program.finish() is program.finish()
    for late in (lambda: program.alu(AluOp.ADD, [], imm=1), lambda: program.dep_pop(Queue.LOAD, Queue.COMPUTE)):
        with pytest.raises(ProgramError, match="finished"):
            late()


def a(p):
    return p.buffer("a", (8, 1, 16))


def out(p):
    return p.buffer("out", (8, 1, 16), kind="output")


def par(p):
    return p.buffer("par", (8, 4, 3), 32)


def w(p):
    return p.buffer("w", (128, 16))


PLAIN = TWO.replace(name="plain", extensions=TWO.extensions - {"overwrite"})
# tiny has 8 PAR entries of 48 bytes, 128 weight entries of 4 rows
MISTAKES = [
    (VTA, lambda p: Program(VTA, tokens="maybe"), ProgramError, "tokens = 'maybe': must be 'auto' or 'explicit'"),
    (VTA, lambda p: (a(p), a(p)), ProgramError, "buffer 'a' is declared twice"),
    (VTA, lambda p: p.load(Mem.INP, 0, a(Program(VTA)), 0), ProgramError, "buffer 'a' belongs to another program"),
    (VTA, lambda p: p.load(Mem.INP, 0, Region("part", (32,), whole=a(p), start=4), 0), ProgramError,
     "load: region 'part' begins at byte 4: must be a multiple of 16"),
    (VTA, lambda p: p.load(Mem.INP, 0, a(p), 4, x_size=5), ProgramError,
     "reaches byte 144 of buffer 'a', which has 128"),
    (VTA, lambda p: p.load(Mem.INP, 2045, a(p), 0, x_size=4), CapacityError, "load of 'a' writes INP entry 2048, but"),
    (VTA, lambda p: p.load(Mem.UOP, 0, a(p), 0), ProgramError, "load: memory UOP must be one of WGT, INP, ACC"),
    (VTA, lambda p: p.load(Mem.INP, 0, a(p), 0, pads=(16, 0, 0, 0)), EncodingError, "LOAD.y_pad_0 = 16: outside"),
    (VTA, lambda p: p.load(Mem.INP, 0, a(p), 0, pads=(1, 0, 0, 0), pad_value=1), ProgramError, "extension pad_value"),
    (VTA, lambda p: p.load(7, 0, a(p), 0), ProgramError, "load: memory 7 must be one of WGT, INP, ACC, ACC8, as"),
    (VTA, lambda p: p.load(Mem.INP, 0, a(p), 0, pads=(1, 1)), ProgramError, "load: pads is (1, 1): must be 4 integers"),
    (VTA, lambda p: p.load(Mem.INP, 0.5, a(p), 0), ProgramError, "must be 5 integers"),
    (VTA, lambda p: p.gemm([(2, 1)]), ProgramError, "gemm: loop is (2, 1): must be 4 integers"),
    (VTA, lambda p: p.alu(AluOp.ADD, [(2.5, 1, 1)]), ProgramError, "alu: loop is (2.5, 1, 1): must be 3 integers"),
    (VTA, lambda p: p.alu(AluOp.ADD, [], imm=1.5), ProgramError, "alu: imm is (1.5,): must be 1 integer"),
    (VTA, lambda p: p.alu(AluOp.RESCALE, [], imm=1), ProgramError, "extension rescale is not in configuration vta"),
    (VTA, lambda p: p.gemm([], depthwise=True), ProgramError, "extension depthwise is not in configuration vta"),
    (VTA, lambda p: p.load(Mem.PAR, 0, a(p), 0), ProgramError, "extension requant is not in configuration vta"),
    (VTA, lambda p: p.store(0, out(p), 0, par=0), ProgramError, "extension requant is not in configuration vta"),
    (VTA, lambda p: p.store(0, out(p), 0, par_step=1), ProgramError, "par_step = 1 needs par, the PAR entry of row 0"),
    (VTA, lambda p: p.buffer("uop", (4,)), ProgramError, "buffer name 'uop' is reserved for micro-ops"),
    (VTA, lambda p: (p.finish(), p.buffer("b", (4,))), ProgramError, "program 'program' is finished"),
    (VTA, lambda p: p.store(0, a(p), 0), ProgramError, "buffer 'a' is input; only output, temp and state buffers can"),
    (VTA, lambda p: p.gemm([(2048, 1, 0, 0)], dst=1, reset=True), CapacityError,
     "gemm writes ACC entry 2048, but vta has"),
    (VTA, lambda p: p.gemm([(0, 1, 0, 0)]), ProgramError, "must run at least once"),
    (VTA, lambda p: p.gemm([], dst=4096), CapacityError, "gemm reaches beyond a scratchpad of vta: UOP.dst = 4096"),
    (VTA, lambda p: p.gemm([(2, 1, 0, 0)], overwrite=True), ProgramError,
     "extension overwrite is not in configuration vta"),
    (VTA, lambda p: p.alu(AluOp.ADD, [(2, 1, 1)], imm=40000), EncodingError, "ALU.imm = 40000: outside -32768..32767"),
    (VTA, lambda p: p.dep_push(Queue.LOAD, Queue.COMPUTE), ProgramError, "need Program(..., tokens='explicit')"),
    (VTA, lambda p: p.gemm_uops(np.zeros((2, 2), np.int8)), ProgramError,
     "must be integers of shape (n, 3), not int8 (2, 2)"),
    (TINY, lambda p: p.load(Mem.WGT4, 0, a(p), 0), ProgramError, "extension wgt4 is not in configuration tiny"),
    (FOUR, lambda p: p.load(Mem.WGT4, 0, a(p), 0, x_size=4), ProgramError, "reaches byte 144 of buffer 'a', which has"),
    (FOUR, lambda p: p.load(Mem.WGT4, 63, a(p), 0, x_size=2), CapacityError, "writes WGT entry 64, but four has 64"),
    (TINY, lambda p: p.load(Mem.PAR, 0, par(p), 1, x_size=8), ProgramError,
     "reaches byte 432 of buffer 'par', which has"),
    (TINY, lambda p: p.load(Mem.PAR, 1, par(p), 0, x_size=8), CapacityError,
     "'par' writes PAR entry 8, but tiny has 8"),
    (TINY, lambda p: p.load(Mem.PAR, 0, par(p), 0, pads=(1, 0, 0, 0)), ProgramError, "load: PAR cannot be padded"),
    (TINY, lambda p: p.load(Mem.PAR, 0, par(p), 0, pad_value=1), ProgramError, "load: PAR cannot be padded"),
    (TINY, lambda p: p.store(0, out(p), 0, par=8), CapacityError, "storeq of 'out' reads PAR entry 8, but tiny has 8"),
    (TINY, lambda p: p.store(0, out(p), 0, y_size=3, par=4, par_step=2), CapacityError,
     "reads PAR entry 8, but tiny has 8"),
    (TINY, lambda p: p.store(0, out(p), 0, par=1024), EncodingError,
     "STOREQ.par_base = 1024: outside 0..1023 (10 bits)"),
    (TINY, lambda p: p.store(0, out(p), 0, par=-1), EncodingError, "STOREQ.par_base = -1: outside"),
    (TINY, lambda p: p.store(0, out(p), 0, y_size=2, par=0, par_step=64), EncodingError,
     "par_step = 64: outside 0..63"),
    (TINY, lambda p: p.store(0, out(p), 0, par=0.5), ProgramError,
     "store: par, par_step is (0.5, 0): must be 2 integers"),
    (TINY, lambda p: p.alu(8, []), ProgramError,
     "alu: operation 8 is not declared; use one of MIN, MAX, ADD, SHR, MUL, "),
    (TINY, lambda p: p.alu(AluOp.RESCALE, []), ProgramError, "alu: RESCALE needs imm, its PAR entry"),
    (TINY, lambda p: p.alu(AluOp.LOOKUP, [], imm=0), ProgramError, "extension lookup is not in configuration tiny"),
    (TINY, lambda p: p.alu(AluOp.RESCALE, [], imm=8), CapacityError, "alu reads PAR entry 8, but tiny has 8"),
    (TINY, lambda p: p.alu(AluOp.RESCALE, [], imm=-1), CapacityError, "alu reads PAR entry -1, but tiny has 8"),
    (TINY, lambda p: p.gemm([(5, 0, 0, 127)], wgt=4, depthwise=True), CapacityError, "dwgemm reads WGT entry 128, but"),
    (TINY, lambda p: p.gemm([], wgt=128, depthwise=True), CapacityError,
     "dwgemm reaches beyond the 128 weight rows of a micro-op (steps of loops reach the others): UOP.wgt = 128"),
    (TINY, lambda p: p.gemm([], depthwise=True, reset=True, overwrite=True), ProgramError, "exclude each other"),
    (TINY, lambda p: p.gemm([], depthwise=True, taps=2), ProgramError,
     "extension depthwise_rows is not in configuration"),
    (ROWS, lambda p: p.gemm([], depthwise=True, taps=5), ProgramError,
     "gemm: taps = 5: rows takes 1 to 4, and with depthwise"),
    (ROWS, lambda p: p.gemm([], depthwise=True, taps=0), ProgramError, "gemm: taps = 0: rows takes 1 to 4"),
    (ROWS, lambda p: p.gemm([], taps=2), ProgramError, "gemm: taps = 2: rows takes 1 to 4, and with depthwise alone"),
    (ROWS, lambda p: p.gemm([], depthwise=True, taps=1.5), ProgramError, "gemm: taps is (1.5,): must be 1 integer"),
    (ROWS, lambda p: p.gemm([], src=125, depthwise=True, taps=4), CapacityError,
     "dwgemm reads INP entry 128, but rows has 128"),
    (ROWS, lambda p: p.gemm([], wgt=64, depthwise=True, taps=4), CapacityError,
     "beyond the 64 groups of weight rows of a"),
    (TWO, lambda p: p.ternary([], dst=8), CapacityError, "ternary names ACC entry 8, but unit ternary takes"),
    (TWO, lambda p: p.ternary([(9, 1, 0, 0)]), CapacityError, "takes the first 8 of every 32 alone"),
    (TWO, lambda p: p.ternary([(5, 32, 0, 0)]), CapacityError, "ternary writes ACC entry 128, but tiny_two has 128"),
    (TWO, lambda p: p.ternary([(2, 0, 0, 1)], wgt=127), CapacityError, "reads TWGT entry 128, but tiny_two has 128"),
    (TWO, lambda p: p.ternary([], dst=128), CapacityError, "ternary reaches beyond a scratchpad of tiny_two: UOP.dst"),
    (TWO, lambda p: p.ternary([], reset=True, overwrite=True), ProgramError, "ternary: reset and overwrite exclude"),
    (TWO, lambda p: p.ternary([(2, 1)]), ProgramError, "ternary: loop is (2, 1): must be 4 integers"),
    (TWO, lambda p: p.load(Mem.TUOP, 0, w(p), 0), ProgramError, "must be one of WGT, INP, ACC, ACC8, PAR, TWGT"),
    (TWO, lambda p: p.load(Mem.TWGT, 127, w(p), 0, x_size=2), CapacityError, "load of 'w' writes TWGT entry 128, but"),
    (TWO, lambda p: p.load(Mem.TWGT, 0, w(p), 0, pads=(1, 0, 0, 0), pad_value=1), ProgramError,
     "load: pad_value = 1: TWGT is padded with zeros alone"),
    (TINY, lambda p: p.ternary([]), ProgramError, "unit ternary is not in configuration tiny; choose one"),
    (TINY, lambda p: p.load(Mem.TWGT, 0, w(p), 0), ProgramError, "unit ternary is not in configuration tiny"),
    (WIDE, lambda p: p.alu(AluOp.LOOKUP, []), ProgramError, "alu: LOOKUP needs imm, its table"),
    (WIDE, lambda p: p.alu(AluOp.LOOKUP, [], imm=2), ProgramError,
     "alu: LOOKUP with imm = 2: tables of wide are 0 to 1"),
    (WIDE, lambda p: p.alu(AluOp.REDUCE, []), ProgramError, "alu: REDUCE needs imm, its reduction"),
    (WIDE, lambda p: p.alu(AluOp.REDUCE, [], imm=-1), ProgramError,
     "alu: REDUCE with imm = -1: reductions of wide are 0 sum, 1 max"),
    (VTA, lambda p: Program(VTA, tokens="explicit").dep_push(Queue.LOAD, Queue.STORE), ProgramError,
     "no token channel joins LOAD and STORE"),
    (PLAIN, lambda p: p.ternary([], overwrite=True), ProgramError, "extension overwrite is not in configuration plain"),
]  # fmt: skip


@pytest.mark.parametrize("cfg, mistake, error, text", MISTAKES, ids=lambda v: v[:40] if isinstance(v, str) else "")
def test_mistakes_are_named(cfg, mistake, error, text):
    with pytest.raises(error) as caught:
        mistake(Program(cfg))
    assert text in str(caught.value)


def test_parameters_are_ordered_between_the_store_queue_and_rescale():
    """A load of parameters hands them to RESCALE by a token, and waits for it before they change; STOREQ needs none."""
    s = Shadow(TINY, 2)
    s.load(Mem.ACC, 0, 0, x=4)
    s.load(Mem.PAR, 2, 0, x=2)
    s.alu(AluOp.RESCALE, [(4, 1, 0)], imm=3)
    s.load(Mem.PAR, 3, 5)
    s.store(8, 50, x=2, par=3)
    s.alu(AluOp.RESCALE, [(4, 1, 0)], imm=2)
    s.store(0, 0, y=2, x=2, par=2, par_step=1)
    launch, _ = s.check(interleavings=3)
    assert token_flags(launch) == [
        "LOAD.ACC", "LOAD.PAR push_prev", "ALU.RESCALE pop_next push_next", "LOAD.PAR pop_prev", "STORE.OUTQ",
        "ALU.RESCALE push_next", "STORE.OUTQ pop_prev push_prev", "FINISH pop_next",
    ]  # fmt: skip
    assert races_without_a_pair(launch) == 4


@pytest.mark.parametrize(
    "cfg, mem, shape, loaded, gemm",
    [
        (TINY, Mem.WGT, (8, 4, 4), 3, {"loops": [(4, 1, 1, 1)], "wgt": 8}),
        (ROWS, Mem.INP, (8, 1, 8), 4, {"loops": [(2, 1, 0, 1)], "taps": 4}),
    ],
)
def test_entries_that_are_read_but_not_named_wait(cfg, mem, shape, loaded, gemm):
    """Rows 8 to 11 of tiny's weights are its entry 2; four taps from input 0 on reach input 3."""
    p = Program(cfg)
    x = p.buffer("x", shape)
    p.load(mem, 0, x, 0, x_size=loaded)
    p.gemm(**gemm, depthwise=True)
    p.load(mem, loaded, x, loaded)
    p.load(mem, loaded - 1, x, loaded - 1)
    load = f"LOAD.{mem.name}"
    assert token_flags(p.finish()) == [
        f"{load} push_next", "DWGEMM pop_prev push_prev", load, f"{load} pop_next push_next", "FINISH pop_prev",
    ]  # fmt: skip


def test_entries_of_parameters_need_not_be_powers_of_two():
    """192 bytes each: buffers lie at multiples of 192 and of what else reads them."""
    cfg = PRESETS["pynq_z1"]
    s = Shadow(cfg, 4)
    s.load(Mem.ACC, 0, 0, x=8)
    s.load(Mem.PAR, 5, 60, x=3)
    s.store(0, 0, x=8, par=6)
    both = s.program.buffer("both", (12, 16, 4), 8, kind="temp")
    s.program.load(Mem.PAR, 0, both, 3)
    s.program.load(Mem.WGT, 0, both, 2)
    launch, _ = s.check()
    align = {b.name: b.align for b in launch.buffers}
    assert (align["PAR"], align["both"], align["WGT"]) == (192, 768, 64)


def test_configurations_and_operations_by_name():
    named, same = Program("tiny"), Program(PRESETS["tiny"])
    named.alu("Add", [(4, 1, 0)], imm=1)
    same.alu(AluOp.ADD, [(4, 1, 0)], imm=1)
    np.testing.assert_array_equal(named.finish().insn, same.finish().insn)


def test_it_shows_its_instructions_and_buffers():
    program = Program(TINY, "shown")
    program.buffer("x", (3, 1, 4), 32)
    program.load(Mem.ACC, 0, program.buffers["x"], 0, x_size=3)
    assert repr(program) == "Program('shown', tiny, 1 instructions, 1 buffers)"
    program.finish()
    assert repr(program) == f"Program('shown', tiny, {len(program.finish().insn)} instructions, 1 buffers)"
    assert "<td>x</td><td>input</td><td>32-bit (3, 1, 4)</td><td>48</td>" in program._repr_html_()


def test_tables_are_loaded_behind_the_parameters_and_ordered_before_their_use():
    """The loads of parameters, and of tables that nothing looks into any more, wait for nothing else."""
    p = Program(ROWS)  # 8 entries of parameters, then 16 of a table
    x, par, y = p.buffer("x", (4, 8)), p.buffer("par", (16, 8, 3), 32), p.buffer("y", (4, 8), kind="output")
    p.load(Mem.ACC8, 0, x, 0, x_size=4)
    p.load(Mem.PAR, 8, par, 0, x_size=16)
    p.alu(AluOp.LOOKUP, [(4, 1, 0)], imm=0)
    p.load(Mem.PAR, 0, par, 0, x_size=8)
    p.alu(AluOp.LOOKUP, [(4, 1, 0)], imm=0)
    p.load(Mem.PAR, 7, par, 0, x_size=2)
    p.store(0, y, 0, x_size=4)
    with pytest.raises(CapacityError, match="writes PAR entry 24, but rows has 24"):
        p.load(Mem.PAR, 9, par, 0, x_size=16)
    with pytest.raises(CapacityError, match="reads PAR entry 8, but rows has 8"):
        p.store(0, y, 0, par=8)
    launch = p.finish()
    assert verify(launch).pairs
    assert token_flags(launch) == [
        "LOAD.ACC8", "LOAD.PAR push_prev", "ALU.LOOKUP pop_next", "LOAD.PAR", "ALU.LOOKUP push_next",
        "LOAD.PAR pop_prev", "STORE.OUT push_prev", "FINISH pop_next",
    ]  # fmt: skip
