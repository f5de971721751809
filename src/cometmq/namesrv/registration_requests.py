"""Requests of brokers: register (103), leave (104), give a sign of life (322, 904).

Owns which connections brokers registered over, and what happens to silent ones. Invariant: when a
connection goes, so do the brokers that registered over it.
Java: DefaultRequestProcessor, BrokerHousekeepingService.
"""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError, Reject
from cometmq.model.topic import ORDER_TOPIC_CONFIG
from cometmq.namesrv.registered_brokers import BrokerId, BrokerRegistration
from cometmq.net.connection import Connection
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.net.handler import Reply
from cometmq.net.rate_limited_log import RateLimitedLog
from cometmq.wire.bodies import topic
from cometmq.wire.bodies.json_fields import LENIENT_BYTES_MAX
from cometmq.wire.bodies.registration_reader import RegistrationReader
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import namesrv as headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

    from cometmq.namesrv.kv_config import KvConfig
    from cometmq.namesrv.registered_brokers import MinBrokerIdChange, RegisterBrokerResult
    from cometmq.namesrv.route_registry import RouteRegistry
    from cometmq.runtime.time_slices import TimeSlices
    from cometmq.settings.namesrv import NamesrvSettings
    from cometmq.wire.command import Command


SMALL_BYTES_MAX = 16 * 1024
"""Largest registration that is read at once: about a hundred topics, 1 ms. A compressed one, which
may hold a thousand times as much, never is."""

_CRC_MASK = 0x7FFFFFFF
_SUMMED_BYTES = 256 * 1024
"""Bytes of a registration whose checksums one step takes, 0.4 ms."""
_NOWHERE = ("0.0.0.0", "::", "")


