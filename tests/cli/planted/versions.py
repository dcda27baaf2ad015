"""The slow and the fast version of a planted program."""

from collections.abc import Callable
from typing import Any


def versions(make: Callable[..., Any], **option: tuple[Any, Any]) -> tuple[Callable[[Any], Any], ...]:
    """Two functions of the configuration, which call `make` with the first and the second value of the option."""
    ((name, values),) = option.items()

    def version(value: Any) -> Callable[[Any], Any]:
        def made(cfg):
            return make(cfg, **{name: value})

        return made

    return tuple(map(version, values))
