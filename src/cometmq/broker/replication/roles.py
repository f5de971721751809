"""What a broker does as a master for its slaves, or as a slave with its master.

Owns the composition of replication for each role. Refuses to know requests.
Java: the role in BrokerController.start and startBasicService.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.broker.advertised_address import advertised_host
from cometmq.broker.replication.access_copy import AccessCopy
from cometmq.broker.replication.epoch_keeper import NewerMaster
from cometmq.broker.replication.epoch_peers import PERIOD_S as LOOK_S
from cometmq.broker.replication.metadata_copy import PERIOD_S, MetadataCopy
from cometmq.broker.replication.replica_quorum import ReplicaQuorum
from cometmq.broker.replication.replication_client import ReplicationClient
from cometmq.broker.replication.replication_server import ReplicationServer
from cometmq.errors import SettingsError
from cometmq.model.replication import FIRST_EPOCH, MasterStatus, ReplicationStatus, SlaveStatus
from cometmq.net.address import join_address
from cometmq.net.endpoint import Endpoint
from cometmq.net.handler import Reply
from cometmq.runtime.background import BackgroundTasks
from cometmq.settings.broker import SYNC_MASTER
from cometmq.wire.bodies.broker import encode_replication_status
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from cometmq.access.access_directory import AccessDirectory
    from cometmq.broker.broker_state import BrokerState
    from cometmq.broker.cluster.registration import NamesrvRegistration
    from cometmq.broker.replication.epoch_keeper import EpochKeeper
    from cometmq.broker.replication.epoch_peers import EpochPeers
    from cometmq.net.channel_pool import ChannelPool
    from cometmq.net.connection import Connection
    from cometmq.net.tls_contexts import TlsContexts
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command
    from cometmq.wire.headers.namesrv import RegisterBrokerResponseHeader

log = logging.getLogger(__name__)


class MasterRole:
    """Feeds slaves; a SYNC_MASTER also waits for them. Belongs to the broker's loop."""

    def __init__(
        self,
        store: MessageStore,
        settings: BrokerSettings,
        registration: NamesrvRegistration,
        tls: TlsContexts,
        keeper: EpochKeeper,
        peers: EpochPeers,
    ) -> None:
        self._keeper = keeper
        self._peers = peers
        self._background = BackgroundTasks("replication")
        self._store = store
        self._settings = settings
        self._registration = registration
        self.quorum: ReplicaQuorum | None = None
        """What a send waits for beside the own disk; None: for nothing."""
        if settings.broker_role == SYNC_MASTER and settings.in_sync_replicas > 1:
            self.quorum = ReplicaQuorum(
                settings.in_sync_replicas - 1, settings.slave_timeout_ms / 1000
            )
        self.server = ReplicationServer(store, settings, self.quorum, tls)
        self.port = 0
        """The port that slaves connect to, once started; 0: none could be had."""

    def is_following(self) -> bool:
        """A master follows nobody."""
        return False

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (Endpoint(RequestCode.GET_BROKER_HA_STATUS, self.status),)

    @property
    def epoch(self) -> int:
        """The number of the newest promotion that this broker is part of."""
        return self._keeper.kept.epochs[-1].number

    @property
    def timeouts(self) -> int:
        """Writes that slaves did not acknowledge in time."""
        return self.quorum.timeouts if self.quorum is not None else 0

    def slaves(self) -> tuple[SlaveStatus, ...]:
        """How far each slave is."""
        return self.server.status()

    def status(self, _request: Command, _connection: Connection) -> Reply:
        """Tell how far each slave is (907)."""
        status = ReplicationStatus(self._store.max_phy_offset, self.slaves())
        return Reply(body=encode_replication_status(status))

    async def check(self) -> None:
        """Raise NewerMaster where another broker was promoted, so that this one never serves."""
        if (change := await self._peers.newer_master()) is not None:
            raise NewerMaster(change)

    def topic_arrived(self, topic: str) -> None:
        """A master knows all of its topics."""

    async def _look(self) -> None:
        if (change := await self._peers.newer_master()) is not None:
            self._keeper.change(change)

    async def start(self) -> None:
        """Listen for slaves, and from now on wait for them.

        Raises SettingsError where the port cannot be had and slaves matter: it was named, or this
        is a SYNC_MASTER. Else a broker beside this one may have it: slaves are not served then.
        """
        self._keeper.on_news = self._look_now
        self._background.every(LOOK_S, self._look, name="look for a newer master")
        settings = self._settings
        is_sync = settings.broker_role == SYNC_MASTER
        if self.quorum is not None:
            self._store.durability_conditions.add(self.quorum)
        elif is_sync:
            log.warning(
                "brokerRole is SYNC_MASTER and inSyncReplicas is 1: a send waits for no slave; "
                "set inSyncReplicas=2 for one that has the message before it is answered"
            )
        port = settings.ha_listen_port or (settings.listen_port and settings.listen_port + 1)
        try:
            self.port = await self.server.start(settings.bind_address, port)
        except SettingsError as problem:
            if settings.ha_listen_port or is_sync:
                raise
            log.warning("slaves are not served: %s", problem)
            return
        host = settings.broker_ip2 or advertised_host(settings)
        self._registration.set_ha_address(join_address(host, self.port))

    def _look_now(self) -> None:
        self._background.spawn(self._look(), name="look for a newer master")

    async def stop(self) -> None:
        """Stop feeding slaves; what still waits for them is answered as too late."""
        await self._background.stop()
        await self.server.stop()
        if self.quorum is not None:
            self._store.durability_conditions.remove(self.quorum)
            self.quorum.close()


