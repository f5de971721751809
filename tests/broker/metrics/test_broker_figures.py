"""What a broker shows monitoring: Apache's names and labels, of what really happened."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

from broker.delivery.send_back_commands import send_back
from broker.delivery.transaction_commands import COMMIT, ROLLBACK, SELDOM, end, half
from broker.harness import run, running
from cometmq.broker.metrics import exported_metrics, metric_definitions
from cometmq.metrics.instruments import HistogramCounts
from cometmq.metrics.registry import Metric
from cometmq.monitoring import monitoring_server, prometheus_writer
from cometmq.namesrv import name_server_figures

if TYPE_CHECKING:
    from broker.commands import Harness

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "metrics.md"
BEHIND = (
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_lag_latency_milliseconds",
    "rocketmq_consumer_inflight_messages",
    "rocketmq_consumer_queueing_latency_milliseconds",
    "rocketmq_consumer_ready_messages",
)


async def shown(harness: Harness, series_max: int = 1000) -> dict[str, dict[str, float]]:
    """Each metric by name: values by labels, as `topic=T,is_system=false`."""
    found: dict[str, dict[str, float]] = {}
    async for metric, labels, value in harness.broker.figures.each(series_max):
        if not isinstance(value, HistogramCounts):
            pairs = zip(metric.labels, labels, strict=True)
            key = ",".join(f"{name}={text}" for name, text in pairs)
            assert key not in found.setdefault(metric.name, {})
            found[metric.name][key] = value
    return found


def test_traffic_has_apaches_labels() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.create_topic("Ordered", attributes="+message.type=FIFO")
            for topic in ("T", "T", "Ordered"):
                await client.send(topic, b"x" * 10)
            await client.beat("CG", "T")
            await client.pull("T")
            found = await shown(harness)
            sent = "topic=T,message_type=normal,is_system=false"
            ordered = "topic=Ordered,message_type=fifo,is_system=false"
            assert found["rocketmq_messages_in_total"] == {sent: 2, ordered: 1}
            assert found["rocketmq_throughput_in_total"][sent] > 20
            pulled = "topic=T,consumer_group=CG,is_system=false"
            assert found["rocketmq_messages_out_total"] == {pulled: 2}
            assert found["rocketmq_throughput_out_total"][pulled] > 20
            assert found["rocketmq_topic_number"][""] > 2
            assert found["rocketmq_consumer_group_number"][""] > 0
            assert found["rocketmq_broker_permission"] == {"": 6}
            disk = "storage_type=local,storage_medium=disk"
            for name in ("flush_behind_bytes", "dispatch_behind_bytes", "size_bytes"):
                assert found[f"rocketmq_storage_{name}"].keys() == {disk}
            assert found["rocketmq_storage_message_reserve_time_milliseconds"][disk] >= 0
            assert found["cometmq_connections"] == {"": 1}
            assert "cometmq_queue_messages_out_total" not in found

    run(scenario())


def test_lag_is_in_messages_and_milliseconds_for_groups_with_and_without_members() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(5):
                await client.send("T")
            await client.beat("CG", "T")
            await client.commit(1)
            await asyncio.sleep(7)
            await client.send("T")
            await client.pull("T", queue_offset=1, max_msg_nums=3)
            labels = "consumer_group=CG,topic=T,is_retry=false,is_system=false"
            found = await shown(harness)
            assert [found[name][labels] for name in BEHIND] == [5, 7000, 3, 7000, 2]
            harness.close_clients()
            await asyncio.sleep(1)
            assert "CG" not in harness.broker.state.clients.consumers
            found = await shown(harness)
            assert found["rocketmq_consumer_lag_messages"][labels] == 5

    run(scenario())


def test_a_group_that_is_done_is_not_behind_and_one_without_offsets_neither() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            await client.beat("CG", "T")
            await client.beat("Done", "T")
            await client.commit(1, consumerGroup="Done")
            found = await shown(harness)
            for group in ("CG", "Done"):
                labels = f"consumer_group={group},topic=T,is_retry=false,is_system=false"
                assert [found[name][labels] for name in BEHIND] == [0, 0, 0, 0, 0]

    run(scenario())


def test_connections_are_counted_by_language_version_and_mode() -> None:
    async def scenario() -> None:
        async with running() as harness:
            for client_id in ("c1", "c2"):
                client = await harness.client()
                await client.beat("CG", "T", client_id=client_id)
            found = await shown(harness)
            consumers = found["rocketmq_consumer_connections"]
            assert consumers == {
                "consumer_group=CG,language=python,version=v5_3_3,consume_mode=push,"
                "protocol_type=remoting,is_system=false": 2
            }

    run(scenario())


def test_retries_and_dead_letters_are_apart_from_traffic() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            await client.beat("CG", "T", "%RETRY%CG")
            (record,) = await client.drain("T")
            assert (await send_back(client, record, delayLevel=-1)).code == 0
            found = await shown(harness)
            dead = "consumer_group=CG,topic=T,is_system=false"
            assert found["rocketmq_send_to_dlq_messages_total"] == {dead: 1}
            assert not [key for key in found["rocketmq_messages_in_total"] if "%" in key]
            retry = "consumer_group=CG,topic=%RETRY%CG,is_retry=true,is_system=false"
            assert found["rocketmq_consumer_lag_messages"][retry] == 0

    run(scenario())


def test_ends_of_transactions_are_counted_by_the_real_topic() -> None:
    async def scenario() -> None:
        async with running(**SELDOM) as harness:
            client = await harness.client()
            for how in (COMMIT, COMMIT, ROLLBACK):
                answer = await half(client)
                assert (await end(client, answer, how)).code == 0
                await end(client, answer, how)  # a second end changes nothing
            found = await shown(harness)
            assert found["rocketmq_commit_messages_total"] == {"topic=T": 2}
            assert found["rocketmq_rollback_messages_total"] == {"topic=T": 1}

    run(scenario())


def test_offsets_are_not_read_for_many_more_series_than_the_bound() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            for number in range(9):
                await client.beat(f"G{number}", "T")
            found = await shown(harness, series_max=3)
            assert len(found["rocketmq_consumer_lag_messages"]) == 4

    run(scenario())


def test_the_page_names_every_metric() -> None:
    named = set(re.findall(r"`((?:rocketmq|cometmq)_\w+)`", PAGE.read_text(encoding="utf-8")))
    modules = (metric_definitions, exported_metrics, name_server_figures, monitoring_server)
    known = {
        each.name
        for module in (*modules, prometheus_writer)
        for each in vars(module).values()
        if isinstance(each, Metric)
    }
    assert known - named == exported_metrics.NOT_SHOWN
