"""Where a broker is reached: the address for clients, and the one in records.

Java: BrokerConfig.brokerIP1, MessageStore's storeHost.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from struct import pack
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from cometmq.settings.broker import BrokerSettings


def advertised_host(settings: BrokerSettings) -> str:
    """The host that clients are given."""
    return settings.broker_ip1 or settings.bind_address


def packed_address(host: str, port: int) -> bytes:
    """The address as records carry it: IP, then the port as int32; raises SettingsError."""
    try:
        ip = ip_address(host.strip("[]"))
    except ValueError:
        try:
            ip = ip_address(socket.gethostbyname(host))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SettingsError(
                f"brokerIP1 {host!r} is no address of this network: {reason}"
            ) from error
    return ip.packed + pack(">i", port)
