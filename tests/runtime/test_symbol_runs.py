"""Programs whose addresses move with an input: what runs write, and what is proved of them for every value."""

import shutil
from itertools import islice

import numpy as np
import pytest

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
    program = cache()
    text = f"input 'position': value {position} given, step 'cache' was made for 0..15; give one of these, or compile"
    with Loaded(program.launch, open_device("model", TINY)) as loaded:
        with pytest.raises(InputError, match=text):
            loaded.run(program.inputs(position, 0))
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


def test_bounds_hold_for_every_value(cache):
    launch = cache().launch
    check_dram(launch)
    launch.patches = Patches.of(
        [s and Symbol(s.name, 20, s.step, s.block) for s in map(launch.patches.symbols.get, range(len(launch.insn)))]
    )
    with pytest.raises(AccessError, match=r"ends at byte 80 for some position of buffer 'rows', which has 64"):
        check_dram(launch)


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


def test_an_address_that_does_not_fit_for_some_value(cache):
    launch = cache().launch
    far = [0] * len(launch.buffers)
    far[[b.name for b in launch.buffers].index("rows")] = ((1 << 32) - 15) * 4
    with pytest.raises(EncodingError, match="dram_base = 4294967296: outside 0..4294967295"):
        launch.relocate(far)


def test_patches_of_what_has_no_address(cache):
    launch = cache().launch
    for k, text in [
        (len(launch.insn) - 1, "symbol 'p' of instruction .*: only an address that counts from a buffer has one"),
        (len(launch.insn) + 4, "only an address that counts from a buffer has one"),
    ]:
        patches = Patches({"p": 4}, np.array([[k, 0, 1, 1, 0]]))
        with pytest.raises(ProgramError, match=text):
            Launch(TINY, "x", launch.insn, launch.reloc, launch.buffers, patches=patches)
    uops = next(k for k, line in enumerate(disassemble(launch)) if "@uop" in line)
    with pytest.raises(ProgramError, match="loads micro-ops: they have no symbol"):
        Launch(
            TINY,
            "x",
            launch.insn,
            launch.reloc,
            launch.buffers,
            patches=Patches({"p": 4}, np.array([[uops, 0, 1, 1, 0]])),
        )


def test_cycles_are_those_of_symbols_at_zero(cache):
    launch = cache().launch
    assert predict(launch).cycles == predict(at_position(launch, 0)).cycles


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
