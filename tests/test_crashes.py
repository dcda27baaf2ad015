"""Processes that are killed, two at once, a home that cannot be written, a full disk: outputs are whole or absent.

The quick tests kill a writer before each step that it takes on files; the slow ones kill the command at random moments.
"""

import contextlib
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.compiler import cache
from tilewright.compiler.jobs import Store
from tilewright.compiler.mapping import ChannelMapping, read_mapping, write_mapping
from tilewright.hw.errors import FileError
from tilewright.runtime.c import folder as generated
from tilewright.runtime.executable import Executable
from tilewright.runtime.files import atomic_write

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
COMMAND = Path(sys.executable).with_name("tilewright")
STEPS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.utime", "shutil.rmtree"}
OLD, NEW = {"a.c": b"old", "b.c": b"old, too"}, {"a.c": b"new", "c.c": b"another"}


def killed(work, step):
    """Do `work` in a process that SIGKILL ends before its `step`-th step on files; True where it came to its end."""
    child = os.fork()
    if child == 0:
        left = [step]

        def count(event, arguments):
            if event in STEPS or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), "the work itself failed"
    return status == 0


def at_every_step(work):
    """The number of each step before which `work` was killed, as it was, then that of its end."""
    for step in range(1000):
        whole = killed(work, step)
        yield step
        if whole:
            assert step >= 3, "nothing was killed"
            return


@pytest.fixture(scope="module")
def programs():
    """Two small programs."""
    from tests.damage.programs import every_operator, two_launches

    return two_launches(), every_operator()


def test_a_program_is_old_or_new_at_every_step(programs, tmp_path):
    path, found = tmp_path / "x.tw", set()
    before, after = (program.to_bytes() for program in programs)
    path.write_bytes(before)
    for _ in at_every_step(lambda: programs[1].save(path)):
        found.add(path.read_bytes())
        Executable.load(path)
    assert found == {before, after}


def test_generated_folders_are_old_or_new_at_every_step(tmp_path):
    """Between two renames there is none, and what was there is beside it."""
    path, found = tmp_path / "c", set()
    generated.write_folder(path, OLD)
    for step in at_every_step(lambda: generated.write_folder(path, NEW)):
        where = path if path.exists() else next(p for p in tmp_path.iterdir() if (p / "b.c").exists())
        names = {p.name: p.read_bytes() for p in where.iterdir() if p.name != generated.RECORD}
        assert names in (OLD, NEW), step
        generated.check_folder(where)
        found.add(len(names) and names["a.c"])
        if where != path:
            where.rename(path)  # as a user would
    assert found == {b"old", b"new"}


MAPPING = ChannelMapping({"conv1": {"gemm": (0, 2), "ternary": (1, 3)}})
# what writes a file, and what is read of it
WHOLE = {
    "mapping": (lambda path, _: write_mapping(MAPPING, path), lambda path: path.exists() and read_mapping(path)),
    "cache": (cache.write, lambda path: (found := cache.read(path)) is not None and found.to_bytes()),
}


@pytest.mark.parametrize("name", WHOLE)
def test_files_are_whole_or_absent_at_every_step(name, programs, tmp_path):
    write, read = WHOLE[name]
    path, whole = tmp_path / "k.json", MAPPING if name == "mapping" else programs[0].to_bytes()
    for _ in at_every_step(lambda: write(path, programs[0])):
        assert read(path) in (False, whole)
    assert read(path) == whole


def test_two_processes_write_one_program_and_one_database(programs, tmp_path):
    """A thousand times in turn, and a third reads all the while: it never meets a half."""
    path, base = tmp_path / "x.tw", tmp_path / "r.db"
    whole = {program.to_bytes() for program in programs}
    children = []
    for k, program in enumerate(programs):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                with Store(base) as store:
                    for n in range(60):
                        program.save(path)
                        store.put(f"{k} {n}", n)
                os._exit(0)
            os._exit(1)
        children.append(child)
    for _ in range(50):
        with contextlib.suppress(FileNotFoundError):
            assert path.read_bytes() in whole
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    with Store(base) as store:
        assert [store.get(f"{k} {n}") for k in range(2) for n in range(60)] == [*range(60)] * 2


def limited(work, most):
    """The text of the `FileError` that `work` ends with where no file may be longer than `most` bytes; None without."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))  # Python ignores the signal: writes fail
    try:
        work()
        return None
    except FileError as exc:
        return str(exc)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("most", [0, 1000, 4096])
def test_a_disk_that_is_full_leaves_what_was_there(programs, tmp_path, most):
    path = tmp_path / "x.tw"
    path.write_bytes(b"before")
    texts = [limited(lambda: programs[1].save(path), most)]
    generated.write_folder(tmp_path / "c", OLD)
    texts.append(limited(lambda: generated.write_folder(tmp_path / "c", {"a.c": bytes(9000)}), most))
    assert all(text and "cannot be written (File too large)" in text for text in texts)
    assert path.read_bytes() == b"before" and (tmp_path / "c" / "a.c").read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "x.tw"]


def test_a_database_on_a_full_disk_keeps_what_it_has(tmp_path):
    with Store(tmp_path / "r.db") as store:
        store.put("a", 1)
        size = (tmp_path / "r.db").stat().st_size
        assert "cannot be used" in (limited(lambda: store.put("b", "x" * 100_000), size) or "")
        assert store.get("a") == 1 and store.get("b") is None
        store.put("b", 2)
    with Store(tmp_path / "r.db") as store:
        assert (store.get("a"), store.get("b")) == (1, 2)


def test_a_file_system_that_is_full(tmp_path):
    """A real one of 64 kB, where this user may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("this user may not mount")
    try:
        full = pytest.raises(FileError, match=r"x: cannot be written \(No space left on device\)")
        with full, atomic_write(place / "x") as temporary:
            temporary.write_bytes(bytes(100_000))
        assert list(place.iterdir()) == []
    finally:
        subprocess.run(["umount", place], check=True)


