"""A report: its data, and the page that shows them."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = 1  # of the data's form


@dataclass(frozen=True, eq=False)
class Report:
    """The `data` of a report, values that JSON can hold; docs/report.md describes them. A notebook shows the page."""

    data: dict[str, Any]

    @property
    def cycles(self) -> int | None:
        """Cycles of all launches; None where the device counts none."""
        known = [one["cycles"] for one in self.data["launches"] if one["cycles"] is not None]
        return sum(known) if known else None

    def to_json(self) -> str:
        """The data as one JSON document."""
        return json.dumps(self.data, separators=(",", ":"))

    def to_html(self) -> str:
        """The page, one document that needs no other file and no network."""
        from .page import page

        return page(self.data)

    def save(self, path: str | Path) -> None:
        """Write the page, .html, or the data, .json; atomically. Raises `FileError`."""
        from ...hw.errors import FileError
        from ...runtime.files import atomic_write

        kind = Path(path).suffix
        if kind not in (".html", ".json"):
            raise FileError(f"{path}: must end in .html or .json; give another name")
        text = self.to_html() if kind == ".html" else self.to_json() + "\n"
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def __repr__(self) -> str:
        cycles = "no cycles" if self.cycles is None else f"{self.cycles:,} cycles"
        data = self.data
        return f"Report({data['program']!r} on {data['config']['name']}, {data['device']}: {cycles})"

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that its styles and scripts stay apart from the notebook's."""
        return (
            f'<iframe srcdoc="{html.escape(self.to_html())}" style="width:100%;height:900px;border:1px solid #ccc" '
            f'title="{html.escape(repr(self))}"></iframe>'
        )
