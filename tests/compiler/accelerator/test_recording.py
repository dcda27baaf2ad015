"""What operators share while they are recorded into one program."""

import numpy as np
import pytest

from tilewright.compiler.graph import Add, Tensor
from tilewright.compiler.graph.integer_forms import Requant
from tilewright.compiler.kernels.recording import Recording, entries, packed_bytes, packed_shape, store_parameters
from tilewright.hw.config import PRESETS, Config

CFG = PRESETS["pynq_z1"]


@pytest.fixture
def rec():
    return Recording(CFG, "double", "p")


def test_packed_shapes(rec):
    assert packed_shape((1, 20, 5, 7), CFG) == (1, 2, 5, 7, 1, 16)
    assert packed_shape((3, 16), Config("two", batch=2, extensions=CFG.extensions)) == (2, 1, 2, 16)
    assert entries(rec, Tensor("t", (2, 20, 5, 7))) == 2 * 2 * 5 * 7
    assert packed_bytes(Tensor("t", (1, 20, 3, 3)), CFG) == 32 * 9 and packed_bytes(Tensor("v", (20,)), CFG) == 32


def test_constants_keep_their_bytes(rec):
    data = np.array([[1, -2], [3, 4]], np.int32)
    buffer = rec.constant("c", data)
    assert (buffer.bits, buffer.signed, buffer.kind) == (32, True, "constant")
    assert np.array_equal(buffer.unpack(buffer.data), data)
    assert not rec.constant("u", np.zeros(4, np.uint32)).signed


def test_parameters_of_one_block_or_of_all_channels(rec):
    op = Add("op", (Tensor("x", (1, 20)), Tensor("y", (1, 20))), Tensor("z", (1, 20)))
    store = Requant(7, 1 << 30, 0, 3)
    assert store_parameters(rec, op, store).shape == (1, 16, 3)
    all_channels = Recording(CFG, "double", "q")
    assert store_parameters(all_channels, op, store, 20).shape == (2, 16, 3)


def test_constant_operands_are_repeated(rec):
    data = np.arange(20, dtype=np.int8).reshape(1, 20, 1, 1)
    constant = Tensor("c", data.shape, data=data)
    op = Add("op", (Tensor("x", (1, 20, 2, 2)), constant), Tensor("z", (1, 20, 2, 2)))
    buffer = rec.operand(op, 1)
    assert buffer.shape == (1, 2, 2, 2, 1, 16)
    assert buffer.unpack(buffer.data)[0, 1, :, :, 0, :4].reshape(-1, 4).tolist() == [[16, 17, 18, 19]] * 4
