"""Sums on the multiplier array."""

import pytest

from tilewright.compiler.graph import Add, Sub, Tensor
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Isa


def operator(kind, scales, shape):
    x, y, z = (Tensor(n, shape, scale=s, zero_point=p) for n, s, p in zip("xyz", scales, (-128, 3, -17)))
    return kind("op", (x, y), z)


@pytest.mark.parametrize("kind", [Add, Sub])
@pytest.mark.parametrize("scales", [(0.05, 0.08, 0.09), (0.08, 0.08, 0.1), (0.11, 0.013, 0.1)])
@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_sums_of_any_scales(exact, kind, scales, name):
    launch = exact(operator(kind, scales, (1, 20, 9, 11)), cfg=PRESETS[name])
    isa = Isa(launch.cfg)
    names = [isa.mnemonic(fields) for fields in isa.decode(launch.insn)]
    assert "DWGEMM" in names and "ALU.RESCALE" not in names and "LOAD.ACC8" not in names


def test_a_tensor_and_itself_and_vectors(exact):
    x = Tensor("x", (2, 40), scale=0.05, zero_point=9)
    exact(Add("op", (x, x), Tensor("z", (2, 40), scale=0.09)))


def test_what_lacks_an_extension_takes_the_alu(exact):
    extensions = PRESETS["pynq_z1"].extensions
    for missing in ("depthwise", "overwrite"):
        cfg = Config("less", wgt_bytes=1 << 17, uop_bytes=1 << 14, extensions=extensions - {missing})
        launch = exact(operator(Add, (0.05, 0.08, 0.09), (1, 16, 4, 4)), cfg=cfg)
        isa = Isa(launch.cfg)
        assert "ALU.RESCALE" in {isa.mnemonic(fields) for fields in isa.decode(launch.insn)}


def test_two_inputs_on_chip_are_too_few_for_two_slots(exact):
    cfg = PRESETS["tiny"].replace(inp_bytes=64, block_in=32, block_out=32, wgt_bytes=1 << 14, acc_bytes=1 << 12)
    launch = exact(operator(Add, (0.05, 0.08, 0.09), (1, 16, 4, 4)), cfg=cfg)
    isa = Isa(launch.cfg)
    assert cfg.inp_depth == 2 and "ALU.RESCALE" in {isa.mnemonic(fields) for fields in isa.decode(launch.insn)}
