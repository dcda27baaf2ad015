"""Emitted C: which files there are, what is refused before any is written, its header, names and values."""

import ctypes
import json
import re
import subprocess

import numpy as np
import pytest

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import FileError, ProgramError, UnsupportedError
from tilewright.hw.isa import INSTRUCTIONS, Op, entry_bytes, known_isa
from tilewright.hw.regs import registers
from tilewright.runtime.c.emit import emit, sources
from tilewright.runtime.c.header import header
from tilewright.runtime.c.text import array, comment, identifier, wrapped
from tilewright.runtime.executable import Executable
from tilewright.runtime.steps import HostStep, Tensor

CFG = PRESETS["tiny"]
STRICT = "-std=c99 -Wall -Wextra -Wpedantic -Werror".split()


@pytest.fixture
def program(cache):
    return Executable.from_launch(cache().launch)


def test_the_files(program, tmp_path):
    found = emit(program, "net", tmp_path / "c")
    assert {p.name for p in (tmp_path / "c").iterdir()} == {*found, "generated.json"}
    assert {"net.h", "net.c", "net_program.c", "main.c", "Makefile", "tw_hardware.h", "tw_host.h"} <= {*found}
    assert {f"platform_{name}.c" for name in ("sim", "uio", "bare")} <= {*found}
    assert "tw_softmax" not in "".join(found) and "main_generate.c" not in found
    assert Config.from_dict(json.loads((tmp_path / "c" / "config.json").read_text())).fingerprint == CFG.fingerprint


def test_every_file_that_is_included_or_compiled_is_there(program):
    found = {name: data.decode() for name, data in sources(program, "net").items()}
    for name, text in found.items():
        assert {*re.findall(r'^#include "(.*)"', text, re.MULTILINE)} <= {*found}, name
    (listed,) = re.findall(r"^SOURCES := (.*) platform", found["Makefile"], re.MULTILINE)
    assert {*listed.split()} == {n for n in found if n.endswith(".c") and not n.startswith(("main", "platform"))}


def test_a_program_in_a_file_of_its_own(program):
    found = sources(program, "net", binary=True)
    assert "net_program.c" not in found and b"net_program" not in found["main.c"]
    (size,) = re.findall(rb"#define NET_PROGRAM (\d+)u", found["net.h"])
    assert len(found["net.bin"]) == int(size)


def test_the_same_program_gives_the_same_bytes(program, cache):
    assert sources(program, "net") == sources(Executable.from_launch(cache().launch), "net")


@pytest.mark.parametrize("name", ["", "1x", "a-b", "_x", "a b", "ü"])
def test_a_name_that_is_no_identifier_is_refused(name, program, tmp_path):
    with pytest.raises(ProgramError, match="must be letters, digits and _, from a letter on, such as 'network'"):
        emit(program, name, tmp_path / "c")
    assert not (tmp_path / "c").exists()


# standard C, its macros, and what the generated code and the support code call theirs
NAMES = """printf size_t EOF FILE NULL int typedef restrict inline errno stdin I INT8_MAX max assert uint8_t memcpy main
status memory held launches layout program scratch count file t0 t0_data tw_run TW_CLOSED tw_memory network network_run
MEMORY ALIGN H linux unix class"""
HEADERS = "assert complex ctype errno inttypes limits math signal stdbool stdint stdio stdlib string time".split()


# the network's name, and the one that its files have
OWN = {name: name for name in ("network", "size", "int8", "printf", "size_t", "EOF", "FILE", "memory", "t0", "twin")}
TAKEN = ("input", "output_x", "platform", "tw", "TW_x", "main", "String", "features")
OWN |= {name: f"network_{name}" for name in TAKEN}


