"""boards/zynq/driver.py, unchanged, on a fake board.

Registers and memory are the behavioural model's, or the simulated circuit's where the test is marked `circuit`.
"""

import os
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.runtime.launches import product, resident
from tilewright.boards.selftest import run_self_test
from tilewright.boards.zynq import driver
from tilewright.boards.zynq.board import load_board
from tilewright.boards.zynq.driver import Interrupt, check_machine
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

TINY, VTA, PYNQ_Z1 = PRESETS["tiny"], PRESETS["vta"], load_board()
RESNET8 = Path(__file__).parents[4] / "shared" / "models" / "resnet8_int8.tflite"
DIGITS = Path(__file__).parents[3] / "examples" / "digits"
COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def on_circuit(test):
    """Mark a test that needs the simulated circuit."""
    return pytest.mark.circuit(COMPILER(test))


def values(cfg=TINY, seed=0):
    return np.random.default_rng(seed).integers(-60, 60, (8, cfg.batch, cfg.block_out), dtype=np.int32)


def check_double(loaded, seeds=(0,)):
    """The program `double` gives twice its input."""
    for seed in seeds:
        np.testing.assert_array_equal(loaded.run({"x": values(seed=seed)})["y"], 2 * values(seed=seed))


@on_circuit
def test_a_program_runs_and_runs_again(powered, double):
    device, board = powered(circuit=TINY)
    assert not board.calls  # nothing is touched before there is something to do
    with Loaded(double(), device) as loaded:
        check_double(loaded, range(3))
        model = Loaded(double(), open_device("model", TINY))
        check_double(model)
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
        check_double(loaded, range(3))
    board.missing = ("invalidate",)
    with Loaded(double(), device) as loaded:
        assert (loaded.run({"x": values()})["y"] != 2 * values()).any()


@pytest.mark.parametrize("missing", ["flush", "invalidate"])
def test_a_forgotten_flush_or_invalidate_is_seen(powered, double, missing):
    """The mutation test of the fake board itself: it does not forgive."""
    device, board = powered(fake={"missing": [missing]}, timeout=0.5)
    with Loaded(double(), device) as loaded:
        try:
            y = loaded.run({"x": values()})["y"]
        except Exception:  # garbage as instructions
            assert missing == "flush"
            return
    assert (y != 2 * values()).any()


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


def test_addresses_that_move_are_patched_in_memory(powered, cache):
    device, board = powered()
    program = cache()
    with Loaded(program.launch, device) as loaded:
        for value, position in enumerate([0, 5, 5, 15, 4]):
            found = loaded.run(program.inputs(position, value))["y"]
            np.testing.assert_array_equal(found, program.expect(position, value))
        np.testing.assert_array_equal(loaded.state["rows"], program.rows)
        assert loaded.stats.insns["STORE.OUT"] == 2


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


def test_a_run_of_another_driver_is_noticed(powered, tmp_path):
    """Two drivers, as two processes have them, on one FPGA: constants of the second take the place of the first's."""
    device, board = powered()
    other = driver.PynqDevice(
        TINY, bitstream=tmp_path / "x.bit", loaded=True, pynq=board, meminfo=tmp_path / "meminfo", watchdog=2000
    )
    x, steady, answers = np.array([[[1, 2, 3, 4]]], np.int8), [], []
    programs = [product(seed) for seed in (1, 2)]
    a, b = (Loaded(resident(program), on) for (program, _), on in zip(programs, (device, other)))
    for which in (0, 0, 1, 0, 0, 1, 1):
        loaded, (_, weights) = (a, b)[which], programs[which]
        answers.append(np.array_equal(loaded.run({"x": x})["y"].reshape(-1), weights.astype(int) @ x[0, 0]))
        steady.append(loaded.reports[0].steady)
    assert all(answers) and steady == [False, True, False, False, True, False, True]


def test_a_write_beside_what_the_accelerator_wrote(powered, double):
    """A flush writes the whole buffer, so the rest of it must be what the accelerator left there.

    Cache maintenance costs time: an input that is written again is flushed and not read before.
    """
    device, board = powered()
    with Loaded(double(), device) as loaded:
        loaded.run({"x": values()})
        before = board.calls.count("invalidate")
        loaded.run({"x": values(seed=1)})
        assert board.calls.count("invalidate") == before + 1  # the output's
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


