"""boards/wipe.py: nothing of another client is readable, on any device that a server offers."""

import hashlib

import numpy as np
import pytest

from tilewright.boards import messages
from tilewright.boards.wipe import wipe
from tilewright.boards.worker import Jobs, Limits
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify
from tilewright.sim.model.machine import Model
from tilewright.sim.random_programs import NARROW, ODD, ODD_TWO

TINY = PRESETS["tiny"]


def secret():
    """A program that leaves its input in inputs, weights, accumulators, parameters and memory."""
    p = Program(TINY, "secret")
    x, w = p.buffer("x", (8, 1, 4)), p.buffer("w", (8, 4, 4))
    q, y = p.buffer("q", (8, 4, 3), 32), p.buffer("y", (8, 1, 4), kind="output")
    temp = p.buffer("temp", (8, 1, 4), kind="temp")
    p.load(Mem.INP, 0, x, 0, x_size=8)
    p.load(Mem.WGT, 0, w, 0, x_size=8)
    p.load(Mem.PAR, 0, q, 0, x_size=8)
    p.load(Mem.ACC8, 0, x, 0, x_size=8)
    p.store(0, temp, 0, x_size=8)
    p.store(0, y, 0, x_size=8)
    values = {"x": np.full((8, 1, 4), 77, np.int8), "w": np.full((8, 4, 4), 77, np.int8)}
    return p.finish(), values | {"q": np.full((8, 4, 3), 77, np.int32)}


def thief():
    """Reads what no one wrote for it: accumulators, products of inputs with weights, memory, parameters."""
    p = Program(TINY, "thief")
    out = p.buffer("out", (40, 1, 4), kind="output")
    temp = p.buffer("temp", (2048, 1, 4), kind="temp")
    p.store(0, out, 0, x_size=8)
    p.gemm([(8, 1, 1, 1)], 8)
    p.alu(AluOp.SHR, [(8, 1, 0)], 8, imm=6)
    p.store(8, out, 8, x_size=8)
    p.store(0, out, 16, x_size=8, par=0)
    p.load(Mem.ACC8, 24, temp, 0, x_size=8)
    p.load(Mem.ACC8, 32, temp, 1024, x_size=8)
    p.store(24, out, 24, x_size=16)
    return p.finish(), {}


def answers(jobs, program, inputs):
    data = Executable.from_launch(program).to_bytes()
    digest = hashlib.sha256(data).digest()
    messages.raise_failure(jobs.load(digest, data).failure)
    reply = jobs.run(messages.make("RunRequest", digest=digest, inputs=messages.tensors(inputs)))
    messages.raise_failure(reply.failure)
    return messages.arrays(reply.outputs)


@pytest.mark.parametrize("on", ["model", "timing", "rtl"])
def test_nothing_of_another_client_is_readable(on):
    if on == "rtl":
        pytest.importorskip("amaranth")
    jobs = Jobs(open_device(on, TINY), Limits())
    mine = answers(jobs, *secret())
    assert (mine["y"] == 77).all()
    assert not answers(jobs, *thief())["out"].any()
    while jobs._placed:  # memory that programs before had
        jobs._drop_oldest()
    assert not answers(jobs, *thief())["out"].any()
    jobs.close()


def test_without_the_wipe_the_thief_succeeds(monkeypatch):
    jobs = Jobs(open_device("model", TINY), Limits())
    monkeypatch.setattr(jobs._wipe, "run", lambda inputs: None)
    answers(jobs, *secret())
    assert answers(jobs, *thief())["out"].any()


@pytest.mark.parametrize("cfg", [*PRESETS.values(), ODD, NARROW, ODD_TWO], ids=lambda cfg: cfg.name)
def test_every_scratchpad_is_zero(cfg):
    launch = wipe(cfg)
    verify(launch)
    image, bases = np.zeros(1 << 20, np.uint8), []
    for k, buffer in enumerate(launch.buffers, 1):
        bases.append(-(-(k << 15) // buffer.align) * buffer.align)
        assert buffer.data is not None
        image[bases[-1] : bases[-1] + buffer.nbytes] = buffer.data
    words = launch.relocate(bases).view(np.uint8).reshape(-1)
    image[: len(words)] = words
    model = Model(cfg, image)
    state = model.state
    held = [state.inp, state.wgt, state.twgt, state.acc, state.uop, state.tuop]
    if "requant" in cfg.extensions:
        held += state.par.values()
    if "lookup" in cfg.extensions:
        held.append(state.tables)
    for array in held:
        array[...] = 1
    model.run(0, len(launch.insn))
    assert not any(array.any() for array in held)
