"""A message goes in at one end and comes out at the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.rig import properties_of, records, run, running

if TYPE_CHECKING:
    from pathlib import Path


def test_a_message_that_was_sent_is_pulled_with_all_it_carried(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as rig:
            client = await rig.client()
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

    run(story())


def test_what_was_acknowledged_is_there_after_a_stop_and_a_start(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as rig:
            client = await rig.client()
            for number in range(3):
                assert (await client.send("T", b"%d" % number)).code == 0
        async with running(tmp_path) as rig:
            client = await rig.client()
            assert [record.body for record in records(await client.pull("T"))] == [b"0", b"1", b"2"]

    run(story())
