"""A slave becomes the master, and the former master obeys it: in memory, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker.commands import records
from broker.harness import STORE, new_disk, run
from broker.replication.broker_pair import SLAVE, SYNC, Served, commit, end_of, pair, until
from cometmq.broker.metrics.metric_definitions import EPOCH
from cometmq.cli.replication_rows import replication_row, replication_rows
from cometmq.errors import ClientError, Reject
from cometmq.model.topic import DataVersion
from cometmq.net.channel import connect
from cometmq.store.recovery.unreplicated import UnreplicatedFiles
from cometmq.wire.bodies.topic import Registration, TopicTable, encode_registration
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.namesrv import RegisterBrokerRequestHeader
from cometmq.wire.records.log_record import text_properties as properties_of

if TYPE_CHECKING:
    from broker.replication.broker_pair import Pair
    from cometmq.broker.app import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.handler import Reply
    from cometmq.testing.sim_files import SimFiles
    from cometmq.wire.command import Command

MASTER_AT: dict[str, Any] = {"listen_port": 31_000}
SLAVE_AT: dict[str, Any] = {"listen_port": 32_000, **SLAVE}
OTHER_AT: dict[str, Any] = {"listen_port": 33_000, **SLAVE, "broker_id": 2}


async def send(served: Served, *bodies: bytes) -> list[int]:
    client = await served.client()
    return [(await client.send("T", body)).code for body in bodies]


async def bodies_of(served: Served) -> list[bytes]:
    return [each.body for each in await (await served.client()).drain("T")]


def log_of(served: Served) -> bytes:
    store = served.broker.store
    return store.read_raw(store.min_phy_offset, 1 << 20)


async def with_messages(brokers: Pair, disk: SimFiles, other: SimFiles) -> tuple[Served, Served]:
    master = await brokers.serve(disk, **MASTER_AT)
    slave = await brokers.serve(other, **SLAVE_AT)
    assert await send(master, b"0", b"1", b"2") == [0, 0, 0]
    await until(lambda: end_of(slave) == end_of(master))
    await until(lambda: slave.broker.state.topics.get("T") is not None)
    return master, slave


def unreplicated(disk: SimFiles) -> list[list[bytes]]:
    files = UnreplicatedFiles(disk, STORE)
    return [[each.body for each in files.records(one)] for one in files.all()]


def test_a_promoted_slave_takes_writes_and_the_former_master_follows_it() -> None:
    async def scenario() -> None:
        disk, other = new_disk(), new_disk()
        async with pair() as brokers:
            master, slave = await with_messages(brokers, disk, other)
            await slave.stop()
            assert await send(master, b"alone 1", b"alone 2") == [0, 0]
            await master.stop()
            slave = await brokers.serve(other, **SLAVE_AT)
            began_s = asyncio.get_running_loop().time()
            done = await (await brokers.admin()).promote("b0")
            assert (done.addr, done.epoch, done.silent) == (slave.broker.address, 2, ())
            assert slave.broker.state.metrics.value(EPOCH) == 2
            assert await send(slave, b"3", b"4") == [0, 0]
            assert asyncio.get_running_loop().time() - began_s < 30
            master = await brokers.serve(disk, **MASTER_AT)
            assert not master.is_master
            assert master.broker.settings.broker_id == 1
            await until(lambda: log_of(master) == log_of(slave))
            assert await bodies_of(master) == [b"0", b"1", b"2", b"3", b"4"]
            assert unreplicated(disk) == [[b"alone 1", b"alone 2"]]
            assert master.broker.epochs.kept.epochs == slave.broker.epochs.kept.epochs
            assert (await send(master, b"no")) == [ResponseCode.SYSTEM_BUSY]
            # and back again
            await slave.stop()
            await (await brokers.admin()).promote(master.broker.address)
            assert await send(master, b"5") == [0]
            slave = await brokers.serve(other, **SLAVE_AT)
            assert slave.broker.settings.broker_id == 1
            await until(lambda: log_of(master) == log_of(slave))
            assert unreplicated(other) == []

    run(scenario())


def test_a_master_that_runs_on_steps_down_once_it_hears_of_a_promotion() -> None:
    async def scenario() -> None:
        disk, other = new_disk(), new_disk()
        async with pair() as brokers:
            master, slave = await with_messages(brokers, disk, other)
            admin = await brokers.admin()
            with pytest.raises(ClientError, match="answers: stop it first"):
                await admin.promote("b0")
            assert master.is_master
            await admin.promote("b0", force=True)
            await until(lambda: not master.is_master)
            assert slave.is_master
            assert await send(slave, b"3") == [0]
            await until(lambda: log_of(master) == log_of(slave))
            rows = await replication_rows(admin)
            assert [(row["broker_id"], row["epoch"]) for row in rows] == [(0, 2), (1, 2)]
            assert replication_row(rows[0])[3] == 2
            again = await admin.promote(slave.broker.address)
            assert again.epoch == 2

    run(scenario())


def test_a_forced_promotion_refuses_where_a_slave_does_not_answer_that_may_have_more() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master, slave = await with_messages(brokers, new_disk(), new_disk())
            nobody = "127.0.0.1:39999"
            channel = await connect(brokers.namesrv)
            header = RegisterBrokerRequestHeader(
                broker_name="b0", broker_addr=nobody, cluster_name="DefaultCluster",
                ha_server_addr=nobody, broker_id=2,
            )  # fmt: skip
            body = encode_registration(Registration(TopicTable(DataVersion(), {}), []))
            asked = request(RequestCode.REGISTER_BROKER, 0, header, body)
            assert (await channel.call(asked, 5.0)).code == ResponseCode.SUCCESS
            admin, addr = await brokers.admin(), slave.broker.address
            with pytest.raises(ClientError, match=f"{nobody} may have sends that the master"):
                await admin.promote(addr, force=True)
            assert master.is_master
            assert await send(master, b"3") == [0]
            done = await admin.promote(addr, force=True, may_lose=True)
            assert done.silent == (nobody,)
            await until(lambda: slave.is_master and not master.is_master)
            channel.close()

    run(scenario())


def test_a_promoted_slave_that_meets_a_newer_epoch_of_the_first_master_is_a_slave_again() -> None:
    async def scenario() -> None:
        disk, other = new_disk(), new_disk()
        async with pair() as brokers:
            master, slave = await with_messages(brokers, disk, other)
            await master.stop()
            await (await brokers.admin()).promote(slave.broker.address)
            assert await send(slave, b"lost") == [0]
            await slave.stop()
            master = await brokers.serve(disk, **MASTER_AT)
            client = await master.client()
            addr = master.broker.address
            again = {"masterAddress": addr, "masterEpoch": "3", "masterBrokerId": "0"}
            said = await client.call(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, **again)
            assert said.code == ResponseCode.SUCCESS
            await until(lambda: master.broker.epochs.kept.epochs[-1].number == 3)
            slave = await brokers.serve(other, **SLAVE_AT)
            await until(lambda: not slave.is_master)
            assert slave.broker.settings.broker_id == 1
            assert await send(master, b"3") == [0]
            await until(lambda: log_of(master) == log_of(slave))
            assert unreplicated(other) == [[b"lost"]]

    run(scenario())


def test_a_fenced_sync_master_answers_12_and_never_ok() -> None:
    async def scenario() -> None:
        disk, other = new_disk(), new_disk()
        async with pair() as brokers:
            master = await brokers.serve(disk, **MASTER_AT, **SYNC)
            slave = await brokers.serve(other, **SLAVE_AT)
            await until(lambda: not slave.broker._replication.client.problem)  # type: ignore[union-attr]
            assert await send(master, b"0") == [0]
            slave.broker.epochs.promise(2)
            slave.broker.epochs.on_news()
            assert await send(master, b"1", b"2") == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 2
            await asyncio.sleep(60)
            assert await send(master, b"3") == [ResponseCode.FLUSH_SLAVE_TIMEOUT]

    run(scenario())


def test_another_slave_follows_the_promoted_one_and_what_it_alone_had_is_kept() -> None:
    async def scenario() -> None:
        disk, other, third = new_disk(), new_disk(), new_disk()
        async with pair() as brokers:
            master, slave = await with_messages(brokers, disk, other)
            second = await brokers.serve(third, **OTHER_AT)
            await until(lambda: end_of(second) == end_of(master))
            await slave.stop()
            await send(master, b"at two")
            await until(lambda: end_of(second) == end_of(master))
            await master.stop()
            slave = await brokers.serve(other, **SLAVE_AT)
            admin = await brokers.admin()
            with pytest.raises(ClientError, match="bytes of the log more than"):
                await admin.promote(slave.broker.address)
            assert not slave.is_master
            await second.stop()
            await admin.promote(slave.broker.address)
            await send(slave, b"3")
            second = await brokers.serve(third, **OTHER_AT)
            await until(lambda: log_of(second) == log_of(slave))
            assert unreplicated(third) == [[b"at two"]]
            assert second.broker.settings.broker_id == 2

    run(scenario())


def test_a_promoted_slave_delivers_delays_and_keeps_offsets() -> None:
    async def scenario() -> None:
        disk, other = new_disk(), new_disk()
        async with pair() as brokers:
            master, slave = await with_messages(brokers, disk, other)
            client = await master.client()
            await client.send("T", b"late", properties={"DELAY": "5"})  # a minute
            await commit(client, 2)
            await until(lambda: slave.broker.state.offsets.committed("CG", "T", 0) == 2)
            await master.stop()
            await (await brokers.admin()).promote("b0")
            assert slave.broker.state.offsets.committed("CG", "T", 0) == 2
            reader = await slave.client()
            await asyncio.sleep(61)
            answer = await reader.pull("T", queue_offset=3)
            assert [each.body for each in records(answer)] == [b"late"]

    run(scenario())


def test_what_a_former_master_had_alone_is_sent_again_once_it_is_asked_for() -> None:
    async def scenario() -> None:
        disk, other = new_disk(), new_disk()
        async with pair() as brokers:
            master, slave = await with_messages(brokers, disk, other)
            await slave.stop()
            client = await master.client()
            await client.send("T", b"alone", queue_id=2, properties={"KEYS": "k", "UNIQ_KEY": "U9"})
            await client.send("T", b"late", properties={"DELAY": "5"})
            await client.send("T", b"half", sys_flag=4, properties={"TRAN_MSG": "true"})
            await master.stop()
            slave = await brokers.serve(other, **SLAVE_AT)
            admin = await brokers.admin()
            await admin.promote("b0")
            master = await brokers.serve(disk, **MASTER_AT)
            await until(lambda: log_of(master) == log_of(slave))
            files = UnreplicatedFiles(disk, STORE)
            (one,) = files.all()
            assert await admin.resend_records("b0", files.records(one)) == {"T": 2, "": 1}
            files.mark_resent(one)
            assert [each.is_resent for each in files.all()] == [True]
            reader = await slave.client()
            (again,) = await reader.drain("T", queue_id=2)
            assert (again.body, properties_of(again)["UNIQ_KEY"]) == (b"alone", "U9")
            assert await bodies_of(slave) == [b"0", b"1", b"2"]
            await asyncio.sleep(61)
            assert await bodies_of(slave) == [b"0", b"1", b"2", b"late"]

    run(scenario())


@pytest.mark.parametrize("is_copied", [True, False])
def test_a_topic_made_just_before_the_master_was_lost_is_there(is_copied: bool) -> None:
    async def scenario() -> None:
        disk, other = new_disk(), new_disk()
        async with pair() as brokers:
            master, slave = await with_messages(brokers, disk, other)
            client = await master.client()
            metadata: Any = slave.broker._replication.metadata  # type: ignore[union-attr]
            if not is_copied:
                metadata.master_addr = ""  # the master answers nothing any more
            await client.send("New", b"new", queue_id=2)
            table = slave.broker.state.topics.table
            await until(lambda: end_of(slave) == end_of(master) and is_copied == ("New" in table))
            await master.stop()
            await (await brokers.admin()).promote("b0")
            reader = await slave.client()
            assert [each.body for each in await reader.drain("New", queue_id=2)] == [b"new"]
            queues = slave.broker.state.topics.table["New"].read_queue_nums
            assert queues == (4 if is_copied else 3)

    run(scenario())


def test_after_a_promotion_a_slave_with_a_fixed_address_follows_whom_name_servers_name() -> None:
    async def scenario() -> None:
        disk, other, third = new_disk(), new_disk(), new_disk()
        async with pair() as brokers:
            master, slave = await with_messages(brokers, disk, other)
            second = await brokers.serve(third, **OTHER_AT, ha_master_address="127.0.0.1:31001")
            await until(lambda: end_of(second) == end_of(master))
            await (await brokers.admin()).promote(slave.broker.address, force=True)
            assert await send(master, b"alone") != [-1]
            assert await send(slave, b"3") == [0]
            await until(lambda: log_of(second) == log_of(slave))
            await until(lambda: log_of(master) == log_of(slave))
            assert b"alone" not in log_of(second)

    run(scenario())


def test_a_change_of_role_goes_on_where_the_broker_does_not_stop_or_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        disk, other = new_disk(), new_disk()
        async with pair() as brokers:
            master, slave = await with_messages(brokers, disk, other)
            await master.stop()
            problems: list[Exception] = [OSError("no space"), ValueError("unforeseen")]
            save, opened = slave.broker.state.offsets.save, slave.served._open

            def failing_save() -> bool:
                save()
                raise OSError("no space")

            def failing_open() -> Broker:
                if problems:
                    raise problems.pop()
                return opened()

            monkeypatch.setattr(slave.broker.state.offsets, "save", failing_save)
            monkeypatch.setattr(slave.served, "_open", failing_open)
            await (await brokers.admin()).promote("b0")
            assert await send(slave, b"3") == [0]

    run(scenario())
    assert caplog.text.count("cannot be started in its new role") == 2


def test_a_broker_that_refuses_to_say_what_it_knows_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            slave = await brokers.serve(new_disk(), **SLAVE_AT)
            handlers: Any = slave.broker._dispatcher._handlers
            handlers[RequestCode.GET_BROKER_EPOCH_CACHE] = refuse
            master = await brokers.serve(new_disk(), **MASTER_AT)
            await asyncio.sleep(40)
            assert master.is_master

    def refuse(_request: Command, _connection: Connection) -> Reply:
        raise Reject(ResponseCode.NO_PERMISSION, "not you")

    run(scenario())
    assert caplog.text.count("whether another master is newer is not known") == 1
