"""Relabels the uint8 tensors of a .tflite file as int8: values and zero points less 128, the same real numbers.

Files of the earlier generation quantise in uint8. An operator's integers depend on values only less their zero
points, which stay; where a kernel's rounding depends on more, `Info.unsigned` says that the file has uint8.
Inputs and outputs of the network stay uint8 under the file's names: the graph recodes there. Tensors without
quantisation are numbers, and stay.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...graph import Names
from .file import Info, ModelFile


def relabelled(file: ModelFile) -> tuple[ModelFile, dict[int, str]]:
    """The file with int8 tensors only, and the names of the inputs and outputs that are uint8 outside, by number."""
    ends = {k: file.tensors[k].name for k in (*file.inputs, *file.outputs) if _is_unsigned(file.tensors[k])}
    names = Names(t.name for t in file.tensors)
    tensors = []
    for k, info in enumerate(file.tensors):
        name = info.name
        if k in ends:
            name = names.unused(f"{name}.int8")
        tensors.append(_signed(info, name) if _is_unsigned(info) else info)
    return replace(file, tensors=tensors), ends


def _is_unsigned(info: Info) -> bool:
    return info.type == "UINT8" and info.scale.size == 1


def _signed(info: Info, name: str) -> Info:
    data = None if info.data is None else (info.data ^ np.uint8(128)).view(np.int8)
    return replace(info, name=name, type="INT8", zero_point=info.zero_point - 128, data=data, unsigned=True)
