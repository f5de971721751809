"""SQL92 filters over the wire: who may filter, what comes, what wakes, what is remembered."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from broker import sockets
from broker.commands import Client, pull_header, records, until_held
from broker.harness import new_disk, run, running, stored_table
from cometmq.broker.pulls.consumer_filters import LONG_CHARS, ConsumerFilters, FilterCache
from cometmq.model.subscription import ConsumerData, HeartbeatData, SubscriptionData
from cometmq.rules.filters.sql92_parser import LENGTH_MAX, Sql92Filter, parse
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.json_file import JsonFile
from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.store.property_filter import PropertyFilter
from cometmq.wire.bodies.heartbeat import CheckClient, encode_check_client, encode_heartbeat
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, request

if TYPE_CHECKING:
    from pathlib import Path

ON = {"enable_property_filter": True}
INLINE, WAITING = 4, 2


def subscription(expression: str, version: int = 1, **more: Any) -> SubscriptionData:
    fields = {"topic": "T", "sub_string": expression, "expression_type": "SQL92", **more}
    return SubscriptionData(sub_version=version, **fields)


async def subscribe(client: Client, group: str, *wanted: SubscriptionData) -> None:
    consumer = ConsumerData(group_name=group, subscriptions=wanted)
    beat = HeartbeatData(client_id="c1", consumers=(consumer,))
    assert (await client.call(RequestCode.HEART_BEAT, None, encode_heartbeat(beat))).code == 0


async def check(client: Client, wanted: SubscriptionData) -> Command:
    body = encode_check_client(CheckClient("c1", "G", wanted))
    return await client.call(RequestCode.CHECK_CLIENT_CONFIG, None, body)


async def pulled(client: Client, expression: str, **more: Any) -> Command:
    return await client.pull("T", subscription=expression, expression_type="SQL92", **more)


async def subscribed(client: Client, group: str, version: int = 1, **more: Any) -> Command:
    header = {"consumer_group": group, "sys_flag": 0, "sub_version": version, **more}
    return await client.pull("T", **header)


async def send_numbers(client: Client, count: int, size: int = 5) -> None:
    for number in range(count):
        body = str(number).encode().ljust(size, b".")
        assert (await client.send("T", body, properties={"n": str(number)})).code == 0


def numbers(answer: Command) -> list[int]:
    return [int(record.body.rstrip(b".")) for record in records(answer)]


@pytest.mark.parametrize("size", [5, 5_000])
def test_only_messages_that_the_filter_wants_come(size: int) -> None:
    async def scenario() -> None:
        async with running(**ON) as harness:
            client = await harness.client()
            await send_numbers(client, 10, size)
            answer = await pulled(client, "n > 3 AND n <> 5 AND n BETWEEN 0 AND 7")
            assert answer.code == ResponseCode.SUCCESS
            assert numbers(answer) == [4, 6, 7]
            assert answer.ext["nextBeginOffset"] == "10"

    run(scenario())


def test_nothing_wanted_says_where_to_go_on() -> None:
    async def scenario() -> None:
        async with running(**ON) as harness:
            client = await harness.client()
            await send_numbers(client, 5)
            answer = await pulled(client, "missing = 1", queue_offset=2, sys_flag=INLINE | WAITING)
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert answer.ext["nextBeginOffset"] == "5"

    run(scenario())


def test_a_filter_of_many_parts_is_asked_about_fewer_messages_at_a_time() -> None:
    async def scenario() -> None:
        async with running(**ON) as harness:
            client = await harness.client()
            await send_numbers(client, 40)
            costly = " OR ".join(["n = '-1'"] * 1_300)
            answer = await pulled(client, costly)
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert answer.ext["nextBeginOffset"] == "16"

    run(scenario())


def test_filters_are_off_unless_switched_on() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await send_numbers(client, 3)
            await subscribe(client, "G", subscription("n = 1"))
            answers = [await pulled(client, "n = 1"), await subscribed(client, "G")]
            answers.append(await check(client, subscription("n = 1")))
            for answer in answers:
                assert answer.code == ResponseCode.SYSTEM_ERROR
                text = "The broker does not support consumer to filter message by SQL92"
                assert answer.remark == text

    run(scenario())


def test_an_expression_that_is_none_is_refused_where_it_is_used() -> None:
    async def scenario() -> None:
        async with running(**ON) as harness:
            client = await harness.client()
            await send_numbers(client, 3)
            for bad in ("n = = 1", "", "n > 'x'", "n = 1" + " " * LENGTH_MAX):
                assert (await pulled(client, bad)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
                answer = await check(client, subscription(bad))
                assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            await subscribe(client, "G", subscription("n = = 1"))
            answer = await subscribed(client, "G")
            assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
            other = await client.pull("T", subscription="n = 1", expression_type="SQL93")
            assert other.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    run(scenario())


def test_a_client_may_ask_whether_its_filter_is_taken() -> None:
    async def scenario() -> None:
        async with running(**ON) as harness:
            client = await harness.client()
            assert (await check(client, subscription("n = 1"))).code == 0
            assert (await check(client, subscription("x", expression_type="TAG"))).code == 0
            for body in (b"", b"{}"):
                answer = await client.call(RequestCode.CHECK_CLIENT_CONFIG, None, body)
                assert answer.code == 0

    run(scenario())


def test_a_groups_newest_filter_counts_and_an_older_broker_view_is_reported() -> None:
    async def scenario() -> None:
        async with running(**ON) as harness:
            client = await harness.client()
            await send_numbers(client, 5)
            await subscribe(client, "G", subscription("n = 2", 10))
            assert numbers(await subscribed(client, "G", 10)) == [2]
            late = await subscribed(client, "G", 11)
            assert late.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
            await subscribe(client, "G", subscription("n = 3", 9))
            assert numbers(await subscribed(client, "G", 9)) == [2]
            await subscribe(client, "G", subscription("n = 4", 11))
            assert numbers(await subscribed(client, "G", 11)) == [4]
            await subscribe(client, "G", subscription("*", 12, expression_type="TAG"))
            assert numbers(await subscribed(client, "G", 12)) == [0, 1, 2, 3, 4]

    run(scenario())


def test_a_filter_stops_before_what_is_not_in_memory_when_it_may() -> None:
    async def scenario() -> None:
        async with running(**ON) as harness:
            client = await harness.client()
            await send_numbers(client, 6)
            store = harness.broker.store

            def accepts(raw: bytes) -> bool:
                if b"n\x013" in raw:
                    raise NotInMemory(None, 0, 1)  # type: ignore[arg-type]
                return b"n\x011" in raw

            for may_stop, start, count, end in ((True, 0, 1, 3), (True, 2, 0, 3)):
                got = store.get(
                    "T", 0, start, 32, 9_999, None, PropertyFilter(accepts, 800, may_stop)
                )
                assert (got.count, got.next_offset) == (count, end)
            for may_stop, start in ((False, 0), (True, 3)):
                with pytest.raises(NotInMemory):
                    store.get(
                        "T", 0, start, 32, 9_999, None, PropertyFilter(accepts, 800, may_stop)
                    )

    run(scenario())


def test_a_held_pull_is_woken_only_by_what_it_wants() -> None:
    async def scenario() -> None:
        async with running(**ON) as harness:
            client, other = await harness.client(), await harness.client()
            await send_numbers(client, 2)
            header = pull_header(
                "T",
                queue_offset=2,
                sys_flag=INLINE | WAITING,
                subscription="n = 7",
                expression_type="SQL92",
                suspend_timeout_ms=20_000,
            )
            waiting = other.channel.call_nowait(request(RequestCode.PULL_MESSAGE, 0, header))
            await until_held(harness, 1)
            await send_numbers(client, 7)
            assert (harness.broker.state.held_requests.count, waiting.done()) == (1, False)
            await client.send("T", b"7", properties={"n": "7"})
            answer = await waiting
            assert numbers(answer) == [7]
            assert answer.ext["nextBeginOffset"] == "10"

    run(scenario())


def test_many_pulls_that_one_message_wakes_are_all_answered() -> None:
    async def scenario() -> None:
        async with running(**ON) as harness:
            producer = await harness.client()
            await send_numbers(producer, 1)
            waiting = []
            for index in range(4):
                client = await harness.client()
                for _ in range(100):
                    kind = (
                        {"expression_type": "SQL92", "subscription": "n = 7"} if index % 2 else {}
                    )
                    flags = {"sys_flag": INLINE | WAITING, "suspend_timeout_ms": 20_000}
                    header = pull_header("T", queue_offset=1, **flags, **kind)
                    pull = request(RequestCode.PULL_MESSAGE, 0, header)
                    waiting.append(client.channel.call_nowait(pull))
            await until_held(harness, 400)
            await producer.send("T", b"7", properties={"n": "7"})
            answers = await asyncio.gather(*waiting)
            assert {tuple(numbers(answer)) for answer in answers} == {(7,)}
            assert harness.broker.state.held_requests.count == 0

    run(scenario())


def test_one_connection_parks_only_so_many_pulls_on_one_queue() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, other = await harness.client(), await harness.client()
            await send_numbers(client, 1)
            header = pull_header(
                "T", queue_offset=1, sys_flag=INLINE | WAITING, suspend_timeout_ms=20_000
            )
            for _ in range(256):
                client.channel.call_nowait(request(RequestCode.PULL_MESSAGE, 0, header))
            await until_held(harness, 256)
            refused = await client.call(RequestCode.PULL_MESSAGE, header)
            assert refused.code == ResponseCode.SYSTEM_BUSY
            other.channel.call_nowait(request(RequestCode.PULL_MESSAGE, 0, header))
            await until_held(harness, 257)
            client.close()
            await until_held(harness, 1)

    run(scenario())


def test_retries_go_by_the_filter_of_their_own_topic_where_that_is_switched_on() -> None:
    async def scenario() -> None:
        async with running(filter_support_retry=True, **ON) as harness:
            client = await harness.client()
            retry = subscription("TRUE", topic="%RETRY%G")
            await subscribe(client, "G", subscription("n = 1"), retry)
            for number in range(3):
                pairs = {"n": str(number), "RETRY_TOPIC": "T"}
                await client.send("%RETRY%G", str(number).encode(), properties=pairs)
            await client.send("%RETRY%G", b"9", properties={"RETRY_TOPIC": "unfiltered"})
            header = {"consumer_group": "G", "sys_flag": 0, "sub_version": 1}
            assert numbers(await client.pull("%RETRY%G", **header)) == [1, 9]

    run(scenario())


def test_filters_are_written_as_rocketmq_reads_them_and_read_again() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **ON) as harness:
            client = await harness.client()
            await send_numbers(client, 3)
            await subscribe(client, "GOOD", subscription("n = 1", 5))
            await subscribe(client, "BAD", subscription("n = = 1", 5))
            assert numbers(await subscribed(client, "GOOD", 5)) == [1]
        written = stored_table(disk, "consumerFilter.json")
        filters = written["filterDataByTopic"]["T"]["groupFilterData"]
        assert written["filterDataByTopic"]["T"]["topic"] == "T"
        assert list(filters) == ["GOOD"]
        good = filters["GOOD"]
        assert good["bloomFilterData"] == {"bitNum": 112, "bitPos": [17, 94, 84]}
        assert good["bornTime"] <= good["deadTime"]
        kept = {key: good[key] for key in ("clientVersion", "dead", "expression", "topic")}
        assert kept == {"clientVersion": 5, "dead": True, "expression": "n = 1", "topic": "T"}
        async with running(disk=disk, **ON) as harness:
            found = harness.broker.state.filters.get("T", "GOOD")
            assert found is not None
            assert (found.expression, found.is_dead) == ("n = 1", True)

    run(scenario())


def filters(tmp_path: Path, now_ms: list[int]) -> ConsumerFilters:
    file = JsonFile(tmp_path / "consumerFilter.json", SystemFiles())
    return ConsumerFilters(file, lambda: now_ms[0], keep_ms=1_000)


def test_filters_that_nobody_uses_are_forgotten_after_their_time(tmp_path: Path) -> None:
    now = [10_000]
    table = filters(tmp_path, now)
    table.register("G", [subscription("n = 1", 3)])
    table.register("H", [subscription("n = 1", 3)])
    table.unregister("G")
    table.save()
    assert len(filters(tmp_path, now)._topics["T"]) == 2
    now[0] += 2_000
    table.register("G", [])
    table.register("H", [subscription("n = 2", 4)])
    table.save()
    again = filters(tmp_path, now)
    assert again.get("T", "G") is None
    assert again.get("T", "H") is not None


def test_a_group_that_comes_back_with_the_same_filter_keeps_its_birth(tmp_path: Path) -> None:
    now = [10_000]
    table = filters(tmp_path, now)
    table.register("G", [subscription("n = 1", 3)])
    table.unregister("G")
    now[0] = 10_500
    table.register("G", [subscription("n = 1", 4)])
    found = table.get("T", "G")
    assert found is not None
    assert (found.born_ms, found.is_dead, found.client_version) == (10_000, False, 4)


def test_ready_filters_are_bounded_by_their_characters() -> None:
    ready = FilterCache(chars_max=1_000)
    for number in range(1_000):
        assert ready.find(f"n = {number}") is not None
    assert ready.find("n = = 1") is None
    assert sum(len(text) + 1 for text in ready._cache) <= 1_000


@pytest.fixture
def parsed_on_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The expressions that the loop parses; those of threads are not in it."""
    found: list[str] = []

    def noted(expression: str) -> Sql92Filter:
        if threading.current_thread() is threading.main_thread():
            found.append(expression)
        return parse(expression)

    monkeypatch.setattr("cometmq.broker.pulls.consumer_filters.parse", noted)
    return found