@pytest.mark.parametrize("name", OWN)
def test_names_of_c_and_of_the_code_compile(gcc, name, tmp_path):
    names = [*NAMES.split(), "1x", "", "ü", "é", "a-b", "a_b", "A_B", "*/ x"]
    tensors = {each: Tensor(each, (2,), "int8", "input") for each in names} | {"out": Tensor("out", (2,), "int8")}
    outputs = {f"{each}.": Tensor(f"{each}.", (2,), "int8", "output") for each in names[:3]}
    steps = [HostStep("s", "concatenate", names, ["all"], {"axis": 0})]
    steps += [HostStep(each, "reshape", [names[0]], [each], {"shape": [2]}) for each in outputs]
    tensors |= {"all": Tensor("all", (2 * len(names),), "int8", "output")} | outputs
    emit(Executable(CFG, "*/ int", tensors, [*steps]), name, tmp_path / "c")
    name = OWN[name]
    headers = "".join(f"#include <{each}.h>\n" for each in HEADERS)
    (tmp_path / "c" / "user.c").write_text(f'{headers}#include "{name}.h"\nint user = {name.upper()}_MEMORY;\n')
    files = [tmp_path / "c" / each for each in (f"{name}.c", f"{name}_program.c", "main.c", "user.c")]
    command = ["gcc", *STRICT, "-fsyntax-only", "-I", tmp_path / "c", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]


def test_nothing_is_written_where_an_operator_has_no_kernel(tmp_path):
    tensors = {name: Tensor(name, (2,), "float32", kind) for name, kind in (("x", "input"), ("y", "output"))}
    program = Executable(
        CFG, "exp", tensors, [HostStep("s", "float_softmax", ["x"], ["y"], {"axis": 0, "logarithm": True})]
    )
    with pytest.raises(UnsupportedError, match="step 's': host operator 'float_softmax' has no C kernel"):
        emit(program, "net", tmp_path / "c")
    assert not [*tmp_path.iterdir()]


def test_words_and_a_binary_are_not_for_each_other(program, tmp_path):
    with pytest.raises(UnsupportedError, match="takes its program from an array, not from a .bin"):
        emit(program, "net", tmp_path / "c", binary=True, tokenizer="words.bin")


def test_a_folder_of_others_is_refused(program, tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(FileError, match="is not empty"):
        emit(program, "net", tmp_path)


def numbers(cfg):
    """Names and values of the header."""
    return dict(re.findall(r"^#define TW_(\w+) ([^/\n]*?)(?: /\*.*)?$", header(cfg), re.MULTILINE))


@pytest.mark.parametrize("cfg", PRESETS.values(), ids=lambda cfg: cfg.name)
def test_numbers_of_the_header_are_those_of_the_declarations(cfg):
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


def test_the_compiler_reads_the_header(gcc, tmp_path):
    (tmp_path / "x.c").write_text(header(PRESETS["pynq_z1"]) + "int x[][8] = TW_ENTRY_BYTES;\n")
    subprocess.run(["gcc", *STRICT, "-fsyntax-only", tmp_path / "x.c"], check=True)


def test_names_comments_and_lines():
    names = {"model/dense;MatMul": "model_dense_MatMul", "1x": "1x", "_": "x", "ü": "x"}
    assert {name: identifier("input", name) for name in names} == {k: f"input_{v}" for k, v in names.items()}
    assert comment("a */ b /* c ??/ d\né") == "/* a * / b / * c ? ?/ d__ */"
    lines = wrapped(str(k) for k in range(200)).splitlines()
    assert len(lines) > 5 and all(len(line) <= 104 for line in lines) and lines[-1].endswith(" 199,")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "float32"])
def test_values(gcc, dtype, tmp_path):
    if dtype == "float32":
        data = np.array([0.1, -0.0, 1e-40, np.inf, -np.inf, 3.4e38], dtype)
    else:
        info = np.iinfo(dtype)
        data = np.array([info.min, info.max, 0, 1, info.min + 1], dtype)
    (tmp_path / "x.c").write_text(f"#include <stdint.h>\n{array('x', data, 'const')}\n")
    subprocess.run(["gcc", *STRICT, "-shared", "-fPIC", "-o", tmp_path / "x.so", tmp_path / "x.c"], check=True)
    library = ctypes.CDLL(str(tmp_path / "x.so"))
    found = (ctypes.c_char * data.nbytes).in_dll(library, "x")
    assert bytes(found) == data.tobytes()
