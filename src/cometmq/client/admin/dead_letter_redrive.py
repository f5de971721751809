"""Sends dead letters again, each once, and keeps account of it in the group's parking topic.

Owns the order and the account: queue 1 of the parking topic has a DROP for each letter that was
sent or dropped, which counts whoever wrote it. One operator at a time does this
(`DeadLetterLocks`).
Invariant: letters of one sharding key are sent in the order in which their queue first had them, as
far as they say so; a letter with a DROP is never sent. Java: none.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from cometmq.client.parking.key_drains import redriven_id
from cometmq.client.parking.parking_messages import (
    control_form,
    copy_form,
    letter_facts,
    takes_letter,
    with_body,
)
from cometmq.errors import ClientError, CometError
from cometmq.model.message import Property
from cometmq.model.parking import (
    ParkingRecord,
    ParkingStep,
    RedriveReport,
    Refusal,
)
from cometmq.model.topic import dlq_topic_of, retry_topic_of
from cometmq.rules.key_hash import queue_index
from cometmq.wire.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.client.admin.dead_letter_locks import DeadLetterLocks
    from cometmq.client.admin.message_reader import MessageReader
    from cometmq.client.parking.parking_log import ParkingLog
    from cometmq.client.producer.retrying_sender import RetryingSender
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import MessageExt
    from cometmq.model.parking import Progress, Selection
    from cometmq.model.queue import MessageQueue

_SEND_S = 10.0
LetterPlace = tuple[str, int, int]
"""Broker, queue id and offset in the dead-letter topic."""
Repaired = Mapping[LetterPlace, bytes]
"""Bodies of dead letters."""
SendLetters = Callable[[Collection[LetterPlace]], None]
"""Sends the letters that lie at these places; raises when it has not sent all."""
_LOCK_LOST = "another operator has taken the lock, while a broker was away"
_NOTED_AT_ONCE = 64


class DeadLetterRedrive:
    """One call about a group's dead letters. The logs have been read to their ends.

    Whatever changes them needs the locks.
    """

    def __init__(
        self,
        session: ClientSession,
        sender: RetryingSender,
        reader: MessageReader,
        group: str,
        logs: Mapping[MessageQueue, ParkingLog],
        ranges: Mapping[MessageQueue, tuple[int, int]],
        wanted: Selection,
        progress: Progress | None,
        locks: DeadLetterLocks | None,
        repaired: Repaired | None = None,
    ) -> None:
        """`logs` by the queues of the dead letters; `ranges`: their offsets.

        With `repaired` only these letters are meant, and go with these bodies.
        """
        self._session = session
        self._sender = sender
        self._reader = reader
        self._group = group
        self._logs = logs
        self._ranges = ranges
        self._wanted = wanted
        self._progress = progress
        self._locks = locks
        self._repaired = repaired

    async def letters(self) -> list[MessageExt]:
        """The chosen letters that were neither sent again nor dropped, in their order."""
        found = await self._reader.read_each(self._ranges)
        return _in_order(filter(self._is_meant, found))

    def _is_meant(self, letter: MessageExt) -> bool:
        if self._repaired is not None and _place(letter) not in self._repaired:
            return False
        return takes_letter(self._wanted, letter) and not self._is_done(letter)

    async def send(
        self, to: str | None, rate: float, *, to_group: bool, dry_run: bool
    ) -> RedriveReport:
        """Send the chosen letters to their topics, to one topic, or to the group alone."""
        letters = await self.letters()
        if dry_run:
            return RedriveReport(asked=len(letters), is_dry_run=True)
        loop, done, refused, stuck = asyncio.get_running_loop(), 0, [], set()
        assert self._locks is not None, "who sends has the locks"
        for one in letters:
            begun, why = loop.time(), ""
            key = _key_of(one)
            if key in stuck:
                why = "one of its key before it was not sent"
            elif self._is_done(one) or not await self._locks.holds():
                why = _LOCK_LOST
            else:
                try:
                    await self._send(one, to, to_group=to_group)
                except CometError as error:
                    why = str(error)
            if why:
                stuck.add(key)
                refused.append(Refusal(letter_facts(one), why))
                continue
            done += 1
            if self._progress is not None:
                self._progress(done, len(letters))
            if rate:
                await asyncio.sleep(max(0.0, 1 / rate - (loop.time() - begun)))
        return RedriveReport(asked=len(letters), done=done, refused=tuple(refused))

    async def drop(self, *, dry_run: bool) -> RedriveReport:
        """Let the chosen letters count as done."""
        letters = await self.letters()
        if dry_run:
            return RedriveReport(asked=len(letters), is_dry_run=True)
        for one in letters:
            await self._note_done(one)
        return RedriveReport(asked=len(letters), done=len(letters))

    async def send_by(self, send: SendLetters, places: Collection[LetterPlace]) -> int:
        """Let `send` have those of the places that are not done, and note them; how many.

        It is called in a thread.
        """
        queues = {(one.broker_name, one.queue_id): one for one in self._logs}
        for broker, queue_id in sorted({place[:2] for place in places} - queues.keys()):
            raise ClientError(
                f"the queue {queue_id} of {dlq_topic_of(self._group)} at {broker} is not in this "
                "cluster: leave its letters out, or name the name server where they died"
            )
        chosen = [
            (queues[broker, queue_id], offset) for broker, queue_id, offset in sorted(set(places))
        ]
        left = [one for one in chosen if not self._has_left(*one)]
        if not left:
            return 0
        await asyncio.to_thread(send, {(q.broker_name, q.queue_id, offset) for q, offset in left})
        for start in range(0, len(left), _NOTED_AT_ONCE):
            part = left[start : start + _NOTED_AT_ONCE]
            await asyncio.gather(*(self._append(self._drop_of(*one), one[0]) for one in part))
        await asyncio.gather(*(self._logs[queue].read_to_end() for queue in {q for q, _ in left}))
        return len(left)

    async def _send(self, letter: MessageExt, to: str | None, *, to_group: bool) -> None:
        said = letter.properties
        origin = said.get(Property.DLQ_ORIGIN_TOPIC) or said.get(Property.RETRY_TOPIC)
        topic = retry_topic_of(self._group) if to_group else to or origin
        if not topic or not origin:
            raise CometError("it does not say which topic it came from: name one")
        queue = letter.message_queue
        new_id = redriven_id(letter.msg_id, queue, letter.queue_offset)
        if self._repaired is not None:
            letter = with_body(letter, self._repaired[_place(letter)])
        now_ms = self._session.clock.now_ms()
        more = {Property.RETRY_TOPIC: origin} if to_group else {}
        copy = copy_form(topic, letter, new_id, None, now_ms, self._sender.options, more)
        key = letter.sharding_key or letter.msg_id

        async def choose(failed_broker: str | None) -> MessageQueue:
            del failed_broker
            queues = await self._session.routes.publish_queues(topic, 4)
            return queues[queue_index(java_hash(key), len(queues))]

        deadline = asyncio.get_running_loop().time() + _SEND_S
        await self._sender.send(copy, choose, 2, deadline)
        await self._note_done(letter)

    async def _note_done(self, letter: MessageExt) -> None:
        queue = letter.message_queue
        position = await self._append(self._drop_of(queue, letter.queue_offset), queue)
        await self._logs[queue].read_through(position)

    def _drop_of(self, queue: MessageQueue, offset: int) -> ParkingRecord:
        return ParkingRecord(
            step=ParkingStep.DROP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            from_offset=0,
            epoch=0,
            owner=self._session.client_id,
        )

    async def _append(self, record: ParkingRecord, queue: MessageQueue) -> int:
        log = self._logs[queue]
        return await log.append(control_form(log.topic, record, log.stamp_ms))

    def _is_done(self, letter: MessageExt) -> bool:
        return self._has_left(letter.message_queue, letter.queue_offset)

    def _has_left(self, queue: MessageQueue, offset: int) -> bool:
        known = self._logs[queue].keys.queues.get((queue.topic, queue.queue_id))
        return known is not None and offset in known.left


def _place(letter: MessageExt) -> LetterPlace:
    return letter.broker_name, letter.queue_id, letter.queue_offset


def _key_of(letter: MessageExt) -> tuple[str | None, ...]:
    """What keeps its order: letters of one sharding key; without one, each by itself."""
    if letter.sharding_key is None:
        return None, letter.broker_name, str(letter.queue_offset)
    return (letter.sharding_key,)


def _in_order(letters: Iterable[MessageExt]) -> list[MessageExt]:
    """Letters as they came, but those of a key by their first places where all of them know it."""
    by_key: defaultdict[tuple[str | None, ...], list[MessageExt]] = defaultdict(list)
    came = list(letters)
    for one in came:
        by_key[_key_of(one)].append(one)
    for key, own in by_key.items():
        places = [_first_place(one) for one in own]
        if all(place is not None for place in places):
            by_key[key] = sorted(own, key=lambda one: _first_place(one) or (0, 0))
    turns = {key: iter(own) for key, own in by_key.items()}
    return [next(turns[_key_of(one)]) for one in came]


def _first_place(letter: MessageExt) -> tuple[int, int] | None:
    said = letter.properties
    queue_id = said.get(Property.DLQ_ORIGIN_QUEUE_ID, "")
    offset = said.get(Property.DLQ_ORIGIN_OFFSET, "")
    if not (queue_id.isdecimal() and offset.isdecimal()):
        return None
    return int(queue_id), int(offset)
