"""The job `backlog`: how far consumer groups are behind, whether they catch up, and when.

Looks twice, some seconds apart: the difference is the rates. Asks brokers for the offsets of groups
and topics, and needs no Spark; `backlog_frame` makes a DataFrame of the rows.
Java: mqadmin consumerProgress
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cometmq.client.admin.async_admin import AsyncAdmin
from cometmq.errors import BrokerError, ClientError, RouteNotFound, SettingsError
from cometmq.model.parking import is_parking_topic
from cometmq.model.topic import dlq_topic_of, retry_topic_of
from cometmq.runtime.system_clock_and_files import SystemClock
from cometmq.spark.connection_security import SECURITY_OPTIONS, explained, security_of
from cometmq.spark.option_reader import OptionReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from cometmq.model.admin_stats import QueueProgress, TopicOffset
    from cometmq.model.queue import MessageQueue

_AT_ONCE = 8
"""Groups asked for at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBacklog:
    """How far a group is behind in one topic. Counts are messages, rates messages a second."""

    group: str
    topic: str
    queues: int
    lag: int
    """Messages not yet done: beyond the committed offsets, and not deleted by retention."""
    behind_s: float | None
    """Between the store times of the newest message and of the last one done, in the worst queue.

    0 when all are done; None where brokers cannot say it of a queue with lag: the group has done
    nothing in it, or retention has deleted the last message that it did."""
    in_rate: float
    out_rate: float
    drain_s: float | None
    """When the lag is gone at these rates; None: never, for it grows or stays."""
    skew: float
    """The lag of the longest queue divided by the mean lag of a queue; 1 is even."""
    longest_queue: str
    """That queue, `broker:queueId`; empty without lag."""
    retry_depth: int
    """Messages of the group that wait to be delivered again (of all its topics together).

    Those whose delay has not passed are not among them: brokers keep them elsewhere."""
    dead_letters: int
    """Messages in the group's dead-letter topic."""


@dataclass(frozen=True, slots=True)
class _ProgressSnapshot:
    """What brokers say of one group at one moment."""

    at_s: float
    progress: dict[MessageQueue, QueueProgress]
    ends: dict[MessageQueue, TopicOffset]

    def done(self, queue: MessageQueue) -> int:
        """The next message to do: what was deleted counts as done, and nothing without a commit."""
        known = self.progress.get(queue)
        return max(known.consumer_offset if known else 0, self.ends[queue].min_offset)

    def lag(self, queue: MessageQueue) -> int:
        return max(0, self.ends[queue].max_offset - self.done(queue))


def backlog(
    groups: str | Sequence[str] = (),
    *,
    namesrv: str | None = None,
    over_s: float = 5.0,
    timeout_s: float = 6.0,
    options: Mapping[str, str] | None = None,
) -> list[TopicBacklog]:
    """The backlog of consumer groups, a row for each group and topic, the longest lag first.

    - `groups`: one or several names; default: all that have committed an offset.
    - `namesrv`: default: the environment's NAMESRV_ADDR.
    - `over_s`: seconds over which rates are measured; the call takes as long.
    - `timeout_s`: for each answer.
    - `options`: those of the source that are about keys and TLS.

    Raises ClientError for a named group that has committed nothing, RemotingError for a server that
    does not answer, AccessDenied, SettingsError for wrong arguments.
    """
    if over_s <= 0:
        raise SettingsError(f"over_s is {over_s}: it must be above 0")
    names = [groups] if isinstance(groups, str) else list(groups)
    texts = OptionReader(options or {}, SECURITY_OPTIONS)
    security = security_of(texts).client_settings()
    admin = AsyncAdmin(namesrv=namesrv, timeout_s=timeout_s, **security)
    try:
        return asyncio.run(_backlog(admin, names, over_s))
    except BrokerError as error:
        raise explained(error) from error


def backlog_frame(spark: SparkSession, rows: Iterable[TopicBacklog]) -> DataFrame:
    """Rows of `backlog` as a DataFrame, to be joined or written."""
    schema = (
        "group string, topic string, queues int, lag bigint, behind_s double, in_rate double, "
        "out_rate double, drain_s double, skew double, longest_queue string, retry_depth bigint, "
        "dead_letters bigint"
    )
    return spark.createDataFrame([tuple(asdict(one).values()) for one in rows], schema)


