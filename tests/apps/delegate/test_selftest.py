"""The proof of the ABI: it holds for what is installed, and every wrong layout is refused, not a crash."""

import importlib
import sys

import pytest

pytest.importorskip("ai_edge_litert")

from tilewright.apps.delegate import selftest
from tilewright.apps.delegate.abi import LAYOUTS
from tilewright.hw.errors import UnsupportedError


def swapped(name, one, other):
    """The layouts with two fields of a structure exchanged."""
    fields = list(LAYOUTS[name].items())
    i, j = ([key for key, _ in fields].index(field) for field in (one, other))
    fields[i], fields[j] = fields[j], fields[i]
    return {**LAYOUTS, name: dict(fields)}


def shifted(name):
    """The layouts with one more field at the beginning of a structure."""
    return {**LAYOUTS, name: {"new": "pointer", **LAYOUTS[name]}}


def test_the_installed_interpreter_is_as_declared():
    selftest.prove()
    selftest.check(selftest.DEFAULT, LAYOUTS, selftest._model())


WRONG = {
    "context": shifted("context"),
    "tensor": shifted("tensor"),
    "node": shifted("node"),
    "registration": shifted("registration"),
    "delegate": shifted("delegate"),
    "params": shifted("params"),
    "scale and zero point": swapped("tensor", "scale", "zero_point"),
    "dimensions and data": swapped("tensor", "data", "dims"),
    "init and invoke": swapped("registration", "init", "invoke"),
    "inputs and outputs": swapped("params", "input_tensors", "output_tensors"),
}


@pytest.mark.parametrize("layouts", WRONG.values(), ids=WRONG)
def test_a_wrong_layout_is_refused(layouts):
    with pytest.raises(
        UnsupportedError, match="another binary interface than the delegate knows .*; use ai-"
    ) as caught:
        selftest.prove(layouts=layouts)
    assert "ai_edge_litert.interpreter" in str(caught.value) and len(str(caught.value)) <= 300


def test_an_interpreter_that_is_none_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UnsupportedError, match="No module named 'nothing_of_the_kind'"):
        selftest.prove("nothing_of_the_kind")
    (tmp_path / "endless_interpreter.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(selftest, "SECONDS", 0.5)
    with pytest.raises(UnsupportedError, match="the self-test could not run"):
        selftest.prove("endless_interpreter")
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(UnsupportedError, match="the self-test could not run"):
        selftest.prove("another_interpreter")


def test_what_does_not_hand_over_our_errors_is_refused(tmp_path, monkeypatch):
    """An interpreter that goes on where a kernel fails."""
    (tmp_path / "deaf_interpreter.py").write_text(
        "from ai_edge_litert.interpreter import Interpreter as Base\n"
        "class Interpreter(Base):\n"
        "    def invoke(self):\n"
        "        try:\n"
        "            super().invoke()\n"
        "        except RuntimeError:\n"
        "            pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with pytest.raises(selftest.Difference, match="a kernel's failure does not reach who invokes"):
        selftest.check("deaf_interpreter", LAYOUTS, selftest._model())
