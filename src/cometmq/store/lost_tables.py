"""Tables of config/ that are gone while the rest of the store tells of them; and making them anew.

`refuse_lost_tables` keeps a broker from starting as if there had been no topics, groups or offsets.
`TableRebuilder` makes a table from what is left: topics from the queues and the committed offsets,
groups from the offsets and the retry topics, and all others empty.
Invariants: a broker writes topics.json, subscriptionGroup.json and consumerOffset.json at its first
start, so one that is missing later was lost (early versions wrote the last with the first commit,
so theirs may be missing); a rebuild deletes nothing, for it renames what it
replaces. Java: none; there a missing table is an empty one.
"""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError, StoreCorrupt, StoreLocked
from cometmq.model import topic as names
from cometmq.model.group import SYSTEM_GROUPS, SubscriptionGroupConfig
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.store.json_file import JsonFile
from cometmq.store.queues import queue_checksums
from cometmq.store.queues.queue_directories import queue_directories
from cometmq.store.recovery.checkpoint import Checkpoint
from cometmq.store.recovery.store_directory import StoreDirectory
from cometmq.wire.bodies.group import group_fields, group_table_of
from cometmq.wire.bodies.offset import stored_offsets_of
from cometmq.wire.bodies.topic import topic_fields, version_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files

log = logging.getLogger(__name__)
TABLES = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
    "consumerFilter.json": "filterDataByTopic",
    "deletedTopics.json": "deletedTopics",
    "replication.json": "replication",
}
"""The files of config/ that a broker of ours reads, each with the table that it must have."""

_NAMED_MAX = 5


def refuse_lost_tables(files: Files, root: Path) -> None:
    """Raise StoreCorrupt where a table and its .bak are missing and others tell what it held.

    Reads only. A table that is there and bad is refused by who loads it.
    """
    topics, groups, offsets = (
        JsonFile(root / "config" / name, files)
        for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
    )
    if topics.exists and groups.exists and offsets.exists:
        return
    committed = _committed(offsets)
    if not topics.exists:
        held = {*files.names(root / "consumequeue"), *(topic for topic, _, _ in committed)}
        _refuse(topics.path, "messages or offsets of the topics", filter(_is_users_topic, held))
    if not groups.exists:
        known = {group for _, group, _ in committed}
        _refuse(groups.path, "offsets of the groups", filter(_is_users_group, known))
    if not offsets.exists and groups.exists:
        table = groups.load("subscriptionGroupTable", group_table_of)
        known = set(table.groups) if table is not None else set()
        if _is_of_early_version(files, root):
            log.warning("%s is missing: no group has committed an offset yet", offsets.path)
        else:
            _refuse(offsets.path, "the groups", filter(_is_users_group, known))


def _is_of_early_version(files: Files, root: Path) -> bool:
    """Whether a store with messages is of a version of ours that wrote no empty offsets.

    Versions that do also write checksums of the queues before a checkpoint that is ours.
    """
    checkpoint = Checkpoint(files, root / "checkpoint")
    checkpoint.load()
    return checkpoint.is_known and files.stat(root / queue_checksums.NAME) is None


def _refuse(path: Path, what: str, found: Iterable[str]) -> None:
    if not (known := sorted(found)):
        return
    more = f" and {len(known) - _NAMED_MAX} more" if len(known) > _NAMED_MAX else ""
    root = path.parent.parent
    raise StoreCorrupt(
        f"{path} and its .bak are missing, but the store has {what} "
        f"{', '.join(known[:_NAMED_MAX])}{more}; bring the file back, or have it made anew: "
        f"cometmq store rebuild-table {root} {path.name}"
    )


