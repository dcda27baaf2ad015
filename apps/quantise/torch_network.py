"""Float networks of PyTorch, and data as PyTorch has it: tensors, data sets and loaders.

A module is traced by torch.export; programs become ONNX models (compiler/frontend/torch.py), which are quantised as
ONNX files are.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...compiler.frontend.source import read_source
from ...compiler.frontend.torch import as_onnx, read_program
from ...hw.errors import InputError, UnsupportedError, one_line

if TYPE_CHECKING:  # torch is not installed for type checks
    from onnx import ModelProto

    torch: Any
else:
    import torch

_BATCH = 64  # samples of a data set that are read at once
_PROGRAM = "program"  # name of an exported program in memory


def read_torch(path: str) -> ModelProto:
    """The program in a .pt2 file as an ONNX model. Raises as `read_source`, `read_program` and `as_onnx`."""
    return as_onnx(read_program(read_source(path)), path)


def open_torch(model: Any, data: Any) -> tuple[ModelProto, str, Any, np.ndarray | None]:
    """(ONNX model, its name, samples by the names of inputs, their labels) of a module or an exported program.

    A module is traced in evaluation mode and float32 on one sample; it stays as it is. `data` has samples along the
    first dimension: a tensor or array for the only input; a mapping or tuple of such for several; or a data set, a
    loader or another iterable of batches, each of which is one of these or has labels behind the inputs. Of a program
    it may be a path, which is returned. Labels are None where there are none.

    Raises `UnsupportedError` for other models, and where torch.export cannot trace the module; `InputError` for data
    that does not fit the inputs.
    """
    if isinstance(model, torch.export.ExportedProgram):
        if isinstance(data, (str, os.PathLike)):
            return as_onnx(model, _PROGRAM), _PROGRAM, data, None
        arrays, labels = _collected(data, [*map(str, model.graph_signature.user_inputs)])
        return as_onnx(model, _PROGRAM), _PROGRAM, arrays, labels
    if not isinstance(model, torch.nn.Module):
        raise UnsupportedError(
            f"a {type(model).__name__} cannot be quantised; give the path of a float network, or a module of PyTorch"
        )
    name = type(model).__name__
    if isinstance(data, (str, os.PathLike)):
        raise InputError(f"{os.fspath(data)}: a module does not say which shapes it takes; give its samples as tensors")
    arrays, labels = _collected(data, _inputs(model))
    return as_onnx(_traced(model, arrays, name), name), name, arrays, labels


def _inputs(module: Any) -> list[str]:
    """The names of the inputs that a module needs."""
    parameters = inspect.signature(module.forward).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [p.name for p in positional if p.default is p.empty] or ["args_0"]  # *args, as torch.export calls it


def _traced(module: Any, arrays: Mapping[str, np.ndarray], name: str) -> Any:
    example = tuple(torch.from_numpy(array[:1].copy()) for array in arrays.values())
    try:
        with torch.no_grad():
            return torch.export.export(copy.deepcopy(module).cpu().float().eval(), example)
    except Exception as exc:  # torch raises errors of many classes, and those of the module itself
        shapes = ", ".join(str(tuple(t.shape)) for t in example)
        raise UnsupportedError(f"{name}: torch.export cannot trace it on inputs {shapes}: {one_line(exc)}") from None


def _collected(data: Any, names: Sequence[str]) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """(samples by the names of inputs, labels) of all batches in `data`."""
    if isinstance(data, torch.utils.data.Dataset):
        data = torch.utils.data.DataLoader(data, batch_size=_BATCH)
    whole = isinstance(data, (np.ndarray, torch.Tensor, Mapping, tuple))
    if not whole and not isinstance(data, Iterable):
        raise InputError(f"data is a {type(data).__name__}; give a tensor, a data set or batches of samples")
    batches = [_batch(batch, names) for batch in ([data] if whole else data)]
    if not batches:
        raise InputError("data holds no batch; give at least one sample")
    (inputs, labels) = zip(*batches)
    arrays = {name: np.concatenate([batch[k] for batch in inputs]) for k, name in enumerate(names)}
    known = [part for part in labels if part is not None]
    return arrays, np.concatenate(known) if len(known) == len(labels) else None


def _batch(batch: Any, names: Sequence[str]) -> tuple[list[np.ndarray], np.ndarray | None]:
    """(the inputs of one batch in order, its labels)."""
    if isinstance(batch, Mapping):
        if missing := [name for name in names if name not in batch]:
            raise InputError(f"data has {', '.join(map(str, batch))}, but not the network's {', '.join(missing)}")
        parts = [batch[name] for name in names]
        labels = batch.get("labels")
        return [*map(_array, parts)], None if labels is None else _array(labels)
    parts = [*map(_array, [batch] if isinstance(batch, (np.ndarray, torch.Tensor)) else batch)]
    inputs, more = parts[: len(names)], parts[len(names) :]
    if len(inputs) < len(names) or len(more) > 1:
        raise InputError(f"data has {len(parts)} tensors a batch; the network takes {', '.join(names)}, and labels")
    classes = [part for part in more if part.ndim == 1 and part.dtype.kind in "iu"]
    return inputs, classes[0] if classes else None


def _array(tensor: Any) -> np.ndarray:
    array = np.asarray(tensor.detach().cpu() if isinstance(tensor, torch.Tensor) else tensor)
    return array.astype(np.float32) if array.dtype == np.float64 else array
