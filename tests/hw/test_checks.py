"""hw/checks.py, hw/fields.py, hw/circuit.py: what is legal, the nearest that is, sizes, declarations."""

import dataclasses
import itertools
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tilewright.apps.explore.area import area_of
from tilewright.apps.explore.evaluate import misfit as unexplored
from tilewright.apps.explore.trial import small_network
from tilewright.boards.zynq.board import load_board
from tilewright.cli.config import accepts
from tilewright.compiler.network import compile_graph
from tilewright.hw import checks
from tilewright.hw.checks import VTA_BYTES, VTA_ENTRIES, absent_sizes, misfit, nearest, resized
from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import EXTENSIONS as KNOWN
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import ConfigError, UnsupportedError
from tilewright.hw.fields import EXTENSIONS, Fields, Part, names, number, parameters, power, switch, text
from tilewright.hw.rtl.verilog import to_verilog
from tilewright.runtime.program import Program
from tilewright.sim.timing import predict


@pytest.mark.parametrize(
    "value, nearest",
    [
        (12, "are 8 and 16"),
        (20, "are 16 and 32"),
        (255, "are 128 and 256"),
        (300, "is 256"),
        (10**30, "is 256"),
        (-1, "is 1"),
        (16.5, "are 16 and 32"),
        ("16", "is 16"),
        (float("inf"), "is 256"),
    ],
)
def test_the_nearest_powers_of_two(value, nearest):
    with pytest.raises(ConfigError, match=f"; nearest {nearest}$"):
        Config.from_dict({"block_in": value})


@pytest.mark.parametrize("value", [float("nan"), True, [16], "sixteen", None])
def test_what_is_no_number_has_none_near(value):
    with pytest.raises(ConfigError, match="must be an integer$"):
        Config.from_dict({"block_in": value})


def test_the_nearest_value_is_legal_for_every_number():
    for name, parameter in parameters(Config).items():
        if not parameter.high:
            continue
        for value in (parameter.high + 1, parameter.low - 1):
            with pytest.raises(ConfigError) as found:
                Config.from_dict({name: value})
            (number,) = re.findall(r"(?:nearest is|must be) (\d+)$", str(found.value))
            assert parameter.low <= int(number) <= parameter.high


def test_texts_stay_short_whatever_the_value():
    long = "x" * 5000
    for values in ({"name": f"{long}\n"}, {"block_in": long}, {long: 1}, {"extensions": [long]}, {"batch": [1] * 999}):
        with pytest.raises(ConfigError) as found:
            Config.from_dict(values)
        assert len(str(found.value)) <= 300


def test_unknown_names_show_those_that_are_alike():
    with pytest.raises(ConfigError, match="^Config has no field 'acc_bites'; it has acc_bits, acc_bytes"):
        checks.check_field_names({"acc_bites": 1}, parameters(Config))
    with pytest.raises(ConfigError, match="^Config has no field 'zzz'; `tilewright config --help` lists the fields$"):
        checks.check_field_names({"zzz": 1}, parameters(Config))
    with pytest.raises(ConfigError, match="nearest to depth_wise is depthwise$"):
        checks.check_extension_names(["depth_wise"], PRESETS["tiny"].extensions)
    with pytest.raises(ConfigError, match="known are acc8$"):
        checks.check_extension_names(["zzz"], ["acc8"])


def test_units_are_a_list_of_names():
    assert checks.check_units(["gemm"]) == ("gemm",)
    anything: Any = 3
    with pytest.raises(ConfigError, match="^Config.units = 3: must be a list of names; e.g. gemm$"):
        checks.check_units(anything)


def test_ranges_and_formats_of_the_presets_hold():
    for cfg in PRESETS.values():
        for check in (checks.check_ranges, checks.check_entries, checks.check_extensions, checks.check_sizes):
            check(cfg)


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


TINY = PRESETS["tiny"]


