"""The decoders of the wire and of the log, each with an oracle that knows when it is wrong.

An oracle compares two ways to the same value: decoding what was encoded again, a quick decoder with
a slow one, one chunk with many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from struct import pack
from typing import Any
from zlib import compress, crc32

from cometmq.errors import BadHeader, ProtocolError
from cometmq.rules.filters.sql92_parser import evaluator_of, parse
from cometmq.store.timers import timer_counts
from cometmq.wire import fastjson, header_json, header_rocketmq, replication
from cometmq.wire.bodies import (
    access,
    admin,
    broker,
    epochs,
    group,
    heartbeat,
    lock,
    member_work,
    name_lists,
    offset,
    route,
    topic,
    trace,
)
from cometmq.wire.bodies.registration_reader import RegistrationReader
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import Command, request
from cometmq.wire.frame import JSON, ROCKETMQ, Frame, FrameDecoder, encode_frame
from cometmq.wire.headers.offset import SearchOffsetRequestHeader
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.headers.query import QueryMessageRequestHeader
from cometmq.wire.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import log_record_batch_decoder as stored_run
from cometmq.wire.records import message_batch, properties
from cometmq.wire.templates.pull_template import PullTemplates
from cometmq.wire.templates.send_template import SendHeaderMatch, SendTemplates
from fuzz.fuzzer import Decoder
from wire.goldens import NAMES, read_golden

GOLDENS = {name: read_golden(name) for name in NAMES}
HEADERS = (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    PullMessageRequestHeader,
    SearchOffsetRequestHeader,
    QueryMessageRequestHeader,
)
BODIES: tuple[Callable[[bytes], object], ...] = (
    *(route.decode_route, route.decode_cluster_info, route.decode_member_group),
    *(heartbeat.decode_heartbeat, heartbeat.decode_check_client),
    *(lock.decode_lock_request, lock.decode_locked, lock.decode_holders),
    *(access.decode_user_fields, access.decode_user, access.decode_users),
    *(access.decode_acl, access.decode_stored_acl, access.decode_acls),
    *(topic.decode_topic_table, topic.decode_registration, topic.decode_topic_config_list),
    *(group.decode_group_table, group.decode_group_config, group.decode_group_config_list),
    *(offset.decode_reset_offset, offset.decode_consumer_status),
    *(name_lists.decode_kv_table, name_lists.decode_consumer_list, name_lists.decode_topic_list),
    *(admin.decode_consumer_connections, admin.decode_topic_stats, admin.decode_consume_stats),
    *(admin.decode_running_info, admin.decode_directly_result, admin.decode_time_spans),
    epochs.decode_epoch_status,
    *(broker.decode_producer_table, broker.decode_broker_figures, trace.decode_trace),
    offset.decode_stored_offsets,
    timer_counts.decode_counts,
    lambda data: member_work.decode_work(data.decode("utf-8", "replace")),
)
KEYS = (b"TAGS", b"UNIQ_KEY", b"KEYS", b"a")
Find = Callable[[bytes, bytes], bytes | None]
After = Callable[[int, bytes, int], bytes]


def send_header(unique: str = "AB01") -> bytes:
    header = SendMessageRequestHeaderV2(
        producer_group="PG",
        topic="T1",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=0,
        born_timestamp=1795237145786,
        flag=0,
        properties=f"UNIQ_KEY\x01{unique}\x02TAGS\x01TagA\x02",
    )
    return request(RequestCode.SEND_MESSAGE_V2, 7, header, b"hello").encode()


PULL_HEADER = request(
    RequestCode.PULL_MESSAGE,
    7,
    PullMessageRequestHeader(
        consumer_group="CG",
        topic="T1",
        queue_id=3,
        queue_offset=100,
        max_msg_nums=32,
        sys_flag=4,
        subscription="*",
    ),
).encode()[8:]


def record(topic: str = "T", *, sys_flag: int = 0) -> bytes:
    born, store = (20 if sys_flag & bit else 8 for bit in (0x10, 0x20))
    raw = properties.encode({"UNIQ_KEY": "K1", "TAGS": "a", "a": "5"})
    args = (topic, 1, 0, 5, 4_096, sys_flag, 1_700_000_000_000, bytes(born), 1_700_000_000_001)
    return stored.encode(*args, bytes(store), 0, 0, b"body", raw)


def frame(data: bytes) -> str:
    """However the stream is cut, the frames are the same, and they are written as they came."""
    whole, pieces = FrameDecoder(bytes_max=100_000), FrameDecoder(bytes_max=100_000)
    frames = whole.feed(data)
    step = len(data) % 7 + 1
    apart = [each for at in range(0, len(data), step) for each in pieces.feed(data[at : at + step])]
    assert frames == apart, "cut otherwise, other frames come out"
    assert (whole.broken is None) == (pieces.broken is None)
    again = b"".join(encode_frame(each.header, each.body, each.serialize_type) for each in frames)
    assert data.startswith(again), "written again they are other bytes"
    return f"{'frame ' * min(len(frames), 3)}{whole.broken and 'broken'}"


def command(data: bytes) -> str:
    """A command that was read is read again from what it is written as."""
    outcomes = []
    for each in FrameDecoder(bytes_max=100_000).feed(data):
        read = Command.decode(each)
        (again,) = FrameDecoder(bytes_max=1_000_000).feed(read.encode())
        second = Command.decode(again)
        assert (second.code, second.opaque, second.flag) == (read.code, read.opaque, read.flag)
        assert (second.ext, second.body) == (read.ext, read.body)
        outcomes.append(f"{each.serialize_type} {sorted(read.ext)[:2]} {read.remark is None}")
    return " ".join(outcomes)


def json_header(data: bytes) -> str:
    """The quick and the tolerant reader of a JSON header agree, but for damage nobody reads."""
    found = []
    for read in (header_json.decode, header_json.decode_tolerant):
        try:
            found.append(read(data))
        except ProtocolError:
            found.append(None)
    quick, slow = found
    assert quick == slow or (slow is None and _holds_damaged_text(data)), "the two readers differ"
    return f"{'field ' * min(len(quick.ext), 5)}{quick.remark is None}" if quick else "refused"


def _holds_damaged_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return b"\\ud" in data.lower()


def binary_header(data: bytes) -> str:
    """A binary header is read again from what it is written as."""
    found = header_rocketmq.decode(data)
    assert header_rocketmq.decode(header_rocketmq.encode(found)) == found
    return f"{'field ' * min(len(found.ext), 5)}{found.remark is None}"


def header_classes(data: bytes) -> str:
    """Fields that a header class took are those that it writes."""
    found = Command.decode(Frame(JSON, data, b"")).ext
    outcomes = []
    for cls in HEADERS:
        try:
            header = cls.decode(found)
        except BadHeader:
            outcomes.append("-")
            continue
        assert cls.decode(header.encode()) == header, cls.__name__
        outcomes.append(cls.__name__)
    return " ".join(outcomes)


def raw_properties(data: bytes, find: Find = properties.find) -> str:
    """Finding one property is what decoding all and taking that one is."""
    pairs = properties.decode(data)
    for key in KEYS:
        value = find(data, key)
        found = None if value is None else value.decode("utf-8", "replace")
        assert found == pairs.get(key.decode()), f"{key!r} is {found!r} alone"
    assert properties.decode(properties.encode(pairs)) == pairs
    gone = properties.decode(properties.remove(data, b"TAGS"))
    assert gone == {key: value for key, value in pairs.items() if key != "TAGS"}
    return "pair " * min(len(pairs), 4)


def log_record(data: bytes, after: After = stored.properties_after) -> str:
    """The properties found without the body are those of the whole record."""
    magic, end = stored.body_end(data)
    found = stored.decode(data)
    assert found.size <= len(data)
    assert stored.head_of(found.sys_flag).size + len(found.body) == end, "the body ends elsewhere"
    assert after(magic, data, end)[: len(found.properties)] == found.properties
    rest = data[end : found.size]
    assert after(magic, rest, 0) == found.properties, "other properties without the body"
    stored.text_properties(found)
    kind = "new" if magic == stored.MAGIC_V2 else "old"
    hosts = "long" * ((found.sys_flag >> 4) & 3)
    return f"{kind} {hosts} {stored.is_whole(found, data)}"


def log_records(data: bytes) -> str:
    """Records that lie side by side end where the next one begins."""
    found = list(stored.iterate(data))
    plain, _ = stored_run.messages(data, 0, "b")
    quick = [(one.topic, one.queue_offset, one.body, one.raw_properties) for one in plain]
    slow = [
        (one.topic, one.queue_offset, one.body, stored.shown_properties(one.properties))
        for one in found[: len(plain)]
    ]
    assert quick == slow, "the quick way reads other messages"
    at = 0
    for each in found:
        assert stored.decode(data, at) == each
        at += each.size
    return "record " * min(len(found), 3)


def batch_body(data: bytes) -> str:
    """A batch is read again from what it is written as."""
    items = message_batch.decode(data)
    assert message_batch.decode(message_batch.encode(items)) == items
    return "message " * min(len(items), 3)


def json_body(data: bytes) -> str:
    """A value is read again from what it is written as, but for nulls, which objects leave out."""
    value = fastjson.loads(data)
    written = fastjson.dumps(value, strict=True)  # a number beyond all doubles is null by now
    again = fastjson.dumps(fastjson.loads(written), strict=True)
    assert again == written or b"null" in written, "written again it is another value"
    assert fastjson.dumps(fastjson.loads(again), strict=True) == again
    depth = "." * min(written.count(b"{"), 8)
    return f"{type(value).__name__} {depth}"


def bodies(data: bytes) -> str:
    """Every reader of a body gives a value or a refusal; the input chooses which is asked."""
    number = crc32(data) % len(BODIES)
    try:
        outcome = type(BODIES[number](data)).__name__
    except ProtocolError as refusal:
        outcome = str(refusal)
    return f"{chr(97 + number)} {outcome}"


def registration(data: bytes) -> str:
    """A registration, as JSON or as what was compressed, gives a value or a refusal in steps."""
    is_compressed = data[:1] != b"{"
    reader = RegistrationReader(
        compress(data, 1) if is_compressed else data,
        is_compressed=is_compressed,
        version=479,
        topics_max=5,
    )
    steps = reader.steps() if is_compressed else reader._json_steps()
    count = sum(1 for _ in steps)
    found = reader.result
    assert found is not None, "it is neither read nor refused"
    assert found.table.topics.keys() == reader.topics.keys()
    return f"{len(reader.topics)} topics {min(count, 9)} steps {len(found.filter_servers)} servers"


class Sends:
    """What a template tells of a header is what decoding it tells."""

    def __init__(self) -> None:
        self._templates, self._left = SendTemplates(), 0

    def __call__(self, data: bytes) -> str:
        if not self._left:
            self._templates, self._left = SendTemplates(), 500
            for number in range(3):
                self._templates.match_or_learn(send_header(f"AB{number:02}")[8:-5])
        self._left -= 1
        matched = self._templates.match_or_learn(data)
        if matched is None:
            return "not known"
        fields = SendHeaderMatch(*matched)
        found = Command.decode(Frame(JSON, data, b""))
        v1 = found.code == RequestCode.SEND_MESSAGE
        header = (SendMessageRequestHeader if v1 else SendMessageRequestHeaderV2).decode(found.ext)
        from_template: dict[str, Any] = asdict(fields.header())
        assert from_template == asdict(header), "the template has other fields"
        assert fields.properties == (header.properties or "").encode()
        assert fields.opaque == found.opaque
        return f"known {found.flag}"


class Pulls:
    """What a template tells of a pull's header is what decoding it tells."""

    def __init__(self) -> None:
        self._templates, self._left = PullTemplates(), 0

    def __call__(self, data: bytes) -> str:
        if not self._left:
            self._templates, self._left = PullTemplates(), 500
            self._templates.match_or_learn(PULL_HEADER)
        self._left -= 1
        matched = self._templates.match_or_learn(data)
        if matched is None:
            return "not known"
        one, values = matched
        places = (one.queue_at, one.offset_at, one.commit_at)
        queue_id, queue_offset, commit_offset = [int(values[at]) for at in places]
        found = Command.decode(Frame(JSON, data, b""))
        header = PullMessageRequestHeader.decode(found.ext)
        changes = {"queue_id": queue_id, "queue_offset": queue_offset}
        from_template = replace(one.header, commit_offset=commit_offset, **changes)
        assert from_template == header, "the template has other fields"
        assert (int(values[one.opaque_at]), one.code, 0) == (found.opaque, found.code, found.flag)
        frame = encode_frame(data)
        cut = [(len(frame), queue_id, queue_offset, commit_offset, values[one.opaque_at])]
        assert self._templates.cut(frame, 0) == (one, cut), "a chunk is cut otherwise"
        return f"known {chr(96 + len(str(queue_offset)))}"


