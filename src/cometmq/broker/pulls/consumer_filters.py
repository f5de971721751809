"""The SQL92 subscriptions of groups, and a cache of parsed filters.

Owns which group filters which topic by what expression since when, written to
config/consumerFilter.json every 10 s and at the stop. An expression is parsed when it is first
used, a long one in a thread; a heartbeat only stores it.
Bounds: the expressions stored, and the characters of all cached filters; the least recently used
one is dropped and parsed again when needed.
Java: ConsumerFilterManager, ConsumerFilterData.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from cometmq.errors import BadFilter, Reject
from cometmq.model.subscription import SQL92
from cometmq.rules.filters import bloom_filter, tag_expressions
from cometmq.rules.filters.sql92_parser import LENGTH_MAX, Sql92Filter, parse
from cometmq.store.property_filter import FilterNotReady, PropertyFilter
from cometmq.wire.bodies import json_fields
from cometmq.wire.codes import ResponseCode
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cometmq.model.subscription import SubscriptionData
    from cometmq.store.json_file import JsonFile

log = logging.getLogger(__name__)

CACHED_CHARS_MAX = 1 << 18
"""Characters of the expressions whose filters are cached; each takes up to 200 bytes."""

STORED_CHARS_MAX = 1 << 24
"""Characters of the expressions that groups subscribed; further ones are ignored."""

LONG_CHARS = 1024
"""Longer expressions are parsed in a thread, one at a time; this length takes about 2 ms."""

ENTRY_CHARS = 200
"""What an entry counts besides its expression."""


SCAN_MAX = 800
"""Messages filtered in one read, as many as the entries that a tag filter checks."""

COSTLY_SCAN_MAX = 16
"""The same for a filter of very many parts."""

PARTS_MAX = 40_000
"""Parts of a filter times messages in one read: about 10 ms."""


class FilterCache:
    """Parsed filters by expression; the least recently used is dropped first."""

    def __init__(self, chars_max: int = CACHED_CHARS_MAX) -> None:
        self._chars_max = chars_max
        self._chars = 0
        self._cache: OrderedDict[str, Sql92Filter | None] = OrderedDict()
        self._parsing = asyncio.Lock()

    def require(self, expression: str) -> Sql92Filter | None:
        """Do as `find`; raises ExpressionNotParsed where parsing would block the loop."""
        if len(expression) > LONG_CHARS and self.lacks(expression):
            raise ExpressionNotParsed(self, expression)
        return self.find(expression)

    def lacks(self, expression: str) -> bool:
        """Whether `find` would have to parse it."""
        return expression not in self._cache

    async def parse_in_thread(self, expression: str) -> None:
        """Parse a long expression in a thread."""
        async with self._parsing:
            if expression not in self._cache:
                self._keep(expression, await asyncio.to_thread(_parse_filter, expression))

    def find(self, expression: str) -> Sql92Filter | None:
        """The filter, or None when the expression is invalid."""
        if expression in self._cache:
            self._cache.move_to_end(expression)
        else:
            self._keep(expression, _parse_filter(expression))
        return self._cache[expression]

    def _keep(self, expression: str, found: Sql92Filter | None) -> None:
        self._cache[expression] = found
        self._chars += len(expression) + 1
        while self._chars > self._chars_max and len(self._cache) > 1:
            self._chars -= len(self._cache.popitem(last=False)[0]) + 1


class ExpressionNotParsed(FilterNotReady):
    """An expression must be parsed first, in a thread: here it would take too long."""

    def __init__(self, filters: FilterCache, expression: str) -> None:
        super().__init__(f"an expression of {len(expression)} characters")
        self._filters = filters
        self._expression = expression

    async def parse_in_thread(self) -> None:
        """Have it parsed."""
        await self._filters.parse_in_thread(self._expression)


class GroupFilter:
    """One group's filter on one topic, from its clients' newest heartbeat."""

    __slots__ = (
        "born_ms",
        "client_version",
        "dead_ms",
        "expression",
        "expression_type",
        "is_filter",
    )

    def __init__(
        self, expression: str, expression_type: str, client_version: int, born_ms: int
    ) -> None:
        self.expression = expression
        self.expression_type = expression_type
        self.client_version = client_version
        self.born_ms = born_ms
        self.dead_ms = 0
        self.is_filter: bool | None = None if expression_type == SQL92 else False
        """Whether it is valid; None until a pull needs it, or the table is written."""

    @property
    def is_dead(self) -> bool:
        """Whether no member of the group subscribes it any more."""
        return self.dead_ms >= self.born_ms


class ConsumerFilters:
    """All groups' filters. Belongs to the broker's loop."""

    def __init__(
        self,
        file: JsonFile,
        now_ms: Callable[[], int],
        *,
        keep_ms: int = 86_400_000,
        bloom_shape: tuple[int, int] = (112, 3),
    ) -> None:
        self._file = file
        self._now_ms = now_ms
        self._keep_ms = keep_ms
        self._shape = bloom_shape
        self._topics: dict[str, dict[str, GroupFilter]] = {}
        self._groups: dict[str, set[str]] = {}
        self._chars = 0
        self._is_dirty = False
        self._writing: asyncio.Future[None] | None = None
        self._cache = FilterCache()
        self._load(file.load("filterDataByTopic", stored_filters_of) or [])

    def parsed(self, expression: str, expression_type: str | None) -> Sql92Filter | None:
        """The filter of an expression; None when it or its type is invalid.

        Raises ExpressionNotParsed for a long one that must be parsed first.
        """
        if expression_type != SQL92 or not expression:
            return None
        return self._cache.require(expression)

    def property_filter(self, expression: str, expression_type: str | None) -> PropertyFilter:
        """The property filter of an expression; an invalid one matches nothing.

        Raises ExpressionNotParsed for a long one that has left the cache since it was `parsed`.
        """
        known = expression if expression_type == SQL92 else ""
        found = self._cache.require(known) if known else None
        if found is None:
            return PropertyFilter(lambda _raw: False, SCAN_MAX)
        matches = found.matches
        return PropertyFilter(lambda raw: matches(_property_of(raw)), _scan_max(found))

    def retry_filter(self, group: str) -> PropertyFilter:
        """The filter of a group's retries: each is checked by the filter on its original topic.

        Raises ExpressionNotParsed for a long one, and where it has parsed `LONG_CHARS` characters:
        a read may ask about many topics.
        """
        left = LONG_CHARS

        def accepts(raw: bytes) -> bool:
            nonlocal left
            topic = properties.find(raw, b"RETRY_TOPIC") or b""
            entry = self._topics.get(topic.decode("utf-8", "replace"), {}).get(group)
            if entry is None or entry.expression_type != SQL92:
                return True
            if self._cache.lacks(entry.expression):
                left -= len(entry.expression)
                if left < 0:
                    raise ExpressionNotParsed(self._cache, entry.expression)
            found = self._cache.find(entry.expression)
            return found is None or found.matches(_property_of(raw))

        return PropertyFilter(accepts, COSTLY_SCAN_MAX)

    def get(self, topic: str, group: str) -> GroupFilter | None:
        """The group's filter on the topic; None when there is none, or it is invalid.

        Raises ExpressionNotParsed for a long one that must be parsed first.
        """
        found = self._topics.get(topic, {}).get(group)
        if found is None:
            return None
        found.is_filter = self.parsed(found.expression, found.expression_type) is not None
        return found if found.is_filter else None

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take a heartbeat's subscriptions; topics that the group no longer names are dead."""
        named = set()
        for subscription in subscriptions:
            named.add(subscription.topic)
            if (
                not tag_expressions.is_tag_type(subscription.expression_type)
                and subscription.sub_string
            ):
                self._register(group, subscription)
        self._mark_dead(group, self._groups.get(group, set()) - named)

    def unregister(self, group: str) -> None:
        """Mark all filters of a group without members as dead."""
        self._mark_dead(group, self._groups.get(group, set()))

    def save(self) -> None:
        """Write the file if anything changed; a failure is logged and tried again."""
        if self._is_dirty:
            self._is_dirty = False
            self._encode_and_write(self._kept())

    async def save_in_thread(self) -> None:
        """Do as `save`, with the writing in a thread."""
        if self._is_dirty:
            self._is_dirty = False
            writing = asyncio.to_thread(self._encode_and_write, self._kept())
            self._writing = asyncio.ensure_future(writing)
            await asyncio.shield(self._writing)

    async def written(self) -> None:
        """Wait until no thread writes the file any more."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def _encode_and_write(self, kept: list[tuple[str, str, GroupFilter]]) -> None:
        """Write the valid filters; in a thread, because some may have to be parsed first."""
        table: dict[str, Any] = {}
        for topic, group, entry in kept:
            if entry.is_filter is None:
                entry.is_filter = _parse_filter(entry.expression) is not None
            if entry.is_filter:
                found = table.setdefault(topic, {"groupFilterData": {}, "topic": topic})
                found["groupFilterData"][group] = self._fields(topic, group, entry)
        self._write(self._file.encode({"filterDataByTopic": table}))

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            self._is_dirty = True
            log.warning("%s is not written: %s", self._file.path, error)

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        known = self._topics.get(subscription.topic, {}).get(group)
        text, kind, version = (
            subscription.sub_string,
            subscription.expression_type,
            subscription.sub_version,
        )
        if known is not None and version <= known.client_version:
            if version == known.client_version:
                self._revive(known)
        elif known is not None and (known.expression, known.expression_type) == (text, kind):
            known.client_version = version
            self._revive(known)
        else:
            self._put(subscription.topic, group, GroupFilter(text, kind, version, self._now_ms()))

    def _revive(self, entry: GroupFilter) -> None:
        if entry.is_dead:
            entry.dead_ms = 0
            self._is_dirty = True

    def _put(self, topic: str, group: str, entry: GroupFilter) -> None:
        self._drop(topic, group)
        chars = len(entry.expression) + ENTRY_CHARS
        if len(entry.expression) > LENGTH_MAX or self._chars + chars > STORED_CHARS_MAX:
            return
        self._topics.setdefault(topic, {})[group] = entry
        self._groups.setdefault(group, set()).add(topic)
        self._chars += chars
        self._is_dirty = True

    def _drop(self, topic: str, group: str) -> None:
        entry = self._topics.get(topic, {}).pop(group, None)
        if entry is None:
            return
        self._chars -= len(entry.expression) + ENTRY_CHARS
        self._groups[group].discard(topic)
        if not self._groups[group]:
            del self._groups[group]
        if not self._topics[topic]:
            del self._topics[topic]

    def _mark_dead(self, group: str, topics: set[str]) -> None:
        for topic in topics:
            entry = self._topics[topic][group]
            if not entry.is_dead:
                entry.dead_ms = self._now_ms()
                self._is_dirty = True

    def _clean(self) -> None:
        oldest = self._now_ms() - self._keep_ms
        for topic, groups in list(self._topics.items()):
            for group, entry in list(groups.items()):
                if entry.is_dead and entry.dead_ms <= oldest:
                    self._drop(topic, group)

    def _kept(self) -> list[tuple[str, str, GroupFilter]]:
        """Topic, group and filter of all that are not dead for too long."""
        self._clean()
        return [
            (topic, group, entry)
            for topic, groups in self._topics.items()
            for group, entry in groups.items()
        ]

    def _fields(self, topic: str, group: str, entry: GroupFilter) -> dict[str, Any]:
        bits, places = self._shape
        return {
            "bloomFilterData": {
                "bitNum": bits,
                "bitPos": bloom_filter.bit_positions(f"{group}#{topic}", bits, places),
            },
            "bornTime": entry.born_ms,
            "clientVersion": entry.client_version,
            "consumerGroup": group,
            "dead": entry.is_dead,
            "deadTime": entry.dead_ms,
            "expression": entry.expression,
            "expressionType": entry.expression_type,
            "topic": topic,
        }

    def _load(self, stored: Iterable[tuple[str, str, GroupFilter]]) -> None:
        """Take the file's entries, all dead until a heartbeat comes."""
        dead_ms = self._now_ms() - 30_000
        for topic, group, entry in stored:
            entry.dead_ms = entry.dead_ms or max(entry.born_ms, dead_ms)
            self._put(topic, group, entry)
        self._is_dirty = False


