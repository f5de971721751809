"""Whether the broker is reached at the address that it gives to clients; asked once, at the start.

Java: none; there a wrong brokerIP1 shows only in clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import CometError
from cometmq.net.channel import connect
from cometmq.settings import properties
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from cometmq.settings.broker import BrokerSettings
    from cometmq.wire.command import Command

TIMEOUT_S = 3.0
"""How long the connection and the answer may take, seconds each."""


async def wrong_address(
    addr: str,
    settings: BrokerSettings,
    sign: Callable[[Command], None] | None = None,
    tls: ssl.SSLContext | None = None,
) -> str | None:
    """One sentence when `addr` does not lead to this broker from here; None when it does.

    `sign` signs the question; a broker that refuses to answer it is taken for this one.
    """
    advice = "set brokerIP1 to an address at which clients reach this broker"
    try:
        channel = await connect(addr, TIMEOUT_S, prepare=sign, tls=tls)
    except CometError as error:
        return f"clients are given the address {addr}, but from here {error}; {advice}"
    try:
        answer = await channel.call(request(RequestCode.GET_BROKER_CONFIG, 0), TIMEOUT_S)
    except CometError as error:
        return f"clients are given the address {addr}, where no broker answers: {error}; {advice}"
    finally:
        channel.close()
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return f"clients are given the address {addr}, where no broker listens; {advice}"
    text = answer.body.decode("utf-8", "replace")
    found = {entry.key: entry.value for entry in properties.parse(text)}
    if found.get("brokerName", settings.broker_name) != settings.broker_name:
        other = found["brokerName"]
        return f"clients are given the address {addr}, where the broker {other} listens; {advice}"
    return None
