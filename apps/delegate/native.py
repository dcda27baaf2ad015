"""A delegate in C's eyes: the structure that an interpreter gets, and the functions that it calls in it.

An exception must not cross into C. Each function keeps it, reports its text to the interpreter, and returns an error;
the interpreter then raises one of its own, whose text holds ours, in the same thread.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from . import abi as c

NAME = b"tilewright"


@dataclass(frozen=True)
class Given:
    """A partition as the interpreter makes it: numbers of its nodes, and of the tensors at its ends."""

    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Kernel(Protocol):
    """What runs a partition of one interpreter."""

    def check(self, context: c.Context) -> None:
        """Refuse inputs of other shapes, which may have changed."""
        ...

    def run(self, context: c.Context) -> None:
        """Compute the outputs from the inputs; both are tensors of the context."""
        ...

    def close(self) -> None:
        """Free what it holds: its interpreter is gone."""
        ...


class Native:
    """The delegate's structure, its functions, and the kernels of all interpreters that use it.

    `claims` gives the nodes that the delegate takes, `make` the kernel of a partition of them.
    """

    def __init__(
        self, abi: c.Abi, claims: Callable[[c.Context], Sequence[int]], make: Callable[[c.Context, Given], Kernel]
    ):
        self.abi = abi
        self._claims, self._make = claims, make
        self._kernels: dict[int, Kernel] = {}
        self._numbers = itertools.count(1)  # 0 would be a null pointer
        self._errors: dict[int, BaseException] = {}  # by thread
        self.error: BaseException | None = None  # the last one of any thread
        # C holds these by address alone
        self._functions = {
            "init": c.INIT(self._init),
            "free": c.FREE(self._free),
            "prepare": c.CALL(self._prepare_kernel),
            "invoke": c.CALL(self._invoke),
        }
        self._prepare = c.CALL(self._prepare_delegate)
        self._name = ctypes.create_string_buffer(NAME)
        self._struct = abi.new("delegate", prepare=_address(self._prepare), flags=c.ALLOW_DYNAMIC)

    @property
    def pointer(self) -> int:
        """The address of the structure."""
        return ctypes.addressof(self._struct)

    def taken(self) -> BaseException | None:
        """The exception that this thread has left since the last call, if it has left one."""
        return self._errors.pop(threading.get_ident(), None)

    def _guarded(self, context: int, call: Callable[[c.Context], None]) -> int:
        where = c.Context(self.abi, context)
        try:
            call(where)
        except BaseException as exc:
            self.error = self._errors[threading.get_ident()] = exc
            where.report(f"tilewright: {type(exc).__name__}: {' '.join(str(exc).split())}\n")
            return c.ERROR
        return c.OK

    def _prepare_delegate(self, context: int, delegate: int) -> int:
        def replace(where: c.Context) -> None:
            nodes = list(self._claims(where))
            functions = {name: _address(function) for name, function in self._functions.items()}
            name = ctypes.addressof(self._name)
            registration = self.abi.new(
                "registration", builtin_code=c.DELEGATE, custom_name=name, version=1, **functions
            )
            if nodes:
                where.replace(registration, nodes, self._struct)

        return self._guarded(context, replace)

    def _init(self, context: int, parameters: int, _: int) -> int | None:
        number = next(self._numbers)

        def make(where: c.Context) -> None:
            given = self.abi.at("params", parameters)
            lists = (given.nodes_to_replace, given.input_tensors, given.output_tensors)
            self._kernels[number] = self._make(where, Given(*(tuple(c.ints(each)) for each in lists)))

        return number if self._guarded(context, make) == c.OK else None

    def _prepare_kernel(self, context: int, node: int) -> int:
        kernel = self._kernel(node)
        return c.ERROR if kernel is None else self._guarded(context, kernel.check)

    def _invoke(self, context: int, node: int) -> int:
        kernel = self._kernel(node)
        return c.ERROR if kernel is None else self._guarded(context, kernel.run)

    def _kernel(self, node: int) -> Kernel | None:
        """The kernel of a node; None where it could not be made."""
        return self._kernels.get(self.abi.at("node", node).user_data)

    def _free(self, context: int, number: int | None) -> None:
        if kernel := self._kernels.pop(number or 0, None):
            self._guarded(context, lambda _: kernel.close())


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
