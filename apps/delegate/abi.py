"""The C interface of TFLite's interpreters: structures, and the functions that an interpreter calls in a delegate.

The interpreters' packages contain no header. Fields stand in the order of TensorFlow Lite's `core/c/common.h`, up to
the last one that is used or that gives a structure its size; sizes and offsets follow from the machine's C rules.
selftest.py proves them for an interpreter.

An exception must not cross into C. Each function keeps it, reports its text to the interpreter, and returns an error;
the interpreter then raises one of its own, whose text holds ours, in the same thread.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from ...hw.errors import UnsupportedError

Struct: TypeAlias = Any  # a structure of ctypes, whose fields `LAYOUTS` names, or a function of C
Layouts = Mapping[str, Mapping[str, str]]  # structure -> field -> kind, a key of `_KINDS`

_KINDS = {
    "int": ctypes.c_int,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "size": ctypes.c_size_t,
    "float": ctypes.c_float,
    "bool": ctypes.c_bool,
    "pointer": ctypes.c_void_p,
}
# kinds and the fields that have them, in order. Registration is passed by value and has grown from release to release;
# the largest one, its end zero, suits the others where it goes by reference or last on the stack, as on x86-64 and
# AArch64
_FIELDS = {
    "context": "size tensors_size; pointer get_execution_plan tensors impl resize_tensor report_error add_tensors "
    "get_node_and_registration replace_node_subsets; int recommended_threads",
    "tensor": "int type; pointer data dims; float scale; int32 zero_point; int allocation_type; size bytes; "
    "pointer allocation name delegate; int buffer_handle; bool data_is_stale is_variable; int quantization_type; "
    "pointer quantization sparsity dims_signature",
    "node": "pointer inputs outputs intermediates temporaries user_data builtin_data custom_data; int custom_size; "
    "pointer delegate; bool side_effect",
    "registration": "pointer init free prepare invoke profiling_string; int32 builtin_code; pointer custom_name; "
    "int version; pointer external async_kernel; uint64 inplace_operator",
    "delegate": "pointer data prepare copy_from_buffer_handle copy_to_buffer_handle free_buffer_handle; int64 flags; "
    "pointer opaque_builder",
    "params": "pointer delegate nodes_to_replace input_tensors output_tensors",
}
LAYOUTS: Layouts = {
    name: {field: kind for kind, *fields in map(str.split, text.split(";")) for field in fields}
    for name, text in _FIELDS.items()
}
OK, ERROR = 0, 1  # TfLiteStatus
CONSTANT = 1  # kTfLiteMmapRo, an allocation type: the tensor's values stand in the file
AFFINE = 1  # kTfLiteAffineQuantization
ALLOW_DYNAMIC = 1  # a delegate's flag: other operators may have tensors whose shapes inputs decide
DELEGATE = 51  # operator code of what another delegate runs
# TfLiteType of tensors that a program can take, by numpy's names
TYPES = {"float32": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9}

_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
INIT = ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER, _SIZE)
FREE = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)
CALL = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER)  # prepare and invoke of a kernel; a delegate's Prepare
_GET_PLAN = ctypes.CFUNCTYPE(_INT, _POINTER, ctypes.POINTER(_POINTER))
_GET_NODE = ctypes.CFUNCTYPE(_INT, _POINTER, _INT, ctypes.POINTER(_POINTER), ctypes.POINTER(_POINTER))
_REPORT = ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_char_p)  # its variable arguments are left out


class Abi:
    """The structures of `layouts` as ctypes classes, by name."""

    def __init__(self, layouts: Layouts = LAYOUTS):
        self.layouts = layouts
        self._classes = {name: _structure(name, fields) for name, fields in layouts.items()}

    def new(self, name: str, **values: Struct) -> Struct:
        """A structure that is zero but for `values`."""
        return self._classes[name](**values)

    def at(self, name: str, address: int | None) -> Struct:
        """The structure that stands at an address."""
        assert address
        return self._classes[name].from_address(address)

    def size(self, name: str) -> int:
        """The size of a structure in bytes."""
        return ctypes.sizeof(self._classes[name])

    def offset(self, name: str, field: str) -> int:
        """Bytes from the start of a structure to a field."""
        return getattr(self._classes[name], field).offset

    @cached_property
    def replace(self) -> Struct:
        """The C function type of ReplaceNodeSubsetsWithDelegateKernels."""
        return ctypes.CFUNCTYPE(_INT, _POINTER, self._classes["registration"], _POINTER, _POINTER)


def _structure(name: str, fields: Mapping[str, str]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": [(field, _KINDS[kind]) for field, kind in fields.items()]})


def ints(address: int | None) -> list[int]:
    """A copy of the TfLiteIntArray at an address; empty for a null pointer."""
    if not address:
        return []
    count = ctypes.c_int.from_address(address).value
    return list((ctypes.c_int * count).from_address(address + ctypes.sizeof(ctypes.c_int)))


def int_array(values: list[int]) -> ctypes.Array:
    """A TfLiteIntArray; who passes its address keeps it."""
    return (ctypes.c_int * (len(values) + 1))(len(values), *values)


def array(tensor: Struct, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The values of a tensor, in place. The interpreter must have allocated it."""
    assert tensor.data and tensor.bytes == dtype.itemsize * math.prod(shape)
    memory = (ctypes.c_byte * tensor.bytes).from_address(tensor.data)
    return np.frombuffer(memory, dtype).reshape(shape)


