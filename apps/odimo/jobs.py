"""The work of a front as jobs for compiler/jobs.py: functions of one picklable argument whose results JSON holds.

`warm_up` and `train` need torch; `layer` and `deploy` compile. An argument's `key` names all that its result depends
on, so that a front that was killed goes on with what is missing.
"""

from __future__ import annotations

import base64
import io
import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeAlias, cast

import numpy as np

from ...compiler.jobs import content_key
from ...compiler.network import launch_cycles
from ...hw.config import Config
from ...hw.errors import UnsupportedError
from . import costs
from . import mapping as choices
from .costs import LayerShape, Power, compile_point, device_scores, from_json, layer_cost, shapes, to_json
from .integers import IntegerNetwork, to_graph
from .mapping import Choice, Numbers
from .task import ALTERNATIVES, MIN_COST, UNIT, Task

SEARCH = "lambda"
Facts: TypeAlias = dict[str, Any]  # a result, as JSON holds it
VERSION = 6  # of what jobs compute; another one makes stored results unknown


class Job:
    """A job's argument: a dataclass."""

    @property
    def key(self) -> str:
        """A digest of all that the result depends on: the fields that count in comparisons."""
        compared = (getattr(self, one.name) for one in fields(cast(Any, self)) if one.compare)
        return content_key(type(self).__name__, VERSION, *map(_facts, compared))


def _facts(value: object) -> object:
    """The value of a field as JSON, short enough for a key."""
    if isinstance(value, (Task, Config)):
        return value.facts if isinstance(value, Task) else value.fingerprint
    if isinstance(value, Job):
        return value.key
    return asdict(value) if isinstance(value, (LayerShape, Power)) else value


@dataclass(frozen=True)
class WarmUp(Job):
    """Train a network with equal shares: the start of every point of a seed."""

    task: Task
    seed: int


@dataclass(frozen=True)
class Layer(Job):
    """Fill the tables of a layer of that shape."""

    config: Config
    shape: LayerShape
    choice: str = UNIT


@dataclass(frozen=True)
class Launch(Job):
    """Measure launches of a warmed-up network, its `network`, for the tables `costs` of all its layers, as JSON.

    With a `name` this layer's splits are measured, else mappings on the way to the fastest.
    """

    config: Config
    start: WarmUp
    costs: str
    network: Facts = field(compare=False, repr=False)
    name: str = ""


@dataclass(frozen=True)
class Train(Job):
    """Train one point from the `state` of its warm-up: a search of strength `strength`, or the baseline `kind`.

    `costs` is the JSON of the layers' tables, `fastest` the numbers of channels on the first side in the mapping of
    Min-Cost; `power` makes the search one for energy. `network` is that of the warm-up, whose launches are measured.
    """

    start: WarmUp
    kind: str
    strength: float
    config: Config
    costs: str
    fastest: Numbers
    power: Power | None
    state: str = field(compare=False, repr=False)
    network: Facts = field(compare=False, repr=False)


@dataclass(frozen=True)
class Deploy(Job):
    """Compile a trained point, the result of `train`, write it to `path`, and compare its scores with torch's."""

    config: Config
    task: Task
    name: str
    path: str
    trained: Facts = field(repr=False)


def warm_up(job: WarmUp) -> Facts:
    """{"state": the weights, "shapes": of the layers by name, "network": integers with all channels on the first side,
    "accuracy": percent}.
    """
    from . import torch_integers, torch_training
    from .torch_layers import torch
    from .torch_network import trace

    train, test = job.task.data()
    torch_training.repeatable(job.seed)
    network = trace(job.task.model(), train.images, job.task.choice)
    if not network.sizes():
        raise UnsupportedError("no layer has a choice; types need convolutions of as many outputs as inputs")
    torch_training.warm_up(network, train, job.task.recipe, job.seed)
    accuracy = torch_training.accuracy(network, test)
    network.assign(choices.all_on(network.sizes(), choices.GEMM))
    integers = torch_integers.integers(network, train.images.shape[1:])
    found = shapes(integers)
    buffer = io.BytesIO()
    torch.save(network.state_dict(), buffer)
    return {
        "state": base64.b64encode(buffer.getvalue()).decode(),
        "shapes": {name: found[name].to_json() for name in network.sizes()},
        "network": integers.to_json(),
        "accuracy": accuracy,
    }


def layer(job: Layer) -> Facts:
    """The tables of a layer, as `tables.to_json` has them."""
    return to_json({"layer": layer_cost(job.config, job.shape, job.choice)})


