"""sim/cliffs.py: the facts of a launch by statement, from programs whose numbers are known."""

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.program import Program
from tilewright.sim.cliffs import Transfers, occupancy, statements
from tilewright.sim.timing import predict

TINY = PRESETS["tiny"]  # entries of 4 inputs, 16 weights, 4 accumulators


def found(program):
    """The statements of a program, by name, on the timing model."""
    launch = program.finish()
    timing = predict(launch)
    every = statements(launch, timing.timeline())
    assert sum(statement.cycles for statement in every) == timing.timeline().end.max()
    return {statement.name: statement for statement in every}


def program():
    """A loop over two places: loads of rows, a product, a sum with itself, stores."""
    p = Program(TINY, "facts")
    x, y = p.buffer("x", (64, 4)), p.buffer("y", (32, 4), kind="output")
    for k in range(4):
        with p.origin("load"):
            p.load(Mem.INP, 8 * (k % 2), x, 16 * k, y_size=4, x_size=2, x_stride=4)
        with p.origin("product"):
            p.gemm([(8, 1, 1, 0)], dst=8, src=8 * (k % 2), overwrite=True)
            p.gemm([(8, 1, 1, 0), (2, 0, 0, 0)], dst=8, src=8 * (k % 2))
        with p.origin("sum"):
            p.alu(AluOp.ADD, [(8, 1, 1)], dst=0, src=8)
            p.alu(AluOp.MUL, [(8, 1, 0)], dst=0, src=8)
            p.alu(AluOp.SHR, [(8, 1, 0)], dst=0, imm=1)
        with p.origin("store"):
            p.store(0, y, 8 * (k % 2), x_size=8)
    return p


def test_work_is_counted_by_statement():
    every = found(program())
    product, total = every["product"], every["sum"]
    assert (product.loops, product.issues) == (8, 4 * (8 + 16))
    assert (product.initial, product.initial_issues) == (4, 32)
    assert (total.loops, total.issues, total.added, total.spread) == (12, 96, 32, 32)
    assert product.compute_cycles >= 64 and every["load"].compute_cycles == 0
    assert list(every) == ["load", "product", "sum", "store", "launch"]


def test_transfers_of_a_statement():
    every = found(program())
    (loads,), (stores,) = every["load"].moved(store=False), every["store"].moved(store=True)
    assert (loads.buffer, loads.mem, loads.count, loads.rows) == ("x", Mem.INP, 4, 16)
    assert loads.nbytes == loads.distinct_bytes(4) == 4 * 8 * 4
    assert loads.overwrites() == 2  # the third and the fourth tile replace the first two
    assert (stores.nbytes, stores.distinct_bytes(4), stores.rows) == (4 * 32, 2 * 32, 4)
    assert every["load"].moved(store=True) == [] and stores.busy > 0


def test_a_tile_that_is_loaded_again_replaces_nothing():
    same = Transfers("x", Mem.INP, [0, 0], [7, 7], [(0, 1, 32, 32)] * 2)
    assert same.overwrites() == 0 and same.distinct_bytes(4) == 32 and same.nbytes == 64


def test_occupancy_counts_entries():
    used = occupancy(program().finish())
    assert used["INP"] == (16, TINY.inp_depth) and used["ACC"] == (16, TINY.acc_depth)
    assert used["WGT"] == (1, TINY.wgt_depth) and "PAR" not in used
    p = Program(TINY)
    p.gemm_uops(np.array([(3, 0, 0), (5, 0, 0)]), reset=True)
    assert occupancy(p.finish()) == {"UOP": (2, TINY.uop_depth), "ACC": (2, TINY.acc_depth)}
