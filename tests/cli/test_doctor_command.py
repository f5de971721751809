"""`cometmq doctor` names faults that were planted in real name servers, brokers and clients."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cli.planted_faults import first_only, look, member, registered, unused_port
from cli.shell import cometmq
from cometmq import AsyncAdmin
from cometmq.cli import doctor_command
from cometmq.namesrv.app import NameServer
from cometmq.runtime.clock_and_file_protocols import DiskSpace
from cometmq.runtime.system_clock_and_files import SystemClock, SystemFiles
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.testing.cluster import InProcessCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class RoomyFiles(SystemFiles):
    """The disk of a broker, as full as the test says."""

    used = 10

    def space(self, _path: Path) -> DiskSpace:
        return DiskSpace(100 << 30, self.used << 30)


class FullFiles(RoomyFiles):
    used = 97


class FastClock(SystemClock):
    """A clock an hour ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


async def named(namesrv: str, check: str, *words: str, severity: str = "fault") -> None:
    """The command names one fault: of this check, with these words in what it says."""
    code, found = await look(namesrv)
    assert code == (1 if severity == "fault" else 0), found
    assert [(one["check"], one["severity"]) for one in found] == [(check, severity)], found
    said = f"{found[0]['subject']}: {found[0]['what']}"
    assert all(word in said for word in words), said


@asynccontextmanager
async def running(store: Path, **more: Any) -> AsyncIterator[InProcessCluster]:
    async with InProcessCluster(store, files=more.pop("files", RoomyFiles()), **more) as cluster:
        yield cluster


async def topic(namesrv: str, queues: int, perm: int = 6) -> None:
    async with AsyncAdmin(namesrv=namesrv) as admin:
        await admin.create_topic("orders", queues, perm=perm)


async def a_cluster_without_faults(store: Path) -> None:
    async with running(store) as cluster:
        await topic(cluster.namesrv, 4)
        async with member(cluster.namesrv, "a", "orders"), member(cluster.namesrv, "b", "orders"):
            assert await look(cluster.namesrv) == (0, [])


async def no_name_server_there(_store: Path) -> None:
    await named(f"127.0.0.1:{unused_port()}", "name server", "no connection")


async def a_name_that_does_not_resolve(_store: Path) -> None:
    await named("no-such-host.invalid:9876", "name server", "no-such-host.invalid:9876")


async def a_broker_given_as_name_server(store: Path) -> None:
    async with running(store) as cluster:
        await named(cluster.broker, "name server", "it is a broker, no name server")


async def a_name_server_without_brokers(_store: Path) -> None:
    server = NameServer.open(NamesrvSettings(listen_port=0, kv_config_path=""))
    await server.start()
    await named(server.address, "name server", "no broker is registered")
    await server.stop()


async def one_of_two_name_servers_without_the_broker(store: Path) -> None:
    server = NameServer.open(NamesrvSettings(listen_port=0, kv_config_path=""))
    await server.start()
    async with running(store) as cluster:
        _, found = await look(f"{cluster.namesrv};{server.address}")
        assert f"it is not registered with {server.address}" in found[-1]["what"], found
    await server.stop()


async def an_address_on_which_the_broker_does_not_listen(store: Path) -> None:
    async with running(store, brokerIP1="127.0.0.9") as cluster:
        await named(cluster.namesrv, "broker", "broker-a at 127.0.0.9", "no connection")


async def an_address_with_port_0(store: Path) -> None:
    async with running(store) as cluster, registered(cluster.namesrv, "127.0.0.1:0"):
        await named(cluster.namesrv, "broker", "broker-b", "no client can connect to")


async def a_name_server_at_a_brokers_address(store: Path) -> None:
    async with running(store) as cluster, registered(cluster.namesrv, cluster.namesrv):
        await named(cluster.namesrv, "broker", "broker-b", "a name server listens")


async def another_broker_at_a_brokers_address(store: Path) -> None:
    async with running(store) as cluster, registered(cluster.namesrv, cluster.broker):
        await named(cluster.namesrv, "broker", "broker-b at", "the broker broker-a listens")


async def a_dead_broker_that_is_still_routed(store: Path) -> None:
    addr = f"127.0.0.1:{unused_port()}"
    async with running(store) as cluster, registered(cluster.namesrv, addr):
        await named(cluster.namesrv, "broker", f"broker-b at {addr}", "no connection")


