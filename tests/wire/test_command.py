"""Headers as other implementations write them, and headers that are damaged or hostile."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import ProtocolError
from cometmq.wire import header_json, header_rocketmq
from cometmq.wire.codes import LanguageCode, RequestCode, ResponseCode
from cometmq.wire.command import Command, encode_answer, request, response
from cometmq.wire.frame import Frame, FrameDecoder
from cometmq.wire.header_json import HeaderFields
from cometmq.wire.headers.namesrv import GetRouteInfoRequestHeader
from cometmq.wire.headers.send import SendMessageRequestHeaderV2

DECODERS = {"typed": header_json.decode, "tolerant": header_json.decode_tolerant}
int32 = st.integers(-0x80000000, 0x7FFFFFFF)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
exts = st.dictionaries(texts, texts, max_size=8)
languages = st.sampled_from([int(code) for code in LanguageCode])


@pytest.fixture(params=sorted(DECODERS))
def decode(request):
    return DECODERS[request.param]


def test_where_msgspec_is_installed_headers_are_decoded_by_it():
    pytest.importorskip("msgspec", reason="pip install 'cometmq[fast]'")
    assert header_json.decode is not header_json.decode_tolerant


def test_without_msgspec_the_standard_library_does(monkeypatch):
    monkeypatch.setitem(sys.modules, "msgspec", None)
    monkeypatch.setitem(sys.modules, "msgspec.json", None)
    assert header_json._typed_decoder() is None
    assert header_json._typed_encoder() is None


@given(int32, int32, int32, int32, languages, st.none() | texts, st.none() | exts)
def test_json_headers_come_back_as_they_went(code, opaque, flag, version, language, remark, ext):
    data = header_json.encode(code, opaque, flag, language, version, remark, ext)
    wanted = HeaderFields(code, flag, opaque, version, language, remark, ext or {})
    for decode in DECODERS.values():
        assert decode(data) == wanted
    json.loads(data)
    assert b", " not in header_json.encode(code, opaque, flag, language, version, None, None)


@given(
    st.integers(-0x8000, 0x7FFF),
    int32,
    int32,
    st.integers(-0x8000, 0x7FFF),
    languages,
    texts,
    st.dictionaries(texts.filter(bool), texts.filter(bool), max_size=8),
)
def test_binary_headers_come_back_as_they_went(code, opaque, flag, version, lang, remark, ext):
    fields = HeaderFields(code, flag, opaque, version, lang, remark or None, ext)
    assert header_rocketmq.decode(header_rocketmq.encode(fields)) == fields


@given(int32, exts, texts, st.binary(max_size=50), st.integers(0, 3))
def test_commands_come_back_as_they_went(opaque, ext, remark, body, flag):
    sent = Command(RequestCode.PULL_MESSAGE, opaque, flag=flag, ext=ext, remark=remark, body=body)
    (frame,) = FrameDecoder().feed(sent.encode())
    got = Command.decode(frame)
    for slot in Command.__slots__:
        assert getattr(got, slot) == getattr(sent, slot)


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=6))
def test_both_encoders_write_the_same_fields(ext):
    plain, fast = header_json._plain_object(ext), header_json._object(ext)
    assert json.loads(plain) == json.loads(fast)


def test_bare_answers_are_the_same_whichever_way_they_are_made():
    assert response(9, 3).encode() == encode_answer(9, 3)
    fields = header_json.decode(FrameDecoder().feed(encode_answer(9, 3, b"x"))[0].header)
    assert (fields.code, fields.opaque, fields.flag) == (3, 9, 1)


def test_a_request_says_whether_it_wants_an_answer():
    header = GetRouteInfoRequestHeader(topic="T")
    assert not request(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, header).is_oneway
    command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, header, oneway=True)
    assert command.is_oneway
    assert command.ext == {"topic": "T"}


def test_extended_fields_of_an_answer_are_added_to_those_of_its_header():
    command = response(
        1, 0, header=GetRouteInfoRequestHeader(topic="T"), ext={"MSG_REGION": "here"}
    )
    assert command.ext == {"topic": "T", "MSG_REGION": "here"}


def test_a_clients_text_that_cannot_be_utf_8_is_replaced_when_we_answer():
    (frame,) = FrameDecoder().feed(response(1, 1, remark="half \ud83d").encode())
    assert Command.decode(frame).remark == "half ?"


def test_missing_keys_take_their_defaults(decode):
    assert decode(b"{}") == HeaderFields(0, 0, 0, 0, LanguageCode.JAVA, None, {})
    assert decode(b'{"extFields":null,"remark":null,"language":null}').ext == {}


def test_order_space_and_unknown_keys_do_not_matter(decode):
    data = b' {"x":[1,{"y":2}], "opaque" : 5,\n"code":34 } '
    assert decode(data)[:3] == (34, 0, 5)


def test_numbers_may_be_texts(decode):
    assert decode(b'{"code":"34","opaque":"-2","flag":"1","version":"479"}')[:4] == (34, 1, -2, 479)


def test_raw_values_in_the_fields_become_texts(decode):
    data = b'{"code":310,"extFields":{"d":4,"k":false,"m":true,"f":1.5,"n":null,"o":{"a":[1]}}}'
    assert decode(data).ext == {"d": "4", "k": "false", "m": "true", "f": "1.5", "o": '{"a":[1]}'}


def test_a_node_clients_send_is_read_with_its_raw_numbers(decode):
    data = (
        b'{"code":310,"flag":0,"language":"JAVA","opaque":1,"version":121,"extFields":{'
        b'"a":"P","b":"T","c":"TBW102","d":4,"e":0,"f":0,"g":1795237145786,"h":0,"i":"",'
        b'"j":0,"k":false}}'
    )
    header = SendMessageRequestHeaderV2.decode(decode(data).ext)
    assert (header.default_topic_queue_nums, header.queue_id) == (4, 0)
    assert (header.born_timestamp, header.unit_mode) == (1795237145786, False)
    assert (header.batch, header.broker_name) == (None, None)


def test_a_go_clients_empty_remark_is_no_error(decode):
    data = (
        b'{"code":105,"language":"GO","version":317,"opaque":1,"flag":0,"remark":"",'
        b'"extFields":{"topic":"T"}}'
    )
    assert decode(data) == HeaderFields(105, 0, 1, 317, LanguageCode.GO, "", {"topic": "T"})


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ('"GO"', LanguageCode.GO),
        ('"go"', LanguageCode.GO),
        ("3", LanguageCode.PYTHON),
        ('"NODE_JS"', LanguageCode.NODE_JS),
        ('"KLINGON"', LanguageCode.OTHER),
        ('""', LanguageCode.OTHER),
    ],
)
def test_languages_come_by_name_or_number(decode, written, wanted):
    assert decode(b'{"language":%b}' % written.encode()).language == wanted


def test_control_characters_may_come_raw(decode):
    assert decode(b'{"extFields":{"i":"a\x01b\x02"}}').ext == {"i": "a\x01b\x02"}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"nonsense",
        b"[]",
        b"17",
        b"null",
        b'{"code":',
        b'{"opaque":2147483648}',
        b'{"opaque":-2147483649}',
        b'{"opaque":1.5}',
        b'{"code":true}',
        b'{"code":[1]}',
        b'{"version":"12x"}',
        b'{"language":14}',
        b'{"language":-1}',
        b'{"language":[]}',
        b'{"extFields":[]}',
        b'{"extFields":"x"}',
        b'{"remark":"\\ud83d"}',
        b'{"extFields":{"a":"\\ud83d"}}',
        b'{"extFields":{"\\udc00":"a"}}',
        b'{"remark":"\xff"}',
        b'{"code":1}x',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"code":' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_header_is_a_protocol_error(decode, header):
    with pytest.raises(ProtocolError):
        decode(header)


def test_escaped_surrogate_pairs_are_characters(decode):
    assert decode(b'{"remark":"\\ud83d\\ude00"}').remark == "\U0001f600"


def test_an_escaped_backslash_before_u_is_no_escape(decode):
    assert decode(b'{"remark":"\\\\ud83d"}').remark == "\\ud83d"


def test_a_header_type_nobody_knows_is_a_protocol_error():
    with pytest.raises(ProtocolError, match="type 7"):
        Command.decode(Frame(7, b"{}", b""))


@given(st.binary(max_size=80))
def test_binary_garbage_is_a_protocol_error_or_a_header(data):
    try:
        fields = header_rocketmq.decode(data)
    except ProtocolError:
        return
    assert 0 <= fields.language < len(LanguageCode)


def test_every_code_of_the_release_is_listed_once():
    assert len(RequestCode) == len(RequestCode.__members__) == 164
    assert len(ResponseCode) == len(ResponseCode.__members__) == 63 + 5
    assert len({int(code) for code in RequestCode}) == 164
    assert len(LanguageCode) == 14


def test_a_command_says_what_it_is():
    assert repr(request(105, 7)).startswith("<request 105 #7")
    assert repr(response(7, 17, remark="no")).startswith("<response 17 #7")
    assert repr(request(37, 7, oneway=True)).startswith("<oneway 37 #7")
