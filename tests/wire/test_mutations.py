"""Damaged frames: a ProtocolError or a value, never anything else, never a hang."""

import random
from contextlib import suppress

import pytest

from cometmq.errors import ProtocolError
from cometmq.wire import batch, header_json, java_json, stored
from cometmq.wire.bodies import admin, group, heartbeat, lists, lock, offset, route, topic
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import Command, request
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.headers.offset import SearchOffsetRequestHeader
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from cometmq.wire.send_template import SendTemplates
from wire.goldens import NAMES, read_golden

GOLDENS = [read_golden(name) for name in NAMES]
HEADERS = [
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    PullMessageRequestHeader,
    SearchOffsetRequestHeader,
]
BODIES = [
    java_json.loads,
    route.decode_route,
    route.decode_cluster_info,
    route.decode_member_group,
    heartbeat.decode_heartbeat,
    heartbeat.decode_check_client,
    lock.decode_lock_request,
    lock.decode_locked,
    topic.decode_topic_table,
    topic.decode_registration,
    topic.decode_topic_config_list,
    group.decode_group_table,
    group.decode_group_config,
    offset.decode_consumer_offsets,
    offset.decode_reset_offset,
    offset.decode_consumer_status,
    lists.decode_kv_table,
    lists.decode_consumer_list,
    admin.decode_consumer_connections,
    admin.decode_topic_stats,
    admin.decode_consume_stats,
    admin.decode_running_info,
    admin.decode_directly_result,
    admin.decode_time_spans,
    batch.decode,
    lambda data: list(stored.iterate(data)),
]
SPLICES = [
    b"\\u",
    b"\\ud800",
    b'"',
    b"{",
    b"}",
    b"[",
    b":",
    b",",
    b"\x00",
    b"\xff" * 4,
    b"-",
    b"9" * 20,
]


def send_frame():
    header = SendMessageRequestHeaderV2(
        producer_group="PG",
        topic="T1",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=0,
        born_timestamp=1795237145786,
        flag=0,
        properties="UNIQ_KEY\x01AB01\x02TAGS\x01TagA\x02",
    )
    return request(RequestCode.SEND_MESSAGE_V2, 7, header, b"hello").encode()


def damaged(rng, data):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.randrange(256)
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case 3:
                data[at:at] = rng.choice(SPLICES)
            case _:
                data[at:at] = data[at : at + rng.randrange(1, 30)]
    return bytes(data)


def read_frame(data, templates):
    decoder = FrameDecoder(bytes_max=100_000)
    for frame in decoder.feed(data):
        templates.see(frame.header)
        command = Command.decode(frame)
        assert command.encode()
        for cls in HEADERS:
            try:
                cls.decode(command.ext).encode()
            except ProtocolError:
                continue


def survive(read, *arguments):
    with suppress(ProtocolError):
        read(*arguments)


def agree(header):
    """Both decoders of a JSON header must say the same, but for damage that nobody reads."""
    found = []
    for decode in (header_json.decode, header_json.decode_tolerant):
        try:
            found.append(decode(header))
        except ProtocolError:
            found.append(None)
    if found[1] is not None or not holds_damaged_text(header):
        assert found[0] == found[1], header


def holds_damaged_text(header):
    try:
        header.decode()
    except UnicodeDecodeError:
        return True
    return b"\\ud" in header.lower()


def mutate(count, seed):
    rng = random.Random(seed)
    templates = SendTemplates()
    frames = [
        send_frame(),
        *(golden for golden in GOLDENS if golden[0] == 0 and golden[8:9] == b"{"),
    ]
    for number in range(count):
        data = damaged(rng, rng.choice(frames))
        survive(read_frame, data, templates)
        agree(data[8:] if number % 2 else damaged(rng, data[8:-5]))
        body = damaged(rng, rng.choice(GOLDENS))
        survive(rng.choice(BODIES), body)


def test_some_damaged_frames_and_bodies_do_no_worse_than_a_protocol_error():
    mutate(3_000, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(4))
def test_100_000_damaged_frames_and_bodies_do_no_worse_than_a_protocol_error(seed):
    mutate(25_000, seed=100 + seed)
