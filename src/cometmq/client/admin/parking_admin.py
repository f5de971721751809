"""AsyncParkingAdmin: parked keys and dead letters, shown, sent back in order, or dropped.

Commands about parked keys are records of the group's parking topic that the owners of its queues
carry out; dead letters are sent from here. Works on Apache's brokers as well. Java: none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cometmq.client.admin.dead_letter_locks import DeadLetterLocks
from cometmq.client.admin.dead_letter_redrive import DeadLetterRedrive
from cometmq.client.admin.parking_commands import ParkingCommands
from cometmq.client.admin.recent_parking_logs import RecentParkingLogs
from cometmq.client.admin.user_admin import AsyncUserAdmin
from cometmq.client.parking.parking_log import LETTERS, PARKED
from cometmq.client.parking.parking_messages import restore, takes_letter
from cometmq.client.producer.producer_options import ProducerOptions
from cometmq.client.producer.retrying_sender import RetryingSender
from cometmq.client.session.argument_checks import (
    INT64_MAX,
    check_flag,
    check_function,
    check_name,
    check_whole,
)
from cometmq.client.session.client_options import check_group, check_seconds, check_type
from cometmq.errors import ClientError, RouteNotFound
from cometmq.model.group import INNER_PRODUCER_GROUP
from cometmq.model.parking import ParkedMessage, ParkingStep, Selection, parking_topic_of
from cometmq.model.topic import dlq_topic_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Unpack

    from cometmq.client.admin.dead_letter_redrive import LetterPlace, Repaired, SendLetters
    from cometmq.client.admin.message_reader import MessageReader
    from cometmq.client.parking.parking_log import ParkingLog
    from cometmq.model.message import MessageExt
    from cometmq.model.parking import Progress, RedriveReport, SelectionArguments
    from cometmq.model.queue import MessageQueue

_RATE_MAX = 1_000_000
_LETTERS_MAX = 10_000
_LETTERS_READ = 1_024
"""Letters that are read before those found are counted."""


class AsyncParkingAdmin(AsyncUserAdmin):
    """The part of an admin that is about parked keys and dead letters.

    `key`, `msg_id`, `reason` (a part of it), `since_ms` and `until_ms` (when it was parked or given
    up, epoch ms) and `places` (broker and offset in the parking or dead-letter topic) choose
    messages; without any, all. A dead letter's key is its sharding key or one of its keys.
    `rate` is messages a second in all, 0 without limit. `progress` is called with how many are
    done, and of how many. A `dry_run` changes nothing and reports what is asked. What was
    interrupted goes on when it is called again.
    """

    _recent: RecentParkingLogs | None = None

    async def parked(
        self,
        group: str,
        **selection: Unpack[SelectionArguments],
    ) -> list[ParkedMessage]:
        """The parked messages of a group, those of a key in their order."""
        check_group(group)
        wanted = _checked(selection)
        logs = await self._logs(group)
        return [one for each in logs for one in each.messages() if wanted.takes(one)]

    async def parked_message(self, group: str, parked: ParkedMessage) -> MessageExt:
        """A parked message as its handler will get it. Raises BrokerError when it is gone."""
        _check_parked(group, parked)
        log = self._log(group, parked.broker_name)
        await self._running().routes.subscribe_queues(log.topic)
        repaired = None
        if parked.repaired_at >= 0:
            repaired = (await log.record_at(parked.repaired_at)).body
        return restore(await log.record_at(parked.position), parked, repaired)

    async def release_parked(
        self,
        group: str,
        *,
        rate: float = 0.0,
        dry_run: bool = False,
        wait_s: float = 60.0,
        progress: Progress | None = None,
        **selection: Unpack[SelectionArguments],
    ) -> RedriveReport:
        """Give parked keys back to the group's own handler; other groups see nothing again.

        A key is released as a whole: all its parked messages, oldest first, before later ones; the
        choice is of keys with such a message. Waits up to `wait_s` for members to do it.
        """
        wanted = _checked(selection)
        rate = _checked_rate(group, rate, wait_s, progress, dry_run=dry_run)
        commands = ParkingCommands(await self._logs(group), wanted, progress)
        return await commands.run(ParkingStep.RELEASE, "", rate, wait_s, dry_run=dry_run)

    async def redrive_parked(
        self,
        group: str,
        *,
        to: str | None = None,
        rate: float = 0.0,
        dry_run: bool = False,
        wait_s: float = 60.0,
        progress: Progress | None = None,
        **selection: Unpack[SelectionArguments],
    ) -> RedriveReport:
        """Send parked keys to their own topics again, or to the topic `to`, as new messages.

        All groups of that topic get them. Otherwise like `release_parked`.
        """
        wanted = _checked(selection)
        rate = _checked_rate(group, rate, wait_s, progress, dry_run=dry_run)
        if to is not None:
            check_name(to)
            await self.topic_route(to)
        commands = ParkingCommands(await self._logs(group), wanted, progress)
        step = ParkingStep.REDRIVE
        return await commands.run(step, to or "", rate, wait_s, dry_run=dry_run)

    async def drop_parked(
        self,
        group: str,
        *,
        dry_run: bool = False,
        **selection: Unpack[SelectionArguments],
    ) -> RedriveReport:
        """Let single parked messages count as done; no handler gets them."""
        wanted = _checked(selection)
        _checked_rate(group, 0.0, 1.0, None, dry_run=dry_run)
        return await ParkingCommands(await self._logs(group), wanted, None).drop(dry_run=dry_run)

    async def repair_parked(self, group: str, parked: ParkedMessage, body: bytes) -> bool:
        """Give a parked message another body; False where it has left, or is on its way."""
        _check_parked(group, parked)
        check_type("body", body, bytes, "bytes")
        log = self._log(group, parked.broker_name)
        await log.read_to_end()
        return await ParkingCommands([log], Selection(), None).repair(parked, body)

    async def redrive_dead_letters(
        self,
        group: str,
        *,
        to: str | None = None,
        to_group: bool = False,
        rate: float = 0.0,
        dry_run: bool = False,
        progress: Progress | None = None,
        repaired: Repaired | None = None,
        **selection: Unpack[SelectionArguments],
    ) -> RedriveReport:
        """Send dead letters of a group again, each once, those of a sharding key in their order.

        Each goes to its own topic, all to the topic `to`, or with `to_group` to this group alone.
        It gets a new id, so it can become a dead letter again. `repaired` has bodies by broker,
        queue id and offset in the dead-letter topic: only these letters are sent, with these
        bodies. One operator at a time sends or drops a group's dead letters: raises OperatorAtWork
        after ten seconds.
        """
        wanted = _checked(selection)
        rate = _checked_rate(group, rate, 1.0, progress, dry_run=dry_run)
        check_flag("to_group", to_group)
        if to is not None:
            check_name(to)
            if to_group:
                raise ClientError("to and to_group exclude each other")
            await self.topic_route(to)
        if repaired is not None:
            check_type("repaired", repaired, Mapping, "a dict from places to bodies")
            for place, body in repaired.items():
                check_type("repaired", place, tuple, "a dict from tuples to bodies")
                check_type("repaired", body, bytes, "a dict from places to bytes")
        async with self._dead_letter_locks(group, is_needed=not dry_run) as locks:
            redrive = await self._dead_letter_redrive(group, wanted, progress, locks, repaired)
            return await redrive.send(to, rate, to_group=to_group, dry_run=dry_run)

    async def redrive_dead_letters_by(
        self, group: str, send: SendLetters, places: Collection[LetterPlace]
    ) -> int:
        """Let a function of yours send dead letters again, while no other operator does; how many.

        It is called once, in a thread, with those of `places` (broker, queue id and offset in the
        dead-letter topic) that were neither sent again nor dropped; when it returns they count as
        done. If it raises they don't, and what it sent is sent again by the next call. Raises what
        it raises, and OperatorAtWork where another operator is at it for ten seconds.
        """
        check_group(group)
        check_function("send", send, "called with the places of the letters to send")
        check_type("places", places, Collection, "a set of brokers, queue ids and offsets")
        for place in places:
            check_type("places", place, tuple, "a set of tuples")
        async with self._dead_letter_locks(group) as locks:
            redrive = await self._dead_letter_redrive(group, Selection(), None, locks)
            return await redrive.send_by(send, places)

    async def drop_dead_letters(
        self,
        group: str,
        *,
        dry_run: bool = False,
        **selection: Unpack[SelectionArguments],
    ) -> RedriveReport:
        """Let dead letters count as done: `redrive_dead_letters` leaves them out from now on.

        Raises OperatorAtWork as that does.
        """
        wanted = _checked(selection)
        _checked_rate(group, 0.0, 1.0, None, dry_run=dry_run)
        async with self._dead_letter_locks(group, is_needed=not dry_run) as locks:
            redrive = await self._dead_letter_redrive(group, wanted, None, locks)
            return await redrive.drop(dry_run=dry_run)

    async def open_dead_letters(
        self, group: str, **selection: Unpack[SelectionArguments]
    ) -> list[MessageExt]:
        """The dead letters of a group that were neither sent again nor dropped, oldest first."""
        redrive = await self._dead_letter_redrive(group, _checked(selection), None)
        return await redrive.letters()

    async def find_dead_letters(
        self,
        group: str,
        max_count: int = 10,
        *,
        oldest: bool = False,
        **selection: Unpack[SelectionArguments],
    ) -> list[MessageExt]:
        """The newest dead letters of a group that are chosen, or the oldest, by their store times.

        Those that were sent again or dropped are among them. At most 10,000; a choice that few
        match reads the whole topic.
        """
        check_group(group)
        wanted = _checked(selection)
        check_whole("max_count", max_count, 1, _LETTERS_MAX)
        check_flag("oldest", oldest)
        bounds = await self.topic_stats(dlq_topic_of(group))
        reader = self._reader()
        found: list[MessageExt] = []
        for queue, ends in bounds.items():
            found += await _chosen(
                reader, queue, range(ends.min_offset, ends.max_offset), wanted, max_count, oldest
            )
        found.sort(key=lambda one: (one.store_ms, one.queue_offset))
        return found[:max_count] if oldest else found[-max_count:]

    @asynccontextmanager
    async def _dead_letter_locks(
        self, group: str, *, is_needed: bool = True
    ) -> AsyncIterator[DeadLetterLocks | None]:
        if not is_needed:
            yield None
            return
        queues = await self.queues(dlq_topic_of(group))
        await self._running().routes.subscribe_queues(dlq_topic_of(group))
        async with DeadLetterLocks(self._running(), group, queues) as locks:
            yield locks

    async def _dead_letter_redrive(
        self,
        group: str,
        wanted: Selection,
        progress: Progress | None,
        locks: DeadLetterLocks | None = None,
        repaired: Repaired | None = None,
    ) -> DeadLetterRedrive:
        check_group(group)
        queues = await self.queues(dlq_topic_of(group))
        await self._running().routes.subscribe_queues(parking_topic_of(group))
        logs = {one: self._log(group, one.broker_name, LETTERS) for one in queues}
        await asyncio.gather(*(log.read_to_end() for log in logs.values()))
        bounds = await self.topic_stats(dlq_topic_of(group))
        ranges = {one: (bounds[one].min_offset, bounds[one].max_offset) for one in queues}
        reader = self._reader()
        sender = RetryingSender(self._running(), ProducerOptions(group=INNER_PRODUCER_GROUP))
        return DeadLetterRedrive(
            self._running(), sender, reader, group, logs, ranges, wanted, progress, locks, repaired
        )

    async def _logs(self, group: str) -> list[ParkingLog]:
        """The parking queues of a group at all brokers, read to their ends."""
        topic = parking_topic_of(group)
        try:
            queues = await self.queues(topic)
        except RouteNotFound:
            return []
        await self._running().routes.subscribe_queues(topic)
        names = sorted({queue.broker_name for queue in queues})
        logs = [self._log(group, name) for name in names]
        await asyncio.gather(*(log.read_to_end() for log in logs))
        return logs

    def _log(self, group: str, broker_name: str, queue_id: int = PARKED) -> ParkingLog:
        session = self._running()
        if self._recent is None or self._recent.session is not session:
            self._recent = RecentParkingLogs(session)
        return self._recent.log_of(group, broker_name, queue_id)


async def _chosen(
    reader: MessageReader,
    queue: MessageQueue,
    offsets: range,
    wanted: Selection,
    max_count: int,
    oldest: bool,
) -> list[MessageExt]:
    """The first or last chosen letters of a queue, read a part at a time."""
    found: list[MessageExt] = []
    starts = range(offsets.start, offsets.stop, _LETTERS_READ)
    for start in starts if oldest else reversed(starts):
        letters = await reader.read(queue, start, min(start + _LETTERS_READ, offsets.stop))
        chosen = [one for one in letters if takes_letter(wanted, one)]
        found = [*found, *chosen][:max_count] if oldest else [*chosen, *found][-max_count:]
        if len(found) == max_count:
            break
    return found


def _checked(arguments: SelectionArguments) -> Selection:
    selection = Selection(**arguments)
    if selection.places is not None:
        check_type("places", selection.places, Collection, "a set of brokers and offsets")
        for place in selection.places:
            check_type("places", place, tuple, "a set of tuples of a broker and an offset")
    for name in ("key", "msg_id", "reason"):
        check_type(name, getattr(selection, name), str | None, "a text")
    check_whole("since_ms", selection.since_ms, 0, INT64_MAX)
    check_whole("until_ms", selection.until_ms, selection.since_ms, INT64_MAX)
    return selection


def _checked_rate(
    group: str, rate: float, wait_s: float, progress: Progress | None, *, dry_run: bool
) -> float:
    """Raise ClientError or SettingsError for a wrong argument, before anything is asked."""
    check_group(group)
    check_flag("dry_run", dry_run)
    check_seconds("wait_s", wait_s, may_be_zero=True)
    if progress is not None:
        check_function("progress", progress, "called with how many are done, and of how many")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= _RATE_MAX:
        raise ClientError(f"rate is {rate!r}; it must be messages a second, 0 without limit")
    return float(rate)


def _check_parked(group: str, parked: ParkedMessage) -> None:
    check_group(group)
    check_type("parked", parked, ParkedMessage, "a ParkedMessage, as `parked` returns them")
