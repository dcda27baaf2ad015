"""The accelerator's names in a schedule: memory scopes, instruction scopes and tensor intrinsics.

A tensor in scope `local.inp`, `local.wgt`, `local.acc` or `local.par` lives in that scratchpad. `gemm` and `reset` are
tensor intrinsics for one entry of each, registered for a configuration on first use; `requantise` and
`rescale` are calls for one element.
"""

from __future__ import annotations

from ..hw.config import Config
from ..hw.errors import UnsupportedError
from ..hw.isa import Mem
from .advice import Form, Wanted, check
from .sentences import in_one_sentence
from .tvm_compat import Node, Schedule, T, TensorIntrin, ir

INP, WGT, ACC, PAR = "local.inp", "local.wgt", "local.acc", "local.par"
SCOPES = {INP: Mem.INP, WGT: Mem.WGT, ACC: Mem.ACC, PAR: Mem.PAR}
# Annotates a loop whose body becomes one instruction; without it the largest perfect nests do.
INSTRUCTION = "pragma_tilewright"
GEMM, DEPTHWISE, RESET = "tilewright_gemm", "tilewright_depthwise", "tilewright_reset"
REQUANTISE, RESCALE = "tilewright_requantise", "tilewright_rescale"
_CALLS = (GEMM, DEPTHWISE, RESET, REQUANTISE, RESCALE)
_EXTERN = "tirx.call_extern"
PAR_WORDS = 3  # 32-bit words of the parameters of one channel
SLOTS = "tilewright_slots"  # annotates a loading block: slots of the tensor; 0 lets the compiler choose
THREAD, COPIES = "tilewright_thread", "tilewright_copies"  # loops over virtual threads, and copies for them


def is_instruction(call: Node) -> bool:
    """True if a call of TIR is an instruction of the accelerator, by the name of the external function."""
    return getattr(call.op, "name", "") == _EXTERN and str(call.args[0].value) in _CALLS


def _no_other_back_end(call: Node) -> Node:
    """`call`, unless it is an instruction. Every other back end calls this: LLVM's code would end in a crash."""
    if is_instruction(call):
        raise UnsupportedError(
            f"{call.args[0].value} is an instruction of the accelerator: build the schedule with tilewright.build"
        )
    return call


ir.register_op_attr(_EXTERN, "default.FLowerIntrinsic", _no_other_back_end)


def entry_elements(cfg: Config, mem: Mem) -> int:
    """Elements of one entry of scratchpad `mem` (INP, WGT, ACC or PAR)."""
    return {
        Mem.INP: cfg.batch * cfg.block_in,
        Mem.WGT: cfg.block_out * cfg.block_in,
        Mem.ACC: cfg.lanes,
        Mem.PAR: cfg.block_out * PAR_WORDS,
    }[mem]


def gemm_intrin(cfg: Config) -> str:
    """Name of the intrinsic `acc[b, o] += inp[b, i] * wgt[o, i]` over one entry of each.

    Raises `UnsupportedError` for blocks of 1, which TVM cannot tensorize.
    """
    if min(cfg.block_in, cfg.block_out) < 2:
        raise UnsupportedError(
            f"Config.block_in = {cfg.block_in}, block_out = {cfg.block_out}: schedules need 2 or more"
        )
    name = f"tilewright.gemm.{cfg.batch}x{cfg.block_in}x{cfg.block_out}"
    if TensorIntrin.get(name, allow_missing=True) is None:
        TensorIntrin.register(name, *_gemm(cfg.batch, cfg.block_in, cfg.block_out))
    return name


def depthwise_intrin(cfg: Config) -> str:
    """Name of the intrinsic `acc[b, c] += inp[b, c] * row[c]` over one entry of inputs and accumulators.

    Raises `UnsupportedError` for blocks of 1 or of different sizes.
    """
    if cfg.block_in != cfg.block_out or cfg.block_out < 2:
        raise UnsupportedError(
            f"Config.block_in = {cfg.block_in}, block_out = {cfg.block_out}: depthwise schedules need equal blocks, "
            "2 or more"
        )
    name = f"tilewright.depthwise.{cfg.batch}x{cfg.block_out}"
    if TensorIntrin.get(name, allow_missing=True) is None:
        TensorIntrin.register(name, *_depthwise(cfg.batch, cfg.block_out))
    return name


