"""Bytes made by Java: read, understood, written back the same."""

import json
import zlib

import pytest

from cometmq.model.admin_stats import ConsumeStats, QueueProgress
from cometmq.model.queue import MessageQueue
from cometmq.rules.key_hash import queue_index
from cometmq.wire import header_rocketmq
from cometmq.wire.bodies import admin, heartbeat, offset, route
from cometmq.wire.codes import LanguageCode
from cometmq.wire.command import VERSION, Command, response
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.header_json import HeaderFields
from cometmq.wire.headers.namesrv import GetRouteInfoRequestHeader
from cometmq.wire.headers.send import SendMessageRequestHeaderV2
from cometmq.wire.java_hash import java_hash
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import message_batch, message_id, properties
from wire.goldens import read_golden as golden


def only_frame(data):
    decoder = FrameDecoder()
    (frame,) = decoder.feed(data)
    assert decoder.broken is None
    return frame


@pytest.mark.parametrize("name", ["route_request_json", "route_request_rocketmq"])
def test_a_route_request_is_read_from_either_encoding(name):
    command = Command.decode(only_frame(golden(name)))
    assert (command.code, command.opaque, command.flag) == (105, 7, 0)
    assert (command.language, command.version) == (LanguageCode.JAVA, 479)
    assert GetRouteInfoRequestHeader.decode(command.ext).topic == "T1"
    assert (command.remark, command.body) == (None, b"")


@pytest.mark.parametrize("name", ["route_request_json", "response_with_remark"])
def test_json_frames_are_written_back_byte_for_byte(name):
    assert Command.decode(only_frame(golden(name))).encode() == golden(name)


def test_the_binary_header_is_written_back_byte_for_byte():
    header = only_frame(golden("route_request_rocketmq")).header
    assert header_rocketmq.encode(header_rocketmq.decode(header)) == header


def test_pop_codes_do_not_fit_the_binary_header():
    from cometmq.errors import ProtocolError

    with pytest.raises(ProtocolError, match="200050"):
        header_rocketmq.encode(HeaderFields(200050, 0, 1, VERSION, 3, None, {}))


def test_a_response_with_a_remark_and_a_body_is_understood():
    command = Command.decode(only_frame(golden("response_with_remark")))
    assert command.is_response
    assert not command.is_oneway
    assert (command.code, command.remark, command.body) == (17, "no", b"\x01\x02")


def test_our_answer_differs_from_javas_in_the_language_alone():
    ours = response(7, 17, remark="no", body=b"\x01\x02").encode()
    assert ours[8:].replace(b"PYTHON", b"JAVA") == golden("response_with_remark")[8:]


def test_the_captured_send_header_is_understood():
    ext = json.loads(golden("send_v2_ext_fields"))
    header = SendMessageRequestHeaderV2.decode(ext)
    assert (header.producer_group, header.topic, header.default_topic) == ("PG", "T1", "TBW102")
    assert (header.queue_id, header.born_timestamp) == (0, 1795237145786)
    assert (header.batch, header.unit_mode, header.broker_name) == (False, False, "b0")
    assert header.max_reconsume_times is None
    assert header.encode() == ext
    assert header.properties is not None
    assert properties.decode(header.properties.encode())["KEYS"] == "K1 K2"


def test_the_route_is_read_and_written_back():
    data = golden("route_body")
    found = route.decode_route(data)
    assert found.broker_datas[0].master == "127.0.0.1:10911"
    assert found.queue_datas[0].write_queue_nums == 4
    assert route.encode_route(found) == data


def test_the_route_for_newer_clients_is_standard_json():
    strict = route.encode_route(route.decode_route(golden("route_body")), strict=True)
    assert b'{"brokerAddrs":{"0":"127.0.0.1:10911"},' in strict
    json.loads(strict)
    assert route.decode_route(strict) == route.decode_route(golden("route_body"))


def test_the_heartbeat_is_read_written_back_and_has_javas_fingerprint():
    data = golden("heartbeat_body")
    beat = heartbeat.decode_heartbeat(data)
    assert heartbeat.encode_heartbeat(beat) == data
    assert heartbeat.heartbeat_fingerprint(beat) == -1761113644


def test_consume_stats_keep_queues_as_object_keys():
    data = golden("consume_stats_body")
    wanted = QueueProgress(broker_offset=2, consumer_offset=2, last_timestamp=2, pull_offset=2)
    assert admin.decode_consume_stats(data) == ConsumeStats(
        offset_table={MessageQueue("s", "s", 1): wanted}, consume_tps=1.5
    )
    assert admin.encode_consume_stats(admin.decode_consume_stats(data)) == data


def test_local_offsets_have_the_form_of_a_reset():
    data = golden("local_offsets")
    offsets = offset.decode_reset_offset(data)
    assert offsets == {MessageQueue("T1", "b0", 0): 4}
    assert offset.encode_reset_offset(offsets) == data


def test_the_stored_record_is_understood():
    record = stored.decode(golden("stored_record"))
    assert (record.topic, record.body, record.queue_id, record.flag) == ("T1", b"hello", 3, 9)
    assert (record.queue_offset, record.phy_offset, record.size) == (11, 1234, 108)
    assert (record.born_ms, record.store_ms) == (1700000000000, 1700000000123)
    assert record.body_crc == zlib.crc32(b"hello") & 0x7FFFFFFF == 907060870
    assert record.properties == b"TAGS\x01TagA\x02"
    wanted = "0A00000200002A9F00000000000004D2"
    assert message_id.offset_id(record.store_host, record.phy_offset) == wanted


def test_the_batch_body_is_read_and_written_back():
    (item,) = message_batch.decode(golden("batch_body"))
    assert (item.body, item.properties) == (b"b1", b"WAIT\x01true\x02TAGS\x01TagA\x02")
    assert message_batch.encode([item]) == golden("batch_body")


def test_javas_deflated_bodies_inflate_and_ours_are_the_same():
    assert zlib.decompress(golden("zlib_hello")) == b"hello"
    assert zlib.compress(b"hello", 5) == golden("zlib_hello")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("*", 42),
        ("中文", 646394),
        ("order-123", -392797389),
        ("", 0),
    ],
)
def test_hashes_are_those_of_java(text, wanted):
    assert java_hash(text) == wanted


def test_hashes_run_over_utf_16_units():
    assert java_hash("\U0001f600") == 0xD83D * 31 + 0xDE00


def test_the_hash_selector_takes_javas_truncated_remainder():
    assert queue_index(java_hash("order-123"), 4) == 1
