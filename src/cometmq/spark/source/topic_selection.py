"""Which topics and queues a read is about: `topic`, `subscribe`, `subscribePattern`, `assign`.

Owns these options and how queues are written: `broker:queueId`, alone where there is one topic,
else under their topic's name, `{"Topic": {"broker-a:0": 17}}`.
A pattern must match the whole name. System topics are never matched; retry topics and dead-letter
topics only by a pattern that begins with %.
Imports only the standard library and names, because every process that looks up data sources
loads it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cometmq.errors import SettingsError
from cometmq.model.queue import MessageQueue
from cometmq.model.topic import is_system_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cometmq.spark.option_reader import OptionReader

OPTIONS = ("topic", "subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Topics by name, by pattern, or some of their queues; exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    queues: frozenset[MessageQueue] = frozenset()

    @property
    def only_topic(self) -> str:
        """The topic if there can be no other, else nothing."""
        names = self.named_topics()
        return names[0] if len(names) == 1 and not self.pattern else ""

    def named_topics(self) -> tuple[str, ...]:
        """The topics that are named; none with a pattern."""
        return self.topics or tuple(sorted({queue.topic for queue in self.queues}))

    def chosen(self, topics: Iterable[str]) -> list[str]:
        """Those of all topics of the name servers that the pattern matches."""
        matches = re.compile(self.pattern).fullmatch
        return [
            topic
            for topic in topics
            if matches(topic)
            and not is_system_topic(topic)
            and (not topic.startswith("%") or self.pattern.startswith("%"))
        ]

    def covers(self, queue: MessageQueue) -> bool:
        """Whether a read with these options is about this queue."""
        if self.queues:
            return queue in self.queues
        if self.pattern:
            return bool(self.chosen([queue.topic]))
        return queue.topic in self.topics

    def __str__(self) -> str:
        """Return what is read, for error messages."""
        if self.pattern:
            return f"topics like {self.pattern}"
        names = self.named_topics()
        return f"topic{'s' if len(names) > 1 else ''} {', '.join(names)}"


def parse(texts: OptionReader) -> TopicSelection:
    """The selection that the options name; raises SettingsError unless there is one."""
    given = texts.one_of(*OPTIONS)
    if not given:
        raise SettingsError(
            'format("rocketmq") needs the option topic, the topic to read '
            "(or subscribe, several separated by commas; subscribePattern; assign)"
        )
    if given == "topic":
        return TopicSelection(topics=(texts.text(given),))
    if given == "subscribe":
        names = tuple(dict.fromkeys(texts.names(given)))
        if not names:
            raise SettingsError(
                f"the option subscribe is {texts.text(given)!r}, which names no topic"
            )
        return TopicSelection(topics=names)
    if given == "assign":
        return TopicSelection(queues=_assigned(texts.text(given)))
    pattern = texts.text(given)
    try:
        re.compile(pattern)
    except re.error as fault:
        raise SettingsError(
            f"the option subscribePattern is {pattern!r}, which is no regular expression: {fault}"
        ) from None
    return TopicSelection(pattern=pattern)


def queue_key(queue: MessageQueue) -> str:
    """A queue as it is written under its topic: `broker:queueId`."""
    return f"{queue.broker_name}:{queue.queue_id}"


def queue_of(topic: str, key: str) -> MessageQueue:
    """The queue that `broker:queueId` means in a topic; raises ValueError when it means none."""
    broker, colon, queue_id = key.rpartition(":")
    if not (broker and colon and queue_id.isdecimal()):
        raise ValueError(f"{key!r} is no queue: write it as broker:queueId, for example broker-a:0")
    return MessageQueue(topic, broker, int(queue_id))


def numbers_by_queue(value: Any, only_topic: str) -> Iterator[tuple[MessageQueue, Any]]:
    """The entries of `{topic: {"broker:queueId": n}}`, or of `{"broker:queueId": n}`.

    The short form is for reads of one topic. Raises ValueError when it is neither.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{json.dumps(value)} is no JSON object")
    for name in sorted(value):
        if isinstance(value[name], dict):
            for key in sorted(value[name]):
                yield queue_of(name, key), value[name][key]
        elif not only_topic:
            raise ValueError(
                f'{name!r} stands under no topic: write {{"Topic": {{"broker-a:0": 17}}}}'
            )
        else:
            yield queue_of(only_topic, name), value[name]


def _assigned(text: str) -> frozenset[MessageQueue]:
    try:
        value = json.loads(text)
        if not isinstance(value, dict) or not all(
            isinstance(keys, list) for keys in value.values()
        ):
            raise ValueError("it is no JSON object of lists")
        queues = frozenset(
            queue_of(topic, str(key)) for topic, keys in value.items() for key in keys
        )
    except ValueError as fault:
        raise SettingsError(
            f"the option assign is {text!r}: {fault}; write queues by topic, "
            'for example {"Topic": ["broker-a:0", "broker-a:1"]}'
        ) from None
    if not queues:
        raise SettingsError("the option assign names no queue")
    return queues
