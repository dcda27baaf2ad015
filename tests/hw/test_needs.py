"""hw/needs.py."""

import pytest

from tilewright.hw.errors import UnsupportedError
from tilewright.hw.needs import need


def test_what_is_there_is_no_error():
    need("this", "dev", "json", "importlib.util")


@pytest.mark.parametrize(
    "modules, text",
    [
        (
            ["json", "no_such_tool"],
            r"this needs no-such-tool, which is not installed; pip install 'tilewright\[dev\]'$",
        ),
        (["no_tool", "no.tool"], "this needs no-tool and no.tool, which are not installed; "),
    ],
)
def test_what_is_missing_is_named_with_what_brings_it(modules, text):
    with pytest.raises(UnsupportedError, match=text):
        need("this", "dev", *modules)


def test_packages_are_called_as_their_makers_do(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="this needs Amaranth and gRPC and protobuf, "):
        need("this", "rtl", "amaranth", "grpc", "google.protobuf")
