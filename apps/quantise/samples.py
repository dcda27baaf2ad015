"""Data for a network as people have it: arrays of any usual shape, `.npy`, `.npz`, or pictures.

Every sample becomes the inputs of one run of the network. What a file means is taken where only one meaning fits the
network's inputs, and `Samples.notes` say how it was read; where none fits, the error lists the shapes that would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ...compiler.frontend.source import counted_arrays
from ...hw.errors import FileError, InputError, one_line
from ...hw.foreign import read_npz
from ...hw.needs import need
from ...runtime.formats import ARRAY, ARRAYS, PICTURES, check_format, recognise

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")  # of the pictures in a folder
_WANTED = "arrays, .npz or .npy, or a folder of pictures"
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

    @property
    def channel_axis(self) -> int | None:
        """The axis of a picture's channels, -3 as in (1, 3, H, W), or -1 as in (1, H, W, 3); None if it is no picture.

        A picture has 1 or 3 channels.
        """
        if len(self.shape) not in (3, 4):
            return None
        return next((axis for axis in (-3, -1) if self.shape[axis] in (1, 3)), None)


@dataclass(frozen=True)
class Pictures:
    """How the pixels of a picture become an input: (pixel / 255 - mean) / std, by channel."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    resize: bool = False

    @property
    def scaled(self) -> bool:
        """Whether a mean or a deviation is given."""
        return (self.mean, self.std) != ((0.0,), (1.0,))


@dataclass
class Samples:
    """Samples in order: `count` of them, read one by one. `labels` is None where the data has none.

    `single` is True for one sample that has no axis of samples. `file` has all arrays of the file.
    """

    count: int
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    files: Sequence[Path] = ()
    picture: Pictures = Pictures()
    inputs: Sequence[Input] = ()
    labels: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    single: bool = False
    file: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, k: int) -> dict[str, np.ndarray]:
        if self.files:
            (wanted,) = self.inputs
            return {wanted.name: _pixels(self.files[k], wanted, self.picture)}
        return {name: np.asarray(array[k], order="C") for name, array in self.arrays.items()}

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return (self[k] for k in range(self.count))


def check_data(path: str) -> None:
    """Raise `FileError` for a file or folder that holds no samples; what it holds is not unpacked."""
    if not Path(path).is_dir():
        _arrays(path, lambda name, shape: False)
    elif not _pictures_in(Path(path)):
        raise FileError(f"{path}: holds no pictures; give files that end in {', '.join(SUFFIXES)}")


def read_samples(
    path: str,
    entries: Sequence[Sequence[Input]],
    picture: Pictures | None = None,
    outputs: Mapping[str, tuple[int, ...]] | None = None,
) -> Samples:
    """The samples of the file or folder `path` for the inputs of a network.

    A program with several `entries` gets the inputs of the one whose names the file has; a network has one. `picture`
    is for pictures and for pixels (uint8) of a float input. Arrays that cannot be inputs, and have no name or shape of
    one of the `outputs`, with or without an axis of samples, are not unpacked. Raises `FileError` and `InputError`.
    """
    check_data(path)
    if Path(path).is_dir() or recognise(path) in PICTURES:
        return _of_pictures(Path(path), entries[0], picture or Pictures())
    results = outputs or {}
    shapes = {*results.values()}

    def needed(name: str, shape: tuple[int, ...]) -> bool:
        wanted = name == _LABELS or bool({shape, shape[1:]} & shapes)
        return wanted or any(_reading(shape, each) for entry in entries for each in entry)

    arrays = _arrays(path, needed)
    return samples_of(arrays, _entry(arrays, entries, path), path, picture, [*results])


def _arrays(path: str, needed: Callable[[str, tuple[int, ...]], bool]) -> dict[str, np.ndarray]:
    """The arrays of a file; none of a picture."""
    check_format(path, _WANTED, ARRAYS, ARRAY, *PICTURES)
    kind = recognise(path)
    if kind in PICTURES:
        return {}
    if kind is not ARRAY:
        return read_npz(path, needed=needed)
    try:
        return {"arr_0": np.load(path, allow_pickle=False, mmap_mode="r")}
    except (OSError, ValueError) as exc:
        raise FileError(f"{path}: not a .npy file of numbers ({one_line(exc)})") from None


