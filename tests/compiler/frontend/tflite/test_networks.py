"""Real networks, whole: the reference gives the bytes of LiteRT's reference kernels, stored beside the files."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import reference

FOLDER = Path(__file__).parents[5] / "shared" / "networks"
# name -> the contract in which LiteRT rounds: dense layers once
NETWORKS = {
    "R_coral_mobilenetv1_uint8_025_128": "double",
    "R_coral_movenet_lightning": "double",
    "R_mcunet_detection": "double",
    "efinix_face_detection": "double",
    "mcunet_vww": "double",
    "secda_dcgan_gen": "single",
}


@pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/networks is not there")
@pytest.mark.parametrize("name", NETWORKS)
def test_every_output_byte_is_that_of_litert(name):
    graph = import_tflite(FOLDER / f"{name}.tflite")
    with np.load(FOLDER / f"{name}.npz") as given, np.load(FOLDER / f"{name}.litert_ref.npz") as wanted:
        (x,) = graph.inputs
        for k, each in enumerate(given["inputs"]):
            found, _ = reference.run(graph, {x.name: each}, NETWORKS[name])
            for number, output in enumerate(wanted["names"].tolist()):
                expected = wanted[f"o{number}"][k]
                assert found[output].dtype == expected.dtype and np.array_equal(found[output], expected)
