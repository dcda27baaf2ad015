"""runtime/proof/certificate.py: what a certificate is for, and files that carry one."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tilewright.hw.errors import CertificateError, FileError
from tilewright.runtime.executable import Executable
from tilewright.runtime.proof.certificate import Certificate, check, check_subject, subject_of
from tilewright.runtime.verify import verify


@pytest.fixture
def program(launch):
    """An executable with a certificate."""
    executable = Executable.from_launch(launch)
    executable.launches[0].certificate = verify(launch, memory=True).certificate
    return executable


def test_a_certificate_is_issued_where_the_use_of_memory_is_proved(launch):
    assert verify(launch).certificate is None
    found = verify(launch, memory=True).certificate
    assert found is not None and found.clocks.shape == (len(launch.insn), 3)
    check_subject(launch, found)


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
    assert step.certificate is not None
    check(step.launch, step.certificate)
    program.launches[0].certificate = replace(step.certificate, subject="0" * 64)
    program.save(path)
    with pytest.raises(
        CertificateError, match=r"\.tw: launch 'program': its certificate is for 0{16}, it is [0-9a-f]{16}"
    ):
        Executable.load(path)


def test_a_file_without_one_is_read_and_of_an_older_version_never_has_one(program, tmp_path, change_members):
    path = tmp_path / "p.tw"
    program.launches[0].certificate = None
    program.save(path)
    assert Executable.load(path).launches[0].certificate is None
    program.launches[0].certificate = verify(program.launches[0].launch, memory=True).certificate
    program.save(path)
    change_members(path, lambda manifest: manifest | {"version": 2})
    with pytest.raises(FileError, match="step 0: 'certificate' is unknown"):
        Executable.load(path)


@pytest.fixture
def change_members():
    """Rewrites the manifest of a file."""
    import zipfile

    def change(path, how):
        with zipfile.ZipFile(path) as z:
            members = {name: z.read(name) for name in z.namelist()}
        members["manifest.json"] = json.dumps(how(json.loads(members["manifest.json"]))).encode()
        with zipfile.ZipFile(path, "w") as z:
            for name, data in members.items():
                z.writestr(name, data)

    return change


@pytest.mark.parametrize("order, clocks", [(np.zeros(3, np.int64), np.zeros((3, 3), np.int32)),
                                           (np.zeros(3, np.int32), np.zeros((2, 3), np.int32)),
                                           (np.zeros(3, np.int32), np.zeros(3, np.int32))])  # fmt: skip
def test_arrays_of_another_form_are_refused(order, clocks):
    with pytest.raises(CertificateError, match="certificate: (order|clocks) is .*; must be int32, a row per"):
        Certificate(1, 1, "", order, clocks)
