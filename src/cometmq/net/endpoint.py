"""What a server answers: for each request code a handler, its effects, and its resources.

A package exports its endpoints; whoever serves them derives all else from them: durability,
throttling, and what admission is asked about. Refuses to know what codes mean.
Java: the pairs of processor and executor in NettyRemotingServer.registerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import TYPE_CHECKING, NamedTuple

from cometmq.wire.command import Command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.net.handler import Handler


class RequestEffect(Flag):
    """What answering a request does, and what its answer waits for."""

    NONE = 0
    MUTATING = auto()
    """It changes what outlives the request: messages, offsets, clients, topics, settings."""
    DURABLE = auto()
    """Its success is answered once the messages it stored are as safe as flushDiskType says."""
    CREATING = auto()
    """It may create, change or delete topics or groups: its success is answered once their tables
    are on disk, and once name servers know the topics."""
    UNTHROTTLED = auto()
    """It is answered even with too many unanswered requests: a client needs it to stay alive."""


class RequestResources(NamedTuple):
    """The topics and groups that a request is about."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Consumer groups."""
    producer_groups: tuple[str, ...] = ()


ResourceGetter = Callable[[Command], RequestResources]


def header_resources(
    topics: Iterable[str] = ("topic",),
    groups: Iterable[str] = ("consumerGroup", "group"),
    producers: Iterable[str] = ("producerGroup",),
) -> ResourceGetter:
    """Return what finds resources in these header fields; absent and empty ones are left out."""
    topic_fields, group_fields, producer_fields = tuple(topics), tuple(groups), tuple(producers)

    def get(request: Command) -> RequestResources:
        ext = request.ext
        return RequestResources(
            tuple(ext[field] for field in topic_fields if ext.get(field)),
            tuple(ext[field] for field in group_fields if ext.get(field)),
            tuple(ext[field] for field in producer_fields if ext.get(field)),
        )

    return get


_USUAL_RESOURCES = header_resources()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One request code that a server answers."""

    code: int
    handler: Handler
    effects: RequestEffect = RequestEffect.NONE
    resources: ResourceGetter = _USUAL_RESOURCES
    """What a request is about, as admission sees it; raises ProtocolError for a broken body."""
    resources_bytes_max: int | None = None
    """Longest body that is read on the loop to find them. None: however long it is."""
    body_bytes_max: int | None = None
    """Largest body that is looked at; a larger one is refused. None: the handler does not read the
    body on the loop, or bounds it itself."""


def table_of(endpoints: Iterable[Endpoint]) -> dict[int, Endpoint]:
    """Return endpoints by code; raises ValueError when a code has two."""
    table: dict[int, Endpoint] = {}
    for endpoint in endpoints:
        code = int(endpoint.code)
        if code in table:
            raise ValueError(
                f"two endpoints answer the request code {code}: "
                f"{table[code].handler!r} and {endpoint.handler!r}"
            )
        table[code] = endpoint
    return table
