"""Every request to a broker passes the admission hook: all codes, and all fast paths."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from broker.commands import Client, make_topic, pull_header, send_header
from broker.harness import new_broker, run, running
from cometmq.broker.app import Broker
from cometmq.net.endpoint import Endpoint, RequestResources
from cometmq.net.handler import Reply
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request, response
from cometmq.wire.records import message_batch
from cometmq.wire.records.message_batch import BatchItem
from net.admission_hook import REFUSED, REMARK, Hook

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes of requests that reach a handler of the broker, which answers nothing else."""
    codes: list[int] = []

    def spy(command: Command, _connection: Connection) -> Reply:
        codes.append(command.code)
        return Reply()

    make = Broker._make_dispatcher

    def spied(self: Broker, endpoints: list[Endpoint], *args: Any) -> Any:
        return make(self, [replace(each, handler=spy) for each in endpoints], *args)

    monkeypatch.setattr(Broker, "_make_dispatcher", spied)
    return codes


async def call_all(client: Client, codes: list[int]) -> list[Command]:
    return [await client.channel.call(request(code, 0), 10) for code in codes]


def test_every_code_is_refused_before_its_handler_and_counted_once(reached: list[int]) -> None:
    async def scenario() -> None:
        hook = Hook()
        hook.refuses_all = True
        async with running(admission=hook) as harness:
            codes = sorted(harness.broker.codes)
            answers = await call_all(await harness.client(), codes)
            assert {(answer.code, answer.remark) for answer in answers} == {(REFUSED, REMARK)}
            assert hook.asked == dict.fromkeys(codes, 1)
            assert reached == []

    run(scenario())


def test_every_admitted_code_reaches_its_handler_once(reached: list[int]) -> None:
    async def scenario() -> None:
        hook = Hook()
        async with running(admission=hook) as harness:
            codes = sorted(harness.broker.codes)
            await call_all(await harness.client(), codes)
            assert reached == codes
            assert hook.asked == dict.fromkeys(codes, 1)

    run(scenario())


def test_every_code_is_answered_after_the_delay(reached: list[int]) -> None:
    async def scenario() -> None:
        hook = Hook()
        hook.delay_s = 5.0
        async with running(admission=hook) as harness:
            client, loop = await harness.client(), asyncio.get_running_loop()
            for code in sorted(harness.broker.codes):
                begun = loop.time()
                asked = asyncio.ensure_future(client.channel.call(request(code, 0), 10))
                await asyncio.sleep(4.9)
                assert code not in reached
                assert not asked.done()
                await asked
                assert loop.time() - begun >= 5.0
                assert reached[-1] == code

    run(scenario())


def test_one_way_requests_of_every_code_are_asked_about_and_responses_are_not(
    reached: list[int],
) -> None:
    async def scenario() -> None:
        hook = Hook()
        hook.refuses_all = True
        async with running(admission=hook) as harness:
            client, codes = await harness.client(), sorted(harness.broker.codes)
            for code in codes:
                client.channel.oneway(request(code, 0, oneway=True))
            client.channel.answer(response(1, 0))
            await asyncio.sleep(1)
            assert hook.asked == dict.fromkeys(codes, 1)
            assert reached == []

    run(scenario())


def test_the_list_of_endpoints_is_what_the_broker_answers() -> None:
    async def scenario() -> None:
        broker = new_broker()
        codes = [each.code for each in broker._handlers.endpoints()]
        others = {
            RequestCode.GET_BROKER_CONFIG,
            RequestCode.UPDATE_BROKER_CONFIG,
            RequestCode.GET_BROKER_HA_STATUS,
            RequestCode.GET_BROKER_EPOCH_CACHE,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        }
        others |= {each.code for each in broker._handlers._environment.access.endpoints()}
        assert len(codes) == len(set(codes))
        assert set(codes) | others == broker.codes
        broker.store.abandon()

    run(scenario())


async def stored(harness: Any, topic: str = "T") -> int:
    return sum(harness.broker.store.max_offset(topic, queue_id) for queue_id in range(4))


def watch(harness: Any) -> list[int]:
    """The codes of frames that the slow path gets from now on."""
    server, codes = harness.broker._server, []
    answer = server.answer

    def watched(frame: Any, connection: Any) -> None:
        codes.append(frame)
        answer(frame, connection)

    server.answer = watched
    return codes


def test_a_learned_send_is_refused_when_the_rules_change() -> None:
    async def scenario() -> None:
        hook = Hook()
        async with running(admission=hook) as harness:
            await make_topic(harness)
            slow, client = watch(harness), await harness.client()
            for _ in range(4):
                assert (await client.send("T")).code == 0
            assert hook.asked[RequestCode.SEND_MESSAGE_V2] == len(slow) < 4, "the rest was fast"
            hook.refused_topics = {"T"}
            hook.rules_changed()
            for _ in range(3):
                answer = await client.send("T")
                assert (answer.code, answer.remark) == (REFUSED, REMARK)
            assert hook.asked[RequestCode.SEND_MESSAGE_V2] == len(slow)
            assert await stored(harness) == 4
            hook.refused_topics = set()
            hook.rules_changed()
            asked = hook.asked.total()
            for _ in range(4):
                assert (await client.send("T")).code == 0
            assert hook.asked.total() - asked < 4, "it is fast again"
            assert await stored(harness) == 8

    run(scenario())


