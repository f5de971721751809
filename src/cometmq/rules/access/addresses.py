"""Whether an IP address lies in a network, or in one of the ranges of ACL 1.0.

Java: IPAddressUtils.isIPInRange; RemoteAddressStrategyFactory of the former module acl.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

_PARTS = re.compile(r"\*|\d{1,3}(-\d{1,3})?")
_HEX_PARTS = re.compile(r"\*|[0-9a-fA-F]{1,4}(-[0-9a-fA-F]{1,4})?")
_BRACES = re.compile(r"(.*)\{([^{}]*)\}(.*)", re.DOTALL)
_KEPT = 1024
"""Texts of addresses and networks whose meaning is kept."""


@lru_cache(_KEPT)
def is_network(text: str) -> bool:
    """Whether a text is an IP address, or a network as in 10.0.0.0/8 or fd00::/8."""
    return _network(text) is not None


@lru_cache(_KEPT)
def is_in_network(address: str, network: str) -> bool:
    """Whether an IP address lies in a network, or is that address."""
    at, around = _address(address), _network(network)
    return at is not None and around is not None and at in around


@lru_cache(_KEPT)
def is_range(text: str) -> bool:
    """Whether a text is a range of ACL 1.0: 10.1.2.3, 10.1.*.*, 10.1.2-9.*, 10.1.2.{3,4}, lists."""
    return all(_is_one_range(one) for one in _spread(text))


@lru_cache(_KEPT)
def is_in_range(address: str, text: str) -> bool:
    """Whether an IP address lies in a range of ACL 1.0; one that is empty holds none."""
    at = _address(address)
    return at is not None and any(_holds(one, at) for one in _spread(text))


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        return None


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text.strip("[]").partition("%")[0])  # without the zone, as in %eth0
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def _spread(text: str) -> list[str]:
    """The single ranges of a list, in commas or braces."""
    found = _BRACES.fullmatch(text.strip())
    if found is not None:
        before, inner, after = found.groups()
        return [f"{before}{one.strip()}{after}" for one in inner.split(",") if one.strip()]
    return [one.strip() for one in text.split(",") if one.strip()]


def _is_one_range(text: str) -> bool:
    if text == "*" or _address(text) is not None:
        return True
    pattern, parts = (_HEX_PARTS, text.split(":")) if ":" in text else (_PARTS, text.split("."))
    is_whole = len(parts) == (8 if ":" in text else 4)
    return is_whole and all(pattern.fullmatch(part) for part in parts)


def _holds(one: str, at: IPv4Address | IPv6Address) -> bool:
    if one == "*":
        return True
    if (exact := _address(one)) is not None:
        return exact == at
    is_long = isinstance(at, IPv6Address)
    if is_long != (":" in one) or not _is_one_range(one):
        return False
    base, parts = (16, one.split(":")) if is_long else (10, one.split("."))
    numbers = at.exploded.split(":" if is_long else ".")
    return all(
        _part_holds(part, int(number, base), base)
        for part, number in zip(parts, numbers, strict=True)
    )


def _part_holds(part: str, number: int, base: int) -> bool:
    if part == "*":
        return True
    least, _, most = part.partition("-")
    return int(least, base) <= number <= int(most or least, base)
