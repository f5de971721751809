"""Hot. The fast path of a send whose header matches a template: no JSON, no objects, one put.

Owns what each connection's headers were found to look like, and forgets it when any topic changes.
`send_fast_path_plan` decides what may go this way; `broker/sends/send_handler` does the rest.
Invariant: a send taken here is stored and answered exactly as the handler would have.
Java: none.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from cometmq.broker.pulls.pull_fast_path import PullFastPath
from cometmq.broker.requests.status_codes import PUT_STATUS_CODES, PUT_STATUS_REMARKS
from cometmq.broker.sends.send_fast_path_plan import SendPlanner
from cometmq.broker.sends.tag_codes import tags_code_of
from cometmq.net.admission import LearningCondition
from cometmq.store.put_result import PutStatus
from cometmq.wire.command import Command
from cometmq.wire.frame import JSON, Frame, encode_frame
from cometmq.wire.templates.header_template import LearningLimiter
from cometmq.wire.templates.send_frame_batch import QUEUE_IDS
from cometmq.wire.templates.send_template import SendTemplates, unescaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.broker.pulls.pull_handler import PullHandler
    from cometmq.broker.sends.send_fast_path_plan import SendPlan
    from cometmq.broker.sends.send_handler import SendHandler
    from cometmq.net.admission import FastPathAdmission
    from cometmq.net.connection import Connection
    from cometmq.settings.store import StoreSettings
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.templates.send_frame_batch import SendFrameBatch
    from cometmq.wire.templates.send_template import SendTemplate

_ADMITTED = LearningCondition(None)
_HEAD = Struct(">II")
_unpack_head = _HEAD.unpack_from
_PREFIXES = [_HEAD.pack(length + 4, length) for length in range(8192)]
"""What precedes an answer's header of so many bytes."""


