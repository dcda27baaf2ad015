"""sim/rtl/harness.cpp: every bus rule is seen to fire on a master that breaks it, and memory behaves as described."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.sim.dram import ZYNQ_HP, Dram
from tilewright.sim.rtl import device as rtl
from tilewright.sim.rtl import verilator
from tilewright.sim.rtl.device import ProtocolError, Simulation

pytestmark = pytest.mark.circuit
MASTER = Path(__file__).with_name("bus_master.v")
SLOW = ZYNQ_HP.replace(outstanding=1, outstanding_writes=1, port_bytes=1)
BROKEN = [
    (1, "load0: arvalid fell before arready"),
    (2, "load0: the ar payload changed while it waited"),
    (3, "load0: a burst is longer than 16 beats"),
    (4, "load0: a burst has another size than the bus"),
    (5, "load0: a burst is not incrementing"),
    (6, "load0: a burst starts inside a beat"),
    (7, "load0: a burst crosses 4 kB"),
    (8, "store0: a burst crosses 4 kB"),
    (9, "store0: wlast is 1 at beat 3 of 4"),
    (10, "store0: wlast is 0 at beat 4 of 4"),
    (11, "store0: wstrb 0x5f has a hole"),
    (12, "store0: wvalid fell before wready"),
    (13, "store0: the w payload changed while it waited"),
    (14, "done with transfers in flight"),
    (15, "error without done"),
    (16, "load0: 3 bursts in flight, 2 promised"),
    (17, "s_axil: no answer for 10000 cycles writing register"),
    (18, "load0: arvalid is high in reset"),
    (19, "s_axil: r changed before rready"),
    (20, "s_axil: bresp 2 writing register"),
    (23, "store0: awvalid or wvalid is high in reset"),
    (24, "s_axil: rresp 2 reading register"),
    (25, "s_axil: no answer for 10000 cycles reading register"),
    (26, "s_axil: bvalid fell before bready"),
    (27, "s_axil: bvalid before address and data"),
    (28, "s_axil: rvalid before its address"),
]


@pytest.fixture(scope="module")
def library():
    try:
        verilator.need_tools("g++")
    except UnsupportedError as exc:
        pytest.skip(str(exc))
    cfg = PRESETS["vta"]
    sources = [MASTER, rtl.HARNESS, Path(verilator.__file__)]
    key = {"sources": [path.read_text() for path in sources]} | verilator.identity()
    folder = verilator.cached("test", key, lambda f: rtl.build_harness(f, MASTER, "bus_master", cfg) and None)
    return rtl.load_library(folder / "core.so")


def memory():
    return np.random.default_rng(7).integers(0, 256, 4096, np.uint8)


def drive(library, scenario, dram=ZYNQ_HP, image=None, **options):
    """(the simulation after the master's `scenario`, memory)."""
    sim = Simulation(library, dram, **options)
    image = memory() if image is None else image
    sim.use(image)
    sim.write("INSN_COUNT", scenario)
    if scenario in (18, 23):
        sim.reset()
    sim.write("CONTROL", 1)
    assert sim.run(20000)
    return sim, image


def read_back(image, more=0):
    """The sum of the words that the master reads, as it reports it."""
    return (int(image[0x100:0x120].view(np.uint32)[::2].sum(dtype=np.uint32)) + more) % 2**32


def written(image):
    return image[0x200:0x220].view(np.uint64).tolist()


WORDS = [0x0102030400000000 + k for k in (4, 3, 2, 1)]


@pytest.mark.parametrize("dram", [ZYNQ_HP, SLOW, *map(Dram.random, range(20))], ids=lambda d: d.name)
def test_a_master_that_keeps_the_rules_reads_and_writes_memory(library, dram):
    sim, image = drive(library, 0, dram)
    expected = memory()
    assert sim.read("ERROR") == read_back(expected)
    expected[0x200:0x220] = np.array(WORDS, np.uint64).view(np.uint8)
    np.testing.assert_array_equal(image, expected)


@pytest.mark.parametrize("scenario, text", BROKEN, ids=[text for _, text in BROKEN])
def test_each_rule_fires(library, scenario, text):
    dram = SLOW if scenario in (1, 2, 12, 13) else ZYNQ_HP
    with pytest.raises(ProtocolError) as caught:
        for seed in range(50):  # a host that is not always ready
            sim, _ = drive(library, scenario, dram.replace(seed=seed) if scenario in (19, 26) else dram, most_reads=2)
            for _ in range(10):
                sim.read("ERROR")
    assert text in str(caught.value)


def cycles(library, **changes):
    """Of the four beats read, which end last; the beats written go before them or beside them."""
    return drive(library, 0, ZYNQ_HP.replace(response=1, **changes))[0].cycle


def test_the_first_beat_comes_after_the_latency(library):
    spent = [cycles(library, latency=n) for n in (20, 21, 40, 90)]
    assert np.diff(spent).tolist() == [1, 19, 50]


def test_bandwidth_limits_each_port_and_all_together(library):
    base = cycles(library)
    assert cycles(library, port_bytes=4) - base == 3
    assert cycles(library, port_bytes=1) - base == 3 * 7
    assert cycles(library, total_bytes=4) - base == 3
    together = cycles(library, latency=1)
    assert cycles(library, latency=1, total_bytes=8) > together, "beats read and written share the bandwidth"


def test_data_is_visible_at_the_response(library):
    sim = Simulation(library, ZYNQ_HP.replace(response=500))
    image = memory()
    sim.use(image)
    sim.write("INSN_COUNT", 0)
    sim.write("CONTROL", 1)
    assert not sim.run(400)
    np.testing.assert_array_equal(image, memory())
    assert sim.run(400)
    assert written(image) == WORDS


@pytest.mark.parametrize("scenario, answer", [(21, 4 * 3), (22, 3 << 16)])
def test_addresses_outside_memory_answer_with_an_error(library, scenario, answer):
    sim, image = drive(library, scenario)
    assert sim.read("ERROR") == (read_back(memory(), answer) if scenario == 22 else answer)
    if scenario == 22:
        np.testing.assert_array_equal(image, memory())


def test_faults_are_answered_beat_by_beat(library):
    sim, _ = drive(library, 0, faults=(0x108, 0x10F))
    assert sim.read("ERROR") == read_back(memory(), 2)


def test_memory_that_ends_inside_a_beat(library):
    image = memory()[:0x21C]
    sim, image = drive(library, 0, image=image)
    assert sim.read("ERROR") == read_back(memory(), 3 << 16)
    np.testing.assert_array_equal(image, memory()[:0x21C])  # a refused burst changes nothing
