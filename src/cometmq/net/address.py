"""Addresses as RocketMQ writes them, "host:port" with brackets around IPv6, and as records do.

Pure. Java: RemotingUtil, MessageExt.socketAddress2ByteBuffer.
"""

from __future__ import annotations

from socket import AF_INET6, inet_pton
from struct import pack

from cometmq.errors import ConnectFailed

_V4_IN_V6 = "::ffff:"


def split_address(address: str) -> tuple[str, int]:
    """Split "host:port" or "[ipv6]:port". Raises ConnectFailed when it is neither."""
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise ConnectFailed(f"{address!r} is not an address; write host:port")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_address(peername: tuple[str | int, ...] | None) -> tuple[str, str, bytes]:
    """A socket's peer: "ip:port", the IP address alone, and the packed form that records hold.

    That is the IP address, of 4 bytes or 16, and the port as int32.
    """
    if not peername:
        return "unknown", "", bytes(8)
    ip, port = str(peername[0]).removeprefix(_V4_IN_V6), int(peername[1])
    is_v6 = ":" in ip
    packed = inet_pton(AF_INET6, ip.partition("%")[0]) if is_v6 else bytes(map(int, ip.split(".")))
    return join_address(ip, port), ip, packed + pack(">i", port)