class SlaveRole:
    """Copies a master. Belongs to the broker's loop."""

    def __init__(
        self,
        store: MessageStore,
        state: BrokerState,
        settings: BrokerSettings,
        pool: ChannelPool,
        registration: NamesrvRegistration,
        tls: TlsContexts,
        keeper: EpochKeeper,
        peers: EpochPeers,
        directory: AccessDirectory | None,
    ) -> None:
        """`directory`: this broker's users, who are to be the master's; None: it has none."""
        self._keeper = keeper
        self._peers = peers
        self._ha_addr = ""
        """The replication address of the master that name servers name."""
        self._has_fixed_address = bool(settings.ha_master_address)
        self._registration = registration
        self._background = BackgroundTasks("replication")
        self._store = store
        store.is_slave = True
        self.client = ReplicationClient(store, settings, tls)
        self.client.on_need = self._needs_master
        self.client.check_master = self._check_master
        self.metadata = MetadataCopy(pool, store, state)
        self._access: AccessCopy | None = None
        if directory is not None:
            self._access = AccessCopy(pool, directory, lambda: self.metadata.master_addr)
        registration.on_master = self._master_is

    async def check(self) -> None:
        """A slave may always start: it looks at its master before it follows."""

    def topic_arrived(self, topic: str) -> None:
        """The log has a message of this topic: it is copied at once where it is new."""
        if self.metadata.arrived(topic):
            self._background.spawn(self.metadata.run_once(), name="copy of a new topic")

    async def _check_master(self) -> str:
        """Check the master that name servers name; after a promotion haMasterAddress is none."""
        ha_addr = self._ha_addr
        await self._peers.check_master(self.metadata.master_addr)
        knows_promotion = self._keeper.kept.promised > FIRST_EPOCH.number
        return ha_addr if knows_promotion or not self._has_fixed_address else ""

    def is_following(self) -> bool:
        """Whether the master's log is being copied now."""
        return self.client.is_following

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (Endpoint(RequestCode.GET_BROKER_HA_STATUS, self.status),)

    @property
    def epoch(self) -> int:
        """The number of the newest promotion that this broker is part of."""
        return self._keeper.kept.epochs[-1].number

    @property
    def timeouts(self) -> int:
        """A slave waits for nobody."""
        return 0

    def slaves(self) -> tuple[SlaveStatus, ...]:
        """A slave has none."""
        return ()

    def status(self, _request: Command, _connection: Connection) -> Reply:
        """Tell whom this slave follows, or why nobody (907)."""
        client, end = self.client, self._store.max_phy_offset
        master = MasterStatus(client.address, end, client.problem)
        return Reply(body=encode_replication_status(ReplicationStatus(end, (), master)))

    async def start(self) -> None:
        """Follow the master as soon as it is known."""
        self._keeper.on_news = self.client.look_again
        self._keeper.before_promotion = self.metadata.make_unknown_topics
        self._background.every(1.0, self.client.run, name="copy of the log", first_s=0)
        self._background.every(PERIOD_S, self.metadata.run_once, name="copy of topics and offsets")
        if self._access is not None:
            self._background.every(PERIOD_S, self._access.run_once, name="copy of users")

    async def stop(self) -> None:
        """Follow nobody any more."""
        await self._background.stop()

    def _needs_master(self) -> None:
        """The connection has ended: perhaps name servers know another master by now."""
        self.metadata.connection_ended()
        self._registration.topics_changed()

    def _master_is(self, said: RegisterBrokerResponseHeader) -> None:
        """A name server has said who the master is; where it knows none, the last one stays."""
        if said.master_addr and said.master_addr != self.metadata.master_addr:
            self.metadata.master_addr = said.master_addr
            self._background.spawn(self.metadata.run_once(), name="first copy of topics")
        if said.master_addr:
            self._ha_addr = said.ha_server_addr or ""
        if said.ha_server_addr and not self._has_fixed_address:
            self.client.follow(said.ha_server_addr)
