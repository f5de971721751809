"""Registrations of very many topics: bounded, read in time slices, and not read twice."""

from __future__ import annotations

import asyncio
import json
import zlib
from contextlib import suppress
from struct import pack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import ProtocolError, SendFailed
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.namesrv import app as namesrv_app
from cometmq.namesrv import registration_requests
from cometmq.net.channel import connect
from cometmq.runtime.time_slices import TimeSlices
from cometmq.wire.bodies import name_lists, registration_reader
from cometmq.wire.bodies.registration_reader import RegistrationReader
from cometmq.wire.bodies.topic import (
    Registration,
    TopicTable,
    decode_registration,
    deflate_registration,
    encode_data_version,
    encode_registration,
    encode_topic_table,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from namesrv.harness import (
    WHO,
    ask,
    register,
    registration,
    route_code,
    run,
    serving,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cometmq.net.channel import Channel

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)
tables = st.dictionaries(
    names,
    st.builds(
        TopicConfig,
        topic_name=st.just("x"),
        read_queue_nums=st.integers(0, 9),
        attributes=st.dictionaries(names, names, max_size=2),
    ),
    max_size=5,
)


def read(body: bytes, *, is_compressed: bool = False, version: int = 479) -> Registration | None:
    reader = RegistrationReader(
        body, is_compressed=is_compressed, version=version, topics_max=1_000
    )
    for _ in reader.steps():
        pass
    return reader.result


@given(table=tables, servers=st.lists(names, max_size=2), spaces=st.booleans())
def test_what_is_read_topic_by_topic_is_what_is_read_at_once(
    table: dict[str, TopicConfig], servers: list[str], spaces: bool
) -> None:
    made = Registration(TopicTable(DataVersion(counter=7), table), servers)
    body = encode_registration(made)
    old = encode_topic_table(made.table)
    if spaces:
        body, old = (json.dumps(json.loads(each), indent=2).encode() for each in (body, old))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration_reader, "LENIENT_BYTES_MAX", 0)
        assert read(body) == decode_registration(body)
        assert read(old, version=30) == decode_registration(old, version=30)
        plain = TopicTable(DataVersion(counter=7), {"T": TopicConfig(topic_name="T")})
        packed = deflate_registration(Registration(plain, servers))
        assert read(packed, is_compressed=True) == Registration(plain, servers)


def test_queues_of_static_topics_with_bare_numbers_as_names_are_passed_over() -> None:
    topics = {name: TopicConfig(topic_name=name) for name in many(500)}
    plain = encode_registration(Registration(TopicTable(DataVersion(counter=7), topics), ["f"]))
    detail = rb'{"t}":{"bname":"b","currIdMap":{0:0,1:1},"hostedQueues":{0:[{"gen":0}]},"x":"\"}"}}'
    info = rb'{"t1":{"bname":"b","currIdMap":{0:0,1:1},"totalQueues":2}}'
    body = plain
    for name, value in ((b"Detail", detail), (b"Info", info)):
        empty = b'"topicQueueMapping%sMap":{}' % name
        assert empty in body
        body = body.replace(empty, empty[:-2] + value)
    assert len(body) > registration_reader.LENIENT_BYTES_MAX
    assert read(body) == decode_registration(plain)
    with pytest.raises(ProtocolError):
        read(body[: body.index(b'"totalQueues"')])


@given(st.binary(max_size=60), st.integers(0, 200), st.binary(max_size=3))
def test_a_damaged_registration_is_refused_and_never_breaks_the_reader(
    noise: bytes, at: int, change: bytes
) -> None:
    body = registration("t", "u")
    bad = body[:at] + change + body[at + 1 :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration_reader, "LENIENT_BYTES_MAX", 0)
        for each in (noise, bad, body[:at]):
            for is_compressed in (False, True):
                with suppress(ProtocolError):
                    read(each, is_compressed=is_compressed)


def many(count: int, begin: int = 0) -> list[str]:
    return [f"t{number:06}" for number in range(begin, begin + count)]


