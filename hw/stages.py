"""Latency and interval of every stage of the core, from the constants that it is built from (hw/rtl/latencies.py)."""

from __future__ import annotations

from typing import NamedTuple

from .config import Config
from .isa import INSN_BYTES, INSTRUCTIONS, Queue
from .rtl import latencies as lat
from .units import striped, stripes

_LOADED = {row.mem for row in INSTRUCTIONS if row.queue == Queue.LOAD}


class Stage(NamedTuple):
    """`latency` cycles from what goes in to what comes out, a new one every `interval` cycles."""

    block: str
    what: str
    latency: int
    interval: int
    unit: str


_Row = tuple[str, str, int, int, str]


def beats(cfg: Config, nbytes: int) -> int:
    """Beats of `nbytes` of data that start with one."""
    return -(-nbytes * 8 // cfg.axi_bits)


def stages(cfg: Config) -> list[Stage]:
    """All stages, in the order in which data meet them."""
    entry = "accumulator entry"
    issue, multiplied = lat.issue_latency(cfg), lat.multiply_latency(cfg)
    same_bank = lat.issue_interval(cfg, tensor=True, same_bank=True)
    spread = stripes(cfg) > 1
    multiply, dependent = lat.issue_interval(cfg, multiply=True), lat.multiply_interval(cfg)
    every: list[_Row] = [
        ("csr", "register access to its response", lat.RESPONSE_LATENCY, lat.ACCESS_INTERVAL, "access"),
        ("control", "CONTROL's start to the fetch unit's", lat.START_LATENCY, 1, "run"),
        ("read_port", "request to the address of its first burst", lat.REQUEST_LATENCY, 1, "burst"),
        ("read_port", "beat on the bus to its client", lat.BEAT_LATENCY, 1, "beat"),
        *([("stripes", "request to its first burst at a port", lat.SPLIT_LATENCY, 1, "burst")] if spread else []),
        ("fetch", "last beat to the command queue", lat.FETCH_LATENCY, beats(cfg, INSN_BYTES), "instruction"),
        ("fifo", "command queue", lat.FIFO_LATENCY, 1, "instruction"),
        ("tokens", "push of a token to its pop", lat.TOKEN_LATENCY, 1, "token"),
        ("mover", "command to its first request", lat.PLAN_LATENCY, 1, "row"),
        ("mover", "command to its token, nothing to move", lat.NOTHING_LATENCY, 1, "command"),
        ("mover", "beat to the scratchpad's write port", lat.WRITE_LATENCY, 1, "beat"),
        ("scratchpad", "address to entry", lat.SCRATCHPAD_LATENCY, 1, "entry"),
        ("scratchpad", "... of inputs and weights", lat.OPERAND_LATENCY, 1, "entry"),
        ("sequencer", "instruction to its first micro-op issue", lat.SEQUENCER_LATENCY, 1, "micro-op"),
        ("sequencer", "... instructions of one micro-op", lat.SEQUENCER_LATENCY, lat.JOB_INTERVAL, "instruction"),
        ("gemm", "operands to sums", lat.array_latency(cfg), 1, "micro-op"),
        ("pipeline", "micro-op issue to the write of its accumulators", issue, 1, "micro-op"),
        ("pipeline", "... ALU, tensor operand in the same bank", issue, same_bank, "micro-op"),
        ("pipeline", "... ALU MUL, RESCALE", multiplied, multiply, "micro-op"),
        ("pipeline", "... that reads the product before", multiplied, dependent, "micro-op"),
        *_multipliers(cfg, entry),
        *_ternary(cfg),
        ("store", "instruction to its first row", lat.ROW_LATENCY, 1, "row"),
        ("store", "row to the address of its first burst", lat.STORE_ADDRESS_LATENCY, 1, "burst"),
        ("store", "row to its first beat", lat.STORE_DATA_LATENCY, _stored(cfg), entry),
    ]
    if "requant" in cfg.extensions:
        interval = max(_stored(cfg), lat.groups(cfg))
        every.append(("store", "... requantised", lat.quantised_data_latency(cfg), interval, entry))
    return [Stage(*row) for row in every]


def _multipliers(cfg: Config, entry: str) -> list[_Row]:
    groups, functions = lat.groups(cfg), lat.has_functions(cfg)
    if "requant" not in cfg.extensions:
        return [("alu", "multiplier: operands to products", lat.MULTIPLIER_LATENCY, groups, entry)]
    return [
        ("rescale", "operands to products and scaled values", lat.RESCALE_LATENCY, groups, entry),
        ("rescale", "accumulators to int8", lat.REQUANTISE_LATENCY, groups, entry),
        ("ppu", "accumulators to int8, all of the entry", lat.ppu_latency(cfg), groups, entry),
        *([("functions", "operands to values of LOOKUP and REDUCE", lat.RESCALE_LATENCY, groups, entry)] * functions),
    ]


def _ternary(cfg: Config) -> list[_Row]:
    if "ternary" not in cfg.units:
        return []
    begin, sums, issue = lat.TERNARY_SEQUENCER_LATENCY, lat.ternary_array_latency(cfg), lat.ternary_latency(cfg)
    return [
        ("ternary", "instruction to its first micro-op issue", begin, 1, "micro-op"),
        ("ternary", "... instructions of one micro-op", begin, lat.JOB_INTERVAL, "instruction"),
        ("ternary", "operands to sums", sums, 1, "micro-op"),
        ("ternary", "micro-op issue to the write of its accumulators", issue, 1, "micro-op"),
    ]


def _stored(cfg: Config) -> int:
    return max(1, cfg.out_entry_bits // cfg.axi_bits)


def table(cfg: Config) -> str:
    """The stages of `cfg` as a Markdown table."""
    lines = ["| block | from, to | latency | interval |", "| --- | --- | --- | --- |"]
    for s in stages(cfg):
        per = f"{s.interval} per {s.unit}"
        lines.append(f"| `{s.block}` | {s.what} | {s.latency} | {per} |")
    return "\n".join(lines)


def bus_bits(cfg: Config, mem: int) -> int:
    """Bits that a transfer of `mem` moves at once: the load unit's beats are those of all its ports."""
    return (striped(cfg) if mem in _LOADED else cfg).axi_bits
