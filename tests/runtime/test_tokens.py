"""The pass that adds tokens, on rows made by hand and at random; what it orders is derived here by its own means."""

import itertools

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError
from tilewright.hw.isa import FLAGS, Mem
from tilewright.hw.units import channels, queues
from tilewright.runtime.access import Access, DramAccess
from tilewright.runtime.buffer import Buffer
from tilewright.runtime.tokens import (
    PASSED,
    PASSING,
    LastAccess,
    Row,
    ahead_of_jobs,
    ahead_of_waits,
    insert_tokens,
    joined,
    parameters_joined,
)

TINY, TWO = PRESETS["tiny"], PRESETS["tiny_two"]
LOAD, COMPUTE, STORE, TERNARY = queues(TWO)
CHANNELS = channels(TINY)
RING = ((LOAD, COMPUTE), (COMPUTE, STORE), (STORE, TERNARY), (TERNARY, LOAD))  # neighbours with unit `ternary`


def load(start, stop, mem=Mem.INP, **dram):
    return Row("LOAD", LOAD, {}, [Access(mem, True, slice(start, stop))], **dram)


def gemm(acc=(0, 1), inp=None):
    reads = [Access(Mem.INP, False, slice(*inp))] if inp else []
    return Row("GEMM", COMPUTE, {}, [Access(Mem.ACC, True, slice(*acc)), *reads])


def ternary(acc=(0, 1), inp=None):
    return Row("TERNARY", TERNARY, {}, gemm(acc, inp).accesses)


def store(start, stop, **dram):
    return Row("STORE", STORE, {}, [Access(Mem.ACC, False, slice(start, stop))], **dram)


def tokens(*rows, cfg=TINY):
    """(queue, flags) of every row behind the pass, FINISH last; NOPs in parentheses."""
    given = [*rows, Row("FINISH", COMPUTE, {})]
    out = insert_tokens(cfg, list(rows), given[-1])
    assert {id(row) for row in given} <= {id(row) for row in out}
    shown = []
    for row in out:
        flags = " ".join(flag for flag in FLAGS if row.fields.get(flag))
        own = any(row is g for g in given)
        shown.append(f"{row.queue.name} {flags}".strip() if own else f"({row.queue.name} {flags})")
    return shown


def dram(buffer, write, start, nbytes, rows=1, pitch=0):
    return {"buffer": buffer, "dram": DramAccess(write, start, rows, nbytes, pitch)}


T = Buffer("t", (64, 4), kind="temp")
OTHER = Buffer("other", (64, 4), kind="temp")
STORED = dram(T, True, 0, 16)
READ = Row("ALU", COMPUTE, {}, [Access(Mem.ACC, False, slice(0, 9))])
STRIDED = dram(T, True, 0, 4, rows=3, pitch=8)
APART = "STORE push_prev | LOAD push_next | COMPUTE pop_prev pop_next"
SHALLOW = TINY.replace(token_depth=1)


