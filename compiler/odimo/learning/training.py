"""The phases of a point: warm-up with equal shares, search of shares and weights, training of the fixed choice.

Each phase is a number of epochs of Adam over shuffled batches, repeatable on one machine: one seed, one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..mapping import GEMM, TERNARY, Choice, all_on, cheapest, rounded
from ..mapping import counts as counted
from ..recipe import Examples, Recipe
from ..tables import Costs, Power
from . import costs
from .backend import F, torch
from .network import MappedNetwork


def repeatable(seed: int) -> None:
    """One thread, and torch's generator at `seed`."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)


def warm_up(network: MappedNetwork, examples: Examples, recipe: Recipe, seed: int) -> None:
    """Train the weights with shares that stay equal."""
    network.assign(None)
    optimiser = _weights_optimiser(network, recipe, recipe.warm_up_rate)
    _phase(network, examples, recipe, seed, recipe.warm_up, [optimiser])


def search(
    network: MappedNetwork, examples: Examples, recipe: Recipe, seed: int, strength: float, cost: Callable[[Any], Any]
) -> None:
    """Train weights and shares for `task loss + strength * cost(counts)`, while the shares grow harder."""
    network.assign(None)
    thetas = torch.optim.Adam(network.split_parameters()[1], lr=recipe.theta_rate, fused=True)
    optimisers = [_weights_optimiser(network, recipe, recipe.rate), thetas]

    def term() -> Any:
        return strength * cost(network.counts())

    _phase(network, examples, recipe, seed + 1, recipe.search, optimisers, term, recipe.temperature)


def train_fixed(
    network: MappedNetwork, examples: Examples, recipe: Recipe, seed: int, choice: Choice, epochs: int
) -> None:
    """Train the weights of a fixed choice."""
    network.assign(choice)
    _phase(network, examples, recipe, seed + 2, epochs, [_weights_optimiser(network, recipe, recipe.rate)])


def searched(
    network: MappedNetwork, examples: Examples, recipe: Recipe, seed: int, strength: float, cost: Callable, block: int
) -> Choice:
    """Search, then train the choice that was found, with whole blocks of `block` channels on GEMM; returns it."""
    search(network, examples, recipe, seed, strength, cost)
    choice = rounded(network.preference(), block, network.ties(), network.wanted())
    train_fixed(network, examples, recipe, seed, choice, recipe.final)
    return choice


def relative_cost(
    network: MappedNetwork, tables: Costs, block: int, power: Power | None = None
) -> Callable[[Any], Any]:
    """A function of counts: their cycles, or energy by the model `power`, in units of what can be saved.

    That is the cost of all channels on GEMM less the least of it, of all on the ternary unit, and of the fastest
    splits: so a strength means the same whatever part of a network's time no choice can save.
    """
    sizes = network.sizes()

    def term(counts: Any) -> Any:
        return costs.latency(tables, counts) if power is None else costs.energy(tables, counts, power)

    def of(choice: Choice) -> float:
        return float(term({name: torch.tensor(pair, dtype=torch.float32) for name, pair in counted(choice).items()}))

    whole = of(all_on(sizes, GEMM))
    saved = whole - min(of(choice) for choice in (all_on(sizes, TERNARY), cheapest(sizes, tables, block)))
    unit = saved if saved > 0 else whole
    return lambda counts: term(counts) / unit


def accuracy(network: MappedNetwork, examples: Examples) -> float:
    """Share of right labels of the network in training's arithmetic, in percent."""
    network.eval()
    with torch.no_grad():
        labels = network(torch.from_numpy(examples.images)).flatten(1).argmax(1).numpy()
    return 100 * float((labels == examples.labels).mean())


def _weights_optimiser(network: MappedNetwork, recipe: Recipe, rate: float) -> Any:
    return torch.optim.Adam(network.split_parameters()[0], lr=rate, weight_decay=recipe.decay, fused=True)


def _phase(
    network: MappedNetwork,
    examples: Examples,
    recipe: Recipe,
    seed: int,
    epochs: int,
    optimisers: list[Any],
    term: Callable[[], Any] | None = None,
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
