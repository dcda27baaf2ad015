"""Operators that move elements: by copies of whole blocks of channels, or as products that move lanes, too."""

from __future__ import annotations

from ...hw.config import Config
from .. import graph as g
from ..kernels import language
from ..kernels.repeat import repeat
from . import elementwise
from .arena import whole_blocks
from .direct import channels
from .elementwise import MOST_COPIES, pieces
from .recording import Recording

KINDS = (g.Concat, g.StridedSlice, g.Take, g.Pad)


def refusal(op: g.Operator, cfg: Config) -> str:
    """Reason why the accelerator cannot move the elements; empty if it can."""
    why = _refuses_copies_of(op, cfg)
    return "" if not why or channels.plan_of(op, cfg) is not None else why


def cycles(op: g.Operator, cfg: Config) -> float | None:
    """Estimated cycles of products that move lanes, or repeat images; None for copies."""
    if isinstance(op, g.Take) and op.indices[0] and not language.why_not(repeat, op, cfg):
        return language.cycles(repeat, op, cfg)
    plan = channels.plan_of(op, cfg) if _refuses_copies_of(op, cfg) else None
    return None if plan is None else plan.cycles


def lower(rec: Recording, op: g.Operator) -> None:
    """Append copies where they are enough, else products that move lanes."""
    if _refuses_copies_of(op, rec.cfg):
        channels.lower(rec, op)
    elif isinstance(op, g.Concat):
        elementwise.concatenate(rec, op)
    elif isinstance(op, g.StridedSlice):
        elementwise.cut(rec, op)
    elif isinstance(op, g.Take):
        language.lower(repeat, rec, op)


def _refuses_copies_of(op: g.Operator, cfg: Config) -> str:
    """Reason why copies of whole entries are not enough; empty if they are."""
    if isinstance(op, g.Concat):
        return _refuses_concat(op, cfg)
    if isinstance(op, g.StridedSlice):
        return _refuses_slice(op, cfg)
    if isinstance(op, g.Take):
        return language.why_not(repeat, op, cfg)
    return "it adds elements other than whole channels or up to 15 rows and columns of images that fit"


def _refuses_concat(op: g.Concat, cfg: Config) -> str:
    n, *_ = op.output.shape
    known = (1, 2, 3) if len(op.output.shape) == 4 else (1,)
    if op.axis not in known or len(op.output.shape) not in (2, 4) or n > cfg.batch or op.output.dtype != "int8":
        return f"{op.output.dtype} {op.output.shape} along axis {op.axis}"
    if op.axis > 1:
        if any(t.data is not None for t in op.inputs):
            return "a constant part"
        return _refuses_copies(sum(_copies(op.output, t, cfg) for t in op.inputs))
    parts = [t.shape[1] for t in op.inputs[:-1] if t.shape[1] % cfg.block_in]
    if not whole_blocks(op, cfg):
        return f"{parts[0]} channels are not whole blocks" if parts else "a constant part"
    return ""


def _refuses_slice(op: g.StridedSlice, cfg: Config) -> str:
    if elementwise.whole_rows(op, cfg):
        return ""
    if len(op.x.shape) != 4 or op.x.dtype != "int8" or op.x.shape[0] > cfg.batch or op.output.shape[0] != op.x.shape[0]:
        return f"{op.x.dtype} {op.x.shape} to {op.output.shape}"
    if any(step != 1 and n > 1 for step, n in zip(op.strides, op.output.shape)):
        return f"steps of {op.strides}"
    if op.begin[1] % cfg.block_in:
        return f"channels from {op.begin[1]} on: blocks have {cfg.block_in}"
    return _refuses_copies(_copies(op.x, op.output, cfg))


def _copies(whole: g.Tensor, part: g.Tensor, cfg: Config) -> int:
    return len([*pieces(whole.shape, (0,) * 4, part.shape, cfg)])


def _refuses_copies(count: int) -> str:
    return f"{count} copies: at most {MOST_COPIES}" if count > MOST_COPIES else ""
