"""runtime/proof/certificate.py: what a certificate is for, what the checker accepts, and that no forged one passes."""

from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, CertificateError, TilewrightError
from tilewright.hw.isa import Mem, Op, known_isa
from tilewright.hw.units import Queue
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import Program
from tilewright.runtime.proof.certificate import Certificate, check, subject_of
from tilewright.runtime.verify import verify
from tilewright.sim.memory import put
from tilewright.sim.mutants import mutants
from tilewright.sim.mutation import CONFIGS
from tilewright.sim.random_programs import Recorder, record_random


@pytest.fixture
def program(launch):
    """An executable with a certificate."""
    executable = Executable.from_launch(launch)
    executable.launches[0].certificate = verify(launch, memory=True).certificate
    return executable


def test_the_subject_is_all_that_a_proof_depends_on(launch):
    """And no more: the values of inputs and constants, and the depth of queues, are left out."""
    same = subject_of(launch)
    insn, reloc = launch.insn.copy(), launch.reloc.copy()
    insn[2, 1] ^= np.uint64(1)
    reloc[0] = 1
    buffers = [replace(b) for b in launch.buffers]
    buffers[0].align = 128
    kernels = next(k for k, b in enumerate(launch.buffers) if b.name == "uop")
    words = [replace(b) for b in launch.buffers]
    data = words[kernels].data
    assert data is not None
    words[kernels].data = data + np.uint8(1)
    others = [replace(launch, insn=insn), replace(launch, reloc=reloc)]
    others += [replace(launch, buffers=some) for some in (buffers, words)]
    assert len({same, *map(subject_of, others)}) == 5
    assert subject_of(replace(launch, cfg=launch.cfg.replace(queue_depth=8), name="other")) == same


def test_a_file_carries_it_and_a_foreign_one_is_refused_by_name(program, tmp_path):
    path = tmp_path / "p.tw"
    program.save(path)
    (step,) = Executable.load(path).launches
    assert step.certificate is not None and step.certificate.clocks.shape == (len(step.launch.insn), 3)
    check(step.launch, step.certificate)
    program.launches[0].certificate = replace(step.certificate, subject="0" * 64)
    program.save(path)
    with pytest.raises(
        CertificateError, match=r"\.tw: launch 'program': its certificate is for 0{16}, it is [0-9a-f]{16}"
    ):
        Executable.load(path)


@pytest.mark.parametrize("order, clocks", [(np.zeros(3, np.int64), np.zeros((3, 3), np.int32)),
                                           (np.zeros(3, np.int32), np.zeros((2, 3), np.int32)),
                                           (np.zeros(3, np.int32), np.zeros(3, np.int32))])  # fmt: skip
def test_arrays_of_another_form_are_refused(order, clocks):
    with pytest.raises(CertificateError, match="certificate: (order|clocks) is .*; must be int32, a row per"):
        Certificate(1, 1, "", order, clocks)


def certified(launch):
    """The certificate of a launch that is right."""
    found = verify(launch, memory=True).certificate
    assert found is not None
    return found


def with_value(at, value):
    def change(array):
        array = array.copy()
        array[at] += value
        return array

    return change


@pytest.mark.parametrize(
    "arrays, text",
    [
        ({"order": lambda order: order[::-1].copy()}, "its order is not that of a queue"),
        ({"order": lambda order: order * 0}, "its order is not one of all instructions"),
        ({"order": lambda order: np.roll(order, 1)}, "its order is not that of a queue"),
        ({"clocks": with_value((0, 2), 1)}, "the clock of instruction 0 does not follow"),
        ({"clocks": with_value((5, 1), -1)}, "the clock of instruction 5 does not follow"),
        ({"clocks": lambda clocks: clocks[:, :2].copy()}, "clocks; must be"),
        ({"clocks": lambda clocks: np.maximum(clocks - 100, 0)}, "does not follow"),
        ({"queue_depth": lambda depth: 0}, r"it assumes depths \(0, 1023\)"),
        ({"token_depth": lambda depth: 0}, r"it assumes depths \(64, 0\)"),
        ({"queue_depth": lambda depth: 1 << 20}, r"it assumes depths \(1048576, 1023\); those of vta are less"),
        ({"token_depth": lambda depth: 1 << 20}, r"it assumes depths \(64, 1048576\); those of vta are less"),
    ],
)
def test_a_damaged_certificate_is_refused(launch, arrays, text):
    good = certified(launch)
    check(launch, good)
    wrong = replace(good, **{name: how(getattr(good, name)) for name, how in arrays.items()})
    with pytest.raises(CertificateError, match=f"launch 'program': its certificate does not hold: .*{text}"):
        check(launch, wrong)


