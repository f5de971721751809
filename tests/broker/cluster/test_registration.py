"""What name servers hear of the broker, also when they were away."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from broker.harness import run, running
from cometmq.model.topic import TopicConfig
from cometmq.namesrv.app import NameServer
from cometmq.net.channel import connect
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.wire.bodies.route import decode_route
from cometmq.wire.bodies.topic import encode_topic_config_list
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.namesrv import GetRouteInfoRequestHeader

if TYPE_CHECKING:
    from broker.commands import Harness
    from cometmq.model.route import TopicRouteData
    from cometmq.net.connection import Connection
    from cometmq.net.handler import Handler
    from cometmq.wire.command import Command


async def name_server(port: int = 0) -> NameServer:
    server = NameServer.open(NamesrvSettings(listen_port=port, kv_config_path=""))
    await server.start()
    return server


async def route(server: NameServer, topic: str) -> TopicRouteData | None:
    channel = await connect(server.address)
    try:
        header = GetRouteInfoRequestHeader(topic=topic)
        answer = await channel.call(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, 0, header), 5)
    finally:
        channel.close()
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    return decode_route(answer.body)


def test_all_name_servers_know_the_broker_once_it_runs_and_forget_it_when_it_stops() -> None:
    async def scenario() -> None:
        servers = [await name_server() for _ in range(2)]
        addrs = ";".join(server.address for server in servers)
        async with running(namesrv_addr=addrs) as harness:
            for server in servers:
                found = await route(server, "TBW102")
                assert found is not None
                assert found.broker_datas[0].broker_addrs == {0: harness.broker.address}
                assert found.queue_datas[0].perm == 7
        for server in servers:
            assert await route(server, "TBW102") is None
            await server.stop()

    run(scenario())


def test_a_topic_made_by_a_send_has_a_route_when_the_send_is_answered() -> None:
    async def scenario() -> None:
        server = await name_server()
        async with running(namesrv_addr=server.address) as harness:
            client = await harness.client()
            for topic in ("T", "U"):
                assert (await client.send(topic)).code == 0
                found = await route(server, topic)
                assert found is not None
                assert found.queue_datas[0].write_queue_nums == 4
        await server.stop()

    run(scenario())


def test_a_retry_topic_has_a_route_when_the_heartbeat_is_answered() -> None:
    async def scenario() -> None:
        server = await name_server()
        async with running(namesrv_addr=server.address) as harness:
            client = await harness.client()
            assert (await client.beat("CG", "T")).code == 0
            assert await route(server, "%RETRY%CG") is not None
        await server.stop()

    run(scenario())


def test_a_broker_that_may_not_be_written_says_so_in_its_routes() -> None:
    async def scenario() -> None:
        server = await name_server()
        settings = {"namesrv_addr": server.address, "broker_permission": 4}
        async with running(**settings):
            found = await route(server, "BenchmarkTest")
            assert found is not None
            assert found.queue_datas[0].perm == 4
        await server.stop()

    run(scenario())


def test_a_name_server_that_is_down_delays_nobody_and_learns_of_the_broker_later() -> None:
    async def scenario() -> None:
        server = await name_server()
        port = server.port
        await server.stop()
        async with running(namesrv_addr=f"127.0.0.1:{port}") as harness:
            client = await harness.client()
            assert (await client.send("T")).code == 0
            server = await name_server(port)
            harness.broker.state.topics.put(TopicConfig(topic_name="U"))
            async with asyncio.timeout(20):
                while await route(server, "T") is None:
                    await asyncio.sleep(0.05)
        await server.stop()

    run(scenario())


def test_a_registration_that_failed_in_an_unforeseen_way_is_not_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        server = await name_server()
        async with running(namesrv_addr=server.address) as harness:
            topics = harness.broker.state.topics
            no_text: Any = object()
            topics.table["Odd"] = TopicConfig(topic_name="Odd", attributes={"x": no_text})
            for tell in topics.on_change:
                tell("Odd")
            while not caplog.records:
                await asyncio.sleep(0.01)
            del topics.table["Odd"]
            topics.ensure("T", 4)
            async with asyncio.timeout(5):
                while await route(server, "T") is None:
                    await asyncio.sleep(0.01)
        await server.stop()

    run(scenario())


def test_topics_that_a_name_server_calls_ordered_are_marked_so() -> None:
    async def scenario() -> None:
        server = await name_server()
        channel = await connect(server.address)
        command = request(RequestCode.PUT_KV_CONFIG, 0)
        command.ext = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b0:4"}
        assert (await channel.call(command, 5)).code == 0
        async with running(namesrv_addr=server.address) as harness:
            client = await harness.client()
            await client.send("T")  # creates it, hence registers, hence hears of it
            topics = harness.broker.state.topics
            async with asyncio.timeout(5):
                while not topics.table["T"].order:
                    await asyncio.sleep(0.005)
            assert not topics.table["TBW102"].order
        channel.close()
        await server.stop()

    run(scenario())


def test_name_servers_change_while_the_broker_runs() -> None:
    async def until(server: NameServer, *, knows: bool) -> None:
        async with asyncio.timeout(10):
            while (await route(server, "TBW102") is not None) is not knows:
                await asyncio.sleep(0.01)

    async def scenario() -> None:
        one, two = await name_server(), await name_server()
        async with running() as harness:
            client = await harness.client()

            async def use(*servers: NameServer) -> None:
                line = f"namesrvAddr={';'.join(server.address for server in servers)}"
                answer = await client.call(RequestCode.UPDATE_BROKER_CONFIG, None, line.encode())
                assert answer.code == 0

            await use(one)
            await until(one, knows=True)
            await use(two)
            await until(two, knows=True)
            await until(one, knows=False)
        assert await route(two, "TBW102") is None
        await one.stop()
        await two.stop()

    run(scenario())


class RecordedRequests:
    """Notes what a name server is asked, by code."""

    def __init__(self, server: NameServer) -> None:
        self.heard: list[Command] = []
        for code in (RequestCode.REGISTER_BROKER, RequestCode.QUERY_DATA_VERSION):
            server._dispatcher._handlers[code] = partial(
                self._note, server._dispatcher._handlers[code]
            )

    def _note(self, handler: Handler, command: Command, connection: Connection) -> Any:
        self.heard.append(command)
        return handler(command, connection)

    def codes(self) -> list[int]:
        return [command.code for command in self.heard]


def test_a_broker_that_asks_first_registers_only_what_has_changed() -> None:
    ask, tell = RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_BROKER

    async def scenario() -> None:
        server = await name_server()
        said = RecordedRequests(server)
        settings = {"namesrv_addr": server.address, "force_register": False}
        async with running(**settings) as harness:
            assert said.codes() == [ask, tell], "the name server did not know it"
            assert await harness.broker._registration.register() == 1
            assert said.codes() == [ask, tell, ask], "now it does"
            assert (await (await harness.client()).send("T")).code == 0
            assert await route(server, "T") is not None
            assert said.codes()[3:] == [tell], "a change is registered without asking"
            server._routes.unregister(next(iter(server._routes._live.values())).who)
            assert await route(server, "T") is None
            assert await harness.broker._registration.register() == 1
            assert said.codes()[4:] == [ask, tell], "it had forgotten"
            assert await route(server, "T") is not None
        await server.stop()

    run(scenario())


def test_a_compressed_registration_says_the_same_in_fewer_bytes() -> None:
    async def scenario() -> None:
        server = await name_server()
        said = RecordedRequests(server)
        sizes, routes = [], []
        for is_compressed in (False, True):
            settings = {"namesrv_addr": server.address, "compressed_register": is_compressed}
            async with running(**settings) as harness:
                for number in range(600):
                    harness.broker.state.topics.ensure(f"T{number}", 3)
                await harness.broker._registration.wait_registered(10)
                routes.append(await route(server, "T599"))
            assert said.heard[-1].ext["compressed"] == str(is_compressed).lower()
            assert int(said.heard[-1].ext["bodyCrc32"]) > 0
            sizes.append(len(said.heard[-1].body))
        assert routes[0] is not None
        assert routes[1] is not None
        assert routes[0].queue_datas == routes[1].queue_datas
        assert sizes[1] < sizes[0] / 10
        await server.stop()

    run(scenario())


def test_a_topic_in_global_order_is_not_made_on_a_second_broker() -> None:
    wanted = {"defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    wanted |= {"topicSysFlag": "0", "readQueueNums": "1", "writeQueueNums": "1", "order": "true"}
    code = RequestCode.UPDATE_AND_CREATE_TOPIC

    async def scenario() -> None:
        server, gone = await name_server(), await name_server()
        await gone.stop()
        servers = f"{gone.address};{server.address}"
        async with (
            running(broker_name="a", namesrv_addr=server.address) as first,
            running(broker_name="b", namesrv_addr=servers) as second,
        ):
            one, two = await first.client(), await second.client()
            mark = "+comet.order=global,+message.type=FIFO"
            for topic, attributes in (("Ledger", mark), ("Plain", "")):
                answer = await one.call(code, topic=topic, attributes=attributes, **wanted)
                assert answer.code == 0, answer
            answer = await two.call(code, topic="Ledger", **wanted)
            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert answer.remark is not None
            assert "one order on the broker a and cannot be made on another" in answer.remark
            assert second.broker.state.topics.get("Ledger") is None
            config = TopicConfig(topic_name="Ledger", read_queue_nums=1, write_queue_nums=1)
            body = encode_topic_config_list([config])
            answer = await two.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert (await one.call(code, topic="Ledger", **wanted)).code == 0, "it is its own"
            assert (await two.call(code, topic="Plain", **wanted)).code == 0
            assert (await one.call(code, topic="Wide", **wanted)).code == 0
            answer = await two.call(code, topic="Wide", attributes=mark, **wanted)
            assert "lies on the broker a already" in (answer.remark or "")
            plain = {"attributes": "-comet.order", **wanted}
            assert (await one.call(code, topic="Ledger", **plain)).code == 0
            assert (await two.call(code, topic="Ledger", **wanted)).code == 0
        await server.stop()

    run(scenario())


@pytest.mark.parametrize("is_plain", [False, True])
def test_of_two_brokers_asked_at_once_one_makes_a_topic_in_global_order(is_plain: bool) -> None:
    wanted = {"defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    wanted |= {"topicSysFlag": "0", "readQueueNums": "1", "writeQueueNums": "1", "order": "true"}
    marked = wanted | {"attributes": "+comet.order=global"}
    code = RequestCode.UPDATE_AND_CREATE_TOPIC

    async def scenario() -> None:
        server = await name_server()
        async with (
            running(broker_name="a", namesrv_addr=server.address) as first,
            running(broker_name="b", namesrv_addr=server.address) as second,
        ):
            one, two = await first.client(), await second.client()
            kept: list[Harness] = []
            for number in range(10):
                name = f"Ledger-{number}"
                calls = [
                    one.call(code, topic=name, **marked),
                    two.call(code, topic=name, **(wanted if is_plain else marked)),
                ]
                if number % 2:
                    calls.reverse()
                await asyncio.gather(*calls)
                has_it = [
                    harness for harness in (first, second) if harness.broker.state.topics.get(name)
                ]
                assert len(has_it) == 1, "the messages would have two orders"
                kept += has_it
            assert first in kept, "it has the lesser name, and the mark in any case"
        await server.stop()

    run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_topic_that_got_messages_while_others_were_asked_is_not_withdrawn(
    caplog: pytest.LogCaptureFixture, when: str
) -> None:
    wanted = {"defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    wanted |= {"topicSysFlag": "0", "readQueueNums": "1", "writeQueueNums": "1", "order": "true"}
    code = RequestCode.UPDATE_AND_CREATE_TOPIC

    async def scenario() -> None:
        server = await name_server()
        async with (
            running(broker_name="a", namesrv_addr=server.address) as first,
            running(broker_name="b") as second,
        ):
            one, two = await first.client(), await second.client()
            answer = await one.call(code, topic="T", attributes="+comet.order=global", **wanted)
            assert answer.code == 0, answer
            registration, topics = second.broker._registration, second.broker.state.topics
            others = second.broker._global_order
            find, wait_registered = others.find, registration.wait_registered

            async def looked(*args: Any) -> Any:  # of name servers it knows none yet
                others.find = find
                found = await find(*args)
                if when == "before":
                    assert (await two.send("T", queue_id=0)).code == 0
                return found

            async def registered(*_: Any) -> bool:
                registration.wait_registered = wait_registered
                if when == "after":
                    assert (await two.send("T", queue_id=0)).code == 0
                registration._name_servers = (server.address,)
                return True

            others.find, registration.wait_registered = looked, registered
            answer = await two.call(code, topic="T", **wanted)
            assert (await two.pull("T", queue_id=0)).code == ResponseCode.SUCCESS
            assert topics.get("T") is not None
            assert "one order on the broker a" in (answer.remark or "") or when == "before"
            assert "got messages already" in caplog.text or when == "before"
        await server.stop()

    run(scenario())


def test_of_many_new_topics_a_name_server_that_is_away_is_asked_about_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        gone = await name_server()
        await gone.stop()
        async with running(namesrv_addr=gone.address) as harness:
            client = await harness.client()
            body = encode_topic_config_list([TopicConfig(topic_name=name) for name in "TUVW"])
            answer = await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
            assert answer.code == 0, answer
        silences = [one for one in caplog.messages if "does not say which topics" in one]
        assert len(silences) == 1, caplog.messages

    run(scenario())


def test_the_time_between_registrations_changes_while_the_broker_runs() -> None:
    async def scenario() -> None:
        server = await name_server()
        heard: list[float] = []
        handlers = server._dispatcher._handlers
        register = handlers[RequestCode.REGISTER_BROKER]

        def note(request: Command, connection: Connection) -> Any:
            heard.append(asyncio.get_running_loop().time())
            return register(request, connection)

        handlers[RequestCode.REGISTER_BROKER] = note
        settings = {"namesrv_addr": server.address, "register_name_server_period_ms": 50_000}
        async with running(**settings) as harness:
            client = await harness.client()
            body = b"registerNameServerPeriod=20000"
            answer = await client.call(RequestCode.UPDATE_BROKER_CONFIG, None, body)
            assert answer.code == 0
            await asyncio.sleep(200)
        await server.stop()
        gaps = [round(after - before) for before, after in pairwise(heard)]
        assert gaps[-3:] == [20, 20, 20], gaps

    run(scenario())