def reset_intrin(cfg: Config) -> str:
    """Name of the intrinsic `acc[b, o] = 0` over one entry."""
    name = f"tilewright.reset.{cfg.batch}x{cfg.block_out}"
    if TensorIntrin.get(name, allow_missing=True) is None:
        TensorIntrin.register(name, *_reset(cfg.batch, cfg.block_out))
    return name


def register(cfg: Config) -> None:
    """Register the intrinsics of `cfg`, for schedules that are read from a file."""
    gemm_intrin(cfg)
    reset_intrin(cfg)
    if cfg.block_in == cfg.block_out:
        depthwise_intrin(cfg)


def _gemm(batch: int, block_in: int, block_out: int):
    inp, wgt, acc = (batch, block_in), (block_out, block_in), (batch, block_out)
    one = batch == 1  # tensorize drops unit iterators, so the description must not have one

    @T.prim_func(s_tir=True)
    def desc(ha: T.handle, hb: T.handle, hc: T.handle):
        a = T.match_buffer(ha, inp, "int8", offset_factor=batch * block_in, scope=INP)
        b = T.match_buffer(hb, wgt, "int8", offset_factor=block_out * block_in, scope=WGT)
        c = T.match_buffer(hc, acc, "int32", offset_factor=batch * block_out, scope=ACC)
        with T.sblock("root"):
            T.reads(c[0:batch, 0:block_out], a[0:batch, 0:block_in], b[0:block_out, 0:block_in])
            T.writes(c[0:batch, 0:block_out])
            if one:
                for j, k in T.grid(block_out, block_in):
                    with T.sblock("update"):
                        vj, vk = T.axis.remap("SR", [j, k])
                        c[0, vj] = c[0, vj] + T.cast(a[0, vk], "int32") * T.cast(b[vj, vk], "int32")
            else:
                for i, j, k in T.grid(batch, block_out, block_in):
                    with T.sblock("update"):
                        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                        c[vi, vj] = c[vi, vj] + T.cast(a[vi, vk], "int32") * T.cast(b[vj, vk], "int32")

    return desc, _product(GEMM, inp, wgt, acc)


