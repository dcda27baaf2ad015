"""How values show themselves: one line of text, and a table of HTML in a notebook."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import Config

_SIZES = ("uop", "inp", "wgt", "acc")
_IN_FRONT = {
    "name",
    "batch",
    "block_in",
    "block_out",
    "inp_bits",
    "wgt_bits",
    "out_bits",
    *(f"{m}_bytes" for m in _SIZES),
}


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table under the line `title`; cells are escaped, integers have separators."""

    def row(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{_cell(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<p>{html.escape(title)}</p><table><thead>{row(header, 'th')}</thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return f"{value:,}" if type(value) is int else html.escape(str(value))


def size(nbytes: int) -> str:
    """`nbytes` in the largest binary unit that divides it: 131072 is 128K."""
    for unit, name in ((1 << 20, "M"), (1 << 10, "K")):
        if nbytes % unit == 0:
            return f"{nbytes // unit}{name}"
    return str(nbytes)


def config_text(cfg: Config) -> str:
    """Every field of `cfg` that distinguishes it: shape, widths, scratchpads, and what is not the field's default."""
    widths = {cfg.inp_bits, cfg.wgt_bits, cfg.out_bits}
    parts = [repr(cfg.name), f"{cfg.batch}x{cfg.block_in}x{cfg.block_out}"]
    parts.append(f"int{cfg.inp_bits}" if len(widths) == 1 else f"i{cfg.inp_bits}w{cfg.wgt_bits}o{cfg.out_bits}")
    parts.append(" ".join(f"{mem} {size(getattr(cfg, f'{mem}_bytes'))}" for mem in _SIZES))
    for field in dataclasses.fields(cfg):
        value = getattr(cfg, field.name)
        if field.name not in _IN_FRONT and value != field.default:
            parts.append(f"{field.name}={_names(value, '+')}")
    return f"Config({', '.join(parts)})"


def config_html(cfg: Config) -> str:
    """Every field of `cfg`."""
    rows = [(field.name, _names(getattr(cfg, field.name), ", ")) for field in dataclasses.fields(cfg)]
    return table(f"Config {cfg.name}, fingerprint {cfg.fingerprint:016x}", ("field", "value"), rows)


def _names(value: frozenset[str] | tuple[str, ...] | str | int, between: str) -> object:
    """A field's value; several names as one text."""
    if isinstance(value, frozenset):
        return between.join(sorted(value)) or "none"
    return between.join(value) if isinstance(value, tuple) else value