async def a_broker_that_hangs(store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        addr = f"127.0.0.1:{deaf.getsockname()[1]}"
        async with running(store) as cluster, registered(cluster.namesrv, addr):
            await named(cluster.namesrv, "broker", f"broker-b at {addr}", "does not answer")


async def a_server_of_another_protocol(store: Path) -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    addr = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with running(store) as cluster, registered(cluster.namesrv, addr):
        await named(cluster.namesrv, "broker", "broker-b", "does not speak RocketMQ's protocol")
    server.close()


async def a_clock_an_hour_ahead(store: Path) -> None:
    async with running(store, clock=FastClock()) as cluster:
        await named(cluster.namesrv, "clock", "broker-a", "its clock is 36", "s ahead of")


async def a_disk_nearly_full(store: Path) -> None:
    async with running(store, files=FullFiles()) as cluster:
        await named(cluster.namesrv, "disk", "broker-a", "97 % of its disk are used")


async def a_write_protected_broker(store: Path) -> None:
    async with running(store, brokerPermission=4) as cluster:
        await named(cluster.namesrv, "write permission", "broker-a", "brokerPermission is 4")


async def unequal_subscriptions(store: Path) -> None:
    async with running(store) as cluster:
        await topic(cluster.namesrv, 4)
        one = member(cluster.namesrv, "a", "orders", "X")
        async with one, member(cluster.namesrv, "b", "orders", "Y"):
            await named(cluster.namesrv, "subscriptions", "clerks", "of topic orders", "'X'", "'Y'")


async def queues_without_an_owner(store: Path) -> None:
    async with running(store) as cluster:
        await topic(cluster.namesrv, 3)
        async with member(cluster.namesrv, "a", "orders", allocate=first_only):
            await named(
                cluster.namesrv, "queue owners", "clerks", "broker-a:1, broker-a:2 of orders"
            )


async def a_member_without_a_queue(store: Path) -> None:
    async with running(store) as cluster:
        await topic(cluster.namesrv, 1)
        async with member(cluster.namesrv, "a", "orders"), member(cluster.namesrv, "b", "orders"):
            await named(cluster.namesrv, "queue owners", "no queue is left for", severity="notice")


async def a_topic_that_may_not_be_read(store: Path) -> None:
    async with running(store) as cluster:
        await topic(cluster.namesrv, 2, perm=2)
        async with member(cluster.namesrv, "a", "orders"):
            await named(
                cluster.namesrv,
                "read permission",
                "orders: it may not be read on broker-a",
                "clerks",
            )


async def a_group_without_members(store: Path) -> None:
    async with running(store) as cluster:
        code, found = await look(cluster.namesrv, "--group", "nobody")
        assert (code, len(found)) == (0, 1)
        assert "no member of it is online" in found[0]["what"]


SCENARIOS = [
    a_cluster_without_faults,
    no_name_server_there,
    a_name_that_does_not_resolve,
    a_broker_given_as_name_server,
    a_name_server_without_brokers,
    one_of_two_name_servers_without_the_broker,
    an_address_on_which_the_broker_does_not_listen,
    an_address_with_port_0,
    a_name_server_at_a_brokers_address,
    another_broker_at_a_brokers_address,
    a_dead_broker_that_is_still_routed,
    a_broker_that_hangs,
    a_server_of_another_protocol,
    a_clock_an_hour_ahead,
    a_disk_nearly_full,
    a_write_protected_broker,
    unequal_subscriptions,
    queues_without_an_owner,
    a_member_without_a_queue,
    a_topic_that_may_not_be_read,
    a_group_without_members,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_the_doctor_names(scenario: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_command, "_BETWEEN_LOOKS_S", 0.05)
    asyncio.run(asyncio.wait_for(scenario(tmp_path / "store"), 30))


def test_a_fault_is_printed_with_what_to_do_and_the_exit_code_is_1() -> None:
    addr = f"127.0.0.1:{unused_port()}"
    done = cometmq("doctor", "-n", addr)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    assert lines[0].startswith(f"FAULT  name server  {addr}: no connection")
    assert lines[1].startswith("       do: start the name server")
    assert lines[-1] == "1 fault"


def test_an_address_that_is_none_is_a_one_sentence_error() -> None:
    done = cometmq("doctor", "-n", "localhost")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
