"""Random QDQ networks: the graph's values, and the device's, against onnxruntime with its optimisations off.

Each test prints its counts, and names the seeds of networks that differ.
"""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.compiler.frontend.onnx.random_qdq import KINDS, OPSETS, random_network, session, statically_quantised
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run

MOST = 1e-3  # share of values that differ in a network that is not equal
PAGE = Path(__file__).resolve().parents[4] / "docs" / "networks.md"
EXACT = [kind for kind in KINDS if kind != "real bias"]  # whose rounded biases are seen in one network of three


def feeds(m, seed, count):
    """The sample of a network, and random inputs."""
    rng = np.random.default_rng(seed)
    yield m.fed
    for _ in range(count - 1):
        yield {
            name: rng.normal(0, 1, v.shape).astype(np.float32)
            if v.dtype == np.float32
            else rng.integers(np.iinfo(v.dtype).min, np.iinfo(v.dtype).max, v.shape, v.dtype, endpoint=True)
            for name, v in m.fed.items()
        }


def differences(m, seed, count=2):
    """(steps between the graph's outputs and onnxruntime's, flat; the graph)."""
    path, found = m.save(f"{seed}.onnx"), []
    graph, theirs = import_onnx(path), session(onnx.load(path))
    names = [o.name for o in theirs.get_outputs()]
    for inputs in feeds(m, seed, count):
        mine, _ = reference.run(graph, inputs)
        for name, expected in zip(names, map(np.asarray, theirs.run(None, inputs))):
            assert (mine[name].shape, mine[name].dtype) == (expected.shape, expected.dtype)
            step = m.grids[name][0] if name in m.grids else 1  # integers are steps
            found.append(np.abs(mine[name].astype(np.float64) - expected).reshape(-1) / step)
    return np.rint(np.concatenate(found)), graph


def survey(folder, seeds, kinds=None, count=None):
    """Compare a network per seed: how many there are, the seeds of those that differ, by their share of values."""
    total, values, apart = 0, 0, {}
    for seed in seeds:
        m, made = random_network(folder, seed, kinds, count)
        if not made:
            continue
        steps, _ = differences(m, seed)
        total, values = total + 1, values + steps.size
        if steps.any():
            apart[seed] = (float((steps > 0).mean()), int(steps.max()))
    print(f"{total - len(apart)} of {total} networks of {values:,} values are equal; (share, steps) of others: {apart}")
    return total, apart


@pytest.mark.parametrize("seed", range(8))
def test_networks_equal_onnxruntime(tmp_path, seed):
    total, apart = survey(tmp_path, [seed], EXACT)
    assert total == 1 and not apart


@pytest.mark.slow
def test_many_networks_equal_onnxruntime(tmp_path):
    total, apart = survey(tmp_path, range(1000, 1600), EXACT)
    assert total > 580 and len(apart) <= 0.02 * total
    assert np.mean([share for share, _ in apart.values()] or [0]) < MOST


@pytest.mark.slow
def test_many_networks_with_real_biases(tmp_path):
    total, apart = survey(tmp_path, range(600))
    assert total > 580 and len(apart) <= 0.06 * total
    assert np.median([share for share, _ in apart.values()]) < MOST


STATIC = (  # the kinds that onnxruntime's quantiser quantises
    *(
        "conv",
        "grouped",
        "depthwise",
        "transposed",
        "gemm",
        "matmul",
        "add",
        "mul",
        "concat",
        "relu",
        "clip",
        "sigmoid",
    ),
    *("leaky", "reshape", "transpose", "pad", "nearest", "slice", "split", "softmax", "hard swish", "max pool"),
    *("average pool", "global pool", "depth to space"),
)


