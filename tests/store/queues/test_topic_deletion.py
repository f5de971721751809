"""Topics deleted and made again: neither other topics nor the new messages are harmed by it."""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import TYPE_CHECKING

import pytest

from cometmq.store.message_store import MessageDraft, PutStatus
from cometmq.testing.sim_files import SimWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.testing.sim_files import SimFiles
    from store.conftest import Scenario, StoreHarness

    Run = Callable[[Scenario], None]


async def delete(harness: StoreHarness, topic: str) -> None:
    await harness.store.deletion.begin({topic})
    await harness.store.deletion.end({topic})


async def kill(harness: StoreHarness, disk: SimFiles, *, power_cut: bool = False) -> None:
    await harness.crash()
    (disk.power_cut if power_cut else disk.kill)()
    harness.open()


def test_senders_of_other_topics_are_answered_though_one_is_deleted_under_its_messages(
    run_scenario: Run,
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        store = harness.open(flush_disk_type="SYNC_FLUSH")
        answers: list[PutStatus] = []
        for topic in ("T", "U", "V"):
            store.put(MessageDraft(topic, 0, b"on its way"))
            store.on_durable(answers.append)
        await asyncio.sleep(0)  # written, and not flushed
        store.delete_topic("U")
        await harness.wait_until_durable()
        assert answers == [PutStatus.PUT_OK] * 3
        assert [harness.bodies(topic) for topic in "TUV"] == [[b"on its way"], [], [b"on its way"]]

    run_scenario(scenario)


@pytest.mark.parametrize("how", ["at once", "in steps"])
def test_a_write_that_fails_as_its_topic_is_deleted_hides_no_later_message(
    run_scenario: Run, disk: SimFiles, how: str
) -> None:
    """The place of what was not written is given to a message of the topic made anew."""

    async def scenario(harness: StoreHarness) -> None:
        harness.worker = lambda _name: SimWorker(Random(1))  # whose jobs run when the room is back
        store = harness.open()
        await harness.put(b"old")
        answers: list[PutStatus] = []

        def put_in_vain() -> None:
            disk.room = 0
            store.put(MessageDraft("T", 0, b"never written" * 20))
            store.on_durable(answers.append)
            asyncio.get_running_loop().call_soon(setattr, disk, "room", None)

        if how == "at once":
            put_in_vain()
            store.delete_topic("T")
            await store._maintenance.write_queues()  # the mark, for which there was no room
        else:
            await store.deletion.begin({"T"})
            put_in_vain()
            await store.deletion.end({"T"})
        await asyncio.sleep(0)
        assert answers == [PutStatus.SERVICE_NOT_AVAILABLE]
        await harness.put(b"new")
        disk.delete(harness.root / "checkpoint")  # the whole log is read again
        await kill(harness, disk)
        assert harness.bodies() == [b"new"]

    run_scenario(scenario)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_messages_put_where_a_power_cut_took_deleted_ones_are_kept(
    run_scenario: Run, disk: SimFiles, flush: str
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        harness.open(flush_disk_type=flush)
        await harness.put(b"other", "U")
        disk.syncs = False  # the log's end is lost with the power, the small file is not
        for number in range(20):
            await harness.put(b"old %d" % number)
        disk.syncs = True
        await delete(harness, "T")
        await kill(harness, disk, power_cut=True)
        end = harness.store.max_phy_offset
        await harness.put(b"new")
        assert harness.store.max_phy_offset > end
        for _ in range(2):
            await kill(harness, disk)
            assert harness.bodies() == [b"new"]

    run_scenario(scenario)


def test_a_deletion_that_is_taken_back_leaves_an_earlier_one_as_it_was(
    run_scenario: Run, disk: SimFiles
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        harness.open(flush_disk_type="SYNC_FLUSH")
        for number in range(4):
            await harness.put(b"old %d" % number, queue_id=number % 2)
        await delete(harness, "T")
        await harness.put(b"new")
        await harness.store.deletion.begin({"T"})
        await harness.store.deletion.take_back({"T"})
        disk.delete(harness.root / "checkpoint")  # the whole log is read again
        await kill(harness, disk)
        assert [harness.bodies("T", queue_id) for queue_id in (0, 1)] == [[b"new"], []]

    run_scenario(scenario)


def test_a_deletion_that_the_disk_refuses_leaves_an_earlier_one_as_it_was(
    run_scenario: Run, disk: SimFiles
) -> None:
    async def scenario(harness: StoreHarness) -> None:
        harness.open(flush_disk_type="SYNC_FLUSH")
        await harness.put(b"old", queue_id=1)
        await delete(harness, "T")
        await harness.put(b"new")
        disk.sync_error = OSError(errno.EIO, "broken disk")
        with pytest.raises(OSError, match="broken disk"):
            await harness.store.deletion.begin({"T"})
        disk.sync_error = None
        await harness.store._maintenance.write_queues()
        disk.delete(harness.root / "checkpoint")
        await kill(harness, disk)
        assert [harness.bodies("T", queue_id) for queue_id in (0, 1)] == [[b"new"], []]

    run_scenario(scenario)


def test_checksums_of_a_deleted_topic_are_not_taken_for_those_of_the_one_made_after_it(
    run_scenario: Run, disk: SimFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """They are saved once a minute, so a kill may leave them as they were before the deletion."""

    async def scenario(harness: StoreHarness) -> None:
        harness.open()
        await harness.put(b"old")
        await harness.store._maintenance.write_queues()
        await delete(harness, "T")
        harness.clock.ms += 20_000
        await harness.put(b"new")
        await harness.store._maintenance.write_queues()
        for _ in range(2):
            await kill(harness, disk)
            assert harness.bodies() == [b"new"]
        await harness.put(b"more")
        await harness.stop()
        harness.open()
        assert harness.bodies() == [b"new", b"more"]

    run_scenario(scenario)
    assert "anew" not in caplog.text