class RegistrationRequests:
    """Answers the requests of brokers. Belongs to the name server's loop."""

    def __init__(
        self,
        routes: RouteRegistry,
        kv: KvConfig,
        settings: NamesrvSettings,
        monotonic_ms: Callable[[], int],
        send_oneway: Callable[[str, Command], None],
        time_slices: TimeSlices,
    ) -> None:
        """`send_oneway` sends a command to an address and waits for nothing."""
        self._routes = routes
        self._kv = kv
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        self._send_oneway = send_oneway
        self._time_slices = time_slices
        self._owners: set[Connection] = set()
        self._log = RateLimitedLog(logging.getLogger(__name__))
        routes.on_min_id = self._tell_min_id

    def adjust(self, settings: NamesrvSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.REGISTER_BROKER, self.register, RequestEffect.MUTATING),
            Endpoint(RequestCode.UNREGISTER_BROKER, self.unregister, RequestEffect.MUTATING),
            Endpoint(RequestCode.BROKER_HEARTBEAT, self.heartbeat, RequestEffect.MUTATING),
            Endpoint(
                RequestCode.QUERY_DATA_VERSION,
                self.query_version,
                body_bytes_max=LENIENT_BYTES_MAX,
            ),
        )

    def drop_expired(self) -> None:
        """Let brokers go that gave no sign of life for too long, with their connections."""
        for live in self._routes.expired(self._monotonic_ms()):
            self._log.warning(
                "broker %s at %s is silent and expired", live.who.broker_name, live.who.addr
            )
            self._routes.unregister(live.who)
            if isinstance(live.owner, Connection):
                live.owner.close()

    def register(self, request: Command, connection: Connection) -> Reply | Awaitable[Reply]:
        """Take a broker's registration (103); one that it has sent before is not read again."""
        header = headers.RegisterBrokerRequestHeader.decode(request.ext)
        work = self._registering(request, header, connection)
        if header.compressed or len(request.body) > SMALL_BYTES_MAX:
            return self._register_in_turns(work, connection)
        *_, found = work
        return self._registered(found, connection)

    async def _register_in_turns(
        self, work: Iterator[RegisterBrokerResult | None], connection: Connection
    ) -> Reply:
        async with self._time_slices.lock:
            if connection.is_closed:
                return Reply()  # to nobody: its brokers would never be let go
            found = await self._time_slices.collect(work)
        return self._registered(found[-1], connection)

    def _registering(
        self,
        request: Command,
        header: headers.RegisterBrokerRequestHeader,
        connection: Connection,
    ) -> Iterator[RegisterBrokerResult | None]:
        """Take a registration, in steps; the last one brings what the broker learns."""
        body = request.body
        crc, adler = zlib.crc32(b""), zlib.adler32(b"")
        for at in range(0, len(body), _SUMMED_BYTES):
            piece = body[at : at + _SUMMED_BYTES]
            crc, adler = zlib.crc32(piece, crc), zlib.adler32(piece, adler)
            yield None
        if header.body_crc32 and crc & _CRC_MASK != header.body_crc32:
            raise Reject(ResponseCode.SYSTEM_ERROR, "crc32 of the body does not match")
        who = BrokerId(
            header.cluster_name, header.broker_name, header.broker_id, header.broker_addr
        )
        fingerprint = (crc, adler, len(body)), request.version, frozenset(request.ext.items())
        found = self._routes.refresh(who, fingerprint, self._monotonic_ms(), connection)
        if found is None:
            found = yield from self._reading(request, header, who, fingerprint, connection)
        yield found

    def _reading(
        self,
        request: Command,
        header: headers.RegisterBrokerRequestHeader,
        who: BrokerId,
        fingerprint: object,
        connection: Connection,
    ) -> Generator[None, None, RegisterBrokerResult]:
        """Read the body and take it; then let go of what was read, which takes time as well."""
        reader = RegistrationReader(
            request.body,
            is_compressed=header.compressed,
            version=request.version,
            topics_max=self._settings.registered_topics_per_broker_max,
        )
        try:
            yield from reader.steps()
            found = yield from self._taking(reader, request, header, who, fingerprint, connection)
        except (ProtocolError, Reject):
            yield from reader.forgetting()
            raise
        yield from reader.forgetting()
        return found

    def _taking(
        self,
        reader: RegistrationReader,
        request: Command,
        header: headers.RegisterBrokerRequestHeader,
        who: BrokerId,
        fingerprint: object,
        connection: Connection,
    ) -> Generator[None, None, RegisterBrokerResult]:
        body = reader.result
        assert body is not None, "the reader has come to its end"
        registration = BrokerRegistration(
            who=who,
            topics=body.table.topics,
            version=body.table.version,
            timeout_ms=header.heartbeat_timeout_ms,
            ha_server_addr=header.ha_server_addr,
            has_acting_master=header.enable_acting_master,
            zone=request.ext.get("__ZONE_NAME"),
            filter_servers=body.filter_servers,
        )
        if self._routes.version_of(who.cluster, who.addr) is None:
            self._log.info(
                "broker %s at %s registers %d topics",
                who.broker_name,
                who.addr,
                len(registration.topics),
            )
            self._warn_of_address(who)
        self._note_owner(connection)
        found = yield from self._routes.registering(
            registration,
            self._monotonic_ms(),
            owner=connection,
            drop_missing=self._settings.delete_topic_with_broker_registration,
            fingerprint=fingerprint,
        )
        return found

    def _registered(self, found: RegisterBrokerResult | None, connection: Connection) -> Reply:
        assert found is not None, "a registration ends with what the broker learns"
        self._note_owner(connection)
        answer = headers.RegisterBrokerResponseHeader(
            ha_server_addr=found.ha_server_addr, master_addr=found.master_addr
        )
        return Reply(ResponseCode.SUCCESS, answer, self._order_topics())

    def _note_owner(self, connection: Connection) -> None:
        """Have the brokers of this connection go when it does."""
        if connection not in self._owners:
            self._owners.add(connection)
            connection.on_close(self._lost)

    async def forget_gone(self) -> None:
        """Forget, in time slices, what is left of brokers that are gone; called now and then."""
        if self._routes.has_gone:
            async with self._time_slices.lock:
                await self._time_slices.collect(self._routes.forget_gone())

    def unregister(self, request: Command, _connection: Connection) -> Reply:
        """Let a broker go that says so (104)."""
        header = headers.UnRegisterBrokerRequestHeader.decode(request.ext)
        self._routes.unregister(
            BrokerId(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)
        )
        self._log.info("broker %s at %s unregisters", header.broker_name, header.broker_addr)
        return Reply()

    def heartbeat(self, request: Command, _connection: Connection) -> Reply:
        """Note a light sign of life (904)."""
        header = headers.BrokerHeartbeatRequestHeader.decode(request.ext)
        self._routes.touch(header.cluster_name, header.broker_addr, self._monotonic_ms())
        return Reply()

    def query_version(self, request: Command, _connection: Connection) -> Reply:
        """Tell a broker whether its topics are known as they are (322)."""
        header = headers.QueryDataVersionRequestHeader.decode(request.ext)
        known = self._routes.version_of(header.cluster_name, header.broker_addr)
        changed = known != topic.decode_data_version(request.body)
        if not changed:
            self._routes.touch(header.cluster_name, header.broker_addr, self._monotonic_ms())
        body = b"" if known is None else topic.encode_data_version(known)
        return Reply(
            ResponseCode.SUCCESS, headers.QueryDataVersionResponseHeader(changed=changed), body
        )

    def _tell_min_id(self, change: MinBrokerIdChange) -> None:
        """Tell brokers who is the first of them now (905)."""
        if not self._settings.notify_min_broker_id_changed:
            return
        header = headers.NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.min_id,
            broker_name=change.broker_name,
            min_broker_addr=change.min_addr,
            offline_broker_addr=change.offline_addr,
            ha_broker_addr=change.ha_addr,
        )
        code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        for addr in change.notified:
            self._send_oneway(addr, new_request(code, 0, header, oneway=True))

    def _order_topics(self) -> bytes:
        if not self._settings.return_order_topic_config_to_broker:
            return b""
        return self._kv.encoded(ORDER_TOPIC_CONFIG) or b""

    def _lost(self, connection: Connection) -> None:
        self._owners.discard(connection)
        for who in self._routes.owned_by(connection):
            self._log.warning(
                "broker %s at %s is gone: its connection closed", who.broker_name, who.addr
            )
            self._routes.unregister(who)

    def _warn_of_address(self, who: BrokerId) -> None:
        host, _, port = who.addr.rpartition(":")
        if host.strip("[]") in _NOWHERE or port in ("", "0"):
            self._log.warning(
                "broker %s registers the address %s, to which no client can connect: set its "
                "brokerIP1 and listenPort",
                who.broker_name,
                who.addr,
            )
