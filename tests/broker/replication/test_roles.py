"""A master and a slave of one name: what each answers, and what the slave takes over."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from broker.commands import records
from broker.harness import SMALL_STORE, new_broker, new_disk, run, stored_table
from broker.replication.broker_pair import SLAVE, SYNC, commit, end_of, pair, until
from cometmq.broker.replication.metadata_copy import Commit, own_commits
from cometmq.broker.replication.slave_refusals import SLAVE_REFUSALS
from cometmq.cli.replication_rows import replication_rows
from cometmq.client.admin.async_admin import AsyncAdmin
from cometmq.errors import SettingsError
from cometmq.settings.broker import BrokerSettings
from cometmq.wire.bodies.broker import decode_replication_status
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request

if TYPE_CHECKING:
    from broker.commands import Harness
    from broker.replication.broker_pair import Pair
    from cometmq.broker.app import Broker


def test_a_slave_answers_what_its_master_would() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master, slave = await brokers.both(**SYNC)
            client, reader = await master.client(), await slave.client()
            for number in range(20):
                assert (await client.send("T", b"%d" % number)).code == ResponseCode.SUCCESS
            await client.send("T", b"late", properties={"DELAY": "1"})
            await commit(client, 7)
            await until(lambda: slave.broker.state.offsets.committed("CG", "T", 0) == 7)
            assert [each.body for each in await reader.drain("T")] == [
                *(b"%d" % number for number in range(20)),
                b"late",
            ]
            theirs, ours = master.broker.state, slave.broker.state
            assert ours.topics.table == theirs.topics.table
            assert ours.topics.version == theirs.topics.version
            await until(lambda: ours.groups.table == theirs.groups.table)
            await until(lambda: ours.delayed_messages.offsets == {1: 1})
            for topic, queue_id in master.broker.store.queues():
                end = master.broker.store.max_offset(topic, queue_id)
                assert slave.broker.store.max_offset(topic, queue_id) == end

    run(scenario())


def test_a_slave_delivers_and_writes_nothing_of_its_own() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master, slave = await brokers.both()
            client = await master.client()
            await client.send("T", b"late", properties={"DELAY": "1"})
            await until(lambda: end_of(slave) == end_of(master))
            await master.broker.stop()
            before = end_of(slave)
            await asyncio.sleep(60)
            assert end_of(slave) == before
            reader = await slave.client()
            for code, (answer, _) in SLAVE_REFUSALS.items():
                assert (await reader.call(code)).code == answer, code
            assert (await reader.send("T")).code == ResponseCode.SYSTEM_BUSY
            refused = await reader.send("T")
            assert "slave" in (refused.remark or "")
            assert end_of(slave) == before

    run(scenario())


def test_a_sync_master_answers_12_without_its_slave_and_keeps_the_message() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master, slave = await brokers.both(**SYNC)
            client = await master.client()
            assert (await client.send("T", b"one")).code == ResponseCode.SUCCESS
            await slave.broker.stop()
            late = await client.send("T", b"two")
            assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert "queueOffset" in late.ext
            unsafe = await client.send("T", b"three", properties={"WAIT": "false"})
            assert unsafe.code == ResponseCode.SUCCESS
            assert [each.body for each in await client.drain("T")] == [b"one", b"two", b"three"]

    run(scenario())


def test_a_sync_master_that_needs_no_slave_says_so_and_waits_for_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master = await brokers.start(broker_role="SYNC_MASTER")
            client = await master.client()
            assert (await client.send("T")).code == ResponseCode.SUCCESS

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert [each for each in caplog.messages if "set inSyncReplicas=2" in each]


def test_a_slave_that_starts_again_knows_what_it_had() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with pair() as brokers:
            master = await brokers.start(**SYNC)
            slave = await brokers.start(disk=disk, **SLAVE)
            client = await master.client()
            await until(lambda: slave.broker.store.max_phy_offset == end_of(master))
            for number in range(5):
                await client.send("T", b"%d" % number)
            await commit(client, 3)
            await until(lambda: slave.broker.state.offsets.committed("CG", "T", 0) == 3)
            await slave.broker.stop()
            version = stored_table(disk, "topics.json")["dataVersion"]
            assert version["counter"] == master.broker.state.topics.version.counter
            await master.broker.stop()
            again = await brokers.start(disk=disk, **SLAVE)
            reader = await again.client()
            assert len(await reader.drain("T")) == 5
            assert again.broker.state.offsets.committed("CG", "T", 0) == 3

    run(scenario())


def test_commits_at_the_slave_while_the_master_is_away_are_carried_to_it() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with pair() as brokers:
            slave = await brokers.slave_alone(disk)
            offsets = slave.broker.state.offsets
            await commit(await slave.client(), 8)
            back = await brokers.start(disk=disk)
            await until(lambda: back.broker.state.offsets.committed("CG", "T", 0) == 8)
            assert back.broker.state.offsets.committed("CG", "T", 1) == 5
            other = await back.client()
            await commit(other, 1)  # moved back at the master: the slave follows
            await until(lambda: offsets.committed("CG", "T", 0) == 1)

    run(scenario())


def test_the_commits_of_a_group_that_is_new_here_are_carried_and_of_a_deleted_one_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with pair() as brokers:
            slave = await brokers.slave_alone(disk)
            offsets = slave.broker.state.offsets
            reader = await slave.client()
            await reader.pull("T", consumer_group="New")
            assert (await reader.commit(6, consumerGroup="New")).code == ResponseCode.SUCCESS
            await commit(reader, 8)
            back = await brokers.start(disk=disk)
            admin = await back.client()
            await admin.call(
                RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="CG", cleanOffset="true"
            )
            await until(lambda: back.broker.state.offsets.committed("New", "T", 0) == 6)
            await until(lambda: "CG" not in slave.broker.state.groups.table)
            assert "New" in slave.broker.state.groups.table
            await asyncio.sleep(60)
            assert "CG" not in back.broker.state.groups.table
            assert offsets.committed("CG", "T", 0) == -1

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "are not copied" not in caplog.text


def test_both_say_how_far_the_copy_is() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master, slave = await brokers.both(
                ha_flow_control_enable=True, max_ha_transfer_bytes_per_second=1_000
            )
            client, reader = await master.client(), await slave.client()
            await asyncio.sleep(6)  # a heartbeat
            for _ in range(10):
                await client.send("T", b"x" * 1_000)
            await asyncio.sleep(3)
            code = RequestCode.GET_BROKER_HA_STATUS
            status = decode_replication_status((await client.call(code)).body)
            (one,) = status.slaves
            assert status.log_end == end_of(master)
            assert one.lag_bytes == end_of(master) - one.acknowledged > 0
            assert one.is_in_sync
            assert 1_000 <= one.lag_ms <= 4_000
            assert one.bytes_per_second <= 1_000
            said = decode_replication_status((await reader.call(code)).body).master
            assert said is not None
            assert (said.log_end, said.problem) == (end_of(slave), "")
            await until(lambda: end_of(slave) == end_of(master))
            status = decode_replication_status((await client.call(code)).body)
            assert [(each.lag_bytes, each.lag_ms) for each in status.slaves] == [(0, 0)]
            rows = await replication_rows(await stack_admin(brokers))
            assert [row["state"] for row in rows] == ["in sync", "copying"]
            assert [row["epoch"] for row in rows] == [1, 1]
            await client.send("T", b"x" * 5_000)
            await asyncio.sleep(2)
            (row, _) = await replication_rows(await stack_admin(brokers))
            assert (int(str(row["lag_bytes"])) > 0, float(str(row["lag_s"])) >= 1) == (True, True)
            at_master, at_slave = (figures(each) for each in (master, slave))
            assert at_master["cometmq_slaves"] == 1
            assert at_master["cometmq_slave_lag_bytes"] > 0
            assert at_master["cometmq_slave_lag_ms"] >= 1_000
            assert at_slave["cometmq_is_following"] == 1
            assert (at_master["cometmq_epoch"], at_slave["cometmq_epoch"]) == (1, 1)
            await until(lambda: figures(master)["cometmq_slave_lag_bytes"] == 0)
            assert figures(master)["cometmq_slave_lag_ms"] == 0
            await master.broker.stop()
            await until(lambda: figures(slave)["cometmq_is_following"] == 0)
            said = decode_replication_status((await reader.call(code)).body).master
            assert said is not None
            assert said.problem

    run(scenario())


def figures(harness: Harness) -> dict[str, float]:
    """What the metrics of a broker say that have no labels."""
    samples = harness.broker.state.metrics.collect()
    values = [(one.metric.name, one.value) for one in samples if not one.labels]
    return {name: value for name, value in values if isinstance(value, int | float)}


async def stack_admin(brokers: Pair) -> AsyncAdmin:
    admin = AsyncAdmin(namesrv=brokers.namesrv)
    await brokers.stack.enter_async_context(admin)
    return admin


def test_only_what_changed_here_and_is_ahead_is_carried() -> None:
    present = {"T@G": {0: 5, 1: 5, 2: 5, 3: 5}, "U@G": {0: 1}}
    copied = {"T@G": {0: 5, 1: 4, 2: 4}}
    theirs = {"T@G": {0: 3, 1: 4, 2: 9, 3: 5}}
    assert list(own_commits(present, copied, theirs)) == [Commit("T@G", 1, 5), Commit("U@G", 0, 1)]


def test_a_topic_deleted_at_the_master_is_gone_at_the_slave() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master, slave = await brokers.both()
            client = await master.client()
            await client.send("T")
            await commit(client, 1)
            await until(lambda: slave.broker.state.offsets.committed("CG", "T", 0) == 1)
            assert (await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
            await until(lambda: slave.broker.state.topics.get("T") is None)
            await until(lambda: slave.broker.state.offsets.committed("CG", "T", 0) == -1)
            await client.send("T", b"again")
            await until(lambda: slave.broker.state.topics.get("T") is not None)
            reader = await slave.client()
            assert [each.body for each in records(await reader.pull("T"))] == [b"again"]

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"broker_role": "SLAVE"}, "brokerId is 0; it must be at least 1 for a SLAVE"),
        ({"broker_id": 1}, "brokerId is 1; it must be 0 for the role ASYNC_MASTER"),
        ({"ha_master_address": "nowhere"}, "haMasterAddress is 'nowhere'; it must be an address"),
        ({"in_sync_replicas": 0}, "inSyncReplicas is 0; it must be between 1 and 17"),
    ],
)
def test_roles_that_cannot_be_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        BrokerSettings(**settings)
    assert says in str(caught.value)


def test_a_port_that_is_taken_ends_a_start_only_where_slaves_matter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_server(asyncio.Protocol, "127.0.0.1", 30_001)

        def broker(**settings: Any) -> Broker:
            return new_broker(SMALL_STORE, listen_port=30_000, **settings)

        for settings in ({"ha_listen_port": 30_001}, {"broker_role": "SYNC_MASTER"}):
            with pytest.raises(SettingsError, match="set haListenPort"):
                await broker(**settings).start()
        alone = broker()
        await alone.start()
        await alone.stop()

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert [each for each in caplog.messages if "slaves are not served" in each]


def test_the_master_is_asked_like_any_broker() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master = await brokers.start()
            client = await master.client()
            answer = await client.channel.call(request(RequestCode.GET_ALL_DELAY_OFFSET, 0), 5)
            assert answer.code == 0

    run(scenario())
