"""Small netlists, made by hand, for the tests of timing."""

import pytest

from tilewright.boards.netlist import Netlist, read

OUTPUTS = {
    "Q": 1, "O": 1, "CO": 4, "P": 48, "PCOUT": 48, "DOADO": 32, "DOBDO": 32, "DOA": 1, "DOB": 1, "DOC": 1, "DOD": 1
}  # fmt: skip


class Circuit:
    """A flat module: cells are added one by one, nets are named by any word."""

    def __init__(self) -> None:
        self.nets: dict[str, int] = {}
        self.module: dict = {"ports": {}, "cells": {}, "netnames": {}}

    def bit(self, net: str) -> int | str:
        """The number of `net`; constants stay as they are."""
        return net if net in "01x" else self.nets.setdefault(net, 2 + len(self.nets))

    def add(self, name: str, kind: str, parameters: dict | None = None, **pins: str) -> "Circuit":
        """A cell; `pins` are nets, several separated by spaces; ports that tests use as outputs drive."""
        outputs = [port for port in pins if port in OUTPUTS and not (kind == "CARRY4" and port not in ("O", "CO"))]
        self.module["cells"][name] = {
            "type": kind,
            "parameters": parameters or {},
            "attributes": {"src": f"hw/rtl/{name}.py:1"},
            "port_directions": {port: "output" if port in outputs else "input" for port in pins},
            "connections": {port: [self.bit(net) for net in nets.split()] for port, nets in pins.items()},
        }
        return self

    def ports(self, inputs: str = "", outputs: str = "") -> "Circuit":
        """Ports of the circuit, named as their nets."""
        for direction, names in (("input", inputs), ("output", outputs)):
            for net in names.split():
                self.module["ports"][net] = {"direction": direction, "bits": [self.bit(net)]}
        return self

    def document(self) -> dict:
        """As Yosys writes it; every net has its word as a public name."""
        names = {net: {"hide_name": 0, "bits": [bit], "attributes": {}} for net, bit in self.nets.items()}
        return {"modules": {"t": self.module | {"netnames": names}}}

    def netlist(self) -> Netlist:
        """The circuit, read."""
        return read(self.document(), "t")


@pytest.fixture
def new() -> type[Circuit]:
    """Makes an empty circuit."""
    return Circuit
