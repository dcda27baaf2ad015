"""The `.tw` file: a zip archive of `manifest.json` and arrays, written and read. See docs/files.md.

Files are not trusted: every field has a declared kind, and the bytes of arrays are counted while they are unpacked.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..hw.config import Config
from ..hw.errors import FileError, ProgramError
from ..hw.foreign import MANIFEST, Archive
from ..hw.rounding import CONTRACTS
from .arrays import Array
from .buffer import Buffer
from .contents import Contents
from .files import add_member
from .launch import Launch, Origins
from .proof.certificate import Certificate, check_subject
from .schema import NAME, SHAPE, Anything, Flag, Int, Kind, ListOf, MapOf, OneOf, Optional, check_fields, is_dict, shown
from .steps import HostStep, LaunchStep, Step, Tensor, When
from .symbols import Patches

FORMAT, VERSION = "tilewright program", 3
RESIDENT = 4  # the version of programs with steady launches: earlier readers would load all again and again
VERSIONS = (1, 2, 3, RESIDENT)  # that are read; the first has no states, the first two have no certificates
Parts = tuple[Config, str, dict[str, Tensor], list[Step], str | None]  # arguments of `Contents`
_Object = dict[str, Any]  # of JSON
_MOST = 8 << 20  # bytes of a manifest; in memory it takes some twenty times as many

_MEMBER, _OBJECT, _COUNT = NAME, MapOf(Anything()), Int(0, 1 << 62)
_TOP: dict[str, Kind] = {
    "format": Anything(),
    "version": Anything(),
    "name": NAME,
    "fingerprint": NAME,
    "config": _OBJECT,
    "tensors": ListOf(_OBJECT),
    "steps": ListOf(_OBJECT),
    "memory": _OBJECT,
    "contract": OneOf(CONTRACTS),
}
_TENSOR: dict[str, Kind] = {"name": NAME, "shape": SHAPE, "dtype": NAME, "kind": NAME, "data": Optional(_MEMBER)}
_STATE = _TENSOR | {"next": NAME}
_STEP: dict[str, Kind] = {"kind": OneOf(("host", "launch")), "name": NAME, "macs": _COUNT}
_HOST = _STEP | {
    "op": NAME,
    "inputs": ListOf(NAME),
    "outputs": ListOf(NAME),
    "attrs": _OBJECT,
    "constants": MapOf(_MEMBER),
    "when": _OBJECT,
}
_LAUNCH = _STEP | {
    "bind": MapOf(NAME),
    "buffers": ListOf(_OBJECT),
    "insn": _MEMBER,
    "relocations": _MEMBER,
    "origins": Optional(_OBJECT),
    "patches": _OBJECT,
    "symbols": MapOf(NAME),
    "when": _OBJECT,
}
_CERTIFIED = _LAUNCH | {"certificate": _OBJECT}
_RESIDENT = _CERTIFIED | {"steady": _OBJECT}
_STEADY: dict[str, Kind] = {
    key: _CERTIFIED[key] for key in ("insn", "relocations", "origins", "patches", "certificate")
}
_CERTIFICATE: dict[str, Kind] = {
    "queue_depth": Int(1),
    "token_depth": Int(1),
    "subject": NAME,
    "order": _MEMBER,
    "clocks": _MEMBER,
}
_ORIGINS: dict[str, Kind] = {"paths": ListOf(ListOf(NAME)), "macs": ListOf(Optional(_COUNT)), "of": _MEMBER}
_PATCHES: dict[str, Kind] = {"limits": MapOf(Int(1)), "columns": _MEMBER}
_WHEN: dict[str, Kind] = {"tensor": NAME, "first": Int(0), "end": Int(1)}
_BUFFER: dict[str, Kind] = {
    "name": NAME,
    "shape": SHAPE,
    "bits": Int(1, 64),
    "signed": Flag(),
    "kind": NAME,
    "align": Int(1),
    "data": Optional(_MEMBER),
}


_LATER = frozenset(
    {"origins", "patches", "symbols", "when", "certificate", "steady", "contract"}
)  # that files need not have


def write(contents: Contents) -> bytes:
    """The bytes of the file of `contents`."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
        members = _Writer(z)
        manifest = {
            "format": FORMAT,
            "version": RESIDENT if any(step.steady for step in contents.launches) else VERSION,
            "name": contents.name,
            "fingerprint": f"{contents.cfg.fingerprint:016x}",
            "config": contents.cfg.to_dict(),
            "tensors": [_tensor_out(t, members) for t in contents.tensors.values()],
            "steps": [_step_out(step, members) for step in contents.steps],
            "memory": {name: region._asdict() for name, region in contents.memory_plan().items()},
        } | ({} if contents.contract is None else {"contract": contents.contract})
        add_member(z, MANIFEST, json.dumps(manifest, indent=1))
    return archive.getvalue()


