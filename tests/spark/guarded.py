"""A gate before a name server and a broker: TLS if it has a certificate, and signed requests only.

One address stands for both, so the routes that pass it name the gate. It does what Apache's servers
do: a broker answers an unknown key, a wrong signature or none with code 16, a name server never
asks.
"""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections import Counter
from dataclasses import replace
from select import select
from typing import TYPE_CHECKING, Any, Self

from cometmq.net.address import split_address
from cometmq.wire.bodies.route import (
    decode_cluster_info,
    decode_route,
    encode_cluster_info,
    encode_route,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, response
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.request_signature import sign

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.model.route import BrokerData

KEYS = {"accessKey": "spark-user", "secretKey": "sk-that-nobody-may-see"}
WRONG = {**KEYS, "secretKey": "sk-of-somebody-else"}
_REWRITTEN = {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO}
_NAME_SERVERS = {*_REWRITTEN, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER}


class Gate(socketserver.ThreadingTCPServer):
    """Use it as a context manager; `addr` is name server and broker."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, namesrv: str, broker: str, certificate: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Passage)
        self.namesrv, self.broker = namesrv, broker
        self.tls: ssl.SSLContext | None = None
        if certificate is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate)
        self.addr = f"127.0.0.1:{self.server_address[1]}"
        self.signed: Counter[int] = Counter()
        self.unsigned: Counter[int] = Counter()
        """Requests by code, those with a wrong signature among the latter."""
        self.is_closing = False
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closing = True
        self.shutdown()
        self.server_close()
        self._thread.join(10)

    def admits(self, asked: Command) -> bool:
        """Whether a request may pass; counts it."""
        is_signed = asked.ext.get("AccessKey") == KEYS["accessKey"] and asked.ext.get(
            "Signature"
        ) == sign(asked.ext, asked.body, KEYS["secretKey"])
        (self.signed if is_signed else self.unsigned)[asked.code] += 1
        return is_signed or asked.code in _NAME_SERVERS

    def renamed(self, code: int, body: bytes) -> bytes:
        """What the name server says, with the gate in place of every broker."""
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            route = decode_route(body)
            brokers = tuple(map(self._renamed, route.broker_datas))
            return encode_route(replace(route, broker_datas=brokers), strict=True)
        cluster = decode_cluster_info(body)
        table = {name: self._renamed(one) for name, one in cluster.broker_addr_table.items()}
        return encode_cluster_info(replace(cluster, broker_addr_table=table))

    def _renamed(self, broker: BrokerData) -> BrokerData:
        return replace(broker, broker_addrs=dict.fromkeys(broker.broker_addrs, self.addr))


class _Passage(socketserver.BaseRequestHandler):
    """One connection of a client, and those to both servers behind the gate."""

    server: Gate
    request: socket.socket

    def handle(self) -> None:
        try:
            outer: Any = self.request
            if self.server.tls is not None:
                outer = self.server.tls.wrap_socket(self.request, server_side=True)
            with outer:
                self._pass(outer)
        except OSError:
            return  # a client that does not trust us, or has gone

    def _pass(self, outer: Any) -> None:
        inner = {
            addr: socket.create_connection(split_address(addr))
            for addr in (self.server.namesrv, self.server.broker)
        }
        asked: dict[int, int] = {}
        decoders = {one: FrameDecoder() for one in (outer, *inner.values())}
        try:
            while not self.server.is_closing:
                for one in self._readable(outer, list(decoders)):
                    data = one.recv(65_536)
                    if not data:
                        return
                    for frame in decoders[one].feed(data):
                        command = Command.decode(frame)
                        if one is outer:
                            self._forward(command, outer, inner, asked)
                        else:
                            outer.sendall(self._answer(command, asked).encode())
        finally:
            for one in inner.values():
                one.close()

    def _readable(self, outer: Any, every: list[Any]) -> list[Any]:
        if self.server.tls is not None and outer.pending():
            return [outer]
        return select(every, [], [], 0.1)[0]

    def _forward(
        self, command: Command, outer: Any, inner: dict[str, socket.socket], asked: dict[int, int]
    ) -> None:
        gate = self.server
        if not command.is_response and not gate.admits(command):
            if not command.is_oneway:
                remark = "the gate knows no such user"
                refusal = response(command.opaque, ResponseCode.NO_PERMISSION, remark=remark)
                outer.sendall(refusal.encode())
            return
        if command.code in _REWRITTEN:
            asked[command.opaque] = command.code
        to_name_server = command.code in _NAME_SERVERS
        inner[gate.namesrv if to_name_server else gate.broker].sendall(command.encode())

    def _answer(self, command: Command, asked: dict[int, int]) -> Command:
        code = asked.pop(command.opaque, None) if command.is_response else None
        if code is None or command.code != ResponseCode.SUCCESS:
            return command
        return response(command.opaque, 0, body=self.server.renamed(code, command.body))
