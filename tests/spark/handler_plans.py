"""Generated plans of failures, and what became of them: by a push consumer, and on Spark.

A handler fails as its plan says, by the attempt that the message itself says it is, so it does the
same in any process. Every call is a line of a file. A plan has each kind of failure twice, and the
policies of a case are shifted by one class of errors from case to case: so many shifts as there are
policies give each class each policy.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from broker.commands import send_header
from client.short_delay_cluster import until
from cometmq import Admin, ConsumeStatus, InvalidMessage, LitePullConsumer, OnFailure, RetryLater
from cometmq.errors import CometError
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode
from cometmq.wire.records import sysflag

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from cometmq import FailurePolicy, MessageExt
    from spark.live import Live

ERRORS: dict[str, type[BaseException]] = {
    "value": ValueError,
    "lookup": KeyError,
    "os": OSError,
    "exit": SystemExit,
    "later": RetryLater,
    "status": RetryLater,
    "wrong": RetryLater,
    "unreadable": InvalidMessage,
}
"""How a message fails, and the class of errors whose policy says what becomes of it.

"later" says that the messages before it are done, "status" and "wrong" are returned, and no handler
gets what is unreadable.
"""
CLASSES = tuple(dict.fromkeys(ERRORS.values()))
FOR_EVER = 1000
WAIT_S = 60


@dataclass(frozen=True)
class Failure:
    """How often a message fails, and with what."""

    times: int
    error: str


@dataclass(frozen=True)
class Plan:
    """Bodies of the form "key-number", in the order of their sends, and those that fail."""

    bodies: tuple[str, ...]
    failures: Mapping[str, Failure]


def generated(seed: int, endless: Collection[str] = (), keys: int = 4, each: int = 7) -> Plan:
    """A plan that follows from its seed; what fails by one of `endless` is never given up."""
    dice = random.Random(seed)
    bodies = [f"{chr(97 + key)}-{number}" for number in range(each) for key in range(keys)]
    wanted = [
        Failure(times, error)
        for error in ERRORS
        for times in (1, 2 if error in endless else FOR_EVER)
        if error != "unreadable" or error not in endless  # nothing makes it readable
    ]
    return Plan(tuple(bodies), dict(zip(dice.sample(bodies, len(wanted)), wanted, strict=True)))


@dataclass
class PlannedHandler:
    """Fails as planned, and writes down each call before and after."""

    plan: Plan
    path: str
    ends_process_at: str = ""
    ends_executor: bool = False
    """Whether the JVM of the executor ends, too; else it is the Python worker alone."""

    def __call__(self, messages: list[MessageExt]) -> Any:
        for at, message in enumerate(messages):
            body = message.body.decode()
            failure = self.plan.failures.get(body)
            fails = failure is not None and message.reconsume_times < failure.times
            self.note(body, message.reconsume_times, "failed" if fails else "done")
            if body == self.ends_process_at and not Path(f"{self.path}.ended").exists():
                Path(f"{self.path}.ended").touch()
                if self.ends_executor:
                    parents = psutil.Process().parents()
                    next(one for one in parents if "java" in one.name()).kill()
                os._exit(1)
            if fails:
                assert failure is not None
                if failure.error == "later":
                    raise RetryLater(body, done=at)
                if failure.error == "status":
                    return ConsumeStatus.RECONSUME_LATER
                if failure.error == "wrong":
                    return len(body)
                raise ERRORS[failure.error](body)
        return None

    def note(self, *what: object) -> None:
        line = json.dumps(what) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)


class CountingHandler:
    """A handler with a state of its own: each call makes a file named by process and count."""

    def __init__(self, folder: str) -> None:
        self.folder, self.seen = folder, 0

    def __call__(self, messages: list[MessageExt]) -> None:
        self.seen += len(messages)
        Path(self.folder, f"{os.getpid()}-{self.seen}").touch()


@dataclass
class Stored:
    """A sink that writes down what it gets."""

    path: str

    def __call__(self, message: MessageExt, failure: Any) -> None:
        PlannedHandler(Plan((), {}), self.path).note(
            message.body.decode(), failure.attempts, "stored"
        )


@dataclass
class Outcome:
    """What became of a plan."""

    calls: dict[str, list[tuple[str, int, str]]] = field(default_factory=dict)
    """By key: body, failures so far, and whether this call fails; in the order of the calls."""
    dead: dict[str, dict[str, str]] = field(default_factory=dict)
    """By body: the properties of its dead letter that two groups share."""
    dead_order: list[str] = field(default_factory=list)

    def without_repeats(self) -> dict[str, list[tuple[str, int, str]]]:
        """The calls of each key, a call that came again left out."""
        return {key: list(dict.fromkeys(calls)) for key, calls in self.calls.items()}


def calls_of(path: str) -> list[tuple[str, int, str]]:
    """All lines of a handler's file."""
    if not Path(path).exists():
        return []
    return [tuple(json.loads(line)) for line in Path(path).read_text().splitlines()]


