"""Detections of boxes whose overlaps are known; LiteRT's values are compared elsewhere."""

import numpy as np

from tilewright.runtime.hostops.detection import detections

# y, x, h, w of the anchors: the second lies on the first but for a tenth, the third apart
ANCHORS = np.array([[0.5, 0.5, 1, 1], [0.6, 0.5, 1, 1], [5, 5, 2, 2]], np.float32)
SCORES = np.array([[[0, 0.9, 0.2], [0, 0.8, 0.85], [0, 0.1, 0.4]]], np.float32)
FACTS = {"anchors": ANCHORS, "scales": [10, 10, 5, 5], "classes": 2, "per_class": 9, "score": 0.3, "overlap": 0.5}


def found(most=3, **changes):
    """[(ymin, class, score)] of the detections, and that the rest is 0."""
    facts = FACTS | {"most": most, "classes_per_box": 1, "each_class": False} | changes
    result = detections(np.zeros((1, 3, 4), np.float32), SCORES, **facts)[0]
    count = int(result[-1, 0]) * (1 if facts["each_class"] else facts["classes_per_box"])
    assert not result[count:-1].any()
    return [(round(float(row[0]), 3), int(row[4]), round(float(row[5]), 3)) for row in result[:count]]


def test_boxes_of_all_classes_suppress_each_other():
    assert found() == [(0.0, 0, 0.9), (4.0, 1, 0.4)]
    assert found(most=1) == [(0.0, 0, 0.9)]
    assert found(overlap=0.95) == [(0.0, 0, 0.9), (0.1, 1, 0.85), (4.0, 1, 0.4)]
    assert found(score=0.5) == [(0.0, 0, 0.9)]


def test_the_best_classes_of_a_box():
    assert found(classes_per_box=2) == [(0.0, 0, 0.9), (0.0, 1, 0.2), (4.0, 1, 0.4), (4.0, 0, 0.1)]


def test_boxes_of_each_class_by_itself():
    assert found(each_class=True) == [(0.0, 0, 0.9), (0.1, 1, 0.85), (4.0, 1, 0.4)]
    assert found(each_class=True, per_class=1) == [(0.0, 0, 0.9), (0.1, 1, 0.85)]
    assert found(each_class=True, most=1) == [(0.0, 0, 0.9)]


def test_boxes_are_offsets_from_anchors():
    boxes = np.array([[[10, -20, 5 * np.log(3), 0]] * 3], np.float32)
    row = detections(boxes, SCORES, **FACTS, most=1, classes_per_box=1, each_class=False)[0, 0]
    assert np.allclose(row[:4], [1.5 - 1.5, -1.5 - 0.5, 1.5 + 1.5, -1.5 + 0.5], atol=1e-6)
