"""What does my network cost?
==========================

A float32 network becomes integers, runs on the accelerator, and is looked at operator by operator. This one reads 8x8
images of digits; its weights are random, to be short. Yours comes from training, exported to ONNX, and takes the same
steps. Cycles are simulated, by the timing model; times of the host are those of a modelled Cortex-A9.
"""

import logging
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

import tilewright as tw

ROOT = next(path for path in (Path.cwd(), *Path.cwd().parents) if (path / "examples" / "digits").is_dir())
FOLDER = Path(tempfile.mkdtemp())
images = np.load(ROOT / "examples" / "digits" / "inputs.npz")["inputs"]

# %%
# A float32 network
# -----------------
# Two convolutions, a residual sum, and a layer that gives ten numbers.

rng = np.random.default_rng(0)
weights = {
    "w1": rng.normal(0, 0.3, (16, 1, 3, 3)),
    "w2": rng.normal(0, 0.1, (16, 16, 3, 3)),
    "w3": rng.normal(0, 0.1, (10, 1024)),
}
nodes = [
    helper.make_node("Conv", ["image", "w1"], ["first"], name="first", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["first"], ["a"], name="relu1"),
    helper.make_node("Conv", ["a", "w2"], ["second"], name="second", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    helper.make_node("Add", ["a", "second"], ["sum"], name="sum"),
    helper.make_node("Relu", ["sum"], ["b"], name="relu2"),
    helper.make_node("Flatten", ["b"], ["flat"], name="flatten"),
    helper.make_node("Gemm", ["flat", "w3"], ["logits"], name="last", transB=1),
]
image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])
logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])
constants = [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
graph = helper.make_graph(nodes, "small", [image], [logits], constants)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), FOLDER / "small.onnx")

# %%
# Quantise
# --------
# onnxruntime reads some typical images, to choose the scales, and writes integers with those scales.


class Images(CalibrationDataReader):
    """The images that scales are chosen by, one after the other."""

    def __init__(self):
        self.left = iter(images[:50])

    def get_next(self):
        """The next sample; None after the last."""
        image = next(self.left, None)
        return None if image is None else {"image": image}


logging.getLogger().setLevel(logging.ERROR)  # onnxruntime recommends a step for larger networks
QUANTISED = FOLDER / "small_int8.onnx"
int8 = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8, "per_channel": True}
quantize_static(str(FOLDER / "small.onnx"), str(QUANTISED), Images(), **int8)

# %%
# Run
# ---
# `load` compiles the network. Two questions are different: whether the *quantisation* keeps the labels, which this
# counts, and whether the *accelerator* computes the integers exactly, which it always does; ``tilewright run --check``
# compares every value of every operator with an interpreter.

small = tw.load(QUANTISED)
outputs, stats = small.run(images[0], on="timing")
print(f"{stats.cycles:,} cycles, {stats.macs:,} multiply-accumulates")

float32 = onnxruntime.InferenceSession(str(FOLDER / "small.onnx"))
same = [np.argmax(small(x)["logits"]) == np.argmax(np.array(float32.run(None, {"image": x})[0])) for x in images[:50]]
print(sum(same), "of", len(same), "labels are those of float32")

# %%
# What it is made of
# ------------------
# The executable in a notebook: its steps, and where they run.

tw.load(QUANTISED)

# %%
# Where the cycles go
# -------------------
# The data of a report are plain values, for pictures of your own.

report = tw.report(QUANTISED)
rows = [row for row in report.data["operators"] if row.get("cycles")]
plt.figure(figsize=(6, 2.5))
plt.barh([row["operator"] for row in rows], [row["cycles"] for row in rows])
plt.gca().invert_yaxis()
plt.xlabel("cycles, simulated")
plt.tight_layout()

# %%
# The report
# ----------
# The whole page: placement with reasons, operators, timeline, memory, roofline.

tw.report(QUANTISED)
