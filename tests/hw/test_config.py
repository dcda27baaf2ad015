"""hw/config.py: derived sizes, refusals and their texts, fingerprint, JSON, presets."""

import dataclasses
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.hw.config import EXTENSIONS, PRESETS, Config, load_config
from tilewright.hw.errors import ConfigError, FileError

VTA, PYNQ, TINY = PRESETS["vta"], PRESETS["pynq_z1"], PRESETS["tiny"]


def refused(text: str):
    """A `ConfigError` with exactly this text."""
    return pytest.raises(ConfigError, match=f"^{re.escape(text)}$")


TWO = {"units": ["gemm", "ternary"], "acc_banks": 4}
# name: (uop, inp, wgt, acc) depth, then bytes per (inp, wgt, acc, out, par) entry, MACs per cycle, lanes, bank
DERIVED = {
    "vta": ((8192, 2048, 1024, 2048), (16, 256, 64, 16, 192), 256, 16, 2048),
    "pynq_z1": ((4096, 2048, 512, 2048), (16, 256, 64, 16, 192), 256, 16, 1024),
    "pynq_z1_resident": ((4096, 2048, 1024, 2048), (16, 256, 64, 16, 192), 256, 16, 1024),
    "tiny": ((256, 256, 128, 128), (4, 16, 16, 4, 48), 16, 4, 64),
}


@pytest.mark.parametrize("name", DERIVED)
def test_derived_sizes_of_the_presets(name):
    cfg, (depths, entries, macs, lanes, bank) = PRESETS[name], DERIVED[name]
    assert (cfg.uop_depth, cfg.inp_depth, cfg.wgt_depth, cfg.acc_depth) == depths
    got = (cfg.inp_entry_bytes, cfg.wgt_entry_bytes, cfg.acc_entry_bytes, cfg.out_entry_bytes, cfg.par_entry_bytes)
    assert got == entries
    assert cfg.uop_entry_bytes == 4
    assert (cfg.macs_per_cycle, cfg.lanes, cfg.bank_depth) == (macs, lanes, bank)


def test_entries_of_unequal_blocks_batch_2_and_narrow_weights():
    cfg = Config(batch=2, block_in=8, block_out=32, wgt_bits=4)
    assert (cfg.inp_entry_bits, cfg.wgt_entry_bits, cfg.acc_entry_bits, cfg.out_entry_bits) == (128, 1024, 2048, 512)
    assert cfg.wgt_depth == (1 << 18) // 128
    assert (cfg.macs_per_cycle, cfg.lanes) == (512, 64)


def test_presets_carry_the_extensions_they_promise():
    assert VTA.extensions == {"acc8"}
    assert PYNQ.extensions == TINY.extensions == EXTENSIONS - {"depthwise_rows", "lookup", "lane_reduce", "wgt4"}
    assert PRESETS["pynq_z1_plus"].extensions == PRESETS["pynq_z1_resident"].extensions == EXTENSIONS - {"wgt4"}
    assert (PYNQ.par_entries, TINY.par_entries, PYNQ.acc_banks) == (64, 8, 2)
    assert all(cfg.name == name for name, cfg in PRESETS.items())


