"""The phases of a point: warm-up with equal shares, search of shares and weights, training of the fixed choice.

Each phase is a number of epochs of Adam over shuffled batches, repeatable on one machine: one seed, one thread. A
search pays for cycles or energy by the tables of costs.py, interpolated, since it moves channels one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .costs import Costs, Power
from .mapping import GEMM, TERNARY, Choice, Numbers, all_on, around, by_number, descend, nearest, on_gemm, preferred
from .mapping import counts as counted
from .task import Examples, Recipe
from .torch_layers import F, Tensor, torch
from .torch_network import MappedNetwork

Optimiser = Tensor  # torch.optim.Optimizer
PROBE = 2048  # training examples, at most, whose loss a mapping is judged by


def interpolated(counts: Sequence[int], cycles: Sequence[float], count: Tensor) -> Tensor:
    """Cycles of a scalar tensor `count` by the lines of a table; its gradient is the slope of the piece."""
    xs, ys = torch.tensor(counts, dtype=count.dtype), torch.tensor(cycles, dtype=count.dtype)
    k = torch.searchsorted(xs, count.detach()).clamp(1, len(xs) - 1)
    slope = (ys[k] - ys[k - 1]) / (xs[k] - xs[k - 1])
    return ys[k - 1] + slope * (count - xs[k - 1])


def latency(costs: Costs, counts: Mapping[str, Tensor]) -> Tensor:
    """Cycles of all layers, with gradients; `counts` by layer are tensors (sides,) that need not be whole."""
    splits = [(cost.splits, counts[name][-1]) for name, cost in costs.items()]
    return torch.stack([interpolated(table.counts, table.cycles, count) for table, count in splits]).sum()


def energy(costs: Costs, counts: Mapping[str, Tensor], power: Power) -> Tensor:
    """Energy of all layers in milliwatt cycles, with gradients, by a model of power."""
    found = power.idle * latency(costs, counts)
    for name, cost in costs.items():
        for table, count, active in zip(cost.tables, counts[name], power.active):
            found = found + active * interpolated(table.counts, table.sloped, count)
    return found


@dataclass(frozen=True)
class Cost:
    """The cost that a search pays for, relative to the possible savings: a strength means the same in any network.

    `soft` is of counts as tensors, which need not be whole, and has gradients. `exact` is of the numbers of channels on
    GEMM, with the cycles of the launch.
    """

    soft: Callable[[Mapping[str, Tensor]], Tensor]
    exact: Callable[[Numbers], float]


def repeatable(seed: int) -> None:
    """One thread, and torch's generator at `seed`."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)


def warm_up(network: MappedNetwork, examples: Examples, recipe: Recipe, seed: int) -> None:
    """Train the weights with shares that stay equal."""
    network.assign(None)
    optimiser = _weights_optimiser(network, recipe, recipe.warm_up_rate)
    _phase(network, examples, recipe, seed, recipe.warm_up, [optimiser])


def search(network: MappedNetwork, examples: Examples, recipe: Recipe, seed: int, strength: float, cost: Cost) -> None:
    """Train weights and shares for `task loss + strength * cost`, while the shares grow harder."""
    network.assign(None)
    thetas = torch.optim.Adam(network.split_parameters()[1], lr=recipe.theta_rate, fused=True)
    optimisers = [_weights_optimiser(network, recipe, recipe.rate), thetas]

    def term() -> Tensor:
        return strength * cost.soft(network.counts())

    _phase(network, examples, recipe, seed + 1, recipe.search, optimisers, term, recipe.temperature)


def settle(
    network: MappedNetwork, examples: Examples, recipe: Recipe, strength: float, cost: Cost, block: int
) -> Choice:
    """The choice that a search has found, with whole blocks of `block` channels on GEMM.

    The counts of a search lie between numbers that have a program. Of the mappings with one of these two in each layer
    it is one with the least of the search's own sum, `task loss + strength * cost`: no other one that differs in one
    layer has less of it.
    """
    preference, ties, wanted = network.preference(), network.ties(), network.wanted()
    start, options = nearest(preference, block, wanted), around(preference, block, wanted)

    def value(numbers: Numbers) -> float:
        network.assign(preferred(preference, numbers, ties))
        return task_loss(network, examples, recipe) + strength * cost.exact(numbers)

    return preferred(preference, descend(start, options, value), ties)


