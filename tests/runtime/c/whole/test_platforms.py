"""The platforms with registers: files stand for registers and memory, and a thread for the accelerator behind them."""

import mmap
import subprocess
import threading
import time

import numpy as np
import pytest

from tilewright.hw.config import ISA_VERSION
from tilewright.hw.errors import ExecutionError
from tilewright.hw.regs import MAGIC, Command, Error, Status, registers
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import Loaded

PAGE = 4096
ARENA, SIZE = 0x200000, 0x10000  # an address that processors allow to map
REGISTERS = 0x100000

# maps the files where a machine without an operating system has registers and memory
START = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>

static int at(const char *name, unsigned long address, unsigned long size)
{
    return mmap((void *)address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, open(name, O_RDWR), 0) !=
           (void *)address;
}

__attribute__((constructor)) static void start(void)
{
    if (at("registers", %dul, %dul) || at("memory", %dul, %dul))
        __builtin_trap();
}
"""


class Accelerator(threading.Thread):
    """Executes what is started by registers in one file, on memory in another; the device is the behavioural model."""

    def __init__(self, cfg, folder):
        super().__init__(daemon=True)
        self.device, self.ended, self.starts = open_device("model", cfg), threading.Event(), 0
        self.address = self.device.allocate(SIZE, ARENA)
        for name, size in (("registers", PAGE), ("memory", SIZE)):
            (folder / name).write_bytes(bytes(size))
        self._maps = [self._map(folder / name) for name in ("registers", "memory")]
        self._values, self._memory = (np.frombuffer(m, t) for m, t in zip(self._maps, (np.uint32, np.uint8)))
        self._at = {name: register.offset // 4 for name, register in registers(cfg).items()}
        self["VERSION"] = MAGIC << 16 | ISA_VERSION
        self["FINGERPRINT_LO"], self["FINGERPRINT_HI"] = cfg.fingerprint & 0xFFFFFFFF, cfg.fingerprint >> 32

    @staticmethod
    def _map(path):
        with path.open("r+b") as file:
            return mmap.mmap(file.fileno(), path.stat().st_size)

    def __getitem__(self, name):
        return int(self._values[self._at[name]])

    def __setitem__(self, name, value):
        self._values[self._at[name]] = value

    def run(self):
        while not self.ended.is_set():
            if self["CONTROL"] == Command.START:
                self.starts += 1
                self["CONTROL"] = self._execute()
            time.sleep(5e-4)

    def _execute(self):
        self.device.write(self.address, self._memory)
        try:
            self.device.run(self["INSN_ADDR_HI"] << 32 | self["INSN_ADDR_LO"], self["INSN_COUNT"])
        except ExecutionError:
            self["ERROR"] = Error.UNDECODABLE
            return Status.DONE | Status.ERROR
        self._memory[:] = self.device.read(self.address, SIZE)
        return Status.DONE


@pytest.fixture
def case(cache):
    """A program, inputs of four runs as bytes, and what they give."""
    made = cache()
    executable = Executable.from_launch(made.launch)
    cases = [made.inputs(position, position - 4) for position in (2, 3, 14, 1)]
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        found = b"".join(loaded.run(case)["y"].tobytes() for case in cases)
    return executable, b"".join(case[t.name].tobytes() for case in cases for t in executable.inputs), found


@pytest.fixture
def accelerator(tmp_path, case):
    found = Accelerator(case[0].cfg, tmp_path)
    found.start()
    yield found
    found.ended.set()
    found.join()


def run(folder, platform, given, environment=None):
    done = subprocess.run(
        [folder / f"build/{platform}/main"],
        input=given,
        capture_output=True,
        cwd=folder.parent,
        env=environment,
        timeout=60,
    )
    return done.returncode, done.stdout


@pytest.fixture
def uio(tmp_path, accelerator):
    """The environment of platform uio, with files of u-dma-buf's."""
    facts = tmp_path / "facts"
    facts.mkdir()
    (facts / "phys_addr").write_text(f"{accelerator.address:#x}\n")
    (facts / "size").write_text(f"{SIZE}\n")
    for name in ("offset", "size", "direction", "for_cpu", "for_device"):
        (facts / f"sync_{name}").touch()
    names = {"REGISTERS": "registers", "MEMORY": "memory", "MEMORY_FACTS": "facts"}
    return {f"TW_{name}": str(tmp_path / path) for name, path in names.items()}


def test_uio(case, build, accelerator, uio, tmp_path):
    executable, given, found = case
    folder = build(executable, platform="uio")
    assert run(folder, "uio", given, uio) == (0, found)
    assert accelerator.starts == 4
    synced = {name: (tmp_path / "facts" / f"sync_{name}").read_text() for name in ("offset", "size", "for_cpu")}
    assert int(synced["size"]) > 0 and int(synced["offset"]) % 64 == 0 and synced["for_cpu"] == "1\n"


def test_uio_refuses_what_is_no_accelerator_or_another(case, build, accelerator, uio, tmp_path):
    folder = build(case[0], platform="uio", flags="-O1")
    assert run(folder, "uio", b"", uio | {"TW_REGISTERS": "nowhere"})[0] == 1
    (tmp_path / "facts" / "size").write_text("512\n")
    assert run(folder, "uio", b"", uio)[0] == 1
    (tmp_path / "facts" / "size").write_text(f"{SIZE}\n")
    assert run(folder, "uio", b"", uio)[0] == 0
    accelerator["FINGERPRINT_LO"] = 1
    assert run(folder, "uio", b"", uio)[0] == 1


def test_bare(case, build, accelerator, tmp_path):
    executable, given, found = case
    assert accelerator.address == ARENA
    (tmp_path / "start.c").write_text(START % (REGISTERS, PAGE, ARENA, SIZE))
    subprocess.run(["gcc", "-c", "-o", tmp_path / "start.o", tmp_path / "start.c"], check=True)
    defines = {"TW_REGISTERS": REGISTERS, "TW_ARENA": ARENA}
    flags = " ".join(["-O2", *(f"-D{name}={value}" for name, value in defines.items())])
    settings = [f"LDFLAGS={tmp_path / 'start.o'}", f"MEMORY={SIZE}"]
    folder = build(executable, platform="bare", flags=flags, settings=settings)
    assert run(folder, "bare", given) == (0, found)
    assert accelerator.starts == 4


def test_bare_with_an_array_in_a_section_and_upkeep_of_caches(case, build, tmp_path):
    header = tmp_path / "caches.h"
    header.write_text("void clean(const void *data, unsigned long size);\n#define TW_WRITE_BACK(d, n) clean(d, n)\n")
    (tmp_path / "clean.c").write_text("void clean(const void *d, unsigned long n) { (void)d; (void)n; }\n")
    subprocess.run(["gcc", "-c", "-o", tmp_path / "clean.o", tmp_path / "clean.c"], check=True)
    flags = f"-O2 -DTW_REGISTERS={REGISTERS} '-DTW_SECTION=\".shared\"' '-DTW_INCLUDE=\"{header}\"'"
    folder = build(case[0], platform="bare", flags=flags, settings=[f"LDFLAGS={tmp_path / 'clean.o'}"])
    listed = subprocess.run(
        ["nm", "-P", folder / "build/bare/platform_bare.o"], check=True, capture_output=True, text=True
    ).stdout
    sections = subprocess.run(
        ["objdump", "-h", folder / "build/bare/main"], check=True, capture_output=True, text=True
    ).stdout
    assert "clean U" in listed and ".shared" in sections
