"""What a broker knows of epochs, tells others of them, and when that changes its role.

Owns the kept role (`role_file.py`) while the broker runs, and answers 1007 and 1008. A change of
role is only decided here: `on_change` is called, and whoever serves the broker opens it anew
(`served_broker.py`). Invariants: the number promised never falls; a broker asks for one change.
Java: ReplicasManager, which a controller commands.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import CometError, Reject
from cometmq.model.replication import Epoch, EpochStatus
from cometmq.net.endpoint import Endpoint
from cometmq.net.handler import Reply
from cometmq.rules.epochs import within
from cometmq.wire.bodies.epochs import encode_epoch_status
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.replication import (
    GetBrokerEpochCacheRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.replication.role_file import KeptRole, RoleFile
    from cometmq.net.connection import Connection
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)


class RoleChange(NamedTuple):
    """What a broker is to be once it is opened anew."""

    why: str
    broker_id: int | None = None
    """0: the master; None: what it was."""
    new_epoch: int = 0
    """The number of the epoch that begins with the promotion; 0: none."""
    epochs: tuple[Epoch, ...] = ()
    """The master's, which are this broker's from now on; none: those it has."""
    cut_at: int = -1
    """What its log has from this byte on is moved out of it; -1: nothing is."""


class NewerMaster(CometError):
    """Another broker was promoted: this one must not start as the master."""

    def __init__(self, change: RoleChange) -> None:
        super().__init__(change.why)
        self.change = change


class EpochKeeper:
    """The epochs of one broker. Belongs to its loop."""

    def __init__(
        self,
        file: RoleFile,
        store: MessageStore,
        settings: BrokerSettings,
        address: Callable[[], str],
    ) -> None:
        """`address()`: where clients reach this broker. `settings`: those of its present role."""
        self._file = file
        self._store = store
        self._settings = settings
        self._address = address
        self._is_changing = False
        self.on_change: Callable[[RoleChange], None] | None = None
        """Called once with the change of role that is due; None: nobody can bring it about."""
        self.before_promotion: Callable[[], None] = lambda: None
        """Called where a promotion is about to be made."""
        self.on_news: Callable[[], None] = lambda: None
        """Called where another broker may be a newer master."""
        if not settings.is_slave:
            kept = self.kept
            file.keep(kept._replace(epochs=within(kept.epochs, store.max_phy_offset)))

    @property
    def kept(self) -> KeptRole:
        """What is kept on disk."""
        return self._file.kept

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.GET_BROKER_EPOCH_CACHE, self.epochs),
            Endpoint(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, self.role_changed),
        )

    def epochs(self, request: Command, _connection: Connection) -> Reply:
        """Tell the epochs (1007); before the first promotion as a broker without a controller."""
        header = GetBrokerEpochCacheRequestHeader.decode(request.ext)
        kept, settings = self.kept, self._settings
        if len(kept.epochs) == 1 and not header.with_first:
            raise Reject(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode")
        status = EpochStatus(
            settings.broker_id, kept.epochs, kept.promised, self._store.max_phy_offset
        )
        body = encode_epoch_status(status, settings.broker_cluster_name, settings.broker_name)
        return Reply(body=body)

    def role_changed(self, request: Command, _connection: Connection) -> Reply:
        """Hear who the master is (1008): this broker, another one, or one that will be named.

        A promotion is answered before it is done; 1007 tells when it is.
        """
        header = NotifyBrokerRoleChangedRequestHeader.decode(request.ext)
        number = header.master_epoch or 0
        if header.master_address == self._address():
            self._promote(number)
        elif header.master_address:
            self.on_news()
        else:  # a master promises, too: as a slave it keeps it
            self.promise(number)
            self.on_news()
        return Reply()

    def _promote(self, number: int) -> None:
        kept = self.kept
        if number == kept.epochs[-1].number and not self._settings.is_slave:
            return
        least = max(kept.epochs[-1].number + 1, kept.promised)
        if number < least:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"epoch {number} is not new: this broker has heard of epoch {least - 1}",
            )
        if self.on_change is None:
            raise Reject(ResponseCode.SYSTEM_ERROR, "this process cannot change a broker's role")
        self.before_promotion()
        why = f"this broker was promoted: it is the master of epoch {number}"
        self.change(RoleChange(why, broker_id=0, new_epoch=number))

    def promise(self, number: int) -> None:
        """Follow no master of a lower epoch from now on. OSError: that is not kept."""
        if number > self.kept.promised:
            self._file.keep(self.kept._replace(promised=number))

    def adopt(self, epochs: tuple[Epoch, ...]) -> None:
        """The master's epochs are this broker's: their logs are one history."""
        promised = max(self.kept.promised, epochs[-1].number)
        self._file.keep(self.kept._replace(epochs=epochs, promised=promised))

    def change(self, change: RoleChange) -> None:
        """Have this broker opened anew in another role; the first change counts."""
        if self._is_changing:
            return
        self._is_changing = True
        log.warning("%s", change.why)
        if self.on_change is not None:
            self.on_change(change)


def role_after(
    kept: KeptRole, change: RoleChange, broker_id: int, log_end: int, new_id: str
) -> KeptRole:
    """What is kept once a change is made to a broker of this id, whose log ends there.

    `new_id` is the id of the epoch that begins, if one does.
    """
    epochs = change.epochs or kept.epochs
    new_broker_id = kept.broker_id if change.broker_id is None else change.broker_id
    promised = max(kept.promised, epochs[-1].number, change.new_epoch)
    if change.new_epoch:
        assert change.new_epoch > epochs[-1].number, "an epoch is newer than those before it"
        epochs = (*within(epochs, log_end), Epoch(change.new_epoch, log_end, new_id, broker_id))
    return kept._replace(epochs=epochs, promised=promised, broker_id=new_broker_id)
