"""What a slave copies beside the log, where the master refuses or has lost something."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from broker.harness import new_disk, run
from broker.replication.broker_pair import SLAVE, commit, pair, until
from cometmq.broker.groups.offset_requests import OffsetRequestHandler
from cometmq.errors import Reject
from cometmq.net.tls_contexts import TlsContexts
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.net.handler import Reply
    from cometmq.wire.command import Command


def test_a_commit_that_the_master_refuses_is_carried_again_and_not_lost(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing: list[bool] = []
    update = OffsetRequestHandler.update

    def refuse_or_update(handler: OffsetRequestHandler, asked: Command, by: Connection) -> Reply:
        if refusing:
            raise Reject(ResponseCode.SYSTEM_ERROR, "not today")
        return update(handler, asked, by)

    monkeypatch.setattr(OffsetRequestHandler, "update", refuse_or_update)

    async def scenario() -> None:
        disk = new_disk()
        async with pair() as brokers:
            slave = await brokers.slave_alone(disk)
            offsets = slave.broker.state.offsets
            await commit(await slave.client(), 8)
            refusing.append(True)
            back = await brokers.start(disk=disk)
            await until(lambda: "not today" in caplog.text)
            await asyncio.sleep(40)
            assert offsets.committed("CG", "T", 0) == 8
            refusing.clear()
            await until(lambda: back.broker.state.offsets.committed("CG", "T", 0) == 8)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert caplog.text.count("not today") == 1


def test_delay_offsets_of_a_log_that_the_master_lost_are_asked_for_anew() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master, slave = await brokers.both()
            server: Any = master.broker._replication.server  # type: ignore[union-attr]
            await until(lambda: bool(server.slaves))
            client = await master.client()
            await client.send("T", b"late", properties={"DELAY": "1"})
            metadata = slave.broker._replication.metadata  # type: ignore[union-attr]
            metadata._delays = (1 << 40, None, None)  # type: ignore[assignment] # never reached
            server.slaves[0].close()
            await until(lambda: slave.broker.state.delayed_messages.offsets == {1: 1})

    run(scenario())


@pytest.mark.parametrize("role", ["master", "slave"])
def test_every_role_reads_changed_files_of_tls(monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    looks: list[TlsContexts] = []

    async def scenario() -> None:
        async with pair() as brokers:
            started = await brokers.start(**(SLAVE if role == "slave" else {}))
            await until(lambda: started.broker._tls in looks)

    monkeypatch.setattr(TlsContexts, "reads_files", True)
    monkeypatch.setattr(TlsContexts, "reload", lambda contexts: bool(looks.append(contexts)))
    run(scenario())
