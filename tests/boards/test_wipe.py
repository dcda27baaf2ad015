"""boards/worker.py: nothing of another client is readable, on any device that a server offers."""

import hashlib

import numpy as np
import pytest

from tilewright.boards import messages, worker
from tilewright.boards.worker import ID, Jobs, Limits, wipe
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ExecutionError, UnwrittenError
from tilewright.hw.isa import MICRO_OPS, SCRATCHPADS, Isa, Mem, mem_of
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import Loaded
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify
from tilewright.sim.dram import Dram
from tilewright.sim.memory import put
from tilewright.sim.model.device import Model
from tilewright.sim.random_programs import NARROW, ODD, ODD_TWO, WIDE, Recorder, record_random

TINY = PRESETS["tiny"]
CONFIGS = (TINY, WIDE, ODD_TWO, NARROW)  # together they have every scratchpad
ONE, OTHER = b"1" * ID, b"2" * ID


class Careless(Recorder):
    """Leaves out half of the loads, and reads outputs, temporaries and states that hold little of its own."""

    def __init__(self, cfg, seed):
        super().__init__(cfg, seed)
        made = [self.program.buffer(kind, self.target.shape, cfg.out_bits, kind=kind) for kind in ("temp", "state")]
        self.targets = [self.target, *made]

    def load(self, *args, **kwargs):
        if self.rng.integers(2):
            super().load(*args, **kwargs)

    def store(self, *args, **kwargs):
        self.target = self.targets[self.rng.integers(3)]
        super().store(*args, **kwargs)

    def reload(self, *args):
        self.target = self.targets[self.rng.integers(3)]
        super().reload(*args)


def careless(cfg, seed):
    """(file, its inputs) of a random program that was not verified; a quarter of its micro-ops are not loaded."""
    recorder = Careless(cfg, seed)
    for k, target in enumerate(recorder.targets):
        recorder.program.load(Mem.ACC, 0, target, 0, x_size=8)
        recorder.program.store(0, recorder.target, 3000 + 8 * k, x_size=8)
    record_random(recorder, 20)
    launch, isa = recorder.program.finish(), Isa(cfg)
    for k, f in enumerate(isa.decode(launch.insn)):
        if "mem" in f and mem_of(f["op"], f["mem"]) in MICRO_OPS and not recorder.rng.integers(4):
            put(launch.insn[k], isa.formats["LOAD"].fields["x_size"], 0)
    return Executable.from_launch(launch).to_bytes(), recorder.inputs


def answer(jobs, data, inputs, session):
    """Outputs as bytes, or the error."""
    digest = hashlib.sha256(data).digest()
    messages.raise_failure(jobs.load(digest, data).failure)
    request = messages.make("RunRequest", digest=digest, session=session, inputs=messages.tensors(inputs))
    try:
        reply = jobs.run(request)
        messages.raise_failure(reply.failure)
    except ExecutionError as exc:
        return str(exc)
    return {name: array.tobytes() for name, array in messages.arrays(reply.outputs).items()}


def opened(on, cfg):
    memory = {"dram": Dram(total_bytes=24)} if on == "timing" else {}
    return Jobs(open_device(on, cfg, **memory), Limits())


def leaks(jobs, on, cfg, seeds):
    """Of each pair of programs of two clients, whether the second one finds something else than on a new device.

    In half of the pairs both have the same file, with inputs of their own.
    """
    for seed in seeds:
        data, inputs = careless(cfg, seed)
        first, others = (data, inputs) if seed % 2 else careless(cfg, seed + (1 << 20))
        rng = np.random.default_rng(seed)
        answer(jobs, first, {name: rng.permutation(array) for name, array in others.items()}, ONE)
        alone = opened(on, cfg)
        yield answer(jobs, data, inputs, OTHER) != answer(alone, data, inputs, OTHER)
        alone.close()


@pytest.fixture
def unproved(monkeypatch):
    """The second line of defence alone: what the proof would refuse runs."""
    monkeypatch.setattr(worker, "_prove", lambda executable: None)


PAIRS = [("model", 8), ("timing", 4), ("rtl", 1)]
MANY = [("model", 250), ("timing", 50), ("rtl", 20)]


def case(on, count, cfg):
    """A row of the test; of the circuits, which take a minute each, all but one are for the slow rows."""
    quick = (on, count) in PAIRS and (on != "rtl" or cfg is TINY)
    marks = pytest.mark.slow if not quick else pytest.mark.circuit if on == "rtl" else ()
    return pytest.param(on, count, cfg, id=f"{cfg.name}-{on}-{count}", marks=marks)