def _depthwise(batch: int, block: int):
    entry, row, one = (batch, block), (1, block), batch == 1

    @T.prim_func(s_tir=True)
    def desc(ha: T.handle, hb: T.handle, hc: T.handle):
        a = T.match_buffer(ha, entry, "int8", offset_factor=batch * block, scope=INP)
        b = T.match_buffer(hb, row, "int8", offset_factor=block, scope=WGT)
        c = T.match_buffer(hc, entry, "int32", offset_factor=batch * block, scope=ACC)
        with T.sblock("root"):
            T.reads(c[0:batch, 0:block], a[0:batch, 0:block], b[0:1, 0:block])
            T.writes(c[0:batch, 0:block])
            if one:
                for j in T.serial(block):
                    with T.sblock("update"):
                        vj = T.axis.remap("S", [j])
                        c[0, vj] = c[0, vj] + T.cast(a[0, vj], "int32") * T.cast(b[0, vj], "int32")
            else:
                for i, j in T.grid(batch, block):
                    with T.sblock("update"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        c[vi, vj] = c[vi, vj] + T.cast(a[vi, vj], "int32") * T.cast(b[0, vj], "int32")

    return desc, _product(DEPTHWISE, entry, row, entry)


def _product(name: str, inp: tuple[int, int], wgt: tuple[int, int], acc: tuple[int, int]):
    """The implementation `name(acc, inp, wgt)` on blocks of these shapes."""

    @T.prim_func(s_tir=True)
    def impl(ha: T.handle, hb: T.handle, hc: T.handle):
        a = T.match_buffer(ha, inp, "int8", offset_factor=inp[0] * inp[1], scope=INP)
        b = T.match_buffer(hb, wgt, "int8", offset_factor=wgt[0] * wgt[1], scope=WGT)
        c = T.match_buffer(hc, acc, "int32", offset_factor=acc[0] * acc[1], scope=ACC)
        with T.sblock("root"):
            T.reads(c[0 : acc[0], 0 : acc[1]], a[0 : inp[0], 0 : inp[1]], b[0 : wgt[0], 0 : wgt[1]])
            T.writes(c[0 : acc[0], 0 : acc[1]])
            T.evaluate(T.call_extern("int32", name, c.access_ptr("rw"), a.access_ptr("r"), b.access_ptr("r")))

    return impl


def _reset(batch: int, block_out: int):
    shape, one = (batch, block_out), batch == 1

    @T.prim_func(s_tir=True)
    def desc(hc: T.handle):
        c = T.match_buffer(hc, shape, "int32", offset_factor=batch * block_out, scope=ACC)
        with T.sblock("root"):
            T.reads()
            T.writes(c[0:batch, 0:block_out])
            if one:
                for j in T.serial(block_out):
                    with T.sblock("init"):
                        vj = T.axis.remap("S", [j])
                        c[0, vj] = 0
            else:
                for i, j in T.grid(batch, block_out):
                    with T.sblock("init"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        c[vi, vj] = 0

    @T.prim_func(s_tir=True)
    def impl(hc: T.handle):
        c = T.match_buffer(hc, shape, "int32", offset_factor=batch * block_out, scope=ACC)
        with T.sblock("root"):
            T.reads()
            T.writes(c[0:batch, 0:block_out])
            T.evaluate(T.call_extern("int32", RESET, c.access_ptr("w")))

    return desc, impl


def tensorize_gemm(sch: Schedule, block, cfg: Config) -> None:
    """Map `block` to the GEMM intrinsic; its innermost loops are batch, block_out and block_in, in this order.

    Call it last: handles of the block's loops are invalid afterwards. Raises `ScheduleError` with
    the remedy for other loops, scopes, dtypes, casts or layouts.
    """
    intrinsic, b, o, i = gemm_intrin(cfg), cfg.batch, cfg.block_out, cfg.block_in
    factors = (
        Wanted("input", "INP", INP, "int8", (b, i), (i, 0, 1), _ACTIVATIONS),
        Wanted("weights", "WGT", WGT, "int8", (o, i), (0, i, 1), "layout.pack_weights or pack_dense_weights"),
    )
    loops = {"batch": b, "block_out": o, "block_in": i}
    _tensorize(sch, block, intrinsic, Form(loops, _accumulators(cfg, (o, 1, 0)), factors))


def tensorize_depthwise(sch: Schedule, block, cfg: Config) -> None:
    """Map `block` to the depthwise intrinsic; its innermost loops are batch and block_out, in this order.

    Weights are consecutive rows of `block_out` elements from the beginning of the tensor in local.wgt.
    Call it last: handles of the block's loops are invalid afterwards. Raises as `tensorize_gemm` does.
    """
    intrinsic, b, o = depthwise_intrin(cfg), cfg.batch, cfg.block_out
    factors = (
        Wanted("input", "INP", INP, "int8", (b, o), (o, 1), _ACTIVATIONS),
        Wanted("weights", "WGT", WGT, "int8", (1, o), (0, 1), "layout.pack_depthwise_weights"),
    )
    _tensorize(sch, block, intrinsic, Form({"batch": b, "block_out": o}, _accumulators(cfg, (o, 1)), factors))


def tensorize_reset(sch: Schedule, block, cfg: Config) -> None:
    """Map the initialisation `block` to the reset intrinsic; its innermost loops are batch and block_out.

    Optional: a nest that stores zero to accumulators becomes the same instruction. Raises as `tensorize_gemm` does.
    """
    loops = {"batch": cfg.batch, "block_out": cfg.block_out}
    _tensorize(sch, block, reset_intrin(cfg), Form(loops, _accumulators(cfg, (cfg.block_out, 1))))


_ACTIVATIONS = "layout.pack_activations or pack_dense_activations"


def _accumulators(cfg: Config, steps: tuple[int, ...]) -> Wanted:
    return Wanted("accumulators", "ACC", ACC, "int32", (cfg.batch, cfg.block_out), steps)


def _tensorize(sch: Schedule, block, intrinsic: str, form: Form) -> None:
    with in_one_sentence(intrinsic):
        block = sch.get_sblock(block) if isinstance(block, str) else block
        name = getattr(sch.get(block), "name_hint", "")
    check(sch, block, form)
    with in_one_sentence(f"block {name!r}"):
        loops = sch.get_loops(block)[-len(form.loops) :]
        # Predicates of tails go to the block outside; the intrinsic's description has none.
        sch.blockize(sch.add_unit_loop(loops[0]))
        inner = sch.get_loops(sch.get_sblock(name))[-len(form.loops) :]
        sch.tensorize(inner[form.loops["batch"] == 1], intrinsic)
