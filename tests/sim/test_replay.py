import json

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ConfigError, FileError, UnsupportedError
from tilewright.hw.isa import Mem, Op
from tilewright.runtime import device
from tilewright.sim.replay import replay_case

TINY = PRESETS["tiny"]


@pytest.fixture
def case(machine, tmp_path):
    """Writes a case that adds nothing to an accumulator and stores it; `change` alters its arrays or meta."""

    def write(cfg=TINY, config="tiny", change=lambda arrays, meta: None, name="c"):
        m = machine(cfg, nbytes=4099)
        store = {"op": Op.STORE, "mem": Mem.OUT, "dram_base": 2048 // cfg.out_entry_bytes, "y_size": 1, "x_size": 3}
        address, count = m.put([store, {"op": Op.FINISH}], 1024)
        before = m.dram.copy()
        m.model.run(address, count)
        meta = {"name": name, "insn_addr": address, "insn_count": count, "config": config}
        meta["buffers"] = [{"name": "out", "addr": 2040, "size": 64}]
        arrays = {"insn": m.words([store]), "uop": np.zeros(0, np.uint32), "dram_in": before, "dram_out": m.dram}
        change(arrays, meta)
        arrays.setdefault("meta", np.array(json.dumps(meta)))
        np.savez_compressed(tmp_path / f"{name}.npz", **{k: v for k, v in arrays.items() if v is not None})
        return tmp_path / f"{name}.npz"

    return write


def test_a_case_passes_and_counts(case):
    result = replay_case(case())
    assert (result.name, result.passed, result.detail) == ("c", True, "")
    assert result.stats.bytes_stored == {"OUT": 12}
    assert replay_case(str(case())).passed


def test_the_configuration_is_a_name_a_vta_string_or_fields(case):
    vta = PRESETS["vta"]
    assert replay_case(case(vta, "1x16_i8w8a32_15_15_18_17")).passed
    assert replay_case(case(vta, "vta")).passed
    batch2 = TINY.replace(name="two", batch=2, inp_bytes=512)
    assert replay_case(case(batch2, batch2.to_dict())).passed


@pytest.mark.parametrize("at, where", [(2050, " (out + 10)"), (4098, "")])
def test_a_difference_anywhere_fails_and_is_named(case, at, where):
    def flip(arrays, meta):
        arrays["dram_out"][at] ^= 1
        got.append(int(arrays["dram_out"][at]))

    got = []
    result = replay_case(case(change=flip))
    assert not result.passed
    assert result.detail == (
        f"1 of 4099 bytes differ; the first at {at:#x}{where}: expected {got[0]}, got {got[0] ^ 1}"
    )


def test_a_program_that_cannot_run_fails_its_case(case):
    def cut(arrays, meta):
        meta["insn_count"] = 1

    result = replay_case(case(change=cut))
    assert not result.passed
    assert result.detail.startswith("none of 1 instructions is FINISH")


def setter(key, value):
    return lambda arrays, meta: (arrays if key in ("dram_in", "dram_out", "meta") else meta).__setitem__(key, value)


MALFORMED = [
    (setter("dram_in", None), "no case, it lacks dram_in"),
    (setter("meta", np.array("{")), "meta is not the JSON of a case"),
    (setter("meta", np.array(json.dumps([1]))), "meta is not the JSON of a case"),
    (setter("meta", np.array(json.dumps({"insn_addr": 0}))), "meta is not the JSON of a case (KeyError: 'insn_count')"),
    (setter("insn_addr", "x"), "meta is not the JSON of a case"),
    (setter("config", None), "meta.config is None, must be a name or the fields of a configuration"),
    (setter("dram_out", np.zeros(9, np.uint8)), "dram_in has 4099 bytes, dram_out 9"),
    (setter("dram_in", np.zeros(9, np.int32)), "dram_in is int32 (9,), must be uint8 (n,)"),
    (setter("dram_out", np.zeros((3, 3), np.uint8)), "dram_out is uint8 (3, 3), must be uint8 (n,)"),
]


@pytest.mark.parametrize("change, text", MALFORMED, ids=[text for _, text in MALFORMED])
def test_a_malformed_case_is_named_in_one_line(case, change, text):
    path = case(change=change)
    with pytest.raises(FileError) as caught:
        replay_case(path)
    assert str(caught.value).startswith(f"{path}: {text}")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_cases(case, tmp_path):
    good = case().read_bytes()
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "pickled.npz", dram_in=np.array([{}], object), dram_out=np.zeros(3, np.uint8), meta="{}")
    texts = {"none.npz": "no such file", "one.npy": "one array, not an .npz file"}
    for size in range(0, len(good), len(good) // 16):
        (tmp_path / f"cut{size}.npz").write_bytes(good[:size])
        texts[f"cut{size}.npz"] = "not a readable .npz file"
    broken = bytearray(good)
    broken[200:210] = b"\xff" * 10
    (tmp_path / "broken.npz").write_bytes(broken)
    texts["."] = "is a folder"
    for name in ("text.npz", "empty.npz", "pickled.npz", "broken.npz"):
        texts[name] = "not a readable .npz file"
    for name, text in texts.items():
        with pytest.raises(FileError) as caught:
            replay_case(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: {text}")
        assert "\n" not in str(caught.value)


def test_a_wrong_configuration_names_the_file(case):
    with pytest.raises(ConfigError, match="c.npz: unknown preset 'huge'"):
        replay_case(case(config="huge"))


def test_devices_without_given_addresses_cannot_replay(case, monkeypatch):
    monkeypatch.setitem(device._DEVICES, "remote", ("types", "SimpleNamespace"))
    monkeypatch.setattr(device, "open_device", lambda name, cfg: None)
    with pytest.raises(UnsupportedError, match="unknown device 'nowhere'"):
        replay_case(case(), on="nowhere")
    monkeypatch.setattr("tilewright.sim.replay.open_device", lambda name, cfg: object())
    with pytest.raises(UnsupportedError, match="device 'remote' cannot replay cases"):
        replay_case(case(), on="remote")
