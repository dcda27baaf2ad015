"""What a file is refused for, in one line: refusals of one kind together, with their number, and names cut short."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME_LENGTH = 40  # characters of a tensor's name
_KINDS = 12  # of refusals that are listed
_QUOTED, _NUMBERS = re.compile(r"'[^']*'"), re.compile(r"\d+")


@dataclass(frozen=True)
class Refusal:
    """A reason, and the operator it is about: kind, name and the tensor it writes; empty for inputs and outputs."""

    reason: str
    kind: str = ""
    name: str = ""
    tensor: str = ""

    @property
    def like(self) -> tuple[str, str]:
        """What refusals of one kind have in common: everything but names and numbers."""
        return self.kind, _NUMBERS.sub("", _QUOTED.sub("", self.reason))

    def __str__(self) -> str:
        reason = _QUOTED.sub(lambda found: f"'{shortened(found[0][1:-1])}'", self.reason)
        about = f"{self.kind} {self.name!r} (output {shortened(self.tensor)!r}) " if self.kind else ""
        return about + reason


def shortened(name: str) -> str:
    """The end of a long name, which says more than its beginning."""
    return name if len(name) <= _NAME_LENGTH else f"...{name[3 - _NAME_LENGTH :]}"


def summary(refusals: list[Refusal]) -> str:
    """Their number, then the first of each kind, with how many there are, the most frequent kinds first."""
    groups: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in refusals:
        groups.setdefault(refusal.like, []).append(refusal)
    ordered = sorted(groups.values(), key=len, reverse=True)
    parts = [f"{len(group)} times: {group[0]}" if len(group) > 1 else str(group[0]) for group in ordered[:_KINDS]]
    if rest := ordered[_KINDS:]:
        parts.append(f"and {sum(map(len, rest))} more of {len(rest)} other kinds")
    return f"{len(refusals)} unsupported construct{'s' * (len(refusals) > 1)}: {'; '.join(parts)}"
