"""docs/board.md explains messages that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "boards").rglob("*.py"), ROOT / "runtime" / "device.py", ROOT / "runtime" / "session.py"]
ROWS = re.findall(r"^\| `(.+?)` \| ", (ROOT / "docs" / "board.md").read_text(), re.M)


def texts(path: Path) -> list[str]:
    """The strings of a module; what an f-string fills in is `{}`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return [text.replace("`", "") for text in found]


TEXTS = [text for path in SOURCES for text in texts(path)]


def test_there_are_rows():
    assert len(ROWS) > 15


@pytest.mark.parametrize("row", [row for row in ROWS if not row.startswith(("build_", "--"))])
def test_every_message_of_the_page_is_one(row):
    """Its pieces, between the places that are filled in, stand in one message in their order."""
    pieces = [
        re.escape(piece.strip())
        for piece in re.split(r"\.\.\.| read \(write\) ", row.strip("()"))
        if piece.strip(" (),.")
    ]
    assert any(re.search(".*".join(pieces), text, re.S) for text in TEXTS), pieces
