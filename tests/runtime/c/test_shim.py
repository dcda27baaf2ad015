"""runtime/c/shim.py: requests of a program are answered; here Python scripts stand for programs in C."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.hw.isa import INSN_BYTES
from tilewright.runtime.c.shim import NO_MEMORY, WRONG_DEVICE, Shim, main, run
from tilewright.runtime.device import open_device

CFG = PRESETS["tiny"]
ASK = """
import os, sys
answers, requests = (os.fdopen(int(fd), mode) for fd, mode in zip(os.environ["TW_SIM"].split(","), "rw"))

def ask(line):
    print(line, file=requests, flush=True)
    return answers.readline().split()

"""


@pytest.fixture
def shim(tmp_path):
    return Shim(open_device("model", CFG), tmp_path)


def test_only_the_configuration_of_the_device_is_opened(shim):
    assert shim.answer(f"open {CFG.fingerprint:016x}") == "0"
    assert shim.answer("open 0000000000000001") == str(WRONG_DEVICE)


def test_memory_is_a_file(shim, cache):
    case = cache()
    status, address, path = shim.answer("memory 4096 256").split()
    assert status == "0" and int(address) % 256 == 0 and os.path.getsize(path) == 4096
    sizes = np.cumsum([0] + [-(-b.nbytes // 256) * 256 for b in case.launch.buffers])
    places = [int(address) + 1024 + int(at) for at in sizes]
    words = case.launch.relocate(places[:-1])
    memory = np.memmap(path, np.uint8, "r+")
    memory[: words.nbytes] = words.view(np.uint8).reshape(-1)
    for b, at in zip(case.launch.buffers, places):
        if b.data is not None:
            memory[at - int(address) :][: b.nbytes] = b.data
        if b.name == "x":
            memory[at - int(address) :][: b.nbytes] = b.pack(case.inputs(0, 3)["x"])
        if b.name == "y":
            y = memory[at - int(address) :][: b.nbytes]
    memory.flush()
    assert shim.answer(f"run {address} {len(words)}") == "0" and shim.runs == 1
    assert np.array_equal(y.view(np.int8).reshape(-1), case.expect(0, 3).reshape(-1))


def test_a_launch_that_fails_says_why(shim, capsys):
    _, address, _ = shim.answer("memory 64 64").split()
    assert shim.answer(f"run {address} {64 // INSN_BYTES}") == "1"
    assert capsys.readouterr().err.startswith("launch 1: ")


def test_more_memory_than_there_is(shim):
    assert shim.answer(f"memory {1 << 40} 64") == str(NO_MEMORY)


def test_another_request_is_refused(shim):
    with pytest.raises(UnsupportedError, match=r"request 'dance' of the program: must be open, memory or run"):
        shim.answer("dance 1 2")


def test_what_the_program_prints_and_its_status():
    code = ASK + "print(ask(f'open {int(sys.argv[1]):016x}'), sys.stdin.read()); sys.exit(3)"
    status, found = run([sys.executable, "-c", code, str(CFG.fingerprint)], open_device("model", CFG), b"given")
    assert (status, found) == (3, b"['0'] given\n")


def test_a_program_that_does_not_wait_for_its_answer():
    code = ASK + "print('open 1\\n' * 20000, file=requests); requests.flush()"
    status, _ = run([sys.executable, "-c", "import sys\n" + code], open_device("model", CFG), b"")
    assert status in (0, -13)  # it may meet the closed pipe, too


def test_a_program_with_a_wrong_request_is_stopped():
    code = ASK + "ask('dance 1 2'); ask('dance 1 2')"
    with pytest.raises(UnsupportedError, match="request 'dance'"):
        run([sys.executable, "-c", code], open_device("model", CFG), b"")


def test_the_command(tmp_path, capfd):
    code = ASK + f"print(ask('open {CFG.fingerprint:016x}'))"
    assert main(["--config", "tiny", sys.executable, "-c", code]) == 0
    assert capfd.readouterr().out == "['0']\n"
    assert main(["--on", "nothing", sys.executable]) == 1
    assert capfd.readouterr().err.startswith("shim: error: unknown device 'nothing'")
    assert main([str(tmp_path / "missing")]) == 1
    with pytest.raises(SystemExit):
        main([])
    module = [sys.executable, "-m", "tilewright.runtime.c.shim", "--help"]
    assert b"--config" in subprocess.run(module, check=True, capture_output=True).stdout