REFUSED = [
    ({"block_in": 12}, "Config.block_in = 12: must be a power of two; nearest are 8 and 16"),
    ({"block_in": 0}, "Config.block_in = 0: must be a power of two; nearest is 1"),
    ({"block_in": -16}, "Config.block_in = -16: must be a power of two; nearest is 1"),
    ({"block_in": 16.0}, "Config.block_in = 16.0: must be an integer; nearest is 16"),
    ({"block_in": True}, "Config.block_in = True: must be an integer"),
    ({"batch": "1"}, "Config.batch = '1': must be an integer; nearest is 1"),
    ({"batch": 128}, "Config.batch = 128: allowed are powers of two from 1 to 64; nearest is 64"),
    ({"block_out": 512}, "Config.block_out = 512: allowed are powers of two from 1 to 256; nearest is 256"),
    ({"inp_bits": 16}, "Config.inp_bits = 16: allowed are powers of two from 4 to 8; nearest is 8"),
    ({"wgt_bits": 1}, "Config.wgt_bits = 1: allowed are powers of two from 2 to 8; nearest is 2"),
    ({"acc_bits": 16}, "Config.acc_bits = 16: must be 32"),
    ({"uop_bytes": 32}, "Config.uop_bytes = 32: allowed are powers of two from 64 to 1048576; nearest is 64"),
    ({"axi_bits": 16}, "Config.axi_bits = 16: allowed are powers of two from 32 to 512; nearest is 32"),
    ({"queue_depth": 2}, "Config.queue_depth = 2: allowed are powers of two from 4 to 1024; nearest is 4"),
    ({"acc_banks": 8}, "Config.acc_banks = 8: allowed are powers of two from 1 to 4; nearest is 4"),
    ({"par_entries": 2048}, "Config.par_entries = 2048: allowed are powers of two from 1 to 1024; nearest is 1024"),
    ({"token_depth": 0}, "Config.token_depth = 0: must be an integer from 1 to 65535; nearest is 1"),
    ({"token_depth": 2.5}, "Config.token_depth = 2.5: must be an integer from 1 to 65535; nearest are 2 and 3"),
    ({"dsp_packing": 1}, "Config.dsp_packing = 1: must be true or false"),
    ({"array_clock": 3}, "Config.array_clock = 3: must be a power of two; nearest is 2"),
    (
        {"array_clock": 2, "block_in": 1},
        "Config.array_clock = 2: two halves of the inputs share the multipliers, so block_in must be at least 2, not "
        "1; nearest is array_clock = 1",
    ),
    (
        {"extensions": {"requant", "reqaunt"}},
        "Config.extensions = reqaunt: unknown; known are acc8, depthwise, depthwise_rows, lane_reduce, "
        "lookup, overwrite, pad_value, "
        "requant, rescale, wgt4; nearest to reqaunt is requant",
    ),
    (
        {"batch": 1, "block_in": 1, "inp_bits": 4},
        "Config.inp_bits = 4: an entry must be whole bytes, not 4 bits; "
        "nearest are inp_bits = 8 and batch * block_in = 2",
    ),
    (
        {"block_in": 1, "block_out": 1, "wgt_bits": 2, "inp_bits": 8},
        "Config.wgt_bits = 2: an entry must be whole bytes, not 2 bits; nearest are wgt_bits = 8 and "
        "block_in * block_out = 4",
    ),
    (
        {"block_out": 1, "out_bits": 4},
        "Config.out_bits = 4: an entry must be whole bytes, not 4 bits; "
        "nearest are out_bits = 8 and batch * block_out = 2",
    ),
    (
        {"wgt_bytes": 256},
        "Config.wgt_bytes = 256: must hold 2 entries of 256 bytes; use at least 512",
    ),
    (
        {"acc_bytes": 128, "acc_banks": 4},
        "Config.acc_banks = 4: the 2 accumulators of 128 bytes fill no more than 2 banks; nearest is 2",
    ),
    (
        {"acc_bytes": 1 << 18, "wgt_bytes": 1 << 19},
        "Config.acc_bytes, inp_bytes, wgt_bytes: depths 4096, 2048, 2048 need 34 index bits, a micro-op has 32; "
        "nearest is inp_bytes = 8192 (512 entries) or acc_bytes = 65536 (1024 entries)",
    ),
    (
        {"uop_bytes": 1 << 16, "extensions": {"overwrite"}},
        "Config.uop_bytes = 65536: extension overwrite needs at most 8192 micro-ops (32768 bytes); "
        "nearest is uop_bytes = 32768 (8192 entries)",
    ),
    (
        {"uop_bytes": 1 << 16},
        "ALU: the fields need 144 bits, the word has 128; nearest is uop_bytes = 32768 (8192 entries)",
    ),
    (
        {"block_in": 8, "extensions": {"depthwise"}},
        "Config.extensions = depthwise: needs block_in and block_out to be equal; they are 8 and 16; "
        "nearest are 8 and 8, 16 and 16, or leave depthwise out",
    ),
    (
        {"extensions": {"depthwise_rows"}},
        "Config.extensions = depthwise_rows: needs depthwise too, whose mode it is; add depthwise",
    ),
    (
        {"block_in": 2, "block_out": 2, "extensions": {"depthwise", "depthwise_rows"}},
        "Config.extensions = depthwise_rows: needs blocks of 4 or more, not block_in = 2; use blocks of 4 or leave "
        "depthwise_rows out",
    ),
    (
        {"block_in": 64, "block_out": 64, "inp_bytes": 128, "extensions": {"depthwise", "depthwise_rows"}},
        "Config.inp_bytes = 128: extension depthwise_rows reads 4 entries at once; use at least 256",
    ),
    (
        {"uop_bytes": 1 << 15, "extensions": {"depthwise", "depthwise_rows"}},
        "Config.uop_bytes = 32768: extension depthwise_rows needs at most 4096 micro-ops (16384 bytes); "
        "nearest is uop_bytes = 16384 (4096 entries)",
    ),
    (
        {"out_bits": 4, "extensions": {"acc8"}},
        "Config.extensions = acc8: loads bytes, so it needs out_bits = 8, not 4; set that or leave acc8 out",
    ),
    (
        {"wgt_bits": 4, "extensions": {"pad_value", "wgt4"}},
        "Config.extensions = wgt4: needs wgt_bits = 8, not 4; set that or leave wgt4 out",
    ),
    (
        {"block_in": 2, "extensions": {"pad_value", "wgt4"}},
        "Config.extensions = wgt4: needs block_in = 4 or more, not 2; set that or leave wgt4 out",
    ),
    (
        {"block_out": 1, "extensions": {"pad_value", "wgt4"}},
        "Config.extensions = wgt4: needs block_out = 2 or more, not 1; set that or leave wgt4 out",
    ),
    (
        {"extensions": {"wgt4"}},
        "Config.extensions = wgt4: needs pad_value too, whose instruction loads them; add pad_value",
    ),
    (
        {"out_bits": 4, "extensions": {"requant"}},
        "Config.extensions = requant: stores bytes, so it needs out_bits = 8, not 4; set that or leave requant out",
    ),
    (
        {"extensions": {"rescale"}},
        "Config.extensions = rescale: needs requant too, which loads its parameters; add requant",
    ),
    (
        {"extensions": {"lookup"}},
        "Config.extensions = lookup: needs requant too, which loads its tables; add requant",
    ),
    (
        {"extensions": {"lane_reduce"}},
        "Config.extensions = lane_reduce: needs requant too, whose pipeline it uses; add requant",
    ),
    ({"tables": 3}, "Config.tables = 3: must be a power of two; nearest are 2 and 4"),
]


