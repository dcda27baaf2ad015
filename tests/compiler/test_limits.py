"""compiler/limits.py: what the fields of instructions hold, and how networks run."""

from tilewright.compiler.limits import activations_refused, limits, most_padding, runs_whole_networks
from tilewright.hw.config import PRESETS


def test_limits_are_those_of_the_formats():
    load, padded = limits(PRESETS["vta"], "LOAD"), limits(PRESETS["vta"], "LOADP")
    assert (load["y_size"], load["x_stride"], load["x_pad_0"]) == (0xFFFF, 0xFFFF, 15)
    assert (padded["y_size"], padded["x_size"], padded["pad_value"]) == (0xFFF, 0xFFF, 127)


def test_a_load_pads_alike_on_every_side():
    for cfg in PRESETS.values():
        for name in ("LOAD", "LOADP"):
            assert {limits(cfg, name)[f"{axis}_pad_{side}"] for axis in "yx" for side in (0, 1)} == {most_padding(cfg)}


def test_how_networks_run():
    pynq = PRESETS["pynq_z1"]
    assert runs_whole_networks(pynq) and runs_whole_networks(PRESETS["tiny"])
    assert not runs_whole_networks(PRESETS["vta"])  # layer by layer
    assert not runs_whole_networks(pynq.replace(wgt_bits=4, wgt_bytes=1 << 16))
    assert activations_refused(pynq) == ""
    narrow = PRESETS["vta"].replace(inp_bits=4, inp_bytes=1 << 14)
    assert activations_refused(narrow) == "inp_bits is 4 and out_bits 8; int8 activations need 8"
