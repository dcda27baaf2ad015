"""The whole accelerator: its units, and the top level with registers and buses."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..isa import Mem
from ..units import channels, readers, striped, stripes, units
from .axi import AxiLite, AxiRead, AxiWrite
from .compute.unit import Compute
from .control import Control, Counters, Csr
from .fetch import Fetch
from .fifo import Fifo, TokenChannel
from .load import Load, Stripes
from .ports import ADDRESS_BITS, INDEX_BITS, Activity, Fault, command_layout, watch_layout
from .read_port import ReadPort
from .scratchpad import Inputs, Scratchpad
from .store import Store
from .ternary import Ternary, Weights

COMPONENTS = {"load": Load, "compute": Compute, "store": Store, "ternary": Ternary}  # by name of the unit

Blocks = dict[str, Any]  # components by name; Amaranth declares their ports at run time


def bus_members(cfg: Config) -> dict[str, wiring.Member]:
    """The AXI ports of loads and stores, as their initiator sees them."""
    return {
        "m": Out(
            wiring.Signature(
                {
                    **{f"load{k}": Out(AxiRead(cfg)) for k in range(cfg.load_ports)},
                    **{f"store{k}": Out(AxiWrite(cfg)) for k in range(cfg.store_ports)},
                }
            )
        )
    }


class Engine(wiring.Component):
    """Fetch, the units with their queues, the token channels, scratchpads and buses.

    Members:
        go: in, start fetching
        addr, count: in, where the program is, and its instructions
        halt: in, stop
        finished, tokens_left, drained, progress, heads, waiting: out, as `Control` takes them
        faults: out, fetch's error, then the units'
        load, compute, ...: out, the activity of each unit, by its name
        product: out, an issue of GEMM or DWGEMM leaves the sequencer
        bank_wait: out, STORE waits for its accumulators or the multipliers
        m: out, the buses
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "go": In(1),
                "addr": In(ADDRESS_BITS),
                "count": In(INDEX_BITS),
                "halt": In(1),
                "finished": Out(1),
                "tokens_left": Out(1),
                "drained": Out(1),
                "progress": Out(1),
                "faults": Out(Fault()).array(1 + len(units(cfg))),
                "heads": Out(command_layout()).array(len(units(cfg))),
                "waiting": Out(1).array(len(units(cfg))),
                **{unit.name: Out(Activity()) for unit in units(cfg)},
                "product": Out(1),
                "bank_wait": Out(1),
                **bus_members(cfg),
            }
        )

    def elaborate(self, platform: object):
        """Blocks by name, then their connections."""
        m, cfg = Module(), self.cfg
        m.submodules.fetch = fetch = Fetch(cfg)
        seen = {"load": striped(cfg)}
        blocks = {unit.name: COMPONENTS[unit.name](seen.get(unit.name, cfg)) for unit in units(cfg)}
        for name, block in blocks.items():
            m.submodules[name] = block
        load, compute, store = (blocks[name] for name in ("load", "compute", "store"))
        queues = self._queues(m, fetch, blocks)
        self._tokens(m, blocks)
        for mem, write, read in (
            (Mem.INP, load.write_inp, compute.inp),
            (Mem.WGT, load.write_wgt, compute.wgt),
        ):
            wide = striped(cfg)
            scratchpad = Inputs(wide) if mem == Mem.INP and cfg.row_taps > 1 else Scratchpad(wide, mem=mem)
            m.submodules[mem.name.lower()] = scratchpad
            wiring.connect(m, write, scratchpad.write)
            wiring.connect(m, read, scratchpad.read)
        if "ternary" in cfg.units:
            self._ternary(m, load, compute, blocks["ternary"])
        wiring.connect(m, store.acc, compute.store)
        denied = store.acc.en & ~store.acc.ready
        if "requant" in cfg.extensions:
            denied |= store.requantise.en & ~store.requantise.ready
            wiring.connect(m, store.requantise, compute.requantise)
            wiring.connect(m, store.write_par, compute.write_par)
        wiring.connect(m, store.axi, wiring.flipped(self.m.store0))
        halt = Signal()  # one cycle late everywhere, so that it is in nobody's way
        m.d.sync += halt.eq(self.halt)
        ports = self._read_ports(m, {**blocks, "fetch": fetch}, halt)
        for k, block in enumerate((fetch, *blocks.values())):
            wiring.connect(m, block.fault, wiring.flipped(self.faults[k]))
            m.d.comb += block.halt.eq(halt)
        for name, block in blocks.items():
            wiring.connect(m, block.activity, wiring.flipped(getattr(self, name)))
        m.d.comb += [fetch.start.eq(self.go), fetch.addr.eq(self.addr), fetch.count.eq(self.count)]
        m.d.comb += [self.product.eq(compute.product), self.bank_wait.eq(denied)]
        self._status(m, fetch, blocks, queues, ports, halt)
        return m

    def _ternary(self, m: Module, load: Load, compute: Compute, ternary: Ternary) -> None:
        """Unit ternary with its scratchpads, of which the inputs are a copy, and the accumulators that both use."""
        wide = striped(self.cfg)
        scratchpads = {
            "ternary_inp": (Scratchpad(wide, mem=Mem.INP), load.write_inp, ternary.inp),
            "twgt": (Weights(wide), load.write_twgt, ternary.twgt),
            "tuop": (Scratchpad(wide, mem=Mem.TUOP), load.write_tuop, ternary.uop),
        }
        for name, (scratchpad, write, read) in scratchpads.items():
            m.submodules[name] = scratchpad
            m.d.comb += [getattr(scratchpad.write, part).eq(getattr(write, part)) for part in ("en", "addr", "data")]
            wiring.connect(m, read, scratchpad.read)
        wiring.connect(m, ternary.read, compute.ternary_read)
        wiring.connect(m, ternary.write, compute.ternary_write)
        m.d.comb += [compute.ternary_busy.eq(ternary.busy), ternary.compute_busy.eq(compute.busy)]

    def _tokens(self, m: Module, blocks: Blocks) -> None:
        some = []
        for channel in channels(self.cfg):
            source, target = (units(self.cfg)[queue].name for queue in channel)
            m.submodules[f"tokens_{source}_{target}"] = tokens = TokenChannel(self.cfg)
            wiring.connect(m, getattr(blocks[source], f"to_{target}"), tokens.push)
            wiring.connect(m, tokens.pop, getattr(blocks[target], f"from_{source}"))
            some.append(tokens.pop.valid)
        m.d.sync += self.tokens_left.eq(Cat(some).any())

    def _queues(self, m: Module, fetch: Fetch, blocks: Blocks) -> list[Fifo]:
        queues = []
        for k, name in enumerate(blocks):
            queue = Fifo(shape=command_layout(), depth=self.cfg.queue_depth)
            m.submodules[f"queue_{name}"] = queue
            wiring.connect(m, getattr(fetch, name), queue.i)
            wiring.connect(m, queue.o, blocks[name].cmd)
            m.d.comb += [self.heads[k].eq(queue.o.payload), self.waiting[k].eq(queue.o.valid)]
            m.d.comb += queue.may.eq(queue.i.valid)
            queues.append(queue)
        return queues

    def _read_ports(self, m: Module, clients: Blocks, halt: Signal) -> list[ReadPort]:
        ports: list[ReadPort] = []
        width = stripes(self.cfg)
        spread = Stripes(self.cfg) if width > 1 else None
        if spread is not None:
            m.submodules.stripes = spread
            wiring.connect(m, clients["load"].req, spread.req)
            wiring.connect(m, spread.beats, clients["load"].beats)
        for k, every in enumerate(readers(self.cfg)):
            here = [reader for reader in every if hasattr(clients[reader.name], "req")]
            yields = next((i for i, reader in enumerate(here) if reader.yields), None)
            port = ReadPort(self.cfg, buffers=tuple(reader.buffer for reader in here), width=width, yields=yields)
            m.submodules[f"read_port_{k}"] = port
            wiring.connect(m, port.axi, wiring.flipped(getattr(self.m, f"load{k}")))
            m.d.comb += port.halt.eq(halt)
            if spread is not None:
                wiring.connect(m, spread.burst[k], port.req[-1])
                wiring.connect(m, port.words, spread.words[k])
                here.pop()
            for i, reader in enumerate(here):
                wiring.connect(m, clients[reader.name].req, port.req[i])
                wiring.connect(m, port.beats[i], clients[reader.name].beats)
            ports.append(port)
        return ports

    def _status(
        self, m: Module, fetch: Fetch, blocks: Blocks, queues: list[Fifo], ports: list[ReadPort], halt: Signal
    ) -> None:
        """Registered summaries of all blocks; the progress of each is registered first, as it comes late."""
        finish, idle, drained = Signal(), Signal(), Signal()
        with m.If(blocks["compute"].finish):
            m.d.sync += finish.eq(1)
        idle_all, on_bus = fetch.idle, ~blocks["store"].idle
        for block in blocks.values():
            idle_all &= block.idle
        for port in ports:
            idle_all, on_bus = idle_all & port.idle, on_bus | ~port.idle
        for queue in queues:
            idle_all &= ~queue.o.valid
        events = (fetch.progress, *(port.progress for port in ports), *(b.activity.progress for b in blocks.values()))
        progress = Signal(len(events))
        m.d.comb += [self.finished.eq(finish & idle), self.drained.eq(drained)]
        m.d.sync += [idle.eq(idle_all), drained.eq(halt & ~on_bus)]
        m.d.sync += [progress.eq(Cat(events)), self.progress.eq(progress.any())]


