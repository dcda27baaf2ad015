"""Makes notebooks of the scripts in examples/gallery, as the site has them, and runs each in a Jupyter kernel.

`python docs/notebooks.py FOLDER` writes them to FOLDER with what their cells show. A cell that fails ends it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from sphinx_gallery.notebook import python_to_jupyter_cli

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "examples" / "gallery"
_SECONDS = 300  # of one cell


def made(folder: Path) -> list[Path]:
    """A notebook in `folder` for every script of the gallery."""
    scripts = [Path(shutil.copy(path, folder)) for path in sorted(GALLERY.glob("*.py"))]
    python_to_jupyter_cli(list(map(str, scripts)))
    for script in scripts:
        script.unlink()
    return [script.with_suffix(".ipynb") for script in scripts]


def run(path: Path) -> None:
    """Run a notebook in the repository's root, and write it back. Raises `CellExecutionError`."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(ROOT)}}
    NotebookClient(notebook, timeout=_SECONDS, kernel_name="python3", resources=where).execute()
    nbformat.write(notebook, path)


def main(folder: str) -> None:
    """Make and run all of them."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path in made(Path(folder)):
        run(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
