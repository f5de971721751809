"""Asks brokers, before a consumer starts, whether they accept its SQL conditions.

Invariant: only a broker that refuses a condition keeps the consumer from starting; one that does
not answer is logged.
Java: MQClientInstance.checkClientInBroker
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.errors import ClientError, RemotingError
from cometmq.wire.bodies.heartbeat import CheckClient, encode_check_client
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.subscription import SubscriptionData

log = logging.getLogger(__name__)


async def check_sql_conditions(
    session: ClientSession, group: str, subscriptions: Iterable[SubscriptionData]
) -> None:
    """Ask one broker for each subscription; raises ClientError when one refuses a condition."""
    for data in subscriptions:
        queues = await session.routes.subscribe_queues(data.topic)
        for broker_name in sorted({queue.broker_name for queue in queues})[:1]:
            await _check_condition(session, group, data, broker_name)


async def _check_condition(
    session: ClientSession, group: str, data: SubscriptionData, broker_name: str
) -> None:
    body = encode_check_client(CheckClient(session.client_id, group, data))
    command = request(RequestCode.CHECK_CLIENT_CONFIG, 0, body=body)
    try:
        addr = session.routes.master_addr(broker_name)
        response = await session.call(addr, command)
    except RemotingError as error:
        log.warning("whether %s takes the filter is not known: %s", broker_name, error)
        return
    if response.code != ResponseCode.SUCCESS:
        raise ClientError(
            f"broker {broker_name} does not take the condition {data.sub_string!r} for "
            f"{data.topic}: {response.remark}"
        )
