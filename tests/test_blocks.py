"""Pages: blocks of Python, and of shell that is marked `sh`, run as they are written; every command line is one."""

from pathlib import Path

import pytest

from tests.modules import module_of

ROOT = Path(__file__).parents[1]
click = pytest.importorskip("click")
docs = module_of(ROOT / "docs" / "blocks.py")
PAGES = {page.relative_to(ROOT).as_posix(): page for page in docs.pages()}


def running():
    """Pages with blocks that run; those that take minutes wait for `make test-full` and `make docs-check`."""
    slow = {"docs/tutorials/language_model.md"}
    names = [name for name, page in PAGES.items() if docs.running_blocks(page)]
    return [pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in names]


@pytest.mark.circuit
@pytest.mark.parametrize("name", running())
def test_blocks_run_in_order(name, monkeypatch, tmp_path, capsys):
    pytest.importorskip("tvm")
    folder = tmp_path / "root"
    folder.mkdir()
    docs.prepare(folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names, skipped, found = {"__name__": "__page__"}, [], docs.running_blocks(PAGES[name])
    for block in found:
        if reason := block.skipped_because():
            skipped.append(f"{block.where} {reason}")
        else:
            docs.run(block, names)
    if skipped:
        pytest.skip(f"{len(found) - len(skipped)} of {len(found)} blocks ran; " + "; ".join(skipped))


@pytest.mark.parametrize("name", PAGES)
def test_command_lines_are_understood(name):
    wrong = []
    for where, arguments, complete in docs.command_lines(PAGES[name]):
        try:
            docs.parse(arguments, complete)
        except click.ClickException as error:
            wrong.append(f"{where}: {error.format_message()}")
    assert not wrong


def test_the_runner_sees_mistakes(tmp_path):
    page = ROOT / "docs" / "page.md"

    def block(source, language="python", marker="", reason=""):
        return docs.Block(page, 7, language, source, marker, reason)

    names = {}
    docs.run(block("x = 2\n"), names)
    docs.run(block("tilewright config tiny \\\n  --json\ntrue\n", "sh"), names)
    with pytest.raises(AssertionError, match="status 1 of false"):
        docs.run(block("true\nfalse\n", "sh"), names)
    with pytest.raises(AssertionError, match="status 3"):
        docs.run(block("tilewright config no_such_preset\n", "sh"), names)
    docs.run(block(">>> x + 1\n3\n>>> y = x\n", "pycon"), names)
    assert names["y"] == 2
    with pytest.raises(AssertionError, match="Got"):
        docs.run(block(">>> x\n3\n", "pycon"), names)
    with pytest.raises(NameError):
        docs.run(block("nothing\n"), names)
    assert block("", marker="needs", reason="click, ../no/such/file").skipped_because() == "needs ../no/such/file"
    assert block("", marker="not run", reason="it waits").skipped_because() == "it waits"
    assert not block("", marker="needs", reason="click").skipped_because()


def test_the_reader_finds_blocks_markers_and_commands(monkeypatch, tmp_path):
    page = tmp_path / "page.md"
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    page.write_text(
        "Say `tilewright disasm x.tw`, and see `tilewright VERB`.\n\n"
        "<!-- generated: x -->\n```python\nno\n```\n<!-- end -->\n"
        "```{literalinclude} x.py\n:language: python\n```\n"
        "<!-- needs: torch -->\n```python\nx = 1\n```\n\n"
        "```sh\n$ tilewright run a.tw \\\n  --inputs x.npz > y # z\n```\n"
    )
    included, first, second = docs.blocks(page)
    assert included.language == "{literalinclude}"
    assert (first.source, first.line, first.marker, first.reason) == ("x = 1\n", 13, "needs", "torch")
    assert second.language == "sh"
    lines = [line[1:] for line in docs.command_lines(page)]
    assert lines == [(["run", "a.tw", "--inputs", "x.npz"], True), (["disasm", "x.tw"], False)]


@pytest.mark.parametrize(
    "line", ["run a.tw --inputs x.npz --wrong", "run", "compile a.onnx -o b.tw c", "nothing a", "config", "run a --on"]
)
def test_wrong_command_lines_are_refused(line):
    with pytest.raises(click.ClickException):
        docs.parse(line.split())