@on_circuit
@pytest.mark.parametrize("seed", range(6))
def test_random_programs_equal_the_model(powered, seed):
    print(f"seed {seed}")
    recorder = Recorder(TINY, seed)
    record_random(recorder, 40)
    launch = recorder.program.finish()
    device, _ = powered(circuit=TINY)
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


@pytest.mark.parametrize(
    "cfg, images",
    [
        pytest.param(TINY, 3, marks=pytest.mark.circuit, id="tiny"),
        pytest.param(PRESETS["pynq_z1"], 20, marks=pytest.mark.slow, id="pynq_z1"),
    ],
)
@COMPILER
def test_the_digits_network_is_exact(powered, cfg, images):
    device, board = powered(cfg, circuit=cfg)
    digits(cfg, device, images)
    assert not board.buffers


@COMPILER
@pytest.mark.slow
@pytest.mark.skipif(not RESNET8.exists(), reason="the MLPerf Tiny models are not there")
def test_resnet8_is_exact_on_the_boards_configuration(powered):
    pytest.importorskip("tvm")
    pytest.importorskip("ai_edge_litert")
    from tilewright.compiler.network import compile_model

    cfg = PRESETS["pynq_z1"]
    with np.load(RESNET8.parents[1] / "inputs" / "resnet8_int8.npz") as file:
        inputs, outputs = file["inputs"], file["outputs"]
    device, board = powered(cfg, circuit=cfg)
    executable = compile_model(RESNET8, cfg)
    with Loaded(executable, device) as loaded:
        for x, y in zip(inputs[:3], outputs):
            (found,) = loaded.run({executable.inputs[0].name: x}).values()
            np.testing.assert_array_equal(found, y)
    assert not board.buffers


# What goes wrong, and what is said about it.


def test_a_program_of_another_configuration_names_both(powered, double):
    device, board = powered(VTA, circuit=TINY, fake={"modelled": True})
    with pytest.raises(FingerprintError) as caught:
        Loaded(double(VTA), device)
    text = str(caught.value)
    assert f"the bitstream is for tiny ({TINY.fingerprint:016x})" in text
    assert f"the program for vta ({VTA.fingerprint:016x})" in text
    assert not board.buffers and "start" not in board.calls


@pytest.mark.parametrize("deaf", [False, True])
def test_a_dead_device_is_reset_or_loaded_again(powered, double, deaf):
    device, board = powered(timeout=0.2)
    loaded = Loaded(double(), device)
    board.dead, board.deaf = True, deaf
    with pytest.raises(HangError) as caught:
        loaded.run({"x": values()})
    text = str(caught.value)
    waits = "LOAD is empty; COMPUTE waits for the instructions before it"
    assert text.startswith(f"not done after 0.2 s (CONTROL = 0x1); {waits}") and caught.value.index == 0
    end = "it did not react to a reset, so the bitstream was loaded again" if deaf else "it was reset"
    assert text.endswith(f"; {end}") and board.calls.count("download") == 1 + deaf
    board.dead = False
    check_double(loaded)


@pytest.mark.parametrize("wakes", [True, False])
def test_the_end_of_a_run_is_seen_with_an_interrupt_and_without(powered, double, wakes):
    waits = []
    line = SimpleNamespace(wait=lambda seconds: waits.append(seconds) or wakes)
    device, board = powered(interrupt=line)
    board.dawdle = 5
    with Loaded(double(), device) as loaded:
        check_double(loaded)
    assert len(waits) >= 3


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


@on_circuit
def test_a_bus_error_names_the_instruction_and_its_bytes(powered, double):
    device, board = powered(circuit=TINY, fake={"faults": (0x1000_0000, 0x1000_2FFF)})
    with pytest.raises(AccessError) as caught:
        Loaded(double(), device).run({"x": values()})
    assert caught.value.index == 0
    assert "(LOAD.ACC dram_base=" in str(caught.value)
    assert "the bus answered a read with an error; it touches DRAM bytes 0x1000" in str(caught.value)


