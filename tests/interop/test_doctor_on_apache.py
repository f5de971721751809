"""`cometmq doctor` names faults of a cluster of Apache RocketMQ; our members notice unequal ones.

Not planted here: a wrong clock and a full disk. Both would need the machine's own.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cli.planted_faults import first_only, look, member, registered, unused_port
from cometmq import AsyncAdmin, AsyncProducer, Message
from cometmq.namesrv.app import NameServer
from cometmq.net.channel import connect
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from interop.apache import ApacheCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from interop.jvm import JavaHost

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
LOG = "cometmq.client.consumer.member_comparison"


class Doctor:
    """Looks at Apache's cluster; what it found before a fault was planted does not count."""

    def __init__(self, apache: ApacheCluster) -> None:
        self.apache = apache
        self.namesrv = apache.namesrv
        self._before = {self._what(one) for one in asyncio.run(self._look())}

    async def finds(self, check: str, *words: str, severity: str = "fault", at: str = "") -> None:
        """It names one fault more, of this check, with these words in what it says."""
        found = [one for one in await self._look(at) if self._what(one) not in self._before]
        assert [(one["check"], one["severity"]) for one in found] == [(check, severity)], found
        said = f"{found[0]['subject']}: {found[0]['what']}"
        assert all(word in said for word in words), said

    async def finds_nothing(self) -> None:
        """It names nothing that was not so before."""
        assert [one for one in await self._look() if self._what(one) not in self._before] == []

    async def _look(self, at: str = "") -> list[dict[str, str]]:
        _, found = await look(at or self.namesrv, "--timeout", "3")
        return found

    @staticmethod
    def _what(one: dict[str, str]) -> tuple[str, str]:
        return one["check"], one["subject"]


@pytest.fixture(scope="module")
def doctor(apache: ApacheCluster) -> Doctor:
    return Doctor(apache)


@asynccontextmanager
async def topic(namesrv: str, name: str, queues: int, **more: Any) -> AsyncIterator[str]:
    """A topic that may be read and written again afterwards."""
    async with AsyncAdmin(namesrv=namesrv) as admin:
        await admin.create_topic(name, queues, **more)
        yield name
        await admin.alter_topic(name, perm="rw")


async def set_permission(addr: str, permission: int) -> None:
    channel = await connect(addr)
    body = f"brokerPermission={permission}\n".encode()
    answer = await channel.call(request(RequestCode.UPDATE_BROKER_CONFIG, 0, None, body), 10.0)
    assert answer.code == 0, answer
    channel.close()


async def equal_members(doctor: Doctor) -> None:
    async with topic(doctor.namesrv, "DoctorEqual", 4) as name:
        one, other = (member(doctor.namesrv, each, name) for each in "ab")
        async with one, other:
            await doctor.finds_nothing()


async def unequal_subscriptions(doctor: Doctor) -> None:
    async with topic(doctor.namesrv, "DoctorUnequal", 4) as name:
        one = member(doctor.namesrv, "a", name, "X")
        async with one, member(doctor.namesrv, "b", name, "Y"):
            await doctor.finds("subscriptions", "clerks", f"of topic {name}", "'X'", "'Y'")


async def members_in_order_and_not(doctor: Doctor) -> None:
    async with topic(doctor.namesrv, "DoctorOrder", 4) as name:
        one = member(doctor.namesrv, "a", name, order="queue")
        async with one, member(doctor.namesrv, "b", name):
            await doctor.finds("subscriptions", "clerks", "in order", "concurrently")


async def queues_without_an_owner(doctor: Doctor) -> None:
    async with (
        topic(doctor.namesrv, "DoctorOwners", 3) as name,
        member(doctor.namesrv, "a", name, allocate=first_only),
    ):
        await doctor.finds("queue owners", "clerks", f"apache-a:1, apache-a:2 of {name}")


async def a_topic_that_may_not_be_read(doctor: Doctor) -> None:
    async with (
        topic(doctor.namesrv, "DoctorUnread", 2, perm="w") as name,
        member(doctor.namesrv, "a", name),
    ):
        words = f"{name}: it may not be read on apache-a", "clerks"
        await doctor.finds("read permission", *words)


async def an_address_where_nobody_listens(doctor: Doctor) -> None:
    addr = f"127.0.0.1:{unused_port()}"
    async with registered(doctor.namesrv, addr):
        await doctor.finds("broker", f"broker-b at {addr}", "no connection")


async def an_address_of_another_broker(doctor: Doctor) -> None:
    async with registered(doctor.namesrv, doctor.apache.broker):
        await doctor.finds("broker", "broker-b at", "the broker apache-a listens")


async def an_address_of_the_name_server(doctor: Doctor) -> None:
    async with registered(doctor.namesrv, doctor.namesrv):
        await doctor.finds("broker", "broker-b at", "a name server listens")