REFUSED += [
    ({"units": "gemm"}, "Config.units = 'gemm': must be a list of names; e.g. gemm"),
    ({"units": [1]}, "Config.units = [1]: must be a list of names; e.g. gemm"),
    ({"units": ["gemm", "tpu"]}, "Config.units = gemm, tpu: unknown are tpu; known are gemm, ternary"),
    (
        {"units": ["gemm", "ternary"]},
        "Config.acc_banks = 1: unit ternary needs 4, so that each unit finds a bank; use that",
    ),
    (
        {**TWO, "ternary_blocks": 4, "acc_bytes": 1 << 10},
        "Config.acc_bytes = 1024: unit ternary needs planes of 2 entries, so 32 of them; use at least 2048",
    ),
    (
        {**TWO, "twgt_bytes": 64},
        "Config.twgt_bytes = 64: must hold at least 2 entries, whose index a micro-op has; nearest is 128",
    ),
    (
        {**TWO, "twgt_bytes": 1 << 17},
        "Config.twgt_bytes = 131072: must hold no more entries than wgt_bytes, whose index a micro-op has; nearest is "
        "65536",
    ),
    (
        {**TWO, "block_in": 1, "block_out": 2},
        "Config.ternary_blocks = 1: an entry of ternary weights must be whole bytes, not 4 bits; use at least 2",
    ),
    ({"units": []}, "Config.units = none: must begin with gemm"),
    ({"units": ["gemm", "gemm"]}, "Config.units = gemm, gemm: names a unit twice; nearest is gemm"),
]