def test_a_run_of_learned_sends_in_one_chunk_is_refused_when_the_rules_change() -> None:
    async def scenario() -> None:
        hook = Hook()
        async with running(admission=hook) as harness:
            await make_topic(harness)
            client = await harness.client()

            async def burst() -> list[Command]:
                commands = [
                    request(RequestCode.SEND_MESSAGE_V2, 0, send_header("T"), b"hello")
                    for _ in range(32)
                ]
                return await asyncio.gather(
                    *(client.channel.call(command, 10) for command in commands)
                )

            for _ in range(3):
                assert {answer.code for answer in await burst()} == {0}
            asked = hook.asked.total()
            assert asked < 96, "most were fast"
            hook.refused_topics = {"T"}
            hook.rules_changed()
            assert {answer.code for answer in await burst()} == {REFUSED}
            assert hook.asked.total() == asked + 32
            assert await stored(harness) == 96

    run(scenario())


def test_a_learned_pull_is_refused_when_the_rules_change() -> None:
    async def scenario() -> None:
        hook = Hook()
        async with running(admission=hook) as harness:
            await make_topic(harness)
            client = await harness.client()
            for _ in range(8):
                await client.send("T")
            await client.beat("CG", "T")
            slow = watch(harness)
            consumer = await harness.client()
            for _ in range(4):
                assert (await consumer.pull("T")).code == 0
            assert hook.asked[RequestCode.PULL_MESSAGE] == len(slow) < 4, "the rest was fast"
            hook.refused_topics = {"T"}
            hook.rules_changed()
            for _ in range(3):
                assert (await consumer.pull("T")).code == REFUSED
            assert hook.asked[RequestCode.PULL_MESSAGE] == len(slow)
            hook.refused_topics = set()
            hook.rules_changed()
            for _ in range(4):
                assert (await consumer.pull("T")).code == 0

    run(scenario())


def test_what_is_admitted_for_now_only_is_never_fast() -> None:
    async def scenario() -> None:
        hook = Hook()
        hook.is_standing = False
        async with running(admission=hook) as harness:
            await make_topic(harness)
            client = await harness.client()
            for count in range(1, 9):
                assert (await client.send("T")).code == 0
                assert (await client.pull("T")).code == 0
                assert hook.asked[RequestCode.SEND_MESSAGE_V2] == count
                assert hook.asked[RequestCode.PULL_MESSAGE] == count

    run(scenario())


def test_one_connection_learns_nothing_for_another() -> None:
    async def scenario() -> None:
        hook = Hook()
        async with running(admission=hook) as harness:
            await make_topic(harness)
            first, second = await harness.client(), await harness.client()
            for _ in range(4):
                await first.send("T")
            hook.refused_topics = {"T"}  # no rule changed for those who are admitted
            assert (await second.send("T")).code == REFUSED
            assert (await first.send("T")).code == 0

    run(scenario())


def test_a_batch_is_one_request() -> None:
    async def scenario() -> None:
        hook = Hook()
        async with running(admission=hook) as harness:
            await make_topic(harness)
            client = await harness.client()
            body = message_batch.encode([BatchItem(0, b"one", b""), BatchItem(0, b"two", b"")])
            header = send_header("T", batch=True)
            answer = await client.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
            assert answer.code == 0
            assert hook.asked == {RequestCode.SEND_BATCH_MESSAGE: 1}
            hook.refused_topics = {"T"}
            hook.rules_changed()
            answer = await client.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
            assert answer.code == REFUSED
            assert await stored(harness) == 2

    run(scenario())


def test_a_held_pull_is_asked_about_once() -> None:
    async def scenario() -> None:
        hook = Hook()
        async with running(admission=hook) as harness:
            await make_topic(harness)
            client, consumer = await harness.client(), await harness.client()
            header = pull_header("T", sys_flag=6, suspend_timeout_ms=15_000)
            held = asyncio.ensure_future(consumer.call(RequestCode.PULL_MESSAGE, header))
            await asyncio.sleep(1)
            assert (await client.send("T")).code == 0
            assert (await held).code == ResponseCode.SUCCESS
            assert hook.asked[RequestCode.PULL_MESSAGE] == 1

    run(scenario())


def test_requests_whose_body_names_them_are_about_its_topics_and_groups() -> None:
    async def scenario() -> None:
        hook = Hook()
        async with running(admission=hook) as harness:
            client = await harness.client()
            await client.beat("CG", "T", "U")
            await client.send("T")
            beat, send = hook.requests
            assert beat.resources == RequestResources(("T", "U"), ("CG",), ("PG",))
            assert send.resources == RequestResources(("T",), (), ("PG",))
            hook.refused_topics = {"T"}
            broken = await client.call(RequestCode.HEART_BEAT, None, b"{")
            assert broken.code == ResponseCode.SYSTEM_ERROR

    run(scenario())