CASES = [case(on, count, cfg) for cfg in CONFIGS for on, count in PAIRS + MANY]


@pytest.mark.parametrize("on, count, cfg", CASES)
def test_nothing_of_another_client_is_readable(on, count, cfg, unproved):
    if on == "rtl":
        pytest.importorskip("amaranth")
    assert not any(leaks(opened(on, cfg), on, cfg, range(count)))


@pytest.mark.parametrize("mem", [*SCRATCHPADS, "DRAM"], ids=lambda mem: getattr(mem, "name", mem))
def test_without_the_wipe_of_one_memory_it_is_readable(mem, unproved, monkeypatch):
    """So the test above would see what is left in any."""
    cfg = ODD_TWO if mem in (Mem.TWGT, Mem.TUOP) else WIDE
    with monkeypatch.context() as patched:
        patched.setattr("tilewright.boards.worker.SCRATCHPADS", [each for each in SCRATCHPADS if each is not mem])
        for uops, name in ((Mem.UOP, "alu_uops"), (Mem.TUOP, "ternary_uops")):
            if mem is uops:
                patched.setattr(Program, name, lambda *args, **kwargs: None)
        jobs = opened("model", cfg)
    if mem == "DRAM":
        monkeypatch.setattr(Loaded, "clear", Loaded.reset)
    assert any(leaks(jobs, "model", cfg, range(40)))


def test_one_client_is_wiped_once(unproved, monkeypatch):
    """When the client changes, not between its runs."""
    jobs, wiped = opened("model", TINY), []
    monkeypatch.setattr(jobs._wipe, "run", lambda inputs: wiped.append(jobs._session))
    data, inputs = careless(TINY, 1)
    for session in (ONE, ONE, OTHER, OTHER, OTHER, ONE):
        answer(jobs, data, inputs, session)
    assert len(wiped) == 3


@pytest.mark.parametrize("on", ["model", "timing"])
def test_constants_on_chip_belong_to_one_client(on):
    """Runs of one client find them, the next client's first run loads its own, and so does the first one's next run."""
    weights = np.arange(64, dtype=np.uint8)
    program = Program(TINY, "product")
    x, y = program.buffer("x", (1, 1, 4)), program.buffer("y", (4, 1, 4), kind="output")
    program.load(Mem.INP, 0, x, 0, x_size=1)
    program.load(Mem.WGT, 0, program.buffer("w", (4, 4, 4), kind="constant", data=weights), 0, x_size=4)
    program.gemm([(4, 1, 0, 1)], reset=True)
    program.gemm([(4, 1, 0, 1)])
    program.store(0, y, 0, x_size=4)
    data = Executable.from_launch(program.finish()).resident().to_bytes()
    jobs, digest, steady = opened(on, TINY), hashlib.sha256(data).digest(), []
    assert not jobs.load(digest, data).failure
    for k, session in enumerate((ONE, ONE, OTHER, OTHER, ONE)):
        inputs = np.full((1, 1, 4), k, np.int8)
        request = {"digest": digest, "session": session, "inputs": messages.tensors({"x": inputs})}
        reply = jobs.run(messages.make("RunRequest", **request))
        found = messages.arrays(reply.outputs)["y"].reshape(-1)
        assert np.array_equal(found, (k * weights.reshape(16, 4).astype(int).sum(axis=1)).astype(np.int8))
        steady.append([step.steady for step in messages.reports(reply.steps)])
    assert steady == [[False], [True], [False], [True], [False]]


def test_a_program_that_is_not_proved_is_refused():
    """It would read what is left in accumulators, in temporaries, or in its output."""
    for kind, text in (("temp", "bytes 0x0..0x1f of buffer 't'"), ("output", "bytes 0x0..0x1f of buffer 't'")):
        p = Program(TINY, "thief")
        t = p.buffer("t", (8, 1, 4), kind=kind)
        y = p.buffer("y", (8, 1, 4), kind="output")
        p.load(Mem.ACC8, 0, t, 0, x_size=8)
        p.store(0, y, 0, x_size=8)
        with pytest.raises(UnwrittenError, match=f"step 'thief': .*reads {text}.*a shared device runs only programs"):
            answer(opened("model", TINY), Executable.from_launch(p.finish()).to_bytes(), {}, ONE)


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
