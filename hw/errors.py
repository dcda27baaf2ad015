"""Named errors of the whole stack.

Every mistake that a user can make raises a subclass of `TilewrightError`, whose text is one line
that says what is wrong, the value met, what is allowed, and what to do. The command prints that line
and exits with the class's `exit_code`; anything else that escapes is a defect of tilewright itself.
"""

import unicodedata


def printable(text: str, kept: str = "\n") -> str:
    """`text`, which may come from a file, for a terminal: characters that move the cursor or turn the text are escaped.

    These are all control and format characters except those in `kept`.
    """
    if text.isprintable():
        return text
    plain = (c.isprintable() or c in kept or unicodedata.category(c) == "Zs" for c in text)
    return "".join(c if whole else ascii(c)[1:-1] for c, whole in zip(text, plain))


def one_line(exc: BaseException) -> str:
    """The text of `exc` as one short printable line."""
    return printable((" ".join(str(exc).split()) or type(exc).__name__)[:500])


class TilewrightError(Exception):
    """Base of every error that a user can cause. `exit_code` is the command's exit status for it."""

    exit_code = 1

    def __str__(self) -> str:
        """The text, characters that would move a terminal's cursor escaped: names of a stranger's file are in it."""
        return printable(super().__str__())


class ConfigError(TilewrightError, ValueError):
    """A configuration is impossible or unknown."""

    exit_code = 3


class EncodingError(TilewrightError, ValueError):
    """A value does not fit its instruction field, or a word cannot be decoded."""

    exit_code = 4


class UnsupportedError(TilewrightError):
    """The construct is legal, but this version does not execute or compile it."""

    exit_code = 5


class FileError(TilewrightError):
    """A file is missing, truncated, of the wrong kind, or cannot be written."""

    exit_code = 6


class SignatureError(FileError):
    """A file has no signature, one of other contents or of another key, or cannot be signed."""


class CapacityError(TilewrightError):
    """A buffer, tile or program does not fit a scratchpad or the memory; the text names it."""

    exit_code = 7


class ProgramError(TilewrightError):
    """A program is wrong: bounds, dependence tokens, deadlock, race, or another configuration.

    `index` is the position in the program of the instruction that is wrong, or None.
    """

    exit_code = 8

    def __init__(self, message: str, index: int | None = None):
        super().__init__(message)
        self.index = index


class ExecutionError(ProgramError):
    """Execution stopped; the text holds the instruction's index and disassembly."""


class DeadlockError(ExecutionError):
    """No queue can make progress; the text names the token or instruction for which each queue waits."""


class TokenError(ExecutionError):
    """Dependence tokens are left over or counted beyond the stated depth."""


class HangError(ExecutionError):
    """A program did not end in the time allowed; the text names what each queue waits for, as far as it is known."""


class AccessError(ExecutionError):
    """An instruction touches a scratchpad or DRAM address that does not exist."""


class RaceError(ProgramError):
    """Two conflicting accesses are unordered in some legal execution; `pair` are their instructions, where known."""

    def __init__(self, message: str, pair: tuple[int, int] | None = None):
        super().__init__(message)
        self.pair = pair


class UnwrittenError(ProgramError):
    """An instruction reads memory that nothing wrote before, or an output is not written whole."""


class CertificateError(ProgramError):
    """A certificate is damaged, belongs to another program, or does not prove what it is for."""


class SteadyError(ProgramError):
    """A steady launch, which finds constants on chip, does something else than the launch that it stands for."""


class FingerprintError(ProgramError):
    """A program was made for another configuration than the device's; both are named."""


class InputError(TilewrightError, ValueError):
    """Data handed to a program has the wrong name, shape or dtype."""

    exit_code = 9


class ScheduleError(TilewrightError):
    """A schedule cannot be lowered to instructions; the text names the statement."""

    exit_code = 10


class KernelError(TilewrightError):
    """A statement of a kernel is wrong, whatever the operator: axes that do not match, indices that are outside."""

    exit_code = 10


class Unfit(CapacityError):
    """An operator does not suit a kernel, or does not fit the scratchpads; the text says why."""


class BoardError(TilewrightError):
    """A board or its server does not answer, or not as it should."""

    exit_code = 11
