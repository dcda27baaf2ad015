"""The devices by name, each declared once with its class and a description; a device is imported when it is opened.

The module does not import numpy, so that the command's help is fast.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from ..hw.errors import UnsupportedError
from ..hw.needs import need

CIRCUITS = ("rtl", "rtl_fast")  # devices that simulate the circuit
_SIM, _BOARDS = "tilewright.sim", "tilewright.boards"


@dataclass(frozen=True)
class Entry:
    """Module and class of a device, a short description, and whether it only simulates an accelerator."""

    module: str
    cls: str
    what: str
    simulated: bool = False


_DEVICES = {
    "model": Entry(f"{_SIM}.model.device", "ModelDevice", "the behavioural model: exact results, fast", True),
    "spec": Entry(
        f"{_SIM}.spec",
        "SpecDevice",
        "the definition of the instruction set, element by element: for small programs",
        True,
    ),
    "timing": Entry(f"{_SIM}.timing.device", "TimingDevice", "the behavioural model, with predicted cycles", True),
    "rtl": Entry(f"{_SIM}.rtl.device", "RtlDevice", "the circuit, simulated cycle by cycle", True),
    "rtl_fast": Entry(
        f"{_SIM}.rtl.device", "FastRtlDevice", "the same with the multiplier array as a C function", True
    ),
    "board": Entry(f"{_BOARDS}.zynq.driver", "PynqDevice", "a board with pynq"),
}


def register_device(name: str, module: str, cls: str, what: str = "") -> None:
    """Make `cls` of `module` known as device `name`; it is constructed with the configuration."""
    _DEVICES[name] = Entry(module, cls, what)


def device_names() -> list[str]:
    """The names that `open_device` knows."""
    return sorted(_DEVICES)


def device_entry(name: str) -> Entry:
    """The declaration of the device `name`. Raises `UnsupportedError` for an unknown name."""
    if name not in _DEVICES:
        raise UnsupportedError(f"unknown device {name!r}; known are {', '.join(device_names())}")
    return _DEVICES[name]


def is_server(on: str) -> bool:
    """Whether `on` is the address NAME:PORT of a server."""
    name, colon, port = on.rpartition(":")
    return bool(name and colon and port.isdigit())


def open_remote(address: str, executable: object) -> Any:
    """The `Executable` on the server at `address`, NAME[:PORT]: a context with `run` and `stats` like `Loaded`.

    No token is sent: a server of this machine and user needs none. Raises `UnsupportedError` without gRPC.
    """
    need("a remote board", "board", "grpc", "google.protobuf")
    client: Any = importlib.import_module(f"{_BOARDS}.client")
    return client.RemoteProgram(executable, client.Address(address))


def describe_devices() -> str:
    """Every device with its description, as a list within a sentence."""
    texts = [f"`{name}`" + (f" ({entry.what})" if entry.what else "") for name, entry in _DEVICES.items()]
    return f"{', '.join(texts[:-1])} or {texts[-1]}"
