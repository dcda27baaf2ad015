"""compiler/limits.py: what the fields of instructions hold."""

from tilewright.compiler.limits import limits, most_padding
from tilewright.hw.config import PRESETS


def test_limits_are_those_of_the_formats():
    load, padded = limits(PRESETS["vta"], "LOAD"), limits(PRESETS["vta"], "LOADP")
    assert (load["y_size"], load["x_stride"], load["x_pad_0"]) == (0xFFFF, 0xFFFF, 15)
    assert (padded["y_size"], padded["x_size"], padded["pad_value"]) == (0xFFF, 0xFFF, 127)


def test_a_load_pads_alike_on_every_side():
    for cfg in PRESETS.values():
        for name in ("LOAD", "LOADP"):
            assert {limits(cfg, name)[f"{axis}_pad_{side}"] for axis in "yx" for side in (0, 1)} == {most_padding(cfg)}
