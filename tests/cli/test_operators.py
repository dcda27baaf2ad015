"""`tilewright operators`: what is read of each format."""

import json

RANGES = ("RELU_0_TO_1", "RELU_N1_TO_1")


def test_the_table_has_every_format(tilewright):
    done = tilewright("operators", "relu")
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in done.out.splitlines()[2:-1]}
    assert done.status == 0
    onnx = dict.fromkeys(["LeakyRelu", "PRelu", "QLinearLeakyRelu", "ThresholdedRelu"], "onnx")
    tflite = dict.fromkeys(["LEAKY_RELU", "PRELU", "RELU", "RELU6", *RANGES], "tflite")
    assert rows == {"Relu": "onnx, deeploy"} | onnx | tflite


def test_one_format_as_json(tilewright):
    found = json.loads(tilewright("operators", "--format", "tflite", "--json").out)["operators"]
    assert {"name": "CONV_2D", "formats": ["tflite"]} in found and len(found) > 100
    assert all(row["formats"] == ["tflite"] for row in found)


def test_a_name_that_is_not_there_is_refused(tilewright):
    done = tilewright("operators", "Frobnicate")
    assert done.status == 9
    assert "no operator has 'Frobnicate' in its name; `tilewright operators` lists all" in done.err
