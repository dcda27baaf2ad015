import subprocess
import sys

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, DeadlockError, ExecutionError, InputError, TokenError
from tilewright.hw.isa import AluOp, Mem, Op
from tilewright.runtime.program import Program
from tilewright.sim.model import device as model_module
from tilewright.sim.model.device import Model

TINY = PRESETS["tiny"]
NOP = {"op": Op.LOAD, "mem": Mem.UOP}
FINISH = {"op": Op.FINISH}
LOOP = {"uop_end": 1, "iter_out": 1, "iter_in": 1}


def failure(machine, insns, error, cfg=TINY, index=...):
    """The text and index of the error that a program ends in."""
    m = machine(cfg)
    place = m.put(insns)
    before = m.dram.copy()
    with pytest.raises(error) as caught:
        m.model.run(*place)
    np.testing.assert_array_equal(m.dram, before)
    assert type(caught.value) is error
    return str(caught.value), getattr(caught.value, "index", None)


# fields, what is said of them
UNDECODABLE = [
    (TINY, {"op": Op.TERNARY}, "TERNARY", "unit ternary is not in configuration tiny"),
    (TINY, {"op": Op.LOAD, "mem": Mem.TWGT.id}, "LOAD.TWGT y_size=0 x_size=0",
     "unit ternary is not in configuration tiny"),
    (TINY, {"op": Op.LOADP, "mem": Mem.PAR}, "LOADP.PAR y_size=0 x_size=0", "memory id 6 cannot be loaded by LOADP"),
    (TINY, {"op": Op.STORE, "mem": Mem.INP, "x_size": 1}, "STORE.INP y_size=0 x_size=1",
     "memory id 2 cannot be stored"),
    (TINY, {"op": Op.ALU, "alu_op": 7}, "ALU.REDUCE", "extension lane_reduce is not in configuration tiny"),
    (TINY, {"op": Op.ALU, "alu_op": AluOp.RESCALE, "imm": 3}, "ALU.RESCALE imm=3",
     "RESCALE without use_imm: its operand is a PAR entry"),
    (TINY, {"op": Op.GEMM, "reset": 1, "overwrite": 1}, "GEMM reset=1 overwrite=1", "reset and overwrite are both set"),
    (TINY, {"op": Op.LOAD, "mem": Mem.INP, "push_prev": 1}, "LOAD.INP y_size=0 x_size=0 push_prev",
     "push_prev is set, but queue LOAD has no prev queue"),
    (TINY, {"op": Op.STORE, "mem": Mem.OUT, "pop_next": 1}, "STORE.OUT y_size=0 x_size=0 pop_next",
     "pop_next is set, but queue STORE has no next queue"),
    (PRESETS["vta"], {"op": Op.LOADP, "mem": Mem.INP}, "LOADP.INP y_size=0 x_size=0",
     "extension pad_value is not in configuration vta"),
    (PRESETS["vta"], {"op": Op.DWGEMM}, "DWGEMM", "extension depthwise is not in configuration vta"),
    (PRESETS["vta"], {"op": Op.LOAD, "mem": Mem.PAR}, "LOAD.PAR y_size=0 x_size=0",
     "extension requant is not in configuration vta"),
    (PRESETS["vta"], {"op": Op.ALU, "alu_op": AluOp.RESCALE}, "ALU.RESCALE",
     "extension rescale is not in configuration vta"),
]  # fmt: skip


@pytest.mark.parametrize("cfg, bad, line, reason", UNDECODABLE, ids=[f"{case[2]}: {case[3]}" for case in UNDECODABLE])
def test_an_undecodable_instruction_stops_before_anything_executes(machine, cfg, bad, line, reason):
    m = machine(cfg)
    words = m.words([NOP, NOP, FINISH])
    words[1] = m.words([bad])[0]
    m.dram[: words.nbytes] = words.view(np.uint8).reshape(-1)
    with pytest.raises(ExecutionError) as caught:
        m.model.run(0, 3)
    assert str(caught.value) == f"instruction 1 ({line}): {reason}"
    assert (type(caught.value), caught.value.index) == (ExecutionError, 1)


def test_each_instruction_is_checked_not_only_the_first_of_its_kind(machine):
    gemm = {"op": Op.GEMM, "reset": 1}
    _, index = failure(machine, [gemm, {**gemm, "overwrite": 1}, FINISH], ExecutionError)
    assert index == 1
    rescale = {"op": Op.ALU, "alu_op": AluOp.RESCALE, "use_imm": 1}
    _, index = failure(machine, [rescale, {**rescale, "use_imm": 0}, FINISH], ExecutionError)
    assert index == 1


