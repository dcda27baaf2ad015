"""Assignments of operators with fixed times to modules; test_module.py compiles networks with further modules."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.target.assign import Assignment
from tilewright.compiler.target.module import ExecModule, Pattern, Target


class Unit(ExecModule):
    """A module of fixed times by operator kind, or by kinds of a chain; the same transfer for every tensor."""

    def __init__(self, name, transfer, chains=None, kept=(), **times):
        self.name, self.transfer, self.kept = name, transfer, kept
        self.times = {(getattr(g, kind),): seconds for kind, seconds in times.items()} | (chains or {})
        longest_first = sorted(self.times, key=len, reverse=True)
        self.patterns = tuple(Pattern(" + ".join(kind.__name__ for kind in kinds), kinds) for kinds in longest_first)

    def seconds(self, ops):
        return self.times[tuple(map(type, ops))]

    def transfer_seconds(self, t):
        return self.transfer

    def generate(self, steps, ops):
        raise NotImplementedError


def chain(*kinds):
    """A graph of element-wise operators, one after the other."""
    tensors = [g.Tensor(f"t{k}", (1, 4)) for k in range(len(kinds) + 1)]
    ops = [
        kind(f"op{k}", (tensors[k],) * (2 if issubclass(kind, g.Binary) else 1), tensors[k + 1])
        for k, kind in enumerate(kinds)
    ]
    return g.Graph("g", (tensors[0],), (tensors[-1],), tuple(ops))


def choices(graph, *units):
    return Assignment(graph, Target("t", units)).choices


def modules(graph, *units):
    return [choice.module.name for choice in choices(graph, *units)]


HOST = Unit("host", 0.0, Add=10, Mul=10, Requantize=10)


@pytest.mark.parametrize(
    "unit, expected",
    [
        (Unit("a", 0.5, Add=8, Mul=8), "aaa"),
        (Unit("a", 4.0, Add=9, Mul=9), "hhh"),
        (Unit("a", 1.5, Add=8), "hhh"),  # saves 2, costs 3
    ],
)
def test_transfers_decide(unit, expected):
    assert [name[0] for name in modules(chain(g.Add, g.Mul, g.Add), unit, HOST)] == [*expected]


@pytest.mark.parametrize(
    "kinds, chains, expected",
    [
        ((g.Add, g.Mul), {(g.Add, g.Mul): 19}, [2]),
        ((g.Add, g.Mul), {(g.Add, g.Mul): 20}, [2]),  # as fast as its parts
        ((g.Add, g.Mul), {(g.Add, g.Mul): 21}, [1, 1]),
        ((g.Add, g.Mul), {(g.Add, g.Mul): 40}, [1, 1]),  # twice as slow
        ((g.Add, g.Mul, g.Add), {(g.Add, g.Mul): 19, (g.Add, g.Mul, g.Add): 28}, [3]),
        ((g.Add, g.Mul, g.Add), {(g.Add, g.Mul): 19, (g.Add, g.Mul, g.Add): 31}, [2, 1]),
        ((g.Add, g.Mul, g.Add), {(g.Add, g.Mul): 25, (g.Add, g.Mul, g.Add): 28}, [3]),
        ((g.Requantize, g.Add, g.Mul), {(g.Add, g.Mul): 19}, [1, 2]),
    ],
)
def test_a_chain_is_one_where_it_is_no_slower_than_its_parts(kinds, chains, expected):
    found = choices(chain(*kinds), Unit("a", 0.0, chains), HOST)
    assert [len(choice.ops) for choice in found] == expected
    assert all((choice.module.name == "a") == (len(choice.ops) > 1) for choice in found)


def test_a_chain_ends_where_another_operator_reads():
    x, y, z, other = (g.Tensor(name, (1, 4)) for name in ("x", "y", "z", "other"))
    ops = g.Add("sum", (x, x), y), g.Mul("product", (y, y), z), g.Requantize("copy", (y,), other)
    unit = Unit("a", 0.0, {(g.Add, g.Mul): 1})
    assert modules(g.Graph("g", (x,), (z, other), ops), unit, HOST) == ["host"] * 3
    assert modules(g.Graph("g", (x,), (y, z), ops[:2]), unit, HOST) == ["host"] * 2  # or is an output
    assert modules(g.Graph("g", (x,), (z,), ops[:2]), unit, HOST) == ["a"]


def test_a_module_keeps_its_kinds():
    first, second = choices(chain(g.Add, g.Mul), Unit("a", 50.0, kept=(g.Mul,), Add=80, Mul=80), HOST)
    assert (first.module.name, second.module.name) == ("host", "a")
    assert second.refusals == {"host": "a keeps such operators"} and second.runner_up is None


def test_times_and_runners_up_include_transfers():
    (choice,) = choices(chain(g.Add), Unit("a", 0.5, Add=8), HOST)
    assert choice.seconds == {"a": 9.0, "host": 10.0}
    assert (choice.module.name, choice.runner_up) == ("a", "host")
    (choice,) = choices(chain(g.Mul), Unit("a", 0.5, Add=8), HOST)
    assert choice.runner_up is None and choice.refusals == {"a": "no pattern matches"}


def test_outputs_may_cost_another_time():
    near = Unit("a", 1.5, Add=8)
    near.output_seconds = lambda t: 0.25
    (choice,) = choices(chain(g.Add), near, HOST)
    assert choice.seconds == {"a": 9.75, "host": 10.0}


def parts(graph):
    found = Assignment(graph, Target("t", (Unit("a", 0.0, Add=1), HOST))).parts()
    return [(module.name, [op.name for op in ops]) for module, ops in found]


def test_parts_are_few_and_in_order():
    x, a, b, c, d, e = (g.Tensor(name, (1, 4)) for name in "xabcde")
    ops = (
        g.Add("one", (x, x), a),  # accelerator
        g.Requantize("two", (a,), b),  # host
        g.Add("three", (a, a), c),  # accelerator, needs nothing of the host
        g.Requantize("four", (c,), d),  # host
        g.Add("five", (b, d), e),  # accelerator
    )
    expected = [("a", ["one", "three"]), ("host", ["two", "four"]), ("a", ["five"])]
    assert parts(g.Graph("g", (x,), (e,), ops)) == expected


def test_the_module_that_can_run_less_begins_where_that_makes_fewer_parts():
    """Two sums of b could run at once, but the third waits for the host: so all of them do."""
    x, y, z, a, b, c = (g.Tensor(name, (1, 4)) for name in "xyzabc")
    ops = (
        g.Add("first", (y, y), a),
        g.Add("second", (y, y), b),
        g.Requantize("own", (x,), z),
        g.Add("last", (z, a), c),
    )
    expected = [("host", ["own"]), ("a", ["first", "second", "last"])]
    assert parts(g.Graph("g", (x, y), (b, c), ops)) == expected


def test_states_stay_where_they_are_read_and_written():
    old, x, new, y = (g.Tensor(name, (1, 4)) for name in ("old", "x", "new", "y"))
    ops = (g.Add("sum", (old, x), new), g.Mul("product", (new, new), y))
    kept = g.State(old, np.zeros((1, 4), np.int8), new)
    unit, host = Unit("a", 1.0, Add=7.5, Mul=11), Unit("host", 0.0, Add=10, Mul=10)
    found = choices(g.Graph("g", (x,), (y,), ops, (kept,)), unit, host)
    # the sum takes 7.5, its input 1 and what the host reads 1
    assert [choice.module.name for choice in found] == ["a", "host"] and found[0].seconds["a"] == 9.5


def test_operators_that_read_one_tensor_share_its_transfer():
    """Each alone would take 7 and two transfers, more than the host's 10; three take 21 and four."""
    x, n, *outputs = (g.Tensor(name, (1, 4)) for name in ("x", "n", "a", "b", "c"))
    ops = (g.Requantize("norm", (x,), n), *(g.Add(t.name, (n, n), t) for t in outputs))
    graph = g.Graph("g", (x,), tuple(outputs), ops)
    assert modules(graph, Unit("a", 2.0, Add=7), HOST) == ["host", "a", "a", "a"]
    assert modules(graph, Unit("a", 2.5, Add=7.5), HOST) == ["host"] * 4


def test_a_change_of_layout_that_joins_a_call_costs_no_call():
    """A sum on the host between two operators of the other module: only its transfers are dearer than the module."""
    joining = Unit("host", 0.0, Add=10, Requantize=10)
    joining.joined_seconds = lambda op: 1.0 * isinstance(op, g.Requantize)
    module = Unit("a", 1.5, Add=8, Requantize=12.5)
    graph = chain(g.Add, g.Requantize, g.Add)
    assert modules(graph, module, joining) == ["a", "host", "a"]
    assert modules(graph, module, HOST) == ["host"] * 3


def test_operators_that_overlap_the_one_before_cost_less():
    """Three take 27 and two transfers, 33 of the host's 30, less two overlaps; one alone has none."""
    module = Unit("a", 3.0, Add=9, Mul=9)
    assert modules(chain(g.Add, g.Mul, g.Add), module, HOST) == ["host"] * 3
    module.overlap_seconds = lambda before, op: 2.0
    assert modules(chain(g.Add, g.Mul, g.Add), module, HOST) == ["a"] * 3
    assert modules(chain(g.Add), module, HOST) == ["host"]
