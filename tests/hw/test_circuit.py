"""hw/circuit.py: what the circuit is not made for is refused by name."""

import re

import pytest

from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError

TINY = PRESETS["tiny"]


@pytest.mark.parametrize(
    "changes, text",
    [
        (
            {"load_ports": 4, "axi_bits": 256},
            "Config.load_ports = 4: the load unit takes 512 bits at once, and with axi_bits = 256 its ports give 1024",
        ),
        ({"store_ports": 2}, "Config.store_ports = 2: the core has 1; use that"),
        ({"axi_bits": 256}, "Config.axi_bits = 256: extension requant needs entries of PAR that are whole beats, and "),
    ],
)
def test_ports_that_the_core_does_not_have(changes, text):
    with pytest.raises(UnsupportedError, match=f"^{re.escape(text)}"):
        check_buildable(TINY.replace(**changes))


def test_presets_and_several_load_ports_are_fine():
    for cfg in PRESETS.values():
        check_buildable(cfg)
        check_buildable(cfg.replace(load_ports=2))
        check_buildable(cfg.replace(load_ports=4))
