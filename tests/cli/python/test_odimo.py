"""`tilewright.odimo`: what is there without torch, and what is looked up when it is asked for."""

import importlib
import sys

import pytest

from tilewright import odimo
from tilewright.hw.errors import UnsupportedError


def test_every_name_is_listed_and_there():
    assert {"Plan", "Task", "explore", "MappedConv2d", "integers"} <= set(dir(odimo))
    assert all(getattr(odimo, name) is not None for name in odimo.__all__)


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = odimo.nothing


def test_what_trains_needs_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("tilewright.apps.odimo.torch_")]:
        monkeypatch.delitem(sys.modules, name)
    fresh = importlib.reload(odimo)
    with pytest.raises(UnsupportedError, match=r"training needs torch .* pip install 'tilewright\[train\]'"):
        _ = fresh.MappedConv2d