class TableRebuilder:
    """Makes one table of a stopped broker anew."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self._directory = StoreDirectory(files, root)
        self._offsets = JsonFile(self._directory.config / "consumerOffset.json", files)

    def rebuild(self, name: str, now_ms: int) -> list[str]:
        """Write the table; return what is in it now. The former files get `.damaged` appended.

        Raises SettingsError for a name that is none of `TABLES`, NotAStore for a directory that is
        none, StoreLocked while a broker runs.
        """
        if name not in TABLES:
            raise SettingsError(f"{name} is no table of config/; these are: {', '.join(TABLES)}")
        root = self._directory.root
        self._directory.check()
        held = self._files.lock(root / "lock")
        if held is None:
            raise StoreLocked(f"the store {root} is in use; stop its broker first")
        try:
            entries = self._entries(name)
            version = version_fields(DataVersion(timestamp=now_ms))
            self._replace(name, JsonFile.encode({"dataVersion": version, TABLES[name]: entries}))
        finally:
            held.release()
        return sorted(entries)

    def _replace(self, name: str, content: bytes) -> None:
        files, directory = self._files, self._directory.config
        fresh = directory / f"{name}.new"
        files.make_dir(directory)
        files.write(fresh, content)  # before anything is renamed: the disk may have no room
        for path in (directory / name, directory / f"{name}.bak"):
            if files.stat(path) is not None:
                files.rename(path, self._unused(f"{path.name}.damaged"))
        files.rename(fresh, directory / name)
        files.sync_dir(directory)

    def _unused(self, name: str) -> Path:
        """A path of config/ that no file has: this name, or with a number behind it."""
        taken = set(self._files.names(self._directory.config))
        numbered = (f"{name}.{number}" for number in itertools.count(2))
        return self._directory.config / next(
            each for each in itertools.chain((name,), numbered) if each not in taken
        )

    def _entries(self, name: str) -> dict[str, object]:
        if name == "topics.json":
            return {topic: topic_fields(config) for topic, config in self._topics().items()}
        if name == "subscriptionGroup.json":
            groups = filter(_is_users_group, self._groups())
            return {each: group_fields(SubscriptionGroupConfig(group_name=each)) for each in groups}
        return {}

    def _topics(self) -> dict[str, TopicConfig]:
        queues: dict[str, list[int]] = defaultdict(list)
        for topic, queue_id, _ in queue_directories(self._files, self._directory.consume_queue):
            queues[topic].append(queue_id)
        for topic, _, ids in self._known_offsets():
            queues[topic].extend(ids)
        return {
            topic: topic_of_queues(topic, ids)
            for topic, ids in queues.items()
            if ids and _is_users_topic(topic)
        }

    def _groups(self) -> set[str]:
        retried = filter(names.is_retry_topic, self._files.names(self._directory.consume_queue))
        return {group for _, group, _ in self._known_offsets()} | {
            topic.removeprefix(names.RETRY_PREFIX) for topic in retried
        }

    def _known_offsets(self) -> list[tuple[str, str, Collection[int]]]:
        try:
            return _committed(self._offsets)
        except StoreCorrupt:
            return []


def topic_of_queues(topic: str, queue_ids: Iterable[int]) -> TopicConfig:
    """The shape of a topic of which only queues are known."""
    count = max(queue_ids) + 1
    return TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)


def _committed(offsets: JsonFile) -> list[tuple[str, str, Collection[int]]]:
    """Topic, group and queue ids of all committed offsets; StoreCorrupt: both copies are bad."""
    stored = offsets.load("offsetTable", stored_offsets_of)
    table = stored.offsets if stored is not None else {}
    pairs = ((key.partition("@"), queues) for key, queues in table.items())
    return [(topic, group, queues) for (topic, _, group), queues in pairs if group]


def _is_users_topic(topic: str) -> bool:
    is_light = names.is_light_topic(topic)  # its queue says nothing of a topic's shape
    return not (topic in names.SYSTEM_TOPICS or topic.startswith(names.SYSTEM_PREFIX) or is_light)


def _is_users_group(group: str) -> bool:
    return not (group in SYSTEM_GROUPS or group.startswith("CID_RMQ_SYS_"))
