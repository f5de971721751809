"""Hot. How long the frames of all connections are handled in one iteration of the loop.

Whatever comes when that time is over waits: first, in the order in which they came, connections
that brought a little and were not looked at yet, each for a short while; then those that brought
much and were not looked at either; then, one after the other, those that had their while and have
more. So who asks little is served soon, however many connections ask for much, and be it all at
once. Of each kind at least one is served in an iteration.
Refuses to know sockets and frames.
Java: none; its threads share the processors.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET_S = 0.001
"""For what comes in an iteration, and as much again for those that wait, seconds."""

FIRST_SHARE_S = 0.0002
"""How long a connection that waited is served before all others that wait were served."""


LITTLE_BYTES = 2048
"""A request or a few: connections that bring no more go before those that bring much."""


class WaitingConnection(Protocol):
    """A connection, as far as it matters here."""

    def go_on(self, until: float) -> bool:
        """Handle what waits, at least one frame and no more once it is `until`.

        Whether it has more, and is to be asked again.
        """
        ...


class IterationBudget:
    """The time that the connections of one server share. Belongs to its loop."""

    __slots__ = ("_call_soon", "_has_turned", "_little", "_more", "_much", "now", "until")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], now: Callable[[], float]
    ) -> None:
        """`now` is a clock in seconds that only goes on, and that a test may hold."""
        self.now = now
        self.until = now()
        """When whoever has something to handle asks `is_over`."""
        self._call_soon = call_soon
        self._has_turned = True
        self._little: deque[WaitingConnection] = deque()
        self._much: deque[WaitingConnection] = deque()
        self._more: deque[WaitingConnection] = deque()

    def is_over(self) -> bool:
        """Whether what comes now must wait; asked when it is `until`.

        Else a new span of time has begun: it may begin within an iteration, once.
        """
        if self._little or self._much or not self._has_turned:
            return True
        self._begin(self.now() + BUDGET_S)
        return False

    def wait(self, connection: WaitingConnection, *, is_new: bool, brought: int = 0) -> None:
        """Have a connection go on in a later iteration.

        It is new if nobody has looked at it; `brought`: the bytes that wait to be looked at then.
        """
        first = self._little if brought <= LITTLE_BYTES else self._much
        (first if is_new else self._more).append(connection)
        if self._has_turned:
            self._begin(self.until)

    def _begin(self, until: float) -> None:
        self.until = until
        self._has_turned = False
        self._call_soon(self._turn)

    def _turn(self) -> None:
        """Serve those that wait: called before the sockets of the next iteration are read."""
        self._has_turned = True
        little, much, more, now = self._little, self._much, self._more, self.now
        if not (little or much or more):
            return
        until = now() + BUDGET_S
        for new in (little, much):
            while new:
                connection = new.popleft()
                if connection.go_on(now() + FIRST_SHARE_S):
                    more.append(connection)
                if now() >= until:
                    break
        for _ in range(len(more)):
            connection = more.popleft()
            if connection.go_on(until):
                more.append(connection)
            if now() >= until:
                break
        is_new_left = little or much
        if is_new_left or more:  # what comes meanwhile has a share of its own, unless new ones wait
            self._begin(now() + (0.0 if is_new_left else BUDGET_S))
