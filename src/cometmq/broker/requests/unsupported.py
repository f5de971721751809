"""The answer to request codes that this broker does not know.

Java: NettyRemotingAbstract.processRequestCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.net.handler import Reply
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command


def unsupported(request: Command, _connection: Connection) -> Reply:
    """Refuse a code that no endpoint has, by its name where RocketMQ has one."""
    known = request.code in RequestCode._value2member_map_
    name = f"{RequestCode(request.code).name} ({request.code})" if known else str(request.code)
    return Reply(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"request type {name} not supported"
    )
