"""boards/client.py: addresses, and programs that are not servers; test_server.py tests jobs."""

import pytest

from tilewright.boards.client import Address, Client
from tilewright.hw.errors import BoardError, ConfigError


@pytest.mark.parametrize(
    "host, target",
    [("board", "board:50177"), ("board:7", "board:7"), ("[::1]", "[::1]:50177"), ("[::1]:7", "[::1]:7")],
)
def test_the_port_has_a_default(host, target):
    assert Address(host).target == target


@pytest.mark.parametrize("host", ["board", "192.0.2.1:7", "[2001:db8::1]"])
def test_a_token_does_not_cross_a_network_in_the_clear(host):
    with pytest.raises(ConfigError, match="sending a token to another machine needs TLS; .*ssh -L 50177"):
        Address(host, "0123456789abcdef")
    Address(host, "0123456789abcdef", b"certificate")
    Address("localhost", "0123456789abcdef")
    Address("[::1]:7", "0123456789abcdef")


def test_nobody_answers():
    with pytest.raises(BoardError, match="localhost:1: no answer; check that `tilewright serve` runs there"):
        Client(Address("localhost:1", seconds=5)).info()
