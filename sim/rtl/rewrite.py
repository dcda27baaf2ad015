"""The core's Verilog in a form that Verilator simulates faster: the same circuit, bit by bit and cycle by cycle.

Amaranth writes the next value of a register as a signal of its own, which is the register itself where nothing changes
it; so every register is copied twice in every cycle. Products are wider than what is used of them, and sums with a
carry have a bit more, for the carry chain of an FPGA.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

_NAME = r"(?:\\\S+|\w+)"
_REGISTER = re.compile(
    rf"^  always @\(posedge (?P<clock>{_NAME}) ?\)\n    (?P<to>{_NAME}) +<= (?P<next>{_NAME}) ?;\n", re.M
)
_BLOCK = re.compile(r"^  always @\*(?: begin)?\n    if \(\\\$auto\S+ \) begin end\n(?P<body>.*?)^  end\n", re.M | re.S)
_WIDE = re.compile(rf"^  (?P<kind>reg|wire) \[(?P<top>\d+):0\] (?P<name>{_NAME}) ?(?P<init> ?= \d+'h0+)? ?;\n", re.M)
_USE = re.compile(rf"(?P<name>{_NAME}) ?(?:\[(?P<top>\d+)(?::(?P<low>\d+))?\])?")
_COPY = re.compile(rf" +(?P<to>{_NAME}) +(?P<clocked><)?= (?P<value>{_NAME}) ?;$")
_PRODUCT = re.compile(rf"  assign (?P<to>{_NAME}) += \$signed\([^()]+\) \* \$signed\([^()]+\);$")
_MORE = re.compile(rf"  assign (?P<to>{_NAME}) += \$signed\((?P<value>{_NAME}) ?\) \+ \$signed\(\d+'h\w+\);$")
_PART = rf"{_NAME} ?(?:\[\d+(?::\d+)?\])?"
_SUM = re.compile(
    rf"  assign (?P<to>{_NAME}) += (?:\$signed\((?P<a>{_PART})\) \+ \$signed\((?P<b>{_PART})\)"
    rf"|(?P<c>{_PART}) \+ (?P<d>{_PART}));$"
)
_PAIR = re.compile(
    rf"^(?P<to> +{_NAME} +<= )\{{ (?P<high>{_NAME}) , (?P<signs>[^{{}}]+), "
    rf"(?P<low>(?P<name>{_NAME})\[(?P<top>\d+):(?P<bit>\d+)\]) \}};$",
    re.M,
)
_JOINED = re.compile(
    rf" +(?P<to>{_NAME}) +<= \(\$signed\((?P<high>{_PART})\) <<< (?P<by>\d+)\) \+ \$signed\({_PART}\);$"
)
_CARRY = re.compile(
    rf"^  assign (?P<name>{_NAME}) +="
    r" \$signed\(\{ (?P<a>[^{}]+?), 1'h1 \}\) \+"
    r" \$signed\((?:\{ (?P<b>[^{}]+), (?P<c>[^{},]+) \}|(?P<whole>[^{}()]+)\[(?P<top>\d+):(?P<low>\d+)\])\);\n",
    re.M,
)
_WORD = 32


def rewritten(verilog: str) -> str:
    """The modules of `verilog`, as `hw.rtl.verilog` writes them, each rewritten; what has another form stays."""
    modules = re.split(r"(?<=^endmodule\n)", verilog, flags=re.M)
    return "".join(_short_sums(_words(_narrow(_joined(_conditional(module))))) for module in modules)


def _conditional(module: str) -> str:
    """Registers that change under conditions, instead of next values that keep the register under none of them."""
    counts = Counter(re.findall(_NAME, module))
    registers = {match["next"]: match for match in _REGISTER.finditer(module)}
    moved: dict[str, str] = {}

    def clocked(block: re.Match[str]) -> str:
        name = re.match(rf" *({_NAME}) ", block["body"])
        register = registers.get(name[1]) if name else None
        if not register:
            return block[0]
        old, to = re.escape(register["next"]), register["to"]
        body, assigned = re.subn(
            rf"^( *){old} *(\[[\d:]+\])? *= ",
            lambda found: f"{found[1]}{to} {found[2] or ''} <= ",
            block["body"],
            flags=re.M,
        )
        if counts[register["next"]] != assigned + 2:  # its declaration, the register, and no reader
            return block[0]
        body = re.sub(rf"\A *{re.escape(to)} +<= {re.escape(to)} ?;\n", "", body)
        moved[register["next"]] = register[0]
        return f"  always @(posedge {register['clock']} ) begin\n{body}  end\n"

    module = _BLOCK.sub(clocked, module)
    for register in moved.values():
        module = module.replace(register, "", 1)
    return re.sub(
        rf"^  reg (?:\[\d+:0\] )?({_NAME}) ?;\n",
        lambda found: "" if found[1] in moved else found[0],
        module,
        flags=re.M,
    )


def _narrow(module: str) -> str:
    """Products, and registers of them, without bits beyond the low 32 where no reader uses these."""
    wide = {m["name"]: m for m in _WIDE.finditer(module) if _WORD <= int(m["top"]) < 2 * _WORD}
    copies: dict[str, set[str]] = {name: set() for name in wide}  # registers that take the whole value
    whole: set[str] = set()  # names of which more is used, or that are made in another way
    for line in module.splitlines() if wide else ():
        if _WIDE.match(line + "\n"):
            continue
        copy = _COPY.match(line) or _MORE.match(line)
        made = copy if copy and (copy.re is _MORE or copy["clocked"]) else _PRODUCT.match(line)
        for use in _USE.finditer(line):
            name = use["name"]
            if name not in wide or (use["top"] and int(use["top"]) < _WORD):
                continue
            if copy and use.start("name") == copy.start("value"):
                copies[name].add(copy["to"])
            elif not made or use.start("name") != made.start("to"):
                whole.add(name)
    narrow = wide.keys() - whole
    while more := {name for name in narrow if not copies[name] <= narrow}:
        narrow -= more

    def declared(found: re.Match[str]) -> str:
        if found["name"] not in narrow:
            return found[0]
        zero = f" = {_WORD}'h0" if found["init"] else ""
        return f"  {found['kind']} [{_WORD - 1}:0] {found['name']} {zero};\n"

    return _WIDE.sub(declared, module)


def _joined(module: str) -> str:
    """`(a << n) + b` for a pair of multiplicands, whose upper part is `a` less the sign of `b`."""
    sums = {m["to"]: m for line in module.splitlines() if (m := _SUM.match(line))}
    widths = _widths(module)

    def made(found: re.Match[str]) -> str:
        high, top, low = sums.get(found["high"]), int(found["top"]), int(found["bit"])
        signs = [sign.strip() for sign in found["signs"].split(",")]
        if not high or not high["a"] or set(signs) != {f"{found['name']}[{top}]"} or high["b"] != signs[0]:
            return found[0]
        if widths[found["high"]] != _width(high["a"], widths) + 1:
            return found[0]
        by = len(signs) + top - low + 1
        return f"{found['to']}($signed({high['a']}) <<< {by}) + $signed({found['low']});"

    return _PAIR.sub(made, module)


def _words(module: str) -> str:
    """Sums of 17 to 31 bits that cannot overflow, and registers of them, as words: nothing is cut and extended."""
    widths = _widths(module)
    wide = {m["name"]: m for m in _WIDE.finditer(module) if _WORD // 2 <= int(m["top"]) < _WORD - 1}
    for port in re.finditer(rf"^  (?:input|output) \[\d+:0\] ({_NAME}) ?;", module, re.M):
        wide.pop(port[1], None)
    if not wide:
        return module
    signs: dict[str, set[bool]] = {name: set() for name in wide}  # how the values of a signal are extended
    copies: dict[str, set[str]] = {name: set() for name in wide}  # of which signals a register takes the value
    other: set[str] = set()  # what is made in another way
    for line in module.splitlines():
        made = re.match(rf" +(?:assign )?(?P<to>{_NAME})(?P<part> ?\[[\d:]+\])? +<?= ", line)
        if not made or made["to"] not in wide:
            continue
        to = made["to"]
        if found := _SUM.match(line):
            a, b = (found["a"], found["b"]) if found["a"] else (found["c"], found["d"])
            fits = max(_width(a, widths), _width(b, widths)) < widths[to]
            signs[to].add(bool(found["a"]))
        elif found := _JOINED.match(line):
            fits = _width(found["high"], widths) + int(found["by"]) < widths[to]
            signs[to].add(True)
        elif (found := _COPY.match(line)) and found["clocked"] and found["value"] in wide:
            fits = True
            copies[to].add(found["value"])
        else:
            fits = False
        if not fits:
            other.add(to)
    words = _extended(wide.keys() - other, signs, copies)
    return "".join(_with_words(line, words, wide) for line in module.splitlines(keepends=True)) if words else module


def _extended(names: set[str], signs: Mapping[str, set[bool]], copies: Mapping[str, set[str]]) -> dict[str, bool]:
    """Those of `names` all of whose values, and values of whose values, are extended alike: True where with signs."""
    found: dict[str, bool] = {}
    while more := {
        name: kinds.pop()
        for name in names - found.keys()
        if copies[name] <= found.keys() and len(kinds := signs[name] | {found[value] for value in copies[name]}) == 1
    }:
        found |= more
    return found


def _with_words(line: str, words: Mapping[str, bool], wide: Mapping[str, re.Match[str]]) -> str:
    """`line` with `words`, True where signed, as words: a reader that does not extend them takes their bits."""
    declared = _WIDE.match(line)
    if declared:
        if declared["name"] not in words:
            return line
        zero = f" = {_WORD}'h0" if declared["init"] else ""
        return f"  {declared['kind']} [{_WORD - 1}:0] {declared['name']} {zero};\n"
    text = line.rstrip("\n")
    copy = _COPY.match(text)
    total, product = _SUM.match(text), _PRODUCT.match(text)

    def used(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in words or found["top"] or text[: found.start()].endswith("."):  # `.name(`: a port
            return found[0]
        made = re.match(rf" +(?:assign )?{re.escape(name)} +<?= ", text)
        if made and found.end("name") <= made.end():
            return found[0]
        if copy and copy["clocked"] and copy["to"] in words:
            return found[0]
        extends = (total and bool(total["a"]) == words[name]) or (product and words[name])
        return found[0] if extends else f"{name} [{wide[name]['top']}:0] "

    return _USE.sub(used, line)


def _widths(module: str) -> dict[str, int]:
    """Bits of every signal and port of more than one."""
    found = re.finditer(rf"^  (?:reg|wire|input|output) \[(\d+):0\] ({_NAME}) ?[;=]", module, re.M)
    return {m[2]: int(m[1]) + 1 for m in found}


def _width(part: str, widths: Mapping[str, int]) -> int:
    """Bits of a signal, or of a part of one."""
    found = _USE.match(part)
    assert found is not None
    if found["top"]:
        return int(found["top"]) - int(found["low"] or found["top"]) + 1
    return widths.get(found["name"], 1)


def _short_sums(module: str) -> str:
    """`a + b + carry` instead of the sum of 2a + 1 and 2b + carry, where its last bit is not used."""
    sums = {m["name"]: m for m in _CARRY.finditer(module)}
    tops: dict[str, int] = {}
    for found in re.finditer(rf"^  wire \[(\d+):0\] ({_NAME}) ?;\n", module, re.M):
        tops[found[2]] = int(found[1])
    used = Counter(m["name"] for m in _USE.finditer(module) if m["name"] in sums)
    above = Counter(
        m["name"]
        for m in _USE.finditer(module)
        if m["name"] in sums and m["low"] == "1" and m["top"] == str(tops.get(m["name"]))
    )
    bits = set(re.findall(rf"^  (?:wire|reg) ({_NAME}) ", module, re.M))
    short = {name for name in sums if name in tops and used[name] == above[name] + 2 and _is_bit(sums[name]["c"], bits)}

    def made(found: re.Match[str]) -> str:
        if found["name"] not in short:
            return found[0]
        b, c = found["b"], found["c"]
        if found["whole"]:
            name, low = found["whole"], int(found["low"])
            b, c = f"{name}[{found['top']}:{low + 1}]", f"{name}[{low}]"
        return (
            f"  assign {found['name']} = $signed({{ {found['a']} }}) + $signed({{ {b} }}) + $signed({{ 1'h0, {c} }});\n"
        )

    module = _CARRY.sub(made, module)
    return re.sub(
        rf"^  wire \[(\d+):0\] ({_NAME}) ?;\n",
        lambda found: f"  wire [{found[1]}:1] {found[2]} ;\n" if found[2] in short else found[0],
        module,
        flags=re.M,
    )


def _is_bit(text: str | None, bits: set[str]) -> bool:
    """True for a bit of a signal, a name in `bits`, the signals of one bit, and None, the lowest bit of several."""
    return text is None or text.strip() in bits or bool(re.fullmatch(rf"{_NAME} ?\[\d+\] ?", text))
