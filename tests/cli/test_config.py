"""cli/config.py: `tilewright config`, its forms, and what accepts a configuration."""

import json

import pytest

from tilewright.boards.zynq.board import load_board
from tilewright.cli.config import DERIVED, accepts, derived_sizes
from tilewright.hw.config import PRESETS, Config, load_config

PYNQ, VTA = PRESETS["pynq_z1"], PRESETS["vta"]


@pytest.mark.parametrize("name", [*PRESETS, "2x8_i8w4a32_12_13_14_15"])
def test_a_shown_configuration_loads_to_an_equal_one(tilewright, tmp_path, name):
    done = tilewright("config", name)
    assert done.status == 0
    path = tmp_path / "my.json"
    path.write_text(done.out)
    assert load_config(str(path)) == load_config(name)
    assert load_config(str(path)).fingerprint == load_config(name).fingerprint
    assert tilewright("config", path, "--json").out == tilewright("config", "--json", path).out == done.out


def test_help_names_forms_and_fields(tilewright):
    done = tilewright("config", "--help")
    assert done.status == 0
    for text in ("config NAME|FILE ", "config diff A B ", "config check NAME|FILE ", "block_in", "token_depth"):
        assert f"  {text}" in done.out
    assert tilewright("config").status == 2
    for words, missing in ((["diff", "vta"], "B"), (["check"], "NAME|FILE")):
        done = tilewright("config", *words)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert f"Missing argument '{missing}'" in done.err


def test_diff_lists_fields_and_sizes_that_differ(tilewright):
    done = tilewright("config", "diff", "vta", "pynq_z1")
    lines = [line.split() for line in done.out.splitlines()]
    assert ["uop_bytes", "32,768", "16,384", "yes"] in lines
    assert ["dsp_packing", "no", "yes", "no"] in lines
    assert ["wgt_depth", "1,024", "512"] in lines
    assert not [line for line in lines if line[0] == "inp_bytes"]
    assert done.out.splitlines()[-1].startswith(
        "programs of one do not run on the other: fingerprints 928b257d53761a3e "
    )


def test_diff_says_that_programs_are_interchangeable(tilewright, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps(VTA.every_field() | {"name": "other", "queue_depth": 16, "axi_bits": 128}))
    done = tilewright("config", "diff", "vta", path)
    assert done.out.splitlines()[-1] == (
        "programs of one run on the other: both have fingerprint 928b257d53761a3e; the loader proves them again for "
        "shallower queues and channels"
    )
    facts = json.loads(tilewright("config", "diff", "vta", path, "--json").out)
    assert facts["interchangeable"] is True
    assert facts["fields"] == {"name": ["vta", "other"], "axi_bits": [64, 128], "queue_depth": [64, 16]}
    same = tilewright("config", "diff", "vta", "vta")
    assert same.out == "programs of one run on the other: both have fingerprint 928b257d53761a3e\n"


def test_check_prints_users_sizes_and_resources(tilewright):
    done = tilewright("config", "check", "pynq_z1")
    assert done.status == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert ["networks", "yes", "as", "one", "launch"] in lines
    assert ["macs_per_cycle", "256"] in lines
    assert ["DSP", "of", "GEMM", "128", "220"] in lines
    assert "legal, fingerprint 86e0b240ae5f54c8" in done.out
    facts = json.loads(tilewright("config", "check", "pynq_z1", "--json").out)
    assert facts["derived"] == derived_sizes(PYNQ) and list(facts["derived"]) == DERIVED
    assert facts["at_least"] == {"bram": [76.0, 140], "dsp": [128, 220]}
    assert all(user["accepted"] for user in facts["users"].values())


def test_check_for_another_board(tilewright):
    done = tilewright("config", "check", "vta", "--board", "kv260")
    lines = [line.split() for line in done.out.splitlines()]
    assert ["DSP", "of", "GEMM", "256", "1,248"] in lines and "board Kria KV260" in done.out
    refused = json.loads(tilewright("config", "check", "vta", "--board", "zybo_z7_20", "--json").out)
    assert refused["part"] == "xc7z020" and not refused["users"]["board Zybo Z7-20"]["accepted"]


def test_check_refuses_what_is_not_legal(tilewright, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text('{"block_in": 12}')
    done = tilewright("config", "check", path)
    assert done.status == 3
    assert done.err == "tilewright: error: Config.block_in = 12: must be a power of two; nearest are 8 and 16\n"


def test_two_words_of_which_the_first_is_no_form(tilewright):
    done = tilewright("config", "compare", "vta")
    assert done.status == 2
    assert "error: 'compare' before 'vta' must be diff or check (see tilewright config --help)" in done.err


@pytest.mark.parametrize(
    "cfg, user, note",
    [
        (VTA, "board PYNQ-Z1", "GEMM needs 256 DSPs of 220; use dsp_packing"),
        (PYNQ.replace(axi_bits=32), "board PYNQ-Z1", "Config.axi_bits = 32: must be 64, as the board's memory ports"),
        (PYNQ.replace(store_ports=2), "rtl, synth", "Config.store_ports = 2: the core has 1; use that"),
        (Config(inp_bits=4), "networks", "inp_bits is 4 and out_bits 8; int8 activations need 8"),
        (Config(block_in=32, dsp_packing=True), "board PYNQ-Z1", "GEMM needs 256 DSPs of 220; use array_clock = 2"),
        (
            Config(block_in=64, block_out=64, wgt_bytes=1 << 20, dsp_packing=True),
            "board PYNQ-Z1",
            "the buffers need 304 block RAMs of 140; make one smaller",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_does_not_accept_a_configuration_says_why(cfg, user, note):
    assert accepts(cfg, load_board())[user] == (False, note)


def test_a_network_runs_layer_by_layer_without_the_extensions():
    ok, note = accepts(VTA, load_board())["networks"]
    assert ok and note.startswith("layer by layer; one launch needs ")


def test_a_file_of_vta_is_a_configuration(tilewright, tmp_path):
    keys = {"LOG_INP_WIDTH": 3, "LOG_WGT_WIDTH": 3, "LOG_ACC_WIDTH": 5, "LOG_BATCH": 0, "LOG_BLOCK": 4}
    sizes = {"LOG_UOP_BUFF_SIZE": 15, "LOG_INP_BUFF_SIZE": 15, "LOG_WGT_BUFF_SIZE": 18, "LOG_ACC_BUFF_SIZE": 17}
    path = tmp_path / "vta_config.json"
    path.write_text(json.dumps({"TARGET": "sim", "HW_VER": "0.0.2", **keys, **sizes}))
    assert "both have fingerprint 928b257d53761a3e" in tilewright("config", "diff", path, "vta").out
    path.write_text(json.dumps(keys))
    done = tilewright("config", path)
    assert done.status == 3 and done.err.startswith("tilewright: error: a VTA configuration needs LOG_UOP_BUFF_SIZE, ")