def test_a_name_server_takes_a_bounded_number_of_topics() -> None:
    settings = {"registered_topics_per_broker_max": 300, "registered_topics_max": 500}

    async def scenario() -> None:
        async with serving(**settings) as server:
            channel = await connect(server.address)
            answer = await register(channel, *many(301))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "more than 300 topics (registeredTopicsPerBrokerMax" in str(answer.remark)
            assert (await register(channel, *many(300))).code == 0
            other = {"brokerName": "b", "brokerAddr": "10.0.0.2:1"}
            answer = await register(channel, *many(201), **other)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "more than 500 (registeredTopicsMax)" in str(answer.remark)
            assert (await register(channel, *many(200), **other)).code == 0
            assert (await register(channel, *many(300, 5), counter=2)).code != 0
            assert (await register(channel, *many(300), counter=2)).code == 0
            channel.close()

    run(scenario())


def test_a_registration_that_brings_nothing_new_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[int] = []

    class Counted(RegistrationReader):
        def __init__(self, data: bytes, **more: object) -> None:
            begun.append(len(data))
            super().__init__(data, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(registration_requests, "RegistrationReader", Counted)

    async def scenario() -> None:
        async with serving() as server:
            first, second = await connect(server.address), await connect(server.address)
            for channel in (first, first, second, first):
                assert (await register(channel, "t", "u")).code == 0
            assert len(begun) == 1
            second.close()  # it is not the owner any more
            await asyncio.sleep(0.05)
            assert await route_code(first, "t") == 0
            await ask(first, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="t")
            assert await route_code(first, "t") != 0
            await register(first, "t", "u")
            assert await route_code(first, "t") == 0
            await register(first, "t", "u", "v", counter=2)
            assert await route_code(first, "v") == 0
            assert len(begun) == 3
            first.close()

    run(scenario())


async def answers_during(work: asyncio.Future[object], channel: Channel) -> int:
    """How many requests of somebody else are answered, one after the other, until it is done."""
    answers = 0
    while not work.done():
        await route_code(channel, "good")
        answers += 1
    return answers


def test_others_are_served_while_thousands_of_topics_come_and_go() -> None:
    async def scenario() -> None:
        async with serving() as server:
            good, bad = await connect(server.address), await connect(server.address)
            await register(good, "good", "fine", brokerName="g", brokerAddr="10.0.0.9:1")
            fields = {**WHO, "brokerName": "bad"}
            for counter in range(3):
                body = registration(*many(20_000), counter=counter)
                code = RequestCode.REGISTER_BROKER
                work = asyncio.ensure_future(ask(bad, code, body, **fields))
                assert await answers_during(work, good) >= 20
                assert work.result().code == 0
            code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            asked = await asyncio.gather(*(ask(good, code) for _ in range(3)))
            assert len({each.body for each in asked}) == 1
            assert asked[0].body == name_lists.encode_topic_list(["good", "fine", *many(20_000)])
            bad.close()
            for _ in range(100):
                found = name_lists.decode_topic_list((await ask(good, code)).body)
                if len(found) == 2:
                    break
                await asyncio.sleep(0.02)
            assert found == ["fine", "good"]
            assert await route_code(good, "t000001") != 0
            good.close()

    run(scenario())


def test_a_broker_that_goes_while_its_registration_is_read_leaves_nothing() -> None:
    async def scenario() -> None:
        async with serving() as server:
            good, bad = await connect(server.address), await connect(server.address)
            fields = {**WHO, "brokerName": "bad"}
            code = RequestCode.REGISTER_BROKER
            work = asyncio.ensure_future(ask(bad, code, registration(*many(5_000)), **fields))
            while await route_code(good, "t000001") != 0:
                await asyncio.sleep(0)
            bad.close()
            with suppress(SendFailed):
                await work
            while server._routes.has_gone or server._routes._topics:
                await asyncio.sleep(0.01)
            code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            assert name_lists.decode_topic_list((await ask(good, code)).body) == []
            good.close()

    run(scenario())


@pytest.mark.parametrize("is_refused", [False, True])
def test_topics_that_were_read_are_freed_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    class Counted(TopicConfig):
        __slots__ = ()

        def __del__(self) -> None:
            freed[-1] += 1

    class Slices(TimeSlices):
        async def collect(self, pieces: Iterable[Any]) -> list[Any]:
            def counted() -> Iterator[Any]:
                for piece in pieces:
                    freed.append(0)
                    yield piece

            return await super().collect(counted())

    freed = [0]
    size = 2_000
    monkeypatch.setattr(
        registration_reader, "topic_of", lambda _value, name: Counted(topic_name=name)
    )
    monkeypatch.setattr(namesrv_app, "TimeSlices", Slices)

    async def scenario() -> None:
        async with serving(registered_topics_max=size - is_refused) as server:
            channel = await connect(server.address)
            answer = await register(channel, *many(size))
            assert bool(answer.code) is is_refused
            channel.close()

    run(scenario())
    assert sum(freed) == size
    assert max(freed) <= 100


def test_checksums_of_a_large_registration_are_taken_a_piece_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    def counted(data: bytes, value: int = 0) -> int:
        sizes.append(len(data))
        return zlib.crc32(data, value)

    monkeypatch.setattr(
        registration_requests, "zlib", SimpleNamespace(crc32=counted, adler32=zlib.adler32)
    )
    body = registration("t", "u") + b" " * 1_000_000
    wrong = str((zlib.crc32(body) ^ 1) & 0x7FFFFFFF)

    async def scenario() -> None:
        async with serving() as server:
            channel = await connect(server.address)
            code = RequestCode.REGISTER_BROKER
            for crc, answer in (str(zlib.crc32(body) & 0x7FFFFFFF), 0), (wrong, 1):
                assert (await ask(channel, code, body, **WHO, bodyCrc32=crc)).code == answer
            channel.close()

    run(scenario())
    assert sum(sizes) >= 2 * len(body)
    assert max(sizes) <= 256 * 1024


def test_the_pieces_of_a_list_are_those_of_the_list() -> None:
    found = [f"t{number * 7919 % 5000}" for number in range(5_000)]
    assert b"".join(name_lists.topic_list_pieces(found)) == name_lists.encode_topic_list(found)


def steps_of(body: bytes, *, is_compressed: bool = False) -> int:
    reader = RegistrationReader(
        body, is_compressed=is_compressed, version=479, topics_max=1_000_000
    )
    return sum(1 for _ in reader.steps())


@pytest.mark.parametrize("piece", [b"x", rb"\"", rb"\\", b"]}"])
def test_a_long_text_in_what_is_passed_over_is_read_in_steps(piece: bytes) -> None:
    text = piece * (2_000_000 // len(piece))
    table = b'{"topicQueueMappingDetailMap":{"a":["%b"]},"topicConfigTable":{}}' % text
    body = b'{"topicConfigSerializeWrapper":%b}' % table
    assert json.loads(body)
    assert steps_of(body) >= 30


def test_a_long_value_that_must_be_read_at_once_is_refused() -> None:
    servers = b",".join([b'"a"'] * 100_000)
    body = b'{"filterServerList":[%b],"topicConfigSerializeWrapper":{}}' % servers
    with pytest.raises(ProtocolError, match="as the value at"):
        steps_of(body)
    attributes = json.dumps({f"a{number}": "b" for number in range(10_000)}).encode()
    table = b'{"topicConfigTable":{"t":{"topicName":"t","attributes":%b}}}' % attributes
    with pytest.raises(ProtocolError, match="as the value at"):
        steps_of(b'{"topicConfigSerializeWrapper":%b}' % table)


def test_a_compressed_registration_is_inflated_in_steps() -> None:
    table = {f"t{number}": TopicConfig(topic_name=f"t{number}") for number in range(30_000)}
    body = deflate_registration(Registration(TopicTable(DataVersion(), table), []))
    assert steps_of(body, is_compressed=True) > len(table) + 3


def test_fields_that_nobody_reads_are_passed_over_in_steps() -> None:
    fields = b",".join([b'"f%d":1' % number for number in range(50_000)])
    body = b'{%b,"topicConfigSerializeWrapper":{%b}}' % (fields, fields)
    assert steps_of(body) >= 100_000


def compressed(*lines: bytes, servers: bytes = b"[]", count: int | None = None) -> bytes:
    version = encode_data_version(DataVersion(timestamp=5, counter=2))
    pieces = [pack(">i", len(version)), version, pack(">i", len(lines) if count is None else count)]
    for piece in (*lines, servers):
        pieces += pack(">i", len(piece)), piece
    return zlib.compress(b"".join(pieces))


def test_a_compressed_registration_is_read_as_it_was_written() -> None:
    table = TopicTable(
        DataVersion(timestamp=5, counter=3),
        {
            "T1": TopicConfig(topic_name="T1", read_queue_nums=7, attributes={"a b": "c"}),
            "T2": TopicConfig(topic_name="T2", perm=4, topic_filter_type="MULTI_TAG"),
        },
    )
    written = deflate_registration(Registration(table, ["h:1"]))
    assert read(written, is_compressed=True) == Registration(table, ["h:1"])


def test_a_compressed_registration_of_apache_is_read() -> None:
    data = compressed(b'T1 8 4 6 MULTI_TAG {"+a":"b"}', b"T2 1 1 2", servers=b'["x:1"]')
    found = read(data, is_compressed=True)
    assert found is not None
    assert found.filter_servers == ["x:1"]
    assert found.table.version == DataVersion(timestamp=5, counter=2)
    one, two = found.table.topics.values()
    assert (one.topic_name, one.read_queue_nums, one.write_queue_nums, one.perm) == ("T1", 8, 4, 6)
    assert (one.topic_filter_type, one.attributes) == ("MULTI_TAG", {"+a": "b"})
    assert (two.topic_name, two.perm, two.attributes) == ("T2", 2, {})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no zlib",
        compressed()[:-9],
        compressed(b"T1 8"),
        compressed(b"T1 a b c"),
        compressed(b"T1 1 1 1 X {"),
        compressed(servers=b"{}"),
        compressed(b"\xff 1 1 1"),
        compressed(count=5),
        zlib.compress(pack(">i", -1)),
        zlib.compress(pack(">i", 1000)),
    ],
)
def test_a_damaged_compressed_registration_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(data, is_compressed=True)