def read(data: bytes, name: str, most: int | None) -> Parts:
    """The arguments of `Contents` in the file `name` with the bytes `data`, which may unpack to `most` bytes.

    Raises `FileError` where it is too large, or of another format, version or fingerprint, and for damage errors of
    any kind, `ProgramError` among them: callers name the file.
    """
    archive = Archive(io.BytesIO(data), name, most)
    content = archive.json(MANIFEST, _MOST)
    if not is_dict(content):
        raise ProgramError(f"its manifest is {shown(content)}: must be an object")
    manifest: _Object = {str(key): value for key, value in content.items()}
    name_of_format, version = manifest["format"], manifest["version"]
    if name_of_format != FORMAT or type(version) is not int or version not in VERSIONS:
        found = f"{shown(name_of_format)} version {shown(version)}"
        allowed = f"{', '.join(map(str, VERSIONS[:-1]))} or {VERSIONS[-1]}"
        raise FileError(f"{name}: {found} is not supported; must be {FORMAT!r} version {allowed}")
    _check("manifest", manifest, _TOP, _LATER)
    cfg = Config.from_dict(manifest["config"])
    if f"{cfg.fingerprint:016x}" != manifest["fingerprint"]:
        raise FileError(f"{name}: fingerprint {manifest['fingerprint']} does not match its configuration")
    reader, tensors = _Reader(archive), dict[str, Tensor]()
    for k, t in enumerate(manifest["tensors"]):
        _check(f"tensor {k}", t, _STATE if version > 1 and t.get("kind") == "state" else _TENSOR)
        if t["name"] in tensors:
            raise ProgramError(f"tensor {t['name']!r} is declared twice")
        facts = t["name"], tuple(t["shape"]), t["dtype"], t["kind"]
        tensors[t["name"]] = Tensor(*facts, reader.optional(t["data"]), t.get("next"))
    steps = [_step_in(reader, cfg, version, *s) for s in enumerate(manifest["steps"])]
    return cfg, manifest["name"], tensors, steps, manifest.get("contract")


def _check(what: str, values: _Object, kinds: Mapping[str, Kind], optional: frozenset[str] = frozenset()) -> None:
    try:
        check_fields(values, kinds, optional)
    except ProgramError as exc:
        raise ProgramError(f"{what}: {exc}") from None


class _Writer:
    """Members of the archive, numbered as they are added; equal arrays share a member."""

    def __init__(self, archive: zipfile.ZipFile):
        self._archive, self._names = archive, dict[bytes, str]()  # by digest

    def array(self, data: Array | None) -> str | None:
        if data is None:
            return None
        out = io.BytesIO()
        np.save(out, data.astype(data.dtype.newbyteorder("<")), allow_pickle=False)
        digest = hashlib.sha256(out.getbuffer()).digest()
        if digest not in self._names:
            self._names[digest] = f"data/{len(self._names)}.npy"
            add_member(self._archive, self._names[digest], out.getvalue())
        return self._names[digest]


class _Reader:
    """Members of the archive, as arrays that cannot be written; a second use of a name gives the same array."""

    def __init__(self, archive: Archive):
        self._archive, self._known = archive, dict[str, Array]()

    def array(self, name: str) -> Array:
        if name not in self._known:
            self._known[name] = self._archive.array(name)
            self._known[name].flags.writeable = False
        return self._known[name]

    def optional(self, name: str | None) -> Array | None:
        return None if name is None else self.array(name)


def _tensor_out(t: Tensor, members: _Writer) -> dict[str, object]:
    out: dict[str, object] = {"name": t.name, "shape": t.shape, "dtype": t.dtype, "kind": t.kind}
    out["data"] = members.array(t.data)
    return out if t.next is None else out | {"next": t.next}