def test_finish_ends_a_program_once(machine):
    nop = "LOAD.UOP y_size=0 x_size=0"
    assert failure(machine, [NOP, NOP], ExecutionError) == (
        f"the program has no FINISH; its last instruction is instruction 1 ({nop})",
        1,
    )
    assert failure(machine, [], ExecutionError)[0] == "the program has no FINISH: it has no instructions"
    assert failure(machine, [FINISH, NOP, FINISH], ExecutionError) == (
        "instruction 0 (FINISH): 2 instructions follow FINISH",
        0,
    )


def test_token_errors_show_the_disassembly(machine):
    push = {"op": Op.LOAD, "mem": Mem.INP, "push_next": 1}
    assert failure(machine, [push, FINISH], TokenError) == (
        "1 tokens LOAD -> COMPUTE are left over; "
        "the last is pushed by instruction 0 (LOAD.INP y_size=0 x_size=0 push_next)",
        0,
    )
    pop = {**NOP, "pop_next": 1}
    assert failure(machine, [push, pop, FINISH], DeadlockError) == (
        "deadlock: LOAD is empty; COMPUTE waits for a token STORE -> COMPUTE at instruction 1 "
        "(LOAD.UOP y_size=0 x_size=0 pop_next); STORE is empty",
        1,
    )
    cfg = TINY.replace(token_depth=2)
    text, index = failure(machine, [push] * 3 + [{**NOP, "pop_prev": 1}] * 3 + [FINISH], TokenError, cfg)
    assert text == "instruction 2 (LOAD.INP y_size=0 x_size=0 push_next): 3 tokens LOAD -> COMPUTE; the channel holds 2"
    assert index == 2


# instruction, text; the tiny configuration has 256 micro-ops, 256 inputs, 128 weights, 128 accumulators
OUTSIDE = [
    ({"op": Op.GEMM, **LOOP, "uop_bgn": 5, "uop_end": 4}, "micro-ops end at 4, before they begin at 5"),
    ({"op": Op.ALU, **LOOP, "uop_bgn": 255, "uop_end": 300}, "micro-ops 255..299 are outside 0..255"),
    ({"op": Op.GEMM, **LOOP, "uop_bgn": 250, "uop_end": 257}, "micro-ops 250..256 are outside 0..255"),
    ({"op": Op.GEMM, **LOOP, "iter_in": 129, "dst_in": 1}, "ACC entries 0..128 are outside 0..127"),
    ({"op": Op.GEMM, **LOOP, "iter_out": 3, "src_out": 128}, "INP entries 0..256 are outside 0..255"),
    ({"op": Op.GEMM, **LOOP, "iter_out": 3, "iter_in": 2, "wgt_out": 50, "wgt_in": 28},
     "WGT entries 0..128 are outside 0..127"),
    ({"op": Op.GEMM, **LOOP, "reset": 1, "iter_out": 16383, "dst_out": 127},
     "ACC entries 0..2080514 are outside 0..127"),
    ({"op": Op.ALU, **LOOP, "use_imm": 1, "iter_out": 2, "iter_in": 65, "dst_in": 1, "dst_out": 64},
     "ACC entries 0..128 are outside 0..127"),
    ({"op": Op.ALU, **LOOP, "alu_op": AluOp.ADD, "iter_out": 2, "iter_in": 2, "src_out": 100, "src_in": 28},
     "ACC entries 0..128 are outside 0..127"),
]  # fmt: skip


@pytest.mark.parametrize("fields, text", OUTSIDE, ids=[text for _, text in OUTSIDE])
def test_an_index_that_leaves_its_scratchpad_is_an_error_and_never_wraps(machine, fields, text):
    m = machine(TINY)
    line = m.isa.disassemble(m.isa.decode(m.words([fields]))[0])
    assert failure(machine, [NOP, fields, FINISH], AccessError) == (f"instruction 1 ({line}): {text}", 1)


def test_instructions_outside_dram_are_refused(machine):
    m = machine(TINY, nbytes=100)
    for address, count in ((96, 1), (-16, 1), (0, -1), (1 << 40, 2)):
        with pytest.raises(AccessError, match=f"{count} instructions at {address:#x} are outside DRAM, 0..0x63"):
            m.model.run(address, count)