def _entry(arrays: Mapping[str, np.ndarray], entries: Sequence[Sequence[Input]], source: str) -> Sequence[Input]:
    """The inputs of the entry that the names of the arrays belong to; arrays that are counted belong to the first."""
    held = [entry for entry in entries if all(each.name in arrays for each in entry)]
    if len(held) == 1:
        return held[0]
    first = entries[0]
    counted = counted_arrays(arrays, len(first), "input") and not any(each.name in arrays for each in first)
    if len(entries) == 1 or counted:
        return first
    wanted = "; or ".join(", ".join(f"`{each.name}`" for each in entry) for entry in entries)
    raise InputError(f"{source}: holds {_held(arrays)}; the inputs are {wanted}: give the arrays of one entry")


def samples_of(
    arrays: Mapping[str, np.ndarray],
    inputs: Sequence[Input],
    source: str,
    picture: Pictures | None = None,
    outputs: Collection[str] = (),
) -> Samples:
    """The samples in `arrays`, which have the names of inputs, or which `_keys` finds; `outputs` are other names.

    Raises `InputError` for arrays that do not fit the inputs, and for different numbers of samples.
    """
    notes: list[str] = []
    stacked, single, pixels = dict[str, np.ndarray](), True, False
    keys = _keys(arrays, inputs, source, outputs)
    for each, key in zip(inputs, keys):
        array = arrays[key]
        reading = _reading(array.shape, each)
        if reading is None:
            raise InputError(f"{source}: input {each.name!r} has shape {array.shape}; give {_shapes(each)}")
        if key not in (each.name, "inputs") and not key.startswith("input_"):
            notes.append(f"the array {key!r} is read as the input {each.name!r}")
        if reading.note:
            notes.append(f"{each.name!r}: {array.shape} is read as {reading.note}")
        stacked[each.name] = _converted(reading.of(array), each, source, picture, notes)
        single &= reading.single
        pixels |= _are_pixels(array, each)
    if picture is not None and not pixels:
        held = ", ".join(f"{name!r} {arrays[key].dtype}" for name, key in zip(stacked, keys))
        raise InputError(
            f"{source}: --mean, --std and --resize are for pixels (uint8) of a float input, and the arrays are {held}; "
            "drop them"
        )
    counts = {name: len(array) for name, array in stacked.items()}
    if len(set(counts.values())) != 1:
        held = ", ".join(f"{count} of {name!r}" for name, count in counts.items())
        raise InputError(f"{source}: has different numbers of samples: {held}; give as many of each input")
    if 0 in counts.values():
        raise InputError(f"{source}: holds no sample: {next(iter(counts))!r} has length 0; give at least one")
    count, labels = next(iter(counts.values())), arrays.get(_LABELS)
    return Samples(count, stacked, inputs=inputs, labels=labels, notes=notes, single=single, file=arrays)


def _keys(
    arrays: Mapping[str, np.ndarray], inputs: Sequence[Input], source: str, outputs: Collection[str]
) -> list[str]:
    """The names under which the arrays of the inputs are in a file.

    They are those of the inputs, for a single one `inputs`, or counted (`counted_arrays`), or any, where as many arrays
    as inputs have no name with another meaning and fit them in their order.
    """
    names = [each.name for each in inputs]
    if all(name in arrays for name in names):
        return names
    if len(inputs) == 1 and "inputs" in arrays:
        return ["inputs"]
    if not any(name in arrays for name in names):
        if counted := counted_arrays(arrays, len(inputs), "input"):
            return counted
        meant = {_LABELS, "outputs", *outputs}
        others = [name for name in arrays if name not in meant and not re.fullmatch(r"output_\d+", name)]
        if len(others) == len(inputs) and all(_reading(arrays[k].shape, each) for k, each in zip(others, inputs)):
            return others
    missing = ", ".join(f"`{name}`" for name in names if name not in arrays)
    remedy = "the array of the input this name, or `inputs`" if len(inputs) == 1 else "the arrays of inputs their names"
    raise InputError(f"{source}: holds {_held(arrays)}, and lacks {missing}; give {remedy}")