def one_of(first: int, count: int = 1000) -> str:
    """A long filter: n is one of so many numbers."""
    numbers = ", ".join(f"'{number}'" for number in range(first, first + count))
    return f"n IN ({numbers})"


def test_long_filters_of_retries_are_read_in_a_thread_one_a_pull(
    tmp_path: Path, parsed_on_loop: list[str]
) -> None:
    topics = ["A", "B", "C"]

    async def scenario() -> None:
        async with sockets.running(tmp_path, filter_support_retry=True, **ON) as harness:
            client = await harness.client()
            wanted = [subscription(one_of(n), topic=topic) for n, topic in enumerate(topics)]
            await subscribe(client, "G", *wanted, subscription("TRUE", topic="%RETRY%G"))
            for number, topic in enumerate([*topics, *topics]):
                pairs = {"n": str(number % 4), "RETRY_TOPIC": topic}
                await client.send("%RETRY%G", b"%d" % number, properties=pairs)
            header = {"consumer_group": "G", "sys_flag": 0, "sub_version": 1}
            pulls, offset = [], 0
            while offset < 6:
                answer = await client.pull("%RETRY%G", queue_offset=offset, **header)
                offset = int(answer.ext["nextBeginOffset"])
                pulls.append(numbers(answer) if answer.code == ResponseCode.SUCCESS else [])
            assert pulls == [[0], [1], [2, 3]], "B does not want 4's 0, nor C 5's 1"
            assert parsed_on_loop == ["TRUE"]

    sockets.run(scenario())