@pytest.mark.parametrize("dram", [np.zeros(4, np.int8), np.zeros((2, 2), np.uint8), np.zeros(8, np.uint8)[::2]])
def test_memory_is_one_array_of_bytes(dram):
    with pytest.raises(InputError, match="must be a writeable, contiguous array uint8"):
        Model(TINY, dram)


def test_statistics_count_what_executes(kit, machine):
    m = machine(kit.CONFIGS["wide_in"])
    loop = {"uop_end": 2, "iter_out": 3, "iter_in": 4}
    insns = [
        NOP,
        kit.load_uops(4096, 2),
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


def test_scratchpads_survive_a_run_and_tokens_do_not(kit, machine):
    m = machine(kit.CONFIGS["tiny"])
    add = {"op": Op.ALU, **LOOP, "alu_op": AluOp.ADD, "use_imm": 1, "imm": 5}
    with pytest.raises(TokenError):
        m.run([{**add, "push_prev": 1}])
    for _ in range(3):
        m.run([add])
    assert (m.model.state.acc[0] == 15).all()


def test_a_program_that_was_overwritten_is_decoded_again(kit, machine):
    m = machine(kit.CONFIGS["tiny"])
    for imm, total in ((5, 5), (7, 12), (5, 17)):
        m.run([{"op": Op.ALU, **LOOP, "alu_op": AluOp.ADD, "use_imm": 1, "imm": imm}])
        assert (m.model.state.acc[0] == total).all()


def test_another_memory_takes_the_place_of_the_first(kit, machine):
    m = machine(kit.CONFIGS["tiny"])
    place = m.put([{"op": Op.LOAD, "mem": Mem.INP, "dram_base": 300, "y_size": 1, "x_size": 1}, FINISH])
    m.model.run(*place)
    other = m.dram.copy()
    other[1200:1204] = [1, 2, 3, 255]
    m.model.dram = other
    m.model.run(*place)
    assert m.model.state.inp[0].tolist() == [1, 2, 3, -1]


def pipeline(cfg, tiles=6):
    """Matrix tiles through two halves of every scratchpad, with tokens that the recorder places."""
    p = Program(cfg)
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
    return p.finish()


def test_any_legal_interleaving_gives_the_same_result():
    launch = pipeline(TINY)
    bases, end = [], 4096
    for buffer in launch.buffers:
        bases.append(-(-end // 64) * 64)
        end = bases[-1] + buffer.nbytes
    image = np.random.default_rng(0).integers(0, 256, end + 16 * len(launch.insn) + 16, np.uint8)
    for buffer, base in zip(launch.buffers, bases):
        if buffer.data is not None:
            image[base : base + buffer.nbytes] = buffer.data
    start = -(-end // 16) * 16
    words = launch.relocate(bases).view(np.uint8).reshape(-1)
    image[start : start + len(words)] = words
    orders, results = set(), []
    for seed in [None, *range(25)]:
        dram = image.copy()
        m = Model(TINY, dram, rng=None if seed is None else np.random.default_rng(seed))
        m.run(start, len(launch.insn))
        results.append(dram)
        choose = min if seed is None else model_module.at_random(np.random.default_rng(seed))
        (program,) = [value for value, _ in m._programs._items.values()]
        orders.add(tuple(model_module.schedule(TINY, program.nodes, program.at, choose)))
    assert len(orders) > 10
    assert not (results[0] == image).all()
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_many_small_instructions_cost_little_each(kit, machine, effort):
    m = machine(kit.CONFIGS["tiny"], nbytes=1 << 20)
    rng, insns = m.rng, []
    for k in range(1000):
        insns += [
            {
                "op": Op.LOAD,
                "mem": Mem.INP,
                "sram_base": k % 99,
                "dram_base": k,
                "y_size": 1,
                "x_size": 2,
                "x_pad_0": k % 2,
            },
            {"op": Op.GEMM, **LOOP, "iter_in": 1 + k % 3, "dst_in": 1},
            {"op": Op.ALU, **LOOP, "iter_out": 2, "dst_out": int(rng.integers(9)), "alu_op": k % 5, "use_imm": k % 2},
            {"op": Op.STORE, "mem": Mem.OUT, "sram_base": k % 50, "dram_base": 1 << 16, "y_size": 1, "x_size": 2},
        ]
    place = m.put([*insns, FINISH])
    with effort() as first:
        m.model.run(*place)
    with effort() as again:
        m.model.run(*place)
    print(first, again)
    assert again.calls < first.calls < 4000 * 200  # the bound only catches a change of order


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
