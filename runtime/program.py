"""The recorder: calls of load, gemm, alu and store become a program of one configuration."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import numpy as np

from ..hw.config import Config, load_config
from ..hw.errors import CapacityError, InputError, ProgramError
from ..hw.isa import (
    LOADABLE,
    LOADS,
    MICRO_OPS,
    OPERATIONS,
    PADDABLE,
    AluOp,
    Instruction,
    Isa,
    Mem,
    Op,
    depth,
    entry_bytes,
    form_of,
    loads_of,
    mem_of,
    queue_of,
    row_of,
)
from ..hw.show import table
from ..hw.units import Channel, Queue, between, channels, connected, queues
from .access import Access, dram_access, out_of_range, scratchpad_accesses
from .arrays import Array
from .buffer import Buffer, Region, integers, shape_of
from .launch import UOP_BUFFER, Launch, OriginStack, encode
from .layout import pack_four_bits
from .schema import is_a
from .symbols import Symbol, note_limit
from .tokens import Row, insert_tokens, nop
from .uop import Kernel, Kernels, check_taps, encoded, loop_fields, need_extensions, pieces, uop_array

_Loops = Sequence[tuple[int, int, int, int]]  # (extent, dst step, src step, wgt step)
_AluLoops = Sequence[tuple[int, int, int]]  # (extent, dst step, src step)


class Program:
    """Records instructions for configuration `cfg` and encodes them once.

    With `tokens="auto"` the recorder derives the dependence tokens from the accesses of the instructions, so that the
    result is the same as in the recorded order. With `tokens="explicit"` the caller adds them with `dep_push` and
    `dep_pop`. Sizes, offsets and strides count entries of the memory that they address.

    >>> import tilewright as tw
    >>> from tilewright.hw.isa import AluOp, Mem
    >>> program = tw.Program(tw.load_config("tiny"))  # one entry is 4 numbers
    >>> program.load(Mem.ACC, 0, program.buffer("x", (8, 1, 4), bits=32), 0, x_size=8)
    >>> program.alu(AluOp.MAX, [(8, 1, 1)], imm=0)
    >>> program.store(0, program.buffer("y", (8, 1, 4), kind="output"), 0, x_size=8)
    >>> int(tw.run(program, {"x": np.full((8, 1, 4), -3)})[0]["y"].max())
    0
    """

    def __init__(self, cfg: Config | str, name: str = "program", *, tokens: str = "auto"):
        cfg = load_config(cfg)
        if tokens not in ("auto", "explicit"):
            raise ProgramError(f"tokens = {tokens!r}: must be 'auto' or 'explicit'")
        self.cfg, self.name, self.tokens = cfg, name, tokens
        self.buffers: dict[str, Buffer] = {}
        self._isa = Isa(cfg)
        self._rows: list[Row] = []
        # whether micro-ops are loaded one step ahead of their jobs, not right before them
        self._kernels, self.uops_ahead = Kernels(self._isa), False
        self._words: dict[tuple[str, bytes], Array] = {}  # of micro-ops, by format and indices
        self._queues, self._channels = queues(cfg), channels(cfg)
        self._pending: list[set[str]] = [set() for _ in self._queues]
        self._last: list[Row | None] = [None for _ in self._queues]
        self._launch: Launch | None = None
        self._origins, self._limits = OriginStack(), dict[str, int]()  # of symbols, by name

    def __repr__(self) -> str:
        count = len(self._launch.insn if self._launch else self._rows)
        return f"Program({self.name!r}, {self.cfg.name}, {count:,} instructions, {len(self.buffers)} buffers)"

    def _repr_html_(self) -> str:
        rows = [(b.name, b.kind, f"{b.bits}-bit {b.shape}", b.nbytes) for b in self.buffers.values()]
        return table(repr(self), ("buffer", "kind", "elements", "bytes"), rows)

    def buffer(
        self,
        name: str,
        shape: Sequence[int],
        bits: int = 8,
        *,
        signed: bool = True,
        kind: str = "input",
        data: Array | None = None,
    ) -> Buffer:
        """Declare a DRAM buffer (see `Buffer`). Raises `ProgramError` for a name that is taken."""
        if name == UOP_BUFFER:
            raise ProgramError(f"buffer name {name!r} is reserved for micro-ops; choose another")
        if name in self.buffers:
            raise ProgramError(f"buffer {name!r} is declared twice")
        self._check_open()
        self.buffers[name] = Buffer(name, shape_of(name, shape), bits, signed, kind, data)
        return self.buffers[name]

    @contextmanager
    def origin(self, name: str, macs: int | None = None) -> Generator[None]:
        """Record the block's instructions for `name`, inside the present origin; reports add up their cycles.

        `macs` are its useful multiply-accumulates, if known. An origin inside an origin of the same name joins it.
        Raises `ProgramError` for a name that cannot be printed.
        """
        with self._origins.inside(name, macs):
            yield

    def load(
        self,
        mem: Mem,
        sram: int,
        buffer: Buffer,
        offset: int,
        *,
        y_size: int = 1,
        x_size: int = 1,
        x_stride: int | None = None,
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        pad_value: int = 0,
        at: Symbol | None = None,
    ) -> None:
        """Copy `y_size` rows of `x_size` entries from `buffer` to a dense, padded tile at entry `sram` of `mem`.

        Rows start `x_stride` entries apart; by default they are contiguous. `pads` are rows before, rows after, columns
        before and columns after, filled with `pad_value` (extension `pad_value` where it is not 0). `offset` moves with
        the value that the symbol `at` has in a run. Micro-ops are loaded automatically. Raises `ProgramError`,
        `CapacityError` or `EncodingError`.
        """
        if mem not in LOADABLE or mem in MICRO_OPS:
            known = [m for m in Mem if m in LOADABLE and depth(self.cfg, m) and m not in MICRO_OPS]
            allowed = ", ".join(m.name for m in known if not loads_of(m)[0].missing(self.cfg))
            raise ProgramError(f"load: memory {getattr(mem, 'name', mem)!s} must be one of {allowed}, as Mem.INP")
        mem, margins = Mem(mem), integers("load: pads", pads, 4, "rows before, after, columns before, after")
        if (any(margins) or pad_value) and mem not in PADDABLE:
            raise ProgramError(
                f"load: {mem.name} cannot be padded; {', '.join(m.name for m in Mem if m in PADDABLE)} can"
            )
        rows = loads_of(mem)
        self._need(rows[0])
        if pad_value and rows[-1].op != Op.LOADP:
            raise ProgramError(f"load: pad_value = {pad_value}: {mem.name} is padded with zeros alone")
        row = rows[-1] if pad_value else rows[0]
        self._need(row)
        fields = {**row.fields, "sram_base": sram, "dram_base": offset, "y_size": y_size, "x_size": x_size}
        fields["x_stride"] = x_size if x_stride is None or y_size == 1 else x_stride
        fields |= dict(zip(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), margins))
        if pad_value:
            fields["pad_value"] = pad_value
        self._transfer(row.format, fields, buffer, at)

    def store(
        self,
        sram: int,
        buffer: Buffer,
        offset: int,
        *,
        y_size: int = 1,
        x_size: int = 1,
        x_stride: int | None = None,
        par: int | None = None,
        par_step: int = 0,
        at: Symbol | None = None,
    ) -> None:
        """Copy the low `out_bits` of `y_size` x `x_size` accumulators, dense from entry `sram`, to rows of `buffer`.

        Values wrap; they do not saturate. With `par` (extension `requant`) row y is requantised with the
        parameters of PAR entry `par + y * par_step` instead. `offset` moves with the value that the symbol `at` has in
        a run. Raises `ProgramError`, `CapacityError` or `EncodingError`.
        """
        if is_a(buffer, Buffer) and buffer.kind in ("input", "constant"):
            raise ProgramError(
                f"store: buffer {buffer.name!r} is {buffer.kind}; only output, temp and state buffers can be written"
            )
        mem = Mem.OUT if par is None else Mem.OUTQ
        self._need(row_of(Op.STORE, mem))
        fields = {"op": Op.STORE, "mem": mem.id, "sram_base": sram, "dram_base": offset, "y_size": y_size}
        fields |= {"x_size": x_size, "x_stride": x_size if x_stride is None or y_size == 1 else x_stride}
        if par is None:
            if par_step:
                raise ProgramError(f"store: par_step = {par_step} needs par, the PAR entry of row 0")
            self._transfer("STORE", fields, buffer, at)
            return
        fields |= dict(zip(("par_base", "par_step"), integers("store: par, par_step", (par, par_step), 2)))
        self._transfer("STOREQ", fields, buffer, at)

    def gemm(
        self,
        loops: _Loops,
        dst: int = 0,
        src: int = 0,
        wgt: int = 0,
        *,
        reset: bool = False,
        overwrite: bool = False,
        depthwise: bool = False,
        taps: int = 1,
    ) -> None:
        """`acc[d] += wgt[w] @ inp[s]` over `loops` [(extent, dst, src, wgt step)], any number, outermost first.

        `reset` writes zero, `overwrite` (an extension) replaces instead of adding. `depthwise` (an extension) is
        `acc[d] += inp[s] * row[w]`, channel by channel, where the weight index counts rows of `block_out` weights. With
        `taps` above 1 (extension `depthwise_rows`) it is the sum of `acc[d] += inp[s + t] * row[w * row_taps + t]`
        over t below `taps`. Two loops become loops of the instruction, the others micro-ops.
        """
        mode = {"reset": reset, "overwrite": overwrite, "depthwise": depthwise}
        self.gemm_uops(np.array([(dst, src, wgt)]), loops, **mode, taps=taps)

    def gemm_uops(
        self,
        uops: Array,
        loops: _Loops = (),
        *,
        reset: bool = False,
        overwrite: bool = False,
        depthwise: bool = False,
        taps: int = 1,
    ) -> None:
        """Record a `gemm` with the innermost loop spelled out: `uops`, integers (n, 3) of dst, src and wgt index."""
        more = check_taps(self.cfg, taps, depthwise)
        self._multiply("gemm", Op.DWGEMM if depthwise else Op.GEMM, uops, loops, reset, overwrite, more)

    def ternary(
        self, loops: _Loops, dst: int = 0, src: int = 0, wgt: int = 0, *, reset: bool = False, overwrite: bool = False
    ) -> None:
        """`acc[d + t * plane_depth] += twgt[w][t] @ inp[s]` for each t below `ternary_blocks`, on unit `ternary`.

        Loops, `reset` and `overwrite` are as in `gemm`. Accumulators d are in the first plane of a bank: the first
        `plane_depth` of every `bank_depth` entries.
        """
        self.ternary_uops(np.array([(dst, src, wgt)]), loops, reset=reset, overwrite=overwrite)

    def ternary_uops(self, uops: Array, loops: _Loops = (), *, reset: bool = False, overwrite: bool = False) -> None:
        """Record a `ternary` with the innermost loop spelled out: `uops`, integers (n, 3) of dst, src and wgt index."""
        self._multiply("ternary", Op.TERNARY, uops, loops, reset, overwrite, {})

    def alu(self, op: AluOp | str, loops: _AluLoops, dst: int = 0, src: int = 0, *, imm: int | None = None) -> None:
        """`acc[d] = op(acc[d], b)` over `loops` [(extent, dst, src step)]; b is `imm`, or acc[s] where it is None.

        `imm` of an extension is the PAR entry whose multiplier and rounding RESCALE takes, the table of LOOKUP, or 0
        for the sum and 1 for the maximum of REDUCE.
        """
        self.alu_uops(op, np.array([(dst, src)]), loops, imm=imm)

    def alu_uops(self, op: AluOp | str, uops: Array, loops: _AluLoops = (), *, imm: int | None = None) -> None:
        """Record an `alu` with the innermost loop spelled out: `uops`, integers (n, 2) of dst and src index."""
        operation = OPERATIONS[op := AluOp.of(op)]
        need_extensions(self.cfg, operation.extensions)
        (value,) = integers("alu: imm", (0 if imm is None else imm,), 1)
        operation.check(None if imm is None else value, self.cfg)
        fields = {"op": Op.ALU, "alu_op": op, "use_imm": int(imm is not None), "imm": value}
        nest = [integers("alu: loop", loop, 3, "extent, dst, src step") for loop in loops]
        pairs = uop_array(uops, 2)
        if imm is not None:  # src is not read: with zeros equal kernels are stored once
            pairs, nest = pairs * (1, 0), [(n, d, 0) for n, d, _ in nest]
        triples = np.concatenate([pairs, np.zeros((len(pairs), 1), np.int64)], axis=1)
        self._execute(Kernel("ALU", tuple((n, d, s, 0) for n, d, s in nest), triples, fields))

    def dep_push(self, source: Queue, target: Queue) -> None:
        """The last instruction of `source`, or a NOP, pushes a token to `target` (`tokens="explicit"` only)."""
        flag = self._explicit(source, target).push
        last = self._last[source]
        if last is None or last.fields.get(flag) or self._pending[source]:
            last = nop(source, self._origins.number)
            self._append(last)
        last.fields[flag] = 1

    def dep_pop(self, source: Queue, target: Queue) -> None:
        """The next instruction of `target` pops a token from `source` (`tokens="explicit"` only)."""
        flag = self._explicit(source, target).pop
        self._check_open()
        if flag in self._pending[target]:
            self._append(nop(target, self._origins.number))
        self._pending[target].add(flag)

    def pack_constants(self) -> None:
        """Load constants of weights as entries of WGT4 where all of them have that form (extension `wgt4`)."""
        readers = dict[int, list[Row]]()
        for row in self._rows:
            if row.buffer is not None:
                readers.setdefault(id(row.buffer), []).append(row)
        for buffer in self.buffers.values():
            rows = readers.get(id(buffer), [])
            if "wgt4" in self.cfg.extensions and buffer.data is not None and all(map(self._may_be_wgt4, rows)) and rows:
                if len(buffer.data) % self.cfg.wgt_entry_bytes:
                    continue  # less than an entry at its end
                entries = buffer.data.view(np.int8).reshape(-1, self.cfg.block_out, self.cfg.block_in)
                try:
                    data = pack_four_bits(entries, self.cfg)
                except InputError:
                    continue
                buffer.shape, buffer.bits, buffer.signed, buffer.data = data.shape, 8, False, data.reshape(-1)
                buffer.align = math.lcm(Buffer.align, self.cfg.wgt4_entry_bytes)  # no longer of entries of WGT
                for row in rows:
                    row.format, row.fields = "LOADP", row.fields | loads_of(Mem.WGT4)[0].fields
                    row.dram = dram_access(self.cfg, row.fields, row.symbol)

    def finish(self) -> Launch:
        """Encode: tokens, drain, FINISH, relocations, micro-ops. Later calls return the same launch."""
        if self._launch is None:
            last = Row("FINISH", queue_of(Op.FINISH), {"op": Op.FINISH})
            if self.uops_ahead:
                self._rows = self._kernels.ahead(self._rows)
            recorded = self._rows, last, self._origins.outermost
            rows = self._explicitly(last) if self.tokens == "explicit" else insert_tokens(self.cfg, *recorded)
            buffers = [*self.buffers.values(), *self._kernels.buffer(UOP_BUFFER)]
            self._launch = encode(self._isa, self.name, rows, buffers, self._origins.of(rows))
        return self._launch

    def _explicitly(self, last: Row) -> list[Row]:
        """The rows and `last`, which waits for every queue: through a third queue where no channel joins the two.

        Loads of micro-ops for unit `ternary` come first, so that one token, the first in its channel, orders them.
        """
        self._rows = self._kernels.in_front(Mem.TUOP, self._rows)
        for queue in self._queues:
            if self._pending[queue]:
                self._append(nop(queue, self._origins.number))
        for queue in sorted(self._queues, key=lambda queue: connected(queue, last.queue)):
            if queue != last.queue and self._last[queue] is not None:
                near = connected(queue, last.queue)
                channel = Channel(queue, last.queue if near else between(queue, last.queue))
                self._append(nop(queue, self._origins.number))
                self._rows[-1].fields[channel.push] = 1
                taker = last if near else nop(channel.target, self._origins.number)
                taker.fields[channel.pop] = 1
                if not near:
                    self._append(taker)
        return [*self._rows, last]

    def _append(self, row: Row) -> None:
        self._check_open()
        row.fields |= dict.fromkeys(self._pending[row.queue], 1)
        self._pending[row.queue].clear()
        self._last[row.queue] = row
        self._rows.append(row)

    def _transfer(self, name: str, fields: dict[str, int], buffer: Buffer, at: Symbol | None) -> None:
        what = name.lower()
        whole, start = (buffer.whole, buffer.start) if isinstance(buffer, Region) else (buffer, 0)
        if whole is None or not is_a(whole, Buffer) or self.buffers.get(whole.name) is not whole:
            found = repr(buffer.name) if is_a(buffer, Buffer) else f"of {type(buffer)}"
            belongs = "belongs to another program; give what this one's buffer(...) returned"
            raise ProgramError(f"{what}: buffer {found} {belongs}")
        note_limit(self._limits, at, what)
        keys = ("sram_base", "dram_base", "y_size", "x_size", "x_stride")
        fields |= dict(zip(keys, integers(f"{what}: {', '.join(keys)}", [fields[k] for k in keys], len(keys))))
        self._check_fields(name, fields)
        accesses = scratchpad_accesses(self.cfg, fields, np.zeros((0, 3), np.int64))
        self._check_range(f"{what} of {buffer.name!r}", accesses)
        dram = dram_access(self.cfg, fields, at)
        if dram and dram.end > buffer.nbytes:
            reaches = f"reaches byte {dram.end}{f' for some {at.name}' if at else ''} of buffer {buffer.name!r}"
            raise ProgramError(f"{what}: {reaches}, which has {buffer.nbytes}; move less, or declare it larger")
        size = entry_bytes(self.cfg, mem_of(fields["op"], fields["mem"]))
        if start % size:
            raise ProgramError(f"{what}: region {buffer.name!r} begins at byte {start}: must be a multiple of {size}")
        fields["dram_base"] += start // size
        self._check_fields(name, {"dram_base": fields["dram_base"] + (at.most if at else 0)})
        whole.align = math.lcm(whole.align, size)
        queue, dram = queue_of(fields["op"], fields["mem"]), dram_access(self.cfg, fields, at)
        self._append(Row(name, queue, fields, accesses, whole, dram, self._origins.number, at))

    def _multiply(
        self, what: str, op: Op, uops: Array, loops: _Loops, reset: bool, overwrite: bool, more: dict[str, int]
    ) -> None:
        """Record `op`, which multiplies; `what` is its name in messages, `more` are further fields."""
        self._need(row_of(op))
        if overwrite:
            need_extensions(self.cfg, ["overwrite"])
            if reset:
                raise ProgramError(f"{what}: reset and overwrite exclude each other")
        fields = {"op": op, "reset": int(reset)} | ({"overwrite": 1} if overwrite else {}) | more
        nest = [integers(f"{what}: loop", loop, 4, "extent, dst, src, wgt step") for loop in loops]
        triples = uop_array(uops, 3)
        if reset:  # src and wgt are not read: with zeros equal kernels are stored once
            triples, nest = triples * (1, 0, 0), [(n, d, 0, 0) for n, d, *_ in nest]
        self._execute(Kernel(op.name, tuple(nest), triples, fields))

    def _execute(self, kernel: Kernel) -> None:
        for loops, uops in pieces(kernel, self.cfg):
            self._emit(kernel, loop_fields(kernel, loops), uops)

    def _emit(self, kernel: Kernel, fields: dict[str, int], uops: Array) -> None:
        row, key = row_of(fields["op"]), (kernel.format, uops.tobytes())
        assert row.executes is not None
        if (words := self._words.get(key)) is None:  # programs repeat most micro-ops
            words = self._words[key] = encoded(kernel, self._isa, uops)
        start, missing = self._kernels.place(row.executes, words)
        fields |= {"uop_bgn": start, "uop_end": start + len(words)}
        form = form_of(fields) or kernel.format
        self._check_fields(form, fields)
        accesses = scratchpad_accesses(self.cfg, fields, uops)
        self._check_range(kernel.format.lower(), accesses)
        for load in self._kernels.loading(row.executes, start, words, self._origins.number) if missing else ():
            self._append(load)
        self._append(Row(form, row.queue, fields, accesses, origin=self._origins.number))

    def _check_fields(self, name: str, fields: dict[str, int]) -> None:
        known = self._isa.formats[name]
        for key, value in fields.items():
            low, high = known.fields[key].limits
            if not low <= value <= high:
                known.check(key, value)

    def _check_range(self, what: str, accesses: list[Access]) -> None:
        if problem := out_of_range(self.cfg, accesses):
            raise CapacityError(f"{what} {problem}")

    def _may_be_wgt4(self, row: Row) -> bool:
        """True for a load of weights of a size that LOADP has, too."""
        f, limits = row.fields, self._isa.formats["LOADP"].fields
        loads = f["op"] in LOADS and f["mem"] == Mem.WGT
        return loads and all(f[name] <= limits[name].limits[1] for name in ("y_size", "x_size"))

    def _need(self, row: Instruction) -> None:
        if missing := row.missing(self.cfg):
            raise ProgramError(f"{missing} is not in configuration {self.cfg.name}; choose one that has it")

    def _check_open(self) -> None:
        if self._launch is not None:
            raise ProgramError(f"program {self.name!r} is finished; record into a new one")

    def _explicit(self, source: Queue, target: Queue) -> Channel:
        if self.tokens != "explicit":
            raise ProgramError("dep_push and dep_pop need Program(..., tokens='explicit')")
        channel = Channel(source, target)
        if channel not in self._channels:
            raise ProgramError(f"no token channel joins {source.name} and {target.name}")
        return channel
