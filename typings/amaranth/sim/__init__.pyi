# Amaranth builds members and layouts at run time, which type checkers cannot follow: everything is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
