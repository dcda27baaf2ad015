"""Writes the golden files of this folder again: `.venv/bin/python tests/data/make.py`.

programs/*.npz are random programs with memory before and after, in the format of docs/files.md; memory after is that of
sim/spec.py. networks/*.tflite are small networks with random weights,
networks/*.npz random inputs and what LiteRT's reference kernels make of them. Both are frozen: a change that alters a
result fails in tests/test_golden.py. Write them again only when what is defined changes.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tilewright.hw.config import PRESETS
from tilewright.sim.random_programs import NARROW, ODD, WIDE, random_case
from tilewright.sim.replay import write_case
from tilewright.sim.spec import SpecDevice

HERE = Path(__file__).parent
PROGRAMS = [("tiny", PRESETS["tiny"], seed) for seed in (3, 12, 27)]
PROGRAMS += [("odd", ODD, 4), ("odd", ODD, 9), ("narrow", NARROW, 6), ("wide", WIDE, 15)]


def programs() -> None:
    """One file per program."""
    for name, cfg, seed in PROGRAMS:
        before, address, count = random_case(cfg, seed)
        after = before.copy()
        SpecDevice(cfg).run_image(after, address, count)
        write_case(HERE / "programs" / f"{name}_{seed}.npz", cfg, before, after, address, count)


def classifier(m: Any) -> None:
    """A small residual network: convolution, depthwise, sum, maximum, mean, dense layer, softmax."""
    x = m.input((1, 9, 7, 3))
    x = m.op("CONV_2D", [x, *m.weights((20, 3, 3, 3))], (1, 9, 7, 20), 0.05, 4, strideH=1, strideW=1)
    weights = m.weights((1, 3, 3, 20), axis=3)
    y = m.op("DEPTHWISE_CONV_2D", [x, *weights], (1, 9, 7, 20), 0.05, 4, strideH=1, strideW=1, depthMultiplier=1)
    x = m.op("ADD", [x, y], (1, 9, 7, 20), 0.05, -11)
    window = {"filterHeight": 2, "filterWidth": 3, "strideH": 2, "strideW": 2}
    x = m.op("MAX_POOL_2D", [x], (1, 5, 4, 20), 0.05, -11, **window)
    x = m.op("CONV_2D", [x, *m.weights((17, 1, 1, 20))], (1, 5, 4, 17), 0.05, 2, strideH=1, strideW=1)
    x = m.op("MEAN", [x, m.const(np.array([1, 2], np.int32))], (1, 17), 0.05, -1)
    x = m.op("FULLY_CONNECTED", [x, *m.weights((10, 17))], (1, 10), 0.01, 3)
    m.output(m.op("SOFTMAX", [x], (1, 10), 1 / 256, -128, beta=1.0))


def images(m: Any) -> None:
    """An image to an image: strided and grouped convolutions, transposed convolution, concatenation, average."""
    x = m.input((1, 8, 8, 16))
    y = m.op("CONV_2D", [x, *m.weights((32, 3, 3, 8))], (1, 4, 4, 32), 0.05, 4, strideH=2, strideW=2)
    weights, bias = m.weights((16, 3, 3, 32))
    shape = m.const(np.array((1, 8, 8, 16), np.int32))
    y = m.op("TRANSPOSE_CONV", [shape, weights, y, bias], (1, 8, 8, 16), 0.05, -3, strideH=2, strideW=2)
    x = m.op("CONCATENATION", [x, y], (1, 8, 8, 32), 0.05, -3, axis=3)
    window = {"filterHeight": 2, "filterWidth": 2, "strideH": 2, "strideW": 2}
    x = m.op("AVERAGE_POOL_2D", [x], (1, 4, 4, 32), 0.05, -3, **window)
    m.output(m.op("CONV_2D", [x, *m.weights((5, 1, 1, 32))], (1, 4, 4, 5), 0.1, 0, strideH=1, strideW=1))


def networks() -> None:
    """A model and four samples per network."""
    spec = importlib.util.spec_from_file_location("makers", HERE.parent / "compiler" / "conftest.py")
    assert spec and spec.loader
    makers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(makers)
    for seed, build in enumerate((classifier, images), 1):
        model = makers.TfliteModel(HERE / "networks", seed)
        build(model)
        path = model.save(f"{build.__name__}.tflite")
        interpreter = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
        interpreter.allocate_tensors()
        (x,), (y,) = interpreter.get_input_details(), interpreter.get_output_details()
        samples = np.random.default_rng(seed).integers(-128, 128, (4, *x["shape"])).astype(np.int8)
        outputs = []
        for sample in samples:
            interpreter.set_tensor(x["index"], sample)
            interpreter.invoke()
            outputs.append(interpreter.get_tensor(y["index"]).copy())
        np.savez_compressed(path.with_suffix(".npz"), inputs=samples, outputs=np.array(outputs))


if __name__ == "__main__":
    for folder in ("programs", "networks"):
        (HERE / folder).mkdir(exist_ok=True)
    programs()
    networks()
