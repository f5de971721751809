"""Addresses: split and joined, and those of a socket's peer."""

from __future__ import annotations

import pytest

from cometmq.errors import ConnectFailed
from cometmq.net.address import join_address, peer_address, split_address
from cometmq.net.blocking_channel import BlockingChannel


@pytest.mark.parametrize(("host", "text"), [("h", "h:1"), ("::1", "[::1]:1")])
def test_an_address_comes_back_as_it_was_joined(host: str, text: str) -> None:
    assert join_address(host, 1) == text
    assert split_address(f" {text} ") == (host, 1)


@pytest.mark.parametrize("text", ["nowhere", "host:", ":1", "127.0.0.1:x", "127.0.0.1:99999"])
def test_what_is_no_address_is_refused_with_a_sentence_by_whoever_connects(text: str) -> None:
    with pytest.raises(ConnectFailed, match="is not an address; write host:port"):
        BlockingChannel(text)


@pytest.mark.parametrize(
    ("peername", "found"),
    [
        (("1.2.3.4", 5), ("1.2.3.4:5", "1.2.3.4", bytes([1, 2, 3, 4, 0, 0, 0, 5]))),
        (("::ffff:1.2.3.4", 5, 0, 0), ("1.2.3.4:5", "1.2.3.4", bytes([1, 2, 3, 4, 0, 0, 0, 5]))),
        (("fe80::1%eth0", 5, 0, 2), None),
        (None, ("unknown", "", bytes(8))),
    ],
)
def test_a_peer_is_known_by_its_address_with_its_port_without_and_as_records_hold_it(
    peername: tuple[str | int, ...] | None, found: tuple[str, str, bytes] | None
) -> None:
    ipv6 = "[fe80::1%eth0]:5", "fe80::1%eth0", bytes.fromhex("fe80" + "00" * 13 + "01" + "00000005")
    assert peer_address(peername) == (found or ipv6)