@pytest.mark.parametrize("values, text", REFUSED, ids=lambda v: " ".join(v) if isinstance(v, dict) else "")
def test_impossible_values_are_refused_by_name(values, text):
    with refused(text):
        Config(**values)


def test_a_configuration_is_frozen_and_replace_checks_again():
    with pytest.raises(dataclasses.FrozenInstanceError):
        VTA.batch = 2  # pyright: ignore[reportAttributeAccessIssue]
    assert VTA.replace(batch=2).batch == 2
    assert VTA.batch == 1
    with refused("Config.batch = 3: must be a power of two; nearest are 2 and 4"):
        VTA.replace(batch=3)
    with pytest.raises(ConfigError, match="^Config has no field 'blok'; it has block_in, block_out$"):
        VTA.replace(blok=3)


@pytest.mark.parametrize("bad", [5, None, "requant", [1]])
def test_extensions_must_be_a_list_of_names(bad):
    with refused(f"Config.extensions = {bad!r}: must be a list of names"):
        Config.from_dict({"extensions": bad})


@pytest.mark.parametrize("name", PRESETS)
def test_json_round_trip(name):
    cfg = PRESETS[name]
    assert Config.from_dict(json.loads(json.dumps(cfg.to_dict()))) == cfg


# What a program depends on changes the fingerprint; what describes the circuit only does not.
PROGRAM_FACTS = [
    {"batch": 2, "acc_bytes": 1 << 18, "inp_bytes": 1 << 16},
    {"block_in": 32, "inp_bytes": 1 << 16, "wgt_bytes": 1 << 19},
    {"block_out": 8, "acc_bytes": 1 << 16, "wgt_bytes": 1 << 17},
    {"inp_bits": 4, "inp_bytes": 1 << 14},
    {"wgt_bits": 4, "wgt_bytes": 1 << 17},
    {"out_bits": 4, "extensions": []},
    {"uop_bytes": 1 << 14},
    {"inp_bytes": 1 << 14},
    {"wgt_bytes": 1 << 17},
    {"acc_bytes": 1 << 16},
    {"par_entries": 32},
    {"extensions": []},
    {"extensions": ["acc8", "requant"]},
    {"tables": 8},
    {"ternary_blocks": 2},
    {"twgt_bytes": 1 << 14},
    {"units": ["gemm", "ternary"], "acc_banks": 4},
]
CIRCUIT_FACTS = [
    {"name": "other"},
    {"acc_banks": 2},
    {"axi_bits": 128},
    {"load_ports": 2},
    {"store_ports": 2},
    {"queue_depth": 16},
    {"token_depth": 8},
    {"ppu_lanes": 16},
    {"dsp_packing": True},
    {"array_clock": 2},
]


def test_the_fingerprint_covers_what_programs_depend_on():
    prints = [VTA.replace(**change).fingerprint for change in PROGRAM_FACTS]
    assert len({VTA.fingerprint, *prints}) == len(PROGRAM_FACTS) + 1
    assert all(0 <= p < 1 << 64 for p in prints)


@pytest.mark.parametrize("change", CIRCUIT_FACTS, ids=lambda c: next(iter(c)))
def test_the_fingerprint_ignores_ports_lanes_and_packing(change):
    assert VTA.replace(**change) != VTA
    assert VTA.replace(**change).fingerprint == VTA.fingerprint


