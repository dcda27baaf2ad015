"""Executables built as C programs, with the compiler's sanitisers, and run with a simulated accelerator."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime.c.emit import emit
from tilewright.runtime.c.shim import run
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded

SANITIZE = "-O1 -g -fsanitize=undefined,address -fno-sanitize-recover=all"
ARM, QEMU = "arm-linux-gnueabihf-gcc", "qemu-arm-static"


@pytest.fixture
def build(gcc, tmp_path):
    """A function that writes an executable as C and builds it: its folder."""

    def built(executable, name="network", flags=SANITIZE, platform="sim", settings=(), **options) -> Path:
        folder = tmp_path / f"{name}_{platform}"
        emit(executable, name, folder, **options)
        variables = [f"CFLAGS={flags}", f"PLATFORM={platform}", *settings]
        subprocess.run(["make", "-s", "-C", folder, "CC=gcc", *variables], check=True, timeout=300)
        return folder

    return built


@pytest.fixture(params=["gcc", "arm"])
def compiler(request):
    """(settings of make, words before a command) of this machine and of an emulated 32-bit ARM."""
    if request.param == "gcc":
        return (), ()
    if not (shutil.which(ARM) and shutil.which(QEMU)):
        pytest.skip(f"{ARM} or {QEMU} is missing: nothing is emulated")
    return ("CC=" + ARM, "LDFLAGS=-static", "CFLAGS=-O2"), (QEMU,)


@pytest.fixture
def same_as_loader(build):
    """A function that checks that a program in C gives what the loader gives: {output: values} of all `cases`.

    A case is {input: array}; the device of the C program is `on`, that of the loader the behavioural model.
    """

    def check(executable, cases, on="model", compiler=((), ()), **options):
        folder = build(executable, settings=compiler[0], **options)
        given = b"".join(case[t.name].astype(t.dtype).tobytes() for case in cases for t in executable.inputs)
        command = [*compiler[1], folder / "build/sim/main"]
        status, found = run(command, open_device(on, executable.cfg), given)
        assert status == 0
        with Loaded(executable, open_device("model", executable.cfg)) as loaded:
            expected = [loaded.run(case) for case in cases]
        wanted = [b"".join(outputs[t.name].tobytes() for t in executable.outputs) for outputs in expected]
        assert found == b"".join(wanted)
        return {t.name: np.stack([outputs[t.name] for outputs in expected]) for t in executable.outputs}

    return check
