"""Detections from boxes and scores: TensorFlow Lite's custom operator TFLite_Detection_PostProcess, in float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..schema import SIZE, Array, Kind, ListOf
from .arrays import Attrs, Float32
from .row import FINITE, HostOp, Operand, Operands, need

MOST_ROWS = 1 << 20  # most detections
_F = np.float32


def _decoded(boxes: Float32, anchors: Float32, scales: Sequence[float]) -> Float32:
    """(N, 4) ymin, xmin, ymax, xmax of boxes that are offsets (y, x, height, width) from anchors (N, 4)."""
    offsets, known = (boxes / np.array(scales, _F).astype(np.float64)), anchors.astype(np.float64)
    middle = (offsets[:, :2] * known[:, 2:] + known[:, :2]).astype(_F)
    half = (0.5 * np.exp(offsets[:, 2:]) * known[:, 2:]).astype(_F)
    return np.concatenate([middle - half, middle + half], 1)


def _overlaps(box: Float32, others: Float32) -> Float32:
    """Intersection over union of a box with others; 0 where one of them is empty."""
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    area = (box[2] - box[0]) * (box[3] - box[1])
    size = np.maximum(np.minimum(others[:, 2:], box[2:]) - np.maximum(others[:, :2], box[:2]), _F(0))
    shared = size[:, 0] * size[:, 1]
    return np.where((areas <= 0) | (area <= 0), _F(0), shared / (areas + area - shared))


def _kept(boxes: Float32, scores: Float32, most: int, score: float, overlap: float) -> list[int]:
    """Boxes with at least `score` that overlap no better box by more than `overlap`, best first, at most `most`."""
    order = np.flatnonzero(scores >= _F(score))
    order = order[np.argsort(-scores[order], kind="stable")]
    kept: list[int] = []
    limit = min(len(order), most)
    while len(order) and len(kept) < limit:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        order = order[~(_overlaps(boxes[best], boxes[order]) > _F(overlap))]
    return kept


def _best_classes(
    boxes: Float32, scores: Float32, most: int, classes: int, score: float, overlap: float
) -> list[tuple[int, int]]:
    """(box, class): the best `classes` of each box, where boxes suppress each other by their best class."""
    ranked = np.argsort(-scores, axis=1, kind="stable")[:, :classes]
    kept = _kept(boxes, scores.max(1), most, score, overlap)
    return [(box, int(k)) for box in kept for k in ranked[box]]


def _each_class(
    boxes: Float32, scores: Float32, most: int, per_class: int, score: float, overlap: float
) -> list[tuple[int, int]]:
    """(box, class): the best `most` pairs, where boxes suppress each other within a class."""
    found: list[tuple[int, int]] = []
    for k in range(scores.shape[1]):
        found += [(box, k) for box in _kept(boxes, scores[:, k], per_class, score, overlap)]
        found = sorted(found, key=lambda pair: -scores[pair])[:most]
    return found


def detections(
    boxes: Float32,
    scores: Float32,
    *,
    anchors: Float32,
    scales: Sequence[float],
    most: int,
    classes: int,
    classes_per_box: int,
    per_class: int,
    each_class: bool,
    score: float,
    overlap: float,
) -> Float32:
    """float32 (1, rows, 6): ymin, xmin, ymax, xmax, class and score of each detection, then a row with their number.

    `boxes` (1, N, 4) are offsets from `anchors` (N, 4) in units of `scales` (y, x, h, w); the last `classes` of the C
    columns of `scores` (1, N, C) count. Rows without a detection are 0. With `each_class` boxes of one class suppress
    each other; otherwise all boxes do, and each gives its best `classes_per_box`.
    """
    with np.errstate(all="ignore"):
        whole, graded = _decoded(boxes[0], anchors, scales), scores[0, :, -classes:]
        if each_class:
            found = _each_class(whole, graded, most, per_class, score, overlap)
        else:
            found = _best_classes(whole, graded, most, classes_per_box, score, overlap)
    width = 1 if each_class else min(classes_per_box, classes)
    result = np.zeros((1, most * width + 1, 6), _F)
    for row, (box, k) in enumerate(found):
        result[0, row] = [*whole[box], k, graded[box, k]]
    result[0, -1, 0] = len(found) // width
    return result


def _detected(inputs: Operands, a: Attrs) -> Operand:
    (boxes, _, _), (scores, _, _) = inputs
    count = boxes[1]
    need(boxes == (1, count, 4), f"boxes {boxes}: must be (1, N, 4)")
    need(scores[:2] == (1, count), f"scores {scores}: must be of {count} boxes")
    need(a["anchors"].shape == (count, 4), f"anchors {a['anchors'].shape}: must be {(count, 4)}")
    need(a["classes"] <= scores[2], f"classes = {a['classes']}: the scores have {scores[2]}")
    scales: Sequence[float] = a["scales"]
    need(min(map(abs, scales)) > 0, f"scales = {a['scales']}: must not be 0")
    rows = a["most"] * (1 if a["each_class"] else min(a["classes_per_box"], a["classes"]))
    need(rows <= MOST_ROWS, f"most = {a['most']}: {rows} rows, at most {MOST_ROWS} are allowed")
    return Operand((1, rows + 1, 6), "float32")


_KINDS: dict[str, Kind] = {
    "anchors": Array(2, ("float32",)),
    "scales": ListOf(FINITE, 4),
    **dict.fromkeys(("most", "classes", "classes_per_box", "per_class"), SIZE),
    **dict.fromkeys(("score", "overlap"), FINITE),
}

ROWS = (HostOp(detections, _detected, _KINDS, ("float32",), (3,), 2),)