def command(*arguments, home, **options):
    """The command with caches below `home`, started."""
    environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "NO_COLOR": "1"}
    arguments = [str(COMMAND), *map(str, arguments)]
    return subprocess.Popen(
        arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.circuit
def test_a_home_that_cannot_be_written(tmp_path):
    """A file in its place, which not even root can write into: caches are left out, and nothing else."""
    home = tmp_path / "home"
    home.write_text("no folder")
    running = command("compile", DIGITS, "--config", "tiny", "-o", tmp_path / "x.tw", home=home)
    assert running.communicate(timeout=300)[1] == "" and running.returncode == 0
    assert Executable.load(tmp_path / "x.tw").name and home.read_text() == "no folder"


@pytest.mark.circuit
def test_a_tool_without_a_cache_says_so(tmp_path):
    """Yosys for WebAssembly keeps its code there."""
    home = tmp_path / "home"
    home.write_text("no folder")
    running = command("rtl", "--config", "tiny", "-o", tmp_path / "x.v", home=home)
    said = running.communicate(timeout=300)[1]
    assert running.returncode == 8 and "cache" in said and "set XDG_CACHE_HOME to one that can be written" in said
    assert said.count("\n") == 1 and not (tmp_path / "x.v").exists()


# verb -> its arguments, given a folder; what it leaves must be whole at any moment, and equal in the end
VERBS = {
    "compile": lambda f: ["compile", DIGITS, "--config", "tiny", "-o", f / "x.tw"],
    "emit": lambda f: ["compile", DIGITS, "--config", "tiny", "--emit", "c", "-o", f / "c"],
    "tune": lambda f: ["tune", DIGITS, "--config", "tiny", "--trials", "4", "--db", f / "t.db"],
    "explore": lambda f: ["explore", DIGITS, "--config", "tiny", "--trials", "4", "--study", f"sqlite:///{f}/s.db"],
    "report": lambda f: ["report", DIGITS, "--config", "tiny", "-o", f / "r.html"],
    "quantise": lambda f: ["quantise", f / "small.bin", "-o", f / "q.npz"],
}


BOKEHS = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # identifiers in a report, others every time


def contents(folder):
    """Bytes of the files in a folder by name, those under temporary names left out."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    names = {p: str(p.relative_to(folder)) for p in files}
    return {
        n: BOKEHS.sub(b"", p.read_bytes())
        for p, n in names.items()
        if not n.startswith(".") and not n.endswith("-journal")
    }


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_killed_at_random_moments(verb, tmp_path):
    """The next run has the caches and databases that killed ones left, and writes what an undisturbed one does."""
    from tests.compiler.frontend.llama.conftest import llama_bytes

    rng, folders = random.Random(11), [tmp_path / name for name in ("undisturbed", "killed")]
    for folder in folders:
        (folder / "out").mkdir(parents=True)
        (folder / "out" / "small.bin").write_bytes(llama_bytes())
    start = time.monotonic()
    running = command(*VERBS[verb](folders[0] / "out"), home=folders[0])
    said = running.communicate(timeout=600)[1]
    assert running.returncode == 0, said
    seconds, wanted = time.monotonic() - start, contents(folders[0] / "out")
    out = folders[1] / "out"
    for k in range(6):
        running = command(*VERBS[verb](out), home=folders[1], start_new_session=True)
        time.sleep(rng.uniform(0.3, 1.0) * seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        for name, data in contents(out).items():
            assert name.endswith(".db") or data == wanted[name], f"seed 11, kill {k}: {name}"
    running = command(*VERBS[verb](out), home=folders[1])
    said = running.communicate(timeout=600)[1]
    assert running.returncode == 0, said
    found = contents(out)
    assert found.keys() == wanted.keys()
    assert all(found[name] == data for name, data in wanted.items() if not name.endswith(".db"))
    for name in (name for name in found if name.endswith(".db")):
        Store(out / name).close()


@pytest.mark.slow
def test_two_commands_share_a_cache(tmp_path):
    paths = [tmp_path / f"{k}.tw" for k in range(2)]
    both = [command("compile", DIGITS, "--config", "tiny", "-o", path, home=tmp_path) for path in paths]
    assert [(one.communicate(timeout=600)[1], one.returncode) for one in both] == [("", 0)] * 2
    assert paths[0].read_bytes() == paths[1].read_bytes()
