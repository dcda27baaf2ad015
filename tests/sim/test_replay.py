import json

import numpy as np
import pytest

from tests.sim.conftest import Machine
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ConfigError, FileError, UnsupportedError
from tilewright.hw.isa import Mem, Op
from tilewright.runtime import registry
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import random_case
from tilewright.sim.replay import replay_case

TINY = PRESETS["tiny"]
UOPS = [(1, 2, 3), (4, 5, 6), (7, 8, 9)]


@pytest.fixture
def case(tmp_path):
    """Writes a case that loads micro-ops twice and stores accumulators; `change` alters its arrays or meta."""

    def write(cfg=TINY, config="tiny", change=lambda arrays, meta: None, name="c"):
        m = Machine(cfg, nbytes=4099)
        m.put_uops(UOPS, 512)
        loads = [{"op": Op.LOAD, "mem": Mem.UOP, "dram_base": 128 + at, "x_size": n} for at, n in ((1, 2), (0, 2))]
        store = {"op": Op.STORE, "mem": Mem.OUT, "dram_base": 2048 // cfg.out_entry_bytes, "y_size": 1, "x_size": 3}
        insns = [*loads, store, {"op": Op.FINISH}]
        address, count = m.put(insns, 1024)
        before = m.dram.copy()
        m.model.run(address, count)
        meta = {"name": name, "insn_addr": address, "insn_count": count, "config": config}
        meta["buffers"] = [{"name": "out", "addr": 2040, "size": 64}]
        words = before[512:524].view("<u4")
        arrays = {"insn": m.words(insns), "uop": words[[1, 2, 0, 1]], "dram_in": before, "dram_out": m.dram}
        change(arrays, meta)
        arrays.setdefault("meta", np.array(json.dumps(meta)))
        np.savez_compressed(tmp_path / f"{name}.npz", **{k: v for k, v in arrays.items() if v is not None})
        return tmp_path / f"{name}.npz"

    return write


@pytest.mark.parametrize("cfg", [TINY, PRESETS["pynq_z1"]], ids=lambda c: c.name)
@pytest.mark.parametrize("seed", range(3))
def test_random_programs_of_all_extensions_replay(tmp_path, cfg, seed):
    image, address, count = random_case(cfg, seed)
    after = image.copy()
    ModelDevice(cfg).run_image(after, address, count)
    assert (after != image).any()
    meta = json.dumps({"insn_addr": address, "insn_count": count, "config": cfg.name})
    np.savez_compressed(tmp_path / "case.npz", dram_in=image, dram_out=after, meta=np.array(meta))
    result = replay_case(tmp_path / "case.npz")
    assert result.passed and result.stats.bytes_stored["OUTQ"]


BATCH = TINY.replace(name="two", batch=2, inp_bytes=512)


@pytest.mark.parametrize(
    "cfg, config",
    [
        (TINY, "tiny"),
        (PRESETS["vta"], "1x16_i8w8a32_15_15_18_17"),
        (PRESETS["vta"], "vta"),
        (BATCH, BATCH.to_dict()),
    ],
)
def test_a_case_passes_and_its_configuration_is_a_name_a_vta_string_or_fields(case, cfg, config):
    result = replay_case(str(case(cfg, config)))
    assert (result.name, result.passed, result.detail) == ("c", True, "")
    assert result.stats.bytes_stored == {"OUT": 3 * cfg.out_entry_bytes}


@pytest.mark.parametrize("at, where", [(2050, " (out + 10)"), (2103, " (out + 63)"), (2104, ""), (4098, "")])
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
        arrays["insn"] = arrays["insn"][:1]
        arrays["uop"] = arrays["uop"][:2]

    result = replay_case(case(change=cut))
    assert not result.passed
    assert result.detail.startswith("the program has no FINISH")


def setter(key, value):
    return lambda arrays, meta: (arrays if key in ARRAYS else meta).__setitem__(key, value)


def flip(key, index):
    def change(arrays, meta):
        arrays[key][index] ^= arrays[key].dtype.type(1)

    return change


def shorten(arrays, meta):
    arrays["uop"] = arrays["uop"][:-1]


def lengthen(arrays, meta):
    arrays["uop"] = np.append(arrays["uop"], np.uint32(0))


def empty(arrays, meta):
    arrays["dram_in"] = arrays["dram_out"] = np.zeros(0, np.uint8)


ARRAYS = ("dram_in", "dram_out", "meta", "insn", "uop")
COUNT = "must be an integer from 0 to 2**63 - 1"
MALFORMED = [
    (setter("dram_in", None), "not a case: it lacks dram_in"),
    (empty, "dram_in has no bytes; it must hold the whole memory"),
    (setter("meta", np.array("{")), "meta: cannot be read as JSON (Expecting property name"),
    (setter("meta", np.array(json.dumps([1]))), "meta is [1], must be an object"),
    (setter("meta", np.array(json.dumps({"insn_addr": 0}))), "meta lacks insn_count"),
    (setter("insn_addr", "x"), f"meta.insn_addr is 'x', {COUNT}"),
    (setter("insn_addr", -16), f"meta.insn_addr is -16, {COUNT}"),
    (setter("insn_addr", 10**4000), "meta: cannot be read as JSON (a number of 4,001 characters"),
    (setter("insn_addr", 4064), "instructions at 0xfe0 to 0x1020 are outside its memory"),
    (setter("insn_count", float("inf")), "meta: cannot be read as JSON (Infinity is no number"),
    (setter("insn_count", 4.9), f"meta.insn_count is 4.9, {COUNT}"),
    (setter("insn_count", True), f"meta.insn_count is True, {COUNT}"),
    (setter("config", None), "meta.config is None, must be a preset, a VTA string or the fields of a configuration"),
    (setter("config", "tiny.json"), "meta.config is 'tiny.json', must be a preset, a VTA string or"),
    (setter("name", "two\nlines"), "meta.name is 'two\\nlines', must be text of printable characters"),
    (setter("name", 3), "meta.name is 3, must be text"),
    (setter("buffers", {}), "meta.buffers is {}, must be a list"),
    (setter("buffers", ["abc"]), "meta.buffers[0] is 'abc', must be an object"),
    (setter("buffers", [{"name": "a", "addr": "0x10", "size": 3}]), f"meta.buffers[0].addr is '0x10', {COUNT}"),
    (setter("buffers", [{"name": "a", "addr": 16}]), "meta.buffers[0] lacks size"),
    (setter("dram_out", np.zeros(9, np.uint8)), "dram_in has 4099 bytes, dram_out 9"),
    (setter("dram_in", np.zeros(9, np.int32)), "dram_in is int32 (9,), must be uint8 (n,)"),
    (setter("dram_out", np.zeros((3, 3), np.uint8)), "dram_out is uint8 (3, 3), must be uint8 (n,)"),
    (flip("insn", (2, 1)), "insn and dram_in differ in 1 instructions; the first is instruction 2"),
    (flip("dram_in", 1024 + 8), "insn and dram_in differ in 1 instructions; the first is instruction 0"),
    (setter("insn", np.zeros((3, 2), np.uint64)), "insn is uint64 (3, 2), must be uint64 (4, 2) as meta.insn_count"),
    (setter("insn", np.zeros((4, 2))), "insn is float64 (4, 2), must be uint64 (4, 2)"),
    (flip("uop", 1), "uop and dram_in differ between micro-ops 0 and 1"),
    (flip("uop", 2), "uop and dram_in differ between micro-ops 2 and 3"),
    (shorten, "uop and dram_in differ between micro-ops 2 and 3"),
    (lengthen, "uop has 5 micro-ops, the program loads 4"),
    (setter("uop", np.zeros(4, np.int32)), "uop is int32 (4,), must be uint32 (n,)"),
]


@pytest.mark.parametrize("change, text", MALFORMED, ids=[text for _, text in MALFORMED])
def test_a_malformed_case_is_named_in_one_line(case, change, text):
    path = case(change=change)
    with pytest.raises(FileError) as caught:
        replay_case(path)
    assert str(caught.value).startswith(f"{path}: {text}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key, value", [("insn", None), ("uop", None), ("oracle", {"of": ["anything"]})])
def test_copies_may_be_absent_and_unknown_fields_are_ignored(case, key, value):
    assert replay_case(case(change=setter(key, value))).passed


def test_micro_ops_beyond_memory_fail_as_the_program_does(case):
    def beyond(arrays, meta):
        low = arrays["dram_in"][1024:1032].view("<u8")
        low |= np.uint64(0xFFFF << 26)  # dram_base of the first instruction
        arrays["dram_out"][1024:1032] = arrays["dram_in"][1024:1032]
        arrays["insn"] = None

    result = replay_case(case(change=beyond))
    assert not result.passed
    assert result.detail.startswith("instruction 0 (LOAD.UOP") and "are outside 0..0x1002" in result.detail


def test_files_that_are_no_cases(case, tmp_path):
    good = case().read_bytes()
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "pickled.npz", dram_in=np.array([{}], object), dram_out=np.zeros(3, np.uint8), meta="{}")
    texts = {"none.npz": "no such file", "one.npy": "is one array (.npy); give a recorded case"}
    for size in range(len(good) // 16, len(good), len(good) // 16):
        (tmp_path / f"cut{size}.npz").write_bytes(good[:size])
        texts[f"cut{size}.npz"] = "not a readable .npz file"
    broken = bytearray(good)
    broken[2000:2010] = bytes(255 - b for b in broken[2000:2010])  # in the middle of dram_in
    (tmp_path / "broken.npz").write_bytes(broken)
    texts["."] = "is a folder"
    texts |= {"text.npz": "is a text; give a recorded case", "empty.npz": "is an empty file"}
    for name in ("pickled.npz", "broken.npz"):
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
    monkeypatch.setitem(registry._DEVICES, "remote", registry.Entry("types", "SimpleNamespace", ""))
    with pytest.raises(UnsupportedError, match="unknown device 'nowhere'"):
        replay_case(case(), on="nowhere")
    monkeypatch.setattr("tilewright.sim.replay.open_device", lambda name, cfg: object())
    with pytest.raises(UnsupportedError, match="device 'remote' cannot replay cases"):
        replay_case(case(), on="remote")
