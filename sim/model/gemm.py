"""GEMM, DWGEMM and TERNARY, the fast form of sim/spec.py's: an instruction as a few products of matrices or of vectors.

Every loop is one of: rows `m` (steps dst and src, or dst alone), columns `n` (dst and wgt), reduction `k` (not dst),
`b` (all three, a batch of products), or a repetition (none). Inputs and weights are gathered along their loops,

    C[b, m, n] = sum over k of inp[src(b, m, k)] . wgt[wgt(b, n, k)],

and C is added to `acc[dst(b, m, n)]`. The product is one of float32 matrices, cut along the reduction where a sum could
pass 2**24: below that float32 holds every partial sum exactly, in any order of summation.

DWGEMM multiplies element by element: inputs and rows of weights are gathered for every micro-op issue, multiplied, and
summed over the loops that keep the accumulator. With several taps these are a loop more.

TERNARY is a product of GEMM with one loop more, over the blocks of an entry: a trip of it goes on by one block of
weights and by one plane of accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

import numpy as np

from ...hw.config import Config
from ...hw.errors import AccessError
from ...hw.isa import Mem, Op
from .loops import DST, SRC, WGT, Axis, Nest, Triple, distinct, grid, trips, uses
from .state import Action, State, loop_action

_ELEMENTS = 1 << 20  # of each gathered matrix and of the result
_SHORT = 10**6  # products that OpenBLAS adds up without packing, up to twice as fast if it reads both along their rows
_LEAST = 64  # rows of each part of a longer product that is cut along its rows, so that its parts are short


def gemm_action(state: State, f: dict[str, int]) -> Action:
    """The action of the decoded GEMM or DWGEMM `f`."""
    if f["reset"]:
        return loop_action(state, f, lambda nest: reset(state, nest))
    taps, overwrite = 1 + f.get("extra_taps", 0), bool(f.get("overwrite"))
    rows = state.cfg.row_taps  # of the groups that several taps count
    if taps > 1:
        return loop_action(state, f, lambda n: multiplied(state, scaled_weights(n, rows), _several(taps), overwrite))
    product = Depthwise if f["op"] == Op.DWGEMM else Product
    return loop_action(state, f, lambda nest: multiplied(state, nest, product, overwrite))


def exact_products(cfg: Config) -> int:
    """Products of an input and a weight that float32 adds without rounding, whatever their values."""
    return 1 << 26 - cfg.inp_bits - cfg.wgt_bits


def reset(state: State, nest: Nest) -> Iterator[Action]:
    """The actions that write zero to the accumulators of `nest`. Raises `AccessError` where one does not exist."""
    low, high = nest.limits(DST)
    state.check(Mem.ACC, low, high)
    yield partial(state.sums.settle, low, high)
    touched = np.flatnonzero(uses(nest.axes, DST)) + low
    if len(touched) == high - low + 1:
        block = state.acc[low : high + 1]
        yield lambda: block.fill(0)
    else:
        yield lambda: state.acc.__setitem__(touched, 0)


def multiplied(state: State, nest: Nest, product: type[Product | Depthwise], overwrite: bool) -> Iterator[Action]:
    """The actions that add the products over `nest` to the accumulators, or overwrite these.

    Raises `AccessError` for an index outside of its scratchpad.
    """
    state.check(Mem.ACC, *nest.limits(DST))
    low, high = nest.limits(SRC)
    state.check(Mem.INP, low, high + product.taps - 1)
    product.check_weights(state, *nest.limits(WGT))
    whole, times = _visible(nest, overwrite)
    for piece in whole.pieces(lambda axes: product.elements(state.cfg, axes) <= _ELEMENTS, ordered=overwrite):
        yield _piece(state, piece, times, product, overwrite)


def scaled_weights(nest: Nest, factor: int) -> Nest:
    """`nest` with weights counted by parts, `factor` of which its weight index counts as one."""
    scale = np.array([1, 1, factor])

    def scaled(index: Triple) -> Triple:
        return index[DST], index[SRC], index[WGT] * factor

    axes = [
        axis._replace(
            step=scaled(axis.step), table=(np.frombuffer(axis.table, np.int64).reshape(-1, 3) * scale).tobytes()
        )
        for axis in nest.axes
    ]
    return Nest(scaled(nest.base), tuple(axes))


def _visible(nest: Nest, overwrite: bool) -> tuple[Nest, int]:
    """The loops that affect the result, and how often the others repeat them.

    Of a loop that overwrites the same accumulators only the last trip has an effect.
    """
    base, axes, times = list(nest.base), [], 1
    for axis in nest.axes:
        if overwrite and not axis.varies(DST):
            base = [b + o for b, o in zip(base, axis.last())]
        elif not any(axis.varies(c) for c in (DST, SRC, WGT)):
            times *= axis.n
        else:
            axes.append(axis)
    return Nest((base[0], base[1], base[2]), tuple(axes)), times


def _piece(state: State, piece: Nest, times: int, product: type[Product | Depthwise], overwrite: bool) -> Action:
    piece, more = _visible(piece, overwrite)  # part of an irregular axis may no longer vary
    plan = state.plans.get(
        (product, piece.axes, overwrite), lambda: product(state.cfg, piece.axes, overwrite), lambda p: p.nbytes
    )
    return plan.action(state, piece, times * more)


def _kind(axis: Axis) -> str:
    if not axis.varies(DST):
        return "k"
    if not axis.varies(WGT):
        return "m"
    return "b" if axis.varies(SRC) else "n"


def _kinds(axes: Sequence[Axis]) -> dict[str, list[Axis]]:
    return {kind: [axis for axis in axes if _kind(axis) == kind] for kind in "bmnk"}


class Product:
    """The product over `axes` for any base: index tables and the target of the result.

    The weight index counts entries of `weights`, or the blocks of one.
    """

    taps, weights = 1, Mem.WGT

    def __init__(self, cfg: Config, axes: tuple[Axis, ...], overwrite: bool):
        b, m, n, k = _kinds(axes).values()
        self.shape = tuple(map(trips, (b, m, n, k)))
        self.inp_low, self.inp_rows = _rows([*b, *m], k, SRC, cfg.batch)
        self.wgt_low, self.wgt_rows = _rows([*b, *n], k, WGT, cfg.block_out)
        self.cut = max(1, exact_products(cfg) // cfg.block_in) * cfg.block_in
        self.target = _target(cfg, axes, overwrite)
        self.nbytes = self.inp_rows.nbytes + self.wgt_rows.nbytes + self.target.nbytes + 1024

    @classmethod
    def blocks(cls, cfg: Config) -> int:
        """Blocks of an entry of `weights`."""
        return 1

    @classmethod
    def check_weights(cls, state: State, low: int, high: int) -> None:
        """Raises `AccessError` unless the weight indices `low` to `high` exist."""
        blocks = cls.blocks(state.cfg)
        state.check(cls.weights, low // blocks, high // blocks)

    @staticmethod
    def elements(cfg: Config, axes: Sequence[Axis]) -> int:
        """Elements of the largest matrix of the product over `axes`."""
        b, m, n, k = map(trips, _kinds(axes).values())
        rows, columns, depth = m * cfg.batch, n * cfg.block_out, k * cfg.block_in
        return b * max(rows * depth, columns * depth, rows * columns)

    def action(self, state: State, piece: Nest, times: int) -> Action:
        """Add `times` times the product of `piece` to the accumulators (or overwrite them).

        Everything that the operands' values do not change is made here, once: instructions are short.
        """
        cfg, cut, sums, base, limits = state.cfg, self.cut, state.sums, piece.base, piece.limits(DST)
        b, m, n, k = self.shape
        rows, columns, depth = m * cfg.batch, n * cfg.block_out, k * cfg.block_in
        by_rows, work = 2 * rows >= columns, rows * columns * depth  # else the transposed product
        parts = _parts(rows, work) if by_rows and b == 1 and depth <= cut else 1
        short, images = work <= _SHORT * parts, (parts, rows // parts) if b == 1 else (b, rows)
        inputs, weights = piece.limits(SRC), piece.limits(WGT)
        inp_at, wgt_at = state.inp[inputs[0] * cfg.batch :], state.array(self.weights)[weights[0] * cfg.block_out :]
        make_inp = _maker(inp_at, self.inp_rows, (*images, depth), not by_rows, short)
        make_wgt = _maker(wgt_at, self.wgt_rows, (b, columns, depth), by_rows, short)
        entries = (weights[0] // self.blocks(cfg), weights[1] // self.blocks(cfg))
        inp, wgt = ((self, base[SRC]), inputs, make_inp), ((self, base[WGT]), entries, make_wgt)
        keep_inp, keep_wgt = state.operands[Mem.INP].get, state.operands[self.weights].get
        put = self.target.action(state.acc, base[DST], times)
        key = str((base[DST], b, rows, self.target.key))  # text, as it keeps its hash
        multiply = np.matmul if depth <= cut else partial(_long_product, cut=cut)
        if parts > 1:
            multiply = partial(_product_of_parts, shape=(rows, columns))
        overwrites = self.target.overwrite

        def product() -> np.ndarray:
            left, right = keep_inp(*inp), keep_wgt(*wgt)
            return multiply(left, right) if by_rows else multiply(right, left).swapaxes(-1, -2)

        def add() -> None:
            left, right = keep_inp(*inp), keep_wgt(*wgt)
            result = multiply(left, right) if by_rows else multiply(right, left).swapaxes(-1, -2)
            sums.add(key, limits, put, result, depth, cut, overwrites)

        def settle_and_put() -> None:
            sums.settle(*limits)
            put(product())

        return add if times == 1 and 2 * depth <= cut and self.target.adds else settle_and_put


def _maker(
    memory: np.ndarray, rows: np.ndarray, shape: tuple[int, ...], swap: bool, short: bool
) -> Callable[[], np.ndarray]:
    """A function that returns the `rows` of `memory` as float32 matrices of `shape`.

    With `swap` they are transposed, in memory, too, for a `short` product.
    """
    shape = shape[1:] if shape[0] == 1 else shape

    def make() -> np.ndarray:
        # every index was checked before: "clip" saves the check of the default
        taken = memory.take(rows, 0, None, "clip").reshape(shape)
        if swap:
            taken = taken.swapaxes(-1, -2)
            if short:
                taken = taken.copy()  # before they are converted: it is faster with bytes
        return taken.astype(np.float32)

    return make


def _parts(rows: int, work: int) -> int:
    """Equal parts of `rows` in which a product of `work` multiplications is short; 1 if there are none."""
    least = -(-work // _SHORT)
    return next((n for n in range(least, rows // _LEAST + 1) if rows % n == 0), 1)


def _product_of_parts(left: np.ndarray, right: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The product of a left matrix whose rows are in parts, as one of `shape`."""
    return np.matmul(left, right).reshape(shape)


