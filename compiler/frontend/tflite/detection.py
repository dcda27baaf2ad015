"""TFLite_Detection_PostProcess, the custom operator of detectors: boxes, classes, scores and their number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ... import graph as g
from .file import FileNode
from .importer import Refused, TfliteImporter

KIND = "CUSTOM TFLite_Detection_PostProcess"


def _real(imp: TfliteImporter, node: FileNode, position: int) -> g.Tensor:
    """An input as float32."""
    x = imp.activation(node, position, plain=True, dtype=None)
    if x.dtype == "float32":
        return x
    return imp.add(g.Dequantize, (x,), g.Tensor(f"{node.name}.{position}", x.shape, "float32"))


def _anchors(imp: TfliteImporter, node: FileNode) -> np.ndarray:
    """float32 (N, 4)."""
    data, info = imp.constant(node, 2), imp.info(node, 2)
    if info.scale.size == 1:
        data = (data.astype(np.int32) - int(info.zero_point[0])).astype(np.float32) * info.scale[0]
    return data.astype(np.float32)


def post_process(imp: TfliteImporter, node: FileNode) -> None:
    """The operator, whose one table of detections four movements take apart."""
    needed = ("max_detections", "num_classes", "nms_score_threshold", "nms_iou_threshold")
    needed += tuple(f"{axis}_scale" for axis in "yxhw")
    values = {name: node.option(name, None) for name in needed}
    if missing := [name for name, value in values.items() if value is None]:
        raise Refused(f"has no option {missing[0]}")
    if len(node.outputs) != 4:
        raise Refused(f"has {len(node.outputs)} outputs; it must have 4")
    boxes, scores, anchors = _real(imp, node, 0), _real(imp, node, 1), _anchors(imp, node)
    facts = {
        "scales": tuple(float(values[f"{axis}_scale"]) for axis in "yxhw"),
        "most": int(values["max_detections"]),
        "classes": int(values["num_classes"]),
        "classes_per_box": int(node.option("max_classes_per_detection", 1)),
        "per_class": int(node.option("detections_per_class", 100)),
        "each_class": bool(node.option("use_regular_nms", False)),
        "score": float(values["nms_score_threshold"]),
        "overlap": float(values["nms_iou_threshold"]),
    }
    rows = facts["most"] * (1 if facts["each_class"] else min(facts["classes_per_box"], facts["classes"]))
    table = g.Tensor(imp.unused(f"{node.name}.table"), (1, rows + 1, 6), "float32")
    imp.ops.append(g.Detections(table.name, (boxes, scores), table, anchors, **facts))
    # (first row, first column, rows, columns) of each output, and its shape, which files leave out
    parts = (0, 0, rows, 4), (0, 4, rows, 1), (0, 5, rows, 1), (rows, 0, 1, 1)
    shapes = (1, rows, 4), (1, rows), (1, rows), (1,)
    for k, ((row, column, height, width), shape) in enumerate(zip(parts, shapes)):
        part = g.Tensor(f"{node.name}.{k}", (1, height, width), "float32")
        part = imp.add(g.StridedSlice, (table,), part, (0, row, column), (1, 1, 1))
        name = f"{part.name}.reshape"
        y = replace(imp.result(node, k, plain=True), shape=shape)
        imp.emit(node, g.Reshape(name, (part,), y), k, plain=True)
