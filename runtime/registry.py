"""The devices by name: each is declared here once, with what it is; nothing of them is imported before it is asked for.

The module imports no numpy either: the command's help reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..hw.errors import UnsupportedError


@dataclass(frozen=True)
class Entry:
    """Where a device's class is, and in a few words what executes a program there."""

    module: str
    cls: str
    what: str


_DEVICES = {
    "model": Entry("tilewright.sim.model.device", "ModelDevice", "what a program means, computed fast"),
    "spec": Entry("tilewright.sim.spec", "SpecDevice", "its definition, element by element: for small programs"),
    "timing": Entry("tilewright.sim.timing.device", "TimingDevice", "the model, with the circuit's cycles predicted"),
    "rtl": Entry("tilewright.sim.rtl.device", "RtlDevice", "the circuit, simulated cycle by cycle"),
    "board": Entry("tilewright.boards.pynq_z1.driver", "PynqDevice", "a PYNQ-Z1"),
}


def register_device(name: str, module: str, cls: str, what: str = "") -> None:
    """Make `cls` of `module` known as device `name`; it is constructed with the configuration."""
    _DEVICES[name] = Entry(module, cls, what)


def device_names() -> list[str]:
    """The names that `open_device` knows."""
    return sorted(_DEVICES)


def device_entry(name: str) -> Entry:
    """What is declared of the device `name`. Raises `UnsupportedError` for an unknown one."""
    if name not in _DEVICES:
        raise UnsupportedError(f"unknown device {name!r}; known are {', '.join(device_names())}")
    return _DEVICES[name]


def describe_devices() -> str:
    """Every device with what it is, as a list within a sentence."""
    texts = [f"`{name}`" + (f" ({entry.what})" if entry.what else "") for name, entry in _DEVICES.items()]
    return f"{', '.join(texts[:-1])} or {texts[-1]}"
