"""hw/units.py: what is declared, typed here once more; and a toy unit, declared for the test, that reaches everything.

The toy has a row in the table of units and one in that of instructions. Nothing else is told of it: registers, circuit,
models, driver and programs find it there.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tests.hw.bench import script, simulate
from tilewright.boards.zynq.driver import NamedRegisters, PynqDevice
from tilewright.hw import units as declared
from tilewright.hw.config import ISA_VERSION, PRESETS, Config
from tilewright.hw.errors import ConfigError, DeadlockError, ProgramError, TokenError
from tilewright.hw.isa import FLAGS, Instruction, Isa, Mem, Op, Queue, table
from tilewright.hw.metrics import COUNTERS, counters
from tilewright.hw.regs import MAGIC, REGISTERS, registers
from tilewright.hw.units import (
    Channel,
    Unit,
    absent_flags,
    between,
    channels,
    connected,
    queues,
    readers,
    striped,
    stripes,
    units,
)
from tilewright.runtime.access import Access
from tilewright.runtime.program import Program
from tilewright.runtime.session import Session, taken, waiting
from tilewright.runtime.tokens import Row, insert_tokens
from tilewright.runtime.verify import verify
from tilewright.sim.model import device as model
from tilewright.sim.model.device import ModelDevice, Node, schedule

TINY = PRESETS["tiny"]
LOAD, COMPUTE, STORE = Queue.LOAD, Queue.COMPUTE, Queue.STORE


def member(enum, number, name):
    """What a further line of `enum` would make."""
    one = int.__new__(enum, number)
    one._name_, one._value_ = name, number
    return one


TOY = member(Queue, 3, "TOY")
RUN_TOY = Instruction(member(Op, 7, "TOYGEMM"), None, "GEMM", TOY, loops=True, nop=True)


@pytest.fixture
def two(monkeypatch):
    """A configuration with the toy beside gemm."""
    monkeypatch.setitem(declared.COMPUTE_UNITS, "toy", Unit("toy", TOY, buffer=32, port=0))
    monkeypatch.setattr(table, "INSTRUCTIONS", (*table.INSTRUCTIONS, RUN_TOY))
    monkeypatch.setitem(table._BY_OP, 7, {None: RUN_TOY})
    monkeypatch.setattr(table, "_ROWS", table._ROWS | {(7, mem): RUN_TOY for mem in table._IDS})
    return TINY.replace(name="two", units=["gemm", "toy"])


def shown(every):
    return " ".join(f"{c.source.name}->{c.target.name}:{c.push}/{c.pop}" for c in every)


BASE = (
    "LOAD->COMPUTE:push_next/pop_prev COMPUTE->LOAD:push_prev/pop_next "
    "COMPUTE->STORE:push_next/pop_prev STORE->COMPUTE:push_prev/pop_next"
)


def test_the_units_of_every_preset():
    ternary = [cfg for cfg in PRESETS.values() if "ternary" in cfg.units]
    for cfg in PRESETS.values():
        names = [("load", "LOAD"), ("compute", "COMPUTE"), ("store", "STORE")]
        if cfg in ternary:
            names.append(("ternary", "TERNARY"))
        assert [(unit.name, unit.queue.name) for unit in units(cfg)] == names
        if cfg in ternary:
            assert not any(absent_flags(cfg, queue) for queue in queues(cfg)) and len(channels(cfg)) == 8
            continue
        assert shown(channels(cfg)) == BASE
        assert {q.name: absent_flags(cfg, q) for q in queues(cfg)} == {
            "LOAD": ("pop_prev", "push_prev"),
            "COMPUTE": (),
            "STORE": ("pop_next", "push_next"),
        }
    assert [str(c) for c in channels(TINY)][:2] == ["LOAD -> COMPUTE", "COMPUTE -> LOAD"]
    assert between(LOAD, STORE) == between(STORE, LOAD) == COMPUTE
    assert [connected(LOAD, q) for q in queues(TINY)] == [False, True, False]


def test_readers_of_the_load_ports():
    def of(cfg):
        return [[(reader.name, reader.buffer) for reader in port] for port in readers(cfg)]

    load, store, others = ("load", 128), ("store", 64), [("compute", 128), ("fetch", 64)]
    assert of(TINY) == [[load, *others, store]]
    assert of(TINY.replace(load_ports=2)) == [[store, load], [*others, load]]
    assert of(TINY.replace(load_ports=4)) == [[store, load], [*others, load], [load], [load]]
    assert of(TINY.replace(load_ports=2, axi_bits=512)) == [[load, store], others]


def test_fetching_yields_to_every_other_reader():
    narrow = TINY.replace(axi_bits=32)
    for cfg in (*PRESETS.values(), narrow):
        every = [reader for port in readers(cfg) for reader in port]
        fetch = next(reader for reader in every if reader.name == "fetch")
        assert (fetch.buffer, fetch.yields) == (32 if cfg is narrow else 64, True)
        assert not any(reader.yields for reader in every if reader is not fetch)


def test_loads_are_spread_over_ports_that_are_not_too_wide_together():
    two = TINY.replace(load_ports=2)
    assert stripes(TINY) == 1 and striped(TINY) is TINY
    for bits in (32, 64, 128, 256):
        cfg = two.replace(axi_bits=bits)
        assert stripes(cfg) == 2 and striped(cfg) == two.replace(axi_bits=2 * bits)
        assert striped(cfg).fingerprint == cfg.fingerprint
    wide = two.replace(axi_bits=512)
    assert stripes(wide) == 1 and striped(wide) is wide


def test_the_number_of_a_queue_is_its_place(two):
    for cfg in (TINY, two):
        assert [int(unit.queue) for unit in units(cfg)] == list(range(len(units(cfg))))
    assert all(unit.queue == 3 for name, unit in declared.COMPUTE_UNITS.items() if name != "gemm")


def test_config_names_it(two, monkeypatch):
    assert two.units == ("gemm", "toy") and two != TINY
    assert two.to_dict() == TINY.to_dict() | {"name": "two", "units": ["gemm", "toy"]}
    assert Config.from_dict(json.loads(json.dumps(two.to_dict()))) == two
    keys = "acc_bits acc_depth batch block_in block_out inp_bits inp_depth out_bits par_entries uop_depth wgt_bits "
    facts = {key: getattr(two, key) for key in (keys + "wgt_depth").split()}
    facts |= {"extensions": sorted(two.extensions), "isa_version": ISA_VERSION, "units": ["gemm", "toy"]}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    assert f"{two.fingerprint:016x}" == hashlib.sha256(text.encode()).hexdigest()[:16]
    with pytest.raises(ConfigError, match="^Config.units = toy, gemm: must begin with gemm$"):
        TINY.replace(units=["toy", "gemm"])
    monkeypatch.setitem(declared.COMPUTE_UNITS, "third", Unit("third", TOY))
    with pytest.raises(ConfigError, match="^Config.units = gemm, toy, third: tokens join 2 compute units with"):
        TINY.replace(units=["gemm", "toy", "third"])


def test_the_ring_of_tokens_is_closed(two):
    ring = [(LOAD, COMPUTE), (COMPUTE, STORE), (STORE, TOY), (TOY, LOAD)]
    assert {(c.source, c.target, c.push, c.pop) for c in channels(two)} == {
        *((a, b, "push_next", "pop_prev") for a, b in ring),
        *((b, a, "push_prev", "pop_next") for a, b in ring),
    }
    assert not any(absent_flags(two, queue) for queue in queues(two))
    assert between(COMPUTE, TOY) == between(TOY, COMPUTE) == STORE and between(STORE, LOAD) == COMPUTE


def test_its_instruction_is_one_of_that_configuration_alone(two):
    word = Isa(two).formats["GEMM"].encode(op=7, **dict.fromkeys(FLAGS, 1))
    for cfg, refusal in ((two, None), (TINY, "queue TOY is not in configuration tiny")):
        (f,) = Isa(cfg).decode(word)
        assert Isa(cfg).undecodable(f) == refusal
        assert Isa(cfg).queue(f) == TOY and Isa(cfg).disassemble(f) == "TOYGEMM " + " ".join(FLAGS)
    prev = {"op": Op.LOAD, "mem": Mem.INP, "pop_prev": 1, **dict.fromkeys(FLAGS[1:], 0)}
    assert Isa(two).undecodable(prev) is None and "no prev queue" in str(Isa(TINY).undecodable(prev))


TOY_COUNTERS = ["TOY_BUSY", "TOY_TOKEN_WAIT", "TOY_MEMORY_WAIT", "TOY_INSNS", "TOY_BYTES"]


def test_registers(two):
    found = registers(two)
    assert registers(TINY) == REGISTERS and list(found)[: len(REGISTERS)] == list(REGISTERS)
    assert {name: found[name] for name in REGISTERS} == REGISTERS
    assert list(found)[len(REGISTERS) :] == TOY_COUNTERS == list(counters(two))[-5:]
    assert [found[name].offset for name in TOY_COUNTERS] == [0x68, 0x6C, 0x70, 0x74, 0x78]
    assert found["TOY_BYTES"].doc == "toy: bytes moved" and len(COUNTERS) == 5


def test_readers(two):
    assert [reader.name for reader in readers(two)[0]] == ["load", "compute", "fetch", "store", "toy"]
    ports = readers(two.replace(load_ports=2))
    assert [[(r.name, r.buffer) for r in port if r.name in ("load", "toy")] for port in ports] == [
        [("toy", 32), ("load", 128)], [("load", 128)],
    ]  # fmt: skip


def test_circuit(two):
    pytest.importorskip("amaranth")
    from tilewright.hw.rtl.control import Control, Counters, Csr, counters_layout
    from tilewright.hw.rtl.fetch import Fetch
    from tilewright.hw.rtl.ports import watch_layout

    fields = [name for name, _ in watch_layout(two)]
    assert fields[7:10] == ["toy_taken", "toy_ended", "product"]
    assert fields[-4:] == ["toy_token", "toy_unit", "toy_memory", "store_bank"] and len(fields) == 23
    assert [name for name, _ in counters_layout(two)] == ["CYCLES", *counters(two)]
    counting, control, csr, fetch = Counters(two), Control(two, faults=1), Csr(two), Fetch(two)

    oldest = {f"heads.{k}.index": index for k, index in enumerate((14, 13, 12, 11))}
    oldest |= {f"waiting.{k}": 1 for k in range(4)}
    read = {"counters.TOY_INSNS": 5, "axil.araddr": registers(two)["TOY_INSNS"].offset, "axil.arvalid": 1}
    for dut, *rows in (
        (counting, ({"toy.bytes": 7}, {}, 3), ({}, {"values.TOY_BYTES": 14}, 0)),
        (
            control,
            (oldest | {"watchdog": 9, "start": 1}, {}, 30),
            ({}, {"fault.index": 11}, 0),
        ),
        (csr, (read, {}, 3), ({}, {"axil.rdata": 5}, 0)),
        (fetch, ({"toy.ready": 1}, {}), ({}, {"toy.valid": 0}, 0)),
    ):
        simulate(dut, script(dut, *rows))


def rows_of(*accesses):
    """Rows of queues that touch one entry of the accumulators each; `write` where the third is true."""
    names = {LOAD: "LOAD", STORE: "STORE"}
    return [Row(names.get(q, "GEMM"), q, {}, [Access(Mem.ACC, write, slice(0, 1))]) for q, write in accesses]


def test_the_token_pass_orders_it_through_store(two):
    rows = rows_of((TOY, True), (COMPUTE, True), (TOY, False))
    out = insert_tokens(two, rows, Row("FINISH", COMPUTE, {}))
    assert [f"{row.queue.name} {' '.join(flag for flag in FLAGS if row.fields.get(flag))}".strip() for row in out] == [
        "TOY push_prev",
        "STORE pop_next push_prev",
        "COMPUTE pop_next push_next",
        "STORE pop_prev push_next",
        "TOY pop_prev push_prev",
        "STORE pop_next push_prev",
        "COMPUTE pop_next",
    ]


def test_queues_of_the_model(two):
    every = channels(two)
    give, take = every.index(Channel(STORE, TOY)), every.index(Channel(TOY, LOAD))
    nodes = [Node(LOAD, (take,), ()), Node(TOY, (give,), (take,)), Node(STORE, (), (give,)), Node(COMPUTE, (), ())]
    assert schedule(two, nodes, str) == [2, 1, 0, 3]
    with pytest.raises(DeadlockError, match="TOY waits for a token STORE -> TOY at 0; "):
        schedule(two, [Node(TOY, (give,), ()), Node(COMPUTE, (), ())], lambda k: str(k) + "; ")
    with pytest.raises(TokenError, match="^1 tokens STORE -> TOY are left over"):
        schedule(two, [Node(STORE, (), (give,)), Node(COMPUTE, (), ())], str)


def program_of(cfg):
    """A program that hands a token to the toy and back."""
    program = Program(cfg, tokens="explicit")
    program.gemm([(3, 0, 0, 0)], overwrite=True)
    program.dep_push(STORE, TOY)
    program.dep_pop(STORE, TOY)
    return program


def test_recorder_verifier_and_model(two, monkeypatch):
    monkeypatch.setitem(model._ACTIONS, 7, lambda state, f: lambda: None)
    with pytest.raises(ProgramError, match="no token channel joins STORE and TOY"):
        program_of(TINY)
    launch = program_of(two).finish()
    lines = [Isa(two).disassemble(f).split(" uop")[0] for f in Isa(two).decode(launch.insn)]
    assert lines[2:] == [
        "STORE.OUT y_size=0 x_size=0 push_next",
        "TOYGEMM pop_prev",
        "TOYGEMM push_prev",
        "STORE.OUT y_size=0 x_size=0 pop_next",
        "STORE.OUT y_size=0 x_size=0 push_prev",
        "FINISH pop_next",
    ]
    report = verify(launch)
    assert len(report.in_flight) == 8 and report.in_flight["STORE->TOY"] == 1
    device = ModelDevice(two)
    device.allocate(1 << 12, 64)  # what relocated addresses name
    address = device.allocate(launch.insn.nbytes, 16)
    device.write(address, launch.relocate([0] * len(launch.buffers)).view(np.uint8).reshape(-1))
    assert device.run(address, len(launch.insn)).insns["TOYGEMM"] == 2


def test_diagnosis(two):
    insn = program_of(two).finish().insn
    counted = dict.fromkeys(counters(two), 0) | {"COMPUTE_INSNS": 2, "STORE_INSNS": 1, "TOY_INSNS": 1, "LOAD_INSNS": 0}
    assert taken(two, counted) == [0, 2, 1, 1]
    text, index = waiting(two, insn, [0, 2, 0, 0])
    assert "TOY waits for a token STORE -> TOY at instruction 3 (TOYGEMM" in text and index == 2


def test_timing_model(two):
    pytest.importorskip("amaranth")
    from tilewright.sim.timing import predict
    from tilewright.sim.trace import of_timing

    program, base = Program(two), Program(TINY)
    for each in (program, base):
        each.gemm([(30, 0, 0, 0)], overwrite=True)
    timing, expected = predict(program), predict(base)
    assert list(timing.counters) == list(counters(two))
    assert timing.counters == expected.counters | dict.fromkeys(TOY_COUNTERS, 0)
    assert timing.cycles == expected.cycles
    assert of_timing(timing, program.finish(), two) == of_timing(expected, base.finish(), TINY)


class Registers:
    """Registers of which each reads as its offset, but for those that say who and how it is."""

    def __init__(self, cfg):
        known = {"VERSION": MAGIC << 16 | ISA_VERSION, "CONTROL": 2}
        known |= {"FINGERPRINT_LO": cfg.fingerprint & 0xFFFFFFFF, "FINGERPRINT_HI": cfg.fingerprint >> 32}
        self.values = {r.offset: known.get(r.name, r.offset) for r in registers(cfg).values()}

    def read(self, offset):
        return self.values[offset]

    def write(self, offset, value):
        assert offset in self.values


class Memory(np.ndarray):
    """A contiguous buffer as pynq has it."""

    device_address = 1 << 16

    def flush(self):
        pass

    invalidate = freebuffer = flush


class Pynq:
    """The module, as far as the driver needs it for a loaded bitstream."""

    @staticmethod
    def allocate(shape, dtype, target=None):
        return np.zeros(shape, dtype).view(Memory)


def expected_counts(cfg):
    return {name: registers(cfg)[name].offset for name in counters(cfg)}


def test_driver(two):
    device = PynqDevice(two, pynq=Pynq())
    device._session = Session(two, NamedRegisters(two, Registers(two)), watchdog=1)
    launch = Program(two).finish()
    address = device.allocate(launch.insn.nbytes, 16)
    device.write(address, launch.insn.view(np.uint8).reshape(-1))
    found = device.run(address, len(launch.insn)).counters
    assert found == expected_counts(two) and found["TOY_BYTES"] == 0x78


def test_simulated_circuit(two, monkeypatch):
    from tilewright.sim.rtl import device as rtl

    class Simulation(Registers):
        def __init__(self, library, dram, *, named, **options):
            super().__init__(two)
            self.named, self.watched = named, 0

        def read(self, register):
            return super().read(self.named[register].offset)

        def write(self, register, value):
            super().write(self.named[register].offset, value)

        def run(self, most):
            return True

        def use(self, image):
            pass

        watch = use

        def bursts(self):
            return np.zeros(rtl.BURSTS, np.uint64)

        def fifos(self, count):
            return np.zeros(count, np.uint64)

        def close(self):
            pass

    monkeypatch.setattr(rtl, "build_core", lambda *a, fast: Path("none", "library"))
    monkeypatch.setattr(rtl, "load_library", lambda *a: None)
    monkeypatch.setattr(rtl, "Simulation", Simulation)
    device, launch = rtl.RtlDevice(two), Program(two).finish()
    address = device.allocate(launch.insn.nbytes, 16)
    device.write(address, launch.insn.view(np.uint8).reshape(-1))
    assert device.run(address, len(launch.insn)).counters == expected_counts(two)
