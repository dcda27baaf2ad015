"""sim/model/device.py: programs on the behavioural model, their errors, statistics and order."""

import subprocess
import sys

import numpy as np
import pytest

from tests.sim.conftest import CONFIGS, Interleaving, Machine, load_uops
from tests.sim.wrong import load, store
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, CapacityError, ExecutionError, InputError, TokenError
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.memory import PAGE, Lru
from tilewright.sim.model import device as model_module
from tilewright.sim.model.device import Model, ModelDevice

TINY = PRESETS["tiny"]


def device(**options):
    return ModelDevice(TINY, **options)


def test_memory_is_aligned_apart_and_never_in_page_0():
    d, rng, spans = device(), np.random.default_rng(0), []
    for _ in range(60):
        nbytes, align = int(rng.integers(0, 3000)), int(rng.choice([1, 4, 48, 64, 4096]))
        at = d.allocate(nbytes, align)
        assert at >= PAGE and at % align == 0
        spans.append((at, at + max(nbytes, 1)))
    spans.sort()
    assert all(stop <= start for (_, stop), (start, _) in zip(spans, spans[1:]))


def test_memory_is_zero_when_it_is_used_again_and_keeps_its_contents_when_it_grows():
    d = device()
    a, b = d.allocate(100, 64), d.allocate(100, 64)
    d.write(a, np.full(100, 7, np.uint8))
    d.write(b, np.full(100, 9, np.uint8))
    d.free(a)
    assert d.allocate(90, 64) == a and not d.read(a, 90).any()
    big = d.allocate(5 << 20, 4096)
    d.write(big + (5 << 20) - 4, np.arange(4, dtype=np.uint8))
    assert (d.read(b, 100) == 9).all()
    assert d.read(big + (5 << 20) - 6, 6).tolist() == [0, 0, 0, 1, 2, 3]


def test_values_are_made_once_and_the_least_recently_used_go():
    made = []
    cache = Lru(10)

    def get(key, cost=4):
        def make():
            made.append(key)
            return key.upper()

        assert cache.get(key, make, lambda value: cost) == key.upper()

    for key in ("a", "b", "a", "c", "a", "b"):  # c pushes b out, b pushes c out
        get(key)
    assert made == ["a", "b", "c", "b"]
    assert (len(cache), cache.cost) == (2, 8)
    get("huge", 11)
    get("huge", 11)
    assert made[4:] == ["huge", "huge"]
    assert (len(cache), cache.cost) == (2, 8)
    cache.clear()
    assert (len(cache), cache.cost) == (0, 0)


