"""The documentation site: `make site` builds these pages, with what Sphinx makes of the declarations, in build/site.

The pages are Markdown that GitHub shows as well. Only the pages in reference/ and project/ need Sphinx: they hold
directives. A warning is an error.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from tilewright.cli.app import VERBS, module_of

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "tilewright"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click", "sphinx_gallery.gen_gallery"]
NOTEBOOKS, GALLERY = "examples/gallery", "gallery"
exclude_patterns = []
sphinx_gallery_conf = {
    "examples_dirs": f"../{NOTEBOOKS}",
    "gallery_dirs": GALLERY,  # in this folder while the site is built
    "filename_pattern": r"\.py$",  # all are run
    "run_stale_examples": True,  # what they show depends on the library
    "within_subsection_order": "ExampleTitleSortKey",
    "show_signature": False,
    "write_computation_times": False,
    "reference_url": {},
}
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
html_theme = "furo"
html_title = "tilewright"
html_copy_source = False
html_show_copyright = False
default_role = "code"  # help texts have code in single backticks
smartquotes = False  # they would join the dashes of options
highlight_language = "none"  # blocks without a language are output or shell
myst_heading_anchors = 6  # the anchors that GitHub gives headings
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
suppress_warnings = ["ref.python"]  # annotations of inherited fields are plain names, and several modules have a Tensor
toc_object_entries_show_parents = "hide"

_CODE = re.compile(r"`+([^`]+)`+")
_MARKUP = re.compile(r"([\\*|]|(?<=\w)_(?=\W|$)|(?<!\w)_(?=\w))")


def public_names() -> dict[str, list[str]]:
    """Module -> names that users import, from tests/test_public_names.py, where changes of them are noticed."""
    tree = ast.parse((ROOT / "tests" / "test_public_names.py").read_text())
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "STABLE"
    )
    return {
        ".".join(filter(None, ["tilewright", module])): names.split()
        for module, names in ast.literal_eval(table).items()
    }


def found(module: str, name: str) -> object:
    """What `name` stands for in `module`: an attribute or a module below it."""
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        return importlib.import_module(f"{module}.{name}")


def restructured(line: str) -> str:
    """A line of our docstrings, plain text with code in backticks, as reStructuredText."""
    parts, last = [], 0
    for code in _CODE.finditer(line):
        parts += [_MARKUP.sub(r"\\\1", line[last : code.start()]), f"\\ ``{code[1].strip()}``\\ "]
        last = code.end()
    return "".join([*parts, _MARKUP.sub(r"\\\1", line[last:])])


def plain_docstrings(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Our docstrings are plain text: markup characters stand for themselves; indented lines and prompts are code."""
    out: list[str] = []
    literal = False
    for line in lines:
        indented = line.startswith((" ", ">>>", "..."))
        if indented and not literal and line.strip():
            out += ["", "::", ""]
        if line.strip():
            literal = indented or (literal and bool(out[-1].strip()))
        if line.strip() and not literal and out and out[-1].startswith("    "):
            out.append("")
        out.append(f"    {line}" if literal and line.strip() else restructured(line))
    lines[:] = [*out, ""]


class PublicNames(SphinxDirective):
    """Every public name with its signature and docstring, module by module."""

    def run(self) -> list[nodes.Node]:
        """The nodes of the page."""
        homes: dict[int, str] = {}
        parts: list[str] = []
        for module, names in public_names().items():
            parts += [module, "-" * len(module), ""]
            for name in names:
                parts += [*self._entry(module, name, homes), ""]
        return self.parse_text_to_nodes("\n".join(parts), allow_section_headings=True)

    def _entry(self, module: str, name: str, homes: dict[int, str]) -> list[str]:
        value, path = found(module, name), f"{module}.{name}"
        if isinstance(value, ModuleType):
            summary = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
            return [f"Module ``{name}``: {restructured(summary)}" if summary else f"Module ``{name}``."]
        home = getattr(value, "__module__", None) or ""
        if callable(value) and not home.startswith("tilewright"):
            return [f"``{name}`` is that of ``{home}``."]
        if id(value) in homes:
            return [f"``{name}`` is :py:obj:`{homes[id(value)]}`."]
        homes[id(value)] = path
        if inspect.isclass(value):
            return [f".. autoclass:: {path}"]
        if callable(value):
            return [f".. autofunction:: {path}"]
        return [f".. autodata:: {path}", "   :no-value:"]


class Verbs(SphinxDirective):
    """Every verb of the command, by sphinx-click; in the code each is a function `command` of its module."""

    def run(self) -> list[nodes.Node]:
        """The nodes of the page."""
        one = ".. click:: tilewright.cli.{0}:command\n   :prog: tilewright {1}\n   :nested: full\n"
        return self.parse_text_to_nodes(
            "\n".join(one.format(module_of(verb), verb) for verb in VERBS), allow_section_headings=True
        )


def links_within(app: Sphinx, docname: str, source: list[str]) -> None:
    """Pages link to files of the root as GitHub has them; some of these are pages of the site."""
    up = "../" * docname.count("/")
    for name, page in (("CONTRIBUTING", "contributing"), ("CHANGELOG", "changes"), ("SECURITY", "security")):
        source[0] = source[0].replace(f"]({up}../{name}.md", f"]({up}project/{page}.md")
    source[0] = source[0].replace(f"]({up}../{NOTEBOOKS}/README.rst)", f"]({up}{GALLERY}/index.rst)")


def remove_gallery(app: Sphinx, exception: Exception | None) -> None:
    """Remove what the gallery's pages were made of: the site has copies."""
    shutil.rmtree(Path(app.srcdir) / GALLERY, ignore_errors=True)


def setup(app: Sphinx) -> None:
    """Tell Sphinx of the above."""
    app.connect("build-finished", remove_gallery)
    app.connect("source-read", links_within)
    app.add_directive("public-names", PublicNames)
    app.add_directive("verbs", Verbs)
    app.connect("autodoc-process-docstring", plain_docstrings)
