"""The functions that an interpreter calls: no exception crosses, and each is told; tests/delegate has the rest."""

import ctypes

import pytest

from tilewright.apps.delegate import abi as c
from tilewright.apps.delegate.abi import Native

ABI = c.Abi()


@pytest.fixture
def context():
    """A context that can only report, and what was reported."""
    reports = []
    report = c._REPORT(lambda _, text: reports.append(text.decode()))
    made = ABI.new("context", report_error=ctypes.cast(report, ctypes.c_void_p).value)
    return made, reports, report


def test_an_exception_becomes_a_status_and_a_text(context):
    made, reports, _ = context

    def claims(_):
        raise ValueError("two\nlines")

    native = Native(ABI, claims, lambda *_: pytest.fail("nothing was claimed"))
    struct = ABI.at("delegate", native.pointer)
    prepare = c.CALL(struct.prepare)
    assert prepare(ctypes.addressof(made), native.pointer) == c.ERROR
    assert reports == ["tilewright: ValueError: two lines\n"]
    found = native.taken()
    assert isinstance(found, ValueError) and native.error is found and native.taken() is None
    native.error = None
    assert struct.flags == c.ALLOW_DYNAMIC


def test_nothing_claimed_replaces_nothing(context):
    native = Native(ABI, lambda _: [], lambda *_: pytest.fail("nothing was claimed"))
    prepare = c.CALL(ABI.at("delegate", native.pointer).prepare)
    assert prepare(ctypes.addressof(context[0]), native.pointer) == c.OK and native.taken() is None


def test_a_kernel_that_could_not_be_made_is_an_error(context):
    native, node = Native(ABI, lambda _: [], lambda *_: pytest.fail("not asked")), ABI.new("node")
    for name in ("prepare", "invoke"):
        assert native._functions[name](ctypes.addressof(context[0]), ctypes.addressof(node)) == c.ERROR
    native._functions["free"](ctypes.addressof(context[0]), None)
