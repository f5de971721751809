"""Who is connected: nothing is left of who has gone, and what one client may leave is bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.harness import run, running
from cometmq.broker.groups import client_registry
from cometmq.model.subscription import HeartbeatData
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    import pytest

    from broker.commands import Client


async def produce(client: Client, client_id: str, *groups: str) -> None:
    beat = HeartbeatData(client_id=client_id, producer_groups=groups)
    answer = await client.call(RequestCode.HEART_BEAT, None, encode_heartbeat(beat))
    assert answer.code == 0


async def leave(client: Client, client_id: str, group: str) -> None:
    fields = {"clientID": client_id, "producerGroup": group}
    assert (await client.call(RequestCode.UNREGISTER_CLIENT, **fields)).code == 0


def test_a_client_that_changes_its_id_leaves_nothing_under_the_former_one() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, clients = await harness.client(), harness.broker.state.clients
            for number in range(5):
                await produce(client, f"c{number}", "PG")
            assert list(clients._producer_ids) == ["c4"]
            await produce(client, "other", "PG2")
            await leave(client, "c4", "PG")
            assert list(clients._producer_ids) == ["other"]
            await leave(client, "other", "PG2")
            assert clients._producer_ids == {}

    run(scenario())


def test_a_client_is_found_over_an_older_connection_once_the_newest_is_gone() -> None:
    async def scenario() -> None:
        async with running() as harness:
            old, new = await harness.client(), await harness.client()
            clients = harness.broker.state.clients
            await produce(old, "c", "PG", "PG2")
            first = clients.find_producer("c")
            await produce(new, "c", "PG")
            assert clients.find_producer("c") is not first
            await leave(new, "c", "PG")
            assert clients.find_producer("c") is first
            await leave(old, "c", "PG")
            assert clients.find_producer("c") is first, "it is in another group"
            old.close()
            await asyncio.sleep(1)
            assert clients.find_producer("c") is None
            assert clients._producer_ids == {}

    run(scenario())


def test_members_are_notified_when_a_silent_one_is_forgotten() -> None:
    async def scenario() -> None:
        async with running(channel_expired_timeout_ms=100_000) as harness:
            silent, loud = await harness.client(), await harness.client()
            await silent.beat("CG", "T", client_id="silent")
            await loud.beat("CG", "T", client_id="loud")
            await loud.asked_next()
            await asyncio.sleep(60)
            await loud.beat("CG", "T", client_id="loud")
            await silent.call(RequestCode.GET_BROKER_CONFIG)  # it lives, but sends no heartbeat
            await asyncio.sleep(60)
            notice = await loud.asked_next()
            assert notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            members = harness.broker.state.clients.consumers["CG"].members
            assert [member.client_id for member in members.values()] == ["loud"]

    run(scenario())


def test_groups_beyond_the_bound_are_ignored_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_registry, "GROUPS_PER_PEER_MAX", 2)

    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for _ in range(2):
                await produce(client, "c", "A", "B", "C", "D")
            assert list(harness.broker.state.clients.producers) == ["A", "B"]
            await leave(client, "c", "A")
            await produce(client, "c", "D")
            assert list(harness.broker.state.clients.producers) == ["B", "D"]

    run(scenario())
    (said,) = [line for line in caplog.messages if "groups are ignored" in line]
    assert said.startswith("a connection is in 2 groups, and no more are taken: 127.0.0.1:")
