import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, CapacityError, ExecutionError, InputError
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.runtime.device import open_device
from tilewright.sim.memory import PAGE
from tilewright.sim.model.device import ModelDevice

TINY = PRESETS["tiny"]


def device(**options):
    return ModelDevice(TINY, **options)


def test_memory_is_aligned_apart_and_never_in_page_0():
    d, rng, spans = device(), np.random.default_rng(0), []
    for _ in range(60):
        nbytes, align = int(rng.integers(0, 3000)), int(rng.choice([1, 4, 48, 64, 4096]))
        at = d.allocate(nbytes, align)
        assert at >= PAGE and at % align == 0
        spans.append((at, at + max(nbytes, 1)))
    spans.sort()
    assert all(stop <= start for (_, stop), (start, _) in zip(spans, spans[1:]))


def test_memory_that_was_used_before_is_zero_again():
    d = device()
    a, b = d.allocate(100, 64), d.allocate(100, 64)
    d.write(a, np.full(100, 7, np.uint8))
    d.write(b, np.full(100, 9, np.uint8))
    d.free(a)
    again = d.allocate(90, 64)
    assert again == a
    assert not d.read(again, 90).any()
    assert (d.read(b, 100) == 9).all()


def test_memory_grows_and_keeps_its_contents():
    d = device()
    a = d.allocate(16, 16)
    d.write(a, np.arange(16, dtype=np.uint8))
    big = d.allocate(5 << 20, 4096)
    d.write(big + (5 << 20) - 4, np.arange(4, dtype=np.uint8))
    assert d.read(a, 16).tolist() == list(range(16))
    assert d.read(big + (5 << 20) - 6, 6).tolist() == [0, 0, 0, 1, 2, 3]


def test_a_program_runs_again_after_memory_has_grown():
    d, isa = device(), Isa(TINY)
    x, insns = d.allocate(64, 64), d.allocate(32, 16)
    load = isa.formats["LOAD"].encode(op=Op.LOAD, mem=Mem.INP, dram_base=x // 4, y_size=1, x_size=1)
    d.write(insns, np.concatenate([load, isa.formats["FINISH"].encode(op=Op.FINISH)]).view(np.uint8).reshape(-1))
    for value in (3, 4):
        d.write(x, np.full(4, value, np.uint8))
        stats = d.run(insns, 2)
        assert (d._model.state.inp[0] == value).all()
        d.allocate(3 << 20, 64)
    assert stats.bytes_loaded == {"INP": 4}


def test_a_full_memory_names_what_is_in_use():
    d = device(capacity=1 << 16)
    d.allocate(50000, 64)
    with pytest.raises(
        CapacityError, match="20000 bytes do not fit the device memory: 50000 of 65536 bytes are in use"
    ):
        d.allocate(20000, 64)
    assert d.allocate(10000, 64)


def test_a_gap_is_used_only_where_it_is_large_enough():
    d = device()
    a, b, c = (d.allocate(256, 64) for _ in range(3))
    d.free(b)
    assert d.allocate(257, 64) > c
    assert d.allocate(256, 64) == b
    d.free(a)
    assert d.allocate(1, 4096) == a


def test_mistakes_are_named():
    d = device()
    with pytest.raises(InputError, match="address 0x5000 was not allocated"):
        d.free(0x5000)
    with pytest.raises(InputError, match="cannot allocate -1 bytes aligned to 8"):
        d.allocate(-1, 8)
    for call in (lambda: d.read(1 << 40, 4), lambda: d.write(-4, np.zeros(4, np.uint8)), lambda: d.read(PAGE, -1)):
        with pytest.raises(AccessError, match="are outside memory, 0..0xfffff"):
            call()
    with pytest.raises(ExecutionError):
        d.run(PAGE, 1)


def test_it_is_the_device_called_model():
    assert isinstance(open_device("model", TINY), ModelDevice)


def test_an_image_takes_the_place_of_memory_for_one_run():
    d, isa = device(), Isa(TINY)
    kept = d.allocate(4, 4)
    d.write(kept, np.full(4, 9, np.uint8))
    words = [
        isa.formats["STORE"].encode(op=Op.STORE, mem=Mem.OUT, dram_base=16, y_size=1, x_size=1),
        isa.formats["FINISH"].encode(op=Op.FINISH),
    ]
    image = np.full(100, 5, np.uint8)
    image[:32] = np.concatenate(words).view(np.uint8).reshape(-1)
    stats = d.run_image(image, 0, 2)
    assert image[64:68].tolist() == [0] * 4 and (image[68:] == 5).all()
    assert stats.bytes_stored == {"OUT": 4}
    assert (d.read(kept, 4) == 9).all()
