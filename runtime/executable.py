"""Executables: the contents of a `.tw` file (docs/files.md), which run on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..hw.config import Config
from ..hw.errors import AccessError, CertificateError, FileError, FingerprintError, InputError, one_line
from ..hw.foreign import read_regular
from ..hw.show import table
from . import manifest
from .contents import Contents
from .device import Device, Stats, open_device
from .files import atomic_write
from .formats import PROGRAM, check_format
from .loader import Input, Inputs, Loaded, Outputs, run
from .schema import is_a
from .steady import with_steady
from .steps import HostStep as HostStep
from .steps import LaunchStep as LaunchStep
from .steps import Tensor as Tensor
from .steps import reads_writes


@dataclass(eq=False)
class Executable(Contents):
    """Ordered `steps` on `tensors`, for the configuration `cfg`; `on` is the device of runs that name none.

    Raises as `Contents` does.

    >>> import tilewright as tw
    >>> digits = tw.compile("examples/digits/digits.onnx")
    >>> [tensor.shape for tensor in digits.inputs]
    [(1, 1, 8, 8)]
    >>> digits(np.load("examples/digits/inputs.npz")["inputs"][0])["logits"].shape
    (1, 10)
    """

    on: str | Device = "model"  # not in a .tw file
    # of a resident program, by device, so that a run finds what the one before left on chip
    _loaded: dict[str | int, Loaded] = field(default_factory=dict[str | int, Loaded], init=False, repr=False)

    def __repr__(self) -> str:
        *inputs, outputs = (
            ", ".join(f"{t.name} {t.dtype} {t.shape}" for t in tensors) for tensors in (*self.entries, self.outputs)
        )
        steps = f"{len(self.steps)} steps, {len(self.launches)} on the device"
        if self.states:
            steps += f", {sum(t.nbytes for t in self.states):,} bytes of state"
        return (
            f"Executable({self.name!r}, {self.cfg.name}, {steps}: {', or '.join(inputs) or 'no inputs'} -> {outputs})"
        )

    def _repr_html_(self) -> str:
        rows = list[tuple[object, ...]]()
        for step in self.steps:
            where, count = (
                ("device", len(step.launch.insn)) if isinstance(step, LaunchStep) else (f"host, {step.op}", "")
            )
            rows.append((step.name, where, step.macs, count))
        return table(repr(self), ("step", "where", "MACs", "instructions"), rows)

    def run(self, inputs: Inputs | Input, on: str | Device | None = None) -> tuple[Outputs, Stats]:
        """(outputs by name, counts) of one run on a device, a name or an open one, by default that of `self.on`.

        `inputs` are arrays by name, or the array itself where there is one input. Raises as `Loaded` and its `run`;
        `Loaded` runs many inputs faster, because it loads the program once. A program with state starts from the
        initial state, and the new state is dropped; `Loaded` keeps it for its next run. A resident program stays loaded
        on the devices that it ran on.
        """
        if not is_a(inputs, Mapping):
            names = [t.name for t in self.inputs]
            if len(names) != 1:
                known = ", ".join(names) or "none"
                raise InputError(f"one array given; {self.name!r} has the inputs {known}: name them")
            inputs = {names[0]: inputs}
        on = self.on if on is None else on
        known = isinstance(on, str) or hasattr(on, "cfg")
        if not known or not any(step.steady for step in self.launches):
            return run(self, inputs, on)
        key = on if isinstance(on, str) else id(on)
        if key not in self._loaded:
            self._loaded[key] = Loaded(self, open_device(on, self.cfg) if isinstance(on, str) else on)
        loaded = self._loaded[key]
        loaded.reset()
        return loaded.run(inputs), loaded.stats

    def __call__(self, inputs: Inputs | Input, on: str | Device | None = None) -> Outputs:
        """The outputs of `run`."""
        return self.run(inputs, on)[0]

    def resident(self) -> Executable:
        """A program like it in which launches leave out loads of constants that an earlier run left on chip.

        Its first run on a device loads all, as do runs after other programs; results are the same (runtime/steady.py).
        """
        if any(step.steady for step in self.launches):
            return self
        return Executable(self.cfg, self.name, self.tensors, with_steady(self.steps), self.contract, self.on)

    def without_steady(self) -> Executable:
        """The program whose launches load all in every run."""
        launched = [
            replace(s, steady=None, steady_certificate=None) if isinstance(s, LaunchStep) else s for s in self.steps
        ]
        return Executable(self.cfg, self.name, self.tensors, launched, self.contract, self.on)

    def first_entry(self) -> Executable:
        """The program of the first entry alone, as it would be without the others."""
        if len(self.entries) == 1:
            return self
        chosen = next(step.when.tensor for step in self.steps if step.when)
        steps = [step for step in self.steps if step.when is None or step.when.tensor == chosen]
        used = {name for step in steps for names in reads_writes(step) for name in names}
        used |= {name for step in steps if isinstance(step, LaunchStep) for name in step.bind.values()}
        used |= {t.name for t in self.entries[0]} | {t.next for t in self.states if t.next}
        kept = {name: t for name, t in self.tensors.items() if name in used or t.kind in ("output", "state")}
        return Executable(self.cfg, self.name, kept, steps, self.contract)

    def save(self, path: str | Path) -> None:
        """Write the `.tw` file, atomically. Raises `FileError`."""
        data = self.to_bytes()
        with atomic_write(path) as temporary:
            temporary.write_bytes(data)

    def to_bytes(self) -> bytes:
        """The contents of the `.tw` file."""
        return manifest.write(self)

    @staticmethod
    def load(path: str | Path, most: int | None = None) -> Executable:
        """Read a `.tw` file, which may unpack to `most` bytes, by default `hw.foreign.default_limit`.

        Raises `FileError` where it is missing, damaged, too large or not a `.tw` file, `AccessError` where a launch
        leaves its buffers, `CertificateError` where a certificate belongs to another launch.
        """
        check_format(path, "a compiled program, .tw (tilewright compile)", PROGRAM)
        return Executable.from_bytes(read_regular(path, "a .tw file", most), str(path), most=most)

    @staticmethod
    def from_bytes(data: bytes, name: str, *, most: int | None = None) -> Executable:
        """The program in `data`, the contents of the `.tw` file `name`, which may unpack to `most` bytes.

        Raises as `load` does.
        """
        try:
            return Executable(*manifest.read(data, name, most))
        except FileError:
            raise
        except AccessError as exc:
            raise AccessError(f"{name}: {exc}", exc.index) from None
        except CertificateError as exc:
            raise CertificateError(f"{name}: {exc}") from None
        except Exception as exc:  # damaged bytes make zipfile, zlib, json and numpy raise errors of any kind
            raise FileError(f"{name}: not a tilewright program, or a damaged one ({one_line(exc)})") from None

    def check_config(self, cfg: Config | None, source: object) -> None:
        """Raise `FingerprintError` if the program, read from `source`, is not one for `cfg`; None stands for any."""
        if cfg is not None and cfg.fingerprint != self.cfg.fingerprint:
            raise FingerprintError(
                f"{source} was compiled for {self.cfg.name} (fingerprint {self.cfg.fingerprint:016x}), not for "
                f"{cfg.name} ({cfg.fingerprint:016x}); leave the configuration out or compile again"
            )