def _long_product(left: np.ndarray, right: np.ndarray, cut: int) -> np.ndarray:
    """The product as int32, of parts of `cut` along the reduction."""
    total = np.zeros(left.shape[:-1] + right.shape[-1:], np.int32)
    for at in range(0, left.shape[-1], cut):
        total += np.matmul(left[..., at : at + cut], right[..., at : at + cut, :]).astype(np.int32)
    return total


class Depthwise:
    """The element-wise products over `axes` for any base, summed over those that keep the accumulator.

    Of each micro-op `taps` neighbouring inputs and rows of weights count.
    """

    taps = 1

    def __init__(self, cfg: Config, axes: tuple[Axis, ...], overwrite: bool):
        outer = [axis for axis in axes if axis.varies(DST)]
        inner = [*(axis for axis in axes if not axis.varies(DST)), Axis(self.taps, (0, 1, 1))]
        self.shape = trips(outer), trips(inner), cfg.batch, cfg.block_in
        self.inp_low, self.inp_rows = _rows(outer, inner, SRC, 1)
        self.wgt_low, self.wgt_rows = _rows(outer, inner, WGT, 1)
        # the target depends on dst only: one row of the result per index
        self.target = _target(cfg, Nest((0, 0, 0), tuple(outer)).without(SRC, WGT).axes, overwrite)
        self.nbytes = self.inp_rows.nbytes + self.wgt_rows.nbytes + self.target.nbytes + 1024

    @classmethod
    def check_weights(cls, state: State, low: int, high: int) -> None:
        """Raises `AccessError` unless the rows `low` to `high` of the weights, and the rows of further taps, exist."""
        state.check_rows(low, high + cls.taps - 1)

    @classmethod
    def elements(cls, cfg: Config, axes: Sequence[Axis]) -> int:
        """Products over `axes`."""
        return trips(axes) * cls.taps * cfg.batch * cfg.block_in

    def action(self, state: State, piece: Nest, times: int) -> Action:
        """Add `times` times the products of `piece` to the accumulators (or overwrite them)."""
        base, limits = piece.base, piece.limits(DST)
        n, k, batch, block = self.shape
        entries = state.inp.reshape(-1, batch * block)[base[SRC] + self.inp_low :]
        rows = state.wgt[base[WGT] + self.wgt_low :]
        put = self.target.action(state.acc, base[DST], times)

        def multiply() -> None:
            state.sums.settle(*limits)
            inp = entries.take(self.inp_rows, axis=0, mode="clip").reshape(n, k, batch, block)
            wgt = rows.take(self.wgt_rows, axis=0, mode="clip").reshape(n, k, 1, block)
            products = np.multiply(inp, wgt, dtype=np.int16)  # 128 * 128 fits
            put(products.sum(axis=1, dtype=np.int32))

        return multiply


