"""A message goes in at one end and comes out at the other."""

from __future__ import annotations

from broker.commands import properties_of, records
from broker.harness import new_disk, run, running


def test_a_message_that_was_sent_is_pulled_with_all_it_carried() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            sent = await client.send("T", b"hello", flag=7, properties={"TAGS": "A", "x": "y"})
            assert sent.code == 0, sent
            assert sent.ext["queueId"] == "0"
            assert sent.ext["queueOffset"] == "0"
            assert len(sent.ext["msgId"]) == 32

            pulled = await client.pull("T")
            assert pulled.code == 0, pulled
            (record,) = records(pulled)
            assert (record.body, record.flag, record.topic) == (b"hello", 7, "T")
            shown = properties_of(record)
            assert shown["TAGS"] == "A"
            assert shown["x"] == "y"

    run(scenario())


def test_what_was_acknowledged_is_there_after_a_stop_and_a_start() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client = await harness.client()
            for number in range(3):
                assert (await client.send("T", b"%d" % number)).code == 0
        async with running(disk=disk) as harness:
            client = await harness.client()
            assert [record.body for record in records(await client.pull("T"))] == [b"0", b"1", b"2"]

    run(scenario())