@pytest.mark.parametrize(
    "cfg, rows, wanted",
    [
        # a read waits for the write before it, a write for the read before it
        (TINY, [load(0, 4), gemm(inp=(3, 5))], "LOAD push_next | COMPUTE pop_prev | COMPUTE"),
        (TINY, [gemm(acc=(2, 4)), store(3, 4)], "COMPUTE push_next | STORE pop_prev push_prev | COMPUTE pop_next"),
        (TINY, [load(0, 4), gemm(inp=(0, 2)), load(1, 2)],
         "LOAD push_next | COMPUTE pop_prev push_prev | LOAD pop_next push_next | COMPUTE pop_prev"),
        # no conflict: other entries, another memory, reads; FINISH waits for the last of each queue
        (TINY, [gemm(inp=(0, 4)), load(4, 8), load(0, 4, Mem.WGT)],
         "COMPUTE | LOAD | LOAD push_next | COMPUTE pop_prev"),
        (TINY, [store(0, 9), READ], "STORE push_prev | COMPUTE | COMPUTE pop_next"),
        # the order of the second load follows from the first token, but not the other way round
        (TINY, [load(0, 2), load(2, 4), gemm(inp=(2, 4)), gemm(inp=(0, 2))],
         "LOAD | LOAD push_next | COMPUTE pop_prev | COMPUTE | COMPUTE"),
        (TINY, [load(0, 2), load(2, 4), gemm(inp=(0, 2)), gemm(inp=(2, 4))],
         "LOAD push_next | LOAD push_next | COMPUTE pop_prev | COMPUTE pop_prev | COMPUTE"),
        # load and store meet through the compute queue
        (TINY, [store(0, 4, **STORED), load(0, 1, **dram(T, False, 12, 4))],
         "STORE push_prev | (COMPUTE pop_next push_prev) | LOAD pop_next push_next | COMPUTE pop_prev"),
        (TINY, [load(0, 1, **dram(T, False, 12, 4)), store(0, 4, **STORED)],
         "LOAD push_next | (COMPUTE pop_prev push_next) | STORE pop_prev push_prev | COMPUTE pop_next"),
        # the product waits for the store, the load for both: no NOP
        (TINY, [store(0, 4, **STORED), gemm(acc=(0, 4), inp=(0, 1)), load(0, 1, **dram(T, False, 0, 4))],
         "STORE push_prev | COMPUTE pop_next push_prev | LOAD pop_next push_next | COMPUTE pop_prev"),
        # the NOP that tells of the store comes before the job
        (TINY, [gemm(), store(0, 4, **STORED), gemm(acc=(8, 9)), load(0, 1, **dram(T, False, 0, 4))],
         "COMPUTE push_next | STORE pop_prev push_prev | (COMPUTE pop_next push_prev) | LOAD pop_next push_next | "
         "COMPUTE | COMPUTE pop_prev"),
        # bytes between the rows that are stored, and another buffer
        (TINY, [store(0, 3, **STRIDED), load(0, 3, **dram(T, False, 4, 4, rows=3, pitch=8))], APART),
        (TINY, [store(0, 3, **STRIDED), load(0, 3, **dram(OTHER, False, 0, 4, rows=3, pitch=8))], APART),
        (TINY, [store(0, 3, **STRIDED), load(0, 1, **dram(T, False, 16, 4))],
         "STORE push_prev | (COMPUTE pop_next push_prev) | LOAD pop_next push_next | COMPUTE pop_prev"),
        # a second token in a channel of depth 1 is pushed by a NOP that waits until the first one is taken
        (SHALLOW, [load(0, 2), load(2, 4), gemm(inp=(0, 2)), gemm(inp=(2, 4))],
         "LOAD push_next | LOAD | COMPUTE pop_prev push_prev | (LOAD pop_next push_next) | COMPUTE pop_prev | COMPUTE"),
        # COMPUTE and TERNARY are no neighbours: a NOP of the store queue, or a load that waits for both
        (TWO, [gemm(), ternary()],
         "COMPUTE push_next | (STORE pop_prev push_next) | TERNARY pop_prev push_prev | (STORE pop_next push_prev) | "
         "COMPUTE pop_next"),
        (TWO, [gemm(inp=(0, 2)), load(0, 2), ternary(inp=(0, 2)), store(0, 1)],
         "COMPUTE push_prev | LOAD pop_next push_prev | TERNARY pop_next push_prev | STORE pop_next push_prev | "
         "COMPUTE pop_next"),
        (TWO, [load(0, 2), gemm((0, 1), (0, 2)), ternary((1, 2), (0, 2)), load(0, 2), store(0, 2)],
         "LOAD push_prev push_next | COMPUTE pop_prev push_prev push_next | TERNARY pop_next push_prev push_next | "
         "LOAD pop_prev pop_next push_next | STORE pop_prev pop_next push_prev | COMPUTE pop_prev pop_next"),
        # FINISH waits for the store, which waits for unit ternary, which waits for the load
        (TWO, [load(0, 2), ternary(inp=(0, 2)), store(0, 1)],
         "LOAD push_prev | TERNARY pop_next push_prev | STORE pop_next push_prev | COMPUTE pop_next"),
    ],
)  # fmt: skip
def test_tokens_of_short_traces(cfg, rows, wanted):
    assert " | ".join(tokens(*rows, cfg=cfg)) == wanted


