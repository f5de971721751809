"""Commits as Apache's broker needs them: it forgets one of two first ones that come at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from cometmq.client.offsets.broker_offsets import BrokerOffsets
from cometmq.errors import RemotingError
from cometmq.model.queue import MessageQueue
from cometmq.wire.headers.offset import UpdateConsumerOffsetRequestHeader

if TYPE_CHECKING:
    from cometmq.client.session.client_session import ClientSession
    from cometmq.wire.command import Command

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


class ApacheOffsets:
    """A session whose broker handles commits side by side, each in two steps, as Apache's does."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, int]] = {}
        self.routes = SimpleNamespace(read_addr=lambda _broker, _id: "addr")
        self.at_once = self.at_once_max = 0
        self.failures = 0

    async def call_checked(self, addr: str, command: Command, timeout_s: float | None) -> None:
        header = UpdateConsumerOffsetRequestHeader.decode(command.ext)
        if self.failures:
            self.failures -= 1
            raise RemotingError("the connection broke")
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        table = self.tables.get(header.topic)
        for _ in range(10):
            await asyncio.sleep(0)
        if table is None:
            table = self.tables[header.topic] = {}
        table[header.queue_id] = header.commit_offset
        self.at_once -= 1


def commits(broker: ApacheOffsets, queues: list[MessageQueue]) -> list[Any]:
    async def commit_all() -> list[Any]:
        offsets = BrokerOffsets(cast("ClientSession", broker))
        return await asyncio.gather(
            *(offsets.commit("g", queue, 10 + queue.queue_id) for queue in queues),
            return_exceptions=True,
        )

    return asyncio.run(commit_all())


def test_all_first_commits_are_kept_and_all_but_one_go_at_once() -> None:
    broker = ApacheOffsets()
    commits(broker, [*QUEUES, MessageQueue("U", "broker-a", 0)])
    assert broker.tables == {"T": {0: 10, 1: 11, 2: 12, 3: 13}, "U": {0: 10}}
    assert broker.at_once_max == 3


@pytest.mark.parametrize("failures", [1, 2, 4])
def test_a_first_commit_that_fails_is_its_own_caller_s_error(failures: int) -> None:
    broker = ApacheOffsets()
    broker.failures = failures
    errors = [one for one in commits(broker, QUEUES) if one is not None]
    assert [str(error) for error in errors] == ["the connection broke"] * failures
    assert len(broker.tables.get("T", {})) == len(QUEUES) - failures
