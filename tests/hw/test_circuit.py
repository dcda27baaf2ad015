"""hw/circuit.py: what the circuit is not made for is refused by name."""

import re
from functools import partial

import pytest

from tilewright.apps.explore.area import area_of
from tilewright.apps.explore.evaluate import misfit
from tilewright.apps.explore.trial import small_network
from tilewright.cli.config import accepts
from tilewright.compiler.network import compile_graph
from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.hw.rtl.verilog import to_verilog
from tilewright.runtime.program import Program
from tilewright.sim.timing import predict

TINY = PRESETS["tiny"]


REFUSED = [
    (
        {"load_ports": 4, "axi_bits": 256},
        "Config.load_ports = 4: the load unit takes 512 bits at once, and with axi_bits = 256 its ports give 1024",
    ),
    ({"store_ports": 2}, "Config.store_ports = 2: the core has 1; use that"),
    ({"axi_bits": 256}, "Config.axi_bits = 256: extension requant needs entries of PAR that are whole beats, and "),
]


@pytest.mark.parametrize("changes, text", REFUSED)
def test_ports_that_the_core_does_not_have(changes, text):
    with pytest.raises(UnsupportedError, match=f"^{re.escape(text)}"):
        check_buildable(TINY.replace(**changes))


def test_presets_and_several_load_ports_are_fine():
    for cfg in PRESETS.values():
        check_buildable(cfg)
        check_buildable(cfg.replace(load_ports=2))
        check_buildable(cfg.replace(load_ports=4))


@pytest.mark.parametrize("changes", [changes for changes, _ in REFUSED])
def test_all_users_refuse_it_with_the_same_words(changes):
    cfg = TINY.replace(**changes)
    with pytest.raises(UnsupportedError) as why:
        check_buildable(cfg)
    text = str(why.value)
    program = Program(cfg, "empty")
    for use in (to_verilog, partial(predict, program), partial(compile_graph, small_network(0))):
        with pytest.raises(UnsupportedError, match=f"^{re.escape(text)}$"):
            use(cfg)
    assert misfit(cfg, area_of(cfg)) == text
    found = accepts(cfg)
    assert [found[user] for user in ("networks", "timing", "rtl, synth", "board PYNQ-Z1")] == [(False, text)] * 4