def _held(arrays: Collection[str]) -> str:
    return ", ".join(f"`{name}`" for name in arrays) or "nothing"


@dataclass(frozen=True)
class _Reading:
    """How an array holds samples: the axes in the order of the input, and the shape (N, *shape of the input).

    `single`: it is one sample. `note` says what is not obvious.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...] = ()
    single: bool = False
    note: str = ""

    def of(self, array: np.ndarray) -> np.ndarray:
        """The samples, of shape (N, *shape of the input)."""
        return (array.transpose(self.axes) if self.axes else array).reshape(self.shape)


def _reading(shape: tuple[int, ...], wanted: Input) -> _Reading | None:
    """How an array of `shape` holds samples of `wanted`; None if it does not, or if several meanings fit.

    The shape of the input comes first, then an axis of samples in front or in place of the first axis, of size 1, then
    pictures whose channels lie elsewhere, or that leave the only channel out.
    """
    if (plain := _plain(shape, wanted)) is not None:
        return plain
    axis = wanted.channel_axis
    if axis is None:
        return None
    readings = []
    if 3 <= len(shape) <= 5:
        *before, first, second, third = range(len(shape))
        axes = (*before, third, first, second) if axis == -3 else (*before, second, third, first)
        if (moved := _plain(tuple(shape[k] for k in axes), wanted)) is not None:
            layout = "(H, W, C)" if axis == -3 else "(C, H, W)"
            readings.append(replace(moved, axes=axes, note=f"pictures of layout {layout}, whose channels are moved"))
    if wanted.shape[axis] == 1:
        at = len(shape) - 2 if axis == -3 else len(shape)
        if at >= 0 and (gray := _plain((*shape[:at], 1, *shape[at:]), wanted)) is not None:
            readings.append(replace(gray, note="pictures without an axis of channels"))
    return readings[0] if len(readings) == 1 else None


def _plain(shape: tuple[int, ...], wanted: Input) -> _Reading | None:
    """As `_reading`, of axes in the order of the input's."""
    open_batch = wanted.shape[:1] in ((1,), (None,))
    if wanted.fits(shape) and (wanted.shape[:1] != (None,) or shape[0] == 1):
        return _Reading((1, *shape), single=True)
    if shape and wanted.fits(shape[1:]):
        return _Reading(shape)
    if open_batch and shape and wanted.fits((1, *shape[1:])):
        return _Reading((shape[0], 1, *shape[1:]), note=f"{shape[0]} samples, one a run")
    if open_batch and wanted.fits((1, *shape)):
        return _Reading((1, 1, *shape), single=True, note="one sample")
    return None


def _shapes(wanted: Input) -> str:
    """The shapes that an array for `wanted` may have, as a text."""
    sizes = ["any" if size is None else str(size) for size in wanted.shape]
    shapes = [sizes, ["N", *sizes]] + ([["N", *sizes[1:]]] if wanted.shape[:1] in ((1,), (None,)) else [])
    *texts, last = ("(" + ", ".join(shape) + ("," if len(shape) == 1 else "") + ")" for shape in shapes)
    return f"{', '.join(texts)} or {last}"


