"""Where a query without checkpoint begins: where a push consumer of its group would.

Asks the brokers for what the group has committed, and for the place of `consume_from` where it has
not. Invariant: a queue whose first message is wanted is written as -2, so that messages deleted
before the start are no loss.
Java: RebalancePushImpl.computePullFromWhere
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import TYPE_CHECKING

from cometmq.client.blocking.event_loop_thread import EventLoopThread
from cometmq.client.offsets.offset_store import OffsetStore
from cometmq.client.session.client_session import ClientSession
from cometmq.errors import BrokerAway, CometError
from cometmq.model.topic import retry_topic_of
from cometmq.runtime.system_clock_and_files import SystemClock
from cometmq.spark.connection_security import explained
from cometmq.spark.source.offset_bounds import EARLIEST_NUMBER
from cometmq.spark.source.topic_selection import queue_key

if TYPE_CHECKING:
    from collections.abc import Collection

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.session.client_options import ClientOptions

_PAUSE_S = 0.2


def start_offsets(
    client: ClientOptions,
    options: ConsumerOptions,
    topic: str,
    *,
    retry_for_s: float,
    brokers: Collection[str] = (),
) -> str:
    """The option `startingOffsets` of the topic and the group's retry topic.

    A broker that is away has the group's offsets of its queues: those named are waited for, the
    queues of others begin at their first message. Raises RemotingError, BrokerError or BrokerAway
    when brokers do not answer for `retry_for_s`, AccessDenied at once.
    """
    loop_thread = EventLoopThread.enter()
    try:
        return loop_thread.call(_ask_again(client, options, topic, retry_for_s, brokers))
    finally:
        loop_thread.leave()


async def _ask_again(
    client: ClientOptions,
    options: ConsumerOptions,
    topic: str,
    retry_for_s: float,
    brokers: Collection[str],
) -> str:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + retry_for_s
    while True:
        try:
            return await _ask(client, options, topic, brokers)
        except CometError as error:
            problem = explained(error)
            if not problem.retriable or loop.time() >= deadline:
                raise problem from error
        await asyncio.sleep(_PAUSE_S)


async def _ask(
    client: ClientOptions, options: ConsumerOptions, topic: str, brokers: Collection[str]
) -> str:
    session = ClientSession(client, SystemClock())
    offsets = OffsetStore(
        session, options.group, options.consume_from, options.consume_timestamp_ms
    )
    found: dict[str, dict[str, int]] = defaultdict(dict)
    try:
        if brokers:
            await _require_brokers(session, brokers, options.group)
        for name in (topic, retry_topic_of(options.group)):
            for queue in await session.routes.subscribe_queues(name):
                offset = await offsets.start_offset(queue)
                found[name][queue_key(queue)] = offset or EARLIEST_NUMBER
    finally:
        await session.stop()
    return json.dumps(found, sort_keys=True)


async def _require_brokers(session: ClientSession, brokers: Collection[str], group: str) -> None:
    """Raise BrokerAway unless name servers know all of these brokers."""
    table = (await session.name_servers.clusters()).broker_addr_table
    away = [broker for broker in brokers if broker not in table]
    if away:
        raise BrokerAway(
            f"broker {', '.join(away)} is away, which knows how far the group {group} is in its "
            "queues; start it, or wait longer with the option retryForMs",
            away,
        )
