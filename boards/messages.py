"""The messages between a board's server and its clients: Protocol Buffers, declared here.

The classes are made from the declaration when this module is imported, so that no code generated for one version of
the library runs with another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ..hw import errors
from ..hw.errors import BoardError, ExecutionError, InputError, TilewrightError
from ..runtime.device import Stats
from ..runtime.loader import StepReport
from ..runtime.steps import DTYPES

Message = Any  # of the classes that are made below, whose fields a type checker cannot know
SERVICE = "tilewright.Board"
VERSION = 4  # of these messages, and of how they are sent: requests as streams of chunks
MAX_DIMENSIONS = 8
_COUNTERS = ("insns", "bytes_loaded", "bytes_stored", "counters")
# message -> its fields in the order of their numbers: (name, type); a type in brackets is repeated
_MESSAGES: dict[str, list[tuple[str, str]]] = {
    "Tensor": [("name", "string"), ("dtype", "string"), ("shape", "[int64]"), ("data", "bytes")],
    "Count": [("name", "string"), ("value", "int64")],
    "Step": [
        ("name", "string"),
        ("where", "string"),
        ("macs", "int64"),
        ("seconds", "double"),
        ("uops", "int64"),
        ("device_macs", "int64"),
        ("cycles", "int64"),
        *((name, "[Count]") for name in _COUNTERS),
        ("steady", "bool"),
    ],
    "Failure": [("kind", "string"), ("text", "string"), ("index", "int64")],
    "Info": [
        ("version", "int64"),
        ("device", "string"),
        ("config", "string"),
        ("max_bytes", "int64"),
        ("max_seconds", "double"),
        ("waiting", "int64"),
    ],
    "LoadRequest": [("program", "bytes")],
    "LoadReply": [("failure", "[Failure]"), ("digest", "bytes")],
    # session: random bytes that name the client; runs, of a program with state: how many since the initial one
    "RunRequest": [("digest", "bytes"), ("inputs", "[Tensor]"), ("session", "bytes"), ("runs", "int64")],
    "RunReply": [("failure", "[Failure]"), ("unknown", "bool"), ("outputs", "[Tensor]"), ("steps", "[Step]")],
    "EndRequest": [("session", "bytes")],
    "EndReply": [],
}


def _classes() -> dict[str, Message]:
    file = descriptor_pb2.FileDescriptorProto(name="tilewright/board.proto", package="tilewright", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            label = kinds.LABEL_REPEATED if kind.startswith("[") else kinds.LABEL_OPTIONAL
            kind = kind.strip("[]")
            added = message.field.add(name=field, number=number, label=label)
            if kind in _MESSAGES:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".tilewright.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tilewright.{name}")) for name in _MESSAGES
    }


_CLASS = _classes()


def make(kind: str, /, **fields: object) -> Message:
    """A message of `kind` with `fields`."""
    return _CLASS[kind](**fields)


def parse(kind: str, data: bytes) -> Message:
    """The message of `kind` in `data`. Raises `InputError` for other bytes."""
    try:
        return _CLASS[kind].FromString(data)
    except DecodeError:
        raise InputError(f"{len(data)} bytes are not a {kind} message") from None


def tensors(arrays: Mapping[str, np.ndarray]) -> list:
    """`arrays` as messages, little-endian."""
    return [
        make("Tensor", name=name, dtype=a.dtype.name, shape=a.shape, data=a.astype(a.dtype.newbyteorder("<")).tobytes())
        for name, a in arrays.items()
    ]


def arrays(messages: Iterable[Message]) -> dict[str, np.ndarray]:
    """The arrays of tensor `messages`, by name. Raises `InputError` where sizes, names or types do not agree."""
    found: dict[str, np.ndarray] = {}
    for m in messages:
        what = f"tensor {m.name[:80]!r}"
        if m.name in found:
            raise InputError(f"{what}: is sent twice")
        if m.dtype not in DTYPES:
            raise InputError(f"{what}: dtype {m.dtype[:80]!r} must be one of {', '.join(DTYPES)}")
        shape = tuple(m.shape)
        if len(shape) > MAX_DIMENSIONS or any(n < 0 for n in shape):
            raise InputError(
                f"{what}: shape {list(shape)[:16]} must have at most {MAX_DIMENSIONS} dimensions, none negative"
            )
        dtype, size = np.dtype(m.dtype), 1
        for n in shape:
            size *= n  # Python's integers: no product is too large to be compared
        if size * dtype.itemsize != len(m.data):
            raise InputError(
                f"{what}: {dtype} {shape} needs {size * dtype.itemsize} bytes, but {len(m.data)} were sent"
            )
        found[m.name] = np.frombuffer(m.data, dtype.newbyteorder("<")).reshape(shape).astype(dtype)
    return found


def steps(reports: Iterable[StepReport]) -> list:
    """Reports of steps as messages; `cycles` is the count + 1, or 0 without a count."""
    return [
        make(
            "Step",
            name=r.name,
            where=r.where,
            macs=r.macs,
            seconds=r.seconds,
            uops=r.stats.uops,
            device_macs=r.stats.macs,
            cycles=0 if r.stats.cycles is None else r.stats.cycles + 1,
            steady=r.steady,
            **{
                name: [make("Count", name=key, value=n) for key, n in getattr(r.stats, name).items()]
                for name in _COUNTERS
            },
        )
        for r in reports
    ]


def reports(messages: Iterable[Message]) -> list[StepReport]:
    """The reports of step `messages`."""
    found = []
    for m in messages:
        insns, loaded, stored, counters = (Counter({c.name: c.value for c in getattr(m, name)}) for name in _COUNTERS)
        cycles = m.cycles - 1 if m.cycles else None
        stats = Stats(insns, m.uops, m.device_macs, loaded, stored, cycles, counters)
        found.append(StepReport(m.name, m.where, m.macs, stats, m.seconds, m.steady))
    return found


def failure(error: TilewrightError) -> Message:
    """`error` as a message; `index` is the instruction's + 1, or 0 without one."""
    index = getattr(error, "index", None)
    return make("Failure", kind=type(error).__name__, text=str(error), index=0 if index is None else index + 1)


def raise_failure(messages: Iterable[Message]) -> None:
    """Raise the error of the first of the failure `messages`, as the class of hw/errors.py that it names."""
    for m in messages:
        cls = getattr(errors, m.kind, None)
        if not (isinstance(cls, type) and issubclass(cls, TilewrightError)):
            raise BoardError(f"{m.kind}: {m.text}")
        if issubclass(cls, ExecutionError):
            raise cls(m.text, m.index - 1 if m.index else None)
        raise cls(m.text)
