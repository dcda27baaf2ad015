"""Executables as C sources: a folder with the network, the kernels of its host's steps, platforms and an example."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from ...hw.errors import ProgramError, UnsupportedError
from ..executable import Executable
from . import hostcalls, language
from .folder import write_folder
from .header import NAME as HARDWARE
from .header import header
from .network import Network
from .text import c_type

_FOLDER = Path(__file__).parent / "support"
_RUNTIME = ("tw_platform.h", "tw_registers.h", "tw_runtime.h", "tw_runtime.c")
PLATFORMS = ("sim", "uio", "bare")
CONFIG = "config.json"
# NAME.h, NAME.c or NAME_open exists: headers and functions of C and POSIX, those that glibc's headers include, files of
# the examples, and the file that make would build from NAME.c
_TAKEN = frozenset(
    """aio alloca assert complex cpio ctype dbm devctl dirent dlfcn endian errno fcntl features fenv float fmtmsg
    fnmatch ftw glob grp iconv inttypes iso646 langinfo libgen libintl limits locale main main_generate makefile
    math monetary mq mqueue ndbm netdb nl_types poll pthread pwd regex sched search sem semaphore setjmp shm signal
    spawn stdalign stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string strings
    stropts syslog tar termios tgmath threads time trace uchar ulimit unistd utime utmpx wchar wctype wordexp""".split()
)


def emit(
    executable: Executable,
    name: str,
    folder: str | Path,
    *,
    binary: bool = False,
    tokenizer: str | Path | None = None,
) -> list[str]:
    """Write `executable`, or the first of its entries, as C into `folder`; returns the names of the files.

    Files and functions of the network begin with `name`, or with `network_NAME` if C or another file has that name.
    With `binary` its program and constants are a file, NAME.bin, instead of an array. With the `tokenizer` file of a
    language model there is an example that writes a text. C has no steady launches: each run loads all.

    Raises `UnsupportedError`, before anything is written, for a host operator that has no C kernel, `ProgramError` for
    a name that is no identifier, `FileError` for a folder that cannot be written or holds other files.
    """
    files = sources(executable, name, binary=binary, tokenizer=tokenizer)
    write_folder(folder, files)
    return [*files]


def sources(
    executable: Executable, name: str, *, binary: bool = False, tokenizer: str | Path | None = None
) -> dict[str, bytes]:
    """The files of `emit` by name. Raises as it does."""
    name = _escaped(name)
    check_options(binary, tokenizer)
    executable = executable.first_entry().without_steady()
    network = Network(executable, name)
    texts = {f"{name}.h": network.header(), f"{name}.c": network.source()}
    if not binary:
        texts[f"{name}_program.c"] = network.program()
    kernels = {file: hostcalls.source(file) for file in [hostcalls.HEADER, *network.sources]}
    texts |= kernels | {HARDWARE: header(executable.cfg)}
    support = [*_RUNTIME, *(f"platform_{platform}.c" for platform in PLATFORMS)]
    mains = {"main.c": _main(network, binary)}
    if tokenizer is not None:
        made = language.files(executable, name, tokenizer)
        mains[language.MAIN] = made.pop(language.MAIN)
        texts |= made
        support += language.SUPPORT
    texts |= {file: (_FOLDER / file).read_text("utf-8") for file in support}
    compiled = [f for f in texts if f.endswith(".c") and not f.startswith("platform_")]
    texts |= mains | {"Makefile": _makefile(network, compiled, [main.removesuffix(".c") for main in mains])}
    texts[CONFIG] = json.dumps(executable.cfg.to_dict(), indent=1) + "\n"
    files = {file: text.encode() for file, text in texts.items()}
    if binary:
        files[f"{name}.bin"] = network.plan.image.tobytes()
    return files


def _escaped(name: str) -> str:
    """`name`, or `network_NAME` if it is taken. Raises `ProgramError` for a name that is no identifier of C."""
    if not re.fullmatch(r"(?i)[a-z]\w*", name, re.ASCII):
        raise ProgramError(f"name {name!r}: must be letters, digits and _, from a letter on, such as 'network'")
    taken = name.lower() in _TAKEN or re.match(r"(?i)(tw|platform|input|output)(_|$)", name)
    return f"network_{name}" if taken else name


def check_options(binary: bool, tokenizer: str | Path | None) -> None:
    """Raise `UnsupportedError` for options of `emit` that exclude each other."""
    if binary and tokenizer is not None:
        raise UnsupportedError("the example that writes a text takes its program from an array, not from a .bin")


def _main(network: Network, binary: bool) -> str:
    """An example: inputs from standard input, as they are in memory, outputs to standard output."""
    name, upper, ends = network.name, network.name.upper(), [*network.executable.inputs, *network.executable.outputs]
    arrays = [
        f"static {c_type(t.dtype)} {network.arguments[t.name]}[{upper}_{network.arguments[t.name].upper()}];"
        for t in ends
    ]
    read = [network.arguments[t.name] for t in network.executable.inputs]
    written = [network.arguments[t.name] for t in network.executable.outputs]
    writes = " && ".join(f"fwrite({a}, sizeof {a}, 1, stdout) == 1" for a in written)
    opened = [f"    int status = {name}_open({name}_program);"]
    if binary:
        arrays.append(f"static uint32_t program[({upper}_PROGRAM + 3) / 4];")
        opened = [
            f'    FILE *file = fopen("{name}.bin", "rb");',
            f"    if (file == NULL || fread(program, 1, {upper}_PROGRAM, file) != {upper}_PROGRAM)",
            f'        return fprintf(stderr, "{name}.bin: missing or too short\\n"), 1;',
            "    fclose(file);",
            f"    int status = {name}_open(program);",
        ]
    given = [
        "        size_t count = 0;",
        *(f"        count += fread({a}, 1, sizeof {a}, stdin);" for a in read),
        "        if (count == 0)",
        "            break;",
        f"        if (count != {' + '.join(f'sizeof {a}' for a in read)})",
        '            return fprintf(stderr, "standard input ends within the inputs of a run\\n"), 1;',
    ]
    arguments = ", ".join(network.arguments[t.name] for t in ends)
    return "\n".join(
        [
            "/* Reads inputs from standard input until it ends, and writes the outputs of each: bytes as in memory. */",
            "#include <stdio.h>",
            "",
            f'#include "{name}.h"',
            "",
            *arrays,
            "",
            "int main(void)",
            "{",
            *opened,
            f"    {'while' if read else 'if'} (status == 0) {{",
            *(given if read else ()),
            f"        status = {name}_run({arguments});",
            f"        if (status == 0 && !({writes}))",
            "            return 1;",
            "    }",
            "    if (status != 0)",
            '        fprintf(stderr, "status %d, see tw_platform.h\\n", status);',
            "    return status != 0;",
            "}",
            "",
        ]
    )


def _makefile(network: Network, compiled: list[str], mains: list[str]) -> str:
    size = math.ceil((network.plan.total + network.plan.align) / 4096) * 4096
    built = " ".join(f"build/$(PLATFORM)/{main}" for main in mains)
    names = {"NAME": network.name, "SOURCES": " ".join(compiled), "MAINS": built, "MEMORY": str(size)}
    text = (_FOLDER / "Makefile").read_text("utf-8")
    return re.sub("@([A-Z]+)@", lambda found: names[found[1]], text)