def precedes(rows):
    """before[i, j]: row i is done when row j begins, from queue order and from the n-th pop after the n-th push."""
    n = len(rows)
    before = np.zeros((n, n), bool)
    for queue in queues(TWO):
        own = [k for k in range(n) if rows[k].queue == queue]
        for i, j in itertools.pairwise(own):
            before[i, j] = True
    for a, b in (*RING, *((b, a) for a, b in RING)):
        push, pop = ("push_next", "pop_prev") if (a, b) in RING else ("push_prev", "pop_next")
        pushes = [k for k in range(n) if rows[k].queue == a and rows[k].fields.get(push)]
        pops = [k for k in range(n) if rows[k].queue == b and rows[k].fields.get(pop)]
        assert len(pushes) == len(pops)
        before[pushes, pops] = True
    for k in range(n):
        before |= before[:, k : k + 1] & before[k : k + 1]
    assert not before.diagonal().any()
    return before


def conflict(a, b):
    spots = []
    for row in (a, b):
        spots.append({(x.mem, e): x.write for x in row.accesses for e in range(x.entries.start, x.entries.stop)})
        if row.dram:
            d = row.dram
            spots[-1] |= {(id(row.buffer), d.start + y * d.pitch + i): d.write for y in range(d.rows) for i in range(4)}
    return any(spots[0][at] or spots[1][at] for at in spots[0].keys() & spots[1].keys())


def random_trace(seed, kinds=3):
    """Rows of the first three queues, or with 4 `kinds` of all."""
    rng = np.random.default_rng(seed)
    buffers = [Buffer(name, (16, 4), kind="temp") for name in "ab"]
    rows = []
    for _ in range(40):
        low = int(rng.integers(0, 12))
        high = low + int(rng.integers(1, 4))
        where = buffers[rng.integers(0, 2)], int(rng.integers(0, 8)) * 4
        strided = {"rows": int(rng.integers(1, 3)), "pitch": int(rng.integers(1, 4)) * 4}
        kind = rng.integers(0, kinds)
        if kind == 0:
            rows.append(load(low, high, **dram(where[0], False, where[1], 4, **strided)))
        elif kind % 2:
            rows.append((gemm if kind == 1 else ternary)((low, high), (low, high) if rng.integers(0, 2) else None))
        else:
            rows.append(store(low, high, **dram(where[0], True, where[1], 4, **strided)))
    return rows


def most_in_flight(rows, before, cfg=TINY):
    """The most tokens that any legal execution of `rows` has in a channel: those that `before` does not show taken."""
    most = 0
    for channel in channels(cfg):
        pushes, pops = (
            [k for k, row in enumerate(rows) if row.queue == queue and row.fields.get(flag)]
            for queue, flag in ((channel.source, channel.push), (channel.target, channel.pop))
        )
        most = max([most, *(n - sum(before[pop, push] for pop in pops) for n, push in enumerate(pushes, 1))])
    return int(most)


