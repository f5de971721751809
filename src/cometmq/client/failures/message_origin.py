"""Finds where a message that came back by way of a retry topic was first stored.

Owns the question to its broker; knows nothing of when a message is given up. Invariant: a place is
reported only when the record there is this message's: its id, and the address of its broker.
Java: nothing alike
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.errors import CometError
from cometmq.model.message import Property
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.query import ViewMessageRequestHeader
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import message_id, properties

if TYPE_CHECKING:
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import MessageExt

log = logging.getLogger(__name__)

_TIMEOUT_S = 3.0
_UNIQ_KEY = Property.UNIQ_KEY.encode()


async def first_place(session: ClientSession, message: MessageExt) -> tuple[int, int] | None:
    """The queue id and the offset that a message had in the topic it was first sent to.

    None where its broker does not know them any more, as when retention has deleted the first
    record, or does not answer within 3 s; that is logged. Only a message that came back is asked
    for.
    """
    first = message.properties.get(Property.ORIGIN_MESSAGE_ID)
    if first is None:
        return message.queue_id, message.queue_offset
    try:
        return await _ask(session, message, first)
    except CometError as error:
        log.info("where %s was first stored is not known any more: %s", message, error)
        return None


async def _ask(session: ClientSession, message: MessageExt, first: str) -> tuple[int, int] | None:
    """Read the first record; raises CometError where that cannot be, or `first` is no offset id."""
    host, phy_offset = message_id.parse_offset_id(first)
    if not 0 <= phy_offset < message.phy_offset:
        return None  # a producer's id, or a place in another broker's log
    header = ViewMessageRequestHeader(
        topic=message.properties.get(Property.RETRY_TOPIC),
        offset=phy_offset,
        broker_name=message.broker_name,
    )
    addr = session.routes.master_addr(message.broker_name)
    command = request(RequestCode.VIEW_MESSAGE_BY_ID, 0, header)
    answer = await session.call_checked(addr, command, _TIMEOUT_S)
    record = stored.decode(answer.body)
    own_id = (message.properties.get(Property.UNIQ_KEY) or "").encode()
    if (
        record.store_host != host
        or (properties.find(record.properties, _UNIQ_KEY) or b"") != own_id
    ):
        return None
    return record.queue_id, record.queue_offset
