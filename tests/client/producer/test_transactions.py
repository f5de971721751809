"""Transactions: what is committed is read, what is rolled back is not, and brokers get answers."""

import asyncio
import threading

import pytest

from client.scripted_broker import TOPIC, check_back_request
from client.short_delay_cluster import until
from cometmq import (
    Admin,
    AsyncProducer,
    BrokerError,
    ClientError,
    ConsumeFrom,
    InvalidMessage,
    Message,
    Producer,
    PushConsumer,
    TransactionState,
)
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request, response

END = RequestCode.END_TRANSACTION


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    """A broker that asks soon and often."""
    with LocalCluster(
        tmp_path_factory.mktemp("asking"),
        transaction_timeout_ms=100,
        transaction_check_interval_ms=100,
        transaction_check_max=100_000,
        commit_log_file_bytes=16 * 1024 * 1024,
    ) as running:
        yield running


def fresh(cluster, name):
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(name, queues=2)
    return name


def reads(cluster, topic, wanted):
    """The bodies that a new group reads, once there are as many as wanted and a moment later."""
    seen, rest = [], threading.Event()

    def note(messages):
        seen.extend(message.body for message in messages)

    consumer = PushConsumer(f"r-{topic}", namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic, "*", note)
    with consumer:
        until(lambda: len(seen) >= wanted)
        rest.wait(0.3)
    return sorted(seen)


def test_a_block_commits_at_its_end_and_rolls_back_when_it_raises(asking):
    topic = fresh(asking, "blocks")
    with Producer("pay", namesrv=asking.namesrv) as producer:
        with producer.transaction() as tx:
            assert tx.send(Message(topic, b"one", tags="A", keys="k")).queue.topic == topic
            tx.send(Message(topic, b"two", sharding_key="s"))
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
            assert not tx.send(Message(topic, b"never")).queue_offset / 0
        with producer.transaction() as tx:
            tx.send(Message(topic, b"not this one"))
            tx.end(False)
            with pytest.raises(ClientError, match="ended"):
                tx.send(Message(topic, b"too late"))
        assert reads(asking, topic, 2) == [b"one", b"two"]
        with pytest.raises(InvalidMessage, match="delay"), producer.transaction() as tx:
            tx.send(Message(topic, b"x", delay_level=1))


def test_a_transaction_with_a_listener_ends_as_the_local_transaction_says(asking):
    topic = fresh(asking, "listener")
    asked = []

    def check(message):
        asked.append(message.body)
        return message.body == b"later yes"

    with Producer("pay2", namesrv=asking.namesrv, check=check) as producer:
        done = producer.send_in_transaction(Message(topic, b"yes"), lambda message: True)
        assert done.state is TransactionState.COMMIT
        producer.send_in_transaction(Message(topic, b"no"), lambda message: False)
        producer.send_in_transaction(Message(topic, b"later yes"), lambda message: None)
        with pytest.raises(KeyError):
            producer.send_in_transaction(Message(topic, b"later no"), lambda message: {}["x"])
        with pytest.raises(ClientError, match="True"):
            producer.send_in_transaction(Message(topic, b"odd"), lambda message: "yes")
        until(lambda: {b"later yes", b"later no", b"odd"} <= set(asked))
        assert reads(asking, topic, 2) == [b"later yes", b"yes"]


def test_an_async_check_is_asked_too_and_an_open_block_is_left_alone(asking):
    topic = fresh(asking, "async-check")

    async def scenario():
        asked = []

        async def check(message):
            asked.append(message.body)
            await asyncio.sleep(0)
            return TransactionState.COMMIT

        async with AsyncProducer("pay3", namesrv=asking.namesrv, check=check) as producer:
            async with producer.transaction() as tx:
                await tx.send(Message(topic, b"open"))
                await tx.send(Message(topic, b"second"))
                await asyncio.sleep(0.5)  # asked about meanwhile, several times
                assert asked == []
            done = await producer.send_in_transaction(
                Message(topic, b"async"), lambda message: asyncio.sleep(0, True)
            )
            assert done.state is TransactionState.COMMIT
            async with producer.transaction() as tx:
                await tx.send(Message(topic, b"left"))
                await tx.end(None)
            async with asyncio.timeout(20):
                while b"left" not in asked:
                    await asyncio.sleep(0.02)
            # a producer that stops while it answers leaves the answer to others of its group
            found = await asyncio.to_thread(reads, asking, topic, 4)
        assert found == [b"async", b"left", b"open", b"second"]

    asyncio.run(scenario())


