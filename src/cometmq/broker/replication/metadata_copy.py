"""What a slave knows beside the log: topics, groups and offsets, as its master has them.

Owns the copying, in the order and by the requests of Apache's slaves, so any master will do. An
offset that consumers committed here while the master was away, and that is ahead of the master's,
stays and is carried to the master; all else is as the master says. Delay offsets are taken only
once the log has come as far as the master's had when it sent them: else a master's loss could take
messages that count as delivered. Java: SlaveSynchronize.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.delivery.delayed_messages import stored_places_of
from cometmq.errors import BrokerError, CometError, ProtocolError
from cometmq.model.topic import is_light_topic
from cometmq.store.lost_tables import topic_of_queues
from cometmq.store.timers.timer_checkpoint import decode_progress
from cometmq.store.timers.timer_counts import decode_counts
from cometmq.wire.bodies import json_fields
from cometmq.wire.bodies.group import decode_group_table, encode_group_config
from cometmq.wire.bodies.name_lists import decode_kv_table
from cometmq.wire.bodies.offset import stored_offsets_of
from cometmq.wire.bodies.topic import decode_topic_table
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.offset import UpdateConsumerOffsetRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator
    from typing import TypeVar

    from cometmq.broker.broker_state import BrokerState
    from cometmq.broker.delivery.delayed_messages import StoredDelayOffsets
    from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
    from cometmq.net.channel import Channel
    from cometmq.net.channel_pool import ChannelPool
    from cometmq.store.message_store import MessageStore
    from cometmq.store.timers.timer_checkpoint import TimerProgress
    from cometmq.wire.bodies.group import GroupTable
    from cometmq.wire.bodies.offset import StoredOffsets

    _T = TypeVar("_T")
    _Counts = dict[str, tuple[int, int]] | None

log = logging.getLogger(__name__)

PERIOD_S = 10.0
"""Time between two copies. Apache's slaves copy every minute: consumers would repeat as much."""
TIMEOUT_S = 10.0
CARRIED_MAX = 1_000
"""Offsets carried to the master in one round; the others follow with the next."""
_KEYS_AT_ONCE = 500


class Commit(NamedTuple):
    """An offset that was committed at this slave."""

    key: str
    queue_id: int
    offset: int

    @property
    def group(self) -> str:
        """Whose commit it is."""
        return self.key.partition("@")[2]


def own_commits(
    present: dict[str, dict[int, int]],
    copied: dict[str, dict[int, int]],
    theirs: dict[str, dict[int, int]],
) -> Iterator[Commit]:
    """The offsets that changed here since the last copy and are ahead of the master's."""
    for key, queues in present.items():
        for queue_id, offset in queues.items():
            is_own = copied.get(key, {}).get(queue_id) != offset
            if is_own and offset > theirs.get(key, {}).get(queue_id, -1):
                yield Commit(key, queue_id, offset)


