"""Who has how many of the held requests, in all and on each key, by address.

Owns the bounds on both, and the answer to whose request must go when one of them is reached: the
oldest of the address that has most. So nobody keeps others from waiting, however many connections
it has. Pure: it knows a held request as an object only.
Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

_T = TypeVar("_T")


class _GlobalScope:
    """The scope of all requests, whatever they wait on."""


_ALL: Final = _GlobalScope()


class HeldRequestCounts(Generic[_T]):
    """The shares of addresses. Belongs to one loop."""

    def __init__(self, count_max: int, per_key_max: int) -> None:
        self.set_bounds(count_max, per_key_max)
        self._counts: dict[Hashable, int] = {}
        # by scope and address, oldest first
        self._shares: dict[Hashable, dict[str, dict[_T, None]]] = {}

    def set_bounds(self, count_max: int, per_key_max: int) -> None:
        """Work with these bounds from now on; what is above them leaves by and by."""
        self._count_max, self._per_key_max = count_max, per_key_max

    def add(self, held: _T, address: str, keys: tuple[Hashable, ...]) -> None:
        """Count a request of an address."""
        for scope in (_ALL, *keys):
            self._shares.setdefault(scope, {}).setdefault(address, {})[held] = None
            self._counts[scope] = self._counts.get(scope, 0) + 1

    def remove(self, held: _T, address: str, keys: tuple[Hashable, ...]) -> None:
        """Take one back; it must have been added with the same address and keys."""
        for scope in (_ALL, *keys):
            shares = self._shares[scope]
            del shares[address][held]
            if not shares[address]:
                del shares[address]
            self._counts[scope] -= 1
            if not self._counts[scope]:
                del self._counts[scope], self._shares[scope]

    def full_scope(self, keys: tuple[Hashable, ...]) -> Hashable | None:
        """What has no room for one more request on these keys; None where there is room."""
        counts = self._counts
        if counts.get(_ALL, 0) >= self._count_max:
            return _ALL
        return next((key for key in keys if counts.get(key, 0) >= self._per_key_max), None)

    def oldest_of_largest(self, scope: Hashable, address: str) -> _T | None:
        """The request that makes room for one of `address`; None when nobody has more than it."""
        shares = self._shares[scope]
        largest = max(shares.values(), key=len)
        return next(iter(largest)) if len(largest) > len(shares.get(address, ())) else None