@lru_cache(maxsize=8)
def _several(taps: int) -> type[Depthwise]:
    """`Depthwise` with `taps` taps; the same class each time, so that plans are found again."""
    return type(f"Depthwise{taps}", (Depthwise,), {"taps": taps})


def _target(cfg: Config, axes: tuple[Axis, ...], overwrite: bool) -> _Strided | _Scattered:
    """The target of the result over `axes`."""
    regular = distinct([axis for axis in axes if axis.varies(DST)], DST)
    return (_Strided if regular else _Scattered)(cfg, axes, overwrite)


def _rows(outer: list[Axis], k: list[Axis], column: int, vectors: int) -> tuple[int, np.ndarray]:
    """Rows of a scratchpad in the order of a matrix: entries of `outer`, their `vectors`, entries of `k`.

    Returns the smallest entry offset, and the row numbers from there, intp.
    """
    entries = np.add.outer(grid(outer, column).reshape(-1), grid(k, column).reshape(-1))
    low = int(entries.min())
    rows = (entries[:, None, :] - low) * vectors + np.arange(vectors)[:, None]
    return low, np.ascontiguousarray(rows, np.intp).reshape(-1)


class _Strided:
    """Accumulators at regular steps, each used once: the result is added to a view of them."""

    nbytes, adds = 0, True

    def __init__(self, cfg: Config, axes: tuple[Axis, ...], overwrite: bool):
        self.overwrite, self.lanes = overwrite, cfg.lanes
        # the result's dimensions: b, m, batch, n, block_out; the view's: steps from large to small, batch, block_out
        kinds = _kinds(axes)
        dims = [*kinds["b"], *kinds["m"], None, *kinds["n"]]
        self.result = [axis.n if axis else cfg.batch for axis in dims] + [cfg.block_out]
        by_step = sorted(((axis, i) for i, axis in enumerate(dims) if axis), key=lambda d: -abs(d[0].step[DST]))
        self.order = [*(i for _, i in by_step), dims.index(None), len(dims)]
        self.dims = (*(axis.n for axis, _ in by_step), cfg.batch, cfg.block_out)
        self.strides = (*(4 * self.lanes * axis.step[DST] for axis, _ in by_step), 4 * cfg.block_out, 4)
        self.key = (*self.result, *self.order, *self.strides)

    def action(self, acc: np.ndarray, base: int, times: int) -> Callable[[np.ndarray], None]:
        """A function that adds `times` times a result to the accumulators from `base` on, or overwrites them."""
        view = np.ndarray(self.dims, np.int32, acc, 4 * self.lanes * base, self.strides)
        shape, order, overwrite, factor = self.result, self.order, self.overwrite, _int32(times)

        def put(result: np.ndarray) -> None:
            rows = result.reshape(shape).transpose(order)
            if overwrite:
                view[...] = rows
                return
            rows = rows.astype(np.int32, "C")
            if times != 1:
                rows *= factor
            np.add(view, rows, view)

        return put


