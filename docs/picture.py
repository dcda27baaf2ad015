"""Draws the picture of the README: the accelerator's units and queues, and the timeline of the digits network.

Run `python docs/picture.py` where the compiler is installed. The timeline is that of the timing model for one image.
"""

from html import escape
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.sim.trace import Event, of_launch

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "images" / "digits.svg"
NETWORK = ROOT / "examples" / "digits"
WIDTH, LEFT, RIGHT = 880, 84, 860  # the time axis goes from LEFT to RIGHT
ROWS = {"load": 268, "compute": 302, "store": 336}  # upper edges of the timeline's tracks
KINDS = {"GEMM": "gemm", "LOAD": "load", "STORE": "store", "ALU": "alu"}
# colours of light and dark pages; the chart's own: one hue per unit, the multiplier's strongest
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2430 } .small { font-size: 11px } .faint { fill: #667 }
.box { fill: #f3f5f9; stroke: #8a93a6 } .memory { fill: #fff; stroke: #8a93a6; stroke-dasharray: 4 3 }
.line { stroke: #8a93a6; fill: none } .tip { fill: #8a93a6 }
.token { stroke: #b4530a; fill: none } .token-tip { fill: #b4530a }
.load { fill: #3b7dd8 } .gemm { fill: #1a7f4b } .alu { fill: #8fc7a6 } .store { fill: #b4530a } .track { fill: #eef0f5 }
@media (prefers-color-scheme: dark) {
text { fill: #e4e7ee } .faint { fill: #9aa3b5 }
.box { fill: #22283a; stroke: #6d7893 } .memory { fill: none; stroke: #6d7893 }
.line { stroke: #6d7893 } .tip { fill: #6d7893 } .token { stroke: #f0a35e } .token-tip { fill: #f0a35e }
.load { fill: #6ba4f0 } .gemm { fill: #3fbf7f } .alu { fill: #2a6b4a } .store { fill: #f0a35e } .track { fill: #1c2130 }
}
"""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """A text at (x, y)."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: int, y: int, width: int, height: int, title: str, words: str = "", kind: str = "box") -> str:
    """A box with a title and, below it, words."""
    middle, line = x + width / 2, y + height / 2 + (-3 if words else 5)
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>'
    return shape + text(middle, line, title) + (text(middle, line + 16, words, "small faint") if words else "")


def arrow(x1: int, y1: int, x2: int, y2: int, kind: str = "line") -> str:
    """An arrow from (x1, y1) to (x2, y2)."""
    tip = "token-tip" if kind == "token" else "tip"
    return f'<path d="M{x1} {y1} L{x2} {y2}" class="{kind}" marker-end="url(#{tip})"/>'


def units() -> str:
    """Fetch, the three units with their queues, the scratchpads, and the dependence tokens between the units."""
    parts = [box(20, 70, 90, 46, "fetch", "instructions")]
    for x, name, words in (
        (190, "load", "DRAM to scratchpad"),
        (440, "compute", "GEMM and ALU"),
        (690, "store", "to DRAM"),
    ):
        parts += [box(x, 66, 150, 54, name, words), text(x + 106, 52, "queue", "small faint", "start")]
        parts += [f'<rect x="{x + 90 - 12 * k}" y="42" width="9" height="12" class="box"/>' for k in range(5)]
        parts.append(arrow(x + 75, 54, x + 75, 64))
    parts.append('<path d="M65 70 L65 20 L765 20" class="line"/>')
    parts += [arrow(x, 20, x, 40) for x in (265, 515, 765)]
    for x in (340, 590):
        parts += [arrow(x, 82, x + 98, 82, "token"), arrow(x + 100, 104, x + 2, 104, "token")]
        parts.append(text(x + 50, 97, "tokens", "small faint"))
    parts.append(box(190, 160, 250, 38, "scratchpads: input, weights", kind="memory"))
    parts.append(box(470, 160, 370, 38, "scratchpads: accumulators, outputs", kind="memory"))
    parts += [
        arrow(265, 120, 265, 158),
        arrow(400, 158, 450, 122),
        arrow(515, 120, 515, 158),
        arrow(765, 158, 765, 122),
    ]
    return "".join(parts)


def timeline(events: list[Event], cycles: int) -> str:
    """A track for each unit, a bar for each instruction, and a scale in cycles."""
    scale = (RIGHT - LEFT) / cycles
    parts = []
    for name, y in ROWS.items():
        parts.append(text(LEFT - 10, y + 17, name, anchor="end"))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{RIGHT - LEFT}" height="26" class="track"/>')
    for event in events:
        kind = next((kind for start, kind in KINDS.items() if event.name.startswith(start)), "alu")
        if event.track in ROWS and event.name != "FINISH":
            x, width = LEFT + event.start * scale, max((event.end - event.start) * scale, 0.6)
            parts.append(
                f'<rect x="{x:.1f}" y="{ROWS[event.track]}" width="{width:.1f}" height="26" class="{kind}">'
                f"<title>{escape(event.name)}, cycles {event.start:,} to {event.end:,}</title></rect>"
            )
    for mark in range(0, cycles, 500):
        parts.append(text(LEFT + mark * scale, 380, f"{mark:,}", "small faint"))
    for k, (kind, name) in enumerate((("load", "load"), ("gemm", "GEMM"), ("alu", "ALU"), ("store", "store"))):
        parts.append(f'<rect x="{LEFT + 80 * k}" y="392" width="12" height="12" class="{kind}"/>')
        parts.append(text(LEFT + 80 * k + 18, 402, name, "small", "start"))
    return "".join(parts)


def picture() -> str:
    """The whole picture."""
    network = tw.load(NETWORK / "digits.onnx")
    image = np.load(NETWORK / "inputs.npz")["inputs"][0]
    cycles = network.run(image, on="timing")[1]
    assert cycles.timeline is not None and cycles.cycles is not None
    (step,) = network.launches
    bars = timeline(of_launch(cycles.timeline(), step.launch), cycles.cycles)
    head = f"A digit in {cycles.cycles:,} cycles (simulated, pynq_z1): loads, products and stores overlap"
    tips = "".join(
        f'<marker id="{name}" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0 L6 3 L0 6 Z" class="{name}"/></marker>'
        for name in ("tip", "token-tip")
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 412" role="img">'
        f"<title>{escape(head)}</title><style>{STYLE}</style><defs>{tips}</defs>"
        f"{units()}{text(20, 246, head, anchor='start')}{bars}</svg>\n"
    )


if __name__ == "__main__":
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(picture())
