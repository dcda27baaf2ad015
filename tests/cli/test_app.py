"""The verbs, their help, exit statuses, and what shells complete without loading anything heavy."""

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from tilewright.cli import app
from tilewright.cli.app import VERBS, command, files
from tilewright.hw import errors
from tilewright.hw.config import PRESETS
from tilewright.runtime.registry import device_names


def test_help_lists_verbs_and_exit_codes(tilewright):
    done = tilewright("--help")
    assert done.status == 0
    for verb in app.VERBS:
        assert f"  {verb} " in done.out
    for code, _ in app.exit_codes():
        assert f"\n  {code} " in done.out


@pytest.mark.parametrize("verb", app.VERBS)
def test_every_verb_has_help_and_json(tilewright, verb):
    done = tilewright(verb, "--help")
    assert done.status == 0
    assert "--json" in done.out


def test_exit_codes_name_every_error_class_once():
    codes = dict(app.exit_codes())
    assert {c.exit_code for c in vars(errors).values() if isinstance(c, type)} <= set(codes)
    assert codes[7].startswith("A buffer, tile or program does not fit")


def test_version(tilewright):
    assert tilewright("--version").out.startswith("tilewright 0.")


def test_an_unknown_verb_is_none_of_the_modules_beside_it():
    context = app.click.Context(app.command)
    assert app.command.list_commands(context) == list(app.VERBS)
    assert app.command.get_command(context, "layers") is None


def test_an_unknown_verb_is_refused_with_the_nearest(tilewright):
    near, far = tilewright("explian", "x"), tilewright("frobnicate")
    assert (near.status, far.status) == (2, 2)
    assert "there is no verb 'explian'; did you mean explain?" in near.err
    assert "there is no verb 'frobnicate' (" in far.err


def test_help_loads_no_verb():
    code = (
        "import sys; from tilewright.cli.main import run; run(['--help']); "
        "print([m for m in sys.modules if m.startswith('tilewright.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "['tilewright.cli.main', 'tilewright.cli.app']"


def test_a_closed_pipe_is_no_error(tilewright, monkeypatch):
    def closed(*args, **kwargs):
        raise BrokenPipeError

    monkeypatch.setattr(app.command, "parse_args", closed)
    monkeypatch.setattr("tilewright.cli.main._discard_output", lambda: None)
    done = tilewright("--help")
    assert (done.status, done.err) == (141, "")
    assert 141 in dict(app.exit_codes())


def offered(*words: str) -> list[str]:
    """What is offered for the last of `words`."""
    shell = ShellComplete(command, {}, "tilewright", "_TILEWRIGHT_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with files of many kinds."""
    for name in ("a.tw", "b.tw", "case.npz", "net.onnx", "mine.json", "s.py", ".hidden.tw", "notes.txt", "tiles.db"):
        (tmp_path / name).touch()
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "sub" / "deep" / "c.tw").touch()
    (tmp_path / "sub" / "deep" / "d.tw").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_verbs():
    assert offered("") == list(VERBS)
    assert offered("com") == ["compile"]
    assert offered("co") == ["compile", "config"]


def test_options():
    assert {"--config", "--json", "--on"} <= set(offered("run", "--"))
    assert offered("run", "--conf") == ["--config"]


def test_presets_and_files_of_fields(folder):
    assert offered("compile", "--config", "") == [*PRESETS, "mine.json", "sub/"]
    assert offered("compile", "--config", "p") == [
        "pynq_z1",
        "pynq_z1_lean",
        "pynq_z1_plus",
        "pynq_z1_resident",
        "pynq_z1_fast",
        "pynq_z1_two",
    ]
    assert offered("rtl", "--config", "m") == ["mine.json"]


@pytest.mark.circuit
def test_devices(folder):
    assert offered("run", "--on", "") == device_names()
    assert offered("serve", "--on", "t") == ["timing"]


def test_choices_stay_as_they_are():
    assert offered("compile", "--contract", "") == ["double", "single"]


@pytest.mark.parametrize(
    "words, found",
    [
        (("run", ""), ["a.tw", "b.tw", "case.npz", "net.onnx", "s.py", "sub/"]),
        (("verify", ""), ["a.tw", "b.tw", "sub/"]),
        (("disasm", ""), ["a.tw", "b.tw", "case.npz", "sub/"]),
        (("replay", "case.npz", "c"), ["case.npz"]),
        (("run", "a.tw", "--inputs", ""), ["case.npz", "sub/"]),
        (("run", "a.tw", "--token-file", "n"), ["net.onnx", "notes.txt"]),
        (("bitstream", "-o", ""), ["sub/deep/"]),
        (("bench", "--layer", ""), []),
        (("run", "--tiles", ""), ["sub/", "tiles.db"]),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, tuple) else "",
)
def test_files_by_suffix(folder, words, found):
    assert offered(*words) == found


def test_forms_of_config(folder):
    assert offered("config", "") == ["check", "diff", *PRESETS, "mine.json", "sub/"]
    assert offered("config", "p") == [
        "pynq_z1",
        "pynq_z1_lean",
        "pynq_z1_plus",
        "pynq_z1_resident",
        "pynq_z1_fast",
        "pynq_z1_two",
    ]
    assert offered("config", "diff", "vta", "t") == ["tiny", "tiny_two"]
    assert offered("config", "check", "m") == ["mine.json"]
    assert offered("config", "tiny", "--j") == ["--json"]


def test_folders_are_entered_where_nothing_else_matches(folder):
    assert files("", (".tw",)) == ["a.tw", "b.tw", "sub/"]
    assert files("s", (".tw",)) == ["sub/deep/c.tw", "sub/deep/d.tw"]
    assert files("sub/deep/d", (".tw",)) == ["sub/deep/d.tw"]
    assert files(".h", (".tw",)) == [".hidden.tw"]
    assert files(f"{folder}/a", (".tw",)) == [f"{folder}/a.tw"]
    assert files("missing/", (".tw",)) == files("a.tw/", (".tw",)) == []
    (folder / "empty").mkdir()
    assert files("e", (".tw",)) == ["empty/"]
    (folder / "eggs").mkdir()
    (folder / "eggs" / "e.tw").touch()
    assert files("e", (".tw",)) == ["eggs/", "empty/"]


def test_a_home_folder_keeps_its_tilde(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    assert files("~/a", (".tw",)) == ["~/a.tw"]


def ask(instruction: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The process that a shell starts, which names heavy packages that it has loaded on standard error."""
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*{'tvm', 'amaranth', 'rich'} & set(sys.modules), file=sys.stderr))\n"
        "from tilewright.cli.main import main\n"
        "sys.argv = ['tilewright']\nmain()"
    )
    asked = os.environ | environment | {"_TILEWRIGHT_COMPLETE": instruction}
    return subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, timeout=60)


def test_a_shell_gets_answers_without_heavy_imports():
    done = ask("zsh_complete", COMP_WORDS="tilewright run --on t", COMP_CWORD="3")
    assert done.stdout.splitlines() == ["plain", "timing", "_"]
    assert done.stderr.strip() == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_documented_line_prints_what_the_shell_runs(shell):
    """bash is asked for its version first, so that one stands in the next test."""
    assert "_TILEWRIGHT_COMPLETE=" in ask(f"{shell}_source").stdout


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_completes(tmp_path):
    script = ask("bash_source").stdout.replace(
        "$1", f"{sys.executable} -c 'from tilewright.cli.main import main; main()'"
    )
    asks = 'COMP_WORDS=(x compile --config t); COMP_CWORD=3; _tilewright_completion x; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{asks}"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["tiny", "tiny_two"], done.stderr
