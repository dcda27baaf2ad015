"""cli/app.py: the verbs, their help, what exit statuses mean."""

import importlib
import subprocess
import sys

import pytest

from tilewright.cli import app
from tilewright.hw import errors


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


def test_every_verb_is_a_module_with_the_summary_of_the_list():
    for verb in app.VERBS:
        assert importlib.import_module(f"tilewright.cli.{app.module_of(verb)}").command.help


def test_an_unknown_verb_is_none_of_the_modules_beside_it():
    context = app.click.Context(app.command)
    assert app.command.list_commands(context) == list(app.VERBS)
    assert app.command.get_command(context, "layers") is None


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