class Core(wiring.Component):
    """The accelerator as a board or a simulator sees it.

    Members:
        s.axil: in, accesses to the registers (hw/regs.py)
        m.load<k>, m.store<k>: out, AXI buses
        done: out, the run has ended and nothing is on the buses; until the next start
        error: out, it ended with an error
        watch: out, events of instructions, one cycle late; for simulators and logic analysers
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "s": In(wiring.Signature({"axil": Out(AxiLite())})),
                **bus_members(cfg),
                "done": Out(1),
                "error": Out(1),
                "watch": Out(watch_layout(cfg)),
            }
        )

    def elaborate(self, platform: object):
        """Registers and control around the engine, which is reset before every run."""
        m, cfg = Module(), self.cfg
        engine = Engine(cfg)
        m.submodules.csr = csr = Csr(cfg)
        m.submodules.control = control = Control(cfg, faults=len(engine.faults))
        m.submodules.counters = counters = Counters(cfg)
        m.submodules.engine = ResetInserter(control.clear)(engine)
        wiring.connect(m, wiring.flipped(self.s.axil), csr.axil)
        wiring.connect(m, engine.m, wiring.flipped(self.m))
        for mine, its in zip(control.faults, engine.faults):
            wiring.connect(m, its, mine)
        for k, unit in enumerate(units(cfg)):
            m.d.comb += [control.heads[k].eq(engine.heads[k]), control.waiting[k].eq(engine.waiting[k])]
            activity = getattr(engine, unit.name)
            wiring.connect(m, activity, getattr(counters, unit.name))
            happens = {"taken": activity.insn, "ended": activity.ended, "memory": activity.memory_wait}
            happens |= {"token": activity.token_wait}
            happens |= {"unit": engine.waiting[k] & ~activity.token_wait & ~activity.insn}
            m.d.sync += [self.watch[f"{unit.name}_{what}"].eq(value) for what, value in happens.items()]
        m.d.sync += [self.watch.start.eq(control.go), self.watch.product.eq(engine.product)]
        m.d.sync += self.watch.store_bank.eq(engine.bank_wait)
        wiring.connect(m, control.fault, csr.fault)
        m.d.comb += [
            control.start.eq(csr.start),
            control.reset.eq(csr.reset),
            control.watchdog.eq(csr.watchdog),
            control.finished.eq(engine.finished),
            control.tokens_left.eq(engine.tokens_left),
            control.drained.eq(engine.drained),
            control.progress.eq(engine.progress),
            engine.go.eq(control.go),
            engine.halt.eq(control.halt),
            engine.addr.eq(csr.addr),
            engine.count.eq(csr.count),
            counters.running.eq(control.running),
            counters.clear.eq(csr.start & ~control.running),
            csr.running.eq(control.running),
            csr.done.eq(control.done),
            csr.counters.eq(counters.values),
            self.done.eq(control.done),
            self.error.eq(control.done & (control.fault.code != 0)),
        ]
        return m
