"""What operators share while they are recorded into one program."""

import numpy as np
import pytest

from tilewright.compiler.graph import Add, Tensor
from tilewright.compiler.kernels.recording import Recording, packed_bytes, packed_shape
from tilewright.hw.config import PRESETS, Config

CFG = PRESETS["pynq_z1"]


@pytest.fixture
def rec():
    return Recording(CFG, "double", "p")


def test_packed_shapes():
    assert packed_shape((1, 20, 5, 7), CFG) == (1, 2, 5, 7, 1, 16)
    assert packed_shape((3, 16), Config("two", batch=2, extensions=CFG.extensions)) == (2, 1, 2, 16)
    assert packed_bytes(Tensor("t", (1, 20, 3, 3)), CFG) == 32 * 9 and packed_bytes(Tensor("v", (20,)), CFG) == 32


def test_constants_keep_their_bytes(rec):
    data = np.array([[1, -2], [3, 4]], np.int32)
    buffer = rec.constant("c", data)
    assert (buffer.bits, buffer.signed, buffer.kind) == (32, True, "constant")
    assert np.array_equal(buffer.unpack(buffer.data), data)
    assert not rec.constant("u", np.zeros(4, np.uint32)).signed


def test_parameters_of_one_block_or_of_all_channels(rec):
    facts = {"multiplier": 1 << 30, "exponent": 0, "zero_point": 3, "low": -128, "high": 127, "contract": "double"}
    assert rec.parameters("one", bias=7, **facts).shape == (1, 16, 3)
    assert rec.parameters("all", bias=[7] * 20, **facts).shape == (2, 16, 3)


def test_constant_operands_are_repeated(rec):
    data = np.arange(20, dtype=np.int8).reshape(1, 20, 1, 1)
    constant = Tensor("c", data.shape, data=data)
    op = Add("op", (Tensor("x", (1, 20, 2, 2)), constant), Tensor("z", (1, 20, 2, 2)))
    buffer = rec.operand(op, 1)
    assert buffer.shape == (1, 2, 2, 2, 1, 16)
    assert buffer.unpack(buffer.data)[0, 1, :, :, 0, :4].reshape(-1, 4).tolist() == [[16, 17, 18, 19]] * 4