def sql_filter(data: bytes) -> str:
    """A filter that is one has a verdict, and NOT of it the opposite one."""
    text = data.decode("utf-8", "replace")
    if len(text) > 1_000:
        return "long"
    wanted = parse(text)
    pairs = {"a": "5", "b": "x", "TAGS": "t"}
    assert wanted.matches(pairs.get) in (True, False)
    assert wanted.size >= 1
    try:
        verdict = evaluator_of(text)(pairs.get)
    except ValueError:
        return "no verdict"
    assert verdict in (True, False, None)
    return f"{verdict}"


def transfers(data: bytes) -> str:
    """What a slave reads: the same in one piece as byte by byte."""
    try:
        whole = replication.TransferDecoder().feed(data)
    except ProtocolError:
        return "refused"
    slowly = replication.TransferDecoder()
    pieces = [each for at in range(len(data)) for each in slowly.feed(data[at : at + 1])]
    assert pieces == whole
    taken = sum(replication.TRANSFER_HEAD.size + len(each.data) for each in whole)
    assert taken <= len(data)
    return f"{len(whole)} transfers"


def reports(data: bytes) -> str:
    """What a master reads: the last whole report counts, wherever the bytes are cut."""
    try:
        found = replication.ReportDecoder().feed(data)
    except ProtocolError:
        return "refused"
    if found is None:
        assert len(data) < replication.REPORT.size
        return "none"
    whole = len(data) - len(data) % replication.REPORT.size
    assert replication.encode_report(found[1]) == data[whole - replication.REPORT.size : whole]
    assert replication.encode_report(found[0]) == data[: replication.REPORT.size]
    return "reports"


