"""Calibration data as people have it: arrays of any usual shape, `.npy`, `.npz`, or a folder of pictures.

Every sample becomes the inputs of one run of the network. What a file means is taken where only one meaning fits the
network's inputs, and `Samples.notes` say how it was read; where none fits, the error lists the shapes that would.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...hw.errors import FileError, InputError
from ...hw.foreign import read_npz, read_regular
from ...hw.needs import need

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_MOST_BYTES = 1 << 34
_LABELS = "labels"


@dataclass(frozen=True)
class Input:
    """An input of a network: name, shape (None: any size) and dtype."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether an array of `shape` is one input."""
        return len(shape) == len(self.shape) and all(want in (None, got) for want, got in zip(self.shape, shape))


@dataclass(frozen=True)
class Pictures:
    """How the pixels of a picture become an input: (pixel / 255 - mean) / std, by channel."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    resize: bool = False


@dataclass
class Samples:
    """Samples in order: `count` of them, read one by one. `labels` is None where the data has none."""

    count: int
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    files: Sequence[Path] = ()
    picture: Pictures = Pictures()
    inputs: Sequence[Input] = ()
    labels: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, k: int) -> dict[str, np.ndarray]:
        if self.files:
            (wanted,) = self.inputs
            return {wanted.name: _pixels(self.files[k], wanted, self.picture)}
        return {name: np.ascontiguousarray(array[k]) for name, array in self.arrays.items()}

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return (self[k] for k in range(self.count))


def read_samples(path: str, inputs: Sequence[Input], picture: Pictures | None = None) -> Samples:
    """The samples of the file or folder `path` for a network with these inputs.

    `picture` is for folders and for pixels (uint8) of a float input. Raises `FileError` and `InputError`.
    """
    where = Path(path)
    if where.is_dir():
        return _folder(where, inputs, picture or Pictures())
    if where.suffix == ".npy":
        try:
            arrays = {"arr_0": np.load(where, allow_pickle=False, mmap_mode="r")}
        except (OSError, ValueError) as exc:
            read_regular(path, "an array", _MOST_BYTES)  # raises where there is no such file
            raise FileError(f"{path}: not a .npy file of numbers ({exc})") from None
    else:
        arrays = read_npz(path)
    return samples_of(arrays, inputs, path, picture)


def samples_of(
    arrays: Mapping[str, np.ndarray], inputs: Sequence[Input], source: str, picture: Pictures | None = None
) -> Samples:
    """The samples in `arrays`, by the names of inputs, `inputs`, `input_0`, ..., or, for one input, the only array."""
    notes: list[str] = []
    stacked = {
        i.name: _stacked(_named(arrays, i, k, inputs, source, notes), i, source, picture, notes)
        for k, i in enumerate(inputs)
    }
    counts = {name: len(array) for name, array in stacked.items()}
    if len(set(counts.values())) > 1 or 0 in counts.values():
        held = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise InputError(f"{source}: inputs hold different numbers of samples ({held}); give equal numbers, at least 1")
    count = next(iter(counts.values()))
    labels = arrays.get(_LABELS)
    if labels is not None and (labels.shape != (count,) or labels.dtype.kind not in "iu"):
        raise InputError(
            f"{source}: `labels` has shape {labels.shape} and type {labels.dtype}; give an integer for each of the "
            f"{count} samples"
        )
    return Samples(count, stacked, labels=labels, notes=notes)


def _named(
    arrays: Mapping[str, np.ndarray], wanted: Input, k: int, inputs: Sequence[Input], source: str, notes: list[str]
) -> np.ndarray:
    for name in (wanted.name, f"input_{k}", *(["inputs"] if len(inputs) == 1 else [])):
        if name in arrays:
            return arrays[name]
    others = [name for name in arrays if name not in (_LABELS, "outputs") and not re.fullmatch(r"output_\d+", name)]
    if len(inputs) == 1 and len(others) == 1:
        notes.append(f"the array {others[0]!r} is read as the input {wanted.name!r}")
        return arrays[others[0]]
    held = ", ".join(arrays) or "nothing"
    raise InputError(f"{source}: holds {held}; give arrays named {', '.join(i.name for i in inputs)}")


def _stacked(array: np.ndarray, wanted: Input, source: str, picture: Pictures | None, notes: list[str]) -> np.ndarray:
    """Samples of one input, of shape (N, *shape of the input), in its dtype where that loses nothing."""
    first, *rest = wanted.shape or (None,)
    if wanted.fits(array.shape) and not (first is None and array.shape[0] > 1):
        found = array[np.newaxis]
    elif array.ndim and wanted.fits(array.shape[1:]):
        found = array
    elif array.ndim == len(wanted.shape) and first in (1, None) and wanted.fits((first or 1, *array.shape[1:])):
        notes.append(f"{array.shape} is read as {len(array)} samples of {wanted.name!r}, one a run")
        found = array[:, np.newaxis]
    else:
        size = ", ".join("any" if d is None else str(d) for d in wanted.shape)
        fewer = ", ".join(["N", *("any" if d is None else str(d) for d in rest)])
        raise InputError(
            f"{source}: input {wanted.name!r} has shape {array.shape}; the network takes ({size}): give that, "
            f"(N, {size})" + (f", or ({fewer})" if first in (1, None) else "")
        )
    return _converted(found, wanted, source, picture, notes)


def _converted(array: np.ndarray, wanted: Input, source: str, picture: Pictures | None, notes: list[str]) -> np.ndarray:
    if array.dtype == wanted.dtype:
        return array
    if array.dtype.kind not in "biuf":
        raise InputError(f"{source}: input {wanted.name!r} has type {array.dtype}; give numbers")
    if wanted.dtype.kind == "f":
        if array.dtype == np.uint8:
            if picture is None:
                raise InputError(
                    f"{source}: input {wanted.name!r} holds pixels (uint8) and the network takes {wanted.dtype}; say "
                    "how they are scaled with --mean and --std, or give floats"
                )
            return _scaled(array, wanted, picture)
        notes.append(f"{array.dtype} values of {wanted.name!r} are rounded to {wanted.dtype}")
        return array.astype(wanted.dtype)
    changed = array.astype(wanted.dtype)
    if not np.array_equal(changed, array):
        low, high = np.iinfo(wanted.dtype).min, np.iinfo(wanted.dtype).max
        raise InputError(
            f"{source}: input {wanted.name!r} has values from {array.min()} to {array.max()} of type {array.dtype}; "
            f"give whole numbers from {low} to {high}"
        )
    return changed


def _channel_axis(shape: Sequence[int | None]) -> int:
    """The axis of a picture's channels, counted from the end: -3 as in (1, 3, H, W), or -1 as in (1, H, W, 3)."""
    return -3 if len(shape) >= 3 and shape[-3] in (1, 3) else -1


