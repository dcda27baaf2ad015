"""Interfaces between the blocks of the core: layouts of words and signatures of ports.

Layouts are views of the declarations in hw/isa. A signature is written as its producer (or initiator) sees it.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value, ValueLike, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, PureInterface

from ..config import Config
from ..isa import OPERATIONS, SECOND_SPACE, AluOp, Format, Isa, Mem, depth, room
from ..regs import Error
from ..units import units
from .latencies import groups, multipliers

INDEX_BITS = 32  # position of an instruction in its program


def format_layout(fmt: Format) -> data.FlexibleLayout:
    """The fields of `fmt` at their positions in its word."""
    return data.FlexibleLayout(
        fmt.width,
        {f.name: data.Field(signed(f.bits) if f.signed else unsigned(f.bits), f.lo) for f in fmt.fields.values()},
    )


def insn_layout(cfg: Config, name: str) -> data.FlexibleLayout:
    """The 128-bit word of format `name` (`LOAD`, `GEMM`, ...) in configuration `cfg`."""
    return format_layout(Isa(cfg).formats[name])


def in_second_space(cfg: Config, word: Value) -> Value:
    """1 where the ALU instruction `word` has the format ALUX."""
    plain, second = (data.View(insn_layout(cfg, name), word) for name in ("ALU", "ALUX"))
    return (plain.alu_op == AluOp.REDUCE) & (second.alu_op >= SECOND_SPACE)


def op_bits(cfg: Config) -> int:
    """Bits of the number of an ALU operation in the circuit of `cfg`."""
    extended = [row.op for row in OPERATIONS.values() if cfg.extensions.issuperset(row.extensions)]
    return max(SECOND_SPACE - 1, *extended).bit_length()


def operation_of(cfg: Config, word: Value) -> tuple[Value, Value]:
    """(number, immediate) of the ALU instruction `word`."""
    plain, second = (data.View(insn_layout(cfg, name), word) for name in ("ALU", "ALUX"))
    if op_bits(cfg) == len(plain.alu_op):
        return plain.alu_op, plain.imm
    beyond = in_second_space(cfg, word)
    return Mux(beyond, second.alu_op, plain.alu_op)[: op_bits(cfg)], Mux(beyond, second.imm, plain.imm)


def uop_layout(cfg: Config) -> data.FlexibleLayout:
    """The 32-bit micro-op of configuration `cfg`."""
    return format_layout(Isa(cfg).uop)


def command_layout() -> data.StructLayout:
    """An entry of a command queue: the instruction word and its position in the program."""
    return data.StructLayout({"insn": 128, "index": INDEX_BITS})


def watch_layout(cfg: Config) -> data.StructLayout:
    """Signals of one cycle for an observer of a program (sim/rtl/watch.py): events, then counted conditions.

    Events of instructions: `start`: fetching starts; `<unit>_taken`: the unit takes one from its queue; `<unit>_ended`:
    its oldest one ends. Counted from `product` on: `product`: an issue of GEMM or DWGEMM leaves the sequencer; the
    reason why the head of the unit's queue waits, `<unit>_token` or `<unit>_unit`; `<unit>_memory`: execution waits for
    the bus; `store_bank`: STORE waits for its accumulators or the multipliers.
    """
    events = (f"{unit.name}_{what}" for unit in units(cfg) for what in ("taken", "ended"))
    counted = (f"{unit.name}_{what}" for unit in units(cfg) for what in ("token", "unit", "memory"))
    return data.StructLayout({"start": 1, **dict.fromkeys((*events, "product", *counted, "store_bank"), 1)})


def push_layout() -> data.StructLayout:
    """Tokens that an executed instruction gives."""
    return data.StructLayout({"push_prev": 1, "push_next": 1})


def move_layout() -> data.StructLayout:
    """One LOAD or LOADP for a mover: the fields of the instruction, widened to the larger format of the two."""
    pads = dict.fromkeys(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), 4)
    return data.StructLayout(
        {
            "mem": 3,
            "sram_base": 16,
            "dram_base": 32,
            "y_size": 16,
            "x_size": 16,
            "x_stride": 16,
            **pads,
            "pad_value": signed(8),
            "push": push_layout(),
            "index": INDEX_BITS,
        }
    )


Event = tuple[ValueLike, ValueLike, ValueLike]  # whether it happens in this cycle, its code, its instruction's index


def keep_first(m: Module, fault: PureInterface, *events: Event) -> None:
    """Keep in `fault`, a `Fault` of which the block is the source, the first of `events`.

    Of several in one cycle it is the one that is named first.
    """
    with m.If(fault.code == Error.NONE):
        for happens, code, index in reversed(events):
            with m.If(happens):
                m.d.sync += [fault.code.eq(code), fault.index.eq(index)]


def keep_first_seen(m: Module, fault: PureInterface, *events: Event) -> None:
    """`keep_first` one cycle later: it keeps a register of the events, so that no comparison delays what it enables."""
    seen, code, index = Signal(), Signal.like(fault.code), Signal.like(fault.index)
    *earlier, (happens, its_code, its_index) = events
    m.d.sync += [seen.eq(happens), code.eq(its_code), index.eq(its_index)]
    for happens, its_code, its_index in reversed(earlier):
        with m.If(happens):
            m.d.sync += [seen.eq(1), code.eq(its_code), index.eq(its_index)]
    keep_first(m, fault, (seen, code, index))


def fault_of(fault: PureInterface) -> Event:
    """The `fault` of a part of a block as an event for `keep_first`."""
    return fault.code != Error.NONE, fault.code, fault.index


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
        Mem.TWGT: cfg.twgt_entry_bits,
        Mem.TUOP: 32,
    }[mem]


def address_bits(cfg: Config, mem: Mem) -> int:
    """Bits of an entry's index."""
    return (depth(cfg, mem) - 1).bit_length()


