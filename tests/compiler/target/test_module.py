"""A third module, defined here alone, takes over patterns; targets and what modules refuse late."""

from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.network import Compiled, compile_for, default_target
from tilewright.compiler.target.module import ExecModule, Memory, Pattern, Refusal, Target
from tilewright.compiler.target.steps import Steps
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError, UnsupportedError
from tilewright.runtime.executable import HostStep
from tilewright.runtime.loader import run

CFG = PRESETS["pynq_z1"]


class TableEngine(ExecModule):
    """A made-up unit beside the accelerator: it multiplies two images and looks the product up, in one pass."""

    name = "table engine"
    memories = (Memory("table", 256, 1.0, ("weights",)), Memory("DRAM", 1 << 20, 8.0, ("activations",)))

    def __init__(self):
        self.patterns = (
            Pattern("function of a product", (g.Mul, g.Lookup), self.refusal),
            Pattern("function", (g.Lookup,)),
        )

    @staticmethod
    def refusal(product: g.Operator, function: g.Operator) -> str:
        """It has no broadcasting."""
        return "" if len({t.shape for t in product.inputs}) == 1 else "operands of different shapes"

    def seconds(self, ops: Sequence[g.Operator]) -> float:
        """Four elements per cycle at 200 MHz."""
        return 50 / 200e6 + ops[0].output.nbytes / 4 / 200e6

    def transfer_seconds(self, t: g.Tensor) -> float:
        """It reads the host's memory."""
        return t.nbytes / 8 / 200e6

    def generate(self, steps: Steps, ops: Sequence[g.Operator]) -> None:
        """One host step per operator stands for the engine's driver."""
        for op in ops:
            (call,) = op.calls(steps.graph.contract)
            names, name = [t.name for t in op.inputs], f"{self.name}: {op.name}"
            steps.steps.append(HostStep(name, call.name, names, [op.output.name], call.attrs, call.constants))


def network() -> g.Graph:
    """Convolution, square, lookup, lookup of something broadcast, convolution."""
    rng = np.random.default_rng(0)

    def conv(name: str, x: g.Tensor, y: g.Tensor) -> g.QConv2d:
        weight = rng.integers(-99, 99, (y.shape[1], x.shape[1], 3, 3)).astype(np.int8)
        scale, bias = np.full(y.shape[1], 0.003, np.float32), np.zeros(y.shape[1], np.int32)
        return g.QConv2d(name, (x,), y, weight, scale, bias, pads=(1, 1, 1, 1))

    names = ("x", "a", "b", "c", "d")
    x, a, b, c, d = (g.Tensor(name, (1, 16, 12, 12), scale=0.1, zero_point=k) for k, name in enumerate(names))
    ops = (
        conv("first", x, a),
        g.Mul("square", (a, a), b),
        g.Lookup("function", (b,), c, "f", rng.integers(-128, 128, 256).astype(np.int8)),
        conv("last", c, d),
    )
    return g.Graph("net", (x,), (d,), ops)


def compiled_with(*modules: ExecModule) -> Compiled:
    """The network for the accelerator, the host and more; the result is the reference's."""
    graph, target = network(), default_target(CFG)
    found = compile_for(graph, CFG, target=Target("more", (*target.modules, *modules)))
    x = np.random.default_rng(1).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    assert np.array_equal(run(found.executable, {"x": x})[0]["d"], reference.trace(graph, {"x": x})["d"])
    return found


def where(found: Compiled) -> dict[str, str]:
    return {" + ".join(op.name for op in c.ops): c.module.name for c in found.assignment.choices}


def test_a_third_module_takes_over_a_chain():
    before = {"first": "accelerator", "square": "accelerator", "function": "host", "last": "accelerator"}
    assert where(compiled_with()) == before
    found = compiled_with(TableEngine())
    assert where(found) == {"first": "accelerator", "square + function": "table engine", "last": "accelerator"}
    assert [s.name for s in found.executable.steps if s.name.startswith("table engine")] == [
        "table engine: square",
        "table engine: function",
    ]
    (chain,) = (c for c in found.assignment.choices if len(c.ops) == 2)
    assert chain.runner_up is None  # nothing else runs both as one


def test_a_slow_module_is_the_runner_up():
    class Slow(TableEngine):
        def seconds(self, ops: Sequence[g.Operator]) -> float:
            return 1.0

    choices = compiled_with(Slow()).assignment.choices
    (choice,) = (c for c in choices if c.ops[0].name == "function")
    assert (choice.module.name, choice.runner_up) == ("host", "table engine")
    assert choice.seconds["table engine"] > 1 > choice.seconds["host"]


def test_what_is_refused_late_goes_elsewhere():
    class Broken(TableEngine):
        def generate(self, steps: Steps, ops: Sequence[g.Operator]) -> None:
            raise Refusal({op.name: "it is switched off" for op in ops})

    found = compiled_with(Broken())
    assert where(found)["square"] == "accelerator"
    (choice,) = (c for c in found.assignment.choices if c.ops[0].name == "square")
    assert choice.refusals["table engine"] == "it is switched off"


def test_operators_that_no_module_runs_are_all_listed():
    with pytest.raises(UnsupportedError) as caught:
        compile_for(network(), CFG, target=Target("alone", (TableEngine(),)))
    text = str(caught.value)
    assert text.startswith("net: target 'alone' cannot run QConv2d 'first' (table engine: no pattern matches)")
    assert "QConv2d 'last'" in text


def test_names_of_modules_are_unique():
    with pytest.raises(InputError, match="target 't': two modules have the same name, of table engine, table engine"):
        Target("t", (TableEngine(), TableEngine()))
