"""Latency and interval of every stage of the core, from the constants of the modules that have them."""

from __future__ import annotations

from typing import NamedTuple

from .config import Config
from .isa import INSN_BYTES, Mem, entry_bytes
from .rtl import control, csr, fetch, fifo, read_port, scratchpad
from .rtl import tokens as dependence
from .rtl.compute import alu, gemm, rescale, sequencer
from .rtl.compute import pipeline as execute
from .rtl.load import mover
from .rtl.ports import groups
from .rtl.store import ppu, rows
from .rtl.store import unit as store


class Stage(NamedTuple):
    """`latency` cycles from what goes in to what comes out, a new one every `interval` cycles."""

    block: str
    what: str
    latency: int
    interval: int
    unit: str


def beats(cfg: Config, nbytes: int) -> int:
    """Beats of `nbytes` of data that start with one."""
    return -(-nbytes * 8 // cfg.axi_bits)


def nop_latency() -> int:
    """Cycles from the command to the token of a LOAD that moves nothing, on the load queue."""
    return mover.TILE_LATENCY + fifo.FIFO_LATENCY + mover.WALK_LATENCY + mover.WRITE_LATENCY


def stages(cfg: Config) -> list[Stage]:
    """All stages, in the order in which data meet them."""
    entry = "accumulator entry"
    every = [
        ("csr", "register access to its response", csr.RESPONSE_LATENCY, csr.ACCESS_INTERVAL, "access"),
        ("control", "CONTROL's start to the fetch unit's", control.START_LATENCY, 1, "run"),
        ("read_port", "request to the address of its first burst", read_port.REQUEST_LATENCY, 1, "burst"),
        ("read_port", "beat on the bus to its client", read_port.BEAT_LATENCY, 1, "beat"),
        ("fetch", "last beat to the command queue", fetch.FETCH_LATENCY, beats(cfg, INSN_BYTES), "instruction"),
        ("fifo", "command queue", fifo.FIFO_LATENCY, 1, "instruction"),
        ("dependence", "push of a token to its pop", dependence.TOKEN_LATENCY, 1, "token"),
        ("mover", "command to its first request", mover.PLAN_LATENCY, 1, "row"),
        ("mover", "command to its token, nothing to move", nop_latency(), 1, "command"),
        ("mover", "beat to the scratchpad's write port", mover.WRITE_LATENCY, 1, "beat"),
        ("scratchpad", "address to entry", scratchpad.READ_LATENCY, 1, "entry"),
        ("sequencer", "instruction to its first issue", sequencer.LATENCY, 1, "issue"),
        ("sequencer", "... instructions of one issue", sequencer.LATENCY, sequencer.JOB_INTERVAL, "instruction"),
        ("gemm", "operands to sums", gemm.latency(cfg), 1, "issue"),
        ("execute", "issue to the write of its accumulators", execute.latency(cfg), 1, "issue"),
        ("execute", "... ALU, tensor operand in the same bank", execute.latency(cfg), _same_bank(cfg), "issue"),
        ("execute", "... ALU MUL, RESCALE", execute.multiply_latency(cfg), _multiply(cfg), "issue"),
        ("execute", "... that reads the product before", execute.multiply_latency(cfg), _dependent(cfg), "issue"),
        *_multipliers(cfg, entry),
        ("store", "instruction to its first row", rows.PLAN_LATENCY, 1, "row"),
        ("store", "row to the address of its first burst", store.ADDRESS_LATENCY, 1, "burst"),
        ("store", "row to its first beat", store.DATA_LATENCY, _stored(cfg), entry),
    ]
    if "requant" in cfg.extensions:
        interval = max(_stored(cfg), groups(cfg))
        every.append(("store", "... requantised", store.quantised_latency(cfg), interval, entry))
    return [Stage(*row) for row in every]


def _same_bank(cfg: Config) -> int:
    return execute.issue_interval(cfg, tensor=True, same_bank=True)


def _multiply(cfg: Config) -> int:
    return execute.issue_interval(cfg, multiply=True)


def _dependent(cfg: Config) -> int:
    return execute.multiply_interval(cfg)


def _multipliers(cfg: Config, entry: str) -> list[tuple]:
    if "requant" not in cfg.extensions:
        return [("alu", "multiplier: operands to products", alu.PRODUCT_LATENCY, groups(cfg), entry)]
    return [
        ("rescale", "operands to products and scaled values", rescale.LATENCY, groups(cfg), entry),
        ("rescale", "accumulators to int8", rescale.REQUANTISE_LATENCY, groups(cfg), entry),
        ("ppu", "accumulators to int8, all of the entry", ppu.latency(cfg), groups(cfg), entry),
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


def load_interval(cfg: Config, mem: Mem) -> int:
    """Cycles in which the mover writes one entry of `mem`, when its data are there."""
    return max(1, 8 * entry_bytes(cfg, mem) // cfg.axi_bits)