def test_a_program_runs_again_after_memory_has_grown():
    d, isa = device(), Isa(TINY)
    x, insns = d.allocate(64, 64), d.allocate(32, 16)
    load = isa.formats["LOAD"].encode(op=Op.LOAD, mem=Mem.INP, dram_base=x // 4, y_size=1, x_size=1)
    d.write(insns, np.concatenate([load, isa.formats["FINISH"].encode(op=Op.FINISH)]).view(np.uint8).reshape(-1))
    for value in (3, 4):
        d.write(x, np.full(4, value, np.uint8))
        stats = d.run(insns, 2)
        assert (d._model.state.inp[0] == value).all()
        d.allocate(3 << 20, 64)
    assert stats.bytes_loaded == {"INP": 4}


def test_the_first_gap_that_is_large_enough_is_used():
    d = device(capacity=1 << 16)
    a, b, c = (d.allocate(256, 64) for _ in range(3))
    d.free(b)
    assert d.allocate(257, 64) > c and d.allocate(256, 64) == b
    d.free(a)
    assert d.allocate(1, 4096) == a
    text = "61000 bytes do not fit the device memory: 770 of 65536 bytes are in use"
    with pytest.raises(CapacityError, match=text):
        d.allocate(61000, 64)
    assert d.allocate(60000, 64)


def test_mistakes_are_named():
    d = device()
    with pytest.raises(InputError, match="address 0x5000 was not allocated"):
        d.free(0x5000)
    with pytest.raises(InputError, match="cannot allocate -1 bytes aligned to 8"):
        d.allocate(-1, 8)
    for call in (lambda: d.read(1 << 40, 4), lambda: d.write(-4, np.zeros(4, np.uint8)), lambda: d.read(PAGE, -1)):
        with pytest.raises(AccessError, match="are outside memory, 0..0xfffff"):
            call()
    with pytest.raises(ExecutionError):
        d.run(PAGE, 1)


def test_an_image_takes_the_place_of_memory_for_one_run():
    d, isa = device(), Isa(TINY)
    kept = d.allocate(4, 4)
    d.write(kept, np.full(4, 9, np.uint8))
    words = [
        isa.formats["STORE"].encode(op=Op.STORE, mem=Mem.OUT, dram_base=16, y_size=1, x_size=1),
        isa.formats["FINISH"].encode(op=Op.FINISH),
    ]
    image = np.full(100, 5, np.uint8)
    image[:32] = np.concatenate(words).view(np.uint8).reshape(-1)
    stats = d.run_image(image, 0, 2)
    assert image[64:68].tolist() == [0] * 4 and (image[68:] == 5).all()
    assert stats.bytes_stored == {"OUT": 4}
    assert (d.read(kept, 4) == 9).all()


NOP = {"op": Op.LOAD, "mem": Mem.UOP}
FINISH = {"op": Op.FINISH}
LOOP = {"uop_end": 1, "iter_out": 1, "iter_in": 1}


def test_instructions_outside_dram_are_refused():
    m = Machine(TINY, nbytes=100)
    for address, count in ((96, 1), (-16, 1), (0, -1), (1 << 40, 2)):
        with pytest.raises(AccessError, match=f"{count} instructions at {address:#x} are outside DRAM, 0..0x63"):
            m.model.run(address, count)


@pytest.mark.parametrize("dram", [np.zeros(4, np.int8), np.zeros((2, 2), np.uint8), np.zeros(8, np.uint8)[::2]])
def test_memory_is_one_array_of_bytes(dram):
    with pytest.raises(InputError, match="must be a writeable, contiguous array uint8"):
        Model(TINY, dram)


def test_statistics_count_what_executes():
    m = Machine(CONFIGS["wide_in"])
    loop = {"uop_end": 2, "iter_out": 3, "iter_in": 4}
    insns = [
        NOP,
        load_uops(4096, 2),
        {"op": Op.GEMM, **loop, "reset": 1},
        {"op": Op.GEMM, **loop},
        {"op": Op.GEMM, **loop, "overwrite": 1, "iter_in": 0},
        {"op": Op.ALU, **loop, "alu_op": AluOp.ADD, "use_imm": 1},
        {"op": Op.LOAD, "mem": Mem.PAR, "y_size": 2, "x_size": 2, "dram_base": 200},
        {"op": Op.STORE, "mem": Mem.OUT, "y_size": 2, "x_size": 3, "x_stride": 3, "dram_base": 2048},
        {"op": Op.STORE, "mem": Mem.OUTQ, "y_size": 2, "x_size": 4, "x_stride": 4, "dram_base": 2048},
    ]
    m.put_uops([(0, 0, 0), (1, 0, 0)], 4096)
    stats = m.run(insns)
    assert stats.insns == {
        "LOAD.UOP": 2, "GEMM": 3, "ALU.ADD": 1, "LOAD.PAR": 1, "STORE.OUT": 1, "STORE.OUTQ": 1, "FINISH": 1,
    }  # fmt: skip
    assert stats.uops == 3 * 24
    assert stats.macs == 24 * 8 * 2
    assert stats.bytes_loaded == {"UOP": 8, "PAR": 4 * 2 * 12}
    assert stats.bytes_stored == {"OUT": 12, "OUTQ": 16}
    again = m.run(insns)
    again.insns["GEMM"] = 0
    assert m.run(insns) == stats


def test_scratchpads_survive_a_run_and_tokens_do_not():
    m = Machine(CONFIGS["tiny"])
    add = {"op": Op.ALU, **LOOP, "alu_op": AluOp.ADD, "use_imm": 1, "imm": 5}
    with pytest.raises(TokenError):
        m.run([{**add, "push_prev": 1}])
    for _ in range(3):
        m.run([add])
    assert (m.model.state.acc[0] == 15).all()


def test_programs_and_memories_that_change_are_seen():
    """A program that was overwritten is decoded again; another memory takes the place of the first."""
    m = Machine(TINY)
    for imm, total in ((5, 5), (7, 12), (5, 17)):
        m.run([{"op": Op.ALU, **LOOP, "alu_op": AluOp.ADD, "use_imm": 1, "imm": imm}])
        assert (m.model.state.acc[0] == total).all()
    place = m.put([load(Mem.INP, dram_base=300), FINISH])
    m.model.run(*place)
    other = m.dram.copy()
    other[1200:1204] = [1, 2, 3, 255]
    m.model.dram = other
    m.model.run(*place)
    assert m.model.state.inp[0].tolist() == [1, 2, 3, -1]


def test_any_legal_interleaving_gives_the_same_result():
    """Matrix tiles through two halves of every scratchpad, with tokens that the recorder places."""
    p, cfg, tiles, orders = Program(TINY), TINY, 6, set()
    x, w = p.buffer("x", (tiles * 4, cfg.block_in)), p.buffer("w", (tiles * 3, cfg.block_out, cfg.block_in))
    y = p.buffer("y", (tiles * 12, cfg.block_out), kind="output")
    for t in range(tiles):
        half = t % 2
        p.load(Mem.INP, 8 * half, x, 4 * t, x_size=4)
        p.load(Mem.WGT, 4 * half, w, 3 * t, x_size=3)
        p.gemm([(12, 1, 0, 0)], 16 * half, reset=True)
        p.gemm([(4, 3, 1, 0), (3, 1, 0, 1)], 16 * half, 8 * half, 4 * half)
        p.alu(AluOp.SHR, [(12, 1, 0)], 16 * half, imm=3)
        p.store(16 * half, y, 12 * t, x_size=12)
    launch, rng = p.finish(), np.random.default_rng(0)
    inputs = {b.name: rng.integers(-128, 128, b.shape) for b in launch.buffers if b.kind == "input"}
    expected, _ = run(launch, inputs, "model")
    assert expected["y"].any()
    for seed in range(25):
        choose, device = Interleaving(seed), ModelDevice(TINY)
        device._model = Model(TINY, device.bytes, choose=choose)
        np.testing.assert_array_equal(run(launch, inputs, device)[0]["y"], expected["y"])
        orders.add(tuple(choose.order))
    assert len(orders) > 10


@pytest.mark.circuit
def test_many_small_instructions_cost_little_each(effort):
    m = Machine(CONFIGS["tiny"], nbytes=1 << 20)
    rng, insns = m.rng, []
    for k in range(1000):
        insns += [
            load(Mem.INP, sram_base=k % 99, dram_base=k, x_size=2, x_pad_0=k % 2),
            {"op": Op.GEMM, **LOOP, "iter_in": 1 + k % 3, "dst_in": 1},
            {"op": Op.ALU, **LOOP, "iter_out": 2, "dst_out": int(rng.integers(9)), "alu_op": k % 5, "use_imm": k % 2},
            store(sram_base=k % 50, dram_base=1 << 16, x_size=2),
        ]
    place = m.put([*insns, FINISH])
    with effort() as first:
        m.model.run(*place)
    with effort() as again:
        m.model.run(*place)
    assert again.calls < first.calls < 4000 * 200, (first, again)  # the bound only catches a change of order


def test_the_model_loads_neither_tvm_nor_amaranth_nor_the_recorder():
    code = "import sys, tilewright.sim.model.device, tilewright.sim.replay; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    loaded = set(out.split())
    assert not {m for m in loaded if m.split(".")[0] in ("tvm", "amaranth") or m == "tilewright.runtime.program"}


def test_a_program_with_other_addresses_is_not_decoded_again(cache, monkeypatch):
    """What has the same instructions but for a few addresses keeps order, counts and actions; nothing else does."""
    launch = cache().launch
    made, first = [], model_module._Program.__init__
    monkeypatch.setattr(
        model_module._Program, "__init__", lambda self, *args: made.append(len(args[1])) or first(self, *args)
    )
    bases = [64 * (k + 1) for k in range(len(launch.buffers))]
    memory = np.zeros(8192, np.uint8)
    for buffer, base in zip(launch.buffers, bases):
        if buffer.data is not None:
            memory[base : base + buffer.nbytes] = buffer.data
    model, fresh = Model(TINY, memory), memory.copy()

    def run(words):
        memory[4096 : 4096 + launch.insn_bytes] = words.view(np.uint8).reshape(-1)
        fresh[:] = memory
        found = model.run(4096, len(words))
        count = len(made)
        other = Model(TINY, fresh).run(4096, len(words))
        del made[count:]
        assert found.to_dict() == other.to_dict()
        np.testing.assert_array_equal(memory, fresh)

    for position in (0, 5, 15, 5):
        run(launch.relocate(bases, {"position": position}))
    assert len(made) == 1
    words = launch.relocate(bases, {"position": 7})
    words[launch.patches.at[0], 1] ^= np.uint64(2)  # another size
    run(words)
    assert len(made) == 2
    run(launch.relocate([bases[0], *reversed(bases[1:])], {"position": 7}))
    assert len(made) == 3


def test_a_finish_that_may_come_early_is_found_by_some_interleaving():
    place, seen = Machine(TINY).put([{"op": Op.STORE}, FINISH]), set()
    for seed in range(30):
        m = Machine(TINY)
        m.put([{"op": Op.STORE}, FINISH])
        try:
            Model(TINY, m.dram, rng=np.random.default_rng(seed)).run(*place)
            seen.add("")
        except ExecutionError as exc:
            seen.add(str(exc).partition(") ")[2])
    assert seen == {"", "executes after FINISH: nothing orders FINISH behind it"}
