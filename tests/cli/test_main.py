"""cli/main.py: one line per error, exit statuses, interrupts, closed pipes."""

import gc
import subprocess
import sys

import pytest

from tilewright.cli import app, main
from tilewright.hw import errors


@pytest.mark.parametrize("arguments", [["frob"], ["compile"], ["run", "--frob"], ["disasm"], ["run", "a.tw"], []])
def test_a_wrong_command_line_is_one_line_and_status_2(tilewright, arguments):
    done = tilewright(*arguments)
    assert done.status == 2
    if arguments:
        assert done.err.startswith("tilewright: error: ")
        assert done.err.count("\n") == 1
        assert "--help" in done.err


@pytest.mark.parametrize(
    "error, status, line",
    [
        (errors.CapacityError("buffer 'x'\n  does not fit"), 7, "buffer 'x' does not fit"),
        (errors.DeadlockError("deadlock"), 8, "deadlock"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "out of memory"),
        (OSError(28, "No space left on device"), 6, "standard output: No space left on device"),
        (PermissionError(13, "Permission denied", "x.tw"), 6, "x.tw: Permission denied"),
    ],
)
def test_errors_become_one_line(tilewright, monkeypatch, error, status, line):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(app.command, "invoke", fail)
    monkeypatch.setattr(main, "_discard_output", lambda: None)
    done = tilewright("doctor")
    assert (done.status, done.err.strip().splitlines()[-1]) == (status, f"tilewright: error: {line}")
    assert "Traceback" not in done.err


def test_a_defect_of_ours_keeps_its_traceback(tilewright, monkeypatch):
    def fail(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(app.command, "invoke", fail)
    with pytest.raises(ZeroDivisionError):
        tilewright("doctor")


def test_the_console_script_and_a_closed_pipe(double_tw):
    code = "import sys; from tilewright.cli.main import main; main()"
    disasm = subprocess.Popen(
        [sys.executable, "-c", code, "disasm", str(double_tw)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert disasm.stdout and disasm.stderr
    disasm.stdout.close()
    assert disasm.wait(60) == app.PIPE_STATUS
    assert disasm.stderr.read() == b""
    disasm.stderr.close()


def test_the_console_script_searches_for_cycles_less_often():
    code = "import gc; from tilewright.cli import main as m; m.run = lambda: print(gc.get_threshold()[0]); m.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert int(done.stdout) > 10 * gc.get_threshold()[0]


def test_without_click_the_extra_is_named():
    code = "import sys; sys.modules['click'] = None; from tilewright.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'tilewright[cli]'" in done.stderr
    assert done.stderr.count("\n") == 1
