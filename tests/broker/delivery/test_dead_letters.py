"""Dead letters: once or each time, known again after a start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker.commands import Client, Harness, properties_of, records
from broker.delivery.send_back_commands import send_and_pull, send_back
from broker.harness import new_disk, run, running
from cometmq.store.message_draft import MessageDraft

if TYPE_CHECKING:
    from cometmq.store.put_result import PutResult


SHORT = {"message_delay_level": "1s 1s 1s 1s 1s"}
RETRY, DEAD = "%RETRY%CG", "%DLQ%CG"


async def use_up_attempts(harness: Harness, client: Client, keys: str) -> None:
    for key in keys:
        extra = {"UNIQ_KEY": key, "RETRY_TOPIC": "T"}
        answer = await client.send(
            RETRY, b"hard", properties=extra, reconsume_times=1, max_reconsume_times=0
        )
        assert answer.code == 0
        assert answer.ext["queueOffset"].isdigit()
    assert harness.broker.state.topics.get(DEAD)


@pytest.mark.parametrize(("once", "lie"), [(True, "AB"), (False, "ABAA")])
def test_a_setting_decides_whether_a_message_becomes_a_dead_letter_more_than_once(
    once: bool, lie: str
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        settings = {**SHORT, "dead_letter_deduplicate": once}
        async with running(disk=disk, **settings) as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            await use_up_attempts(harness, client, "ABA")
        async with running(disk=disk, **settings) as harness:
            client = await harness.client()
            await use_up_attempts(harness, client, "A")
            dead = await client.drain(DEAD)
            assert "".join(properties_of(record)["UNIQ_KEY"] for record in dead) == lie

    run(scenario())


def test_a_repeated_dead_letter_is_answered_with_the_place_of_the_first() -> None:
    async def scenario() -> None:
        async with running(dead_letter_deduplicate=True) as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            answers = [
                await client.send(RETRY, b"hard", reconsume_times=1, max_reconsume_times=0)
                for _ in range(2)
            ]
            assert answers[0].ext == answers[1].ext

    run(scenario())


def test_one_message_may_become_a_dead_letter_of_two_groups() -> None:
    async def scenario() -> None:
        async with running(dead_letter_deduplicate=True) as harness:
            client = await harness.client()
            record = await send_and_pull(client)
            await client.beat("DG", "T")
            for group in ("CG", "DG"):
                assert (await send_back(client, record, group=group, delayLevel=-1)).code == 0
                assert len(records(await client.pull("%DLQ%" + group))) == 1

    run(scenario())


def test_old_dead_letters_are_read_back_after_the_start() -> None:
    def letter(number: int) -> MessageDraft:
        return MessageDraft("T", 0, b"x", b"UNIQ_KEY\x01id-%d\x02" % number)

    def put(harness: Harness, number: int) -> PutResult:
        letters, cached = harness.broker.state.dead_letters, harness.broker.store.cold_reader.cached
        return letters.put("G", letter(number), letters.prepare("G", cached))

    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, dead_letter_deduplicate=True) as harness:
            first = [put(harness, number) for number in range(700)]
        async with running(disk=disk, dead_letter_deduplicate=True) as harness:
            letters = harness.broker.state.dead_letters
            assert put(harness, 699).queue_offset == first[699].queue_offset
            async with asyncio.timeout(20):
                while len(letters._origins["%DLQ%G"]) < 700:
                    await asyncio.sleep(0.01)
            for number in (0, 1, 350, 698):
                assert put(harness, number).queue_offset == first[number].queue_offset
            assert put(harness, 700).queue_offset == 700

    run(scenario())
