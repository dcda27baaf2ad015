"""sim/profile.py: the cycles of a launch by operator and statement, from timelines made by hand and from the models."""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem, Queue
from tilewright.runtime.device import WAITS, Timeline, open_device
from tilewright.runtime.launch import Launch
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.profile import Share, profile, total
from tilewright.sim.timing import predict

TINY, TWO = PRESETS["tiny"], PRESETS["tiny_two"]
LOAD, COMPUTE, STORE = Queue.LOAD, Queue.COMPUTE, Queue.STORE


def pair():
    """Two operators, each a load, a reset and a store, with explicit tokens."""
    p = Program(TINY, "pair", tokens="explicit")
    x, y = p.buffer("x", (8, 4)), p.buffer("y", (8, 4), kind="output")
    zero = np.array([(0, 0, 0)])
    p.gemm_uops(zero, reset=True)  # loads the micro-op
    for k, name in enumerate("ab"):
        with p.origin(name, macs=100 + k):
            p.load(Mem.INP, 4 * k, x, 4 * k, x_size=4)
            p.dep_push(LOAD, COMPUTE)
            p.dep_pop(LOAD, COMPUTE)
            with p.origin("reset"):
                p.gemm_uops(zero, reset=True)
            p.dep_push(COMPUTE, STORE)
            p.dep_pop(COMPUTE, STORE)
            p.store(4 * k, y, 4 * k, x_size=4)
    return p.finish()


# (issue, end) of the instructions of `pair`, by mnemonic in their order
SPANS = {
    "LOAD.UOP": [(1, 3)],
    "LOAD.INP": [(0, 30), (1, 70)],
    "GEMM": [(3, 5), (31, 40), (71, 80)],
    "STORE.OUT": [(41, 60), (81, 100)],
    "FINISH": [(103, 105)],
}


def timeline(launch, spans, carriers=None):
    """A timeline of (issue, end) of the instructions by mnemonic, in their order; `carriers` are others, by queue."""
    isa = Isa(launch.cfg)
    left, fields = {name: iter(each) for name, each in spans.items()}, isa.decode(launch.insn)
    found = [next(left[isa.mnemonic(f)], (carriers or {}).get(isa.queue(f))) for f in fields]
    queue, (issue, end) = np.array([isa.queue(f) for f in fields]), np.array(found).T
    return Timeline(queue, issue, issue, end, {name: np.zeros(len(end), np.int64) for name in WAITS})


def test_a_cycle_belongs_to_what_compute_executes_or_waits_for():
    launch = pair()
    made = timeline(launch, SPANS, {LOAD: (71, 72), STORE: (101, 102)})  # of tokens for FINISH
    inner = profile(launch, made, 110, depth=2)
    cycles = {share.path: share.cycles for share in inner}
    assert sum(cycles.values()) == 110 and {share.name for share in inner} == {"a", "b", "reset", "launch"}
    assert cycles["a", "reset"] == 10 and cycles["b", "reset"] == 10  # from the token on
    assert cycles["a",] == 25 and cycles["b",] == 30 + 20  # a's load from 5 on; b's load from 40 on, and its store
    assert cycles[()] == 5 + 10  # the micro-op, and what comes behind the last store
    outer = {share.name: share for share in profile(launch, made, 110)}
    assert {name: share.cycles for name, share in outer.items()} == {"a": 35, "b": 60, "launch": 15}
    assert (outer["a"].macs, outer["b"].macs, outer["launch"].macs) == (100, 101, None)
    assert outer["a"].busy == {"load": 30, "compute": 9, "store": 19}