def outcome_of(live: Live, group: str, path: str) -> Outcome:
    """What became of a plan for this group."""
    found = Outcome()
    by_key = defaultdict(list)
    for call in calls_of(path):
        by_key[call[0].partition("-")[0]].append(call)
    found.calls = dict(by_key)
    for letter in letters_of(live, group):
        body = letter.body.decode()
        found.dead[body] = shared_properties(letter)
        found.dead_order.append(body)
    return found


def shared_properties(letter: MessageExt) -> dict[str, str]:
    """The properties of a dead letter that do not depend on group and time."""
    own = {"DLQ_FAILED_AT", "REAL_TOPIC", "REAL_QID", "MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT"}
    offsets = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}
    return {k: v for k, v in letter.properties.items() if k not in own | offsets}


def letters_of(live: Live, group: str) -> list[MessageExt]:
    """The dead letters of a group, in their order."""
    stats = _letters(live, group)
    count = sum(found.max_offset - found.min_offset for found in stats.values())
    letters: list[MessageExt] = []
    if not count:
        return letters
    reader = LitePullConsumer(f"read-{group}", namesrv=live.namesrv)
    with reader:
        reader.assign(list(stats))
        for queue in stats:
            reader.seek(queue, 0)
        until(lambda: letters.extend(reader.poll(0.2)) or len(letters) >= count, WAIT_S)
    return letters


def dead_count(live: Live, group: str) -> int:
    stats = _letters(live, group)
    return sum(found.max_offset - found.min_offset for found in stats.values())


def _letters(live: Live, group: str) -> dict[Any, Any]:
    with Admin(namesrv=live.namesrv) as admin:
        try:
            return admin.topic_stats(f"%DLQ%{group}")
        except CometError:
            return {}  # the topic comes with its first letter


def send(live: Live, topic: str, plan: Plan) -> None:
    """Send a plan in its order; the keys share two queues."""
    with BlockingChannel(live.broker) as channel:
        for body in plan.bodies:
            failure, key = plan.failures.get(body), body.partition("-")[0]
            is_broken = failure is not None and failure.error == "unreadable"
            header = send_header(
                topic,
                queue_id=ord(key) % 2,
                sys_flag=sysflag.COMPRESSED if is_broken else 0,
                properties={"__SHARDINGKEY": key, "UNIQ_KEY": f"{topic}.{body}"},
            )
            answer = channel.call(RequestCode.SEND_MESSAGE_V2, header, body.encode())
            assert answer.code == 0, answer


LAST_FAILURE = {
    "dead": 1, "skip": 1, "retry-skip": 2, "store": 1, "retry": 1, "default": 1, "block": 10**9
}  # fmt: skip
"""By policy: what `reconsume_times` is at the call after which a message is given up."""
POLICIES = ("dead", "skip", "retry-skip", "store", "retry", "default")
DEAD = {"dead", "retry", "default"}
MAX_ATTEMPTS = 2
"""What "default" means, where nobody chose a policy."""


def policies_of(order: str) -> tuple[str, ...]:
    """The policies that both engines carry out in an order; in order a batch cannot block."""
    return (*POLICIES, "block") if order == "none" else POLICIES


def shifted(order: str, shift: int) -> dict[type[BaseException], str]:
    """The policy of each class of errors."""
    names = policies_of(order)
    return {kind: names[(at + shift) % len(names)] for at, kind in enumerate(CLASSES)}


def policy(name: str, sink: Stored) -> FailurePolicy | None:
    """The policies of the tests, by name; None: nobody chose one."""
    return {
        "dead": OnFailure.dead_letter(after=2),
        "skip": OnFailure.skip(after=2),
        "retry-skip": OnFailure.retry(2, OnFailure.skip(), pause_ms=10),
        "store": OnFailure.store(sink, after=2),
        "retry": OnFailure.retry(1, pause_ms=10, pause_most_ms=20),
        "block": OnFailure.block(),
        "default": None,
    }[name]
