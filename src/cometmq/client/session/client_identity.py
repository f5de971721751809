"""The identity of a client: its address, its client id, and the ids it gives to messages.

Owns what is read from the machine once; refuses to know connections and groups. Invariant: two
clients of one process, and two processes of one host, have different ids.
Java: ClientConfig.buildMQClientId, MessageClientIDSetter
"""

from __future__ import annotations

import os
import socket
import time
from itertools import count

from cometmq.wire.records.message_id import UniqKeyGenerator

_instances = count()
_uniq_keys: dict[int, UniqKeyGenerator] = {}


def local_ip(remote: tuple[str, int]) -> str:
    """The address this machine uses to reach `remote`, else loopback. Nothing is sent."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(remote)
            except (OSError, ValueError):
                continue
            return str(probe.getsockname()[0])
    return "127.0.0.1"


def unique_instance_name() -> str:
    """A name that no other client of this machine has."""
    return f"{os.getpid()}#{time.monotonic_ns()}.{next(_instances)}"


def client_id(ip: str, instance_name: str | None, unit_name: str | None = None) -> str:
    """The client id `ip@instance`, or `ip@instance@unit`.

    Without an instance name it is unique.
    """
    name = instance_name or unique_instance_name()
    return f"{ip}@{name}@{unit_name}" if unit_name else f"{ip}@{name}"


def uniq_keys(ip: str) -> UniqKeyGenerator:
    """The generator of UNIQ_KEYs of this process; a forked child gets its own."""
    pid = os.getpid()
    if pid not in _uniq_keys:
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        _uniq_keys.clear()
        _uniq_keys[pid] = UniqKeyGenerator(
            socket.inet_pton(family, ip), pid, time.monotonic_ns() >> 8
        )
    return _uniq_keys[pid]