class _Scattered:
    """Accumulators in any order, possibly repeated: the result is first sorted by accumulator."""

    adds, key = False, ()  # its sums are not kept

    def __init__(self, cfg: Config, axes: tuple[Axis, ...], overwrite: bool):
        self.overwrite, self.batch, self.block = overwrite, cfg.batch, cfg.block_out
        outer = [axis for axis in axes if _kind(axis) != "k"]
        order = sorted(range(len(outer)), key=lambda i: "bmn".index(_kind(outer[i])))
        # for each row of the result, its position in the instruction's sequence and its accumulator
        position = np.arange(trips(outer)).reshape([axis.n for axis in outer]).transpose(order).reshape(-1)
        index = grid(outer, DST).transpose(order).reshape(-1)
        self.sorted = np.lexsort((position, index))
        index = index[self.sorted]
        first = np.concatenate([[True], index[1:] != index[:-1]])
        self.starts = np.flatnonzero(first)
        self.index = index[self.starts]
        self.latest = self.sorted[np.concatenate([self.starts[1:], [len(index)]]) - 1]
        b, m, n = (trips([axis for axis in outer if _kind(axis) == kind]) for kind in "bmn")
        self.shape = b * m, self.batch, n, self.block
        self.nbytes = 8 * (3 * len(index) + 2 * len(self.index))

    def action(self, acc: np.ndarray, base: int, times: int) -> Callable[[np.ndarray], None]:
        """A function that adds a result to the accumulators around `base`, or overwrites each with its latest row."""

        def put(result: np.ndarray) -> None:
            index = self.index + base
            rows = result.reshape(self.shape).transpose(0, 2, 1, 3).astype(np.int32, order="C")
            rows = rows.reshape(-1, self.batch * self.block)
            if times != 1:
                rows *= _int32(times)
            if self.overwrite:
                acc[index] = rows[self.latest]
            elif len(index) == len(rows):
                acc[index] += rows[self.sorted]
            else:
                acc[index] += np.add.reduceat(rows[self.sorted], self.starts, axis=0, dtype=np.int32)

        return put


