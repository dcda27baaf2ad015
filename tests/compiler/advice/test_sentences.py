"""compiler/advice/sentences.py: one sentence of each kind of TVM's errors."""

import pytest

from tilewright.compiler.advice import LIMIT, in_one_sentence, one_sentence, shortened
from tilewright.compiler.tvm_compat import Schedule, te
from tilewright.hw.errors import CapacityError, ScheduleError

DUMP = "\n\nThe IR with diagnostic is:\n# from tvm.script import ir as I\n@I.ir_module\nclass Module:\n"
TEXTS = [
    (f"ScheduleError: An error occurred in the schedule primitive 'cache-read'.{DUMP}Error message: The block "
     "s_tir.SBlock#0 has 1 read regions.\nMore lines", "sch.cache_read: The block has 1 read regions."),
    (f"An error occurred in the schedule primitive 'get-block'.{DUMP}Error message: Cannot find it",
     "sch.get_sblock: Cannot find it"),
    (f"An error occurred in the schedule primitive 'tensorize'.{DUMP}Error message: The stmt tirx.For#0 doesn't match",
     "sch.tensorize: the block does not match the intrinsic; use tensorize_gemm, _depthwise or _reset, which say "
     "where"),
    (f"An error occurred in the schedule primitive 'split'.{DUMP}", "sch.split: does not apply here"),
    ("Check failed: (analyzer->CanProve(f(x) == 0)) is false: The offset is odd.", "The offset is odd."),
    ("InternalError: Check failed: (ok) is false: broken\nStack trace:", "broken"),
    ("error: Undefined variable: j\n --> mine.py:5:9\n  |\n 5 | x", "Undefined variable: j (mine.py:5)"),
    ("\n\n  plain\nand more", "plain"),
    ("", "ValueError"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), TEXTS)
def test_the_sentence_that_matters(text, sentence):
    assert one_sentence(ValueError(text)) == sentence


def test_long_sentences_are_cut():
    text = one_sentence(ValueError("word " * 200))
    assert len(text) == LIMIT and text.endswith("...")
    assert shortened("a\n  b", 10) == "a b"


def test_tvms_own_errors_keep_their_text_as_cause():
    x = te.placeholder((8,), "int32", "x")
    sch = Schedule(te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1, name="y")]))
    text = "^my schedule: sch.get_sblock: Cannot find a block with the name: z$"
    with pytest.raises(ScheduleError, match=text) as raised, in_one_sentence("my schedule"):
        sch.get_sblock("z")
    assert "I.ir_module" in str(raised.value.__cause__)


def test_our_own_errors_pass():
    with pytest.raises(CapacityError, match="^full$"), in_one_sentence("here"):
        raise CapacityError("full")