@pytest.mark.parametrize("cfg", [TINY, TWO], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("depth", [1, 2, 3, 1023])
@pytest.mark.parametrize("seed", range(20))
def test_every_conflict_of_a_random_trace_is_ordered_with_few_tokens_in_flight(seed, depth, cfg):
    rows = random_trace(seed, len(queues(cfg)))
    out = insert_tokens(cfg.replace(token_depth=depth), list(rows), Row("FINISH", COMPUTE, {}))
    before = precedes(out)
    assert before[:-1, -1].all()
    position = [next(k for k, row in enumerate(out) if row is r) for r in rows]
    conflicts = [(i, j) for i, j in itertools.combinations(range(len(rows)), 2) if conflict(rows[i], rows[j])]
    assert len(conflicts) > 50
    assert all(before[position[i], position[j]] for i, j in conflicts)
    assert most_in_flight(out, before, cfg) <= depth


def test_a_buffer_too_large_to_keep_track_of_is_named(monkeypatch):
    def limited(queues, cells):
        if cells > 1 << 20:  # scratchpads have less
            raise MemoryError
        return LastAccess(queues, cells)

    monkeypatch.setattr("tilewright.runtime.tokens.LastAccess", limited)
    buffer = Buffer("t", (1 << 32, 4), kind="temp")
    with pytest.raises(CapacityError, match=r"buffer 't': 17,179,869,184 bytes are more than the memory here can keep"):
        tokens(store(0, 4, buffer=buffer, dram=DramAccess(True, 0, 1, 16, 16)))


def stored_and_loaded():
    """A store to a temporary, and a load of its first bytes."""
    return store(0, 4, **STORED), load(0, 1, **dram(T, False, 0, 4))


def weights(start, stop, nbytes=64):
    buffer = Buffer("w", (nbytes,), kind="constant", data=np.zeros(nbytes, np.uint8))
    return load(start, stop, Mem.WGT, **dram(buffer, False, 0, nbytes))


def product(inp, wgt):
    row = gemm(inp=inp)
    row.accesses.append(Access(Mem.WGT, False, slice(*wgt)))
    return row


def test_weights_pass_the_load_that_waits_for_the_operator_before():
    stored, image = stored_and_loaded()
    first, second, again = weights(0, 2), weights(2, 4), weights(0, 2)
    rows = [stored, image, first, second, product((0, 1), (0, 2)), again, product((1, 2), (0, 2))]
    found = ahead_of_waits(TINY, rows, lambda row: "all")
    # `again` replaces weights that the first product reads
    assert [rows.index(row) for row in found] == [0, 2, 3, 1, 4, 5, 6]


def test_weights_stay_behind_loads_of_what_nobody_stores_and_within_their_operator():
    stored, image = stored_and_loaded()
    rows = [image, weights(0, 2), product((0, 1), (0, 2))]
    assert ahead_of_waits(TINY, rows, lambda row: None) == rows
    rows.insert(0, stored)
    names = {id(row): k // 2 for k, row in enumerate(rows)}  # the weights belong to the next one
    assert ahead_of_waits(TINY, rows, lambda row: names[id(row)]) == rows
    assert ahead_of_waits(TINY, rows, lambda row: None) != rows


def test_only_as_much_as_a_wait_hides_passes_but_the_first_in_any_case():
    most, head = PASSING * TINY.axi_bits // 8, stored_and_loaded()

    def passing(*sizes):
        rows = [*head, *(weights(2 * k, 2 * k + 2, size) for k, size in enumerate(sizes))]
        return [rows.index(row) - 2 for row in ahead_of_waits(TINY, rows, lambda row: None)[1 : 1 + len(sizes)]]

    assert passing(most - 64, 64, 64) == [0, 1, -1]
    assert passing(2 * most, 64) == [0, -1]


def test_the_order_of_loads_changes_no_result():
    """Every row behind those that it depends on in the order that was recorded: so all conflicts have one outcome."""
    constant, moved = Buffer("w", (64, 4), kind="constant", data=np.zeros(256, np.uint8)), 0
    for seed in range(20):
        rows = []
        for k, row in enumerate(random_trace(seed)):
            rows += [row] if k % 2 else [row, load(k % 12, k % 12 + 2, **dram(constant, False, 0, 8))]
        found = ahead_of_waits(TINY, rows, lambda row: None)
        at = {id(row): k for k, row in enumerate(found)}
        assert sorted(map(id, found)) == sorted(map(id, rows))
        moved += found != rows
        for i, j in itertools.combinations(range(len(rows)), 2):
            if conflict(rows[i], rows[j]):
                assert at[id(rows[i])] < at[id(rows[j])]
    assert moved > 10


def test_a_load_of_what_was_stored_passes_jobs_that_do_not_use_its_entries():
    stored, image = stored_and_loaded()
    jobs = [gemm(acc=(k, k + 1), inp=(4, 5)) for k in range(PASSED + 1)]
    rows = [stored, *jobs, image]
    assert [rows.index(row) for row in ahead_of_jobs(rows, lambda row: None)] == [
        0,
        1,
        PASSED + 2,
        *range(2, PASSED + 2),
    ]
    user = gemm(inp=(0, 1))
    rows = [stored, *jobs[:3], user, jobs[3], image]
    assert [rows.index(row) for row in ahead_of_jobs(rows, lambda row: None)] == [0, 1, 2, 3, 4, 6, 5]


def test_a_load_stays_behind_other_loads_stores_and_operators_and_where_nobody_stores():
    stored, image = stored_and_loaded()
    job = gemm(acc=(8, 9), inp=(4, 5))
    assert ahead_of_jobs([job, image], lambda row: None) == [job, image]
    for before in (stored, load(8, 9)):
        rows = [stored, job, before, image]
        assert ahead_of_jobs(rows, lambda row: None) == rows
    rows = [stored, job, image]
    assert ahead_of_jobs(rows, lambda row: row is image) == rows
    assert ahead_of_jobs(rows, lambda row: None) == [stored, image, job]


def one_row(queue, sram, dram_base, size, buffer, mem=Mem.PAR, **fields):
    every = {"mem": mem.id, "sram_base": sram, "dram_base": dram_base, "y_size": 1, "x_size": size, "x_stride": size}
    moved = DramAccess(False, 48 * dram_base, 1, 48 * size, 48 * size)
    return Row("LOAD", queue, every | fields, [Access(mem, True, slice(sram, sram + size))], buffer=buffer, dram=moved)


def test_a_load_that_continues_another_is_one_with_it():
    b = Buffer("par", (8, 48), kind="constant", data=np.zeros(384, np.uint8))
    first, second = one_row(STORE, 2, 0, 1, b), one_row(STORE, 3, 1, 4, b)
    whole = joined(first, second)
    assert whole is not None and whole.dram is not None
    assert (whole.fields["sram_base"], whole.fields["dram_base"], whole.fields["x_size"]) == (2, 0, 5)
    assert whole.accesses == [Access(Mem.PAR, True, slice(2, 7))]
    assert (whole.dram.start, whole.dram.rows, whole.dram.nbytes) == (0, 1, 240)
    assert first.fields["x_size"] == 1
    other = Buffer("other", (8, 48), kind="constant", data=np.zeros(384, np.uint8))
    apart = [one_row(STORE, 4, 1, 1, b), one_row(STORE, 3, 2, 1, b), one_row(STORE, 3, 1, 1, other)]
    apart += [one_row(STORE, 3, 1, 1, b, mem=Mem.INP), one_row(STORE, 3, 1, 1, b, y_size=2)]
    assert [joined(first, row) for row in apart] == [None] * len(apart)


def test_parameters_are_loaded_together_unless_a_store_is_between_them():
    b = Buffer("par", (8, 48), kind="constant", data=np.zeros(384, np.uint8))
    loads, job, stored = [one_row(STORE, k, k, 1, b) for k in range(4)], gemm(), store(0, 1)
    rows = [loads[0], job, loads[1], stored, loads[2], loads[3]]
    found = parameters_joined(rows)
    assert [row.fields.get("x_size") for row in found] == [2, None, None, 2]
    assert found[1] is job and found[2] is stored
