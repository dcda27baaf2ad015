"""compiler/sentences.py: TVM's errors in one sentence, and what to do about each refusal of a schedule's primitive."""

import traceback

import pytest

from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.sentences import LIMIT, in_one_sentence, one_sentence, refusal, shortened
from tilewright.compiler.tvm_compat import Schedule, te, tirx
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ScheduleError

DUMP = "\n\nThe IR with diagnostic is:\n# from tvm.script import ir as I\n@I.ir_module\nclass Module:\n"
DUMP += '  # s_tir.SBlock#0\n    with T.sblock("acc"):\n  # tirx.For#1\n    for i in range(4):\n'
MATCH = "use tensorize_gemm, _depthwise or _reset, which say where"
TEXTS = [
    (f"ScheduleError: An error occurred in the schedule primitive 'cache-read'.{DUMP}Error message: The block "
     "s_tir.SBlock#0 has 1 read regions, so `buffer_index` is required to be in [0, 1). However, the input "
     "`buffer_index` is 4, which is out of the expected range.\nMore lines",
     "sch.cache_read: The block 'acc' has 1 read regions, so `buffer_index` is required to be in [0, 1), not 4; "
     "tensors count from 0, in the order in which the block uses them"),
    (f"An error occurred in the schedule primitive 'tensorize'.{DUMP}Error message: The stmt tirx.For#0 doesn't match "
     "the tensor intrin", f"sch.tensorize: The stmt doesn't match the tensor intrin; {MATCH}"),
    (f"An error occurred in the schedule primitive 'split'.{DUMP}",
     "sch.split: does not apply here; help(Schedule.split) says what it needs"),
    ("Check failed: (analyzer->CanProve(f(x) == 0)) is false: The offset is odd.", "The offset is odd."),
    ("InternalError: Check failed: (ok) is false: broken\nStack trace:", "broken"),
    ("error: Undefined variable: j\n --> mine.py:5:9\n  |\n 5 | x", "Undefined variable: j (mine.py:5)"),
    ("\n\n  plain\nand more", "plain"),
    ("", "ValueError"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), TEXTS)
def test_the_sentence_that_matters(text, sentence):
    assert one_sentence(ValueError(text)) == sentence


def test_long_sentences_are_cut_before_the_remedy():
    text = one_sentence(ValueError("word " * 200))
    assert len(text) == LIMIT and text.endswith("...")
    text = refusal("fuse", "The loops can't be fused because " + "long " * 100)
    assert len(text) <= LIMIT and text.endswith("...; fuse loops that follow each other, the outer one first")
    assert shortened("a\n  b", 10) == "a b"


def test_our_own_errors_pass():
    with pytest.raises(CapacityError, match="^full$"), in_one_sentence("here"):
        raise CapacityError("full")


def product():
    """A product `acc`, shifted as `sh`, stored as `y`."""
    x, w = te.placeholder((4, 2, 16), "int8", "x"), te.placeholder((6, 2, 16), "int8", "w")
    k, ki = te.reduce_axis((0, 2), "k"), te.reduce_axis((0, 16), "ki")
    acc = te.compute(
        (4, 6), lambda i, j: te.sum(x[i, k, ki].astype("int32") * w[j, k, ki].astype("int32"), axis=[k, ki]), name="acc"
    )
    sh = te.compute(acc.shape, lambda *i: acc(*i) >> tirx.const(2, "int32"), name="sh")
    y = te.compute(acc.shape, lambda *i: sh(*i).astype("int8"), name="y")
    return Schedule(te.create_prim_func([x, w, y]))


def loop(sch, name, k):
    return sch.get_loops(sch.get_sblock(name))[k]


def split_twice(sch):
    first = loop(sch, "acc", 0)
    sch.split(first, [2, None])
    sch.split(first, [2, None])


def decompose_twice(sch):
    sch.decompose_reduction(sch.get_sblock("acc"), loop(sch, "acc", 2))
    sch.get_sblock("acc")


def behind_its_copy(sch):
    """A tensor is copied before the loop at which its reader shall be."""
    sch.cache_read(sch.get_sblock("sh"), 0, "local.acc")
    sch.reverse_compute_at(sch.get_sblock("sh"), loop(sch, "acc", 0))


