"""runtime/c/header.py: the numbers of the header are those of the declarations, and C compiles it."""

import re
import subprocess

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import INSTRUCTIONS, Op, entry_bytes, known_isa
from tilewright.hw.regs import registers
from tilewright.runtime.c.header import header


def numbers(cfg):
    """What the header defines."""
    return dict(re.findall(r"^#define TW_(\w+) ([^/\n]*?)(?: /\*.*)?$", header(cfg), re.MULTILINE))


@pytest.mark.parametrize("cfg", PRESETS.values(), ids=lambda cfg: cfg.name)
def test_registers_fields_and_sizes(cfg):
    found = numbers(cfg)
    for register in registers(cfg).values():
        assert int(found[f"REG_{register.name}"].rstrip("u"), 16) == register.offset
    for name, form in known_isa(cfg).formats.items():
        for field in form.fields.values():
            assert int(found[f"{name}_{field.name.upper()}_LO"]) == field.lo
            assert int(found[f"{name}_{field.name.upper()}_BITS"]) == field.bits
    sizes = np.array([int(size) for size in re.findall(r"(\d+)u", found["ENTRY_BYTES"])]).reshape(8, 8)
    assert all(
        sizes[row.op, row.mem.id] == entry_bytes(cfg, row.mem)
        for row in INSTRUCTIONS
        if row.mem is not None and not row.missing(cfg)
    )
    high, low = (int(found[f"FINGERPRINT_{part}"].rstrip("u"), 16) for part in ("HIGH", "LOW"))
    assert high << 32 | low == cfg.fingerprint
    assert int(found["TRANSFERS"].rstrip("u"), 16) == 1 << Op.LOAD | 1 << Op.STORE | 1 << Op.LOADP


def test_no_name_twice_and_no_comment_that_ends_early():
    text = header(PRESETS["pynq_z1_plus"])
    names = re.findall(r"#define (\w+)", text)
    assert len(names) == len(set(names))
    assert all(line.count("/*") == line.count("*/") <= 1 for line in text.splitlines())


def test_the_compiler_reads_it(gcc, tmp_path):
    (tmp_path / "x.c").write_text(header(PRESETS["pynq_z1"]) + "int x[][8] = TW_ENTRY_BYTES;\n")
    flags = "-std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only".split()
    subprocess.run(["gcc", *flags, tmp_path / "x.c"], check=True)
