"""apps/odimo without torch: tasks and hooks, choices in whole blocks, networks in integers."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from tilewright.apps.odimo import mapping as m
from tilewright.apps.odimo.integers import ARRAYS, IntegerNetwork, to_graph
from tilewright.apps.odimo.task import (
    ALTERNATIVES,
    MIN_COST,
    TYPE,
    UNIT,
    Recipe,
    Task,
    digits_data,
    digits_model,
    hook_functions,
)
from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.hw.errors import FileError, InputError, UnsupportedError
from tilewright.hw.units import COMPUTE_UNITS

from .conftest import layer

GOOD = """
import numpy as np


def model():
    return "the model"


def data():
    images = np.zeros((3, 1, 4, 4), np.float32)
    return (images, [0, 1, 2]), (images[:2], [0, 1])
"""


@pytest.fixture
def hook(tmp_path):
    def write(text):
        path = tmp_path / "net.py"
        path.write_text(text)
        return str(path)

    return write


def test_a_hook_gives_model_and_data(hook):
    task = Task(hook(GOOD), recipe=Recipe(batch=3))
    train, test = task.data()
    assert task.name == "net" and task.model() == "the model"
    assert train.images.shape == (3, 1, 4, 4) and test.labels.tolist() == [0, 1]


def test_facts_change_with_source_width_and_recipe(hook):
    path = hook(GOOD)
    first = Task(path).facts
    assert Task(path, width=16).facts == first  # a hook has no width
    assert Task(path, recipe=Recipe(search=2)).facts != first
    hook(GOOD + "\n# another\n")
    assert Task(path).facts != first
    assert Task(width=8).facts != Task(width=16).facts and Task().name == "digits"


@pytest.mark.parametrize(
    ("text", "error", "part"),
    [
        ("def model(): pass", InputError, r"has no function data\(\); it must have model\(\) and data\(\)"),
        ("1 / 0", UnsupportedError, "ZeroDivisionError: division by zero; the file must run by itself"),
    ],
)
def test_files_that_are_no_hook(hook, text, error, part):
    with pytest.raises(error, match=part):
        hook_functions(hook(text))


def test_a_missing_file():
    with pytest.raises(FileError, match=r"nothing.py: no such file; give a Python file with model\(\) and data\(\)"):
        hook_functions("nothing.py")


def test_data_of_another_form(hook):
    with pytest.raises(InputError, match="must return .images, labels. to train with, and to test"):
        Task(hook(GOOD.replace("), (images[:2], [0, 1])", ")"))).data()
    with pytest.raises(InputError, match="float64 images .3, 1, 4, 4. and 3 labels; images must be float32"):
        Task(hook(GOOD.replace("np.float32", "np.float64"))).data()
    with pytest.raises(InputError, match="and 2 labels; images must be float32 .N, C, H, W., with a label for each"):
        Task(hook(GOOD.replace("[0, 1, 2]", "[0, 1]"))).data()


def test_less_data_than_a_batch(hook):
    with pytest.raises(
        InputError, match=r"net.py: data\(\) gives 3 images to train with; a batch has 64, so give as many at least"
    ):
        Task(hook(GOOD)).data()


def test_what_channels_choose():
    assert Task(choice="type").name == "digits-type" and Task(choice="type").facts != Task().facts
    with pytest.raises(InputError, match="Task.choice = 'size': must be one of unit, type"):
        Task(choice="size")


def test_sides_and_baselines():
    assert ALTERNATIVES[UNIT].names == tuple(COMPUTE_UNITS) and ALTERNATIVES[TYPE].names == ("conv", "depthwise")
    assert all(one.baselines[0].startswith("all-") and MIN_COST in one.baselines for one in ALTERNATIVES.values())
    every = [kind for one in ALTERNATIVES.values() for kind in one.baselines[:2]]
    assert len(set(every)) == 4  # a baseline's name says the choice


def test_the_temperature_falls_to_its_floor():
    recipe = Recipe()
    found = [recipe.temperature(epoch) for epoch in range(60)]
    assert found[0] == 1 and found == sorted(found, reverse=True) and found[-1] == recipe.coldest


def test_digits():
    pytest.importorskip("sklearn")
    (images, labels), (held, held_labels) = digits_data()
    assert images.shape == (1200, 1, 8, 8) and held.shape == (597, 1, 8, 8) and images.dtype == np.float32
    assert np.array_equal(images * 64, np.round(images * 64)) and set(labels) == set(held_labels) == set(range(10))
    assert np.array_equal(digits_data()[1][0], held)


def test_the_network_has_layers_of_its_width():
    pytest.importorskip("torch")
    from tilewright.apps.odimo.torch_network import trace

    network = trace(digits_model(12), np.ones((1, 1, 8, 8), np.float32))
    assert list(network.sizes().values()) == [12, 12, 12, 12, 10]
    assert [node.shape for node in network.nodes][:4] == [(12, 8, 8), (12, 8, 8), (12, 4, 4), (12, 2, 2)]


def test_whole_blocks_on_gemm():
    assert m.allowed(10, 4) == [0, 4, 8, 10]
    assert m.allowed(8, 4) == [0, 4, 8]
    assert m.allowed(3, 16) == [0, 3]


@pytest.mark.parametrize("wanted, digital", [(0, 0), (1, 0), (2, 4), (3, 4), (5, 4), (6, 8), (8, 8)])
def test_rounding_goes_to_the_nearest_number_of_blocks_and_of_two_to_more_int8(wanted, digital):
    preference = np.where(np.arange(8) < wanted, -1.0, 1.0) - np.arange(8) / 100
    assert m.nearest({"a": preference}, 4) == {"a": digital}


def test_channels_whose_preference_is_weakest_move():
    found = m.preferred({"a": np.array([0.5, -2.0, 0.1, -1.0, -0.5, 3.0])}, {"a": 4})["a"]
    assert found.tolist() == [True, False, False, False, False, True]


def test_layers_of_one_sum_are_nested():
    rng = np.random.default_rng(0)
    preference = {name: rng.normal(shift, 1, 16) for name, shift in (("a", -0.6), ("b", 0.6), ("c", 0.0))}
    numbers = m.nearest(preference, 4)
    found = m.preferred(preference, numbers, [["a", "b"]])
    assert m.on_gemm(found) == numbers and numbers["a"] > numbers["b"]
    assert not (found["a"] & ~found["b"]).any()
    assert (found["c"] == m.preferred(preference, numbers)["c"]).all()


def test_fixed_choices():
    sizes = {"a": 8, "b": 4, "c": 10}
    assert m.share(m.all_on(sizes, m.GEMM)) == 0 and m.share(m.all_on(sizes, m.TERNARY)) == 1
    assert {name: chosen.all() for name, chosen in m.ends_on_gemm(sizes).items()} == {"a": 0, "b": 1, "c": 0}


def test_channels_are_named_by_unit():
    assert m.channels({"a": np.array([True, False, True])}) == {"a": {"gemm": [1], "ternary": [0, 2]}}
    assert m.channels({"a": np.array([False, True])}, ("conv", "depthwise")) == {"a": {"conv": [0], "depthwise": [1]}}


def test_numbers_that_the_cost_counted_go_before_signs():
    """Ten undecided channels, each a third ternary, are three channels' worth of ternary."""
    preference = {"a": np.linspace(-0.2, -0.1, 10)}
    assert m.nearest(preference, 4) == {"a": 10} and m.nearest(preference, 4, {"a": 6.7}) == {"a": 8}


