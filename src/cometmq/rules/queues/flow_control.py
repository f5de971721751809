"""Flow control of a consumer: the limits of a queue above which the next pull waits.

Owns the comparison only; knows nothing of who pulls and for how long to wait.
Java: the head of DefaultMQPushConsumerImpl.pullMessage
"""

from __future__ import annotations

from dataclasses import dataclass

from cometmq.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Bounds of what a consumer may hold in memory.

    Of one queue: `count` messages, `size_mib` of bodies, a `span` between the first and the last
    offset (concurrent handlers only). Of all its queues of one topic together, when they are set:
    `topic_count` and `topic_size_mib`, shared out among the queues and then instead of the others.
    """

    count: int = 1000
    size_mib: int = 100
    span: int = 2000
    topic_count: int | None = None
    topic_size_mib: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no limit; the consumer checks how large they may be."""
        for name in ("count", "size_mib", "span", "topic_count", "topic_size_mib"):
            value = getattr(self, name)
            if value is None and name.startswith("topic_"):
                continue
            if type(value) is not int or value < 1:
                raise SettingsError(
                    f"flow.{name} is {value!r}; it must be a whole number, 1 or more"
                )

    @property
    def is_shared(self) -> bool:
        """Whether the limits of one queue depend on how many there are."""
        return self.topic_count is not None or self.topic_size_mib is not None

    def of_one(self, queues: int) -> FlowLimits:
        """The limits of one queue when so many of its topic are in work: at least 1 each."""
        assert queues >= 0, "fewer queues than none are in work"
        share, count, size = max(queues, 1), self.topic_count, self.topic_size_mib
        return FlowLimits(
            count=self.count if count is None else max(1, count // share),
            size_mib=self.size_mib if size is None else max(1, size // share),
            span=self.span,
        )


def limit_reached(
    limits: FlowLimits, count: int, size_bytes: int, span: int, *, orderly: bool
) -> str:
    """Which limit has the next pull of the queue wait: "count", "size" or "span"; empty: none.

    The span counts for concurrent handlers only.
    """
    assert count >= 0, "a queue holds no fewer than no messages"
    assert size_bytes >= 0, "a queue holds no fewer than no bytes"
    if count > limits.count:
        return "count"
    if size_bytes > limits.size_mib * 1_048_576:
        return "size"
    return "span" if not orderly and span > limits.span else ""


def full_reason(
    limits: FlowLimits, count: int, size_bytes: int, span: int, *, orderly: bool, ahead: int = 0
) -> str:
    """Which limit has the next pull wait, in words; empty where none does.

    `ahead`: how many messages more than usual the next pull may bring, for which there must be
    room.
    """
    limit = limit_reached(limits, count + ahead, size_bytes, span + ahead, orderly=orderly)
    if limit == "count":
        more = f", and a pull may bring {ahead:,} more than usual" if ahead else ""
        return f"{count:,} messages are cached; flow.count is {limits.count:,}{more}"
    if limit == "size":
        return f"{size_bytes:,} bytes are cached; flow.size_mib is {limits.size_mib:,}"
    if limit == "span":
        return (
            f"{span:,} offsets lie between the first message that is not done and the last; "
            f"flow.span is {limits.span:,}"
        )
    return ""