def _step_out(step: Step, members: _Writer) -> dict[str, object]:
    out: dict[str, object] = {"name": step.name, "macs": step.macs}
    if step.when is not None:
        out["when"] = step.when._asdict()
    if isinstance(step, HostStep):
        constants = {key: members.array(value) for key, value in step.constants.items()}
        out |= {"kind": "host", "op": step.op, "inputs": step.inputs, "outputs": step.outputs}
        return out | {"attrs": step.attrs, "constants": constants}
    buffers = [{key: getattr(b, key) for key in _BUFFER} | {"data": members.array(b.data)} for b in step.launch.buffers]
    out |= {"kind": "launch", "bind": step.bind, "buffers": buffers}
    out |= _launch_out(step.launch, step.certificate, members)
    if "patches" in out:
        out["symbols"] = step.symbols
    return out if step.steady is None else out | {"steady": _launch_out(step.steady, step.steady_certificate, members)}


def _launch_out(launch: Launch, certificate: Certificate | None, members: _Writer) -> dict[str, object]:
    """All of a launch but its buffers."""
    out: dict[str, object] = {"insn": members.array(launch.insn), "relocations": members.array(launch.reloc)}
    origins = launch.origins
    if origins is not None:
        out["origins"] = {"paths": origins.paths, "macs": origins.macs, "of": members.array(origins.of)}
    patches = launch.patches
    if len(patches.columns):
        out["patches"] = {"limits": patches.limits, "columns": members.array(patches.columns)}
    if certificate is not None:
        arrays = {"order": members.array(certificate.order), "clocks": members.array(certificate.clocks)}
        depths = {"queue_depth": certificate.queue_depth, "token_depth": certificate.token_depth}
        out["certificate"] = depths | {"subject": certificate.subject} | arrays
    return out


def _step_in(archive: _Reader, cfg: Config, version: int, number: int, s: _Object) -> Step:
    launched = _RESIDENT if version >= RESIDENT else _CERTIFIED if version > 2 else _LAUNCH
    _check(f"step {number}", s, _HOST if s.get("kind") == "host" else launched, _LATER)
    when = s.get("when")
    if when is not None:
        _check(f"step {number}: when", when, _WHEN)
        when = When(**when)
    if s["kind"] == "host":
        constants = {key: archive.array(member) for key, member in s["constants"].items()}
        return HostStep(s["name"], s["op"], s["inputs"], s["outputs"], s["attrs"], constants, s["macs"], when)
    buffers = list[Buffer]()
    for k, b in enumerate(s["buffers"]):
        _check(f"step {number}: buffer {k}", b, _BUFFER)
        data = archive.optional(b["data"])
        buffers.append(Buffer(b["name"], tuple(b["shape"]), b["bits"], b["signed"], b["kind"], data, b["align"]))
    launch, certificate = _launch_in(archive, cfg, s["name"], f"step {number}", s, buffers)
    facts = s["name"], launch, s["bind"], s["macs"], s.get("symbols", {}), when, certificate
    if "steady" not in s:
        return LaunchStep(*facts)
    what = f"step {number}: steady"
    _check(what, s["steady"], _STEADY, _LATER)
    return LaunchStep(*facts, *_launch_in(archive, cfg, s["name"], what, s["steady"], buffers))


def _launch_in(
    archive: _Reader, cfg: Config, name: str, what: str, s: _Object, buffers: list[Buffer]
) -> tuple[Launch, Certificate | None]:
    """The launch with these `buffers` that `s` describes, named `what` in messages, and its certificate."""
    insn, reloc, origins = archive.array(s["insn"]), archive.array(s["relocations"]), s.get("origins")
    if origins is not None:
        _check(f"{what}: origins", origins, _ORIGINS)
        paths = [tuple(path) for path in origins["paths"]]
        origins = Origins(paths, origins["macs"], archive.array(origins["of"]))
    patches = s.get("patches")
    if patches is not None:
        _check(f"{what}: patches", patches, _PATCHES)
    patches = Patches() if patches is None else Patches(patches["limits"], archive.array(patches["columns"]))
    launch = Launch(cfg, name, insn, reloc, buffers, origins, patches)
    return launch, _certificate_in(archive, what, s["certificate"], launch) if "certificate" in s else None


def _certificate_in(archive: _Reader, what: str, c: _Object, launch: Launch) -> Certificate:
    """The certificate `c` of `what`. Raises `CertificateError` where it belongs to another launch."""
    _check(f"{what}: certificate", c, _CERTIFICATE)
    arrays = archive.array(c["order"]), archive.array(c["clocks"])
    found = Certificate(c["queue_depth"], c["token_depth"], c["subject"], *arrays)
    check_subject(launch, found)
    return found