class ConnectionFastPath:
    """One connection's sends, with their templates and the answers of this iteration; its pulls.

    Made by `FastPaths` only.
    """

    __slots__ = (
        "_answers",
        "_batch",
        "_connection",
        "_generation",
        "_pulls",
        "_shared",
        "_templates",
    )

    def __init__(self, shared: FastPaths, connection: Connection) -> None:
        self._shared = shared
        self._connection = connection
        self._pulls = PullFastPath(shared.pulls, connection, shared.learning)
        self._generation = shared.generation
        self._batch = -1
        self._templates = SendTemplates(shared.learning)
        self._answers: list[bytes] = []

    def chunk(self, data: bytes) -> int:  # noqa: C901 - one loop, measured: a call is 0.1 us
        """Take the frames at the head of a chunk while they are ordinary; bytes taken."""
        shared = self._shared
        if self._generation != shared.generation:
            self._forget()
        body_max, match_at = shared.body_max, self._templates.match_at
        at, size, may_run = self._put_recent(data), len(data), True
        while size - at >= 8:
            total, length = _unpack_head(data, at)  # a length below 2^24 says JSON as well
            body_at, end = at + 8 + length, at + 4 + total
            if end > size or not body_at < end <= body_at + body_max:
                if end != body_at or end > size or not (taken := self._pulls.take(data, at)):
                    break
                at = taken
                continue
            found = match_at(data, at + 8, body_at)
            if found is None:
                break
            template, values = found
            plan: SendPlan = template.plan or shared.planner.plan(template, self._connection)
            if template.check is not None and not template.is_signed(values, data[body_at:end]):
                break
            texts, put = values[template.texts], plan.put
            if may_run and (put is None or plan.form or size - end > 2 * length):
                if taken := self._put_many(plan, template, values, data, at):
                    at = taken
                    continue
                may_run = False
            queue_id = QUEUE_IDS[values[template.queue_at]]
            if put is None or queue_id >= plan.queue_count:
                break
            if plan.unique_at >= 0:
                raw, unique = plan.properties % texts, texts[plan.unique_at]
                if plan.tags_at >= 0 and texts[plan.tags_at] != plan.tag:
                    plan.take_tag(texts[plan.tags_at])
                code = plan.code
            elif completed := shared.planner.complete(unescaped(texts[0])):
                raw, code, unique = completed
            else:
                break
            answers = self._answers if shared.batch.number == self._batch else self._begin()
            if answers is None:
                break
            if values[template.born_at] != plan.born:  # the same for a while
                plan.born = values[template.born_at]
                plan.born_ms = int(plan.born)
            placed = put(queue_id, plan.born_ms, data[body_at:end], raw, code)
            if placed is None:
                break
            phy_offset, queue_offset, bytes_stored = placed
            opaque = values[template.opaque_at]
            answer = plan.answer % (phy_offset, queue_id, queue_offset, unique, opaque)
            answers.append(_PREFIXES[len(answer)] + answer)
            if shared.is_sync:
                self._connection.begin_request()
            plan.counter.count += 1
            plan.counter.bytes += bytes_stored
            at = end
        return at

    def _forget(self) -> None:
        """Learn anew what was learned before something changed that it depends on."""
        self._generation = self._shared.generation
        self._templates.forget()
        if self._shared.admission is not None:  # its rules may have changed
            self._pulls.forget()

    def release(self, _connection: Connection) -> None:
        """Give back the memory of what was learned: the connection is gone."""
        self._templates.forget()
        self._pulls.forget()

    def _put_many(
        self,
        plan: SendPlan,
        template: SendTemplate,
        values: tuple[bytes, ...],
        data: bytes,
        at: int,
    ) -> int:
        """Put the batch of a frame, or the messages of frames in a row; 0: one by one, then."""
        if plan.put_batch is not None:
            total, length = _unpack_head(data, at)
            end = at + 4 + total
            return (
                end if self._put_batch(plan, template, values, data[at + 8 + length : end]) else 0
            )
        if plan.put_run is None:
            return 0
        if plan.form is not None:
            return self._put_frames(plan, data, at)
        run = template.run_at(data, at, values, self._shared.body_max)
        return 0 if run is None else self._put_run(plan, run)

    def _put_recent(self, data: bytes) -> int:
        """Put the sends at the head of a chunk that are like the last one; where they end."""
        template = self._templates.recent
        if template is None or template.plan is None or template.plan.form is None:
            return 0
        return self._put_frames(template.plan, data, 0)

    def _put_frames(self, plan: SendPlan, data: bytes, at: int) -> int:
        """Put sends that match the plan, in C; where they end, 0 for none.

        Measured with 64 of them, sockets included: 0.4 of what the path in Python takes; with one
        of each of 64 connections 0.76.
        """
        shared = self._shared
        answers = self._answers if shared.batch.number == self._batch else self._begin()
        if plan.put_frames is None or plan.form is None or answers is None:
            return 0
        end, made, size = plan.put_frames(data, at, plan.form, shared.body_max)
        if not made:
            return 0
        answers += made
        self._templates.misses = 0
        if shared.is_sync:
            self._connection.begin_request(len(made))
        plan.counter.count += len(made)
        plan.counter.bytes += size
        return end

    def _put_run(self, plan: SendPlan, run: SendFrameBatch) -> int:
        """Put messages of one plan together; where the last that was taken ends, 0 for none."""
        shared = self._shared
        answers = self._answers if shared.batch.number == self._batch else self._begin()
        if plan.put_run is None or answers is None or max(run.queue_ids) >= plan.queue_count:
            return 0
        codes = [plan.code] * len(run.bodies)
        if plan.tags_at >= 0:
            tags = run.texts[plan.tags_at]
            is_one = tags.count(tags[0]) == len(tags)
            codes = [tags_code_of(tags[0])] * len(tags) if is_one else list(map(tags_code_of, tags))
        raws = [plan.properties % texts for texts in zip(*run.texts, strict=True)]
        places = plan.put_run(run.queue_ids, run.born_ms, run.bodies, raws, codes)
        count = len(places.phy_offsets)
        if not count:
            return 0
        columns = places.phy_offsets, run.queue_ids, places.queue_offsets
        unique = run.texts[plan.unique_at]
        made = [plan.answer % row for row in zip(*columns, unique, run.opaques, strict=False)]
        answers += [_PREFIXES[len(one)] + one for one in made]
        if shared.is_sync:
            self._connection.begin_request(count)
        plan.counter.count += count
        plan.counter.bytes += places.size
        return run.ends[count - 1]

    def _put_batch(
        self, plan: SendPlan, template: SendTemplate, values: tuple[bytes, ...], body: bytes
    ) -> bool:
        """Put the messages of a batch together; False: the slow path must take it.

        Measured with 32 messages, index and sockets included: 5 us of the broker each, where the
        slow path takes 8.
        """
        shared, queue_id = self._shared, QUEUE_IDS[values[template.queue_at]]
        usual = shared.planner.usual_batch(plan, values[template.texts])
        if usual is None or plan.put_batch is None or queue_id >= plan.queue_count:
            return False
        answers = self._answers if shared.batch.number == self._batch else self._begin()
        if answers is None:
            return False
        stored = plan.put_batch(queue_id, int(values[template.born_at]), body)
        if stored is None:
            return False
        form, unique = usual
        opaque = values[template.opaque_at]
        answer = form % (stored.ids, queue_id, stored.queue_offset, *unique, opaque)
        answers.append(_HEAD.pack(len(answer) + 4, len(answer)) + answer)
        if shared.is_sync:
            self._connection.begin_request()
        plan.counter.count += stored.messages
        plan.counter.bytes += stored.size
        return True

    def frame(self, frame: Frame) -> bool:
        """Take one frame if it is an ordinary send that matches; learn from its header if not.

        From a pull it only learns: had it been one to be taken, `chunk` would have.
        """
        kind, header, body = frame
        if kind != JSON:
            return False
        if not body:
            if self._terms(frame) is not None:
                self._pulls.learn(header)
            return False
        templates = self._templates
        if templates.match_at(header, 0, len(header)) is not None:
            return self.chunk(encode_frame(header, body)) > 0
        if templates.is_wanted(header) and (terms := self._terms(frame)) is not None:
            templates.check = terms.check
            templates.learn(header)
        return False

    def _terms(self, frame: Frame) -> LearningCondition | None:
        """On which terms requests like this one are admitted; None: on none."""
        admission = self._shared.admission
        return _ADMITTED if admission is None else admission.terms(frame, self._connection)

    def _begin(self) -> list[bytes] | None:
        """Begin the answers of a loop iteration; None when too many requests are open."""
        connection, shared = self._connection, self._shared
        if shared.is_sync and connection.is_full:  # else no answer outlives the iteration
            return None
        self._batch = shared.batch.number
        self._answers = []
        shared.join(connection, self._answers)
        return self._answers