def survey_static(folder, seeds):
    """Compare what onnxruntime's quantiser makes of a float network per seed; the seeds of those that differ."""
    total, apart = 0, {}
    for seed in seeds:
        if (made := statically_quantised(folder, seed, STATIC)) is None:
            continue
        m, path, facts = made
        graph, theirs, differ = import_onnx(path), session(onnx.load(path)), []
        for inputs in feeds(m, seed, 2):
            mine, _ = reference.run(graph, inputs)
            for output, expected in zip(theirs.get_outputs(), map(np.asarray, theirs.run(None, inputs))):
                assert mine[output.name].shape == expected.shape
                differ.append(np.abs(mine[output.name] - expected).reshape(-1) > 1e-5 * max(np.ptp(expected), 1e-2))
        total += 1
        if (share := float(np.concatenate(differ).mean())) > 0:
            apart[seed] = share, facts["quant_format"].name
    print(f"{total - len(apart)} of {total} networks are equal; share of values of others: {apart}")
    return total, apart


@pytest.mark.parametrize("seed", range(3))
def test_what_onnxruntime_quantises_is_equal(tmp_path, seed):
    assert survey_static(tmp_path, [seed]) == (1, {})


@pytest.mark.slow
def test_much_of_what_onnxruntime_quantises_is_equal(tmp_path):
    total, apart = survey_static(tmp_path, range(100, 300))
    assert total > 190 and len(apart) <= 0.05 * total


def check_device(folder, seed):
    m, made = random_network(folder, seed, EXACT)
    steps, graph = differences(m, seed, 1)
    found, _ = run(compile_graph(graph, PRESETS["pynq_z1"]), m.fed)
    mine, _ = reference.run(graph, m.fed)
    assert made and (steps > 0).mean() < MOST and found.keys() == mine.keys()
    assert all(np.array_equal(found[name], mine[name]) for name in mine)


@pytest.mark.parametrize("seed", [1, 3])
def test_the_device_equals_onnxruntime(tmp_path, seed):
    check_device(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_networks_on_the_device(tmp_path, seed):
    check_device(tmp_path, seed)


def rows():
    """Kinds of operators and the share of values that may differ, by the table of docs/networks.md."""
    (table,) = re.findall(r"\| operator \| rounds \|.*?\n\n", PAGE.read_text(), flags=re.S)
    for line in table.strip().splitlines()[2:]:
        operators, _, differ = (cell.strip() for cell in line.strip("|").split("|"))
        share = 0.0 if differ.startswith("equal") else 1 / int(re.findall(r"1 in ([\d,]+)", differ)[0].replace(",", ""))
        yield [kind for kind in KINDS if f"`{KINDS[kind].name}`" in operators], share


def check_rows(folder, seeds):
    seen = set()
    for kinds, share in rows():
        assert kinds and seen.isdisjoint(kinds)
        seen.update(kinds)
        for kind in kinds:
            found = []
            for seed in seeds:
                m, made = random_network(folder, seed, [kind], 1)
                found += [differences(m, seed)[0]] if made else []
            steps = np.concatenate(found or [np.zeros(1)])  # of few seeds, those that fit no network draw none
            print(f"{kind}: {np.count_nonzero(steps)} of {steps.size:,} values differ, by {steps.max():.0f} at most")
            assert steps.max() <= 1 and np.count_nonzero(steps) <= max(2 * (share > 0), share * steps.size), kind
    assert seen == KINDS.keys()


def test_operators_differ_as_the_page_says(tmp_path):
    check_rows(tmp_path, range(2))


@pytest.mark.slow
def test_operators_differ_as_the_page_says_in_many_networks(tmp_path):
    check_rows(tmp_path, range(100, 200))


def test_all_opsets_and_types_are_drawn(tmp_path):
    drawn = [random_network(tmp_path, seed, ["relu"], 1)[0] for seed in range(60)]
    assert {m.opset for m in drawn} == {*OPSETS} and {m.type for m in drawn} == {np.int8, np.uint8}
    assert {(m.per_channel, m.mixed) for m in drawn} == {(a, b) for a in (True, False) for b in (True, False)}