@on_circuit
def test_a_deadlock_is_the_watchdogs(powered):
    device, _ = powered(circuit=TINY)
    stuck = {"op": Op.GEMM, "pop_prev": 1, "uop_end": 1, "iter_out": 1, "iter_in": 1}
    formats = Isa(TINY).formats
    words = np.concatenate([formats["GEMM"].encode(1, **stuck), formats["FINISH"].encode(1, op=Op.FINISH)])
    at = device.allocate(words.nbytes, 64)
    device.write(at, words.view(np.uint8).reshape(-1))
    with pytest.raises(DeadlockError, match="COMPUTE waits for a token LOAD -> COMPUTE at instruction 0"):
        device.run(at, len(words))


@pytest.mark.parametrize(
    "options, text",
    [
        (
            {"meminfo": "CmaFree: 12 kB\n"},
            r"the program needs 32,768 bytes of contiguous memory \(CmaFree\), but only 12,288 are free",
        ),
        (
            {"fake": {"contiguous": 20_000}},
            r"bytes of contiguous memory are not available \(BO allocation failed\)",
        ),
    ],
)
def test_a_program_too_large_leaves_no_buffer(powered, double, options, text):
    """Where the room is known, the board is not touched either."""
    device, board = powered(**options)
    with pytest.raises(CapacityError, match=text):
        Loaded(double(), device)
    assert not board.buffers and bool(board.calls) == ("fake" in options)


def refuse(*args, **kwargs):
    raise PermissionError("only root may")


@pytest.mark.parametrize(
    "change, error, text",
    [
        (
            {"wrong": {"VERSION": 0}},
            BoardError,
            "VERSION at 0x43c00000 reads 0x00000000, its upper half must be 0x7e11",
        ),
        (
            {"wrong": {"VERSION": 0x7E110063}},
            BoardError,
            "executes version 99 of the instruction set, must be version 1",
        ),
        ({"wrong": {"FINGERPRINT_LO": 7}}, FingerprintError, "the bitstream is for fingerprint "),
        ({"Clocks.divides_to": lambda mhz: 83.3}, BoardError, "FCLK0 runs at 83.3 MHz instead of 100"),
        (
            {"Bitstream": refuse},
            BoardError,
            "x.bit: loading the bitstream failed .only root may.; check that this runs as root",
        ),
    ],
)
def test_a_board_that_cannot_be_opened(powered, change, error, text):
    device, board = powered()
    for name, value in change.items():
        part, _, attribute = name.rpartition(".")
        setattr(getattr(board, part) if part else board, attribute, value)
    with pytest.raises(error, match=text):
        device.open()


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
    with pytest.raises(BoardError, match="a buffer at 0x1000000000, but programs use DRAM below 0x40000000"):
        device.allocate(8, 8)
    assert not board.buffers


def test_mistakes_with_memory(powered):
    device, _ = powered(meminfo="")
    with pytest.raises(BoardError, match="has no CmaFree"):
        device.check_room({})
    at = device.allocate(100, 64)
    with pytest.raises(AccessError, match="are not inside one allocated buffer"):
        device.read(at, 1 << 20)
    with pytest.raises(AccessError):
        device.run(at + 8160, 3)
    with pytest.raises(InputError, match="was not allocated"):
        device.free(at + 4)
    with pytest.raises(InputError, match="cannot allocate -1 bytes"):
        device.allocate(-1, 1)


def test_a_coherent_port_needs_neither_flush_nor_invalidate(powered):
    device, board = powered(board=PYNQ_Z1.replace(memory="ACP"))
    device.write(device.allocate(16, 16), np.ones(16, np.uint8))
    assert "flush" not in board.calls


def test_a_board_with_ports_of_several_widths_needs_the_handoff_file(powered):
    kv260 = load_board("kv260")
    device, _ = powered(board=kv260, fake={"base": kv260.base})
    with pytest.raises(FileError, match=r"x\.hwh: no such file; give a hardware handoff file"):
        device.open()


def test_the_bitstream_is_found_by_its_name(tmp_path, monkeypatch):
    board = PYNQ_Z1
    monkeypatch.setattr(driver, "FOLDERS", (tmp_path / "a", tmp_path))
    name = f"tilewright_pynq_z1_tiny_{TINY.fingerprint:016x}_hp.bit"
    with pytest.raises(FileError, match=f"{name}: not found in .*; build it with `tilewright bitstream`"):
        driver.find_bitstream(TINY, board)
    (tmp_path / name).write_bytes(b"")
    assert driver.find_bitstream(TINY, board) == tmp_path / name
    with pytest.raises(FileError, match="no.bit: no such bitstream"):
        driver.find_bitstream(TINY, board, tmp_path / "no.bit")