def test_no_piece_of_a_compressed_registration_is_long() -> None:
    long = b"[%b]" % b",".join([b"'a'"] * 20_000)  # read a character at a time
    attributes = b"T 1 1 6 SINGLE_TAG {a:%b}" % long
    for data in (compressed(servers=long), compressed(attributes)):
        with pytest.raises(ProtocolError, match=r"a piece of .* the limit is 32768"):
            read(data, is_compressed=True)


def test_no_more_than_a_bound_of_a_compressed_registration_is_inflated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = compressed(*[b"T%d 1 1 6" % number for number in range(900)])
    assert read(data, is_compressed=True) is not None
    monkeypatch.setattr(registration_reader, "INFLATED_BYTES_MAX", 5_000)
    with pytest.raises(ProtocolError):
        read(data, is_compressed=True)


def test_permissions_of_very_many_topics_change_while_others_are_served() -> None:
    async def scenario() -> None:
        async with serving() as server:
            good, bad = await connect(server.address), await connect(server.address)
            await register(good, "good", "fine", brokerName="g", brokerAddr="10.0.0.9:1")
            fields = {**WHO, "brokerName": "bad"}
            body = registration(*many(20_000))
            assert (await ask(bad, RequestCode.REGISTER_BROKER, body, **fields)).code == 0
            code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
            work = asyncio.ensure_future(ask(bad, code, brokerName="bad"))
            assert await answers_during(work, good) >= 5
            assert work.result().ext["wipeTopicCount"] == "20000"
            for channel in (good, bad):
                channel.close()

    run(scenario())