class FastPaths:
    """What the fast paths of one broker share. Called with a connection, it makes that one's."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        send: SendHandler,
        pulls: PullHandler,
        stats: BrokerStats,
        region_id: str,
        settings: StoreSettings,
        monotonic_ms: Callable[[], int],
        admission: FastPathAdmission | None = None,
    ) -> None:
        self.admission = admission
        """Asked before a header is learned; what was learned is admitted until `forget`."""
        self.learning = LearningLimiter(monotonic_ms)
        self._store = store
        self.batch = store.batch
        self.pulls = pulls
        self.planner = SendPlanner(store, topics, send, stats, region_id, settings)
        self.is_sync = store.is_sync
        self.body_max = settings.max_message_bytes
        self.generation = 0
        """Grows when any topic changes: what was decided before is void."""
        self._batch = -1
        self._group: list[tuple[Connection, list[bytes]]] = []
        topics.on_change.append(lambda _topic: self.forget())
        store.durability_conditions.on_change.append(self.forget)

    def adjust(self, settings: StoreSettings) -> None:
        """Work with these settings from now on."""
        self.body_max = settings.max_message_bytes
        self.planner.adjust(settings)
        self.generation += 1

    def __call__(self, connection: Connection) -> ConnectionFastPath:
        """Make the fast path of a new connection."""
        made = ConnectionFastPath(self, connection)
        connection.on_close(made.release)
        return made

    def join(self, connection: Connection, answers: list[bytes]) -> None:
        """Have the answers, which grow until the iteration ends, written when all is safe."""
        store, number = self._store, self.batch.number
        if number != self._batch:
            self._batch = number
            self._group = []
            self.is_sync = store.is_deferring
            store.on_durable(partial(self._write_answers, self._group, self.is_sync))
        self._group.append((connection, answers))

    def forget(self) -> None:
        """Decide everything anew: a topic or what sends wait for changed."""
        self.generation += 1

    def _write_answers(
        self, group: list[tuple[Connection, list[bytes]]], is_counted: bool, status: PutStatus
    ) -> None:
        """All sends of an iteration are as safe as promised, or none is: answer."""
        if status is not PutStatus.PUT_OK:
            group = [
                (connection, [_refusal(one, status) for one in each]) for connection, each in group
            ]
        for connection, answers in group:
            if is_counted:
                connection.end_requests(answers)
            else:
                connection.write(answers)


def _refusal(answer: bytes, status: PutStatus) -> bytes:
    """The answer to a send that could not be kept, made from the one that was ready."""
    command = Command.decode(Frame(JSON, answer[8:], b""))
    command.code = PUT_STATUS_CODES[status]
    command.remark = PUT_STATUS_REMARKS[status]
    return command.encode()
