"""Why a broker does not do its work now, in sentences for whoever asks whether it is ready.

Refuses to mend anything, and to know who asks. An empty answer means that it takes requests and
that clients find it. Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cometmq.broker.cluster.registration import NamesrvRegistration
    from cometmq.store.message_store import MessageStore


class BrokerHealth:
    """Belongs to the broker's loop."""

    def __init__(
        self,
        store: MessageStore,
        registration: NamesrvRegistration,
        is_following: Callable[[], bool] | None,
    ) -> None:
        """`is_following`: whether a slave copies its master now; None for a master."""
        self._store = store
        self._registration = registration
        self._is_following = is_following
        self.is_serving = False
        """Whether it has started and is not about to stop."""

    def problems(self) -> list[str]:
        """Each thing that is wrong; empty when the broker is ready."""
        if not self.is_serving:
            return ["the broker starts or stops"]
        return list(self._each())

    def _each(self) -> Iterator[str]:
        if self._store.is_out_of_order():
            yield "the store takes no messages: its disk is full, or a write to it has failed"
        if not self._registration.is_known:
            yield "no name server took the last registration, so clients do not find this broker"
        if self._is_following is not None and not self._is_following():
            yield "the slave does not copy its master now"