def test_short_filters_of_retries_are_read_at_once_up_to_the_length_of_a_long_one(
    tmp_path: Path,
) -> None:
    topics = [f"T{number}" for number in range(8)]
    short = one_of(0, 50)
    assert 3 * len(short) < LONG_CHARS < 4 * len(short)

    async def scenario() -> None:
        async with sockets.running(tmp_path, filter_support_retry=True, **ON) as harness:
            client = await harness.client()
            wanted = [
                subscription(f"{short} AND '{topic}' = '{topic}'", topic=topic) for topic in topics
            ]
            await subscribe(client, "G", *wanted, subscription("TRUE", topic="%RETRY%G"))
            for topic in topics:
                pairs = {"n": "1", "RETRY_TOPIC": topic}
                await client.send("%RETRY%G", b"1", properties=pairs)
            header = {"consumer_group": "G", "sys_flag": 0, "sub_version": 1}
            answer = await client.pull("%RETRY%G", **header)
            assert numbers(answer) == [1, 1, 1]

    sockets.run(scenario())


def test_a_held_pull_whose_long_filter_is_forgotten_has_it_read_in_a_thread(
    tmp_path: Path, parsed_on_loop: list[str]
) -> None:
    async def scenario() -> None:
        async with sockets.running(tmp_path, **ON) as harness:
            client = await harness.client()
            await send_numbers(client, 1)
            flags = {"sys_flag": INLINE | WAITING, "suspend_timeout_ms": 20_000}
            filtered = {"expression_type": "SQL92", "subscription": one_of(7)}
            header = pull_header("T", queue_offset=1, **flags, **filtered)
            waiting = client.channel.call_nowait(request(RequestCode.PULL_MESSAGE, 0, header))
            await until_held(harness, 1)
            harness.broker.state.filters._cache._cache.clear()
            await client.send("T", b"7", properties={"n": "7"})
            assert numbers(await waiting) == [7]

    sockets.run(scenario())
    assert parsed_on_loop == []


def test_a_long_filter_is_read_in_a_thread_and_then_filters(
    tmp_path: Path, parsed_on_loop: list[str]
) -> None:
    wide = one_of(1)

    async def scenario() -> None:
        async with sockets.running(tmp_path, **ON) as harness:
            client = await harness.client()
            await send_numbers(client, 3)
            answer = await client.pull("T", subscription=wide, expression_type="SQL92")
            assert numbers(answer) == [1, 2]
            await subscribe(client, "CG", subscription(wide, 5))
            assert numbers(await subscribed(client, "CG", 5)) == [1, 2]
            broken = wide + " AND"
            answer = await client.pull("T", subscription=broken, expression_type="SQL92")
            assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            body = encode_check_client(CheckClient("c", "CG", subscription(broken, 6)))
            answer = await client.call(RequestCode.CHECK_CLIENT_CONFIG, None, body)
            assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    sockets.run(scenario())
    assert parsed_on_loop == []