@pytest.mark.parametrize(
    "before, loads, depths, text",
    [
        (0, 5, {"token_depth": 6}, None),  # five loads, and one token for FINISH
        (0, 5, {"token_depth": 5}, r"instruction \d+ may give one token LOAD -> COMPUTE too many"),
        (9, 1, {"queue_depth": 64}, None),
        (9, 1, {"queue_depth": 4}, r"instruction \d+ would execute before there is room for it in its queue"),
    ],
)
def test_depths_that_a_program_needs(before, loads, depths, text):
    """`before` jobs and as many jobs as `loads` wait for a token of a load, all of which come after the first jobs."""
    program = Program(PRESETS["vta"], tokens="explicit")
    x = program.buffer("x", (1, 1, 16))
    if before:
        program.dep_pop(Queue.LOAD, Queue.COMPUTE)
    for _ in range(before):
        program.gemm([], reset=True)
    for _ in range(loads):
        program.load(Mem.INP, 0, x, 0)
        program.dep_push(Queue.LOAD, Queue.COMPUTE)
    for _ in range(0 if before else loads):
        program.dep_pop(Queue.LOAD, Queue.COMPUTE)
    launch = program.finish()
    shallow = replace(certified(launch), **depths)
    if text is None:
        check(launch, shallow)
        return
    with pytest.raises(CertificateError, match=text):
        check(launch, shallow)


def test_the_size_of_a_buffer_costs_nothing():
    """Nor does one that is mostly left alone pass for written."""
    program = Program(PRESETS["tiny"])
    temp, out = program.buffer("t", (2, 1, 4), kind="temp"), program.buffer("out", (2, 1, 4), kind="output")
    program.gemm([(2, 1, 1, 0)], reset=True)
    program.store(0, temp, 0, x_size=2)
    program.load(Mem.INP, 0, temp, 1, x_size=1)
    program.store(0, out, 0, x_size=2)
    launch = program.finish()
    launch = replace(launch, buffers=[replace(b, shape=(1 << 33,)) if b.name == "t" else b for b in launch.buffers])
    good = certified(launch)
    check(launch, good)
    larger = replace(launch, buffers=[replace(b, shape=(3, 1, 4)) if b.name == "out" else b for b in launch.buffers])
    with pytest.raises(CertificateError, match="output 'out' is not written whole"):
        check(larger, replace(good, subject=subject_of(larger)))
    late = replace(launch, buffers=[replace(b, kind="output") if b.name == "t" else b for b in launch.buffers])
    with pytest.raises(CertificateError, match="output 't' is not written whole"):
        check(late, replace(good, subject=subject_of(late)))


@pytest.mark.parametrize("ends", [(25, 0), (2, 1), (0, 8193), (8193, 8193)])
@pytest.mark.parametrize("idle", ["iter_out", "iter_in"])
def test_loops_without_trips_name_micro_ops_that_exist(launch, ends, idle):
    """Else they end in an error, as model and circuit have it, though they execute none."""
    isa = known_isa(launch.cfg)
    k = next(k for k, f in enumerate(isa.decode(launch.insn)) if f["op"] == Op.GEMM and not f["reset"])

    def changed(bgn, end):
        insn = launch.insn.copy()
        for name, value in (("uop_bgn", bgn), ("uop_end", end), (idle, 0)):
            put(insn[k], isa.formats["GEMM"].fields[name], value)
        return replace(launch, insn=insn)

    right, wrong = changed(8192, 8192), changed(*ends)
    good = certified(right)
    check(right, good)
    with pytest.raises(AccessError, match=f"instruction {k} .* executes micro-ops"):
        verify(wrong, memory=True)
    with pytest.raises(CertificateError, match=f"instruction {k} executes micro-ops that do not exist"):
        check(wrong, replace(good, subject=subject_of(wrong)))


def forged(launch, base, rng):
    """Certificates for `launch` by who has that of a program like it."""
    n = len(launch.insn)
    order = np.arange(n, dtype=np.int32)
    clocks = np.resize(base.clocks, (n, base.clocks.shape[1])).astype(np.int32)
    generous = np.tile(clocks.max(axis=0, initial=0), (n, 1)).astype(np.int32)
    for claims in (clocks, generous, np.sort(clocks, axis=0)):
        for some in (order, np.resize(base.order, n), rng.permutation(order)):
            yield replace(base, subject=subject_of(launch), order=some.astype(np.int32), clocks=claims)


@pytest.mark.parametrize("count, seed", [(60, 5), pytest.param(2000, 6, marks=pytest.mark.slow)])
def test_what_verify_refuses_no_certificate_proves(count, seed):
    """`verify` and the checker on mutants of random programs, with states in the place of outputs."""
    found, number, rng = Counter(), 0, np.random.default_rng(seed)
    while number < count:
        recorder = Recorder(CONFIGS[number % len(CONFIGS)], int(rng.integers(1 << 32)))
        record_random(recorder, int(rng.integers(1, 5)))
        launch, base = recorder.program.finish(), None
        buffers = [replace(b, kind="state") if b.kind == "output" else b for b in launch.buffers]
        launch = replace(launch, buffers=buffers)  # it may leave parts of them as they were
        for mutant in (launch, *(m.launch for m in islice(mutants(launch, rng), 9))):
            number += 1
            try:
                own = verify(mutant, memory=True).certificate
            except TilewrightError as exc:
                found[type(exc).__name__] += 1
                for forgery in forged(mutant, base, rng) if base else ():
                    with pytest.raises(TilewrightError):
                        check(mutant, forgery)
                    found["forged"] += 1
            else:
                assert own is not None
                check(mutant, own)
                base = base or own
                found["right"] += 1
    assert found["right"] > count // 8 and found["forged"] > count and len(found) > 4, found
