"""config/replication.json: the role that a promotion gave this broker, and the epochs it knows.

Owns the file. What it says counts more than brokerRole and brokerId in the settings: those say what
the broker was at first. A broker that never saw a promotion has no such file.
Java: EpochFileCache, whose file is `epochFileCheckpoint`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from cometmq.model.replication import FIRST_EPOCH, Epoch
from cometmq.settings.broker import ASYNC_MASTER, SLAVE, SYNC_MASTER
from cometmq.store.json_file import JsonFile
from cometmq.wire.bodies import json_fields
from cometmq.wire.bodies.epochs import epoch_fields, epochs_of

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.settings.broker import BrokerSettings

NAME, TABLE = "replication.json", "replication"


class KeptRole(NamedTuple):
    """What a broker keeps about its role."""

    epochs: tuple[Epoch, ...] = (FIRST_EPOCH,)
    promised: int = FIRST_EPOCH.number
    """The number of the newest epoch heard of: no master of a lower one is followed."""
    broker_id: int | None = None
    """The brokerId since a promotion, 0: the master; None: as the settings say."""

    def applied_to(self, settings: BrokerSettings) -> BrokerSettings:
        """The settings of a broker in this role.

        A promoted slave waits for as many slaves as its own inSyncReplicas says. After a promotion
        the name servers know where the master is, and haMasterAddress counts no more.
        """
        if self.broker_id is None or self.broker_id == settings.broker_id:
            role, broker_id = settings.broker_role, settings.broker_id
        elif self.broker_id:
            role, broker_id = SLAVE, self.broker_id
        else:
            role, broker_id = SYNC_MASTER if settings.in_sync_replicas > 1 else ASYNC_MASTER, 0
        addr = "" if self.promised > FIRST_EPOCH.number else settings.ha_master_address
        return replace(settings, broker_role=role, broker_id=broker_id, ha_master_address=addr)


def role_of(obj: json_fields.Json) -> KeptRole:
    """What the file's content says; ProtocolError where it cannot be."""
    table = json_fields.object_of(obj.get(TABLE), TABLE)
    if not table:
        return KeptRole()  # as `cometmq store rebuild-table` makes it
    broker_id = json_fields.number(table, "brokerId", -1)
    return KeptRole(
        epochs_of(table, "epochs"),
        json_fields.number(table, "promised"),
        broker_id if broker_id >= 0 else None,
    )


class RoleFile:
    """The file of one broker."""

    def __init__(self, root: Path, files: Files) -> None:
        """Read it. StoreCorrupt: neither it nor its .bak can be read."""
        self._file = JsonFile(root / "config" / NAME, files)
        self.kept = self._file.load(TABLE, role_of) or KeptRole()
        """What the file says."""

    def keep(self, kept: KeptRole) -> None:
        """Write this down, durably; the same again writes nothing. OSError: it is not kept."""
        if kept == self.kept:
            return
        table: dict[str, object] = {
            "epochs": [epoch_fields(each) for each in kept.epochs],
            "promised": kept.promised,
        }
        if kept.broker_id is not None:
            table["brokerId"] = kept.broker_id
        self._file.save({TABLE: table})
        self.kept = kept
