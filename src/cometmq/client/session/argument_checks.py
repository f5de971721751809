"""Checks the arguments of public calls before anything is done.

Owns the checks that are neither about messages (`message_checks`) nor about settings
(`client_options`), and their error texts; refuses to know what the arguments are for. Invariant:
an argument that passes here raises no TypeError later.
Java: Validators, and the compiler
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from cometmq.errors import ClientError
from cometmq.model.queue import MessageQueue
from cometmq.rules.name_validation import topic_name_problem

INT64_MAX = (1 << 63) - 1


def check_queue(name: str, queue: object) -> None:
    """Raise ClientError unless it is one queue of a topic."""
    if not isinstance(queue, MessageQueue):
        raise ClientError(f"{name} must be a MessageQueue, not {queue!r:.80}")
    topic, broker_name, queue_id = queue
    if not (isinstance(topic, str) and isinstance(broker_name, str) and type(queue_id) is int):
        raise ClientError(
            f"{name} is MessageQueue({topic!r:.40}, {broker_name!r:.40}, {queue_id!r:.40}); it "
            "has the name of a topic, the name of a broker and a whole number"
        )


def checked_queues(name: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Several queues as a list; raises ClientError when they are something else."""
    if isinstance(queues, MessageQueue | str) or not isinstance(queues, Iterable):
        raise ClientError(f"{name} must be a list of MessageQueue, not {queues!r:.80}")
    found = list(queues)
    for queue in found:
        check_queue(f"each of {name}", queue)
    return found


def checked_offsets(name: str, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
    """Offsets by queue as a dict; raises ClientError when they are something else."""
    if not isinstance(offsets, Mapping):
        raise ClientError(f"{name} must be a dict from MessageQueue to offset, not {offsets!r:.80}")
    for queue, offset in offsets.items():
        check_queue(f"each key of {name}", queue)
        check_whole(f"{name}[{queue}]", offset, 0, INT64_MAX)
    return dict(offsets)


def check_whole(name: str, value: object, least: int, most: int) -> None:
    """Raise ClientError unless it is a whole number in the range."""
    if type(value) is not int or not least <= value <= most:
        raise ClientError(
            f"{name} is {value!r:.80}; it must be a whole number within {least} and {most}"
        )


def check_wait(name: str, value: object, most_s: float = inf) -> None:
    """Raise ClientError unless it is a number of seconds, 0 included."""
    if type(value) not in (int, float) or not 0 <= value <= most_s:  # type: ignore[operator]
        limit = "0 or more" if most_s == inf else f"within 0 and {most_s:g}"
        raise ClientError(f"{name} is {value!r:.80}; it must be a number of seconds, {limit}")


def check_flag(name: str, value: object) -> None:
    """Raise ClientError unless it is True or False."""
    if type(value) is not bool:
        raise ClientError(f"{name} is {value!r:.80}; it must be True or False")


def check_function(name: str, value: object, wanted: str) -> None:
    """Raise ClientError unless it can be called; `wanted` says what it is to be."""
    if not isinstance(value, Callable):  # type: ignore[arg-type]
        raise ClientError(f"{name} is {value!r:.80}; it must be {wanted}")


def check_name(topic: object) -> None:
    """Raise ClientError unless it is a topic's name, which may be one of RocketMQ's own."""
    problem = (
        topic_name_problem(topic) if isinstance(topic, str) else f"the topic {topic!r} is no text"
    )
    if problem:
        raise ClientError(problem)


def check_texts(name: str, values: Sequence[str]) -> None:
    """Raise ClientError unless it is a list of texts."""
    if isinstance(values, str) or not isinstance(values, Sequence | set | frozenset):
        raise ClientError(f"{name} must be a list of texts, not {values!r:.80}")
    for value in values:
        if not isinstance(value, str):
            raise ClientError(f"{name} has {value!r:.80}, which is no text")
