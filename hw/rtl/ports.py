"""Signatures between the blocks of the core. Each is written as its producer (or initiator) sees it."""

from __future__ import annotations

from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..isa import Mem, depth
from .latencies import groups, multipliers
from .layouts import INDEX_BITS, command_layout, move_layout, push_layout

ADDRESS_BITS = 40  # of a DRAM byte address
BEATS_BITS = 40  # of a request's length; more than any legal program asks for
BYTES_BITS = 8  # of the bytes that one cycle moves


def entry_bits(cfg: Config, mem: Mem) -> int:
    """Bits of an entry as its scratchpad holds it."""
    return {
        Mem.UOP: 32,
        Mem.INP: cfg.inp_entry_bits,
        Mem.WGT: cfg.wgt_entry_bits,
        Mem.ACC: cfg.acc_entry_bits,
        Mem.PAR: 8 * cfg.par_entry_bytes,
    }[mem]


def address_bits(cfg: Config, mem: Mem) -> int:
    """Bits of an entry's index."""
    return (depth(cfg, mem) - 1).bit_length()


def lane_bits(cfg: Config, mem: Mem) -> int:
    """Bits that one write enable covers: one beat, or an entry where that is smaller."""
    return min(entry_bits(cfg, mem), cfg.axi_bits)


def word_bits(cfg: Config, mem: Mem) -> int:
    """Bits of write data: a lane; accumulators that also load int8 take one beat widened to int32."""
    wide = 4 * cfg.axi_bits if mem == Mem.ACC and "acc8" in cfg.extensions else cfg.axi_bits
    return min(entry_bits(cfg, mem), wide)


def group_bits(cfg: Config) -> int:
    """Bits of a group's number."""
    return (groups(cfg) - 1).bit_length()


class SramWrite(wiring.Signature):
    """Write port of the scratchpad of `mem`, taken in every cycle.

    `en` has one bit per lane (`lane_bits`), `addr` is the entry. `data` is `word_bits` wide and repeats over the entry:
    lane k is written with lane k mod (word / lane) of `data`. All zero `en` writes nothing.
    """

    def __init__(self, cfg: Config, mem: Mem):
        super().__init__(
            {
                "en": Out(entry_bits(cfg, mem) // lane_bits(cfg, mem)),
                "addr": Out(address_bits(cfg, mem)),
                "data": Out(word_bits(cfg, mem)),
            }
        )


class SramRead(wiring.Signature):
    """Read port of the scratchpad of `mem`: `data` is the entry `addr` of the cycle before, held while `en` is low."""

    def __init__(self, cfg: Config, mem: Mem):
        super().__init__(
            {"en": Out(1), "addr": Out(address_bits(cfg, mem)), "data": In(unsigned(entry_bits(cfg, mem)))}
        )


class StoreRead(wiring.Signature):
    """STORE's read port of the accumulators: `data` is the entry of the last cycle in which `en` and `ready` were high.

    `ready` does not depend on `en`, but on `addr`: it is low where GEMM or ALU read the same bank.
    """

    def __init__(self, cfg: Config):
        super().__init__(
            {
                "en": Out(1),
                "ready": In(1),
                "addr": Out(address_bits(cfg, Mem.ACC)),
                "data": In(unsigned(cfg.acc_entry_bits)),
            }
        )


class Products(wiring.Signature):
    """ALU's use of the multipliers: in every cycle with `en` the lanes of `group` of the entry `a` enter.

    They are multiplied with those of the entry `b`, or with `rescale` scaled by the parameters of PAR entry `par`. `o`
    are the results of the group that entered a fixed number of cycles before, low 32 bits of each lane.
    """

    def __init__(self, cfg: Config):
        super().__init__(
            {
                "en": Out(1),
                "group": Out(group_bits(cfg)),
                "rescale": Out(1),
                "par": Out(address_bits(cfg, Mem.PAR)),
                "a": Out(cfg.acc_entry_bits),
                "b": Out(cfg.acc_entry_bits),
                "o": In(unsigned(32 * multipliers(cfg))),
            }
        )


class Requantise(wiring.Signature):
    """STORE's use of the multipliers: the lanes of `group` of the entry `a` enter in a cycle with `en` and `ready`.

    `o` are the int8 results under the parameters of PAR entry `par`, in the order of entry, valid with `o_en`.
    """

    def __init__(self, cfg: Config):
        super().__init__(
            {
                "en": Out(1),
                "ready": In(1),
                "group": Out(group_bits(cfg)),
                "par": Out(address_bits(cfg, Mem.PAR)),
                "a": Out(cfg.acc_entry_bits),
                "o_en": In(1),
                "o": In(unsigned(8 * multipliers(cfg))),
            }
        )


class Token(wiring.Signature):
    """One end of a token channel: a token passes in each cycle in which `valid` and `ready` are high.

    The giver holds `valid` until `ready`; a taker may look at `valid` before it decides on `ready`.
    """

    def __init__(self):
        super().__init__({"valid": Out(1), "ready": In(1)})


def command_signature() -> stream.Signature:
    """Instructions from a command queue.

    The unit looks at the first one while it waits for its tokens, and takes it (`ready`) when it takes those: what
    the queue shows is then what the unit is stuck at.
    """
    return stream.Signature(command_layout())


def move_signature() -> stream.Signature:
    """LOADs and LOADPs to a mover, their tokens already taken."""
    return stream.Signature(move_layout())


def push_signature() -> stream.Signature:
    """Executed instructions in order: what they do is in memory, and these tokens are due."""
    return stream.Signature(push_layout())


def request_signature(cfg: Config) -> stream.Signature:
    """Linear reads: `beats` beats (not 0) from beat address `addr` (byte address / bytes of a beat)."""
    low = (cfg.axi_bits // 8 - 1).bit_length()
    return stream.Signature(data.StructLayout({"addr": ADDRESS_BITS - low, "beats": BEATS_BITS}))


def beat_signature(cfg: Config) -> stream.Signature:
    """Data of the requests, in their order; `error` is the bus's answer."""
    return stream.Signature(data.StructLayout({"data": cfg.axi_bits, "error": 1}))


class Fault(wiring.Signature):
    """The first error of a block: `code` (a hw.regs.Error, 0 for none) and the instruction's `index`; both stay."""

    def __init__(self):
        super().__init__({"code": Out(4), "index": Out(INDEX_BITS)})


class Activity(wiring.Signature):
    """What a unit does in this cycle, for the counters, the watchdog and the trace.

    `busy`: an instruction executes; `token_wait`: the next one waits for a token; `memory_wait`: execution waits for
    the bus; `insn`: one instruction was taken; `ended`: the oldest of those taken is over, its results in memory and
    its tokens given; `bytes`: so many bytes were moved; `progress`: anything advanced.
    """

    def __init__(self):
        names = ("busy", "token_wait", "memory_wait", "insn", "ended", "progress")
        super().__init__({**{name: Out(1) for name in names}, "bytes": Out(BYTES_BITS)})


def unit_members() -> dict:
    """Members that every unit has besides its own, for `wiring.Component`.

    `halt`: an error happened, take no further instruction and request no further burst; `idle`: nothing is in flight.
    """
    return {"halt": In(1), "idle": Out(1), "activity": Out(Activity()), "fault": Out(Fault())}