def test_an_end_that_was_lost_is_repeated_when_the_broker_checks_back(scripted_broker):
    scripted_broker.answers[END] = lambda command: None
    with Producer("g", namesrv=scripted_broker.addr, check=lambda message: False) as producer:
        with producer.transaction() as tx:
            sent = tx.send(Message(TOPIC, b"x"))
            half = scripted_broker.requests(RequestCode.SEND_MESSAGE_V2)[0].ext
            assert half["f"] == "4"
            assert "PGROUP\x01g\x02" in half["i"]
            tx.end(True, timeout_s=0.2)  # a warning in the log, no error
        (first,) = scripted_broker.requests(END)
        assert first.ext["commitOrRollback"] == "8"
        scripted_broker.send_request(check_back_request(sent.msg_id))
        until(lambda: len(scripted_broker.requests(END)) == 2)
        second = scripted_broker.requests(END)[1]
        assert second.ext["commitOrRollback"] == "8"
        assert (second.ext["fromTransactionCheck"], second.ext["msgId"]) == ("true", sent.msg_id)
        assert (second.ext["tranStateTableOffset"], second.ext["commitLogOffset"]) == ("3", "99")
        assert second.is_oneway


def test_a_broker_that_checks_back_during_the_commit_gets_one_commit(scripted_broker):
    ends = []

    def ask_first(command):
        ends.append(command.ext["commitOrRollback"])
        if len(ends) > 1:
            return None
        asking = check_back_request(command.ext["msgId"])
        for connection in scripted_broker.clients:
            connection.write(asking.encode())
        return response(command.opaque, 0)

    scripted_broker.answers[END] = ask_first
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        until(lambda: scripted_broker.clients)
        with producer.transaction() as tx:
            sent = tx.send(Message(TOPIC, b"x"))
        until(lambda: len(ends) > 1)
        # asked after the commit, it commits again
        scripted_broker.send_request(check_back_request(sent.msg_id))
        until(lambda: len(ends) > 2)
    assert ends == ["8", "0", "8"]


def test_an_error_in_a_check_and_a_check_back_of_another_group_get_no_answer(scripted_broker):
    def check(message):
        if message.msg_id == "BAD":
            raise OSError("no database")
        return True

    with Producer("g", namesrv=scripted_broker.addr, check=check) as producer:
        producer.send(Message(TOPIC, b"x"))
        until(lambda: scripted_broker.clients)
        scripted_broker.send_request(check_back_request("STRANGE", group="another"))
        scripted_broker.send_request(
            request(RequestCode.CHECK_TRANSACTION_STATE, 5, None, b"no record", oneway=True)
        )
        scripted_broker.send_request(check_back_request("BAD"))
        scripted_broker.send_request(check_back_request("GOOD"))
        until(lambda: scripted_broker.requests(END))
        assert [command.ext["msgId"] for command in scripted_broker.requests(END)] == ["GOOD"]


def test_a_half_message_that_cannot_be_read_does_not_reach_the_check(scripted_broker, caplog):
    checked = []
    damaged = check_back_request("DAMAGED")
    damaged.body = damaged.body.replace(b"half", b"hulf")

    def check(message):
        checked.append(message.body)
        return True

    with Producer("g", namesrv=scripted_broker.addr, check=check) as producer:
        producer.send(Message(TOPIC, b"x"))
        until(lambda: scripted_broker.clients)
        scripted_broker.send_request(damaged)
        scripted_broker.send_request(check_back_request("GOOD"))
        until(lambda: len(scripted_broker.requests(END)) == 2)
    ends = {one.ext["msgId"]: one.ext["commitOrRollback"] for one in scripted_broker.requests(END)}
    assert ends == {"DAMAGED": "0", "GOOD": "8"}
    assert checked == [b"half"]
    assert "the half message DAMAGED cannot be read" in caplog.text


def test_a_refused_end_is_an_error_and_a_half_message_that_is_not_safe_is_rolled_back(
    scripted_broker,
):
    scripted_broker.answers[END] = lambda command: response(command.opaque, 604, remark="too late")
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        with pytest.raises(BrokerError, match="too late"), producer.transaction() as tx:
            tx.send(Message(TOPIC, b"x"))
        scripted_broker.answers[END] = scripted_broker.succeed
        ok = scripted_broker.stored

        def unsafe(command):
            answer = ok(command)
            answer.code = 12
            return answer

        scripted_broker.answers[RequestCode.SEND_MESSAGE_V2] = unsafe
        with pytest.raises(BrokerError, match="FLUSH_SLAVE_TIMEOUT"), producer.transaction() as tx:
            tx.send(Message(TOPIC, b"x"))
        assert [command.ext["commitOrRollback"] for command in scripted_broker.requests(END)] == [
            "8",
            "12",
        ]


def test_a_producer_without_a_check_says_once_that_it_is_asked_for_one(scripted_broker, caplog):
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"x"))
        until(lambda: scripted_broker.clients)
        for name in ("ONE", "TWO"):
            scripted_broker.send_request(check_back_request(name))
        until(lambda: len(scripted_broker.requests(END)) == 2)
    assert {command.ext["commitOrRollback"] for command in scripted_broker.requests(END)} == {"0"}
    assert caplog.text.count("has no check: give it one") == 1
    assert "the half message ONE" in caplog.text
