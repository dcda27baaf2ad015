"""apps/odimo/task.py: hooks of users and what they get wrong, the digits, what channels choose between."""

import numpy as np
import pytest

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
from tilewright.hw.errors import FileError, InputError, UnsupportedError
from tilewright.hw.units import COMPUTE_UNITS

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
