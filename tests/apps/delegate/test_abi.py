"""The C interface: sizes and offsets as measured in the interpreters' libraries, and the functions that one calls."""

import ctypes
import struct

import numpy as np
import pytest

from tilewright.apps.delegate import abi as c
from tilewright.apps.delegate.abi import Native
from tilewright.hw.errors import UnsupportedError

ABI = c.Abi()
SIZES = {"context": 80, "tensor": 112, "node": 80, "registration": 88, "delegate": 56, "params": 32}
OFFSETS = {
    "tensor": {"data": 8, "dims": 16, "scale": 24, "allocation_type": 32, "bytes": 40, "name": 56, "delegate": 64}
    | {"quantization_type": 80, "sparsity": 96, "dims_signature": 104},
    "node": {"user_data": 32, "builtin_data": 40, "delegate": 64},
    "registration": {"invoke": 24, "builtin_code": 40, "custom_name": 48, "version": 56, "external": 64},
    "context": {"tensors": 16, "replace_node_subsets": 64, "recommended_threads": 72},
    "delegate": {"prepare": 8, "flags": 40, "opaque_builder": 48},
}


@pytest.mark.skipif(struct.calcsize("P") != 8, reason="the figures are those of 64-bit machines")
def test_sizes_and_offsets():
    assert {name: ABI.size(name) for name in c.LAYOUTS} == SIZES
    for name, fields in OFFSETS.items():
        assert {field: ABI.offset(name, field) for field in fields} == fields


def test_integer_arrays_have_their_length_in_front():
    array = c.int_array([7, -1])
    assert list(array) == [2, 7, -1] and c.ints(ctypes.addressof(array)) == [7, -1]
    assert c.ints(None) == []


def test_an_array_is_the_tensors_memory():
    memory = np.arange(6, dtype=np.int16)
    t = ABI.new("tensor", data=memory.ctypes.data, bytes=memory.nbytes)
    found = c.array(t, np.dtype("int16"), (2, 3))
    found[1, 2] = 99
    assert memory[5] == 99
    with pytest.raises(AssertionError):
        c.array(t, np.dtype("int8"), (2, 3))


class Interpreter:
    """A context whose functions note their calls."""

    def __init__(self, status=c.OK):
        self.reports, self.replaced, self.status = [], [], status
        plan, memory = c.int_array([2, 0]), np.zeros((3, ABI.size("tensor")), np.uint8)
        node, registration = ABI.new("node", custom_size=5), ABI.new("registration", builtin_code=3)

        def get_plan(_, out):
            out[0] = ctypes.addressof(plan)
            return status

        def get_node(_, number, node_out, registration_out):
            node_out[0], registration_out[0] = ctypes.addressof(node), ctypes.addressof(registration)
            return status

        def replace(_, registration, nodes, delegate):
            self.replaced.append((registration.version, c.ints(nodes), delegate))
            return status

        functions = {
            "get_execution_plan": c._GET_PLAN(get_plan),
            "get_node_and_registration": c._GET_NODE(get_node),
            "replace_node_subsets": ABI.replace(replace),
            "report_error": c._REPORT(lambda _, text: self.reports.append(text)),
        }
        self.kept = functions, memory, plan, node, registration
        addresses = {name: ctypes.cast(function, ctypes.c_void_p).value for name, function in functions.items()}
        self.struct = ABI.new("context", tensors_size=3, tensors=memory.ctypes.data, **addresses)
        self.context = c.Context(ABI, ctypes.addressof(self.struct))


def test_a_context_calls_the_interpreters_functions():
    its, delegate = Interpreter(), ABI.new("delegate")
    assert its.context.plan() == [2, 0] and its.context.count == 3
    node, registration = its.context.node(2)
    assert (node.custom_size, registration.builtin_code) == (5, 3)
    its.context.tensor(2).zero_point = -9
    assert ABI.at("tensor", its.kept[1].ctypes.data + 2 * ABI.size("tensor")).zero_point == -9
    its.context.replace(ABI.new("registration", version=4), [1, 2], delegate)
    assert its.replaced == [(4, [1, 2], ctypes.addressof(delegate))]


def test_reported_text_is_no_format():
    its = Interpreter()
    its.context.report("100 % of %s")
    assert its.reports == [b"100 %% of %%s"]


def test_a_status_is_an_error():
    with pytest.raises(UnsupportedError, match=r"the interpreter refuses the delegate \(status 1\)"):
        Interpreter(c.ERROR).context.plan()


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