def in_launch(job: Launch) -> Facts:
    """The tables of layer `job.name` by launches of the whole network, as `to_json` has them."""
    cost, measured = from_json(json.loads(job.costs))[job.name], _launches(job)
    return to_json({"layer": cost if measured is None else costs.in_launch(cost, measured, job.name, _sizes(job))})


def fastest(job: Launch) -> Numbers:
    """The numbers of channels on the first side in the mapping of Min-Cost."""
    tables, sizes, block, measured = from_json(json.loads(job.costs)), _sizes(job), job.config.block_out, _launches(job)
    if measured is None:
        return choices.on_gemm(costs.cheapest(sizes, tables, block))
    return costs.fastest(measured, sizes, tables, block)


def _launches(job: Launch | Train) -> costs.Launches | None:
    """Launches of the network of a job's warm-up; None for a configuration that lacks a side of the choice."""
    choice = job.start.task.choice
    if not costs.measurable(job.config, choice):
        return None
    return costs.Launches(job.config, IntegerNetwork.from_json(job.network), choice)


def _sizes(job: Launch) -> dict[str, int]:
    """The numbers of output channels of the layers that have a choice."""
    found = shapes(IntegerNetwork.from_json(job.network))
    return {name: found[name].channels for name in json.loads(job.costs)}


def train(job: Train) -> Facts:
    """{"network", "channels": by layer and unit, "share": of channels on the second side, "accuracy" of the
    integers in percent, "float_accuracy": in training's arithmetic, "scores": torch's integers for the test images}.
    """
    from . import torch_integers, torch_training
    from .torch_layers import torch
    from .torch_network import trace

    task = job.start.task
    examples, test = task.data()
    network = trace(task.model(), examples.images, task.choice)
    network.load_state_dict(torch.load(io.BytesIO(base64.b64decode(job.state)), weights_only=True))
    recipe, seed = task.recipe, job.start.seed
    if job.kind == SEARCH:
        tables = from_json(json.loads(job.costs))
        cost = torch_training.relative_cost(network, tables, job.fastest, job.power, _launches(job))
        chosen = torch_training.searched(network, examples, recipe, seed, job.strength, cost, job.config.block_out)
    else:
        chosen = baseline(job.kind, network.sizes(), job.fastest)
        torch_training.train_fixed(network, examples, recipe, seed, chosen, recipe.search + recipe.final)
    integers = torch_integers.integers(network, examples.images.shape[1:])
    scores = torch_integers.scores(to_graph(integers, task.name), test.images)
    return {
        "network": integers.to_json(),
        "channels": choices.channels(chosen, ALTERNATIVES[task.choice].names),
        "share": choices.share(chosen),
        "accuracy": 100 * float((labels(scores) == test.labels).mean()),
        "float_accuracy": torch_training.accuracy(network, test),
        "scores": base64.b64encode(scores.astype(np.float32).tobytes()).decode(),
    }


def deploy(job: Deploy) -> Facts:
    """{"cycles": of the launch in the timing model, "images": run, "equal": those of them with torch's scores,
    "accuracy": on the device in percent}.
    """
    _, test = job.task.data()
    network = IntegerNetwork.from_json(job.trained["network"])
    units = job.trained["channels"] if job.task.choice == UNIT else {}  # types are operators, all on one unit
    executable = compile_point(job.config, network, units, job.name)
    executable.save(job.path)
    scores = device_scores(executable, test.images)
    expected = np.frombuffer(base64.b64decode(job.trained["scores"]), np.float32).reshape(scores.shape)
    same = (scores == expected).reshape(len(scores), -1).all(1)
    return {
        "cycles": launch_cycles(executable),
        "images": len(scores),
        "equal": int(same.sum()),
        "accuracy": 100 * float((labels(scores) == test.labels).mean()),
    }


def baseline(kind: str, sizes: choices.Sizes, fastest: Numbers) -> Choice:
    """The choice of one of the baselines in `ALTERNATIVES`; `fastest` is the mapping of Min-Cost."""
    if kind == MIN_COST:
        return choices.by_number(sizes, fastest)
    if kind == "io-8bit":
        return choices.ends_on_gemm(sizes)
    first = any(kind == one.baselines[0] for one in ALTERNATIVES.values())
    return choices.all_on(sizes, choices.GEMM if first else choices.TERNARY)


def labels(scores: np.ndarray) -> np.ndarray:
    """The position of the largest score of each image, of several the first."""
    return scores.reshape(len(scores), -1).argmax(1)
