"""Errors of TVM in one sentence: its own texts quote whole modules.

The whole text stays at hand as the cause of the error that is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ...hw.errors import ScheduleError, TilewrightError

LIMIT = 200  # characters of a sentence: room for the file, the line and the statement beside it
_PRIMITIVE = re.compile(r"schedule primitive '([\w-]+)'")
_MESSAGE = "Error message: "
_CHECK = re.compile(r"^(\w+Error: )?(Check failed: (\(.*\) is false: |))?", re.DOTALL)
_PLACE = re.compile(r"--> (\S+?:\d+)")
# TVM's number for what it underlines in the dump
_OBJECT, _WHOLE = re.compile(r"((?:The )?(?:block|loop)) [\w.]*(?:SBlock|For)#\d+"), r"\1"
_RENAMED = {"get-block": "get_sblock"}  # what TVM calls a primitive -> the method's name
_NO_MATCH = "the block does not match the intrinsic; use tensorize_gemm, _depthwise or _reset, which say where"


def one_sentence(exc: BaseException) -> str:
    """The first meaningful sentence of `exc`: one line of at most `LIMIT` characters, without a dump of a module."""
    text = str(exc)
    primitive, place = _PRIMITIVE.search(text), _PLACE.search(text)
    if primitive:
        _, _, message = text.rpartition(_MESSAGE) if _MESSAGE in text else ("", "", "does not apply here")
        message = _NO_MATCH if primitive[1] == "tensorize" else message
        name = _RENAMED.get(primitive[1], primitive[1].replace("-", "_"))
        message = _CHECK.sub("", _OBJECT.sub(_WHOLE, message))
        sentence = f"sch.{name}: {_first_line(message)}"
    else:
        sentence = _first_line(_CHECK.sub("", text))
        if place:  # a diagnostic of TVMScript: what is wrong, and an arrow to where
            sentence = f"{sentence.removeprefix('error: ')} ({place[1]})"
    return shortened(sentence or type(exc).__name__)


def shortened(text: str, limit: int = LIMIT) -> str:
    """`text` on one line of at most `limit` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


@contextmanager
def in_one_sentence(what: str) -> Iterator[None]:
    """Make each error of TVM in the body a `ScheduleError` of one sentence that begins with `what`.

    The body calls TVM only: an error of our own code in it would be told as TVM's.
    """
    try:
        yield
    except TilewrightError:
        raise
    except Exception as exc:
        raise ScheduleError(f"{what}: {one_sentence(exc)}") from exc
