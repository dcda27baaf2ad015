"""What a proof found, in a form that is checked without a search: an order of the instructions, and their clocks.

`runtime/verify.py` issues certificates, `checker.py` checks them, a `.tw` file carries them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from ...hw.errors import CertificateError
from ...hw.isa import MICRO_OPS, instruction, known_isa
from ..launch import Launch


@dataclass(frozen=True, eq=False)
class Certificate:
    """That a launch has neither deadlock nor race, and reads nothing before it is written.

    It holds on accelerators whose command queues and token channels are at least `queue_depth` and `token_depth` deep.
    `order`, int32 (n,), are its instructions as they may execute one after the other; `clocks`, int32 (n, queues), how
    many instructions of each queue are done in every execution when instruction k is, itself included. `subject` is
    the digest of the launch, in hex. Raises `CertificateError` for arrays of another form.
    """

    queue_depth: int
    token_depth: int
    subject: str
    order: np.ndarray
    clocks: np.ndarray

    def __post_init__(self) -> None:
        n = len(self.order)
        for name, array, form in (("order", self.order, (n,)), ("clocks", self.clocks, (n, *self.clocks.shape[1:2]))):
            if array.dtype != np.int32 or array.shape != form or name == "clocks" and array.ndim != 2:
                found = f"{array.dtype} {array.shape}"
                raise CertificateError(f"certificate: {name} is {found}; must be int32, a row per instruction")


def subject_of(launch: Launch) -> str:
    """The digest of all that a proof of `launch` depends on: not of constants other than micro-ops."""
    digest = hashlib.sha256(f"{launch.cfg.fingerprint:016x}".encode())
    for array in (launch.insn, launch.reloc, launch.patches.columns):
        digest.update(np.ascontiguousarray(array, "<u8" if array.dtype.kind == "u" else "<i8").tobytes())
    digest.update(repr(list(launch.patches.limits.items())).encode())
    kernels = _of_micro_ops(launch)
    for k, b in enumerate(launch.buffers):
        digest.update(repr((b.name, b.nbytes, b.align, b.kind)).encode())
        if k in kernels and b.data is not None:
            digest.update(b.data.tobytes())
    return digest.hexdigest()


def _of_micro_ops(launch: Launch) -> set[int]:
    """The buffers from which micro-ops are loaded."""
    low = known_isa(launch.cfg).formats["LOAD"].fields["mem"].lo
    words = launch.insn[:, 0]
    keys = words & np.uint64(7) | (words >> np.uint64(low) & np.uint64(7)) << np.uint64(3)
    rows = {key: instruction(key & 7, key >> 3) for key in np.unique(keys).tolist()}
    loads = [key for key, row in rows.items() if row is not None and row.loads in MICRO_OPS]
    return set(launch.reloc[np.isin(keys, loads)].tolist())


def check_subject(launch: Launch, certificate: Certificate) -> None:
    """Raise `CertificateError` unless `certificate` is that of `launch`; whether it is right is for `checker.check`."""
    found = subject_of(launch)
    if found != certificate.subject:
        raise CertificateError(
            f"launch {launch.name!r}: its certificate is for {certificate.subject[:16]}, it is {found[:16]}: one of "
            "both was changed; compile the program again"
        )