async def a_broker_given_as_name_server(doctor: Doctor) -> None:
    await doctor.finds("name server", "it is a broker, no name server", at=doctor.apache.broker)


async def one_of_two_name_servers_without_the_broker(doctor: Doctor) -> None:
    server = NameServer.open(NamesrvSettings(listen_port=0, kv_config_path=""))
    await server.start()
    try:
        both = f"{doctor.namesrv};{server.address}"
        _, found = await look(both, "--timeout", "3")
        said = [f"{one['subject']}: {one['what']}" for one in found]
        wanted = f"apache-a at {doctor.apache.broker}: it is not registered with {server.address}"
        assert any(each.startswith(wanted) for each in said), said
    finally:
        await server.stop()


async def a_write_protected_broker(doctor: Doctor) -> None:
    await set_permission(doctor.apache.broker, 4)
    try:
        await doctor.finds("write permission", "apache-a", "brokerPermission is 4")
    finally:
        await set_permission(doctor.apache.broker, 6)


async def a_broker_that_hangs(doctor: Doctor) -> None:
    with doctor.apache.broker_suspended():
        await doctor.finds("broker", f"apache-a at {doctor.apache.broker}", "does not answer")


SCENARIOS = [
    equal_members,
    unequal_subscriptions,
    members_in_order_and_not,
    queues_without_an_owner,
    a_topic_that_may_not_be_read,
    an_address_where_nobody_listens,
    an_address_of_another_broker,
    an_address_of_the_name_server,
    a_broker_given_as_name_server,
    one_of_two_name_servers_without_the_broker,
    a_write_protected_broker,
    a_broker_that_hangs,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_the_doctor_names_on_apaches_cluster(scenario: Any, doctor: Doctor) -> None:
    asyncio.run(asyncio.wait_for(scenario(doctor), 120))


@pytest.fixture(scope="module")
def hidden(apache_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """Apache's broker, announced at an address on which it does not listen."""
    place = tmp_path_factory.mktemp("hidden")
    cluster = ApacheCluster(
        apache_jars, place, bindAddress="127.0.0.1", brokerIP1="127.0.0.9", brokerName="hidden"
    )
    yield cluster
    cluster.stop()


def test_the_doctor_names_apaches_broker_at_an_address_on_which_it_does_not_listen(
    hidden: ApacheCluster,
) -> None:
    code, found = asyncio.run(look(hidden.namesrv, "--timeout", "3"))
    assert code == 1
    said = [f"{one['check']} {one['subject']}: {one['what']}" for one in found]
    assert [each for each in said if each.startswith("broker hidden at 127.0.0.9")], said


def test_the_doctor_names_apaches_name_server_without_brokers(hidden: ApacheCluster) -> None:
    hidden.stop_broker()
    code, found = asyncio.run(look(hidden.namesrv, "--timeout", "3"))
    assert (code, [one["check"] for one in found]) == (1, ["name server"])
    assert "no broker is registered" in found[0]["what"]


def differences(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """What our members said of each other that has all these words."""
    found = [record.getMessage() for record in caplog.records if record.name == LOG]
    return [text for text in found if all(word in text for word in words)]


async def until_said(caplog: pytest.LogCaptureFixture, count: int, *words: str) -> None:
    async with asyncio.timeout(60):
        while len(differences(caplog, *words)) < count:
            await asyncio.sleep(0.05)


def test_our_members_name_each_other_on_apaches_broker(
    apache: ApacheCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with topic(apache.namesrv, "MembersUnequal", 4) as name:
            one = member(apache.namesrv, "a", name, "X")
            async with one, member(apache.namesrv, "b", name, "Y"):
                await until_said(caplog, 2, "the group clerks differ", name, "'X'", "'Y'")

    asyncio.run(scenario())


def test_our_member_and_the_doctor_name_a_java_member_that_wants_something_else(
    apache: ApacheCluster, java: JavaHost, doctor: Doctor, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with (
            topic(apache.namesrv, "MembersOfTwoHouses", 4) as name,
            member(apache.namesrv, "ours", name, "X"),
        ):
            wanted = ("consume", apache.namesrv, name, "clerks", 1, "even")
            javas = asyncio.create_task(asyncio.to_thread(java.run, "Roundtrip", *wanted))
            await until_said(caplog, 1, "the group clerks differ", name, "'X'", "'even'")
            await doctor.finds("subscriptions", "clerks", f"of topic {name}", "'X'", "'even'")
            async with (
                AsyncAdmin(namesrv=apache.namesrv) as admin,
                AsyncProducer("doctor", namesrv=apache.namesrv) as producer,
            ):
                for queue in await admin.queues(name):
                    await producer.send(Message(name, b"x", tags="even"), queue=queue)
            await javas  # one of these was for it

    asyncio.run(scenario())