@pytest.mark.parametrize(
    "asked, expected", [(0, [0]), (0.1, [0, 4]), (4, [4]), (7.9, [4, 8]), (8.1, [8, 10]), (10, [10]), (10.0001, [10])]
)
def test_what_lies_around_a_number(asked, expected):
    assert m.around({"a": np.zeros(10)}, 4, {"a": asked}) == {"a": expected}


def test_the_first_channels_by_number():
    found = m.by_number({"a": 3, "b": 2}, {"a": 2, "b": 0})
    assert {name: chosen.tolist() for name, chosen in found.items()} == {"a": [False, False, True], "b": [True, True]}
    assert m.on_gemm(found) == {"a": 2, "b": 0} and m.counts(found) == {"a": (2, 1), "b": (0, 2)}


OPTIONS = {"a": [0, 4, 8], "b": [0, 4, 8, 10], "c": [0, 4]}


def test_descent_ends_where_no_neighbour_has_less():
    """Random values of all mappings, seed 5: each neighbour of the result is asked, none has less, none twice."""
    rng = np.random.default_rng(5)
    values = {key: rng.random() for key in itertools.product(*OPTIONS.values())}
    asked = []

    def value(numbers):
        asked.append(tuple(numbers.values()))
        return values[asked[-1]]

    for start in values:
        asked.clear()
        found = tuple(m.descend(dict(zip(OPTIONS, start)), OPTIONS, value).values())
        assert values[found] <= values[start] and len(asked) == len(set(asked))
        for k, options in enumerate(OPTIONS.values()):
            at = options.index(found[k])
            for number in options[max(0, at - 1) : at + 2]:
                other = (*found[:k], number, *found[k + 1 :])
                assert other in asked and values[found] <= values[other]


