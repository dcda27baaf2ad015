"""cli/page/memory.py: arenas as planned, buffers that do not overlap, first and last access."""


def test_the_arena_is_that_of_plan(network):
    (arena,) = network.data["arenas"]
    assert arena["bound"] <= arena["bytes"] == max(b["address"] + b["bytes"] for b in arena["buffers"])
    operators = {row["operator"] for row in network.data["operators"]}
    assert all(b["operator"] in operators and b["first"] <= b["last"] for b in arena["buffers"])


def test_a_recorded_program_has_no_arena(recorded):
    assert recorded.data["arenas"] == []


def test_buffers_lie_behind_each_other(recorded, network):
    for found in (recorded, network):
        rows = sorted(found.data["buffers"], key=lambda row: row["address"])
        assert all(a["address"] + a["bytes"] <= b["address"] for a, b in zip(rows, rows[1:]))
        used = [row for row in rows if row["first"] is not None]
        assert used and all(0 <= row["first"] < row["last"] <= found.cycles for row in used)


def test_inputs_are_read_before_results_are_written(recorded):
    rows = {row["name"]: row for row in recorded.data["buffers"]}
    assert rows["x"]["first"] < rows["y"]["first"] and rows["x"]["kind"] == "input"
    assert rows["w"]["last"] < rows["x"]["last"]