def test_without_pynq_the_error_says_where_to_run(no_pynq):
    with pytest.raises(BoardError, match="pynq is not installed: .* add --host NAME:PORT"):
        driver.PynqDevice(TINY)


@pytest.fixture
def checked(fake_pynq, tmp_path, monkeypatch):
    """The checks of a fake board, as `checked(**changes)`: changed attributes of the board, or changed options."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "x.bit").write_bytes(b"bits")

    def check(modelled=True, meminfo="CmaFree: 65536 kB\n", bitstream=tmp_path / "x.bit", **changes):
        board = fake_pynq(TINY, modelled=modelled)
        for name, value in changes.items():
            setattr(board, name, value)
        (tmp_path / "meminfo").write_text(meminfo)
        options = {"bitstream": bitstream, "meminfo": tmp_path / "meminfo", "watchdog": 2000}
        return list(check_machine(TINY, pynq=board, **options))

    return check


@on_circuit
def test_a_board_that_is_ready(checked):
    found = checked(modelled=False)
    assert [check.name for check in found if check.fine] == [
        "machine", "user", "pynq", "memory", "bitstream", "registers", "self-test"
    ]  # fmt: skip
    assert "numpy" in found[0].found and found[3].found == "65,536 kB of contiguous memory are free"
    assert found[5].found == f"tiny ({TINY.fingerprint:016x}) answers at 0x43c00000"
    assert found[6].found.startswith("4 values are right, ") and found[6].found.endswith(" cycles")


@pytest.mark.parametrize(
    "change, step, text",
    [
        ({"bitstream": "none.bit"}, "bitstream", "none.bit: no such bitstream"),
        ({"meminfo": "CmaFree: 4 kB\n"}, "self-test", "of contiguous memory (CmaFree), but only 4,096 are free"),
        ({"wrong": {"VERSION": 0xFFFFFFFF}}, "registers", "VERSION at 0x43c00000 reads 0xffffffff"),
        (
            {"missing": ("invalidate",)},
            "self-test",
            "4 of 4 values are wrong: the bitstream needs other memory ports or another clock",
        ),
    ],
)
def test_the_first_failure_ends_the_list(checked, change, step, text):
    *before, last = checked(**change)
    assert all(check.fine for check in before) and not last.fine
    assert last.name == step and text in last.found


def test_machines_that_are_no_board(monkeypatch, no_pynq):
    for user, name, text in ((1000, "user", "run with sudo"), (0, "pynq", "pynq is not installed")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        *_, last = check_machine(TINY)
        assert (last.name, last.fine) == (name, False) and text in last.found


def test_the_self_test_sees_wrong_values(monkeypatch):
    device = open_device("model", TINY)
    assert run_self_test(TINY, lambda launch: Loaded(launch, device)) == "4 values are right"
    read = device.read
    monkeypatch.setattr(device, "read", lambda address, nbytes: read(address, nbytes) ^ 1)
    with pytest.raises(BoardError, match="4 of 4 values are wrong"):
        run_self_test(TINY, lambda launch: Loaded(launch, device))


def test_an_interrupt_is_enabled_and_waited_for():
    """A socket stands in for the kernel's device."""
    ours, kernel = socket.socketpair()
    with kernel:
        kernel.settimeout(5)
        line = Interrupt(ours.detach())
        kernel.send((7).to_bytes(4, "little"))
        assert line.wait(5)
        assert kernel.recv(16) == b"\x01\0\0\0"
        assert not line.wait(0)  # one count, one wake
        assert kernel.recv(16) == b"\x01\0\0\0"
        line.close()


def test_an_interrupt_is_found_by_its_name(tmp_path, monkeypatch):
    assert Interrupt.find(tmp_path / "none") is None
    for name, content in (("uio0", "other"), ("uio1", "fabric")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "name").write_text(f"{content}\n")
    opened = []
    with monkeypatch.context() as patch:
        patch.setattr(driver.os, "open", lambda path, flags: opened.append(path) or os.dup(0))
        found = Interrupt.find(tmp_path)
    assert found and opened == ["/dev/uio1"]
    found.close()
    with monkeypatch.context() as patch:
        patch.setattr(driver.os, "open", refuse)
        assert Interrupt.find(tmp_path) is None