class MetadataCopy:
    """Copies a master's tables into a slave's. Belongs to the broker's loop."""

    def __init__(self, pool: ChannelPool, store: MessageStore, state: BrokerState) -> None:
        self._pool = pool
        self._store = store
        self._state = state
        self._copied: dict[str, dict[int, int]] | None = None
        """The offsets of the last copy; None: none since the start."""
        self._groups: set[str] = set()
        """The groups of the last copy."""
        self._delays: tuple[int, StoredDelayOffsets, TimerProgress | None, _Counts] | None = None
        """Delay offsets and timers, and where the log must end before they are true here."""
        self._logged = ""
        self._copying = asyncio.Lock()
        self.unknown_topics: set[str] = set()
        """Topics that the log has messages of and that no copy has brought yet."""
        self.master_addr = ""
        """Where the master answers requests, "host:port"; empty: not known."""

    def connection_ended(self) -> None:
        """Ask for delay offsets anew: the master may have lost the log that they are of."""
        self._delays = None

    def arrived(self, topic: str) -> bool:
        """A message of this topic is in the log now; True where a copy must bring the topic."""
        topics = self._state.topics
        if topic in topics.table or topic in self.unknown_topics or is_light_topic(topic):
            return False
        self.unknown_topics.add(topic)
        return True

    def make_unknown_topics(self) -> None:
        """Make the topics that no copy brought: what was acknowledged in them must be readable."""
        queues = self._store.queues()
        for topic in self.unknown_topics:
            ids = [queue_id for name, queue_id in queues if name == topic]
            if ids:
                log.warning(
                    "the topic %s is known by its messages only: it has new settings", topic
                )
                self._state.topics.put(topic_of_queues(topic, ids))

    async def run_once(self) -> None:
        """Copy everything; a failure is logged once, and tried again with the next call."""
        if not self.master_addr:
            return
        try:
            async with self._copying:
                await self.copy()
        except CometError as problem:
            if self._logged != str(problem):
                self._logged = str(problem)
                log.warning("the master's topics and offsets are not copied: %s", problem)
        else:
            if self._logged:
                log.info("the topics and offsets of %s are copied again", self.master_addr)
            self._logged = ""

    async def copy(self) -> None:
        """Copy everything once; raises CometError where the master cannot be asked."""
        state, channel = self._state, await self._pool.channel(self.master_addr)
        asked_for = set(self.unknown_topics)
        state.topics.take_over(
            await ask(channel, RequestCode.GET_ALL_TOPIC_CONFIG, decode_topic_table)
        )
        self.unknown_topics -= asked_for  # one that did not come was deleted
        groups = await _ask_groups(channel)
        commits = await self._copy_offsets(channel, self._groups - groups.groups.keys())
        await self._copy_delays(channel)
        new = {commit.group for commit in commits} - groups.groups.keys()
        if new:
            await self._make_groups(channel, new)
            groups = await _ask_groups(channel)
        state.groups.take_over(groups)
        self._groups = set(groups.groups)
        await self._carry(channel, commits[:CARRIED_MAX])

    async def _copy_offsets(self, channel: Channel, deleted: Container[str]) -> list[Commit]:
        """Take the master's offsets over; returns those that it is to have from here.

        `deleted`: groups that the master no longer has.
        """
        theirs = await ask(channel, RequestCode.GET_ALL_CONSUMER_OFFSET, _offsets)
        offsets, copied = self._state.offsets, self._copied
        found = [] if copied is None else own_commits(offsets.snapshot(), copied, theirs.offsets)
        commits = [commit for commit in found if commit.group not in deleted]
        await _take_over(offsets, theirs, commits)
        self._copied = theirs.offsets
        return commits

    async def _make_groups(self, channel: Channel, names: Iterable[str]) -> None:
        """Have the master make groups that were first used here: it takes no commits of others."""
        table = self._state.groups.table
        for config in [table[name] for name in sorted(names) if name in table]:
            body = encode_group_config(config)
            command = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, 0, None, body)
            answer = await channel.call(command, TIMEOUT_S)
            if answer.code != 0:
                raise BrokerError(answer.code, answer.remark, "the master, given a new group,")

    async def _carry(self, channel: Channel, commits: Iterable[Commit]) -> None:
        """Give the master what was committed here; BrokerError, at the end, for what it refused."""
        assert self._copied is not None, "offsets are carried after the first copy"
        problem: BrokerError | None = None
        for commit in commits:
            topic = commit.key.partition("@")[0]
            header = UpdateConsumerOffsetRequestHeader(
                topic=topic,
                queue_id=commit.queue_id,
                consumer_group=commit.group,
                commit_offset=commit.offset,
            )
            command = request(RequestCode.UPDATE_CONSUMER_OFFSET, 0, header)
            answer = await channel.call(command, TIMEOUT_S)
            if answer.code == 0:
                # the master has it now: from here on its word counts, even a lower offset
                self._copied.setdefault(commit.key, {})[commit.queue_id] = commit.offset
            else:
                problem = BrokerError(answer.code, answer.remark, f"the master, given {commit},")
        if problem is not None:
            raise problem

    async def _copy_delays(self, channel: Channel) -> None:
        if self._delays is None:
            delays = await ask(channel, RequestCode.GET_ALL_DELAY_OFFSET, _delays)
            timers = await _ask_timers(channel, RequestCode.GET_TIMER_CHECK_POINT, decode_progress)
            counts = await _ask_timers(channel, RequestCode.GET_TIMER_METRICS, decode_counts)
            facts = await ask(channel, RequestCode.GET_BROKER_RUNTIME_INFO, decode_kv_table)
            try:
                log_end = int(facts.get("commitLogMaxOffset", ""))
            except ValueError:
                raise ProtocolError("the master does not say where its log ends") from None
            self._delays = log_end, delays, timers, counts
        if self._store.max_phy_offset >= self._delays[0]:
            _, delays, timers, counts = self._delays
            self._delays = None
            self._state.delayed_messages.take_over(delays)
            if timers is not None:
                await self._state.timer_messages.follow(timers, counts)


async def _take_over(offsets: ConsumerOffsets, theirs: StoredOffsets, own: list[Commit]) -> None:
    """Take the master's offsets over, with other work of the loop in between."""
    kept = {(commit.key, commit.queue_id) for commit in own}
    keys = list({**theirs.offsets, **dict.fromkeys(offsets.snapshot())})
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        offsets.take_over(theirs, kept, keys[start : start + _KEYS_AT_ONCE])
        await asyncio.sleep(0)


async def ask(channel: Channel, code: RequestCode, decode: Callable[[bytes], _T]) -> _T:
    """What the master answers to a request, decoded by a thread. Raises CometError."""
    answer = await channel.call(request(code, 0), TIMEOUT_S)
    if answer.code != 0:
        raise BrokerError(answer.code, answer.remark, f"the master, asked for {code.name},")
    return await asyncio.to_thread(decode, answer.body)


async def _ask_groups(channel: Channel) -> GroupTable:
    return await ask(channel, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, decode_group_table)


async def _ask_timers(
    channel: Channel, code: RequestCode, decode: Callable[[bytes], _T]
) -> _T | None:
    """What the master says of its timers; None where it keeps none."""
    try:
        return await ask(channel, code, decode)
    except BrokerError:
        return None


def _offsets(data: bytes) -> StoredOffsets:
    return stored_offsets_of(json_fields.load_object(data))


def _delays(data: bytes) -> StoredDelayOffsets:
    return stored_places_of(json_fields.load_object(data))
