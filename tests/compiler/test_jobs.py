"""compiler/jobs.py: parallel work that is stored, resumed, interrupted."""

import importlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tilewright.compiler.jobs import Outcome, Store, content_key, processes, run
from tilewright.hw.errors import ExecutionError, FileError

WORK = """
import os

from tilewright.hw.errors import BoardError, CapacityError


def square(n):
    return n * n


def where(_):
    return os.getpid()


def fail(n):
    if n == 1:
        raise CapacityError("local.inp is too small")
    if n == 2:
        raise BoardError("no answer")
    if n == 3:
        raise ZeroDivisionError("a defect")
    return n


def end(_):
    os._exit(7)
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A module of functions that worker processes can import, too."""
    (tmp_path / "some_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_work", raising=False)
    return importlib.import_module("some_work")


def test_results_come_by_key_and_equal_keys_are_computed_once(work):
    seen = []
    found = run(work.square, [3, 2, 3], key=str, on_done=seen.append)
    assert found == {"3": Outcome("3", 9), "2": Outcome("2", 4)} and seen == list(found.values())


def test_a_second_start_computes_what_is_left(work, tmp_path):
    with Store(tmp_path / "r.db") as store:
        run(work.square, [1, 2], key=str, store=store, topic=lambda n: "odd" if n % 2 else "even")
    with Store(tmp_path / "r.db") as store:
        found = run(work.square, [1, 2, 3], key=str, store=store)
        assert [found[k].new for k in "123"] == [False, False, True] and found["2"].value == 4
        assert store.of("odd") == [{"value": 1, "error": ""}] and store.topics() == ["", "even", "odd"]
        assert store.topics("o") == ["odd"]


def test_jobs_run_in_other_processes(work, tmp_path):
    with Store(tmp_path / "r.db") as store, processes(2) as pool:
        found = run(work.where, range(4), key=str, store=store, workers=pool)
        assert len(found) == 4 and os.getpid() not in {each.value for each in found.values()}
        again = run(work.square, [7], key=str, workers=pool)
    assert again["7"].value == 49


@pytest.mark.parametrize("parallel", [False, True])
def test_errors_are_outcomes_and_those_of_the_work_are_stored(work, tmp_path, parallel):
    with Store(tmp_path / "r.db") as store, processes(1) as pool:
        for new in (True, False):
            found = run(work.fail, range(4), key=str, store=store, workers=pool if parallel else None)
            assert found["1"] == Outcome("1", None, "CapacityError: local.inp is too small", new)
            assert found["0"].new is new and found["0"].error == ""
            assert found["2"].new and found["3"] == Outcome("3", None, "ZeroDivisionError: a defect")


def test_a_worker_that_ends_is_a_named_error(work):
    with processes(1) as pool, pytest.raises(ExecutionError, match="a worker process ended by itself.*start again"):
        run(work.end, [1, 2], key=str, workers=pool)


SCRIPT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts the tests may ignore it
from tilewright.compiler.jobs import Store, processes, run


def slow(n):
    time.sleep(0.2)
    return n


if __name__ == "__main__":
    with Store(sys.argv[1]) as store, processes(2) as pool:
        run(slow, range(100), key=str, store=store, workers=pool, on_done=lambda o: print(o.key, flush=True))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_or_interrupted_process_loses_no_finished_result(tmp_path, how):
    script, path = tmp_path / "work.py", tmp_path / "r.db"
    script.write_text(textwrap.dedent(SCRIPT))
    child = subprocess.Popen(
        [sys.executable, script, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout
    done = [child.stdout.readline().strip().decode() for _ in range(3)]
    os.kill(child.pid, how)
    rest, _ = child.communicate(timeout=60)
    done += rest.decode().split()
    assert child.returncode == -how and 3 <= len(done) < 20
    with Store(path) as store:
        assert all(store.get(key) == {"value": int(key), "error": ""} for key in done)
    for _ in range(100):  # the workers notice, and end
        if not _alive(child.pid):
            return
        time.sleep(0.1)
    pytest.fail("worker processes are left")


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
        return True
    except ProcessLookupError:
        return False


def test_a_file_that_is_no_database_is_named(tmp_path):
    path = tmp_path / "r.db"
    path.write_text("text" * 1000)
    with pytest.raises(FileError, match=r"r\.db: cannot be used as a database .*; give another name"):
        Store(path)
    with pytest.raises(FileError, match="cannot be used"):
        Store(tmp_path / "no" / "r.db")


def test_a_key_is_of_the_content():
    assert content_key({"a": 1, "b": 2}, [3]) == content_key({"b": 2, "a": 1}, [3]) != content_key({"a": 1}, [3])


@pytest.mark.parametrize("column", ["topic", "value"])
def test_what_damage_leaves_in_place_of_a_text_is_named(tmp_path, column):
    with Store(tmp_path / "r.db") as store:
        store.put("a", 1)
        store._base.execute(f"UPDATE results SET {column} = x'07'")
        store._base.commit()
        with pytest.raises(FileError, match=r"r\.db: cannot be used .*it holds bytes in place of a text"):
            _ = store.topics(), store.get("a")