REFUSALS = [
    (lambda sch: sch.get_sblock("z"), r"name: z; it has the name of its te\.compute"),
    (decompose_twice, "decompose_reduction makes NAME_init and NAME_update"),
    (lambda sch: sch.cache_read("acc", 5, "local.inp"), r"'acc' has 2 read regions.*, not 5; tensors count from 0"),
    (lambda sch: sch.cache_read("acc", 0, "inp"), r'"inp" is invalid; scopes are local\.inp'),
    (lambda sch: sch.cache_read("acc", 0), r"'storage_scope'; help\(Schedule\.cache_read\)"),
    (lambda sch: sch.set_scope("y", 0, "local.acc"), "buffer y is not allocated by a block; parameters lie in DRAM"),
    (lambda sch: sch.compute_at("y", loop(sch, "acc", 0)), "'y' is an output block; nothing reads it: move the stages"),
    (lambda sch: sch.compute_at("acc", loop(sch, "acc", 0)), "take a loop of a block that reads this one"),
    (lambda sch: sch.compute_at("acc", loop(sch, "y", 0)), "consumer 'sh' is not under the loop; compute_at needs"),
    (behind_its_copy, r"producer 'acc_local\.acc' is not under the loop; reverse_compute_at needs"),
    (split_twice, r"loop no longer exists .*; get it again by sch\.get_loops"),
    (lambda sch: sch.split(loop(sch, "acc", 0), [2, 1]), r"extent of loop 'i'; factors are .*, as \[None, 4\]"),
    (lambda sch: sch.split(loop(sch, "acc", 0), 2), r'"factors" must be "list", not "int"; factors are'),
    (lambda sch: sch.split("i", [2, None]), r'not "str"; loops are what sch\.get_loops\(block\) returns'),
    (lambda sch: sch.reorder(sch.get_loops("acc")), r"one by one, as sch\.reorder\(\*loops\)"),
    (lambda sch: sch.reorder(loop(sch, "acc", 0), loop(sch, "y", 1)), "not in a chain .*; reorder loops of one block"),
    (lambda sch: sch.reorder(loop(sch, "acc", 0), loop(sch, "acc", 0)), "name each loop once"),
    (lambda sch: sch.fuse(loop(sch, "acc", 1), loop(sch, "acc", 0)), "fuse loops that follow each other"),
    (lambda sch: sch.bind(loop(sch, "acc", 0), "thread.x"), r"bind it to vthread\.x"),
    (lambda sch: sch.bind(loop(sch, "acc", 2), "vthread.x"), "it belongs to a reduction; take a loop of the output"),
    (lambda sch: sch.decompose_reduction("sh", loop(sch, "sh", 0)), r"'sh' is not a reduction .*; decompose the block"),
    (lambda sch: sch.decompose_reduction("acc", loop(sch, "acc", 3)), "reorder the loops of the reduction inside"),
    (lambda sch: sch.decompose_reduction("acc", loop(sch, "y", 0)), r"pass one of sch\.get_loops\(block\)"),
    (lambda sch: sch.compute_inline("acc"), "a reduction cannot be inlined: move it by compute_at"),
    (lambda sch: sch.tensorize(loop(sch, "acc", 0), "nothing"), "not registered; use tensorize_gemm"),
    (lambda sch: sch.copy().get_sblock("z"), r"name: z; it has the name of its te\.compute"),
    (lambda _: dense(PRESETS["tiny"], 4, 4, 4).copy(), "TVM copies no schedule that is tensorized: copy it before"),
    (lambda sch: Schedule([sch]), r"of tensors make a function, with te\.create_prim_func"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "remedy"), REFUSALS)
def test_a_refusal_is_one_line_with_the_remedy(call, remedy):
    with pytest.raises(ScheduleError, match=remedy) as raised:
        call(product())
    assert str(raised.value).startswith("sch.") and "\n" not in str(raised.value) and len(str(raised.value)) <= LIMIT
    assert "class Module" not in "".join(traceback.format_exception(raised.value))


def test_the_whole_text_is_the_context():
    with pytest.raises(ScheduleError) as raised:
        product().get_sblock("z")
    assert "I.ir_module" in str(raised.value.__context__)