def test_a_cycle_in_which_another_compute_unit_works_alone_is_its():
    p = Program(TWO, tokens="explicit")
    w, y = p.buffer("w", (1, 16), signed=False), p.buffer("y", (8, 4), kind="output")
    with p.origin("a"):
        p.gemm([(4, 1, 0, 0)], reset=True)
    p.load(Mem.TWGT, 0, w, 0)
    p.dep_push(LOAD, Queue.TERNARY)
    p.dep_pop(LOAD, Queue.TERNARY)
    with p.origin("b"):
        p.ternary([(4, 1, 0, 0)], TWO.bank_depth)
    p.dep_push(Queue.TERNARY, STORE)
    p.dep_pop(Queue.TERNARY, STORE)
    p.store(TWO.bank_depth, y, 0, x_size=4)
    launch = p.finish()
    spans = {"GEMM": [(10, 20)], "FINISH": [(72, 75)], "LOAD.UOP": [(1, 9)], "LOAD.TUOP": [(2, 7)]}
    spans |= {"LOAD.TWGT": [(7, 8)], "LOAD.INP": [(70, 71)], "STORE.OUT": [(51, 60), (60, 65), (65, 70)]}
    spans["TERNARY"] = [(10, 14), (15, 50), (50, 51)]  # the first and the last pass tokens on
    shares = {share.name: share for share in profile(launch, timeline(launch, spans), 80)}
    assert (shares["a"].cycles, shares["b"].cycles) == (20, 30)  # GEMM with its micro-op; the cycles from its end on
    assert shares["b"].ternary == 4 and shares["b"].products == 0 and shares["b"].ternary_use == 4 / 30
    assert shares["b"].to_dict()["ternary_use"] == 0.1333 and "busy_ternary" in shares["b"].to_dict()
    assert sum(share.cycles for share in shares.values()) == 80


def test_without_origins_the_launch_has_all_cycles():
    launch = pair()
    bare = Launch(launch.cfg, launch.name, launch.insn, launch.reloc, launch.buffers)
    timing = predict(bare)
    (share,) = profile(bare, timing.timeline(), timing.cycles)
    assert share.cycles == timing.cycles and share.name == "launch" and share.path == ()
    assert share.work.insns.total() == len(bare.insn)


def test_shares_add_up():
    one = Share(("a",), cycles=5, products=5, macs=None)
    both = one + Share(("b",), cycles=15, products=5, macs=7)
    assert both.macs == 7 and both.gemm_use == 0.5 and one.to_dict()["macs"] == 0
    assert Share(()).gemm_use == 0 and total([]).cycles == 0


def random_program(rng):
    """Tiles of random sizes of several operators, on places that repeat."""
    p = Program(TINY, "random")
    x, w = p.buffer("x", (256, 4)), p.buffer("w", (4, 4))
    y = p.buffer("y", (256, 4), kind="output")
    for k in range(int(rng.integers(1, 5))):
        with p.origin(f"op{k}"):
            p.load(Mem.WGT, 0, w, 0)
            for _ in range(int(rng.integers(1, 6))):
                rows, place, at = (int(rng.integers(low, high)) for low, high in ((1, 17), (0, 4), (0, 240)))
                p.load(Mem.INP, 16 * place, x, at, x_size=rows)
                p.gemm([(rows, 1, 1, 0), (int(rng.integers(1, 9)), 0, 0, 0)], dst=16 * place, src=16 * place)
                p.store(16 * place, y, at, x_size=rows)
    return p.finish()


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_add_up_on_the_timing_model(seed):
    print(f"seed {seed}")
    launch = random_program(np.random.default_rng(seed))
    timing = predict(launch)
    shares = profile(launch, timing.timeline(), timing.cycles)
    assert sum(share.cycles for share in shares) == timing.cycles and min(share.cycles for share in shares) >= 0
    assert all(share.products <= share.cycles for share in shares)
    assert total(shares).work.insns.total() == len(launch.insn)
    assert total(shares).busy["compute"] == timing.counters["COMPUTE_BUSY"]
    waits = total(shares).waits
    assert waits["token"] == sum(timing.counters[f"{u}_TOKEN_WAIT"] for u in ("LOAD", "COMPUTE", "STORE"))


@pytest.mark.circuit
@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
def test_circuit_and_timing_model_agree_on_operators():
    pytest.importorskip("amaranth")
    device = open_device("rtl", TINY)
    for seed in range(6):
        print(f"seed {seed}")
        launch = random_program(np.random.default_rng(seed))
        inputs = {"x": np.zeros((256, 4), np.int8), "w": np.zeros((4, 4), np.int8)}
        _, stats = run(launch, inputs, device)
        timing = predict(launch)
        assert stats.timeline is not None and stats.cycles is not None
        found = profile(launch, stats.timeline(), stats.cycles)
        expected = profile(launch, timing.timeline(), timing.cycles)
        assert sum(share.cycles for share in found) == stats.cycles
        for mine, its in zip(found, expected, strict=True):
            assert mine.path == its.path and mine.products == its.products
            assert abs(mine.cycles - its.cycles) <= 4
            assert abs(mine.busy["compute"] - its.busy["compute"]) <= 4
            for reason, most in (("bank", 4), ("unit", 24), ("token", 24)):
                assert abs(mine.waits[reason] - its.waits[reason]) <= most