def test_no_name_of_a_registration_is_long() -> None:
    long = "t" * 1_025
    for body in (registration(long, "u"), registration(long, *many(900))):
        with pytest.raises(ProtocolError, match="a name of 1025 characters"):
            read(body)
    with pytest.raises(ProtocolError, match="a name of 1025 characters"):
        read(compressed(f"{long} 1 1 6".encode()), is_compressed=True)

    async def scenario() -> None:
        async with serving() as server:
            channel = await connect(server.address)
            for field in ("brokerName", "clusterName", "brokerAddr", "haServerAddr"):
                answer = await register(channel, "t", "u", **{field: long})
                assert "has 1025 characters, the limit is 1024" in str(answer.remark)
            channel.close()

    run(scenario())


def test_a_compressed_registration_is_never_read_at_once() -> None:
    """One of 16 KiB may hold 16 MiB, of one topic named again and again."""
    body = compressed(*[b"t 1 1 6"] * 100_000)
    assert len(body) < registration_requests.SMALL_BYTES_MAX

    async def scenario() -> None:
        async with serving() as server:
            good, bad = await connect(server.address), await connect(server.address)
            await register(good, "good", "fine", brokerName="g", brokerAddr="10.0.0.9:1")
            fields = {**WHO, "brokerName": "bad", "compressed": "true"}
            work = asyncio.ensure_future(ask(bad, RequestCode.REGISTER_BROKER, body, **fields))
            served = 0
            while not work.done():
                await route_code(good, "good")
                served += 1
            assert served > 20
            good.close()
            bad.close()

    run(scenario())
