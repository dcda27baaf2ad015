"""A memory plan as a picture: every buffer a rectangle of its lifetime and its addresses."""

from __future__ import annotations

from pathlib import Path

from ...hw.errors import UnsupportedError
from ...runtime.files import atomic_write
from .plan import Plan

FORMATS = ("png", "svg")
# a name's extent across its letters, and per letter, as shares of the axes' width and height
_THICKNESS, _PER_LETTER = (0.012, 0.02), (0.0055, 0.009)


def draw(plan: Plan, path: str | Path, title: str = "") -> None:
    """Write the picture atomically, PNG or SVG by the ending of `path`.

    Raises `UnsupportedError` for other endings and where matplotlib is missing, `FileError` if the file cannot be
    written.
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UnsupportedError(f"{path}: a picture must end in {' or '.join(FORMATS)}; give another name")
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ImportError as exc:
        raise UnsupportedError(f"pictures need matplotlib ({exc}); pip install 'tilewright[plots]'") from None

    steps = 1 + max((b.last for b in plan.buffers), default=0)
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.add_subplot()
    palette = matplotlib.colormaps["tab20"]
    for number, b in enumerate(plan.buffers):
        address, length = plan.addresses[b.name], b.last + 1 - b.first
        colour = {"facecolor": palette(number % palette.N), "edgecolor": "black"}
        axes.add_patch(Rectangle((b.first, address), length, b.nbytes, lw=0.5, **colour))
        label = _rotation(b.name, length / steps, b.nbytes / max(plan.nbytes, 1))
        if label is not None:
            where = b.first + length / 2, address + b.nbytes / 2
            axes.text(*where, b.name, ha="center", va="center", size=6, rotation=label)
    axes.axhline(plan.bound, color="red", lw=1, ls="--", label=f"lower bound: {plan.bound:,} bytes")
    axes.set(xlim=(0, steps), ylim=(0, 1.05 * max(plan.nbytes, 1)), xlabel="step", ylabel="address, bytes")
    axes.set_title(title or f"{plan.nbytes:,} bytes, {plan.method}")
    axes.legend(loc="upper right")
    with atomic_write(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "tilewright"}):
        figure.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else None)


def _rotation(name: str, width: float, height: float) -> int | None:
    """Rotation in degrees with which a name fits a rectangle, given as shares of the axes; None if none does."""
    if width >= _PER_LETTER[0] * len(name) and height >= _THICKNESS[1]:
        return 0
    if height >= _PER_LETTER[1] * len(name) and width >= _THICKNESS[0]:
        return 90
    return None