def task_loss(network: MappedNetwork, examples: Examples, recipe: Recipe) -> float:
    """The mean loss of the first `PROBE` examples in batches, as training computes it; the network stays as it is."""
    state = {name: value.clone() for name, value in network.state_dict().items()}
    images, labels = (torch.from_numpy(part[:PROBE]) for part in (examples.images, examples.labels.astype(np.int64)))
    network.train()
    with torch.no_grad():
        losses = [
            F.cross_entropy(network(images[k : k + recipe.batch]).flatten(1), labels[k : k + recipe.batch])
            for k in range(0, len(labels) - recipe.batch + 1, recipe.batch)
        ]
    network.load_state_dict(state)
    return float(torch.stack(losses).mean())


def train_fixed(
    network: MappedNetwork, examples: Examples, recipe: Recipe, seed: int, choice: Choice, epochs: int
) -> None:
    """Train the weights of a fixed choice."""
    network.assign(choice)
    _phase(network, examples, recipe, seed + 2, epochs, [_weights_optimiser(network, recipe, recipe.rate)])


def searched(
    network: MappedNetwork, examples: Examples, recipe: Recipe, seed: int, strength: float, cost: Cost, block: int
) -> Choice:
    """Search, then train the choice that was found, with whole blocks of `block` channels on GEMM; returns it."""
    search(network, examples, recipe, seed, strength, cost)
    choice = settle(network, examples, recipe, strength, cost, block)
    train_fixed(network, examples, recipe, seed, choice, recipe.final)
    return choice


def relative_cost(
    network: MappedNetwork,
    tables: Costs,
    fastest: Numbers,
    power: Power | None = None,
    cycles: Callable[[Numbers], int] | None = None,
) -> Cost:
    """Cycles, or energy by the model `power`, relative to the savings possible.

    The unit is the cost of all channels on GEMM less the smaller cost of all on the ternary unit and of `fastest`: a
    strength means the same whatever part of a network's time no choice can save. `cycles` are those of
    the launch; without it those of the tables stand for them.
    """
    sizes = network.sizes()

    def soft(counts: Mapping[str, Tensor]) -> Tensor:
        return latency(tables, counts) if power is None else energy(tables, counts, power)

    def exact(numbers: Numbers) -> float:
        pairs = counted(by_number(sizes, numbers))
        counts = {name: torch.tensor(pair, dtype=torch.float32) for name, pair in pairs.items()}
        found = float(soft(counts))
        if cycles is None:
            return found
        return found + (1.0 if power is None else power.idle) * (cycles(numbers) - float(latency(tables, counts)))

    whole, other = (exact(on_gemm(all_on(sizes, unit))) for unit in (GEMM, TERNARY))
    saved = whole - min(other, exact(fastest))
    unit = saved if saved > 0 else whole
    return Cost(lambda counts: soft(counts) / unit, lambda numbers: exact(numbers) / unit)


def accuracy(network: MappedNetwork, examples: Examples) -> float:
    """Share of right labels of the network in training's arithmetic, in percent."""
    network.eval()
    with torch.no_grad():
        labels = network(torch.from_numpy(examples.images)).flatten(1).argmax(1).numpy()
    return 100 * float((labels == examples.labels).mean())


def _weights_optimiser(network: MappedNetwork, recipe: Recipe, rate: float) -> Optimiser:
    return torch.optim.Adam(network.split_parameters()[0], lr=rate, weight_decay=recipe.decay, fused=True)


def _phase(
    network: MappedNetwork,
    examples: Examples,
    recipe: Recipe,
    seed: int,
    epochs: int,
    optimisers: list[Optimiser],
    term: Callable[[], Tensor] | None = None,
    temperature: Callable[[int], float] | None = None,
) -> None:
    """Epochs of one phase; the weights' rate follows a cosine, `term` is added to the task's loss."""
    if not epochs:
        return
    repeatable(seed)
    rng = np.random.default_rng(seed)
    images, labels = torch.from_numpy(examples.images), torch.from_numpy(examples.labels.astype(np.int64))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimisers[0], epochs)
    network.train()
    for epoch in range(epochs):
        if temperature is not None:
            network.anneal(temperature(epoch))
        order = torch.from_numpy(rng.permutation(len(labels)))
        for start in range(0, len(labels) - recipe.batch + 1, recipe.batch):
            index = order[start : start + recipe.batch]
            for optimiser in optimisers:
                optimiser.zero_grad()
            loss = F.cross_entropy(network(images[index]).flatten(1), labels[index])
            (loss if term is None else loss + term()).backward()
            for optimiser in optimisers:
                optimiser.step()
        schedule.step()
