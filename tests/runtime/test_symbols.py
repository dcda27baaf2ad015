"""Symbols against counting; programs whose addresses move with an input: what runs write, what is proved of them."""

import shutil
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from tests.runtime.launches import first_of
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import (
    AccessError,
    EncodingError,
    ExecutionError,
    InputError,
    ProgramError,
    RaceError,
    TilewrightError,
)
from tilewright.hw.isa import INSN_BYTES, Mem
from tilewright.runtime.device import open_device
from tilewright.runtime.disasm import disassemble
from tilewright.runtime.executable import Executable
from tilewright.runtime.launch import Launch, check_dram
from tilewright.runtime.loader import Loaded
from tilewright.runtime.program import Program
from tilewright.runtime.symbols import Patches, Symbol
from tilewright.runtime.verify import verify, without_pair
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.mutants import mutants
from tilewright.sim.mutation import Bench
from tilewright.sim.spec import SpecDevice
from tilewright.sim.timing import predict

TINY = PRESETS["tiny"]
needs_gcc = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


SOME = [
    (Symbol("position", 64, step=1), "position"),
    (Symbol("position", 64, step=12), "12 * position"),
    (Symbol("position", 40, block=16, within=1), "(position % 16)"),
    (Symbol("position", 40, step=64, block=16, within=3), "64 * (position // 16) + 3 * (position % 16)"),
    (Symbol("position", 40, step=1, block=16, within=3), "(position // 16) + 3 * (position % 16)"),
    (Symbol("token", 1, step=5), "5 * token"),
    (Symbol("token", 9), "0 * token"),
]


@pytest.mark.parametrize("symbol, text", SOME)
def test_offsets_of_all_values(symbol, text):
    every = [symbol.step * (v // symbol.block) + symbol.within * (v % symbol.block) for v in range(symbol.limit)]
    np.testing.assert_array_equal(symbol.offsets(), sorted(set(every)))
    assert symbol.most == max(every)
    assert str(symbol) == text
    assert symbol.scaled(16).most == 16 * symbol.most


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"limit": 0}, "symbol 'position': limit = 0: must be an integer from 1 to 1048576"),
        ({"limit": 1 << 21}, "limit = 2097152: must be"),
        ({"limit": 8.0}, "limit = 8.0: must be"),
        ({"limit": 8, "step": -1}, "step = -1: must be an integer from 0"),
        ({"limit": 8, "block": 0}, "block = .*: must be an integer from 1"),
        ({"limit": 8, "within": 1 << 41}, "within = .*: must be"),
        ({"limit": 8, "name": "a\nb"}, r"name = 'a\\nb': must be a text"),
    ],
)
def test_numbers_out_of_range(fields, text):
    with pytest.raises(ProgramError, match=text):
        Symbol(**{"name": "position"} | fields)


ROW, RING, WORD = (
    Symbol("position", 64, step=1),
    Symbol("position", 64, step=7, block=16, within=2),
    Symbol("token", 9, step=5),
)


