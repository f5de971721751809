"""What `producer.stats()` says, of each way to send, beside what was sent."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from cometmq import AsyncProducer, Message, Producer, RemotingError
from cometmq.testing.cluster import InProcessCluster, LocalCluster
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import Command, request

if TYPE_CHECKING:
    from pathlib import Path


def test_every_way_to_send_is_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcessCluster(tmp_path) as cluster:
            producer = AsyncProducer("counted", namesrv=cluster.namesrv)
            assert producer.stats().brokers == {}
            async with producer:
                await producer.send(Message("Counted", b"the route is fetched"))
                for _ in range(5):
                    await producer.send(Message("Counted", b"fast"))
                    await producer.send(Message("Counted", b"keyed", sharding_key="k"))
                await producer.send_batch([Message("Counted", b"1"), Message("Counted", b"2")])
                await producer.send_many([Message("Counted", b"%d" % n) for n in range(10)])
                await producer.send(Message("Counted", b"x", properties={"slow": "path"}))
                totals = producer.pipeline.statistics.totals()["broker-a"]
                assert totals.failed == 0
                assert 1 + 10 + 1 + 1 + 1 <= totals.ok <= 1 + 10 + 1 + 10 + 1
                found = producer.stats()
                assert list(found.brokers) == ["broker-a"]
                assert found.ok_per_second > 0
                assert found.failed_per_second == 0
                assert 0 < found.brokers["broker-a"].latency_ms < 10_000
                assert found.in_flight == found.pending == 0
                assert found.avoided == []

    asyncio.run(scenario())


def test_threads_that_send_themselves_are_counted_and_those_whose_connection_broke(
    tmp_path: Path,
) -> None:
    with (
        LocalCluster(tmp_path, broker_name="broker-a") as cluster,
        Producer("threads", namesrv=cluster.namesrv, retries=0) as producer,
    ):
        producer.send(Message("Counted", b"the route is fetched"))

        def send() -> None:
            for _ in range(50):
                producer.send(Message("Counted", b"x"))

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        before = producer._inner.pipeline.statistics.totals()["broker-a"]
        assert before.ok == 201
        cluster.kill()
        for _ in range(3):
            with pytest.raises(RemotingError):
                producer.send(Message("Counted", b"x"), 1.0)
        found = producer.stats()
        assert found.failed_per_second > 0
        assert found.in_flight == 0
        after = producer._inner.pipeline.statistics.totals()["broker-a"]
        assert (after.ok, after.failed) == (201, 3)


def test_who_is_avoided_and_for_how_long_is_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcessCluster(tmp_path) as cluster:
            producer = AsyncProducer(
                "avoiding", namesrv=cluster.namesrv, latency_fault="classic", retries=0
            )
            async with producer:
                await producer.send(Message("Counted", b"x"))
                assert producer.stats().avoided == []
                await cluster.role.stop()
                with pytest.raises(RemotingError):
                    await producer.send(Message("Counted", b"x"), 1.0)
                found = producer.stats()
                assert found.avoided == ["broker-a"]
                assert 500 < found.brokers["broker-a"].avoided_s <= 600

    asyncio.run(scenario())


def test_sends_without_an_answer_are_in_flight() -> None:
    async def scenario() -> None:
        release = asyncio.Event()

        async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await release.wait()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with AsyncProducer("held", namesrv="127.0.0.1:1", retries=0) as producer:
            addr = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            channel = await producer.pipeline.session.pool.channel(addr)
            before = producer.pipeline.session.pool.in_flight(addr)  # the heartbeat
            waiting = asyncio.ensure_future(channel.call(_request(), 10.0))
            await asyncio.sleep(0)
            assert producer.pipeline.session.pool.in_flight(addr) == before + 1
            release.set()
            with pytest.raises(RemotingError):
                await waiting
            assert producer.pipeline.session.pool.in_flight(addr) == 0
        server.close()

    asyncio.run(scenario())


def _request() -> Command:
    return request(RequestCode.GET_BROKER_RUNTIME_INFO, 0)
