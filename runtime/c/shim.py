"""A device for programs in C: `python -m tilewright.runtime.c.shim --on model --config FILE ./main` starts one.

The program asks by lines on a pipe (support/platform_sim.c); memory is a file that it maps, too. Standard input and
output are the program's.
"""

from __future__ import annotations

import argparse
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

import numpy as np

from ...hw.config import load_config
from ...hw.errors import CapacityError, ExecutionError, TilewrightError, UnsupportedError
from ...hw.regs import Error
from ..device import Device, open_device

# the values are those in support/tw_platform.h
NO_DEVICE, WRONG_DEVICE, NO_MEMORY = 0x100, 0x101, 0x102


class Shim:
    """Answers the requests of one program with `device`; `folder` takes the files of its memory."""

    def __init__(self, device: Device, folder: Path):
        self.device, self._folder = device, folder
        self._memory: dict[int, mmap.mmap] = {}
        self.runs = 0

    def answer(self, line: str) -> str:
        """The answer to a request: a status and, for memory, its address and file."""
        verb, *words = line.split()
        if verb == "open":
            return str(0 if int(words[0], 16) == self.device.cfg.fingerprint else WRONG_DEVICE)
        first, second = map(int, words)
        if verb == "memory":
            return self._map(first, second)
        if verb == "run":
            return str(self._run(first, second))
        raise UnsupportedError(f"request {verb!r} of the program: must be open, memory or run")

    def _map(self, size: int, align: int) -> str:
        try:
            address = self.device.allocate(size, align)
        except CapacityError:
            return str(NO_MEMORY)
        path = self._folder / f"memory{len(self._memory)}"
        path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._memory[address] = mmap.mmap(file.fileno(), size)
        return f"0 {address} {path}"

    def _run(self, address: int, count: int) -> int:
        """Copy all memory to the device, run, and copy it back; the code of ERROR."""
        for start, memory in self._memory.items():
            self.device.write(start, np.frombuffer(memory, np.uint8))
        self.runs += 1
        try:
            self.device.run(address, count)
        except ExecutionError as exc:
            sys.stderr.write(f"launch {self.runs}: {exc}\n")
            return Error.UNDECODABLE
        for start, memory in self._memory.items():
            memory[:] = self.device.read(start, len(memory)).tobytes()
        return 0

    def serve(self, requests: IO[str], answers: IO[bytes]) -> None:
        """Answer until the program ends."""
        for line in requests:
            answers.write(f"{self.answer(line)}\n".encode())


def run(command: Sequence[str | Path], device: Device, given: bytes | None = None) -> tuple[int, bytes]:
    """Run a C program for platform `sim` with `device`: (exit status, its standard output).

    `given` is its standard input. With None the program uses standard input and output of this process.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stdin = stdout = None
        if given is not None:
            (Path(folder) / "given").write_bytes(given)
            stdin = stack.enter_context((Path(folder) / "given").open("rb"))
            stdout = stack.enter_context((Path(folder) / "found").open("wb"))
        answers, requests = os.pipe(), os.pipe()  # (end to read, end to write)
        told = stack.enter_context(os.fdopen(answers[1], "wb", buffering=0))
        asked = stack.enter_context(os.fdopen(requests[0]))
        its = answers[0], requests[1]
        environment = os.environ | {"TW_SIM": f"{its[0]},{its[1]}"}
        try:
            process = subprocess.Popen([*map(str, command)], stdin=stdin, stdout=stdout, pass_fds=its, env=environment)
        finally:
            for pipe in its:
                os.close(pipe)
        try:
            with suppress(BrokenPipeError):  # it may end before it reads its last answer
                Shim(device, Path(folder)).serve(asked, told)
        except BaseException:
            process.kill()
            raise
        finally:
            status = process.wait()
        return status, b"" if given is None else (Path(folder) / "found").read_bytes()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.runtime.c.shim", description=__doc__)
    parser.add_argument("--on", default="model", help="the device, as for tilewright run")
    parser.add_argument("--config", default="pynq_z1", help="preset or JSON file; config.json of the generated folder")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program, and its arguments")
    found = parser.parse_args(arguments)
    if not found.command:
        parser.error("give the program to run")
    try:
        status, _ = run(found.command, open_device(found.on, load_config(found.config)))
    except (TilewrightError, OSError) as exc:
        sys.stderr.write(f"shim: error: {exc}\n")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