@pytest.mark.parametrize("position", [0, 1, 15, 16, 63])
def test_offsets_follow_the_values(position):
    found = Patches.of([ROW, WORD, RING]).offsets({"position": position, "token": 3})
    assert found.tolist() == [position, 15, 7 * (position // 16) + 2 * (position % 16)]
    assert Patches.of([ROW, WORD]).offsets({}).tolist() == [0, 0]


@pytest.mark.parametrize(
    "limits, columns, text",
    [
        ({"p": 4}, np.zeros((1, 4), np.int64), r"columns must be int64 \(n, 5\): instruction, symbol, step, block"),
        ({"p": 4}, np.zeros((1, 5), np.int32), "columns must be int64"),
        ({"p": 4}, [[0, 0, 1, 1, 0]], "columns must be int64"),
        ({"p": 4}, [[-1, 0, 1, 1, 0]], "instructions must ascend from 0 on, each once"),
        ({"p": 4}, [[2, 0, 1, 1, 0], [2, 0, 1, 1, 0]], "instructions must ascend"),
        ({"p": 4}, [[2, 1, 1, 1, 0]], "symbol 1 of instruction 2: must be one of 1 symbols"),
        ({"p": 4, "q": 4}, [[2, 0, 1, 1, 0]], "no instruction has symbol 'q'; leave it out"),
        ({"p": 4}, [[2, 0, -1, 1, 0]], "symbol 'p': step = "),
        ({"p": 1 << 40}, [[2, 0, 1, 1, 0]], "symbol 'p': limit = "),
    ],
)
def test_columns_that_do_not_fit(limits, columns, text):
    given = columns if isinstance(columns, np.ndarray) or "int64" in text else np.array(columns, np.int64)
    with pytest.raises(ProgramError, match=text):
        Patches(limits, given)


def test_symbols_become_columns_and_come_back():
    found = Patches.of([None, ROW, WORD, None, RING, ROW])
    assert found.limits == {"position": 64, "token": 9}
    assert found.symbols == {1: ROW, 2: WORD, 4: RING, 5: ROW}
    assert found.most.tolist() == [63, 40, RING.most, 63]
    assert Patches(found.limits, found.columns).symbols == found.symbols


@pytest.mark.circuit
@pytest.mark.parametrize("device", ["spec", "model", "timing", pytest.param("rtl", marks=needs_gcc)])
def test_rows_are_written_where_the_input_says(device, cache):
    program = cache()
    executable = Executable.from_bytes(Executable.from_launch(program.launch).to_bytes(), "x.tw")
    with Loaded(executable, open_device(device, TINY)) as loaded:
        for value, position in enumerate([0, 5, 5, 15, 14, 3, 4]):
            found = loaded.run(program.inputs(position, value))["y"]
            np.testing.assert_array_equal(found, program.expect(position, value))
        np.testing.assert_array_equal(loaded.state["rows"], program.rows)
        loaded.reset()
        assert not loaded.state["rows"].any()
        program.rows[:] = 7
        loaded.state = {"rows": program.rows}
        np.testing.assert_array_equal(loaded.run(program.inputs(9, 1))["y"], program.expect(9, 1))
        np.testing.assert_array_equal(loaded.state["rows"], program.rows)


class Noted(ModelDevice):
    """A device that notes what is written; `broken` makes runs fail, `full` writes."""

    def __init__(self):
        self.writes, self.broken, self.full = [], False, False
        super().__init__(TINY)

    def write(self, address, data):
        self.writes.append((address, len(data)))
        if self.full:
            raise ExecutionError("full")
        super().write(address, data)

    def run(self, insn_address, insn_count):
        if self.broken:
            raise ExecutionError("broken")
        return super().run(insn_address, insn_count)


def test_only_instructions_that_change_are_written(cache):
    program = cache()
    device = Noted()
    with Loaded(program.launch, device) as loaded:
        (placed,) = loaded._placed
        assert placed is not None
        row, block = (placed.address + INSN_BYTES * k for k in program.launch.patches.at.tolist())
        x = placed.bound["x"][0], 16
        for position, expected in [(1, [row]), (1, []), (2, [row]), (6, [row, block]), (0, [row, block])]:
            device.writes.clear()
            np.testing.assert_array_equal(
                loaded.run(program.inputs(position, 3))["y"][0], program.expect(position, 3)[0]
            )
            found = [write for write in device.writes if write != x and write[0] != placed.bound["rows"][0]]
            assert found == [(address, INSN_BYTES) for address in expected], position


def test_neighbours_are_written_at_once_and_all_after_a_failure():
    program = Program(TINY)
    y = program.buffer("y", (16, 1, 4), kind="output")
    for k in range(3):
        program.store(k, y, 2 * k, at=Symbol("position", 8, step=1))
    device = Noted()
    with Loaded(program.finish(), device) as loaded:
        (placed,) = loaded._placed
        assert placed is not None
        device.writes.clear()
        loaded.run({"position": np.array([3])})
        assert device.writes == [(placed.address, 3 * INSN_BYTES)]
        device.full = True
        with pytest.raises(ExecutionError, match="full"):
            loaded.run({"position": np.array([4])})
        device.full, device.writes = False, []
        loaded.run({"position": np.array([3])})  # nobody knows what the failed write left
        assert device.writes == [(placed.address, 3 * INSN_BYTES)]


def test_a_failed_run_may_leave_what_it_wrote(cache):
    """The state that the host still has is written again; one that is on the device only stays as the run left it."""
    program = cache()
    device = Noted()
    with Loaded(program.launch, device) as loaded:
        loaded.run(program.inputs(2, 5))
        program.expect(2, 5)
        device.broken = True
        with pytest.raises(ExecutionError, match="broken"):
            loaded.run(program.inputs(3, 6))
        device.broken = False
        np.testing.assert_array_equal(loaded.state["rows"], program.rows)
        np.testing.assert_array_equal(loaded.run(program.inputs(3, 7))["y"], program.expect(3, 7))


@pytest.mark.parametrize("position", [-1, 16])
def test_values_out_of_range(position, cache):
    text = f"input 'position': value {position} given, step 'cache' was made for 0..15; give one of these, or compile"
    with Loaded(cache().launch, open_device("model", TINY)) as loaded:
        with pytest.raises(InputError, match=text):
            loaded.run(cache().inputs(position, 0))
        assert not loaded.state["rows"].any()


def at_position(launch, position):
    """`launch` as it is in a run: without symbols, with addresses in the buffers."""
    moved = launch.relocate([0] * len(launch.buffers), {"position": position})
    return Launch(launch.cfg, launch.name, moved, launch.reloc, launch.buffers)


def test_the_proof_holds_for_every_value(cache):
    launch = cache().launch
    report = verify(launch)
    for position in range(16):
        assert verify(at_position(launch, position)).instructions == report.instructions
    assert predict(launch).cycles == predict(at_position(launch, 0)).cycles
    lines = disassemble(launch)
    assert sum("@rows + position" in line for line in lines) == 1
    assert sum("@rows + 4 * (position // 4)" in line for line in lines) == 1


def test_a_race_for_some_value_is_a_race():
    """The load reads row 5, which the store writes for one value of sixteen."""
    program = Program(TINY)
    rows = program.buffer("rows", (16, 1, 4), kind="state")
    program.store(0, rows, 0, at=Symbol("position", 16, step=1))
    program.load(Mem.INP, 0, rows, 5)
    launch = program.finish()
    races = []
    for pair in verify(launch).pairs:
        try:
            verify(without_pair(launch, pair))
        except RaceError as exc:
            races.append(str(exc))
        except TilewrightError:
            pass
    assert any(r"race on DRAM rows+0x14..rows+0x17" in text and "+ position" in text for text in races), races


def test_rows_that_no_value_touches_are_not_waited_for():
    def nops(row):
        program = Program(TINY)
        rows = program.buffer("rows", (32, 1, 4), kind="state")
        program.store(0, rows, 0, at=Symbol("position", 16, step=2))
        program.load(Mem.INP, 0, rows, row)
        return len(program.finish().insn)

    assert nops(3) == nops(31) < nops(4)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_proved_of_a_mutant_holds_for_every_value(seed, cache):
    """A mutant that passes is right for each value; runs of many interleavings agree."""
    launch, rng, passed = cache(limit=8).launch, np.random.default_rng(seed), 0
    for text, mutant in ((m.text, m.launch) for m in islice(mutants(launch, rng), 40)):
        try:
            verify(mutant)
        except TilewrightError:
            continue
        passed += 1
        for position in range(8) if mutant.patches.limits else ():
            verify(at_position(mutant, position))
        bench = Bench(mutant, seed)
        found = [bench.run(k, min) for k in range(2)]
        assert not any(one.error or one.outside for one in found), text
    assert passed


@pytest.mark.parametrize(
    "record, error, text",
    [
        (lambda p, b: p.store(0, b, 1, at=Symbol("p", 16, step=1)), ProgramError, "reaches byte 68 for some p of"),
        (lambda p, b: p.load(Mem.INP, 0, b, 0, x_size=2, at=Symbol("p", 16, step=1)), ProgramError, "for some p"),
        (
            lambda p, b: [p.load(Mem.INP, 0, b, 0, at=Symbol("p", limit, step=1)) for limit in (8, 9)],
            ProgramError,
            "load: symbol 'p' has limit 9, elsewhere in this program 8",
        ),
        (lambda p, b: p.store(0, b, 0, at="p"), ProgramError, "store: at = 'p': must be a Symbol"),
        (
            lambda p, b: p.load(Mem.PAR, 0, b, 0, at=Symbol("p", 8, step=1 << 39)),
            ProgramError,
            "symbol 'p': step = 549755813888: at most 22,906,492,245 entries of 48 bytes",
        ),
        (
            lambda p, b: p.load(Mem.INP, 0, p.buffer("big", (1 << 36,)), 0, at=Symbol("p", 2, step=1 << 33)),
            EncodingError,
            "LOAD.dram_base = 8589934592: outside 0..4294967295",
        ),
    ],
)
def test_what_leaves_the_buffer_for_some_value_is_not_recorded(record, error, text):
    program = Program(TINY)
    with pytest.raises(error, match=text):
        record(program, program.buffer("rows", (16, 1, 4), kind="temp"))


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_keep_their_order_for_every_value(seed):
    """Loads and stores of one buffer that overlap for some values: any interleaving leaves what the order leaves."""
    rng, limit = np.random.default_rng(seed), 6
    program = Program(TINY)
    rows = program.buffer("rows", (32, 1, 4), kind="state")
    program.load(Mem.ACC, 0, program.buffer("x", (16, 1, 4), 32), 0, x_size=16)
    program.load(Mem.WGT, 0, program.buffer("w", (4, 4)), 0)
    for _ in range(20):
        step, block, within, offset, y, x = rng.integers((0, 1, 0, 0, 1, 1), (4, 5, 4, 4, 3, 3)).tolist()
        at = Symbol("position", limit, step, block, within) if rng.integers(4) else None
        entry = int(rng.integers(8))
        if rng.integers(2):
            program.store(entry, rows, offset, y_size=y, x_size=x, x_stride=x + 1, at=at)
        else:
            program.load(Mem.INP, entry, rows, offset, y_size=y, x_size=x, x_stride=x + 1, at=at)
            program.gemm([(2, 1, 1, 0)], dst=int(rng.integers(12)), src=entry)
    launch = program.finish()
    verify(launch)
    for position in range(limit):
        verify(at_position(launch, position))
        inputs = {name: rng.integers(-9, 9, shape) for name, shape in (("x", (16, 1, 4)), ("w", (4, 4)))}
        inputs["position"] = np.array([position])
        found = []
        for device in (SpecDevice(TINY), *(ModelDevice(TINY, rng=np.random.default_rng(k)) for k in range(3))):
            with Loaded(launch, device) as loaded:
                loaded.run(inputs)
                found.append(loaded.state["rows"])
        for other in found[1:]:
            np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize(
    "error, text, judge",
    [
        (AccessError, r"ends at byte 80 for some position of buffer 'rows', which has 64", lambda cache: check_dram(
            replace(cache, patches=Patches(cache.patches.limits | {"position": 20}, cache.patches.columns)))),
        (EncodingError, "dram_base = 4294967296: outside 0..4294967295", lambda cache: cache.relocate(
            [((1 << 32) - 15) * 4 * (b.name == "rows") for b in cache.buffers])),
        (ProgramError, "symbol 'p' of instruction .*: only an address that counts from a buffer has one",
         lambda cache: patched(cache, len(cache.insn) - 1)),
        (ProgramError, "only an address that counts from a buffer has one",
         lambda cache: patched(cache, len(cache.insn) + 4)),
        (ProgramError, "loads micro-ops: they have no symbol",
         lambda cache: patched(cache, first_of(cache, "LOAD.UOP"))),
    ],
)  # fmt: skip
def test_symbols_that_do_not_fit_a_launch(error, text, judge, cache):
    launch = cache().launch
    check_dram(launch)
    with pytest.raises(error, match=text):
        judge(launch)


def patched(launch, k):
    return replace(launch, patches=Patches({"p": 4}, np.array([[k, 0, 1, 1, 0]])))
