"""Mappings of channels: files, refusals, costs against the timing model, and the mapping of the least cost."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.cli.bench.two_units import WORKLOADS, network
from tilewright.compiler import graph as g
from tilewright.compiler.mapping import (
    ChannelMapping,
    Costs,
    by_layer,
    candidates,
    read_mapping,
    regroup,
    split,
    ternary_channels,
    ternary_channels_of,
    write_mapping,
)
from tilewright.compiler.network import compile_graph, min_cost
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError, InputError, TilewrightError, UnsupportedError
from tilewright.sim.timing import predict

MAPPING = ChannelMapping({"conv1": {"gemm": (0, 2), "ternary": (1, 3)}, "fc": {"gemm": (0,)}})


def test_a_file_has_a_line_for_each_layer_and_is_read_again(tmp_path):
    path = tmp_path / "mapping.json"
    write_mapping(MAPPING, path)
    assert path.read_text().splitlines() == [
        '{"version": 1, "layers": {',
        '  "conv1": {"gemm": [0, 2], "ternary": [1, 3]},',
        '  "fc": {"gemm": [0]}',
        "}}",
    ]
    assert read_mapping(path) == MAPPING == ChannelMapping.of(path) == ChannelMapping.of(MAPPING.to_dict())
    assert ChannelMapping.of(MAPPING) is MAPPING


def test_no_layers(tmp_path):
    path = tmp_path / "empty.json"
    with pytest.raises(FileError, match="no such file"):
        read_mapping(path)
    write_mapping(ChannelMapping({}), path)
    assert path.read_text() == '{"version": 1, "layers": {}}\n' and read_mapping(path) == ChannelMapping({})


def test_digests_do_not_depend_on_the_order():
    turned = ChannelMapping({"fc": {"gemm": (0,)}, "conv1": {"ternary": (3, 1), "gemm": (2, 0)}})
    assert turned.digest == MAPPING.digest != ChannelMapping({"fc": {"gemm": (0,)}}).digest


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("no", FileError, "cannot be read as JSON"),
        ("[]", InputError, "must be an object with `version` and `layers`"),
        ('{"version": 2, "layers": {}}', InputError, "version is 2; this release reads version 1"),
        ('{"version": true, "layers": {}}', InputError, "version is True"),
        ('{"version": 1, "layers": {"a": [1]}}', InputError, "`layers` must give an object of units"),
        ('{"version": 1, "layers": {"a": {"gemm": [0.5]}}}', InputError, "layer 'a': channels of 'gemm' must be"),
        ('{"version": 1, "layers": {"a": {"gemm": [-1]}}}', InputError, "must be a list of whole numbers from 0 on"),
        ('{"version": 1, "layers": {"a": {"gemm": 1}}}', InputError, "must be a list of whole numbers"),
        ('{"version": 1, "layers": {"a": {"gemm": [true]}}}', InputError, "must be a list of whole numbers"),
        ('{"version": 1, "layers": {"a": {"gemm": null}}}', InputError, "must be a list of whole numbers"),
        ('{"version": 1, "layers": {"a": {}, "a": {}}}', FileError, "key 'a' comes 2 times in one object"),
        ('{"version": 1, "layers": {"a": {"gemm": [0], "gemm": [1]}}}', FileError, "key 'gemm' comes 2 times"),
        ('{"version": 1, "layers": null}', InputError, "`layers` must give an object of units"),
        ('{"version": 1, "layers": {}, "more": 1}', InputError, "must be an object with `version` and `layers`"),
        ('{"version": "1", "layers": {}}', InputError, "version is '1'; this release reads version 1"),
        ('{"version": 1, "layers": {"' + "a" * 999 + '": {"gemm": 1}}}', InputError, "channels of 'gemm' must be"),
        ('{"version": [' + "1," * 999 + '1], "layers": {}}', InputError, "version is [1, 1"),
    ],
)
def test_other_files(tmp_path, text, error, said):
    path = tmp_path / "mapping.json"
    path.write_text(text)
    with pytest.raises(error) as caught:
        read_mapping(path)
    text = str(caught.value)
    assert said in text and text.startswith(str(path)) and "\n" not in text and len(text) <= 300 + len(str(path))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (5, "mapping: must be an object"),
        (None, "mapping: must be an object"),
        ({"version": 1, "layers": {1: {"gemm": [0]}}}, "mapping: 1 is no name"),
        ({"version": 1, "layers": {"a": {None: [0]}}}, "layer 'a': None is no name"),
    ],
)
def test_values_of_python(value, said):
    with pytest.raises(InputError, match=said):
        ChannelMapping.of(value)
    assert ChannelMapping.of({"version": 1, "layers": {"a": {"gemm": range(2)}}}).layers == {"a": {"gemm": (0, 1)}}


TINY, PYNQ = PRESETS["tiny_two"], PRESETS["pynq_z1"]
HALVES = {"gemm": (0, 1), "ternary": (2, 3)}


@pytest.fixture
def graph(net):
    made = net()
    made.add(g.MaxPool, [made.depthwise(made.conv(made.x, 4))], (1, 4, 8, 8), (1, 1), scale_of=made.ops[-1].output)
    return made.graph()


def refused(graph, layers, cfg=TINY):
    with pytest.raises(TilewrightError) as caught:
        ternary_channels(graph, ChannelMapping(layers), cfg)
    text = str(caught.value)
    assert "\n" not in text and len(text) <= 300
    assert isinstance(caught.value, UnsupportedError if cfg is PYNQ else InputError)
    return text


def test_the_ternary_channels_of_each_layer(graph):
    mapping = ChannelMapping({"qconv2d0": {"gemm": (0, 2), "ternary": (3, 1)}, "qconv2d1": {"gemm": (0, 1, 2, 3)}})
    assert ternary_channels(graph, mapping, TINY) == {"qconv2d0": {1, 3}}
    whole = ChannelMapping({"qconv2d0": {"gemm": (0, 1, 2, 3), "ternary": ()}})
    assert ternary_channels(graph, whole, PRESETS["tiny"]) == {}


@pytest.mark.parametrize(
    ("layer", "channels", "said"),
    [
        ("conv2d0", {"gemm": (0,)}, "layer 'conv2d0', which the network lacks; nearest are qconv2d0, qconv2d1"),
        ("###", {}, "its layers are qconv2d0, qconv2d1"),
        ("maxpool2", {"gemm": (0,)}, "is a MaxPool, without weights; drop it from the mapping"),
        ("qconv2d0", {"gemm": (0, 1, 2), "ternary": (2, 3)},
         "layer 'qconv2d0': channel 2 is mapped more than once; give each channel one unit"),
        ("qconv2d0", {"gemm": (0, 1, 1, 2, 3)}, "channel 1 is mapped more than once"),
        ("qconv2d0", {"gemm": range(6)}, "channels 4, 5 are unknown; its 4 channels are 0 to 3"),
        ("qconv2d0", {"gemm": (1,)}, "channels 0, 2, 3 are not mapped; give each of its 4 channels a unit"),
        ("qconv2d0", {"gemm": (10**6,)}, "channel 1000000 is unknown"),
        ("qconv2d0", {"gemm": tuple(10**400 + k for k in range(9))}, "are unknown"),
        ("qconv2d0", {}, "channels 0, 1, 2, 3 are not mapped"),
        ("qconv2d0", {"gemm": (), "ternary": ()}, "channels 0, 1, 2, 3 are not mapped"),
        ("qconv2d0", {"analog": (0,)}, "unknown unit 'analog'; units are gemm, ternary"),
        ("qconv2d0", {"GEMM": (0,)}, "unknown unit 'GEMM'"),
        ("qconv2d0", {"x" * 999: (0,)}, "unknown unit 'xxx"),
        ("qconv2d1", HALVES, "cannot be split over units: a depthwise convolution; map all of its channels to gemm"),
    ],
)  # fmt: skip
def test_mappings_that_do_not_fit_a_network(graph, layer, channels, said):
    assert said in refused(graph, {layer: channels})


def test_other_networks_and_configurations(graph, net):
    assert "has no layers with weights" in refused(g.Graph("g", graph.inputs, graph.inputs, ()), {"a": {}})
    text = refused(graph, {"qconv2d0": {"gemm": (0, 1, 2), "ternary": (3,)}}, PYNQ)
    assert "is mapped to unit ternary, which configuration pynq_z1 lacks: it has gemm alone" in text
    made = net(shape=(1, 4, 3, 3))
    made.add(g.QConv2d, [made.x], (1, 4, 3, 3), *made.parameters(4, (2, 1, 1)), groups=2)
    made.add(g.QConvTranspose2d, [made.x], (1, 4, 3, 3), *made.parameters(4, (4, 1, 1)))
    weight, *scales = made.parameters(4, (4, 1, 1))
    made.add(g.QConv2d, [made.x], (1, 4, 3, 3), weight.astype(np.int16), *scales)
    assert "a convolution of 2 groups" in refused(made.graph(), {"qconv2d0": HALVES})
    assert "a QConvTranspose2d" in refused(made.graph(), {"qconvtranspose2d1": HALVES})
    assert "beyond int8" in refused(made.graph(), {"qconv2d2": HALVES})


def test_long_names_are_cut(net):
    made = net()
    made.conv(made.x, 4)
    (op,) = made.ops
    ops = tuple(replace(op, name=f"{'a/' * 99}{k}", output=replace(op.output, name=f"y{k}")) for k in range(4))
    text = refused(g.Graph("g", (made.x,), (ops[0].output,), ops), {"a/" * 90: {}})
    assert text.count("a/a/a/a/a/...a/a/a/a/a/") == 1 and text.count("...") == 5


def test_candidates_leave_whole_blocks():
    assert candidates(16, 16, 4) == [0, 4, 8, 12, 16]
    assert candidates(10, 10, 4) == [0, 2, 6, 10]
    assert candidates(10, 7, 4) == [0, 2, 6, 7]
    assert candidates(3, 3, 16) == [0, 3]


def never(op, ternary):
    """What every cost is at least."""
    return float("-inf")


def test_a_bound_spares_costs(net):
    made = net()
    made.conv(made.x, 12)
    looked = []

    def cost(op, ternary):
        looked.append(ternary)
        return {0: 9, 4: 5, 8: 5, 12: 8}[ternary]

    mapping = by_layer(made.graph(), TINY, cost, lambda op, ternary: {0: 6, 4: 5, 8: 3, 12: 7}[ternary])
    assert numbers(mapping) == {"qconv2d0": 4} and looked == [8, 4]


def numbers(mapping):
    return {name: len(units["ternary"]) for name, units in mapping.layers.items()}


def test_the_cheapest_of_all_splits_and_of_equal_ones_the_one_with_more_on_gemm(net):
    made = net()
    made.dense(made.flat(made.total(made.conv(made.x, 12), made.conv(made.x, 12))), 10)
    graph = made.graph()
    rng = np.random.default_rng(0)
    for _ in range(20):
        table = {(op.name, k): int(rng.integers(0, 5)) for op in graph.layers for k in range(13)}
        mapping = by_layer(graph, TINY, lambda op, ternary, table=table: table[op.name, ternary], never)
        for op in graph.layers:
            every = [(table[op.name, k], k) for k in candidates(len(op.weight), len(op.weight), 4)]
            assert numbers(mapping)[op.name] == min(every)[1]
        regroup(graph, mapping, TINY)  # no two layers disagree


def test_layers_with_other_weights(net):
    made = net()
    x = made.conv(made.x, 8)
    y = made.conv(made.x, 8, ternary=False)
    made.total(x, y)
    z = made.conv(made.x, 8)
    z = made.total(z, made.conv(made.x, 8))
    first, second = (op for op in made.graph().layers if op.output.name in (z.name, "t3", "t4"))
    first.weight[:3] = 5 * np.arange(first.weight[:3].size).reshape(first.weight[:3].shape) % 7
    second.weight[4] = np.arange(27).reshape(3, 3, 3)
    graph = made.graph()
    found = {op.name: channels for op, channels in ternary_channels_of(graph)}
    assert found == {"qconv2d0": list(range(8)), "qconv2d3": [3, 5, 6, 7], "qconv2d4": [3, 5, 6, 7]}
    mapping = by_layer(graph, TINY, lambda op, ternary: -ternary, never)
    assert mapping.layers["qconv2d3"] == {"gemm": (0, 1, 2, 4), "ternary": (3, 5, 6, 7)}
    assert {op.ternary for op in regroup(graph, mapping, TINY).layers if isinstance(op, g.Divisible)} == {0, 4, 8}


@pytest.mark.parametrize("name", ["tiny", "pynq_z1"])
def test_without_the_unit_nothing_is_split(net, name):
    made = net()
    made.conv(made.x, 8)
    assert min_cost(made.graph(), PRESETS[name]).layers == {}


def test_a_wrong_estimate_is_no_slower_than_one_unit_alone(net, monkeypatch):
    class Wrong:
        def __init__(self, graph, cfg):
            pass

        def __call__(self, op, ternary):
            return abs(ternary - 4)

        least = __call__

    monkeypatch.setattr("tilewright.compiler.network.Costs", Wrong)
    made = net()
    made.conv(made.conv(made.x, 16), 16)
    assert numbers(min_cost(made.graph(), TINY)) == {"qconv2d0": 16, "qconv2d1": 16}


@pytest.fixture(scope="module")
def resnet():
    widths = WORKLOADS["resnet8-units"]
    layers = network(widths, {}).layers
    return network(widths, {op.name: len(op.weight) for op in layers})


@pytest.mark.parametrize("name", ["first", "block1.a", "block2.a", "block3.b"])
def test_against_the_timing_model(resnet, name):
    cfg = PRESETS["pynq_z1_two"]
    (op,) = (op for op in resnet.layers if op.name == name and isinstance(op, g.Divisible))
    costs, count = Costs(resnet, cfg), len(op.weight)
    one = g.Graph(name, (op.x,), (op.output,), (op,))
    for ternary in candidates(count, count, cfg.block_out):
        mapping = ChannelMapping({name: split(count, range(count - ternary, count))})
        executable = compile_graph(one, cfg, mapping=mapping)
        real = sum(predict(step.launch).cycles for step in executable.launches)
        assert abs(costs(op, ternary) / real - 1) < 0.25, ternary
        found = costs.split(op, ternary)
        assert found.cycles == costs(op, ternary) and found.ternary == ternary
        assert (found.units["gemm"] > 0) == (ternary < count) and (found.units["ternary"] > 0) == (ternary > 0)


def test_what_bounds_a_layer(resnet):
    cfg = PRESETS["pynq_z1_two"]
    ops = {op.name: op for op in resnet.layers if isinstance(op, g.Divisible)}
    costs = Costs(resnet, cfg)
    assert costs.split(ops["block3.b"], 16).bound == "gemm" and costs.split(ops["block3.b"], 48).bound == "ternary"
    assert costs.split(ops["block3.skip"], 64).bound == "transfers"
    assert costs(ops["block1.a"], 1) == costs(ops["block1.a"], 16) or costs.split(ops["block1.a"], 1).units["gemm"] > 0


def test_layers_that_fit_nowhere(resnet):
    cfg = PRESETS["tiny_two"].replace(name="small", twgt_bytes=64)
    op = resnet.layers[1]
    assert isinstance(op, g.Divisible)
    assert Costs(resnet, cfg)(op, 16) == float("inf") > Costs(resnet, cfg)(op, 0)
