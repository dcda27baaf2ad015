"""`tilewright tune`: trials of a network's layers or of an own schedule, kept, resumed, used by `compile`."""

import json

import pytest

pytest.importorskip("tvm")

from tilewright.cli.tune import OwnTrial, measure_own
from tilewright.compiler.jobs import Store
from tilewright.compiler.tune.tasks import Measurer
from tilewright.hw.config import PRESETS

OWN = """
from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_gemm
from tilewright.compiler.tvm_compat import te


def product(cfg):
    x = te.placeholder((6, 8, 1, 4), "int8", "x")
    w = te.placeholder((4, 8, 4, 4), "int8", "w")
    k, ki = te.reduce_axis((0, 8), "k"), te.reduce_axis((0, 4), "ki")

    def value(i, j, a, b):
        return te.sum(x[i, k, a, ki].astype("int32") * w[j, k, b, ki].astype("int32"), axis=[k, ki])

    acc = te.compute((6, 4, 1, 4), value, name="acc")
    func = te.create_prim_func([x, w, te.compute(acc.shape, lambda *i: acc(*i).astype("int8"), name="out")])

    def space(sch):
        acc = sch.get_sblock("acc")
        loads = sch.cache_read(acc, 0, INP), sch.cache_read(acc, 1, WGT)
        sch.set_scope(acc, 0, ACC)
        i, j, a, b, k, ki = sch.get_loops(acc)
        outer, inner = sch.split(k, sch.sample_perfect_tile(k, 2, 8))
        sch.reorder(outer, inner, i, j, a, b, ki)
        for load in loads:
            sch.compute_at(load, outer, preserve_unit_loops=True)
        sch.decompose_reduction(acc, outer)
        tensorize_gemm(sch, acc, cfg)

    return func, space


def number(cfg):
    return 3
"""