def test_descent_by_pairs_moves_two_layers_in_a_row():
    """Fewer cycles only where a and b change together; c is not beside a."""
    best = {"a": 4, "b": 4, "c": 4}, {"a": 0, "b": 8, "c": 4}

    def value(numbers):
        return 3 - best.index(numbers) if numbers in best else 9

    assert m.descend(best[0], OPTIONS, value) == best[0] and m.descend(best[0], OPTIONS, value, True) == best[1]
    best = best[0], {"a": 0, "b": 4, "c": 0}
    assert m.descend(best[0], OPTIONS, value, True) == best[0]


def test_a_network_becomes_an_operator_per_node(residual):
    graph = to_graph(residual, "net")
    kinds = [type(op) for op in graph.ops]
    pooled = [g.MaxPool, g.AveragePool, g.Reshape, g.QDense]
    assert kinds == [g.Quantize, g.QConv2d, g.QConv2d, g.Add, *pooled, g.Dequantize]
    assert [op.name for op in graph.ops[1:-1]] == [node.name for node in residual.nodes]
    assert graph.outputs[0].shape == (1, 6) and graph.inputs[0].dtype == "float32"


def test_json_keeps_every_value(residual):
    found = IntegerNetwork.from_json(json.loads(json.dumps(residual.to_json())))
    assert (found.input_shape, found.input_scale) == (residual.input_shape, residual.input_scale)
    for one, other in zip(found.nodes, residual.nodes):
        for key, value in vars(other).items():
            same = np.array_equal if key in ARRAYS else lambda a, b: a == b
            assert same(getattr(one, key), value) and type(getattr(one, key)) is type(value)


@pytest.mark.parametrize("count", [4, 12])
def test_channels_of_two_types_are_one_convolution_with_zeros_beside_the_diagonal(count):
    whole = layer("a", "input", 12, 12, (6, 6), stride=2)
    assert whole.weight is not None
    zeros = whole.weight.copy()
    for channel in range(12 - count, 12):
        zeros[channel] *= (np.arange(12) == channel)[:, None, None]
    graphs = [
        to_graph(IntegerNetwork((12, 6, 6), 2.0**-6, (node,)), "net")
        for node in (replace(whole, depthwise=count), replace(whole, weight=zeros))
    ]
    images = np.random.default_rng(0).standard_normal((1, 12, 6, 6)).astype(np.float32)
    typed, plain = (reference.trace(graph, {"image": images}, "double")["scores"] for graph in graphs)
    assert np.array_equal(typed, plain)
