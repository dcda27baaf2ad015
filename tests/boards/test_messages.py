"""boards/messages.py: messages read back equal; tests/boards/test_server.py sends wrong ones."""

from collections import Counter

import numpy as np
import pytest

from tilewright.boards import messages
from tilewright.hw.errors import AccessError, BoardError, CapacityError, DeadlockError, InputError
from tilewright.runtime.device import Stats
from tilewright.runtime.loader import StepReport


def test_tensors_of_every_type_and_shape():
    rng = np.random.default_rng(0)
    given = {
        "a": rng.integers(-128, 128, (2, 3), np.int8),
        "b": rng.integers(0, 256, (1, 2, 3, 4), np.uint8),
        "c": rng.integers(-(1 << 31), 1 << 31, (5,), np.int64).astype(np.int32),
        "d": rng.standard_normal((2, 2)).astype(np.float32),
        "e": np.float32(3).reshape(()),
        "f": np.zeros((0, 4), np.int8),
        "g": rng.integers(0, 9, (4, 6), np.int32)[:, ::2],
    }
    reply = messages.make("RunReply", outputs=messages.tensors(given))
    found = messages.arrays(messages.parse("RunReply", reply.SerializeToString()).outputs)
    assert list(found) == list(given)
    for name, array in given.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable


@pytest.mark.parametrize("cycles", [None, 0, 1 << 33])
def test_reports(cycles):
    stats = Stats(Counter({"GEMM": 3}), 5, 80, Counter({"INP": 64}), Counter({"OUT": 4}), cycles, Counter({"A": 0}))
    given = [StepReport("conv", "device", 70, stats, 0.25), StepReport("pool", "host", 0, Stats(), 1.5)]
    reply = messages.make("RunReply", steps=messages.steps(given)).SerializeToString()
    assert messages.reports(messages.parse("RunReply", reply).steps) == given


@pytest.mark.parametrize(
    "error", [CapacityError("full"), AccessError("there", 7), AccessError("there"), DeadlockError("stuck", 0)]
)
def test_errors_keep_their_class_text_and_instruction(error):
    with pytest.raises(type(error)) as caught:
        messages.raise_failure([messages.failure(error)])
    assert str(caught.value) == str(error) and getattr(caught.value, "index", 0) == getattr(error, "index", 0)


@pytest.mark.parametrize("kind", ["SystemExit", "annotations", "__builtins__", "NoSuch"])
def test_a_server_cannot_name_other_classes(kind):
    with pytest.raises(BoardError, match=f"{kind}: text"):
        messages.raise_failure([messages.make("Failure", kind=kind, text="text")])


def test_what_is_no_message():
    with pytest.raises(InputError, match="3 bytes are not a Info message"):
        messages.parse("Info", b"\xff\xff\xff")