def _int32(value: int) -> np.int32:
    return np.int32((value + (1 << 31)) % (1 << 32) - (1 << 31))


class Ternary(Product):
    """A product whose weight index counts blocks of ternary weights."""

    weights = Mem.TWGT

    @classmethod
    def blocks(cls, cfg: Config) -> int:
        """Blocks of an entry of weights."""
        return cfg.ternary_blocks


def ternary_action(state: State, f: dict[str, int]) -> Action:
    """The action of the decoded TERNARY `f`."""
    overwrite = bool(f.get("overwrite"))

    def prepare(nest: Nest) -> Iterator[Action]:
        _check_planes(state, nest)
        whole = _with_blocks(state.cfg, nest)
        return reset(state, whole) if f["reset"] else multiplied(state, whole, Ternary, overwrite)

    return loop_action(state, f, prepare)


def _with_blocks(cfg: Config, nest: Nest) -> Nest:
    """`nest` with the loop over blocks, the innermost, and weights counted by blocks."""
    found = scaled_weights(nest, cfg.ternary_blocks)
    blocks = Axis(cfg.ternary_blocks, (cfg.plane_depth, 0, 1))
    return Nest(found.base, (*found.axes, *([blocks] if blocks.n > 1 else [])))


def _check_planes(state: State, nest: Nest) -> None:
    """Raise `AccessError` unless all accumulators of `nest` are in the first plane of a bank."""
    low, high = nest.limits(DST)
    state.check(Mem.ACC, low, high)
    plane, bank = state.cfg.plane_depth, state.cfg.bank_depth
    entries = np.flatnonzero(uses(nest.axes, DST)) + low
    outside = entries[entries % bank >= plane]
    if len(outside):
        raise AccessError(
            f"ACC entry {outside[0]} is not in the first plane of a bank, {plane} of every {bank} entries"
        )