def _converted(array: np.ndarray, wanted: Input, source: str, picture: Pictures | None, notes: list[str]) -> np.ndarray:
    """The samples in the dtype of the input: integers by value, floats rounded, pixels scaled."""
    if array.dtype == wanted.dtype:
        return array
    if array.dtype.kind not in "biuf":
        raise InputError(f"{source}: input {wanted.name!r} has type {array.dtype}; give numbers")
    if wanted.dtype.kind == "f":
        if _are_pixels(array, wanted):
            if picture is None:
                raise InputError(
                    f"{source}: input {wanted.name!r} holds pixels (uint8) and the network takes {wanted.dtype}; say "
                    "how they are scaled with --mean and --std, or give floats"
                )
            notes.append(f"{wanted.name!r}: {_scaling(picture)}")
            return _scaled(array, wanted, picture)
        with np.errstate(over="ignore"):
            changed = array.astype(wanted.dtype)
        exact = array.dtype.kind == "f" or np.array_equal(changed, array)
        if not exact or (np.isinf(changed) & ~np.isinf(array)).any():
            raise InputError(
                f"{source}: input {wanted.name!r} has {array.dtype} values from {array.min()} to {array.max()}, of "
                f"which {wanted.dtype} has not all; give {wanted.dtype}"
            )
        if array.dtype.kind == "f":
            notes.append(f"{wanted.name!r}: {array.dtype} values are rounded to {wanted.dtype}")
        return changed
    with np.errstate(invalid="ignore"):
        changed = array.astype(wanted.dtype)
    if not np.array_equal(changed, array):
        if wanted.dtype.kind == "b":
            allowed = "0 or 1"
        else:
            allowed = f"whole numbers from {np.iinfo(wanted.dtype).min} to {np.iinfo(wanted.dtype).max}"
        if wanted.dtype == np.int8 and np.array_equal(array, np.rint(array)):  # which Deeploy's files do not state
            needed = "uint8" if 0 <= array.min() and array.max() < 256 else "int32"
            allowed += f", or for a file of Deeploy's --input-type {wanted.name}={needed}"
        raise InputError(
            f"{source}: input {wanted.name!r} has {array.dtype} values from {array.min()} to {array.max()}; the "
            f"network takes {wanted.dtype}: give {allowed}"
        )
    if array.dtype.kind == "f":
        notes.append(f"{wanted.name!r}: {array.dtype} values are whole numbers, taken as {wanted.dtype}")
    return changed


def _are_pixels(array: np.ndarray, wanted: Input) -> bool:
    return array.dtype == np.uint8 and wanted.dtype.kind == "f"


def _scaling(picture: Pictures) -> str:
    mean, std = (", ".join(f"{value:g}" for value in values) for values in (picture.mean, picture.std))
    return f"pixels are read as (pixel / 255 - {mean}) / {std}"


def _scaled(pixels: np.ndarray, wanted: Input, picture: Pictures) -> np.ndarray:
    """`pixels`, whose last axes are those of the input, as its floats."""
    axis, constants = wanted.channel_axis, []
    for option, values in (("--mean", picture.mean), ("--std", picture.std)):
        channels = None if axis is None else wanted.shape[axis]
        if len(values) not in (1, channels):
            raise InputError(f"{option}: {len(values)} numbers; input {wanted.name!r} has {channels} channels")
        shape = [1] * len(wanted.shape)
        if len(values) > 1 and axis is not None:
            shape[axis] = -1
        constants.append(np.array(values, np.float32).reshape(shape))
    mean, std = constants
    return ((pixels.astype(np.float32) / 255 - mean) / std).astype(wanted.dtype)


def _pictures_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


def _of_pictures(path: Path, inputs: Sequence[Input], picture: Pictures) -> Samples:
    """The pictures of a folder, in the order of their names, or a single one."""
    if len(inputs) != 1 or inputs[0].channel_axis is None:
        shapes = ", ".join(f"{each.name} {each.shape}" for each in inputs)
        raise InputError(f"{path}: pictures are for a network with one input of shape (1, C, H, W); it has {shapes}")
    if picture.scaled and inputs[0].dtype.kind != "f":
        raise InputError(f"{path}: the network takes pixels as {inputs[0].dtype}; drop --mean and --std")
    need("reading pictures", "quantise", "PIL")
    files = _pictures_in(path) if path.is_dir() else [path]
    notes = [f"{path}: {len(files)} picture{'s' if len(files) > 1 else ''}"]
    if inputs[0].dtype.kind == "f":
        notes.append(_scaling(picture))
    return Samples(len(files), files=files, picture=picture, inputs=inputs, notes=notes, single=not path.is_dir())


def _pixels(path: Path, wanted: Input, picture: Pictures) -> np.ndarray:
    """A picture as one input. Raises `FileError` for a damaged one, `InputError` for one of another size."""
    from PIL import Image, UnidentifiedImageError

    axis = wanted.channel_axis
    assert axis is not None
    sizes = [size for k, size in enumerate(wanted.shape[-3:]) if k - 3 != axis]
    try:
        with Image.open(path) as opened:
            image = opened.convert("L" if wanted.shape[axis] == 1 else "RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as exc:
        raise FileError(f"{path}: not a picture, or damaged ({one_line(exc)})") from None
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
    return _converted(batched, wanted, str(path), picture, [])
