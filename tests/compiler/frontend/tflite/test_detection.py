"""TFLite_Detection_PostProcess: the reference gives the values of LiteRT's kernel."""

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import reference
from tilewright.hw.errors import UnsupportedError

BOXES, CLASSES = 40, 5


def post_process(m, real, most, shapes=True, **changes):
    """A file of the operator alone; the scores' first class is the background."""
    dtype = "FLOAT32" if real else "UINT8"
    boxes = m.input((1, BOXES, 4), None if real else 0.05, 128, dtype=dtype)
    scores = m.input((1, BOXES, CLASSES + 1), None if real else 1 / 256, 0, dtype=dtype)
    anchors = m.rng.integers(20, 256, (BOXES, 4)).astype(np.uint8)
    last = m.const(anchors.astype(np.float32) / 256) if real else m.const(anchors, 0.004, 9)
    outputs = [m.tensor(s if shapes else (), dtype="FLOAT32") for s in ((1, most, 4), (1, most), (1, most), (1,))]
    options = {"max_detections": most, "max_classes_per_detection": 1, "num_classes": CLASSES}
    options |= {"nms_score_threshold": 0.3, "nms_iou_threshold": 0.5}
    options |= {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0} | changes
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, value in options.items():
            if value is not None:
                {bool: builder.Bool, int: builder.Int, float: builder.Float}[type(value)](key, value)
    m.node("CUSTOM", [boxes, scores, last], outputs)
    m.model.operatorCodes[-1].customCode = "TFLite_Detection_PostProcess"
    m.graph.operators[-1].customOptions = np.frombuffer(bytes(builder.Finish()), np.uint8)
    for y in outputs:
        m.output(y)
    if real:
        m.output(m.op("QUANTIZE", [boxes], (1, BOXES, 4), 0.1, 0))  # else it is a float32 model
    return m


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("options", [{}, {"use_regular_nms": True, "detections_per_class": 7}])
@pytest.mark.parametrize("most", [6, 30])
def test_detections(tflite, litert_outputs, real, options, most):
    for seed in range(4):
        m = post_process(tflite(seed), real, most, **options)
        path = m.save()
        shapes = (1, BOXES, 4), (1, BOXES, CLASSES + 1)
        given = [m.rng.integers(60 * (1 - k), 200 + 56 * k, shape).astype(np.uint8) for k, shape in enumerate(shapes)]
        if real:
            given = [(x.astype(np.float32) - (1 - k) * 128) / (25, 256)[k] for k, x in enumerate(given)]
            given = [x.astype(np.float32) for x in given]
        graph = import_tflite(path)
        found, _ = reference.run(graph, dict(zip((t.name for t in graph.inputs), given)))
        for t, expected in zip(graph.outputs, litert_outputs(path, *given)):
            assert found[t.name].shape == expected.shape and np.array_equal(found[t.name], expected)
        assert found[graph.outputs[3].name][0] > 1


def test_shapes_that_a_file_leaves_out(tflite):
    graph = import_tflite(post_process(tflite(), False, 6, shapes=False).save())
    assert [t.shape for t in graph.outputs] == [(1, 6, 4), (1, 6), (1, 6), (1,)]


def test_options_that_are_missing(tflite):
    with pytest.raises(UnsupportedError, match="'custom_tflite_detection_postprocess_0' .* has no option num_classes"):
        import_tflite(post_process(tflite(), False, 6, num_classes=None).save())
    m = post_process(tflite(), False, 6)
    m.graph.operators[0].customOptions = np.array([255, 255], np.uint8)
    with pytest.raises(UnsupportedError, match="has no option max_detections"):
        import_tflite(m.save())
    m = post_process(tflite(), False, 6)
    m.graph.operators[0].outputs = m.graph.operators[0].outputs[:3]
    with pytest.raises(UnsupportedError, match="has 3 outputs; it must have 4"):
        import_tflite(m.save())
