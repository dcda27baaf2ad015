"""boards/pynq_z1/driver.py, unchanged, on a fake board whose registers and memory are the simulated circuit."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tilewright.boards.pynq_z1 import driver
from tilewright.boards.pynq_z1.board import Board
from tilewright.boards.pynq_z1.driver import check_machine
from tilewright.boards.selftest import run_self_test
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import (
    AccessError,
    BoardError,
    CapacityError,
    DeadlockError,
    FileError,
    FingerprintError,
    HangError,
    InputError,
    TilewrightError,
)
from tilewright.hw.isa import Isa, Op
from tilewright.hw.regs import Command
from tilewright.runtime.device import Stats, open_device
from tilewright.runtime.loader import Loaded
from tilewright.sim.random_programs import Recorder, record_random

TINY, VTA = PRESETS["tiny"], PRESETS["vta"]
RESNET8 = Path(__file__).parents[4] / "shared" / "models" / "resnet8_int8.tflite"
DIGITS = Path(__file__).parents[3] / "examples" / "digits"

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def values(cfg=TINY, seed=0):
    return np.random.default_rng(seed).integers(-60, 60, (8, cfg.batch, cfg.block_out), dtype=np.int32)


@pytest.mark.circuit
def test_a_program_runs_and_runs_again(powered, double):
    device, board = powered()
    assert not board.calls  # nothing is touched before there is something to do
    with Loaded(double(), device) as loaded:
        for seed in range(3):
            x = values(seed=seed)
            np.testing.assert_array_equal(loaded.run({"x": x})["y"], 2 * x)
        model = Loaded(double(), open_device("model", TINY))
        model.run({"x": x})
    assert board.calls[0] == "download" and board.calls.count("download") == 1
    assert board.Clocks.fclk0 == 100
    assert not board.buffers  # all freed
    found, expected = loaded.stats, model.stats
    assert (found.insns, found.uops, found.bytes_loaded) == (expected.insns, expected.uops, expected.bytes_loaded)
    assert found.cycles and found.cycles > 100
    assert found.counters["STORE_BYTES"] == 8 * TINY.out_entry_bytes


@pytest.mark.filterwarnings("ignore")  # pynq warns of machines that are no board
def test_it_runs_through_pynqs_own_buffers_and_registers(powered, double, with_pynq, tmp_path):
    board = powered()[1]
    module, target = with_pynq(board)
    device = driver.PynqDevice(
        TINY, bitstream=tmp_path / "x.bit", pynq=module, target=target, meminfo=tmp_path / "meminfo", watchdog=2000
    )
    with Loaded(double(), device) as loaded:
        for seed in range(3):
            np.testing.assert_array_equal(loaded.run({"x": values(seed=seed)})["y"], 2 * values(seed=seed))
    board.missing = ("invalidate",)
    with Loaded(double(), device) as loaded:
        assert (loaded.run({"x": values()})["y"] != 2 * values()).any()


@pytest.mark.circuit
@pytest.mark.parametrize("missing", ["flush", "invalidate"])
def test_a_forgotten_flush_or_invalidate_is_seen(powered, double, missing):
    """The mutation test of the fake board itself: it does not forgive."""
    device, board = powered(fake={"missing": [missing]}, timeout=0.5)
    x = values()
    with Loaded(double(), device) as loaded:
        try:
            y = loaded.run({"x": x})["y"]
        except Exception:  # garbage as instructions
            assert missing == "flush"
            return
    assert (y != 2 * x).any()


@pytest.mark.circuit
@pytest.mark.parametrize("seed", range(4))
def test_memory_reads_as_it_was_written(powered, seed):
    """Random allocations, writes and reads between runs, of parts and of whole buffers."""
    device, board = powered()
    rng, mirror = np.random.default_rng(seed), {}
    print(f"seed {seed}")
    for _ in range(30):
        nbytes, align = int(rng.integers(1, 20_000)), int(rng.choice([1, 16, 64, 192, 4096]))
        at = device.allocate(nbytes, align)
        assert at % align == 0 and not device.read(at, nbytes).any()
        mirror[at] = np.zeros(nbytes, np.uint8)
    for _ in range(100):
        at = int(rng.choice(list(mirror)))
        first, last = sorted(rng.integers(0, len(mirror[at]) + 1, 2).tolist())
        if rng.random() < 0.5:
            mirror[at][first:last] = rng.integers(0, 256, last - first, np.uint8)
            device.write(at + first, mirror[at][first:last])
        np.testing.assert_array_equal(device.read(at + first, last - first), mirror[at][first:last])
    with pytest.raises(TilewrightError):  # no program; what was written is in memory all the same
        device.run(at, 1)
    for at, data in mirror.items():
        np.testing.assert_array_equal(board.ddr[at : at + len(data)], data)
    device.close()
    assert not board.buffers


@pytest.mark.circuit
def test_addresses_that_move_are_patched_in_memory(powered, cache):
    device, board = powered()
    program = cache()
    with Loaded(program.launch, device) as loaded:
        for value, position in enumerate([0, 5, 5, 15, 4]):
            found = loaded.run(program.inputs(position, value))["y"]
            np.testing.assert_array_equal(found, program.expect(position, value))
        np.testing.assert_array_equal(loaded.state["rows"], program.rows)
        assert loaded.stats.insns["STORE.OUT"] == 2


@pytest.mark.circuit
def test_instructions_are_counted_once_whatever_their_addresses(powered, cache, monkeypatch):
    device, board = powered()
    counted, program = [], cache()
    monkeypatch.setattr(
        driver, "program_stats", lambda isa, words: counted.append(len(words)) or Stats(macs=len(counted))
    )
    with Loaded(program.launch, device) as loaded:
        for position in (1, 9, 2):
            loaded.run(program.inputs(position, 0))
            assert loaded.stats.macs == 1
        (placed,) = loaded._placed
        assert placed is not None
        other = placed.launch.insn.copy()
        other[0, 1] ^= np.uint64(1)  # a size
        device.write(placed.address, other.view(np.uint8).reshape(-1))
        loaded.run(program.inputs(2, 0))
    assert counted == [len(program.launch.insn)] * 2


@pytest.mark.circuit
def test_what_the_accelerator_wrote_survives_a_write_beside_it(powered, double):
    """A flush writes the whole buffer: the rest of it must be what the accelerator left there."""
    device, board = powered()
    with Loaded(double(), device) as loaded:
        loaded.run({"x": values()})
        (placed,) = loaded._placed
        assert placed is not None
        at = placed.bound["y"][0]
        device.run(placed.address, len(placed.launch.insn))
        board.ddr[at : at + 8] = np.arange(8)  # as the accelerator would
        device.write(at + 3, np.full(2, 9, np.uint8))
        assert device.read(at, 8).tolist() == [0, 1, 2, 9, 9, 5, 6, 7]
        (x,) = [address for name, (address, _) in placed.bound.items() if name == "x"]
        device.write(x + 3, np.full(2, 9, np.uint8))
        before = board.calls.count("flush")
        device.write(x + 8, np.full(2, 9, np.uint8))
        device.run(placed.address, len(placed.launch.insn))
        assert board.calls.count("flush") == before + 2  # y and x


@pytest.mark.circuit
def test_what_is_overwritten_whole_is_not_read_before(powered, double):
    """Cache maintenance costs time: an input that is written again needs a flush only."""
    device, board = powered()
    with Loaded(double(), device) as loaded:
        loaded.run({"x": values()})
        before = board.calls.count("invalidate")
        loaded.run({"x": values(seed=1)})
        assert board.calls.count("invalidate") == before + 1  # the output's


@pytest.mark.circuit
@pytest.mark.parametrize("seed", range(6))
def test_random_programs_equal_the_model(powered, seed):
    print(f"seed {seed}")
    recorder = Recorder(TINY, seed)
    record_random(recorder, 40)
    launch = recorder.program.finish()
    device, _ = powered(TINY)
    with Loaded(launch, device) as here, Loaded(launch, open_device("model", TINY)) as there:
        got, expected = here.run(recorder.inputs), there.run(recorder.inputs)
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def digits(cfg, device, images):
    """The digits network on `device` and on the model; their outputs and the labels must be equal."""
    pytest.importorskip("tvm")
    from tilewright.compiler.frontend.onnx import import_onnx
    from tilewright.compiler.network import compile_graph

    executable = compile_graph(import_onnx(DIGITS / "digits.onnx"), cfg)
    with np.load(DIGITS / "inputs.npz") as file:
        inputs, labels = file["inputs"], file["labels"]
    with Loaded(executable, device) as here, Loaded(executable, open_device("model", cfg)) as there:
        for image, label in zip(inputs[:images], labels):
            x = {executable.inputs[0].name: image}
            got, expected = here.run(x), there.run(x)
            for name, array in expected.items():
                np.testing.assert_array_equal(got[name], array, err_msg=name)
            assert got["logits"].argmax() == label
    assert {r.where for r in here.reports} == {"device", "host"}


@pytest.mark.circuit
def test_the_digits_network_is_exact(powered):
    device, board = powered(TINY)
    digits(TINY, device, 3)
    assert not board.buffers


@pytest.mark.slow
def test_the_digits_network_is_exact_on_the_boards_configuration(powered):
    cfg = PRESETS["pynq_z1"]
    device, _ = powered(cfg)
    digits(cfg, device, 20)


@pytest.mark.slow
@pytest.mark.skipif(not RESNET8.exists(), reason="the MLPerf Tiny models are not there")
def test_resnet8_is_exact_on_the_boards_configuration(powered):
    pytest.importorskip("tvm")
    pytest.importorskip("ai_edge_litert")
    from tilewright.compiler.network import compile_model

    cfg = PRESETS["pynq_z1"]
    with np.load(RESNET8.parents[1] / "inputs" / "resnet8_int8.npz") as file:
        inputs, outputs = file["inputs"], file["outputs"]
    device, board = powered(cfg)
    executable = compile_model(RESNET8, cfg)
    with Loaded(executable, device) as loaded:
        for x, y in zip(inputs[:3], outputs):
            (found,) = loaded.run({executable.inputs[0].name: x}).values()
            np.testing.assert_array_equal(found, y)
    assert not board.buffers


@pytest.mark.circuit
def test_a_forgotten_invalidate_spoils_the_digits(powered):
    device, _ = powered(TINY, fake={"missing": ["invalidate"]})
    with pytest.raises(AssertionError):
        digits(TINY, device, 1)


# What goes wrong, and what is said about it.


@pytest.mark.circuit
def test_a_program_of_another_configuration_names_both(powered, double):
    device, board = powered(VTA, circuit=TINY)
    with pytest.raises(FingerprintError) as caught:
        Loaded(double(VTA), device)
    text = str(caught.value)
    assert f"the bitstream is for tiny ({TINY.fingerprint:016x})" in text
    assert f"the program for vta ({VTA.fingerprint:016x})" in text
    assert not board.buffers and "start" not in board.calls


@pytest.mark.circuit
def test_a_dead_device_is_reported_and_reset(powered, double):
    device, board = powered(timeout=0.2)
    loaded = Loaded(double(), device)
    board.dead = True
    with pytest.raises(HangError) as caught:
        loaded.run({"x": values()})
    text = str(caught.value)
    assert text.startswith(
        "not done after 0.2 s (CONTROL = 0x1); LOAD is empty; COMPUTE waits for the instructions before it"
    )
    assert text.endswith("; it was reset") and caught.value.index == 0
    board.dead = False
    np.testing.assert_array_equal(loaded.run({"x": values()})["y"], 2 * values())


@pytest.mark.circuit
def test_a_device_that_ignores_the_reset_is_loaded_again(powered, double):
    device, board = powered(timeout=0.2)
    loaded = Loaded(double(), device)
    board.dead = board.deaf = True
    with pytest.raises(HangError, match="it did not react to a reset, so the bitstream was loaded again"):
        loaded.run({"x": values()})
    assert board.calls.count("download") == 2
    np.testing.assert_array_equal(loaded.run({"x": values()})["y"], 2 * values())


class Line:
    """An interrupt that wakes at once, or never."""

    def __init__(self, wakes):
        self.wakes, self.waits = wakes, 0

    def wait(self, seconds):
        self.waits += 1
        return self.wakes


@pytest.mark.circuit
@pytest.mark.parametrize("wakes", [True, False])
def test_the_end_of_a_run_is_seen_with_an_interrupt_and_without(powered, double, wakes):
    line = Line(wakes)
    device, board = powered(interrupt=line)
    board.dawdle = 5
    with Loaded(double(), device) as loaded:
        np.testing.assert_array_equal(loaded.run({"x": values()})["y"], 2 * values())
    assert line.waits >= 3


@pytest.mark.circuit
@pytest.mark.parametrize("place", ["start", "wait"])
def test_an_interrupt_from_the_keyboard_stops_the_accelerator(powered, double, monkeypatch, place):
    device, board = powered()
    loaded = Loaded(double(), device)

    registers = device.open().registers
    write = registers.write

    def interrupt(seconds):
        raise KeyboardInterrupt

    def write_and_interrupt(name, value):
        write(name, value)
        if name == "CONTROL" and value == Command.START:
            raise KeyboardInterrupt

    board.dead = True
    if place == "start":
        monkeypatch.setattr(registers, "write", write_and_interrupt)
    else:
        monkeypatch.setattr(driver.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        loaded.run({"x": values()})
    assert board.calls[-1] == "reset"


@pytest.mark.circuit
def test_a_bus_error_names_the_instruction_and_its_bytes(powered, double):
    device, board = powered(fake={"faults": (0x1000_0000, 0x1000_2FFF)})
    with pytest.raises(AccessError) as caught:
        Loaded(double(), device).run({"x": values()})
    assert caught.value.index == 0
    assert "(LOAD.ACC dram_base=" in str(caught.value)
    assert "the bus answered a read with an error; it touches DRAM bytes 0x1000" in str(caught.value)


@pytest.mark.circuit
def test_a_deadlock_is_the_watchdogs(powered):
    device, _ = powered()
    words = np.concatenate([Isa(TINY).formats[name].encode(1, **f) for name, f in STUCK])
    at = device.allocate(words.nbytes, 64)
    device.write(at, words.view(np.uint8).reshape(-1))
    with pytest.raises(DeadlockError, match="COMPUTE waits for a token LOAD -> COMPUTE at instruction 0"):
        device.run(at, len(words))


STUCK = [
    ("GEMM", {"op": Op.GEMM, "pop_prev": 1, "uop_end": 1, "iter_out": 1, "iter_in": 1}),
    ("FINISH", {"op": Op.FINISH}),
]


@pytest.mark.circuit
def test_a_program_too_large_is_refused_before_the_board_is_touched(powered, double):
    device, board = powered(meminfo="CmaFree: 12 kB\n")
    with pytest.raises(CapacityError) as caught:
        Loaded(double(), device)
    assert "the program needs 32,768 bytes of contiguous memory (CmaFree), but only 12,288 are free" in str(
        caught.value
    )
    assert not board.calls


@pytest.mark.circuit
def test_memory_that_runs_out_all_the_same_is_given_back(powered, double):
    device, board = powered(fake={"contiguous": 20_000})
    with pytest.raises(CapacityError, match=r"bytes of contiguous memory are not available \(BO allocation failed\)"):
        Loaded(double(), device)
    assert not board.buffers


@pytest.mark.circuit
@pytest.mark.parametrize(
    "wrong, error, text",
    [
        ({"VERSION": 0}, BoardError, "VERSION at 0x43c00000 reads 0x00000000, its upper half must be 0x7e11"),
        ({"VERSION": 0x7E110063}, BoardError, "executes version 99 of the instruction set, must be version 1"),
        ({"FINGERPRINT_LO": 7}, FingerprintError, "the bitstream is for fingerprint "),
    ],
)
def test_registers_that_are_not_ours(powered, wrong, error, text):
    device, board = powered()
    board.wrong = wrong
    with pytest.raises(error) as caught:
        device.open()
    assert text in str(caught.value)


@pytest.mark.circuit
def test_a_clock_that_cannot_be_had(powered):
    device, board = powered()
    board.Clocks.divides_to = lambda mhz: 83.3
    with pytest.raises(BoardError, match="FCLK0 runs at 83.3 MHz instead of 100"):
        device.open()


@pytest.mark.circuit
def test_a_bitstream_that_the_board_does_not_take(powered):
    device, board = powered()

    def refuse(*args, **kwargs):
        raise PermissionError("only root may")

    board.Bitstream = refuse
    with pytest.raises(
        BoardError, match="x.bit: loading the bitstream failed .only root may.; check that this runs as root"
    ):
        device.open()


@pytest.mark.circuit
def test_addresses_beyond_the_ports_are_refused(powered):
    device, board = powered()
    device.open()
    allocate = board.allocate

    def far(*args, **kwargs):
        buffer = allocate(*args, **kwargs)
        board.buffers[1 << 36] = board.buffers.pop(buffer.device_address)
        buffer.device_address = 1 << 36
        return buffer

    board.allocate = far
    with pytest.raises(BoardError, match="a buffer at 0x1000000000, but the board's ports have 32 address bits"):
        device.allocate(8, 8)
    assert not board.buffers


@pytest.mark.circuit
def test_a_kernel_without_contiguous_memory(powered):
    device, _ = powered(meminfo="")
    with pytest.raises(BoardError, match="has no CmaFree"):
        device.check_room({})


@pytest.mark.circuit
def test_mistakes_with_memory(powered):
    device, _ = powered()
    at = device.allocate(100, 64)
    with pytest.raises(AccessError, match="are not inside one allocated buffer"):
        device.read(at, 1 << 20)
    with pytest.raises(AccessError):
        device.run(at + 8160, 3)
    with pytest.raises(InputError, match="was not allocated"):
        device.free(at + 4)
    with pytest.raises(InputError, match="cannot allocate -1 bytes"):
        device.allocate(-1, 1)


@pytest.mark.circuit
def test_a_coherent_port_needs_neither_flush_nor_invalidate(powered):
    device, board = powered(board=Board(memory="ACP"))
    device.write(device.allocate(16, 16), np.ones(16, np.uint8))
    assert "flush" not in board.calls


def test_the_bitstream_is_found_by_its_name(tmp_path, monkeypatch):
    board = Board()
    monkeypatch.setattr(driver, "FOLDERS", (tmp_path / "a", tmp_path))
    name = f"tilewright_tiny_{TINY.fingerprint:016x}_hp.bit"
    with pytest.raises(FileError, match=f"{name}: not found in .*; build it with `make bitstream`"):
        driver.find_bitstream(TINY, board)
    (tmp_path / name).write_bytes(b"")
    assert driver.find_bitstream(TINY, board) == tmp_path / name
    with pytest.raises(FileError, match="no.bit: no such bitstream"):
        driver.find_bitstream(TINY, board, tmp_path / "no.bit")


def test_without_pynq_the_error_says_where_to_run(no_pynq):
    with pytest.raises(BoardError, match="pynq is not installed: .* add --host NAME:PORT"):
        driver.PynqDevice(TINY)


STEPS = ["machine", "user", "pynq", "memory", "bitstream", "registers", "self-test"]


@pytest.fixture
def checked(fake_pynq, tmp_path, monkeypatch):
    """The checks of a fake board, as `checked(change)`: `change` spoils the board or the options."""
    if not shutil.which("g++"):
        pytest.skip("g++ is missing: no circuit can be built")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "x.bit").write_bytes(b"bits")
    (tmp_path / "meminfo").write_text("CmaFree: 65536 kB\n")

    def check(change=lambda board, options: None):
        board = fake_pynq(TINY)
        options = {"pynq": board, "bitstream": tmp_path / "x.bit", "meminfo": tmp_path / "meminfo", "watchdog": 2000}
        change(board, options)
        return list(check_machine(TINY, **options))

    return check


@pytest.mark.circuit
def test_a_board_that_is_ready(checked):
    found = checked()
    assert [check.name for check in found] == STEPS and all(check.fine for check in found)
    assert "numpy" in found[0].found and found[3].found == "65,536 kB of contiguous memory are free"
    assert found[5].found == f"tiny ({TINY.fingerprint:016x}) answers at 0x43c00000"
    assert found[6].found.startswith("4 values are right, ") and found[6].found.endswith(" cycles")


def no_bitstream(board, options):
    options["bitstream"] = "none.bit"


def little_memory(board, options):
    options["meminfo"].write_text("CmaFree: 4 kB\n")


def other_registers(board, options):
    board.wrong = {"VERSION": 0xFFFFFFFF}


def stale_caches(board, options):
    board.missing = ("invalidate",)


@pytest.mark.circuit
@pytest.mark.parametrize(
    "change, step, text",
    [
        (no_bitstream, "bitstream", "none.bit: no such bitstream"),
        (little_memory, "self-test", "of contiguous memory (CmaFree), but only 4,096 are free"),
        (other_registers, "registers", "VERSION at 0x43c00000 reads 0xffffffff"),
        (stale_caches, "self-test", "4 of 4 values are wrong: the bitstream needs other memory ports or another clock"),
    ],
)
def test_the_first_failure_ends_the_list(checked, change, step, text):
    *before, last = checked(change)
    assert all(check.fine for check in before) and not last.fine
    assert last.name == step and text in last.found


def test_only_root_may(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    *_, last = check_machine(TINY)
    assert (last.name, last.fine) == ("user", False) and "run with sudo" in last.found


def test_a_machine_that_is_no_board(monkeypatch, no_pynq):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    *_, last = check_machine(TINY)
    assert last.name == "pynq" and "pynq is not installed" in last.found


def test_the_self_test_sees_wrong_values(monkeypatch):
    device = open_device("model", TINY)
    assert run_self_test(TINY, lambda launch: Loaded(launch, device)) == "4 values are right"
    read = device.read
    monkeypatch.setattr(device, "read", lambda address, nbytes: read(address, nbytes) ^ 1)
    with pytest.raises(BoardError, match="4 of 4 values are wrong"):
        run_self_test(TINY, lambda launch: Loaded(launch, device))