REFUSED = [
    (
        {"load_ports": 4, "axi_bits": 256},
        "Config.load_ports = 4: the load unit takes 512 bits at once, and with axi_bits = 256 its ports give 1024",
    ),
    ({"store_ports": 2}, "Config.store_ports = 2: the core has 1; use that"),
    ({"axi_bits": 256}, "Config.axi_bits = 256: extension requant needs entries of PAR that are whole beats, and "),
    (
        {"extensions": TINY.extensions | {"wgt4"}},
        "Config.axi_bits = 64: extension wgt4 takes 32 bits at once with block_out = 4, and the load unit has 1 port; "
        "use at most 32",
    ),
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
    assert unexplored(cfg, area_of(cfg)) == text
    found = accepts(cfg, load_board())
    assert [found[user] for user in ("networks", "timing", "rtl, synth", "board PYNQ-Z1")] == [(False, text)] * 4


@dataclass(frozen=True)
class Machine:
    """One field of each kind."""

    wheels: int = power(4, (2, 8), Part.FIRST, "wheels", "rubber", key="wheel_count")
    one: int = power(1, (1, 1), Part.FIRST, "a constant", "nothing")
    seats: int = number(3, (1, 6), Part.CIRCUIT, "seats", "room")
    fast: bool = switch(False, Part.CIRCUIT, "faster", "fuel")
    parts: tuple[str, ...] = names(("hood",), ("hood", "roof"), Part.LATER, "parts", "steel")
    label: str = text("car", Part.CIRCUIT, "its name", "nothing")
    plain: int = 2


def test_a_declaration_has_default_limits_and_description():
    found = parameters(Machine)
    assert list(found) == ["wheels", "one", "seats", "fast", "parts", "label", "plain"]
    assert Machine() == Machine(4, 1, 3, False, ("hood",), "car", 2)
    wheels = found["wheels"]
    assert (wheels.low, wheels.high, wheels.powers, wheels.key) == (2, 8, True, "wheel_count")
    legal = [found[name].legal for name in list(found)[:-1]]
    texts = ["powers of two, 2 to 8", "1", "1 to 6", "true, false", "names among hood, roof", "printable text"]
    assert legal == texts
    assert found["plain"].part == Part.LATER  # an undeclared field counts where it is not its default


@pytest.mark.parametrize("name, parameter", parameters(Config).items(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_field_of_a_configuration_says_what_it_is_and_costs(name, parameter):
    assert parameter.meaning and parameter.cost and parameter.legal
    (default,) = (f.default for f in dataclasses.fields(Config) if f.name == name)
    assert (default is None) == bool(parameter.usual)


def test_every_extension_says_what_it_is_and_costs():
    assert set(EXTENSIONS) == KNOWN
    assert all(extension.meaning and extension.cost for extension in EXTENSIONS.values())


def as_any(value: object) -> Any:
    return value


CIRCUIT = "name acc_banks axi_bits load_ports store_ports queue_depth token_depth ppu_lanes dsp_packing".split()


def test_fields_are_data_alone():
    assert dataclasses.fields(Fields) == dataclasses.fields(Config)
    assert Fields(batch=3).batch == 3  # Config checks
    assert Fields().inp_bytes is None


def test_what_describes_the_circuit_alone():
    assert [name for name, p in parameters(Fields).items() if p.part == Part.CIRCUIT] == CIRCUIT
    assert [name for name, p in parameters(Fields).items() if p.part == Part.LATER_CIRCUIT] == ["array_clock"]
    later = [name for name, p in parameters(Fields).items() if p.part == Part.LATER]
    assert later == ["tables", "units", "ternary_blocks", "twgt_bytes"]


def test_defaults_are_legal():
    for f in dataclasses.fields(Fields):
        parameter, default = parameters(Fields)[f.name], as_any(f.default)
        if parameter.high and default is not None:
            assert parameter.low <= default <= parameter.high
