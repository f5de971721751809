"""A message of very many keys: indexed over several iterations of the loop, and whole or not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from cometmq.store.index import key_index
from cometmq.store.message_store import MessageDraft
from cometmq.wire.records.index_file_layout import decode_header

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from store.conftest import StoreHarness

    RunScenario = Callable[[Callable[[StoreHarness], Awaitable[None]]], None]

KEYS = 1000
ENTRIES_AT_ONCE = 128


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "ENTRIES_AT_ONCE", ENTRIES_AT_ONCE)


ALL = (0, 1 << 60)


async def put(harness: StoreHarness, body: bytes, keys: list[str]) -> None:
    raw = f"KEYS\x01{' '.join(keys)}\x02".encode()
    harness.store.put(MessageDraft("T", 0, body, raw, born_ms=1))
    await harness.wait_until_durable()


async def put_three(harness: StoreHarness) -> None:
    await put(harness, b"before", ["k0", "x"])
    await put(harness, b"many", [f"k{number}" for number in range(KEYS)])
    await put(harness, b"after", ["k0", "y"])


async def found(harness: StoreHarness, key: str) -> list[int]:
    """The entries of a key, for none may be there twice."""
    result = await harness.store.lookup.query("T", key, 64, *ALL)
    return [len(raw) for raw in result.records]


def written_entries(harness: StoreHarness) -> int:
    paths = (harness.root / "index").iterdir()
    return sum(decode_header(path.read_bytes()).number - 1 for path in paths)


def test_one_iteration_puts_a_part_of_a_messages_keys(run_scenario: RunScenario) -> None:
    async def scenario(harness: StoreHarness) -> None:
        store = harness.open(max_index_num=5000)
        await put_three(harness)
        index, end = store._parts.index, store.max_phy_offset
        steps = []
        before = 0
        while index.advance(end):
            steps.append(index.waiting - before)
            before = index.waiting
        assert index.position == end
        assert before <= KEYS + 4 == index.waiting
        assert max(steps) <= ENTRIES_AT_ONCE
        assert len(steps) >= KEYS // ENTRIES_AT_ONCE
        for key, count in (("k0", 3), ("x", 1), ("y", 1), ("k1", 1), (f"k{KEYS - 1}", 1)):
            assert len(await found(harness, key)) == count

    run_scenario(scenario)


@pytest.mark.parametrize("entries", [5000, 60])
@pytest.mark.parametrize("steps", [1, 4, 9])
def test_a_write_amid_a_messages_keys_takes_all_of_them_and_no_kill_indexes_them_twice(
    run_scenario: RunScenario, steps: int, entries: int
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        store = harness.open(max_index_num=entries)
        await put_three(harness)
        for _ in range(steps):
            store._parts.index.advance(store.max_phy_offset)
        await store._maintenance.checkpoint_queues()
        assert store._parts.index.waiting == 0
        await harness.crash()
        harness.open()
        await harness.store.lookup.catch_up()
        for key, count in (("k0", 3), ("x", 1), ("y", 1), (f"k{KEYS - 1}", 1)):
            assert len(await found(harness, key)) == count
        await harness.stop()
        assert written_entries(harness) == KEYS + 4

    run_scenario(scenario)


def test_a_look_up_amid_a_messages_keys_waits_for_the_rest(run_scenario: RunScenario) -> None:
    async def scenario(harness: StoreHarness) -> None:
        store = harness.open(max_index_num=5000)
        await put_three(harness)
        while not store._parts.index.waiting > ENTRIES_AT_ONCE:
            store._parts.index.advance(store.max_phy_offset)
        following = asyncio.ensure_future(store.lookup.follow_log())
        assert len(await found(harness, f"k{KEYS - 1}")) == 1
        await following
        assert store._parts.index.waiting == KEYS + 4

    run_scenario(scenario)
