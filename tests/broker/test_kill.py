"""kill -9 in the middle of sends: what was acknowledged is there, in order, once for each send."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker.broker_process import BrokerProcess, client_of
from broker.commands import TIMEOUT_S, Client, received, send_header
from broker.sockets import run
from cometmq.errors import RemotingError
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request

if TYPE_CHECKING:
    from pathlib import Path


async def send_until_killed(client: Client, round_number: int, acknowledged: list[bytes]) -> None:
    """Send one by one and note what was acknowledged, until the connection breaks."""
    number = 0
    while True:
        body = b"%d-%05d" % (round_number, number)
        header = send_header("T", properties={"UNIQ_KEY": body.decode().replace("-", "x")})
        command = request(RequestCode.SEND_MESSAGE_V2, 0, header, body)
        try:
            answer = await client.channel.call(command, TIMEOUT_S)
        except RemotingError:
            return
        assert answer.code == 0, answer
        acknowledged.append(body)
        number += 1


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(
    tmp_path: Path, flush: str
) -> None:
    async def scenario() -> None:
        acknowledged: list[bytes] = []
        for round_number in range(3):
            process = BrokerProcess(tmp_path, flush)
            client = await client_of(process)
            sending = send_until_killed(client, round_number, acknowledged)
            await process.kill_amid(sending, lambda: len(acknowledged), 100)
            client.close()
        process = BrokerProcess(tmp_path, flush)
        client = await client_of(process)
        stored = [record.body for record in await client.drain("T")]
        assert len(acknowledged) >= 300
        assert [body for body in stored if body in set(acknowledged)] == acknowledged
        assert len(stored) <= len(acknowledged) + 3, "one unanswered send a round"
        client.close()
        process.kill()

    run(scenario())


def test_a_kill_among_deliveries_repeats_none_and_loses_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = BrokerProcess(tmp_path, "ASYNC_FLUSH")
        client = await client_of(process)
        wanted = [b"%03d" % number for number in range(400)]
        for first in range(0, 400, 20):
            keys = [body.decode() for body in wanted[first : first + 20]]
            sends = [
                client.send("T", key.encode(), properties={"UNIQ_KEY": key, "DELAY": "1"})
                for key in keys
            ]
            assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
            await asyncio.sleep(0.04)
        before = await received(client, 50)
        process.kill()
        client.close()
        process = BrokerProcess(tmp_path, "ASYNC_FLUSH")
        client = await client_of(process)
        await received(client, 400)
        await asyncio.sleep(0.3)
        came = [record.body for record in await client.drain("T")]
        assert len(before) < 400, "the kill came too late to show anything"
        assert sorted(came) == wanted
        client.close()
        process.kill()

    run(scenario())


def test_delayed_messages_survive_the_kill(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = BrokerProcess(tmp_path, "ASYNC_FLUSH")
        client = await client_of(process)
        for number in range(10):
            properties = {"UNIQ_KEY": f"K{number}", "DELAY": "2"}
            assert (await client.send("T", b"%d" % number, properties=properties)).code == 0
        process.kill()
        client.close()
        process = BrokerProcess(tmp_path, "ASYNC_FLUSH")
        client = await client_of(process)
        stored = [record.body for record in await received(client, 10)]
        assert stored == [b"%d" % number for number in range(10)]
        client.close()
        process.kill()

    run(scenario())
