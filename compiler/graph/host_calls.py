"""Calls of the host's kernels that compute operators, for host steps and the reference.

A class of operators names its kernels as `host`, with the names of their attributes; a call has the attributes' values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...runtime.hostops import HOST_OPS
from ...runtime.hostops.arrays import AnyArray, Attrs

_PLACES = {
    "dtype": "output.dtype",
    "shape": "output.shape",
    "size": "output.shape.2:",
    "zero_point": "output.zero_point",
    "x_zero_point": "x.zero_point",
    "zero_points": "tensors.*.zero_point",
    "multiplier": "multipliers.0",
    "exponent": "multipliers.1",
    "multipliers": "multipliers.*.0",
    "exponents": "multipliers.*.1",
}


@dataclass(frozen=True)
class Kernel:
    """A function of `runtime.hostops.HOST_OPS`, with the names of its JSON attributes and of its constant arrays.

    A name stands for the operator's attribute of that name, or for the path in `_PLACES`; `name=path` gives another
    path, such as `count=output.shape.-1`, of attributes and indices, where `*` stands for all elements. An attribute
    `name?` is left out if the operator has the default value, an array if it is None. `dtype` of the result is the
    output's unless given.
    """

    name: str
    attrs: str = ""
    constants: str = ""
    dtype: str = ""

    def call(self, op: Any, contract: str) -> HostCall:
        """The call for operator `op`, which rounds as the contract `contract` says."""
        attrs: dict[str, Any] = {}
        for item in self.attrs.split():
            name, place = _parts(item.rstrip("?"))
            value = contract if name == "contract" else _found(op, place)
            if not item.endswith("?") or value != op.__dataclass_fields__[name].default:
                attrs[name] = _listed(value)
        constants = {name: _found(op, place) for name, place in map(_parts, self.constants.replace("?", "").split())}
        constants = {name: array for name, array in constants.items() if array is not None}
        return HostCall(self.name, attrs, constants, self.dtype or op.output.dtype)


@dataclass
class HostCall:
    """A call of a function of `runtime.hostops.HOST_OPS`: JSON attributes, constant arrays by name, result's dtype."""

    name: str
    attrs: Attrs
    constants: dict[str, AnyArray] = field(default_factory=dict[str, AnyArray])
    dtype: str = "int8"

    def __call__(self, *arrays: AnyArray) -> AnyArray:
        """The result for input arrays."""
        (result,) = HOST_OPS[self.name](list(arrays), self.attrs | self.constants)
        return result


@dataclass
class CustomCall(HostCall):
    """A call of a user's own operator, whose function the host does not have."""

    compute: Callable[..., AnyArray] = np.asarray

    def __call__(self, *arrays: AnyArray) -> AnyArray:
        """The result for input arrays."""
        return self.compute(*arrays)


def _parts(item: str) -> tuple[str, list[str]]:
    """(name, path) of an attribute."""
    name, _, place = item.partition("=")
    return name, (place or _PLACES.get(name, name)).split(".")


def _found(value: Any, path: Sequence[str]) -> Any:
    """The value at a path of attributes and indices."""
    for k, part in enumerate(path):
        if part == "*":
            return tuple(_found(element, path[k + 1 :]) for element in value)
        if part.endswith(":"):
            value = value[int(part[:-1]) :]
        else:
            value = value[int(part)] if part.lstrip("-").isdigit() else getattr(value, part)
    return value


def _listed(value: Any) -> Any:
    """`value` with lists instead of tuples, as JSON has it."""
    return [_listed(element) for element in value] if value.__class__ is tuple else value