def test_every_field_is_known_to_the_fingerprint_tests():
    tested = {key for change in PROGRAM_FACTS + CIRCUIT_FACTS for key in change}
    assert {f.name for f in dataclasses.fields(Config)} - tested == {"acc_bits"}  # which has one legal value


# Computed outside of this code, and never to change: printf '%s' '<this JSON>' | sha256sum | cut -c1-16
# {"acc_bits":32,"acc_depth":2048,"batch":1,"block_in":16,"block_out":16,"extensions":["acc8"],"inp_bits":8,
#  "inp_depth":2048,"isa_version":1,"out_bits":8,"par_entries":64,"uop_depth":8192,"wgt_bits":8,"wgt_depth":1024}
FIXED = {"32x32": 0x1D76A79BA09B137D, "2x8x32": 0x8A2694F4349714E8}
FINGERPRINTS = {"vta": 0x928B257D53761A3E, "pynq_z1": 0x86E0B240AE5F54C8, "tiny": 0x9F229B19CD937689}
# The fields of the first version: all of them are in every file.
FIRST = (
    "name batch block_in block_out inp_bits wgt_bits acc_bits out_bits uop_bytes inp_bytes wgt_bytes acc_bytes "
    "par_entries extensions acc_banks axi_bits load_ports store_ports queue_depth token_depth ppu_lanes dsp_packing"
).split()


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_the_fingerprint_is_the_hash_of_canonical_json(name):
    assert PRESETS[name].fingerprint == FINGERPRINTS[name]
    assert list(PRESETS[name].to_dict()) == FIRST


@dataclasses.dataclass(frozen=True)
class Larger(Config):
    """A configuration with a field that the first version did not have."""

    wings: tuple[int, ...] = (2, 1)


def test_the_default_configuration_stays_as_it_is():
    """As the first version had it: absent sizes are VTA's where these fit."""
    cfg = Config()
    assert (cfg.uop_bytes, cfg.inp_bytes, cfg.wgt_bytes, cfg.acc_bytes) == (1 << 15, 1 << 15, 1 << 18, 1 << 17)
    assert list(cfg.to_dict()) == FIRST
    assert cfg.fingerprint == VTA.replace(extensions=[]).fingerprint
    assert Config(block_in=32, block_out=32).fingerprint == FIXED["32x32"]
    assert Config(batch=2, block_in=8, block_out=32, wgt_bits=4).fingerprint == FIXED["2x8x32"]


def test_every_field_is_shown_and_read_again():
    for cfg in PRESETS.values():
        shown = cfg.every_field()
        assert list(shown) == [f.name for f in dataclasses.fields(Config)]
        assert Config.from_dict(json.loads(json.dumps(shown))) == cfg


def test_sizes_stay_when_another_field_is_replaced():
    assert VTA.replace(block_in=32).inp_bytes == VTA.inp_bytes
    with pytest.raises(ConfigError, match="need 36 index bits"):
        VTA.replace(block_in=8, block_out=8)
    sizes = dict.fromkeys(("inp_bytes", "wgt_bytes", "acc_bytes"))
    assert VTA.replace(block_in=8, block_out=8, **sizes).inp_depth == 2048


def test_a_new_field_counts_only_where_it_differs_from_its_default():
    plain, other, same = Larger(), Larger(wings=(3, 1)), Larger(wings=(2, 1))
    assert plain.fingerprint == same.fingerprint == Config().fingerprint != other.fingerprint
    assert plain.to_dict() == same.to_dict() == Config().to_dict()
    assert other.to_dict() == Config().to_dict() | {"wings": [3, 1]}
    # as in FINGERPRINTS: the JSON of Config(), and "wings":[3,1] behind "wgt_depth":1024
    assert other.fingerprint == 0xF92632E19B4A0874


@given(st.permutations(sorted(EXTENSIONS - {"depthwise_rows", "wgt4"})), st.integers(0, 8))
def test_the_fingerprint_does_not_depend_on_the_order_of_extensions(order, n):
    used = [*order[:n], "requant"]  # without which rescale cannot be
    first = Config(extensions=frozenset(used))
    assert first.fingerprint == Config.from_dict({"extensions": used[::-1]}).fingerprint