def lane_bits(cfg: Config, mem: Mem) -> int:
    """Bits that one write enable covers: one beat, or an entry where that is smaller."""
    return min(entry_bits(cfg, mem), cfg.axi_bits)


def word_bits(cfg: Config, mem: Mem) -> int:
    """Bits of write data: a lane; of what is also loaded with narrower elements, a beat of these at full width."""
    widened = {Mem.ACC: ("acc8", 4), Mem.WGT: ("wgt4", 2)}
    extension, times = widened.get(mem, ("", 1))
    return min(entry_bits(cfg, mem), cfg.axi_bits * (times if extension in cfg.extensions else 1))


def plane_bits(cfg: Config) -> int:
    """Bits of a place in a plane of the accumulators."""
    return (cfg.plane_depth - 1).bit_length()


def group_bits(cfg: Config) -> int:
    """Bits of a group's number."""
    return (groups(cfg) - 1).bit_length()


class SramWrite(wiring.Signature):
    """Write port of the scratchpad of `mem`, taken in every cycle.

    Members:
        en: out, one bit per lane (`lane_bits`); all zero writes nothing
        addr: out, the entry; entries of tables follow the parameters of PAR
        data: out, `word_bits` that repeat over the entry: lane k is written with lane k mod (word / lane) of them
    """

    def __init__(self, cfg: Config, mem: Mem):
        super().__init__(
            {
                "en": Out(entry_bits(cfg, mem) // lane_bits(cfg, mem)),
                "addr": Out((room(cfg, mem) - 1).bit_length()),
                "data": Out(word_bits(cfg, mem)),
            }
        )


class SramRead(wiring.Signature):
    """Read port of the scratchpad of `mem`.

    Members:
        en: out, read
        addr: out, the entry
        data: in, the entry that was read last
    """

    def __init__(self, cfg: Config, mem: Mem):
        super().__init__(
            {"en": Out(1), "addr": Out(address_bits(cfg, mem)), "data": In(unsigned(entry_bits(cfg, mem)))}
        )


class AccumulatorRead(wiring.Signature):
    """The pipeline's read port of the accumulators.

    Members:
        en: out, one bit per bank: read there; straight from registers, as STORE's reads wait for it
        addr: out, the entry, in that bank
        data: in, the entry that was read last, if it is in the lower half of the banks, and if it is in the upper half;
            whoever reads chooses it, in the same gate as among others
        upper: in, it is in the upper half
    """

    def __init__(self, cfg: Config):
        entries = data.ArrayLayout(entry_bits(cfg, Mem.ACC), 2)
        addr = address_bits(cfg, Mem.ACC)
        super().__init__({"en": Out(cfg.acc_banks), "addr": Out(addr), "data": In(entries), "upper": In(1)})


class TernaryRead(wiring.Signature):
    """Unit ternary's read port of the accumulators: one place of a bank, in all of its planes at once.

    Members:
        en: out, one bit per bank: read there; straight from registers, as STORE's reads wait for it
        addr: out, the place in each plane of that bank
        data: in, the entries that were read last, that of the first plane lowest
    """

    def __init__(self, cfg: Config):
        super().__init__(
            {
                "en": Out(cfg.acc_banks),
                "addr": Out(plane_bits(cfg)),
                "data": In(unsigned(cfg.ternary_blocks * cfg.acc_entry_bits)),
            }
        )


class TernaryWrite(wiring.Signature):
    """Unit ternary's write port of the accumulators, taken in every cycle.

    Members:
        en: out, one bit per bank: write there, in all of its planes; at most one
        addr: out, the place in each plane
        data: out, the entries, the first plane in the lowest bits
    """

    def __init__(self, cfg: Config):
        super().__init__(
            {
                "en": Out(cfg.acc_banks),
                "addr": Out(plane_bits(cfg)),
                "data": Out(cfg.ternary_blocks * cfg.acc_entry_bits),
            }
        )


class InputRead(wiring.Signature):
    """Read port of the inputs.

    Members:
        en, addr, data: those of `SramRead`
        near: in, the `row_taps - 1` entries behind the one that was read last; with extension `depthwise_rows`
    """

    def __init__(self, cfg: Config):
        near = (cfg.row_taps - 1) * entry_bits(cfg, Mem.INP)
        members = SramRead(cfg, Mem.INP).members
        super().__init__({**members, **({"near": In(unsigned(near))} if near else {})})


class StoreRead(wiring.Signature):
    """STORE's read port of the accumulators.

    Members:
        en: out, read
        ready: in, the bank of `addr` is free: neither GEMM nor ALU reads it; does not depend on `en`
        addr: out, the entry
        data: in, the entry of the last cycle in which `en` and `ready` were high
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
    """ALU's use of the multipliers: in every cycle with `en` one group of lanes enters.

    Members:
        en: out, lanes enter
        group: out, their group
        rescale: out, scale `a` by parameters; else multiply it with `b`
        par: out, PAR entry of the parameters
        a, b: out, entries
        o: in, results of the group that entered a fixed number of cycles before, low 32 bits of each lane
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
    """STORE's use of the multipliers: in a cycle with `en` and `ready` one group of lanes enters.

    Members:
        en: out, lanes wait to enter
        ready: in, they may
        group: out, their group
        par: out, PAR entry of their parameters
        a: out, their entry
        o_en: in, results leave, in the order in which lanes entered
        o: in, int8 results
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

    Members:
        valid: out, a token is offered; stays high until `ready`
        ready: in, it is taken; may depend on `valid`
    """

    def __init__(self):
        super().__init__({"valid": Out(1), "ready": In(1)})


def command_signature() -> stream.Signature:
    """Instructions from a command queue.

    The unit looks at the first one while it waits for its tokens, and takes it (`ready`) when it takes those: so a unit
    that is stuck shows its instruction at the head of its queue.
    """
    return stream.Signature(command_layout())


def move_signature() -> stream.Signature:
    """LOADs and LOADPs to a mover, their tokens already taken."""
    return stream.Signature(move_layout())


def push_signature() -> stream.Signature:
    """Executed instructions in order: their results are in memory, and these tokens are due."""
    return stream.Signature(push_layout())


def request_signature(cfg: Config) -> stream.Signature:
    """Linear reads: `beats` beats (not 0) from beat address `addr` (byte address / bytes of a beat)."""
    low = (cfg.axi_bits // 8 - 1).bit_length()
    return stream.Signature(data.StructLayout({"addr": ADDRESS_BITS - low, "beats": BEATS_BITS}))


def beat_signature(cfg: Config) -> stream.Signature:
    """Data of the requests, in their order; `error` is the bus's answer."""
    return stream.Signature(data.StructLayout({"data": cfg.axi_bits, "error": 1}))


def word_signature(cfg: Config, width: int) -> stream.Signature:
    """Data of the requests of a client that takes `width` beats at once; `last` marks the end of a burst."""
    return stream.Signature(data.StructLayout({"data": width * cfg.axi_bits, "error": 1, "last": 1}))


class Fault(wiring.Signature):
    """The first error of a block, which stays.

    Members:
        code: out, a `hw.regs.Error`, 0 for none
        index: out, position of its instruction in the program
    """

    def __init__(self):
        super().__init__({"code": Out(4), "index": Out(INDEX_BITS)})


class Activity(wiring.Signature):
    """A unit's activity in this cycle, for the counters, the watchdog and the trace.

    Members:
        busy: out, an instruction executes
        token_wait: out, the next instruction waits for a token
        memory_wait: out, execution waits for the bus
        insn: out, an instruction was taken
        ended: out, the oldest of those taken has ended: its results are in memory and its tokens given
        bytes: out, bytes that were moved
        progress: out, anything advanced
    """

    def __init__(self):
        names = ("busy", "token_wait", "memory_wait", "insn", "ended", "progress")
        super().__init__({**{name: Out(1) for name in names}, "bytes": Out(BYTES_BITS)})


def unit_members() -> dict[str, wiring.Member]:
    """Members that every unit has besides its own, for `wiring.Component`.

    Members:
        halt: in, an error happened: take no further instruction, request no further burst
        idle: out, nothing is in flight
        activity: out, for counters and watchdog
        fault: out, the first error
    """
    return {"halt": In(1), "idle": Out(1), "activity": Out(Activity()), "fault": Out(Fault())}


def register(m: Module, enable: Value, value: Value, name: str, domain: str = "sync") -> Signal:
    """`value` a cycle of `domain` later, while `enable` is 1."""
    out = Signal(value.shape(), name=name, reset_less=True)
    with m.If(enable):
        m.d[domain] += out.eq(value)
    return out
