"""The core's Verilog in a form that Verilator simulates faster: the same circuit, bit by bit and cycle by cycle.

Amaranth writes the next value of a register as a signal of its own, which is the register itself where nothing changes
it; so every register is copied twice in every cycle. Products are wider than what is used of them, and sums with a
carry have a bit more, for the carry chain of an FPGA.
"""

from __future__ import annotations

import re
from collections import Counter

_NAME = r"(?:\\\S+|\w+)"
_REGISTER = re.compile(
    rf"^  always @\(posedge (?P<clock>{_NAME}) ?\)\n    (?P<to>{_NAME}) +<= (?P<next>{_NAME}) ?;\n", re.M
)
_BLOCK = re.compile(r"^  always @\*(?: begin)?\n    if \(\\\$auto\S+ \) begin end\n(?P<body>.*?)^  end\n", re.M | re.S)
_WIDE = re.compile(rf"^  (?P<kind>reg|wire) \[(?P<top>\d+):0\] (?P<name>{_NAME}) ?(?P<init> ?= \d+'h0+)? ?;\n", re.M)
_USE = re.compile(rf"(?P<name>{_NAME}) ?(?:\[(?P<top>\d+)(?::(?P<low>\d+))?\])?")
_COPY = re.compile(rf" +(?P<to>{_NAME}) +(?P<clocked><)?= (?P<value>{_NAME}) ?;$")
_PRODUCT = re.compile(rf"  assign (?P<to>{_NAME}) += \$signed\([^()]+\) \* \$signed\([^()]+\);$")
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
    return "".join(_short_sums(_narrow(_conditional(module))) for module in modules)


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
        copy = _COPY.match(line)
        made = copy if copy and copy["clocked"] else _PRODUCT.match(line)
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
