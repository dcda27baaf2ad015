"""Assignments: times with transfers, order of the parts. Chains and refusals are in test_module.py."""

import numpy as np

from tilewright.compiler import graph as g
from tilewright.compiler.target.assign import Assignment
from tilewright.compiler.target.module import ExecModule, Pattern, Target


class Unit(ExecModule):
    """A module of fixed times: `times` by operator kind, the same transfer for every tensor."""

    def __init__(self, name, transfer, **times):
        self.name, self.transfer = name, transfer
        self.times = {getattr(g, kind): seconds for kind, seconds in times.items()}
        self.patterns = tuple(Pattern(kind.__name__, (kind,)) for kind in self.times)

    def seconds(self, ops):
        return self.times[type(ops[0])]

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


def modules(assignment):
    return [choice.module.name for choice in assignment.choices]


HOST = Unit("host", 0.0, Add=10, Mul=10, Requantize=10)


def test_transfers_decide():
    graph = chain(g.Add, g.Mul, g.Add)
    assert modules(Assignment(graph, Target("t", (Unit("a", 0.5, Add=8, Mul=8), HOST)))) == ["a"] * 3
    far = Assignment(graph, Target("t", (Unit("a", 4.0, Add=9, Mul=9), HOST)))
    assert modules(far) == ["host"] * 3
    alone = Assignment(chain(g.Add, g.Mul, g.Add), Target("t", (Unit("a", 1.5, Add=8), HOST)))
    assert modules(alone) == ["host"] * 3  # saves 2, costs 3


def test_a_module_keeps_its_kinds():
    slow = Unit("a", 50.0, Add=80, Mul=80)
    slow.kept = (g.Mul,)
    first, second = Assignment(chain(g.Add, g.Mul), Target("t", (slow, HOST))).choices
    assert (first.module.name, second.module.name) == ("host", "a")
    assert second.refusals == {"host": "a keeps such operators"} and second.runner_up is None


def test_outputs_may_cost_another_time():
    class Near(Unit):
        def output_seconds(self, t):
            return 0.25

    (choice,) = Assignment(chain(g.Add), Target("t", (Near("a", 1.5, Add=8), HOST))).choices
    assert choice.seconds == {"a": 9.75, "host": 10.0}


def test_times_and_runners_up_include_transfers():
    (choice,) = Assignment(chain(g.Add), Target("t", (Unit("a", 0.5, Add=8), HOST))).choices
    assert choice.seconds == {"a": 9.0, "host": 10.0}
    assert (choice.module.name, choice.runner_up) == ("a", "host")
    (choice,) = Assignment(chain(g.Mul), Target("t", (Unit("a", 0.5, Add=8), HOST))).choices
    assert choice.runner_up is None and choice.refusals == {"a": "no pattern matches"}


def test_parts_are_few_and_in_order():
    x = g.Tensor("x", (1, 4))
    names = ("a", "b", "c", "d", "e")
    a, b, c, d, e = (g.Tensor(name, (1, 4)) for name in names)
    ops = (
        g.Add("one", (x, x), a),  # accelerator
        g.Requantize("two", (a,), b),  # host
        g.Add("three", (a, a), c),  # accelerator, needs nothing of the host
        g.Requantize("four", (c,), d),  # host
        g.Add("five", (b, d), e),  # accelerator
    )
    graph = g.Graph("g", (x,), (e,), ops)
    parts = Assignment(graph, Target("t", (Unit("a", 0.0, Add=1), HOST))).parts()
    assert [(module.name, [op.name for op in ops]) for module, ops in parts] == [
        ("a", ["one", "three"]),
        ("host", ["two", "four"]),
        ("a", ["five"]),
    ]


def test_the_module_that_can_run_less_begins_where_that_makes_fewer_parts():
    """Two sums of b could run at once, but the third waits for the host: so all of them do."""
    x, y, z = (g.Tensor(name, (1, 4)) for name in ("x", "y", "z"))
    a, b, c = (g.Tensor(name, (1, 4)) for name in "abc")
    ops = (
        g.Add("first", (y, y), a),
        g.Add("second", (y, y), b),
        g.Requantize("own", (x,), z),
        g.Add("last", (z, a), c),
    )
    graph = g.Graph("g", (x, y), (b, c), ops)
    parts = Assignment(graph, Target("t", (Unit("a", 0.0, Add=1), HOST))).parts()
    names = [(module.name, [op.name for op in found]) for module, found in parts]
    assert names == [("host", ["own"]), ("a", ["first", "second", "last"])]


def test_states_stay_where_they_are_read_and_written():
    old, x, new, y = (g.Tensor(name, (1, 4)) for name in ("old", "x", "new", "y"))
    ops = (g.Add("sum", (old, x), new), g.Mul("product", (new, new), y))
    kept = g.State(old, np.zeros((1, 4), np.int8), new)
    unit, host = Unit("a", 1.0, Add=7.5, Mul=11), Unit("host", 0.0, Add=10, Mul=10)
    found = Assignment(g.Graph("g", (x,), (y,), ops, (kept,)), Target("t", (unit, host)))
    assert modules(found) == ["a", "host"]  # the sum takes 7.5, its input 1 and what the host reads 1
    assert found.choices[0].seconds["a"] == 9.5


def test_operators_that_read_one_tensor_share_its_transfer():
    """Each alone would take 7 and two transfers, more than the host's 10; three take 21 and four."""
    x, n, *outputs = (g.Tensor(name, (1, 4)) for name in ("x", "n", "a", "b", "c"))
    ops = (g.Requantize("norm", (x,), n), *(g.Add(t.name, (n, n), t) for t in outputs))
    graph = g.Graph("g", (x,), tuple(outputs), ops)
    assert modules(Assignment(graph, Target("t", (Unit("a", 2.0, Add=7), HOST)))) == ["host", "a", "a", "a"]
    assert modules(Assignment(graph, Target("t", (Unit("a", 2.5, Add=7.5), HOST)))) == ["host"] * 4


def test_a_change_of_layout_that_joins_a_call_costs_no_call():
    """A sum on the host between two operators of the other module: only its transfers are dearer than the module."""
    joining = Unit("host", 0.0, Add=10, Requantize=10)
    joining.joined_seconds = lambda op: 1.0 * isinstance(op, g.Requantize)
    module = Unit("a", 1.5, Add=8, Requantize=12.5)
    graph = chain(g.Add, g.Requantize, g.Add)
    assert modules(Assignment(graph, Target("t", (module, joining)))) == ["a", "host", "a"]
    assert modules(Assignment(graph, Target("t", (module, HOST)))) == ["host"] * 3


def test_operators_that_overlap_the_one_before_cost_less():
    """Three take 27 and two transfers, 33 of the host's 30, less two overlaps; one alone has none."""
    module = Unit("a", 3.0, Add=9, Mul=9)
    target = Target("t", (module, HOST))
    assert modules(Assignment(chain(g.Add, g.Mul, g.Add), target)) == ["host"] * 3
    module.overlap_seconds = lambda before, op: 2.0
    assert modules(Assignment(chain(g.Add, g.Mul, g.Add), target)) == ["a"] * 3
    assert modules(Assignment(chain(g.Add), target)) == ["host"]
