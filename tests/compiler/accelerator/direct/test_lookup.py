"""Functions of one value: tables on chip, by operator and in whole launches."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Lookup, Mul, Requantize, Tensor, tables
from tilewright.compiler.network import compile_for
from tilewright.compiler.target.module import ExecModule
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem
from tilewright.runtime.loader import run
from tilewright.sim.random_programs import ROWS
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]
SMALL = PRESETS["tiny"].replace(name="small", tables=2, extensions=PRESETS["tiny"].extensions | {"lookup"})


def tensor(name, shape, scale=0.05, zero=3):
    return Tensor(name, shape, scale=scale, zero_point=zero)


def function(name, x, y):
    made = {
        "logistic": lambda: tables.table("logistic", x, y),
        "tanh": lambda: tables.table("tanh", x, y),
        "hard_swish": lambda: tables.hard_swish(x, y),
        "leaky_relu": lambda: tables.leaky_relu(0.1, x, y),
    }
    return Lookup(f"op_{y.name}", (x,), y, name, made[name]())


def loads_of_tables(launch):
    isa = Isa(launch.cfg)
    return [f["sram_base"] for f in isa.decode(launch.insn) if f.get("mem") == Mem.PAR]


@pytest.mark.parametrize("name", ["logistic", "tanh", "hard_swish", "leaky_relu"])
@pytest.mark.parametrize("cfg", [PLUS, SMALL, ROWS], ids=lambda c: c.name)
def test_functions(exact, cfg, name):
    launch = exact(function(name, tensor("x", (1, 20, 9, 11)), tensor("y", (1, 20, 9, 11), 0.04, -7)), cfg=cfg)
    assert len(loads_of_tables(launch)) == 1


@pytest.mark.parametrize("shape", [(3, 40), (1, 5), (1, 33, 40, 30)])
def test_vectors_and_images_of_many_tiles(exact, shape):
    exact(function("tanh", tensor("x", shape), tensor("y", shape, 1 / 128, 0)), cfg=PLUS)


def test_tables_stay_on_chip_until_others_need_their_place(exact):
    """Two places: the third table takes that of the one used longest ago."""
    shape, kinds = (1, 4, 3, 3), ["tanh", "logistic", "tanh", "hard_swish", "tanh", "logistic"]
    ops, x = [], tensor("x", shape)
    for k, kind in enumerate(kinds):
        ops.append(function(kind, x, x := tensor(f"t{k}", shape)))
    launch = exact(*ops, cfg=SMALL)
    first = [SMALL.par_entries, SMALL.par_entries + SMALL.table_entries]
    assert loads_of_tables(launch) == [first[0], first[1], first[1], first[1]]


def test_functions_between_others_stay_in_the_launch(exact):
    x, a, b, c = (tensor(n, (1, 20, 6, 5), s) for n, s in zip("xabc", (0.05, 0.06, 0.04, 0.05)))
    exact(Requantize("r", (x,), a), function("hard_swish", a, b), Requantize("s", (b,), c), cfg=PLUS)


def test_ranks_that_are_not_packed_are_refused():
    x = tensor("x", (1, 4, 4))
    assert Accelerator(PLUS).refusal(function("tanh", x, tensor("y", (1, 4, 4)))) == "3 dimensions"


def test_a_configuration_without_tables_has_no_pattern_for_them():
    kinds = [{p.name for p in Accelerator(PRESETS[name]).patterns} for name in ("pynq_z1", "pynq_z1_plus")]
    assert [("Lookup" in names) for names in kinds] == [False, True] and isinstance(Accelerator(PLUS), ExecModule)


def test_its_cycles(exact):
    shape = (1, 64, 32, 32)
    assert predict(exact(function("tanh", tensor("x", shape), tensor("y", shape)), cfg=PLUS)).cycles < 3 * 4096


@pytest.mark.slow
def test_a_launch_on_the_circuit(exact):
    shape = (1, 12, 5, 6)
    x, y, z = tensor("x", shape), tensor("y", shape, 1 / 128, 0), tensor("z", shape, 0.01, 4)
    exact(function("tanh", x, y), function("leaky_relu", y, z), cfg=ROWS, on="rtl")


def test_a_network_of_functions_equals_litert(tflite, litert_outputs):
    """LOGISTIC, TANH, HARD_SWISH and LEAKY_RELU, two of them at a time on the same values, in one launch."""
    m, shape = tflite(), (1, 6, 5, 20)
    x = m.input(shape, 0.05, 3)
    swish = m.op("HARD_SWISH", [x], shape, 0.04, -100)
    gate = m.op("LOGISTIC", [x], shape, 1 / 256, -128)
    leaky = m.op("LEAKY_RELU", [swish], shape, 0.04, -90, alpha=0.1)
    m.output(m.op("TANH", [m.op("MUL", [leaky, gate], shape, 0.03, 5)], shape, 1 / 128, 0))
    path = m.save()
    graph = import_model(path)
    names = {"host": {op.name: "the test wants the accelerator" for op in graph.ops if isinstance(op, (Lookup, Mul))}}
    executable = compile_for(graph, PLUS, "double", refused=names).executable
    (launch,) = (step.launch for step in executable.launches)
    assert len(loads_of_tables(launch)) == 4 + 1  # and the product's parameters
    values = np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
    (got,) = run(executable, {graph.inputs[0].name: values})[0].values()
    np.testing.assert_array_equal(got, litert_outputs(path, values)[0])
