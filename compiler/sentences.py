"""Errors of TVM in one sentence: the mistake, and what to do about it.

TVM's texts quote whole modules, in a hundred lines. `in_one_sentence` converts them to a `ScheduleError` of one line;
the whole text stays its `__context__`, which a traceback does not print.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..hw.errors import ScheduleError, TilewrightError

LIMIT = 220  # characters of a sentence; the file, the line and the statement are added to it
_PRIMITIVE = re.compile(r"schedule primitive '([\w-]+)'")
_MESSAGE = "Error message: "
_CHECK = re.compile(r"^(\w+Error: )?(Check failed: (\(.*\) is false: |))?", re.DOTALL)
_PLACE = re.compile(r"--> (\S+?:\d+)")
# blocks and loops that TVM's dump numbers: the comment, and their names in the next line
_NUMBERED = re.compile(r'# ((?:s_tir\.SBlock|tirx\.For)#\d+)\n\s*(?:with T\.sblock\("([\w.]+)"|for (\w+))')
_OBJECT = re.compile(r" ?(?:s_tir\.SBlock|tirx\.For)#\d+")
_RENAMED = {"get-block": "get_sblock"}  # TVM's name of a primitive -> name of the method
_SHORTER = (
    (r"The primitive requires all the (\w+)\(s\) .*List of the \w+\(s\): ?(.*)", r"\1 \2 is not under the loop"),
    (r"\. This is because some .*", ", as it belongs to a reduction"),
    (r'In "Schedule\.\w+", "(.*)" has wrong type\. Expected (.*), but gets: (.*)', r'"\1" must be \2, not \3'),
    (r"\. However, the input `buffer_index` is (\d+), .*", r", not \1"),
    (r" This means the buffer is either .*", ""),
)
_REMEDIES = (
    (r"doesn't match the tensor intrin|not registered", "use tensorize_gemm, _depthwise or _reset, which say where"),
    (r"Cannot find a block", "it has the name of its te.compute; decompose_reduction makes NAME_init and NAME_update"),
    (r"no longer exists", "get it again by sch.get_loops or sch.get_sblock: a primitive replaced it"),
    (r"`buffer_index`", "tensors count from 0, in the order in which the block uses them"),
    (r"storage scope", "scopes are local.inp, local.wgt, local.acc and local.par"),
    (r"not allocated by a block", "parameters lie in DRAM: cache_read an input, set_scope the stage before an output"),
    (r"consumer .* not under", "compute_at needs a loop around all that read the block: move these there first"),
    (r"producer .* not under", "reverse_compute_at needs a loop around all that the block reads: cache_read and "
     "compute_at these there, before or after"),
    (r"is an output block", "nothing reads it: move the stages before it to its loops, by compute_at"),
    (r"under the same block scope", "take a loop of a block that reads this one; for reverse_compute_at one it reads"),
    (r"\bfactors?\b", "factors are 1 or more, from outside to inside, with None for one of them, as [None, 4]"),
    (r'must be "LoopRV", not "List', "write the loops one by one, as sch.reorder(*loops)"),
    (r'must be .*"?LoopRV', "loops are what sch.get_loops(block) returns"),
    (r'must be .*"?SBlockRV', "blocks are what sch.get_sblock(name) returns"),
    (r'"mod" must be', "of tensors make a function, with te.create_prim_func([inputs, outputs])"),
    (r"not in a chain", "reorder loops of one block, before others are moved between them"),
    (r"multiple times", "name each loop once"),
    (r"can't be fused", "fuse loops that follow each other, the outer one first"),
    (r"threadscope", "bind it to vthread.x, vthread.y or vthread.z"),
    (r'"(bind|vectorize|parallel)" cannot', "take a loop of the output, not of a reduction"),
    (r"not a reduction block", "decompose the block of a te.sum, te.max or te.min, once"),
    (r"higher than all the loops", "reorder the loops of the reduction inside, and pass the outermost of them"),
    (r"ancestor of", "pass one of sch.get_loops(block)"),
    (r"^copy: unordered_map", "TVM copies no schedule that is tensorized: copy it before"),
    (r"has init statement", "a reduction cannot be inlined: move it by compute_at"),
)  # fmt: skip


def one_sentence(exc: BaseException) -> str:
    """The first meaningful sentence of `exc`: one line of at most `LIMIT` characters, without a dump of a module.

    A refusal of a schedule's primitive begins with the primitive and ends with a remedy.
    """
    text = str(exc)
    primitive, place = _PRIMITIVE.search(text), _PLACE.search(text)
    if primitive:
        name = _RENAMED.get(primitive[1], primitive[1].replace("-", "_"))
        _, found, message = text.rpartition(_MESSAGE)
        names = {number: f" '{block or loop}'" for number, block, loop in _NUMBERED.findall(text)}
        message = _OBJECT.sub(
            lambda match: names.get(match[0].strip(), ""), message if found else "does not apply here"
        )
        return refusal(name, _CHECK.sub("", message))
    sentence = _first_line(_CHECK.sub("", text))
    if place:  # a diagnostic of TVMScript: the mistake, and an arrow to its line
        sentence = f"{sentence.removeprefix('error: ')} ({place[1]})"
    return shortened(sentence or type(exc).__name__)


def refusal(name: str, message: str) -> str:
    """The sentence for `message`, by which method `name` of a schedule refuses: with a remedy."""
    message = _first_line(message) or "does not apply here"
    for long, short in _SHORTER:
        message = re.sub(long, short, message)
    message = message.rstrip(" .:")
    remedies = (remedy for pattern, remedy in _REMEDIES if re.search(pattern, f"{name}: {message}"))
    remedy = next(remedies, f"help(Schedule.{name}) says what it needs")
    begin = f"sch.{name}: "
    return f"{begin}{shortened(message, LIMIT - len(begin) - len(remedy) - 2)}; {remedy}"


def shortened(text: str, limit: int = LIMIT) -> str:
    """`text` on one line of at most `limit` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


@contextmanager
def in_one_sentence(what: str) -> Iterator[None]:
    """Convert each error of TVM in the body to a `ScheduleError` of one sentence that begins with `what`.

    The body must only call TVM: an error of our own code in it would be reported as TVM's.
    """
    try:
        yield
    except TilewrightError:
        raise
    except Exception as exc:
        raise ScheduleError(f"{what}: {one_sentence(exc)}") from None


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Convert each error of TVM's method `name` of a schedule to a `ScheduleError` with the remedy."""
    try:
        yield
    except TilewrightError:
        raise
    except Exception as exc:
        sentence = one_sentence(exc)
        raise ScheduleError(sentence if sentence.startswith("sch.") else refusal(name, sentence)) from None
