"""cli/report.py: tables, and a progress display that only a terminal sees."""

import io
import re
import sys

import pytest

from tilewright.cli import report

COLOUR = re.compile(r"\x1b\[(\d+;)*(3\d|9\d)[;m]")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch):
    """What a progress display of three steps writes to a terminal."""

    def show(**environment: str) -> str:
        for key in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(key, raising=False)
        for key, value in {"TERM": "xterm-256color", **environment}.items():
            monkeypatch.setenv(key, value)
        with monkeypatch.context() as patch:
            terminal = Terminal()
            patch.setattr(sys, "stderr", terminal)  # here and not in the fixture: pytest replaces it in between
            with report.progress("working", 3) as advance:
                advance(1, "layer one")
                advance(2)
        return terminal.getvalue()

    return show


def test_numbers_are_aligned_right_and_nothing_is_cut(capsys):
    name = "a_layer_with_a_very_long_name_" * 4
    report.table(["layer", "MACs", "share"], [[name, 1234567, 0.5], ["b", 12, 99.25]], ["total", 1234579, 99.75])
    lines = capsys.readouterr().out.splitlines()
    assert name in lines[2]
    assert lines[2].endswith("1,234,567    0.50")
    assert lines[3].endswith("       12   99.25")
    assert lines[-1].split() == ["total", "1,234,579", "99.75"]
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("room", [60, 80, 100, 120])
def test_no_terminal_breaks_a_number(room, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(room))
    columns = ["step", "where", "MACs", "instructions", "bytes loaded", "bytes stored", "cycles", "device ms"]
    numbers = [1814073344, 123456, 98765432, 87654321, 7569267, 75.69]
    row = ["stage_4/unit_2/convolution_3.requantised", "device", *numbers]
    with monkeypatch.context() as patch:
        terminal = Terminal()
        patch.setattr(sys, "stdout", terminal)
        report.table(columns, [row, ["a", "host", *[""] * 6]], ["total", "", *numbers])
    lines = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()
    missing = re.search(r"no room for (.*) in (\d+) columns", lines[-1])
    gone = missing[1].split(", ") if missing else []
    assert (missing is None or int(missing[2]) == room) and (room >= 100) == (not gone)
    assert all(len(line) <= room for line in lines if not line.startswith("no room"))
    kept = [f"{n:,}" for n, name in zip(numbers, columns[2:], strict=True) if name not in gone]
    (first,) = [line for line in lines if "device" in line and "stage" in line]
    (last,) = [line for line in lines if line.split()[:1] == ["total"]]
    assert first.split()[2:] == last.split()[1:] == kept
    assert first.split()[0][:8] == row[0][:8]


def test_counts_have_their_noun():
    assert [report.counted(n, "launch", "launches") for n in (0, 1, 1000)] == [
        "0 launches",
        "1 launch",
        "1,000 launches",
    ]
    assert report.counted(2, "token") == "2 tokens"


def test_markup_in_a_name_is_text(capsys):
    report.table(["name"], [["[bold]x[/bold]"], [True], [False]])
    out = capsys.readouterr().out
    assert "[bold]x[/bold]" in out
    assert "yes" in out and "no" in out


def test_progress_is_silent_where_there_is_no_terminal(capsys):
    with report.progress("working", 3) as advance:
        advance()
        advance(2, "still working")
    assert capsys.readouterr() == ("", "")


def test_progress_is_shown_on_a_terminal_and_leaves_nothing_behind(shown):
    text = shown()
    assert "layer one" in text and "3/3" in text
    assert COLOUR.search(text)
    assert text.endswith("\x1b[2K")  # the line is erased at the end


def test_no_color_is_respected(shown):
    text = shown(NO_COLOR="1")
    assert "3/3" in text
    assert not COLOUR.search(text)
