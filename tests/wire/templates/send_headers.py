"""Headers of sends, well formed and odd, and what a match of one must say."""

from hypothesis import strategies as st

from cometmq.wire import header_json
from cometmq.wire.command import Command
from cometmq.wire.frame import Frame
from cometmq.wire.headers.base import camel_case
from cometmq.wire.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from cometmq.wire.request_signature import sign
from cometmq.wire.templates.send_template import SendHeaderMatch

BORN = 1795237145786
ACCESS_KEY, SECRET_KEY = "50%b", "secret"
KEY = "7F0000010268EC30946E09681104BA%02X"


def send(
    *,
    queue_id="3",
    born=BORN,
    opaque=17,
    properties=None,
    key=KEY % 1,
    extra="",
    topic="T1",
    tags="TagA",
    code=310,
    flag=0,
    body=None,
):
    """With a `body` it is signed."""
    if properties is None:
        properties = f"{extra}UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01{tags}\x02"
    header = {
        "producer_group": "PG",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": "4",
        "queue_id": queue_id,
        "sys_flag": "0",
        "born_timestamp": str(born),
        "flag": "0",
        "properties": properties,
        "reconsume_times": "0",
        "unit_mode": "false",
        "batch": "false",
        "broker_name": "b0",
    }
    cls = SendMessageRequestHeaderV2 if code == 310 else SendMessageRequestHeader
    wire = {name: cls.wire_names.get(name) for name in header}
    ext = {wire[name] or camel_case(name): text for name, text in header.items()}
    if body is not None:
        ext["AccessKey"] = ACCESS_KEY
        ext["Signature"] = sign(ext, body, SECRET_KEY)
    return header_json.encode(code, opaque, flag, 0, 479, None, dict(sorted(ext.items())))


def decoded(header):
    command = Command.decode(Frame(0, header, b""))
    cls = SendMessageRequestHeaderV2 if command.code == 310 else SendMessageRequestHeader
    return command, cls.decode(command.ext)


def assert_says_the_same(fields, header):
    command, wanted = decoded(header)
    assert fields.header() == wanted
    assert fields.properties == (wanted.properties or "").encode()
    template = fields.template
    assert (template.code, fields.opaque, template.flag) == (
        command.code,
        command.opaque,
        command.flag,
    )
    assert (template.language, template.version) == (command.language, command.version)


def match(templates, header):
    """What is known of a header, which is not learned."""
    found = templates.match_at(header, 0, len(header))
    return None if found is None else SendHeaderMatch(*found)


plain = st.text("ABC019", min_size=1, max_size=4)
odd = st.text('AB1"\\\x01\x02é u0', max_size=12)
sends = st.builds(
    send,
    queue_id=st.sampled_from(["0", "1", "12", "-1", "007", "x"]),
    born=st.sampled_from([BORN, BORN + 1, 7]),
    opaque=st.sampled_from([1, 2, 17, 18, 999_999_999, 2**31 - 1, -1, 0]),
    key=plain | odd,
    extra=st.just("") | plain.map("KEYS\x01{}\x02".format) | odd,
    topic=st.sampled_from(["T1", "T2", "Té"]),
    tags=st.sampled_from(["TagA", "TagB"]),
    code=st.sampled_from([10, 310]),
    flag=st.sampled_from([0, 2]),
)