def test_vta_strings():
    cfg = Config.from_vta("1x16_i8w8a32_15_15_18_17")
    assert cfg.fingerprint == VTA.fingerprint
    small = load_config("2x8_i8w4a32_12_13_14_15")
    assert (small.batch, small.block_in, small.block_out, small.wgt_bits) == (2, 8, 8, 4)
    assert load_config("1x16_i4w4a32_12_13_14_15").extensions == frozenset()  # acc8 needs outputs of a byte
    assert (small.uop_bytes, small.inp_bytes, small.wgt_bytes, small.acc_bytes) == (4096, 8192, 16384, 32768)
    with refused(
        "'1x16_i8' is not a VTA configuration; expected BATCHxBLOCK_iNwNaN_UOP_INP_WGT_ACC, "
        "e.g. 1x16_i8w8a32_15_15_18_17"
    ):
        load_config("1x16_i8")
    with refused("Config.block_in = 12: must be a power of two; nearest are 8 and 16"):
        load_config("1x12_i8w8a32_15_15_18_17")


def test_load_config_takes_presets_values_and_configurations():
    assert load_config("tiny") is TINY
    assert load_config(TINY) is TINY
    assert load_config(TINY.to_dict()) == TINY
    known = "vta, pynq_z1, pynq_z1_lean, pynq_z1_plus, pynq_z1_resident, pynq_z1_fast, pynq_z1_two, tiny, tiny_two"
    with refused(f"unknown preset 'tinny'; known are {known}, or give a .json file"):
        load_config("tinny")


@pytest.mark.parametrize("value", [3, None, ["vta"]])
def test_load_config_says_what_it_takes(value):
    known = ", ".join(PRESETS)
    with refused(f"configuration {value!r}: must be {known}, a .json file, a dict of fields, or a Config"):
        load_config(value)


def test_load_config_reads_json_files(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"wgt_bits": 4, "wgt_bytes": 1 << 17, "extensions": ["acc8"]}))
    cfg = load_config(str(path))
    assert (cfg.name, cfg.wgt_bits, cfg.extensions) == ("mine", 4, {"acc8"})
    assert load_config(path) == cfg


def test_load_config_names_what_is_wrong_with_a_file(tmp_path):
    missing, broken, array = tmp_path / "no.json", tmp_path / "broken.json", tmp_path / "array.json"
    broken.write_text("{")
    array.write_text("[1]")
    known = re.escape(f"a preset ({', '.join(PRESETS)}) or a .json file with a configuration")
    with pytest.raises(FileError, match=f"^{re.escape(str(missing))}: no such file; give {known}$"):
        load_config(str(missing))
    with pytest.raises(FileError, match=rf"^{re.escape(str(broken))}: cannot be read as JSON \(.*\); give {known}$"):
        load_config(str(broken))
    with refused(f"{array}: a configuration is a JSON object of fields, not a list"):
        load_config(str(array))
    with pytest.raises(FileError, match="is a folder; give a preset"):
        (tmp_path / "folder.json").mkdir()
        load_config(str(tmp_path / "folder.json"))


def test_a_vta_string_with_impossible_buffers_is_refused_before_anything_is_allocated():
    with refused(
        "'1x16_i8w8a32_15_15_18_99999999': a buffer of 2**99999999 bytes; the last four numbers are log2 of bytes"
    ):
        Config.from_vta("1x16_i8w8a32_15_15_18_99999999")


def test_extensions_given_as_a_text_are_refused():
    text: Any = "acc8"
    with refused("Config.extensions = 'acc8': must be a set of names"):
        Config(extensions=text)


@pytest.mark.parametrize("name", [[1], "two\nlines"])
def test_names_are_printable(name):
    with refused(f"Config.name = {name!r}: must be a printable text"):
        Config.from_dict({"name": name})
