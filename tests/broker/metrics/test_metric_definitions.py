"""Every metric of the catalog is registered by a broker, and admin answers read it there."""

from broker.harness import run, running
from cometmq.broker.metrics import metric_definitions as catalog
from cometmq.metrics.registry import Metric
from cometmq.wire.bodies.name_lists import decode_kv_table
from cometmq.wire.codes import RequestCode as Code

CATALOG = [each for each in vars(catalog).values() if isinstance(each, Metric)]


def test_a_broker_registers_every_metric_of_the_catalog_with_unit_and_description() -> None:
    async def scenario() -> None:
        async with running() as harness:
            registered = harness.broker.state.metrics.metrics
            assert sorted(metric.name for metric in CATALOG) == [each.name for each in registered]
            assert all(metric.unit and metric.description for metric in registered)

    run(scenario())


def test_what_passes_through_is_read_in_the_registry() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(3):
                await client.send("T")
            await client.beat("CG", "T")
            await client.pull("T")
            metrics = harness.broker.state.metrics
            assert metrics.value(catalog.MESSAGES_IN, "T") == 3
            assert metrics.value(catalog.SENDS, "T") == 3
            assert metrics.value(catalog.MESSAGES_OUT, "T", "CG") == 3
            assert metrics.value(catalog.PULLS, "T", "CG") == 1
            assert metrics.value(catalog.QUEUE_MESSAGES_OUT, "T", "0", "CG") == 3
            assert metrics.value(catalog.BYTES_IN, "T") == metrics.value(catalog.LOG_MAX_OFFSET)
            assert metrics.value(catalog.CONNECTION_EVENTS, "CONNECT") == 1
            samples = {each.metric.name for each in metrics.collect()}
            assert {"rocketmq_messages_in_total", "cometmq_put_seconds"} <= samples

    run(scenario())


def test_the_runtime_info_shows_what_the_registry_has() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            answer = await client.call(Code.GET_BROKER_RUNTIME_INFO)
            shown = decode_kv_table(answer.body)
            metrics = harness.broker.state.metrics
            for key, metric in (
                ("commitLogMaxOffset", catalog.LOG_MAX_OFFSET),
                ("putMessageFailedTimes", catalog.PUTS_FAILED),
                ("dispatchBehindBytes", catalog.DISPATCH_BEHIND),
            ):
                assert int(shown[key]) == metrics.value(metric), key
            assert int(shown["commitLogMaxOffset"]) > 0

    run(scenario())
