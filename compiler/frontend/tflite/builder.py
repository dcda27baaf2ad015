"""The graph of a .tflite file while it is read: views of the file's tensors, and operators between them.

Activations of four dimensions are NHWC in the file and NCHW in the graph. The graph's inputs and outputs keep the
file's layout; `Transpose` with `relayout`, or a `Reshape` if no byte moves, converts between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....hw.errors import InputError
from ... import graph as g
from ...graph import ranges
from ..core import Builder, Misfit, Refusal, Refused, like
from ..moves import TO_NCHW, TO_NHWC
from .file import FileNode, Info, ModelFile, relabelled

WIDE = ("INT16", "INT32")  # integers at the ends of some networks, which QUANTIZE and SOFTMAX convert
# operators that copy bytes whatever the scales of input and output are -> the position of the input
COPIES: dict[str, int] = {"SPLIT": 1}
COPIES |= dict.fromkeys(("AVERAGE_POOL_2D", "BATCH_TO_SPACE_ND", "BROADCAST_TO", "DEPTH_TO_SPACE", "EXPAND_DIMS"), 0)
COPIES |= dict.fromkeys(("GATHER", "MAXIMUM", "MAX_POOL_2D", "MINIMUM", "PAD", "PADV2", "RESHAPE"), 0)
COPIES |= dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), 0)
COPIES |= dict.fromkeys(("REVERSE_V2", "SLICE", "SPACE_TO_DEPTH", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE"), 0)
COPIES |= dict.fromkeys(("TRANSPOSE", "UNPACK"), 0)
# the scale of a constant of real zeros, for which files may have 0: the kernels' factors are 0 with either
ZEROS_SCALE = float(np.finfo(np.float32).tiny)
_SAME_BYTES = np.arange(-128, 128).astype(np.int8)  # as a table


def dimension(k: int, rank: int) -> int:
    """Dimension `k` of `rank`, which counts from the end where it is negative. Raises `Refused`."""
    if not -rank <= k < rank:
        raise Refused(f"names dimension {k} of a tensor of {rank}")
    return k % rank


def of_16_bits(name: str) -> str:
    """Why an operator of int8 alone is refused."""
    return f"has tensor {name!r} of 16 bits; this operator is supported with 8 bits: convert with int8 activations"


Key = tuple[bytes, bytes]  # container and name of a resource


@dataclass
class Resource:
    """A resource while it is read: its first values, the tensor that reads see, and its current value."""

    initial: np.ndarray | None = None
    tensor: g.Tensor | None = None
    now: g.Tensor | None = None


class Variables:
    """The variables of a network that is being imported."""

    def __init__(self) -> None:
        self._handles: dict[int, Key] = {}  # by tensor
        self._resources: dict[Key, Resource] = {}
        self._tensors: list[g.State] = []

    def name(self, handle: int, key: Key) -> None:
        """Tensor `handle` stands for the resource `key`."""
        self._handles[handle] = key
        self._resources.setdefault(key, Resource())

    def resource(self, handle: int) -> Resource | None:
        """The resource that tensor `handle` stands for, if there is one."""
        return self._resources.get(self._handles.get(handle, (b"", b"")))

    def initialise(self, key: Key, values: np.ndarray) -> None:
        """The first `values` of the resource `key`."""
        self._resources.setdefault(key, Resource()).initial = values

    def keep(self, tensor: g.Tensor, new: g.Tensor) -> None:
        """The variable `tensor` of a recurrent operator gets the values `new`."""
        self._tensors.append(g.State(tensor, zeros(tensor), new))

    def states(self) -> tuple[g.State, ...]:
        """The states of the graph: variables that are read."""
        found = []
        for one in self._resources.values():
            if one.tensor is not None:
                first = zeros(one.tensor) if one.initial is None else one.initial
                found.append(g.State(one.tensor, first, one.now or one.tensor))
        return (*found, *self._tensors)


def zeros(t: g.Tensor) -> np.ndarray:
    """Real zeros in the quantisation of `t`."""
    return np.full(t.shape, t.zero_point, t.dtype)


class TfliteImporter(Builder):
    """A graph in the making.

    A tensor of the file is a number. Each has one or two views: `canonical` (NCHW), which most operators take, and
    `plain`, the file's layout; a missing one is made on demand. Below four dimensions they are the same.
    """

    def __init__(self, file: ModelFile):
        self.file, self._unsigned = relabelled(file)
        super().__init__(t.name for t in (*file.tensors, *self.file.tensors))
        self._outside: dict[int, g.Tensor] = {}  # uint8 inputs of the network
        self.outputs: list[g.Tensor] = []
        self.problems: list[Refusal] = []
        # Tensors that cannot be described; errors that follow from them are not reported.
        self.doubtful: set[int] = set()
        self._canonical: dict[int, g.Tensor] = {}
        self._plain: dict[int, g.Tensor] = {}
        self.variables = Variables()
        self.spectra: dict[int, tuple[g.Tensor, g.Tensor]] = {}  # (real, imaginary) parts of complex tensors
        self._relabelled: dict[str, g.Tensor] = {}  # bytes in their input's quantisation -> the file's tensor

    def add_inputs(self) -> None:
        """The graph's inputs, in the file's layout and under the file's names."""
        for k in self.file.inputs:
            info = self.file.tensors[k]
            if any(size < 0 and given < 2 for size, given in zip(info.signature[1:], info.shape[1:])):
                shape = ", ".join("?" if size < 0 else str(size) for size in info.signature)
                sizes = ",".join(map(str, info.shape))
                known = f"only the first size may be open; give numbers for the others: --shape {info.name}={sizes}"
                self.problems.append(Refusal(f"input {info.name!r} has shape ({shape}); {known}"))
            try:
                t = self.described(info)
                if k in self._unsigned:
                    self._outside[k] = self._uint8(t, self._unsigned[k])
                else:
                    self._plain[k] = t
                self.inputs.append(self._outside.get(k, t))
            except (Refused, InputError) as exc:
                self.problems.append(Refusal(f"input {info.name!r}: {exc}"))
                self._assume(k)

    def check_numbers(self, before: int) -> None:
        """Raise `Misfit` if integers of an operator from number `before` on can leave int32."""
        for op in self.ops[before:]:
            if text := ranges.problem(op):
                raise Misfit(text)

    def add_outputs(self) -> None:
        """The graph's outputs, in the file's layout and under the file's names."""
        for k in self.file.outputs:
            name = self.file.tensors[k].name
            try:
                t = self._output(k)
            except (Refused, InputError) as exc:
                self.problems.append(Refusal(f"output {name!r}: {exc}"))
                continue
            if t is None:
                self.problems.append(Refusal(f"output {name!r} has no operator that produces it"))
            else:
                self.outputs.append(self._copy(t, self.unused(t.name)) if k in self.file.inputs else t)

    def _output(self, k: int) -> g.Tensor | None:
        """Tensor `k` as an output of the graph, None where nothing gives it. Raises `Refused` or `InputError`."""
        t = self._outside.get(k) or self.view(k, plain=True)
        if t is not None and k in self._unsigned and k not in self.file.inputs:
            y = self._uint8(t, self._unsigned[k])
            return self.emit(g.Recode(f"{y.name}.recode", (t,), y))
        info = self.file.tensors[k]
        if t is None and info.data is not None:
            known = self.described(info)
            data = replace(known, name=self.unused(f"{info.name}.constant"), data=info.data.reshape(known.shape))
            return self._copy(data, info.name)
        return t

    def _copy(self, t: g.Tensor, name: str) -> g.Tensor:
        """`t` under another name, of which the network has no other."""
        return self.emit(g.Reshape(f"{name}.copy", (t,), like(t, name, t.shape)))

    def described(self, info: Info) -> g.Tensor:
        """The activation `info` in the file's layout. Raises `Refused`."""
        shape = info.shape or (1,)  # a scalar is a vector of one element
        if info.type in ("FLOAT32", "INT64", "BOOL") or (info.type == "INT32" and info.scale.size != 1):
            return g.Tensor(info.name, shape, info.type.lower())
        if info.type not in ("INT8", "UINT8", *WIDE):
            raise Refused(
                f"has tensor {info.name!r} of type {info.type.lower()}; only int8 is supported, and beside it "
                "uint8, int16, int32, int64, bool and float32"
            )
        if info.type == "UINT8" and not info.scale.size:
            return g.Tensor(info.name, shape, "uint8")
        if info.scale.size != 1:
            what = f"{info.scale.size} scales" if info.scale.size else "no quantisation parameters"
            raise Refused(f"has tensor {info.name!r} with {what}; activations have one scale and zero point")
        scale, zero_point = float(info.scale[0]), int(info.zero_point[0])
        if not scale and info.data is not None and (info.data == zero_point).all():
            scale = ZEROS_SCALE
        return g.Tensor(info.name, shape, info.type.lower(), scale, zero_point)

    def _assume(self, k: int) -> None:
        """Substitute a tensor that cannot be imported."""
        info = self.file.tensors[k]
        try:
            self._plain[k] = self.described(info)
        except (Refused, InputError):
            self.doubtful.add(k)
            if min(info.shape, default=1) > 0:
                self._plain[k] = g.Tensor(info.name, info.shape or (1,))

    def assume_outputs(self, node: FileNode) -> None:
        """Substitute the outputs of a refused operator, so that its readers are checked, too."""
        for k in node.outputs:
            known = k in self._plain or k in self._canonical or k in self._outside
            if not known and self.variables.resource(k) is None:
                self._assume(k)

    def _uint8(self, t: g.Tensor, name: str) -> g.Tensor:
        """`t` as the file has it."""
        return replace(t, name=name, dtype="uint8", zero_point=t.zero_point + 128)

    def outside(self, k: int) -> g.Tensor | None:
        """The network's uint8 input `k`, as long as nothing has read it as int8."""
        return None if k in self._plain else self._outside.get(k)

    def view(self, k: int, *, plain: bool = False) -> g.Tensor | None:
        """Tensor `k`, canonical or as in the file; None before an operator produces it."""
        if (raw := self.outside(k)) is not None:
            self._plain[k] = self.described(self.file.tensors[k])
            self.ops.append(g.Recode(f"{raw.name}.recode", (raw,), self._plain[k]))
        here, there = (self._plain, self._canonical) if plain else (self._canonical, self._plain)
        if k not in here and k in there:
            t = there[k]
            here[k] = t if len(t.shape) != 4 else self.relayout(t, self._name(k, plain), TO_NHWC if plain else TO_NCHW)
        return here.get(k)

    def relayout(self, x: g.Tensor, tensor: str, axes: tuple[int, ...]) -> g.Tensor:
        """`x` with its dimensions in the order `axes`, as a tensor of another name."""
        shape = tuple(x.shape[a] for a in axes)
        if x.data is not None:
            return replace(x, name=tensor, shape=shape, data=np.ascontiguousarray(x.data.transpose(axes)))
        y = replace(x, name=tensor, shape=shape)
        sizes = [a for a in axes if x.shape[a] > 1]
        name = f"{y.name}.relayout"
        moved = sizes != sorted(sizes)
        return self.emit(g.Transpose(name, (x,), y, axes, True) if moved else g.Reshape(name, (x,), y))

    def _name(self, k: int, plain: bool) -> str:
        """The name of a view: one of the two has the file's name, at inputs and outputs of the model the plain one."""
        info = self.file.tensors[k]
        ends = k in self.file.inputs or k in self.file.outputs
        if len(info.shape) != 4 or plain == ends:
            return info.name
        return self.unused(f"{info.name}.{'nhwc' if plain else 'nchw'}")

    def given(self, node: FileNode, position: int) -> bool:
        """True if there is an input at the position."""
        return position < len(node.inputs) and node.inputs[position] >= 0

    def info(self, node: FileNode, position: int) -> Info:
        """The file's tensor at an input position. Raises `Refused` if it is omitted."""
        if not self.given(node, position):
            raise Refused(f"has no input {position}")
        return self.file.tensors[node.inputs[position]]

    def known(self, node: FileNode, position: int) -> np.ndarray:
        """The constant at an input position, in the file's layout."""
        info = self.info(node, position)
        if info.data is None:
            raise Refused(f"has input {info.name!r} that is not constant")
        return info.data

    def number(self, node: FileNode, position: int) -> int | float:
        """The constant at an input position, which has one element."""
        value = self.known(node, position)
        if value.size != 1:
            raise Refused(f"has {value.size} numbers in input {self.info(node, position).name!r}; it takes one")
        return value.item()

    def pairs(self, node: FileNode, position: int) -> list[list[int]]:
        """The constant at an input position, two numbers for each dimension."""
        value = self.known(node, position)
        if value.size % 2:
            raise Refused(f"has {value.size} numbers in input {self.info(node, position).name!r}; it takes pairs")
        return value.reshape(-1, 2).tolist()

    def activation(
        self, node: FileNode, position: int, *, plain: bool = False, dtype: str | None = "int8", wide: bool = False
    ) -> g.Tensor:
        """The input at a position, constant or not, of type `dtype` (None: any), with `wide` also of int16."""
        info, k = self.info(node, position), node.inputs[position]
        t = self.view(k, plain=plain)
        if t is None:
            known = self.described(info)
            if info.data is None:
                raise Refused(f"reads {info.name!r} before an operator produces it")
            self._plain[k] = replace(known, data=info.data.reshape(known.shape))
            t = self.view(k, plain=plain)
            assert t is not None
        if wide and t.dtype == "int16":
            return t
        if dtype and t.dtype == "int16":
            raise Refused(of_16_bits(info.name))
        if dtype and t.dtype != dtype:
            raise Refused(f"has {t.dtype} input {info.name!r}; quantise the whole model to int8")
        return t

    def canonical(self, x: g.Tensor, node: FileNode, position: int) -> g.Tensor:
        """The NCHW view of `x`, which is the input at a position in the file's layout, or that in another shape."""
        if self.view(node.inputs[position], plain=True) is x:
            t = self.view(node.inputs[position])
            assert t is not None
            return t
        return self.relayout(x, self.unused(f"{x.name}.nchw"), TO_NCHW)

    def result(self, node: FileNode, position: int = 0, *, plain: bool = False) -> g.Tensor:
        """The tensor at an output position, canonical or as in the file, for the operator that produces it."""
        k = node.outputs[position]
        t = self.described(self.file.tensors[k])
        if len(t.shape) == 4:
            shape = t.shape if plain else tuple(t.shape[a] for a in TO_NCHW)
            t = replace(t, shape=shape, name=self._name(k, plain))
        return self._copied(node, t)

    def _copied(self, node: FileNode, t: g.Tensor) -> g.Tensor:
        """The output `t` of an operator that copies bytes: in the quantisation of its input, if that is another one."""
        if node.kind not in COPIES or t.dtype != "int8" or node.option("fusedActivationFunction", 0):
            return t
        x = self.described(self.info(node, COPIES[node.kind]))
        if x.dtype != t.dtype or (x.scale, x.zero_point) == (t.scale, t.zero_point):
            return t
        copy = replace(t, name=self.unused(f"{t.name}.bytes"), scale=x.scale, zero_point=x.zero_point)
        self._relabelled[copy.name] = t
        return copy

    def taken_as(self, x: g.Tensor, like: g.Tensor) -> g.Tensor:
        """The bytes of `x` in the quantisation of `like`, for a kernel that does not ask for it."""
        if x.dtype != "int8" or (x.scale, x.zero_point) == (like.scale, like.zero_point):
            return x
        y = replace(x, name=self.unused(f"{x.name}.bytes"), scale=like.scale, zero_point=like.zero_point)
        if x.data is None:
            self.ops.append(g.Lookup(y.name, (x,), y, "copy", _SAME_BYTES))
        return y

    def alias(self, k: int, t: g.Tensor) -> None:
        """Tensor `k` of the file, in the file's layout, is `t`, which exists already."""
        self._plain[k] = t

    def produce(self, node: FileNode, op: g.Operator, position: int = 0, *, plain: bool = False) -> None:
        """Append the operator that produces an output of `node`."""
        self.ops.append(op)
        if (label := self._relabelled.get(op.output.name)) is not None:
            y = replace(label, shape=op.output.shape)
            op = g.Lookup(f"{op.output.name}.label", (op.output,), y, "copy", _SAME_BYTES)
            self.ops.append(op)
        (self._plain if plain else self._canonical)[node.outputs[position]] = op.output

    def produce_as(
        self, node: FileNode, y: g.Tensor, shape: tuple[int, ...], part: str, make: Callable[[g.Tensor], g.Operator]
    ) -> None:
        """Append the operator `make` gives for an output like `y` of `shape`, and a reshape if `y` has another."""
        out = y if y.shape == shape else replace(y, name=self.unused(f"{y.name}.{part}"), shape=shape)
        op = make(out)
        if out is not y:
            self.ops.append(op)
            op = g.Reshape(f"{node.name}.reshape", (out,), y)
        self.produce(node, op, plain=True)

    def reshape(self, name: str, x: g.Tensor, shape: Sequence[int], wanted: str = "") -> g.Tensor:
        """`x` in another shape; `x` itself if it has that shape, and of a constant a constant."""
        if x.data is None or x.shape == tuple(shape):
            return super().reshape(name, x, shape, wanted)
        return replace(x, name=self.unused(name), shape=tuple(shape), data=x.data.reshape(shape))
