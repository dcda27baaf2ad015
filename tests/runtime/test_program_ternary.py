"""runtime/program.py: unit ternary, its micro-ops, its planes of accumulators, and the tokens of its queue."""

import numpy as np
import pytest

from tests.runtime.launches import hand_written, mnemonics, races_without_a_pair
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, CapacityError, EncodingError, ProgramError, RaceError
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.units import Queue
from tilewright.runtime.buffer import Buffer
from tilewright.runtime.layout import pack_ternary_weights
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify
from tilewright.sim.spec import SpecDevice

TINY, TWO, PYNQ = PRESETS["tiny"], PRESETS["tiny_two"], PRESETS["pynq_z1_two"]
RNG = np.random.default_rng(3)


@pytest.mark.parametrize("cfg", [TWO, PYNQ], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("tokens", ["auto", "explicit"])
def test_a_dense_layer_on_both_units_equals_numpy(cfg, tokens):
    """The first block of channels on GEMM, the others on unit ternary, each in a bank of its own."""
    channels, depth, n = (cfg.ternary_blocks + 1) * cfg.block_out, 3, 2
    x = RNG.integers(-128, 128, (n, depth, cfg.batch, cfg.block_in))
    w = RNG.integers(-1, 2, (channels, depth * cfg.block_in))
    w[: cfg.block_out] = RNG.integers(-128, 128, (cfg.block_out, depth * cfg.block_in))
    dense = w[: cfg.block_out].reshape(cfg.block_out, depth, -1).transpose(1, 0, 2)
    ternary = pack_ternary_weights(w[cfg.block_out :, :, None, None], cfg).reshape(depth, -1)
    p = Program(cfg, tokens=tokens)
    source, wgt = p.buffer("x", x.shape), p.buffer("wgt", dense.shape)
    twgt = p.buffer("twgt", ternary.shape, signed=False)
    y = p.buffer("y", (cfg.ternary_blocks + 1, n, cfg.batch, cfg.block_out), kind="output")
    p.load(Mem.INP, 0, source, 0, x_size=n * depth)
    p.load(Mem.TWGT, 0, twgt, 0, x_size=depth)
    other = cfg.bank_depth
    if tokens == "explicit":
        p.dep_push(Queue.LOAD, Queue.TERNARY)
        p.dep_pop(Queue.LOAD, Queue.TERNARY)
    p.ternary([(n, 1, 0, 0)], other, reset=True)
    p.ternary([(n, 1, depth, 0), (depth, 0, 1, 1)], other)
    p.load(Mem.WGT, 0, wgt, 0, x_size=depth)
    if tokens == "explicit":
        p.dep_push(Queue.LOAD, Queue.COMPUTE)
        p.dep_pop(Queue.LOAD, Queue.COMPUTE)
    p.gemm([(n, 1, 0, 0)], reset=True)
    p.gemm([(n, 1, depth, 0), (depth, 0, 1, 1)])
    for queue in (Queue.COMPUTE, Queue.TERNARY) if tokens == "explicit" else ():
        p.dep_push(queue, Queue.STORE)
        p.dep_pop(queue, Queue.STORE)
    p.store(0, y, 0, x_size=n)
    for t in range(cfg.ternary_blocks):
        p.store(other + t * cfg.plane_depth, y, (1 + t) * n, x_size=n)
    launch = p.finish()
    verify(launch)
    got, stats = run(launch, {"x": x, "wgt": dense, "twgt": ternary}, SpecDevice(cfg))
    want = x.reshape(n, depth, cfg.batch, -1).transpose(0, 2, 1, 3).reshape(n, cfg.batch, -1) @ w.T
    want = want.reshape(n, cfg.batch, cfg.ternary_blocks + 1, cfg.block_out).transpose(2, 0, 1, 3)
    np.testing.assert_array_equal(got["y"], want.astype(np.int8))
    products = n * depth * channels * cfg.block_in * cfg.batch
    assert stats.macs == products and stats.bytes_loaded["TWGT"] == ternary.size


def test_overwrite_keeps_the_last_product():
    p = Program(TWO)
    x, w = p.buffer("x", (2, 1, 4)), p.buffer("w", (16, 4), 2)
    y = p.buffer("y", (8, 1, 4), kind="output")
    p.load(Mem.INP, 0, x, 0, x_size=2)
    p.load(Mem.TWGT, 5, w, 0)
    p.ternary([(2, 0, 1, 0)], dst=32, wgt=5, overwrite=True)
    p.store(56, y, 0, x_size=8)  # the plane of block 3
    values, weights = RNG.integers(-9, 9, (2, 1, 4)), RNG.integers(-1, 2, (16, 4))
    got, _ = run(p.finish(), {"x": values, "w": weights}, SpecDevice(TWO))
    np.testing.assert_array_equal(got["y"][0, 0], weights[12:] @ values[1, 0])


def test_micro_ops_have_a_buffer_of_their_own_and_are_loaded_by_the_load_queue():
    p = Program(TWO)
    kernel = np.array([(0, 0, 0), (3, 1, 2)])
    p.gemm_uops(kernel)
    p.ternary_uops(kernel, [(2, 2, 0, 0)])
    p.ternary_uops(kernel + np.array([32, 0, 0]))
    p.ternary_uops(kernel)
    insns = [f for f in Isa(TWO).decode(p.finish().insn) if f["op"] == Op.LOAD and f["x_size"]]
    assert [(Isa(TWO).mnemonic(f), f["sram_base"], f["dram_base"]) for f in insns] == [
        ("LOAD.UOP", 0, 0), ("LOAD.TUOP", 0, 2), ("LOAD.TUOP", 2, 4),
    ]  # fmt: skip


def two_unit_steps(apart, count=3, uops=1):
    """A program of steps, jobs of GEMM, then of unit ternary, each with kernels of its own; the last one is stored."""
    p = Program(TWO)
    p.uops_ahead = apart
    x, y = p.buffer("x", (8, 1, 4)), p.buffer("y", (2, 8, 1, 4), kind="output")
    w, t = p.buffer("w", (4, 4, 4)), p.buffer("t", (4, TWO.twgt_entry_bytes), signed=False)
    for mem, buffer in ((Mem.WGT, w), (Mem.TWGT, t)):
        p.load(mem, 0, buffer, 0, x_size=4)
    for k in range(count):
        with p.origin("first" if k < 2 else "second"):
            p.load(Mem.INP, 2 * k, x, k % 7, x_size=2)
            for _ in range(2):
                kernel = np.arange(uops)[:, None] % 2 * (0, 1, 0) + (k % 4, 2 * k, k % 4)
                p.gemm_uops(kernel, reset=k == 0)
                p.ternary_uops(np.add(kernel, (2 * TWO.bank_depth, 0, 0)), overwrite=k == 0)
    for unit in range(2):
        p.store(unit * 2 * TWO.bank_depth, y, 8 * unit, x_size=4)
    return p


def test_kernels_are_loaded_one_step_ahead_of_their_jobs():
    launch = two_unit_steps(apart=True).finish()
    verify(launch)
    first, other = ["LOAD.WGT", "LOAD.TWGT", "LOAD.INP"], ["GEMM", "TERNARY"]
    # the kernels of the first step come before all; others before the last job of their queue in the step before
    ahead = ["LOAD.UOP", "GEMM", "LOAD.TUOP", "TERNARY", "LOAD.INP"]
    assert mnemonics(launch) == [
        "LOAD.UOP", "LOAD.TUOP", *first, *other, *ahead, *other, *ahead, *other, *other,
        "STORE.OUT", "STORE.OUT", "FINISH",
    ]  # fmt: skip


@pytest.mark.parametrize("count, uops", [(3, 1), (6, 7), (8, 60)])
def test_kernels_that_are_loaded_ahead_compute_the_same(count, uops):
    """Also where they replace each other: the micro-op buffers hold four kernels of 60."""
    rng = np.random.default_rng(count)
    values = {"x": rng.integers(-128, 128, (8, 1, 4)), "w": rng.integers(-128, 128, (4, 4, 4))}
    values["t"] = rng.integers(0, 256, (4, TWO.twgt_entry_bytes))
    values["t"] &= (values["t"] >> 1 & 0x55) ^ 0xFF  # no weight has a sign without a size
    found = []
    for apart in (False, True):
        launch = two_unit_steps(apart, count, uops).finish()
        verify(launch)
        found.append(run(launch, values, SpecDevice(TWO))[0]["y"])
    assert np.array_equal(*found) and found[0].any()


def test_kernels_that_replace_others_come_after_these():
    p = Program(TWO)
    p.uops_ahead = True
    long = np.arange(150)[:, None] % 2 * (1, 0, 0)
    with p.origin("a"):
        p.ternary_uops(long)
    with p.origin("b"):
        p.ternary_uops(long)
        p.ternary_uops(long + np.array([0, 1, 0]))
    assert [name for name in mnemonics(p.finish()) if "TERNARY" in name or "LOAD.T" in name] == [
        "LOAD.TUOP", "TERNARY", "TERNARY", "LOAD.TUOP", "TERNARY",
    ]  # fmt: skip
    verify(p.finish())


@pytest.mark.parametrize("ahead", [False, True])
def test_more_kernels_than_the_buffer_holds_wait_for_those_that_they_replace(ahead):
    p = Program(TWO)
    p.uops_ahead = ahead
    y = p.buffer("y", (8, 1, 4), kind="output")
    for k in range(5):
        p.ternary_uops(np.arange(100)[:, None] % (1 + k) * (1, 0, 0) + (0, k, 0), reset=k == 0)
    p.store(0, y, 0, x_size=8)
    launch = p.finish()
    report = verify(launch)
    evicting = [pair for pair in report.pairs if (pair.source, pair.target) == (Queue.TERNARY, Queue.LOAD)]
    assert len(evicting) == 3  # two kernels fit at once
    assert races_without_a_pair(launch, (RaceError, ProgramError)) == len(report.pairs)


def test_explicit_tokens_need_kernels_that_fit():
    p = Program(TWO, tokens="explicit")
    for k in range(3):
        p.ternary_uops(np.arange(100)[:, None] % 8 * (1, 0, 0) + (0, k, 0))
    with pytest.raises(CapacityError, match="kernels in TUOP have 300 micro-ops, it holds 256: .* use tokens='auto'"):
        p.finish()


UOPS = Buffer("kernels", (16,), 8, False, "constant", np.zeros(16, np.uint8))
TUOP = {"op": Op.LOAD, "mem": Mem.TUOP.id, "x_size": 2}
RESET = {"op": Op.TERNARY, "reset": 1, "uop_end": 2, "iter_out": 1, "iter_in": 1}
STORE = {"op": Op.STORE, "mem": Mem.OUT, "pop_next": 1, "push_prev": 1}
FINISH = ("FINISH", {"op": Op.FINISH, "pop_next": 1})


def test_micro_ops_that_another_queue_loads_are_a_race_without_a_token():
    ordered = [("LOAD", TUOP | {"push_prev": 1}), ("TERNARY", RESET | {"pop_next": 1, "push_prev": 1})]
    verify(hand_written(TWO, *ordered, ("STORE", STORE), FINISH, buffers=[UOPS]))
    apart = [("LOAD", TUOP | {"push_next": 1}), ("TERNARY", RESET | {"push_prev": 1}), ("STORE", STORE)]
    with pytest.raises(RaceError, match=r"race on TUOP entries 0\.\.1: instruction 0 .* and instruction 1 .* are not"):
        verify(hand_written(TWO, *apart, ("FINISH", {"op": Op.FINISH, "pop_prev": 1, "pop_next": 1}), buffers=[UOPS]))


def test_micro_ops_of_the_other_unit_are_not_executed():
    for load, named in ((TUOP | {"mem": Mem.UOP}, "TUOP"), (TUOP | {"x_size": 1, "push_prev": 1}, "TUOP")):
        pops = {"pop_next": 1} if "push_prev" in load else {}
        rows = [("LOAD", load), ("TERNARY", RESET | pops | {"push_prev": 1}), ("STORE", STORE), FINISH]
        with pytest.raises(ProgramError, match=f"executes micro-ops that no LOAD.{named} loads: cannot be verified"):
            verify(hand_written(TWO, *rows, buffers=[UOPS]))


def test_accumulators_beyond_the_first_plane_are_refused():
    constant = ("LOAD", TUOP | {"push_prev": 1})
    far = ("TERNARY", RESET | {"iter_in": 2, "dst_in": 9, "pop_next": 1, "push_prev": 1})
    with pytest.raises(AccessError, match="instruction 1 .* names ACC entry 9, but unit ternary takes the first 8 of"):
        verify(hand_written(TWO, constant, far, ("STORE", STORE), FINISH, buffers=[UOPS]))


def test_planes_of_both_units_are_ordered():
    """GEMM in plane 3 of the entry that unit ternary names: a race without tokens, none in another plane's place."""
    for entry, race in ((24, True), (25, False)):
        p = Program(TWO, tokens="explicit")
        p.ternary([], reset=True)
        p.gemm([], entry, reset=True)
        if race:
            with pytest.raises(RaceError, match=r"race on ACC entries 24\.\.24"):
                verify(p.finish())
        else:
            verify(p.finish())


def loading():
    """A launch that loads two entries of weights, micro-ops, and stores what they make."""
    p = Program(TWO)
    w, y = p.buffer("w", (3, 16)), p.buffer("y", (4, 4), kind="output")
    p.load(Mem.TWGT, 0, w, 1, x_size=2)
    p.ternary([(2, 1, 1, 1)])
    p.store(0, y, 0, x_size=4)
    return p.finish()


def test_an_address_counts_entries_of_what_its_instruction_loads():
    """Memory id 4 is 16 bytes of weights where it is loaded, 4 of an output where it is stored."""
    launch = loading()
    names = [b.name for b in launch.buffers]
    places = {"w": 0x1230, "y": 0x104, "uop": 0x44}
    found = Isa(TWO).decode(launch.relocate([places[name] for name in names]))
    bases = {Isa(TWO).mnemonic(f): f["dram_base"] for f in found if f.get("x_size")}
    assert bases == {"LOAD.TWGT": 0x123 + 1, "LOAD.TUOP": 0x11, "STORE.OUT": 0x41}
    assert launch.buffers[names.index("w")].align % 16 == 0
    with pytest.raises(EncodingError, match="buffer 'w' at 0x1234: must be a multiple of 16 bytes"):
        launch.relocate([(places | {"w": 0x1234})[name] for name in names])
