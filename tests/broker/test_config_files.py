"""Each file of config/, damaged in each way: its backup is used with a warning, or a start refuses.

What a refusal advises mends it, and no topic with messages is forgotten with its offsets.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.harness import CONFIG, STORE, leave_table, new_broker, new_disk, now_ms, run, running
from cometmq.errors import SettingsError, StoreCorrupt, StoreLocked
from cometmq.model.message import Property
from cometmq.model.topic import TopicConfig
from cometmq.settings.store import StoreSettings
from cometmq.store.lost_tables import TABLES, TableRebuilder
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.testing.sim_files import SimFiles

WRONG_FIELDS: dict[str, Any] = {
    "topics.json": {"T": {"readQueueNums": "many"}},
    "subscriptionGroup.json": {"G": {"retryMaxTimes": []}},
    "consumerOffset.json": {"T@G": {"0": "x"}},
    "delayOffset.json": {"1": None},
    "consumerFilter.json": {"T": {"groupFilterData": {"G": {"bornTime": "x"}}}},
    "deletedTopics.json": {"Gone": {"end": "x"}},
    "replication.json": {"promised": "x"},
}
NOT_MISSED = ("delayOffset.json", "consumerFilter.json", "deletedTopics.json", "replication.json")
"""Tables that Apache's broker writes late or never, and the one that a promotion makes: missing,
they are empty."""
QUEUES = 16
TINY = StoreSettings(
    commit_log_file_bytes=1 << 16, consume_queue_file_bytes=2000, message_index_enable=False
)


_filled: dict[Path, bytes | None] = {}


async def filled() -> SimFiles:
    """A disk with a store as `fill` makes it, which is made once."""
    disk = new_disk()
    if not _filled:
        await fill(disk)
        _filled.update(tree(disk, STORE))
    else:
        for path, content in _filled.items():
            disk.make_dir(path) if content is None else disk.write(path, content)
    return disk


def tree(disk: SimFiles, directory: Path) -> dict[Path, bytes | None]:
    """All below a directory: content of files, None for directories."""
    found: dict[Path, bytes | None] = {directory: None}
    for name in disk.names(directory):
        stat = disk.stat(directory / name)
        assert stat is not None
        is_file = stat.size >= 0
        path = directory / name
        found |= {path: disk.read(path)} if is_file else tree(disk, path)
    return found


async def fill(disk: SimFiles) -> None:
    """A store with a topic, a group, offsets, a filter, a delayed and a deleted message."""
    async with running(TINY, disk=disk, enable_property_filter=True) as harness:
        state, client = harness.broker.state, await harness.client()
        state.topics.put(
            TopicConfig(topic_name="T", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        )
        for queue_id in (0, QUEUES - 1):
            assert (await client.send("T", queue_id=queue_id)).code == 0
        assert (await client.send("Gone")).code == 0
        assert (await client.send("T", properties={Property.DELAY: "18"})).code == 0
        await client.beat("G", "T")
        state.offsets.commit("G", "T", QUEUES - 1, 1)
        await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, None, topic="Gone")
    for name in TABLES:
        if disk.read(CONFIG / name) is None:
            leave_table(disk, name, {TABLES[name]: {}})


def known(disk: SimFiles) -> dict[str, Any]:
    """What a broker that starts on the disk knows of topics, groups and offsets."""
    broker = new_broker(TINY, disk=disk)
    queues = broker.store.queues()
    broker.store.abandon()
    state = broker.state
    return {
        "topics": dict(state.topics.table),
        "groups": dict(state.groups.table),
        "offsets": state.offsets.snapshot(),
        "queues": sorted(queues),
    }


def damaged(name: str, how: str, content: bytes) -> bytes | None:
    """What becomes of a file's content; None: there is no file."""
    table = TABLES[name]
    return {
        "missing": None,
        "empty": b"",
        "zeros": bytes(len(content)),
        "truncated": content[: len(content) * 2 // 3],
        "a list": b"[]",
        "a number": b"3",
        "an object without the table": b"{}",
        "a table that is a list": json.dumps({table: []}).encode(),
        "a wrong field": json.dumps({table: WRONG_FIELDS[name]}).encode(),
    }[how]


HOW = ("missing", "empty", "zeros", "truncated", "a list", "a number")
HOW += ("an object without the table", "a table that is a list", "a wrong field")


def put(disk: SimFiles, name: str, content: bytes | None) -> None:
    disk.delete(CONFIG / name)
    if content is not None:
        disk.write(CONFIG / name, content)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", TABLES)
def test_the_former_content_is_used_and_logged(
    name: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        disk = await filled()
        before = known(disk)
        content = disk.read(CONFIG / name)
        assert content is not None
        put(disk, name + ".bak", content)
        put(disk, name, damaged(name, how, content))
        caplog.clear()
        assert known(disk) == before
        said = [record.getMessage() for record in caplog.records]
        assert [each for each in said if f"config/{name} " in each and "is used" in each], said

    run(scenario())


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", TABLES)
def test_without_a_former_content_a_start_refuses_until_the_table_is_made_anew(
    name: str, how: str
) -> None:
    async def scenario() -> None:
        disk = await filled()
        content = disk.read(CONFIG / name)
        assert content is not None
        for each in (name, name + ".bak"):
            put(disk, each, damaged(name, how, content))
        if how == "missing" and name in NOT_MISSED:
            new_broker(TINY, disk=disk).store.abandon()
            return
        with pytest.raises(StoreCorrupt) as caught:
            new_broker(TINY, disk=disk)
        sentence = str(caught.value)
        assert f"/store/config/{name} " in sentence
        assert sentence.endswith(f"cometmq store rebuild-table /store {name}")
        assert "\n" not in sentence
        assert disk.read(CONFIG / name) == damaged(name, how, content)
        TableRebuilder(disk, STORE).rebuild(name, now_ms())
        found = known(disk)
        config = found["topics"]["T"]
        assert (config.read_queue_nums, config.write_queue_nums) == (QUEUES, QUEUES)
        assert "G" in found["groups"]
        lost = name == "consumerOffset.json"
        assert found["offsets"] == ({} if lost else {"T@G": {QUEUES - 1: 1}})
        if how != "missing":
            kept = CONFIG / (name + ".damaged")
            assert disk.read(kept) == damaged(name, how, content)

    run(scenario())


def test_a_topic_that_the_former_table_does_not_name_is_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = await filled()
        table = json.loads(disk.read(CONFIG / "topics.json") or b"")
        del table["topicConfigTable"]["T"]
        leave_table(disk, "topics.json.bak", table)
        put(disk, "topics.json", b"{")
        found = known(disk)
        assert found["topics"]["T"].write_queue_nums == QUEUES
        assert found["offsets"] == {"T@G": {QUEUES - 1: 1}}
        assert "the topic T, which topics.json does not name, is made again with" in caplog.text

    run(scenario())


def test_a_topic_with_messages_keeps_its_offsets_when_the_table_forgot_it() -> None:
    async def scenario() -> None:
        disk = await filled()
        leave_table(disk, "topics.json", {"topicConfigTable": {}})
        found = known(disk)
        assert "T" not in found["topics"]
        assert found["offsets"] == {"T@G": {QUEUES - 1: 1}}

    run(scenario())


def test_the_first_start_writes_what_a_later_one_would_miss() -> None:
    async def scenario() -> None:
        disk = new_disk()
        new_broker(TINY, disk=disk).store.abandon()
        disk.kill()
        names = disk.names(CONFIG)
        assert {"topics.json", "subscriptionGroup.json", "consumerOffset.json"} <= set(names)
        new_broker(TINY, disk=disk).store.abandon()

    run(scenario())


def test_a_store_of_an_early_version_may_have_groups_and_no_committed_offset(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = await filled()
        for path in (CONFIG / "consumerOffset.json", CONFIG / "consumerOffset.json.bak"):
            put(disk, path.name, None)
        disk.delete(STORE / "queueChecksums")
        new_broker(TINY, disk=disk).store.abandon()
        assert "no group has committed an offset yet" in caplog.text
        put(disk, "consumerOffset.json", None)
        with pytest.raises(StoreCorrupt):  # that start wrote the table, so now it was lost
            new_broker(TINY, disk=disk)

    run(scenario())


def test_only_tables_of_a_stopped_broker_are_made_anew() -> None:
    async def scenario() -> None:
        disk = new_disk()
        with pytest.raises(SettingsError, match=r"broker\.conf is no table of config/; these are"):
            TableRebuilder(disk, STORE).rebuild("broker.conf", 0)
        async with running(TINY, disk=disk):
            with pytest.raises(StoreLocked, match="the store /store is in use"):
                TableRebuilder(disk, STORE).rebuild("topics.json", 0)

    run(scenario())


_numbers = st.integers() | st.floats(allow_nan=False)
_keys = st.sampled_from(["T", "T@G", "0", "dataVersion", "groupFilterData", "end", "x"]) | st.text()
_values = st.recursive(
    st.none() | st.booleans() | _numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=8,
)


@given(name=st.sampled_from(list(TABLES)), value=_values, version=_values)
@settings(max_examples=60, deadline=None)
def test_whatever_json_a_file_holds_a_start_works_or_refuses(
    name: str, value: object, version: object
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        leave_table(disk, name, {TABLES[name]: value, "dataVersion": version})
        with suppress(StoreCorrupt):
            new_broker(TINY, disk=disk).store.abandon()

    run(scenario())
