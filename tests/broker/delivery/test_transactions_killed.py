"""kill -9 in the middle of transactions: ended ones stay ended, open ones are asked about."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker.broker_process import BrokerProcess
from broker.commands import Client
from broker.delivery.transaction_commands import COMMIT, HALF, ROLLBACK, end, half, produce
from broker.sockets import run
from cometmq.errors import RemotingError
from cometmq.net.channel import Channel, connect
from cometmq.runtime.system_clock_and_files import SystemClock
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import Command, request
from cometmq.wire.headers.transaction import EndTransactionRequestHeader

if TYPE_CHECKING:
    from pathlib import Path


class Producer:
    """Sends half messages, ends some, and answers every question with its verdict."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.sent = 0

    @staticmethod
    def verdict(key: str) -> int:
        return ROLLBACK if key.endswith(("3", "6", "9")) else COMMIT

    def answer(self, asked: Command, channel: Channel) -> None:
        if asked.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        header = EndTransactionRequestHeader(
            producer_group="PG",
            tran_state_table_offset=int(asked.ext["tranStateTableOffset"]),
            commit_log_offset=int(asked.ext["commitLogOffset"]),
            commit_or_rollback=self.verdict(asked.ext["msgId"]),
            from_transaction_check=True,
            msg_id=asked.ext["msgId"],
        )
        channel.oneway(request(RequestCode.END_TRANSACTION, 0, header, oneway=True))

    async def work(self, client: Client) -> None:
        """One transaction after the other, each third without an end, until the kill."""
        while True:
            key = f"K{self.sent}"
            self.sent += 1
            try:
                answer = await half(client, key, born_timestamp=SystemClock().now_ms())
                self.acknowledged.add(key)
                if self.sent % 3:
                    await end(client, answer, self.verdict(key))
            except RemotingError:
                return


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_every_acknowledged_half_message_ends_as_its_producer_says(
    tmp_path: Path, flush: str
) -> None:
    async def scenario() -> None:
        producer = Producer()
        for _ in range(2):
            process = BrokerProcess(tmp_path, flush)
            client = Client(
                await connect(process.address, on_request=producer.answer), asyncio.Queue()
            )
            await produce(client)
            await process.kill_amid(producer.work(client), lambda: producer.sent, 60)
            client.close()
        process = BrokerProcess(tmp_path, flush)
        client = Client(await connect(process.address, on_request=producer.answer), asyncio.Queue())
        await produce(client)
        wanted = {key for key in producer.acknowledged if producer.verdict(key) == COMMIT}
        seen: set[str] = set()
        while not wanted <= seen:
            await asyncio.sleep(0.1)
            seen = {record.body.decode() for record in await client.drain("T")}
        assert all(producer.verdict(key) == COMMIT for key in seen)
        halves = {record.body.decode() for record in await client.drain(HALF)}
        assert seen <= halves
        client.close()
        process.kill()

    run(scenario())
