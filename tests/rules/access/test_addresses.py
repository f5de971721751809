"""IP addresses in networks, and in the ranges of ACL 1.0."""

from __future__ import annotations

import pytest

from cometmq.rules.access.addresses import is_in_network, is_in_range, is_network, is_range


@pytest.mark.parametrize(
    ("address", "network", "is_inside"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.4", "10.1.2.3", False),
        ("10.200.0.1", "10.0.0.0/8", True),
        ("11.0.0.1", "10.0.0.7/8", False),
        ("::ffff:10.0.0.1", "10.0.0.0/8", True),
        ("fd00::17", "fd00::/8", True),
        ("fe80::17", "fd00::/8", False),
        ("10.0.0.1", "fd00::/8", False),
        ("unknown", "0.0.0.0/0", False),
        ("10.0.0.1", "nonsense", False),
        ("", "0.0.0.0/0", False),
    ],
)
def test_an_address_is_in_a_network_or_not(address: str, network: str, is_inside: bool) -> None:
    assert is_in_network(address, network) is is_inside


def test_networks_are_distinguished_from_other_texts() -> None:
    good = ["10.0.0.1", "10.0.0.0/8", "::1", "fd00::/8"]
    bad = ["10.0.0", "10.0.0.0/33", "host", "", "10.0.0.*"]
    assert [is_network(text) for text in (*good, *bad)] == [True] * 4 + [False] * 5


@pytest.mark.parametrize(
    ("address", "text", "is_inside"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "*", True),
        ("10.1.2.3", "", False),
        ("10.1.2.3", "10.1.*.*", True),
        ("10.2.2.3", "10.1.*.*", False),
        ("10.1.7.9", "10.1.2-9.*", True),
        ("10.1.10.9", "10.1.2-9.*", False),
        ("10.1.2.4", "10.1.2.{3,4}", True),
        ("10.1.2.5", "10.1.2.{3,4}", False),
        ("10.1.2.5", "10.1.2.3, 10.1.2.5", True),
        ("10.1.2.3", "10.1.2", False),
        ("fd00::5", "fd00:0:0:0:0:0:0:1-9", True),
        ("fd00::a", "fd00:0:0:0:0:0:0:1-9", False),
        ("fd00::1:a", "fd00:0:0:0:0:0:*:a", True),
        ("10.1.2.3", "fd00::1", False),
        ("unknown", "*", False),
    ],
)
def test_an_address_is_in_a_range_or_not(address: str, text: str, is_inside: bool) -> None:
    assert is_in_range(address, text) is is_inside


def test_ranges_are_distinguished_from_other_texts() -> None:
    good = ["10.1.2.3", "*", "10.1.2-9.*", "10.1.2.{3,4}", "10.1.2.3,10.1.2.4", "fd00::1", ""]
    bad = ["10.1.2", "host", "10.1.2.x", "10.1.2.3-", "fd00:1-x:0:0:0:0:0:0"]
    assert [is_range(text) for text in (*good, *bad)] == [True] * 7 + [False] * 5