async def _backlog(admin: AsyncAdmin, names: list[str], over_s: float) -> list[TopicBacklog]:
    async with admin:
        wanted = names or await admin.groups()
        before = await _looks(admin, wanted)
        await asyncio.sleep(over_s)
        after = await _looks(admin, [name for name in wanted if before[name].progress])
        missing = [name for name in names if not before[name].progress]
        if missing:
            raise ClientError(
                f"the group {missing[0]} has committed no offset at any broker: check its name "
                "(`cometmq pipeline backlog` without names lists all that have)"
            )
        dead = {name: await _messages_in(admin, dlq_topic_of(name)) for name in after}
    rows = [row for name in after for row in _rows(name, before[name], after[name], dead[name])]
    return sorted(rows, key=lambda row: (-row.lag, row.group, row.topic))


async def _looks(admin: AsyncAdmin, names: Iterable[str]) -> dict[str, _ProgressSnapshot]:
    slots = asyncio.Semaphore(_AT_ONCE)
    known: dict[str, asyncio.Task[dict[MessageQueue, TopicOffset]]] = {}

    async def look(name: str) -> tuple[str, _ProgressSnapshot]:
        async with slots:
            progress = await admin.group_progress(name)
            ends: dict[MessageQueue, TopicOffset] = {}
            topics = {queue.topic for queue in progress} | (
                {retry_topic_of(name)} if progress else set()
            )
            for topic in sorted(topics):
                if topic not in known:
                    known[topic] = asyncio.ensure_future(_ends(admin, topic))
                ends |= await known[topic]
        at_s = SystemClock().monotonic_ms() / 1000
        return name, _ProgressSnapshot(
            at_s, {q: one for q, one in progress.items() if q in ends}, ends
        )

    return dict(await asyncio.gather(*(look(name) for name in names)))


async def _ends(admin: AsyncAdmin, topic: str) -> dict[MessageQueue, TopicOffset]:
    """The ends of a topic's queues; none when it is gone while groups still have offsets in it."""
    try:
        return await admin.topic_stats(topic)
    except RouteNotFound:
        return {}


async def _messages_in(admin: AsyncAdmin, topic: str) -> int:
    found = (await _ends(admin, topic)).values()
    return sum(one.max_offset - one.min_offset for one in found)


def _rows(
    name: str, before: _ProgressSnapshot, after: _ProgressSnapshot, dead_letters: int
) -> list[TopicBacklog]:
    """A row for each topic but the retry topic, which is part of every row, and parked keys."""
    retry = retry_topic_of(name)
    depth = sum(after.lag(queue) for queue in after.ends if queue.topic == retry)
    topics = sorted({queue.topic for queue in after.progress} - {retry})
    # what a group has committed in its parking topic is where a reader begins, not what is done
    theirs = [topic for topic in topics if not is_parking_topic(topic)]
    return [_row(name, topic, before, after, depth, dead_letters) for topic in theirs]


def _row(
    name: str,
    topic: str,
    before: _ProgressSnapshot,
    after: _ProgressSnapshot,
    retry_depth: int,
    dead_letters: int,
) -> TopicBacklog:
    lags = {queue: after.lag(queue) for queue in after.progress if queue.topic == topic}
    seconds = max(after.at_s - before.at_s, 1e-3)
    both = [queue for queue in lags if queue in before.progress]
    came = sum(after.ends[queue].max_offset - before.ends[queue].max_offset for queue in both)
    went = sum(after.done(queue) - before.done(queue) for queue in both)
    lag, longest = sum(lags.values()), max(lags, key=lambda queue: lags[queue])
    return TopicBacklog(
        group=name,
        topic=topic,
        queues=len(lags),
        lag=lag,
        behind_s=_behind_s(after, [queue for queue, count in lags.items() if count]),
        in_rate=round(came / seconds, 1),
        out_rate=round(went / seconds, 1),
        drain_s=_drain_s(lag, (went - came) / seconds),
        skew=round(lags[longest] * len(lags) / lag, 2) if lag else 1.0,
        longest_queue=f"{longest.broker_name}:{longest.queue_id}" if lag else "",
        retry_depth=retry_depth,
        dead_letters=dead_letters,
    )


def _behind_s(look: _ProgressSnapshot, late: Sequence[MessageQueue]) -> float | None:
    """The longest time of the queues with lag; None where it is not known of one."""
    done_ms = {queue: look.progress[queue].last_timestamp for queue in late}
    if not all(done_ms.values()):
        return None
    behind = (look.ends[queue].last_update_timestamp - done_ms[queue] for queue in late)
    return round(max(behind, default=0) / 1000, 1)


def _drain_s(lag: int, gain: float) -> float | None:
    """Seconds until the lag is gone when it shrinks by `gain` messages a second."""
    if not lag:
        return 0.0
    return round(lag / gain, 1) if gain > 0 else None


def as_json(rows: Iterable[TopicBacklog]) -> list[Mapping[str, Any]]:
    """Plain values."""
    return [asdict(one) for one in rows]
