# TVM registers nodes and overloads at run time, and its annotations lack what it takes: everything is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