def stored_filters_of(obj: json_fields.Json) -> list[tuple[str, str, GroupFilter]]:
    """Topic, group and filter of all entries of consumerFilter.json."""
    topics = json_fields.table(obj, "filterDataByTopic", json_fields.object_of)
    return [
        (topic, group, entry)
        for topic, groups in topics.items()
        for group, entry in json_fields.table(groups, "groupFilterData", _stored_filter).items()
    ]


def _stored_filter(value: object) -> GroupFilter:
    fields = json_fields.object_of(value, "a filter")
    entry = GroupFilter(
        json_fields.text(fields, "expression"),
        json_fields.text(fields, "expressionType"),
        json_fields.number(fields, "clientVersion"),
        json_fields.number(fields, "bornTime"),
    )
    entry.dead_ms = json_fields.number(fields, "deadTime")
    return entry


def filtering_disabled(kind: str | None) -> Reject:
    """The refusal of a filter while enablePropertyFilter is off."""
    return Reject(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {kind}",
    )


def _property_of(raw: bytes) -> Callable[[str], str | None]:
    def get(name: str) -> str | None:
        value = properties.find(raw, name.encode())
        return None if value is None else value.decode("utf-8", "replace")

    return get


def _scan_max(found: Sql92Filter) -> int:
    """Messages filtered in one read, so that it takes about the same time for any filter."""
    return max(COSTLY_SCAN_MAX, min(SCAN_MAX, PARTS_MAX // found.size))


def _parse_filter(expression: str) -> Sql92Filter | None:
    try:
        return parse(expression)
    except BadFilter:
        return None
