"""The ResNet-18 layers build to a few hundred instructions and are exact."""

import numpy as np
import pytest

from tilewright.cli.bench.layers import build_layer, layer, layer_data, resnet18_layers
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify


def test_the_table_is_the_papers():
    assert list(resnet18_layers()) == [f"C{k}" for k in range(2, 13)]
    assert sum(shape.macs for shape in resnet18_layers().values()) == 667942912  # 1335.9 MOP
    with pytest.raises(UnsupportedError, match="unknown layer 'C1'; must be one of C2"):
        layer("C1")


@pytest.mark.parametrize("cfg", [PRESETS["vta"], PRESETS["pynq_z1"]], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("name", list(resnet18_layers()))
def test_layers_are_exact_on_the_model(name, cfg):
    program = build_layer(name, cfg)
    launch = program.finish()
    assert len(launch.insn) < 1000
    verify(launch)
    inputs, expected = layer_data(name, cfg)
    out, stats = run(program, inputs)
    assert np.array_equal(out["out"], expected)
    assert stats.macs == layer(name).macs
