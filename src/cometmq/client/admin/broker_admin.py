"""AsyncBrokerAdmin: brokers and name servers, their state and their settings.

It uses only requests that every RocketMQ server answers. Java: DefaultMQAdminExt
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cometmq.client.admin.admin_session import AdminSession
from cometmq.client.admin.promotion import SlavePromotion
from cometmq.client.admin.record_resender import resend_records
from cometmq.client.session.argument_checks import check_flag, check_texts
from cometmq.client.session.client_options import check_seconds, check_type
from cometmq.errors import BrokerError, ClientError
from cometmq.settings import properties
from cometmq.wire.bodies.broker import decode_producer_table, decode_replication_status
from cometmq.wire.bodies.name_lists import decode_kv_table
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from cometmq.wire.records.log_record import StoredRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.model.admin_stats import ProducerInfo
    from cometmq.model.replication import EpochStatus, Promotion, ReplicationStatus
    from cometmq.model.route import ClusterInfo

_is_key = re.compile(r"[\w.\-]+").fullmatch


class AsyncBrokerAdmin(AdminSession):
    """The part of an admin that is about brokers and name servers.

    A broker is named by its name, which means its master, or by the address of master or slave.
    """

    async def clusters(self) -> ClusterInfo:
        """All brokers and the clusters they belong to."""
        return await self._running().name_servers.clusters()

    async def broker_status(self, broker: str) -> dict[str, str]:
        """What a broker says about itself: version, rates, disk, by RocketMQ's names, as texts."""
        return decode_kv_table(await self._ask_broker(broker, RequestCode.GET_BROKER_RUNTIME_INFO))

    async def replication_status(self, broker: str) -> ReplicationStatus:
        """How far the slaves of a master are, or whom a slave follows; by name the master."""
        return decode_replication_status(
            await self._ask_broker(broker, RequestCode.GET_BROKER_HA_STATUS)
        )

    async def epochs(self, broker: str) -> EpochStatus:
        """Which promotions a broker knows of; by name the master. BrokerError: it knows none."""
        _check_broker(broker)
        addr = (await self.broker_addrs([broker]))[broker]
        return await SlavePromotion(self._running()).status(addr)

    async def promote(
        self,
        broker: str,
        *,
        force: bool = False,
        may_lose: bool = False,
        timeout_s: float = 30.0,
    ) -> Promotion:
        """Make a slave of CometMQ the master of its brokers, and wait until it takes writes.

        `broker`: the slave's address, or the name of brokers with one slave. What is the master
        already stays it. Every other slave that answers follows only the new master from then on,
        and so does the former one when it is back. Raises ClientError where the master answers,
        unless with `force` (what it has alone is moved out of its log), where it answers and
        another one does not, unless with `may_lose` too (what both were answered leaves the log),
        and where another broker that answers has more of the log. Raises BrokerError where it
        takes longer than `timeout_s`.
        """
        _check_broker(broker)
        check_flag("force", force)
        check_flag("may_lose", may_lose)
        check_seconds("timeout_s", timeout_s)
        promotion = SlavePromotion(self._running())
        return await promotion.run(broker, timeout_s, force=force, may_lose=may_lose)

    async def resend_records(self, broker: str, records: Iterable[StoredRecord]) -> dict[str, int]:
        """Send records of a store to a broker again, in their order; how many by topic.

        Each goes to the topic and queue that it was in, with its properties. Under "" are those
        left out: half messages, and what a broker wrote for itself. Raises BrokerError or
        RemotingError for one that cannot be sent; those before it were.
        """
        _check_broker(broker)
        if not isinstance(records, Iterable):
            raise ClientError(f"records must be records of a store, not {records!r:.80}")
        wanted = list(records)
        for record in wanted:
            check_type("records", record, StoredRecord, "records of a store")
        addr = (await self.broker_addrs([broker]))[broker]
        return await resend_records(self._running(), addr, wanted)

    async def broker_config(self, broker: str) -> dict[str, str]:
        """The settings of a broker, by RocketMQ's names."""
        return _settings_of(await self._ask_broker(broker, RequestCode.GET_BROKER_CONFIG))

    async def set_broker_config(self, broker: str, changes: Mapping[str, str]) -> str:
        """Change settings of a running broker; return what it remarks, which may be nothing.

        Raises BrokerError, and changes nothing, for a setting it refuses.
        """
        _check_broker(broker)
        body = _changes_body(changes)
        addr = (await self.broker_addrs([broker]))[broker]
        command = request(RequestCode.UPDATE_BROKER_CONFIG, 0, None, body)
        return (await self._running().call_checked(addr, command)).remark or ""

    async def name_server_config(self) -> dict[str, dict[str, str]]:
        """The settings of each name server, by its address."""
        found = await self._running().name_servers.ask_each(RequestCode.GET_NAMESRV_CONFIG)
        return {addr: _settings_of(answer.body) for addr, answer in found.items()}

    async def set_name_server_config(self, changes: Mapping[str, str]) -> dict[str, str]:
        """Change settings of all running name servers; return their remarks by address.

        Raises BrokerError for a setting that one refuses; those asked before have it then.
        """
        body = _changes_body(changes)
        servers, code = self._running().name_servers, RequestCode.UPDATE_NAMESRV_CONFIG
        found = await servers.ask_each(code, body=body)
        return {addr: answer.remark or "" for addr, answer in found.items()}

    async def wipe_write_permission(self, broker: str) -> dict[str, int]:
        """Have name servers tell clients to send nothing to a broker, so that it may be stopped.

        Returns how many topics of the broker changed at each name server, by its address. Topics
        stay readable. Raises ConnectFailed for a broker that no name server knows.
        """
        _check_broker(broker)
        await self._changes().masters((broker,))
        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker)
        found = await self._running().name_servers.ask_each(code, header)
        read = WipeWritePermOfBrokerResponseHeader.decode
        return {addr: read(answer.ext).wipe_topic_count for addr, answer in found.items()}

    async def restore_write_permission(self, broker: str) -> dict[str, int]:
        """Have name servers tell clients to send to a broker again: `wipe_write_permission`."""
        _check_broker(broker)
        await self._changes().masters((broker,))
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker)
        found = await self._running().name_servers.ask_each(code, header)
        read = AddWritePermOfBrokerResponseHeader.decode
        return {addr: read(answer.ext).add_topic_count for addr, answer in found.items()}

    async def producers(self) -> dict[str, list[ProducerInfo]]:
        """The connected producers of each producer group, once for each client."""
        found: dict[str, dict[str, ProducerInfo]] = {}
        for broker, answer in (await self._ask_masters(RequestCode.GET_ALL_PRODUCER_INFO)).items():
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark, broker)
            for group, clients in decode_producer_table(answer.body).items():
                for one in clients:
                    addr = one.remote_addr.removeprefix("/")  # Java writes it so
                    found.setdefault(group, {})[one.client_id] = one._replace(remote_addr=addr)
        return {group: [each[name] for name in sorted(each)] for group, each in found.items()}

    async def broker_addrs(self, brokers: Sequence[str] = ()) -> dict[str, str]:
        """The addresses of the brokers named, or of all masters, by the name or address given.

        Raises ConnectFailed for one that no name server knows.
        """
        check_texts("brokers", brokers)
        changes = self._changes()
        addrs = {one: one for one in brokers if ":" in one}
        names = [one for one in brokers if ":" not in one]
        return (await changes.masters(names) if names or not brokers else {}) | addrs

    async def _ask_broker(self, broker: str, code: RequestCode) -> bytes:
        _check_broker(broker)
        addr = (await self.broker_addrs([broker]))[broker]
        return (await self._running().call_checked(addr, request(code, 0))).body


def _settings_of(body: bytes) -> dict[str, str]:
    return {entry.key: entry.value for entry in properties.parse(body.decode("utf-8", "replace"))}


def _check_broker(broker: object) -> None:
    if not isinstance(broker, str) or not broker.strip():
        raise ClientError(f"broker is {broker!r:.80}; it must be a broker's name or address")


def _changes_body(changes: Mapping[str, str]) -> bytes:
    if not isinstance(changes, Mapping) or not changes:
        raise ClientError(f"changes must be a dict of settings and texts, not {changes!r:.80}")
    for key, value in changes.items():
        if not (isinstance(key, str) and _is_key(key) and isinstance(value, str)):
            raise ClientError(f"changes has {key!r:.80}: {value!r:.80}, which is no setting")
    return properties.edited("", changes, {}).encode()
