"""What a crash leaves of each kind of message and of commits, as docs/guarantees.md says it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from broker.commands import Harness, make_topic, send_header
from broker.delivery.send_back_commands import send_back
from broker.delivery.timer_commands import TIMERS
from broker.delivery.transaction_commands import COMMIT, end, half
from broker.harness import new_broker, new_disk, run, running
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.records import message_batch
from cometmq.wire.records.message_batch import BatchItem

if TYPE_CHECKING:
    from broker.commands import Client
    from cometmq.settings.store import StoreSettings
    from cometmq.testing.sim_files import SimFiles

ASYNC = TIMERS
SYNC = replace(ASYNC, flush_disk_type="SYNC_FLUSH")
SAFE_S = 11
"""After so long everything is on the disk (flushCommitLogThoroughInterval, 10 s)."""
KINDS = ("send", "one-way", "half", "delayed", "timed", *(f"batch {n}" for n in range(3)), "dead")


def send_oneway(client: Client, text: str) -> None:
    command = request(RequestCode.SEND_MESSAGE_V2, 0, send_header("T"), text.encode())
    command.flag |= 2
    client.channel.oneway(command)


async def send_each_kind(client: Client, when: str) -> None:
    """One message of each kind, all of them answered, whose bodies say so."""
    oneway = request(
        RequestCode.SEND_MESSAGE_V2, 0, send_header("T"), b"one-way %s" % when.encode()
    )
    oneway.flag |= 2
    client.channel.oneway(oneway)
    for kind, more in (
        ("send", {}),
        ("delayed", {"properties": {"DELAY": "1"}}),
        ("timed", {"properties": {"TIMER_DELAY_MS": "2000"}}),
        ("dead", {"queue_id": 1}),
    ):
        assert (await client.send("T", f"{kind} {when}".encode(), **more)).code == 0
    items = [
        BatchItem(0, f"batch {n} {when}".encode(), b"UNIQ_KEY\x01K%d\x02" % n) for n in range(3)
    ]
    batch = send_header("T", batch=True)
    assert (
        await client.call(RequestCode.SEND_BATCH_MESSAGE, batch, message_batch.encode(items))
    ).code == 0
    answer = await half(client, f"half {when}")
    assert (await end(client, answer, COMMIT)).code == 0
    record = (await client.drain("T", queue_id=1))[-1]
    assert (await send_back(client, record, delayLevel=-1)).code == 0


async def refused_each_kind(client: Client) -> dict[str, int]:
    """The answers to one message of each kind."""
    record = (await client.drain("T", queue_id=1))[-1]
    item = message_batch.encode([BatchItem(0, b"batch refused", b"UNIQ_KEY\x01K\x02")])
    header = send_header("T", batch=True)
    send_oneway(client, "one-way refused")
    halves = {"properties": {"TRAN_MSG": "true", "PGROUP": "PG"}, "sys_flag": 4}
    later = {"properties": {"TIMER_DELAY_MS": "2000"}}
    return {
        "send": (await client.send("T", b"send refused")).code,
        "half": (await client.send("T", b"half refused", **halves)).code,
        "delayed": (await client.send("T", b"delayed refused", properties={"DELAY": "1"})).code,
        "timed": (await client.send("T", b"timed refused", **later)).code,
        "batch": (await client.call(RequestCode.SEND_BATCH_MESSAGE, header, item)).code,
        "dead": (await send_back(client, record, delayLevel=-1)).code,
    }


async def crashed(store: StoreSettings, disk: SimFiles, crash: str, *, lies: bool = False) -> None:
    """A broker that has each kind twice, of long ago and of just now, crashes."""
    broker = new_broker(store, disk=disk)
    await broker.start()
    client = await Harness(broker).client()
    await make_topic(Harness(broker))
    await client.beat("CG", "T")
    await send_each_kind(client, "before")
    await asyncio.sleep(SAFE_S)
    disk.syncs = not lies
    await send_each_kind(client, "now")
    getattr(disk, crash)()


async def found_again(store: StoreSettings, disk: SimFiles) -> Counter[str]:
    """How often the next broker gives each message to consumers."""
    async with running(store, disk=disk) as harness:
        client = await harness.client()
        await client.beat("CG", "T")
        await asyncio.sleep(20)
        records = [*await client.drain("T"), *await client.drain("%DLQ%CG")]
        return Counter(record.body.decode() for record in records)


@pytest.mark.parametrize(
    ("crash", "store"),
    [("kill", ASYNC), ("kill", SYNC), ("power_cut", SYNC)],
    ids=["kill with ASYNC_FLUSH", "kill with SYNC_FLUSH", "power cut with SYNC_FLUSH"],
)
def test_each_kind_that_was_answered_is_there_once_after_a_crash(
    crash: str, store: StoreSettings
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        await crashed(store, disk, crash)
        found = await found_again(store, disk)
        assert found == dict.fromkeys(
            [f"{kind} {when}" for kind in KINDS for when in ("before", "now")], 1
        )

    run(scenario())


async def takes_the_last_seconds_alone(store: StoreSettings, *, lies: bool = False) -> None:
    disk = new_disk()
    await crashed(store, disk, "power_cut", lies=lies)
    found = await found_again(store, disk)
    for kind in KINDS:
        assert found[f"{kind} before"] == 1, kind
        assert found[f"{kind} now"] <= 1, kind
    assert sum(found.values()) < 2 * len(KINDS), "this disk had not everything"


def test_under_async_flush_a_power_cut_takes_of_each_kind_the_last_seconds_alone() -> None:
    run(takes_the_last_seconds_alone(ASYNC))


@pytest.mark.parametrize("crash", ["kill", "power_cut"])
@pytest.mark.parametrize("store", [ASYNC, SYNC], ids=["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_crash_takes_the_commits_of_the_last_five_seconds(
    crash: str, store: StoreSettings
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        broker = new_broker(store, disk=disk)
        await broker.start()
        client = await Harness(broker).client()
        await make_topic(Harness(broker))
        for _ in range(8):
            await client.send("T")
        await asyncio.sleep(SAFE_S)
        await client.pull("T")
        assert (await client.commit(3)).code == 0
        await asyncio.sleep(6)
        assert (await client.commit(7)).code == 0
        getattr(disk, crash)()
        async with running(store, disk=disk) as harness:
            answer = await (await harness.client()).committed()
            assert answer.ext["offset"] == "3"

    run(scenario())


def test_under_sync_flush_a_disk_that_lies_takes_as_much_as_under_async_flush() -> None:
    run(takes_the_last_seconds_alone(SYNC, lies=True))


@pytest.mark.parametrize("store", [ASYNC, SYNC], ids=["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("trouble", ["full", "flush fails"])
def test_a_disk_in_trouble_refuses_each_kind_and_keeps_what_was_answered(
    store: StoreSettings, trouble: str
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        broker = new_broker(store, disk=disk)
        await broker.start()
        client = await Harness(broker).client()
        await make_topic(Harness(broker))
        await client.beat("CG", "T")
        await send_each_kind(client, "before")
        await asyncio.sleep(SAFE_S)
        if trouble == "full":
            disk.room = 0
        else:
            disk.sync_error = OSError("the disk is broken")
            await client.send("T", b"noticed")
            await asyncio.sleep(SAFE_S)
        answers = await refused_each_kind(client)
        assert 0 not in answers.values(), answers
        disk.room = disk.sync_error = None
        disk.kill()
        found = await found_again(store, disk)
        found.pop("noticed", None)
        assert found == dict.fromkeys([f"{kind} before" for kind in KINDS], 1)

    run(scenario())


def test_a_one_way_message_that_the_broker_had_not_read_is_lost() -> None:
    async def scenario() -> None:
        disk = new_disk()
        broker = new_broker(SYNC, disk=disk)
        await broker.start()
        client = await Harness(broker).client()
        await make_topic(Harness(broker))
        send_oneway(client, "gone")  # it does not fail, and nobody will say so
        disk.kill()
        async with running(SYNC, disk=disk) as harness:
            answer = await (await harness.client()).pull("T")
            assert answer.code == ResponseCode.PULL_NOT_FOUND

    run(scenario())