def _scaled(pixels: np.ndarray, wanted: Input, picture: Pictures) -> np.ndarray:
    shape = [1] * len(wanted.shape)
    if len(wanted.shape) >= 3:
        shape[_channel_axis(wanted.shape)] = -1
    mean, std = (np.array(v, np.float32).reshape(shape if len(v) > 1 else ()) for v in (picture.mean, picture.std))
    return ((pixels.astype(np.float32) / 255 - mean) / std).astype(wanted.dtype)


def _folder(folder: Path, inputs: Sequence[Input], picture: Pictures) -> Samples:
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURES)
    if not files:
        raise FileError(f"{folder}: holds no pictures; give files that end in {', '.join(PICTURES)}")
    if len(inputs) != 1 or len(inputs[0].shape) not in (3, 4):
        shapes = ", ".join(f"{i.name} {i.shape}" for i in inputs)
        raise InputError(f"{folder}: pictures are for a network with one input of shape (1, C, H, W); it has {shapes}")
    need("a folder of pictures", "quantise", "PIL")
    notes = [f"{len(files)} pictures of {folder}, (pixel / 255 - {_listed(picture.mean)}) / {_listed(picture.std)}"]
    return Samples(len(files), files=files, picture=picture, inputs=inputs, notes=notes)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{v:g}" for v in values)


def _pixels(path: Path, wanted: Input, picture: Pictures) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    axis = _channel_axis(wanted.shape)
    sizes = [d for k, d in enumerate(wanted.shape[-3:]) if k - 3 != axis]
    channels = wanted.shape[axis]
    try:
        with Image.open(path) as opened:
            image = opened.convert("L" if channels == 1 else "RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as exc:
        raise FileError(f"{path}: not a picture, or damaged ({exc})") from None
    height, width = (want or got for want, got in zip(sizes, (image.height, image.width)))
    if (image.height, image.width) != (height, width):
        if not picture.resize:
            raise InputError(
                f"{path}: is {image.width} x {image.height} pixels, the network takes {width} x {height}; add --resize"
            )
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.uint8).reshape(height, width, -1)
    if axis == -3:
        pixels = pixels.transpose(2, 0, 1)
    batched = pixels.reshape(*[1] * (len(wanted.shape) - 3), *pixels.shape)
    return _scaled(batched, wanted, picture) if wanted.dtype.kind == "f" else batched.astype(wanted.dtype)
