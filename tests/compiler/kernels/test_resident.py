"""Networks whose constants stay on chip: equal outputs, and which bytes their steady runs load."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import reference
from tilewright.hw.errors import InputError
from tilewright.hw.isa import Mem
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify_steady

RESIDENT = tw.load_config("pynq_z1_resident")
DIGITS = Path(__file__).parents[3] / "examples" / "digits"
AD01 = Path(__file__).parents[4] / "shared" / "models" / "ad01_int8.tflite"


def test_all_constants_of_a_small_network_stay():
    """The outputs are those of the golden interpreter."""
    graph = import_model(DIGITS / "digits.onnx")
    network = tw.load(DIGITS / "digits.onnx", RESIDENT, resident=True)
    verify_steady(network.steps)
    with np.load(DIGITS / "inputs.npz") as file, Loaded(network, open_device("timing", RESIDENT)) as loaded:
        cycles = []
        for image in file["inputs"][:3]:
            golden, _ = reference.run(graph, {"image": image})
            assert np.array_equal(loaded.run({"image": image})["logits"], golden["logits"])
            cycles.append(loaded.stats.cycles)
        assert loaded.stats.bytes_loaded.keys() == {"INP"}
        assert cycles[1] == cycles[2] < 0.7 * cycles[0]


def test_runs_of_the_program_itself_find_what_earlier_ones_left():
    """By the name of a device, and on two open ones, of which each has what it left."""
    network, images = tw.load(DIGITS / "digits.onnx", RESIDENT, resident=True), np.load(DIGITS / "inputs.npz")["inputs"]
    first, *later = (network.run(image, on="timing")[1].cycles or 0 for image in images[:3])
    assert later[0] == later[1] < 0.7 * first
    for device in (open_device("timing", RESIDENT), open_device("timing", RESIDENT)):
        assert [network.run(image, on=device)[1].cycles for image in images[:2]] == [first, later[0]]
    no_device: Any = 5
    with pytest.raises(InputError):
        network.run(images[0], on=no_device)


@pytest.mark.skipif(not AD01.exists(), reason="needs ad01_int8.tflite of ../shared")
def test_a_network_of_more_weights_than_room_loads_the_rest():
    """1,040 entries of weights for 1,024: the last layer and one in the middle share 16 entries, which both load."""
    network = tw.compile(str(AD01), RESIDENT, resident=True)
    verify_steady(network.steps)
    plain, rng = tw.compile(str(AD01), RESIDENT), np.random.default_rng(1)
    (tensor,) = network.inputs
    with Loaded(network, open_device("timing", RESIDENT)) as loaded:
        for _ in range(3):
            x = rng.integers(-128, 128, tensor.shape).astype(tensor.dtype)
            (found,), (expected,) = loaded.run({tensor.name: x}).values(), plain({tensor.name: x}).values()
            assert np.array_equal(found, expected)
    assert loaded.stats.bytes_loaded[Mem.WGT.name] == 2 * 16 * RESIDENT.wgt_entry_bytes
    assert loaded.stats.cycles is not None and loaded.stats.cycles <= 2600
    first, today = (tw.predict(each.launches[0].launch).cycles for each in (network, plain))
    assert first <= 1.03 * today