@pytest.fixture
def own_py(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_an_own_schedule_is_tuned_and_resumed(tilewright, own_py, tmp_path):
    command = ["tune", f"{own_py}:product", "--trials", 4, "--db", tmp_path / "t.db", "--config", "tiny"]
    first = json.loads(tilewright(*command, "--json").out)
    again = json.loads(tilewright(*command, "--json").out)
    assert (first["new_trials"], first["known_trials"]) == (4, 0)
    assert (again["new_trials"], again["known_trials"]) == (0, 4)
    assert first["tasks"] == again["tasks"] and first["decisions"] == again["decisions"]
    (row,) = first["tasks"]
    assert row["trials"] == 4 and row["best"] <= row["cycles before"]
    assert row["gain"] == 1 - row["best"] / row["cycles before"]
    text = tilewright(*command).out
    assert "0 new trials, 4 known before" in text and "decisions of the fastest: [[" in text
    with Store(tmp_path / "t.db") as store:
        (topic,) = store.topics("own ")
        assert {each["value"]["cycles"] is not None for each in store.of(topic)} == {True}


def test_another_memory_has_trials_of_its_own(tilewright, own_py, tmp_path):
    command = ["tune", f"{own_py}:product", "--trials", 2, "--db", tmp_path / "t.db", "--config", "tiny", "--json"]
    (fast,) = json.loads(tilewright(*command).out)["tasks"]
    slow = json.loads(tilewright(*command, "--dram", "zynq_hp,latency=400").out)
    assert slow["new_trials"] == 2 and slow["tasks"][0]["best"] > fast["best"]


def test_a_changed_file_is_tried_again(tilewright, own_py, tmp_path):
    command = ["tune", f"{own_py}:product", "--trials", 2, "--db", tmp_path / "t.db", "--config", "tiny", "--json"]
    tilewright(*command)
    own_py.write_text(OWN + "\n# changed\n")
    assert json.loads(tilewright(*command).out)["new_trials"] == 2


def test_a_trial_without_a_program_says_why(own_py):
    trial = OwnTrial(f"{own_py}:product", "key", "code", PRESETS["tiny"].replace(wgt_bytes=64), ((1, 8),), Measurer())
    found = measure_own(trial)
    assert found["cycles"] is None and "too small" in found["error"] and found["decisions"] == [(1, 8)]


@pytest.fixture
def network(tmp_path, monkeypatch):
    """The file of a network of two layers."""
    pytest.importorskip("onnx")
    from tests.compiler.conftest import QdqModel

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    m = QdqModel(tmp_path)
    x = m.quantise(m.input("x", [1, 32, 12, 12]))
    for size in (3, 1):
        x = m.quantise(m.node("Conv", x, m.weights(32, 32, size, size)[0], pads=[size // 2] * 4))
    m.output(x)
    return m.save("two.onnx")


def test_a_network_is_tuned_in_processes_and_compiled_with_its_tiles(tilewright, refused, network, tmp_path):
    base = tmp_path / "t.db"
    command = ["tune", network, "--trials", 4, "--jobs", 2, "--db", base]
    first, again = json.loads(tilewright(*command, "--json").out), json.loads(tilewright(*command, "--json").out)
    assert first["new_trials"] == again["known_trials"] == 8 and not first["known_trials"] and not again["new_trials"]
    assert first["network"] == again["network"] and [row["times"] for row in first["tasks"]] == [1, 1]
    assert first["network"]["after"] <= first["network"]["before"]
    text = tilewright(*command).out
    assert f"network: {first['network']['before']:,} cycles without" in text and "gained in the timing model" in text
    compiling = ["compile", network, "-o", tmp_path / "x.tw", "--tiles"]
    assert tilewright(*compiling, base).status == 0
    other = tilewright(*compiling, base, "--config", "vta")
    assert other.status == 0 and f"{base} has no faster tiles for vta; tilewright tune" in other.out
    refused(6, "no such database of tiles; make it with tilewright tune", *compiling, tmp_path / "no.db")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["x.txt"], "x.txt: no such file; give a network, .tflite, .onnx, .pt2, .bin, .npz"),
        (["OWN:number"], "is int; tune takes a pair (PrimFunc, function that schedules)"),
        (["OWN:product", "--on", "model"], "on = 'model': must be one of board, rtl, rtl_fast, timing, or a server"),
        (["OWN:product", "--on", "board", "--jobs", 2], "--jobs 2: one board runs one program at a time"),
        (
            ["OWN:product", "--on", "board", "--scheduler", "tcp://a:1"],
            "--scheduler tcp://a:1: one board runs one program at a time",
        ),
        (["OWN:product", "--scheduler", "tcp://127.0.0.1:x"], "scheduler tcp://127.0.0.1:x: does not answer"),
        (["OWN:product", "--on", "pynq:1", "--dram", "zynq_hp4"], "--dram zynq_hp4: a server's device has a memory"),
        (["OWN:product", "--db", "DIR"], "cannot be used as a database"),
    ],
)
def test_mistakes_are_named(tilewright, own_py, tmp_path, arguments, text):
    given = [str(a).replace("OWN", str(own_py)).replace("DIR", str(tmp_path)) for a in arguments]
    options = [] if "--db" in given else ["--db", tmp_path / "t.db"]
    found = tilewright("tune", *given, *options)
    assert found.status != 0 and text in found.err and "Traceback" not in found.err


def test_tiles_are_for_networks(refused, double_py, tmp_path):
    refused(5, "--tiles t.db is only for networks", "compile --tiles t.db -o", tmp_path / "x.tw", f"{double_py}:double")


@pytest.mark.slow
def test_tuned_on_the_workers_of_a_scheduler(tilewright, network, tmp_path):
    distributed = pytest.importorskip("distributed")
    command = ["tune", network, "--trials", 3, "--json", "--db"]
    alone = json.loads(tilewright(*command, tmp_path / "a.db").out)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as there:
        shared = json.loads(tilewright(*command, tmp_path / "b.db", "--scheduler", there.scheduler_address).out)
    assert shared["network"] == alone["network"] and shared["new_trials"] == alone["new_trials"]
