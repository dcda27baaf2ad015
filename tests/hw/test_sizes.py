"""hw/checks.py: default sizes of buffers, and the nearest that fit the instruction words."""

import itertools

import pytest

from tilewright.hw.checks import VTA_BYTES, VTA_ENTRIES, absent_sizes, misfit, nearest, resized
from tilewright.hw.config import PRESETS, Config

POWERS = [1 << n for n in range(9)]


def test_vtas_entries_are_those_of_vtas_bytes():
    vta = PRESETS["vta"]
    assert {f"{mem}_bytes": getattr(vta, f"{mem}_depth") for mem in ("uop", "inp", "wgt", "acc")} == VTA_ENTRIES
    assert {name: getattr(vta, name) for name in VTA_BYTES} == VTA_BYTES


def test_blocks_of_8_need_nothing_else():
    cfg = Config.from_dict({"block_in": 8, "block_out": 8})
    assert (cfg.uop_depth, cfg.inp_depth, cfg.wgt_depth, cfg.acc_depth) == (8192, 2048, 1024, 2048)
    assert (cfg.inp_bytes, cfg.wgt_bytes, cfg.acc_bytes) == (1 << 14, 1 << 16, 1 << 16)


def test_every_size_of_the_blocks_and_the_batch_is_legal_alone():
    for batch, block_in, block_out in itertools.product(POWERS[:7], POWERS, POWERS):
        cfg = Config(batch=batch, block_in=block_in, block_out=block_out)
        assert all(getattr(cfg, name) <= size for name, size in VTA_BYTES.items())


@pytest.mark.parametrize("wgt_bits, inp_bits", [(2, 8), (4, 8), (8, 4), (4, 4)])
def test_every_width_is_legal_alone(wgt_bits, inp_bits):
    for block in POWERS[2:]:
        cfg = Config(block_in=block, block_out=block, wgt_bits=wgt_bits, inp_bits=inp_bits)
        assert not misfit(cfg)


def test_an_absent_size_is_vtas_where_that_fits_the_stated_ones():
    cfg = Config(block_in=4, block_out=32, wgt_bytes=1 << 17, acc_bytes=1 << 16)
    assert cfg.inp_bytes == VTA_BYTES["inp_bytes"] and cfg.inp_depth == 8192
    assert absent_sizes(cfg, ["inp_bytes"]) == {"inp_bytes": 1 << 15}
    assert absent_sizes(cfg, []) == {}
    less = resized(cfg, {"acc_bytes": 1 << 17})
    assert absent_sizes(less, ["inp_bytes"]) == {"inp_bytes": 1 << 13}


def test_misfit_says_why_and_nearest_what_would_do():
    vta = PRESETS["vta"]
    assert misfit(vta) == ""
    more = resized(vta, {"wgt_bytes": 1 << 19})
    assert "need 33 index bits, a micro-op has 32" in misfit(more)
    assert nearest(more).startswith(
        "inp_bytes = 16384 (1024 entries) or wgt_bytes = 262144 (1024 entries) or acc_bytes"
    )


def test_several_buffers_that_are_all_too_deep():
    deep = resized(PRESETS["tiny"], dict.fromkeys(VTA_BYTES, 1 << 20))
    text = nearest(deep)
    assert text == (
        "uop_bytes = 32768 (8192 entries), inp_bytes = 8192 (2048 entries), wgt_bytes = 16384 (1024 entries) and "
        "acc_bytes = 32768 (2048 entries)"
    )
    sizes = {
        part.split(" = ")[0]: int(part.split(" = ")[1].split()[0]) for part in text.replace(" and", ",").split(", ")
    }
    assert not misfit(resized(deep, sizes))


@pytest.mark.parametrize("sizes", [{"uop_bytes": 1 << 16}, {"acc_bytes": 1 << 20}, {"inp_bytes": 1 << 22}])
def test_each_of_the_nearest_fits(sizes):
    cfg = resized(PRESETS["pynq_z1"], sizes)
    for part in nearest(cfg).split(" or "):
        name, _, size, *_ = part.split()
        assert not misfit(resized(cfg, {name: int(size)}))
        assert misfit(resized(cfg, {name: 2 * int(size)}))
