"""Checks the built site without a network: links between pages lead to a page and a place on it, and no page loads
anything from elsewhere.

`python docs/links.py build/site` prints what is wrong, a line each; the exit status is then 1.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_GENERATED = {"genindex.html", "search.html"}  # Sphinx writes them; the index links to what pages are tested for


@dataclass
class Page(HTMLParser):
    """What a page links to, what it loads, and the places on it that others may link to."""

    links: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the tag's links and names."""
        given = {name: value for name, value in attrs if value}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.add(given.get("href", ""))
        elif "src" in given:
            self.loaded.add(given["src"])


def read(path: Path) -> Page:
    """A page of the site."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def wrong(site: Path) -> list[str]:
    """What is wrong, as "page: target: reason"."""
    pages = {path.resolve(): read(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for target in sorted(page.links | page.loaded):
            reason = _reason(path, target, target in page.loaded, pages)
            if reason:
                found.append(f"{path.relative_to(site.resolve())}: {target}: {reason}")
    return found


def _reason(path: Path, target: str, loaded: bool, pages: dict[Path, Page]) -> str:
    url = urlsplit(target)
    if url.scheme == "data" or (url.scheme and not loaded):
        return ""
    if url.scheme or url.netloc:
        return "the page loads it from elsewhere"
    file = (path.parent / unquote(url.path)).resolve() if url.path else path
    if not file.exists():
        return "no such file"
    if url.fragment and file in pages and file.name not in _GENERATED:
        return "" if unquote(url.fragment) in pages[file].places else "no such place on that page"
    return ""


def main(site: str) -> int:
    """Print what is wrong with the site in the folder `site`."""
    found = wrong(Path(site))
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