class Context:
    """The interpreter's context at `address`, which its callbacks pass: tensors, nodes, reports."""

    def __init__(self, abi: Abi, address: int):
        self.abi, self.address = abi, address
        self._fields = abi.at("context", address)

    def plan(self) -> list[int]:
        """The numbers of the nodes, in order: a copy, because later calls may change the interpreter's own."""
        found = _POINTER()
        self._good(_GET_PLAN(self._fields.get_execution_plan)(self.address, ctypes.byref(found)))
        return ints(found.value)

    def node(self, number: int) -> tuple[Struct, Struct]:
        """(node, registration) of a number from the plan."""
        node, registration = _POINTER(), _POINTER()
        call = _GET_NODE(self._fields.get_node_and_registration)
        self._good(call(self.address, number, ctypes.byref(node), ctypes.byref(registration)))
        return self.abi.at("node", node.value), self.abi.at("registration", registration.value)

    @property
    def count(self) -> int:
        """Number of tensors of the interpreter."""
        return self._fields.tensors_size

    def tensor(self, number: int) -> Struct:
        """Tensor `number`; the file and the interpreter count alike."""
        return self.abi.at("tensor", self._fields.tensors + number * self.abi.size("tensor"))

    def replace(self, registration: Struct, nodes: list[int], delegate: Struct) -> None:
        """Hand `nodes` to a delegate, whose kernels the registration has."""
        array = int_array(nodes)
        call = self.abi.replace(self._fields.replace_node_subsets)
        self._good(call(self.address, registration, ctypes.addressof(array), ctypes.addressof(delegate)))

    def report(self, text: str) -> None:
        """Make `text` part of the error that the interpreter raises."""
        _REPORT(self._fields.report_error)(self.address, text.replace("%", "%%").encode())

    def _good(self, status: int) -> None:
        if status != OK:
            raise UnsupportedError(f"the interpreter refuses the delegate (status {status}); its own message says why")


NAME = b"tilewright"


@dataclass(frozen=True)
class Given:
    """A partition as the interpreter makes it: numbers of its nodes, and of the tensors at its ends."""

    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Kernel(Protocol):
    """A partition of one interpreter, ready to run."""

    def check(self, context: Context) -> None:
        """Refuse inputs of other shapes, which may have changed."""
        ...

    def run(self, context: Context) -> None:
        """Compute the outputs from the inputs; both are tensors of the context."""
        ...

    def close(self) -> None:
        """Free the device's memory; the interpreter is gone."""
        ...


class Native:
    """The delegate's structure, its functions, and the kernels of all interpreters that use it.

    `claims` gives the nodes that the delegate takes, `make` the kernel of a partition of them.
    """

    def __init__(self, abi: Abi, claims: Callable[[Context], Sequence[int]], make: Callable[[Context, Given], Kernel]):
        self.abi = abi
        self._claims, self._make = claims, make
        self._kernels: dict[int, Kernel] = {}
        self._numbers = itertools.count(1)  # 0 would be a null pointer
        self._errors: dict[int, BaseException] = {}  # by thread
        self.error: BaseException | None = None  # the last one of any thread
        # C holds these by address alone
        self._functions = {
            "init": INIT(self._init),
            "free": FREE(self._free),
            "prepare": CALL(self._prepare_kernel),
            "invoke": CALL(self._invoke),
        }
        self._prepare = CALL(self._prepare_delegate)
        self._name = ctypes.create_string_buffer(NAME)
        self._struct = abi.new("delegate", prepare=_address(self._prepare), flags=ALLOW_DYNAMIC)

    @property
    def pointer(self) -> int:
        """The address of the structure."""
        return ctypes.addressof(self._struct)

    def taken(self) -> BaseException | None:
        """The exception that this thread has left since the last call, if it has left one."""
        return self._errors.pop(threading.get_ident(), None)

    def _guarded(self, context: int, call: Callable[[Context], None]) -> int:
        where = Context(self.abi, context)
        try:
            call(where)
        except BaseException as exc:
            self.error = self._errors[threading.get_ident()] = exc
            where.report(f"tilewright: {type(exc).__name__}: {' '.join(str(exc).split())}\n")
            return ERROR
        return OK

    def _prepare_delegate(self, context: int, delegate: int) -> int:
        def replace(where: Context) -> None:
            nodes = list(self._claims(where))
            functions = {name: _address(function) for name, function in self._functions.items()}
            name = ctypes.addressof(self._name)
            registration = self.abi.new("registration", builtin_code=DELEGATE, custom_name=name, version=1, **functions)
            if nodes:
                where.replace(registration, nodes, self._struct)

        return self._guarded(context, replace)

    def _init(self, context: int, parameters: int, _: int) -> int | None:
        number = next(self._numbers)

        def make(where: Context) -> None:
            given = self.abi.at("params", parameters)
            lists = (given.nodes_to_replace, given.input_tensors, given.output_tensors)
            self._kernels[number] = self._make(where, Given(*(tuple(ints(each)) for each in lists)))

        return number if self._guarded(context, make) == OK else None

    def _prepare_kernel(self, context: int, node: int) -> int:
        kernel = self._kernel(node)
        return ERROR if kernel is None else self._guarded(context, kernel.check)

    def _invoke(self, context: int, node: int) -> int:
        kernel = self._kernel(node)
        return ERROR if kernel is None else self._guarded(context, kernel.run)

    def _kernel(self, node: int) -> Kernel | None:
        """The kernel of a node; None where it could not be made."""
        return self._kernels.get(self.abi.at("node", node).user_data)

    def _free(self, context: int, number: int | None) -> None:
        if kernel := self._kernels.pop(number or 0, None):
            self._guarded(context, lambda _: kernel.close())


def _address(function: Struct) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