JSON_BODIES = (
    *(data for name, data in GOLDENS.items() if name.endswith("_body")),
    b'{"username":"u","password":"p","userType":"Super","userStatus":"enable"}',
    b'{"subject":"User:u","policies":[{"policyType":"Custom","entries":[{"resource":"Topic:T*",'
    b'"actions":["Pub"],"sourceIps":["10.0.0.0/8"],"decision":"Allow"}]}]}',
)
FRAMES = (
    send_header(),
    *(data for data in GOLDENS.values() if data[:1] == b"\0" and data[8:9] in (b"{", b"\0")),
)
BINARY = tuple(
    each.header
    for data in FRAMES
    for each in FrameDecoder(bytes_max=100_000).feed(data)
    if each.serialize_type == ROCKETMQ
)
RECORDS = (
    *(record(), record("x" * 200), record(sys_flag=0x10), record(sys_flag=0x30)),
    GOLDENS["stored_record"],
)
REGISTRATIONS = (
    b'{"filterServerList":["f:1"],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3},"x":1,'
    b'"topicConfigTable":{"T":{"topicName":"T","perm":6,"attributes":{"a":"b"}}},'
    b'"topicQueueMappingInfoMap":{"t":{0:1}}}}',
    b"".join(
        pack(">i", len(piece)) + piece if isinstance(piece, bytes) else pack(">i", piece)
        for piece in (b'{"counter":3}', 2, b'T 1 1 6 SINGLE_TAG {"a":"b"}', b"U 1 1 6", b"[]", 0)
    ),
)
TRANSFER = replication.encode_transfer_head(77, 5) + b"hello"
FILTERS = (
    b"a > 3 AND (b = 'x' OR NOT TAGS IN ('t', 'u'))",
    b"a BETWEEN 1 AND 7 AND b IS NOT NULL",
    b"b CONTAINS 'x' OR a NOT BETWEEN -1 AND 1.5e3 /* c */",
)
_ALL = (
    Decoder("frame", frame, (*FRAMES, FRAMES[0] * 3)),
    Decoder("command", command, FRAMES),
    Decoder("json_header", json_header, tuple(data[8:-5] for data in FRAMES[:1])),
    Decoder("binary_header", binary_header, BINARY),
    Decoder("header_classes", header_classes, (send_header()[8:-5],)),
    Decoder("properties", raw_properties, (properties.encode({"TAGS": "a", "UNIQ_KEY": "K"}),)),
    Decoder("record", log_record, RECORDS),
    Decoder("records", log_records, (b"".join(RECORDS[:3]),)),
    Decoder("batch", batch_body, (GOLDENS["batch_body"],)),
    Decoder("json_body", json_body, JSON_BODIES),
    Decoder("bodies", bodies, JSON_BODIES),
    Decoder("registration", registration, REGISTRATIONS),
    Decoder("send_template", Sends(), (send_header()[8:-5],)),
    Decoder("pull_template", Pulls(), (PULL_HEADER,)),
    Decoder("sql_filter", sql_filter, FILTERS),
    Decoder("transfers", transfers, (TRANSFER, TRANSFER * 2 + TRANSFER[:5])),
    Decoder("reports", reports, (replication.encode_report(77), b"\0" * 24)),
)
DECODERS = {each.name: each for each in _ALL}
