"""What a release promises: licences that allow its use, programs of the same bytes, a script that refuses in time."""

import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
EXTRAS = ("cli", "compiler", "explore", "plots", "demo", "rtl", "synth", "board")  # what users install
ALLOWED = re.compile(r"\b(MIT|BSD|0BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Zlib|CC0|HPND)\b", re.I)
MAIN = "from tilewright.cli.main import main; main()"
REFUSED = re.compile(r"\b(A?GPL|LGPL|SSPL|Proprietary)", re.I)


def licence(found: metadata.Distribution) -> str:
    """All that a distribution says of its licence."""
    said = found.metadata.get_all("Classifier", [])
    texts = [*found.metadata.get_all("License-Expression", []), *found.metadata.get_all("License", [])]
    return " ".join([*texts, *(text for text in said if text.startswith("License ::"))])


def installed(name: str, extras: tuple[str, ...], seen: dict[str, metadata.Distribution]) -> dict:
    """Distribution `name` and all that it needs with `extras`, by name, as far as they are installed."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return seen
    seen[name] = found
    for line in found.requires or ():
        need = Requirement(line)
        wanted = need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if wanted and need.name not in seen:
            installed(need.name, tuple(need.extras), seen)
    return seen


def test_what_users_install_has_licences_that_allow_it():
    found = installed("tilewright", EXTRAS, {})
    assert len(found) > 10
    odd = {name: licence(one)[:80] for name, one in found.items() if not ALLOWED.search(licence(one))}
    odd |= {name: licence(one)[:80] for name, one in found.items() if REFUSED.search(licence(one)[:400])}
    assert not odd


@pytest.mark.circuit
def test_a_program_has_the_same_bytes_in_two_processes(tmp_path):
    pytest.importorskip("tvm")
    network = ROOT / "examples" / "digits" / "digits.onnx"
    for k in range(2):
        command = [sys.executable, "-c", MAIN, "compile", network, "-o", tmp_path / f"{k}.tw"]
        subprocess.run(
            command, check=True, capture_output=True, timeout=300, env={"XDG_CACHE_HOME": str(tmp_path / f"cache{k}")}
        )
    assert (tmp_path / "0.tw").read_bytes() == (tmp_path / "1.tw").read_bytes()


@pytest.mark.parametrize("change, said", [(True, "the working tree has changes"), (False, "no key missing.key")])
def test_the_script_refuses_before_it_begins(tmp_path, change, said):
    if not shutil.which("git"):
        pytest.skip("no git")
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "release", tmp_path / ".ci")
    me = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*me, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    if change:
        (tmp_path / "new").write_text("")
    done = subprocess.run([tmp_path / ".ci" / "release", "missing.key"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and said in done.stderr and not (tmp_path / "build").exists()
