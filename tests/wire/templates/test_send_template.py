"""A match equals the ordinary decode, whatever is sent; and the layouts stay few."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import ProtocolError
from cometmq.wire.request_signature import is_signature, sign
from cometmq.wire.templates.header_template import (
    MISSES_MAX,
    PAUSE,
    SAME_PREFIX_MAX,
    TEMPLATES_MAX,
)
from cometmq.wire.templates.send_template import KINDS_MAX, SendHeaderMatch, SendTemplates
from wire.templates.send_headers import (
    BORN,
    KEY,
    SECRET_KEY,
    assert_says_the_same,
    decoded,
    match,
    send,
    sends,
)


def see(templates, header):
    found = templates.match_or_learn(header)
    return None if found is None else SendHeaderMatch(*found)


def seen(templates, *headers):
    return [see(templates, header) for header in headers]


def test_the_second_header_of_a_kind_is_recognised():
    templates = SendTemplates()
    first, second = send(), send(queue_id="5", born=BORN + 9, opaque=18, key=KEY % 2)
    assert see(templates, first) is None
    fields = see(templates, second)
    assert not fields.template.takes_all
    assert fields.texts == ((KEY % 2).encode(), b"TagA")
    assert (fields.queue_id, fields.born_timestamp, fields.opaque) == (5, BORN + 9, 18)
    assert_says_the_same(fields, second)


def test_the_long_form_is_recognised_too():
    templates = SendTemplates()
    _, fields = seen(templates, send(code=10), send(code=10, opaque=99))
    assert fields.template.code == 10
    assert_says_the_same(fields, send(code=10, opaque=99))


def test_a_plan_derived_from_a_template_stays_with_it_until_it_is_forgotten():
    templates = SendTemplates()
    see(templates, send())
    match(templates, send(opaque=20)).template.plan = "derived"
    assert match(templates, send(opaque=21)).template.plan == "derived"
    templates.forget()
    assert match(templates, send(opaque=22)) is None


def test_a_one_way_send_is_distinguished_from_one_that_wants_an_answer():
    templates = SendTemplates()
    _, oneway = seen(templates, send(flag=2), send(flag=2, opaque=18))
    assert oneway.template.flag == 2
    assert match(templates, send(flag=0)) is None


def test_several_tags_of_one_length_are_kept_side_by_side():
    templates = SendTemplates()
    for tags in ("TagA", "TagB", "TagC"):
        see(templates, send(tags=tags))
    for tags in ("TagA", "TagB", "TagC"):
        fields = see(templates, send(tags=tags, opaque=18))
        assert not fields.template.takes_all
        assert_says_the_same(fields, send(tags=tags, opaque=18))


def test_properties_of_too_many_kinds_are_taken_as_they_come():
    templates = SendTemplates()
    count = KINDS_MAX + 1
    headers = [send(extra=f"name{n}\x01value\x02", opaque=20 + n) for n in range(2 * count)]
    found = seen(templates, *headers)
    assert found[:count] == [None] * count
    for fields, header in zip(found[count:], headers[count:], strict=True):
        assert fields.template.takes_all
        assert_says_the_same(fields, header)
    assert len(templates.templates) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"opaque": 7}, {"opaque": 999_999_999}),
        ({"queue_id": "3"}, {"queue_id": "1023"}),
        ({"extra": "KEYS\x01a\x02"}, {"extra": "KEYS\x01order 10 and order 11\x02"}),
        ({"key": "A"}, {"key": "F" * 40}),
        ({"tags": "TagA"}, {"tags": "another"}),
    ],
)
def test_one_template_stands_for_values_of_all_lengths(first, second):
    templates = SendTemplates()
    _, fields = seen(templates, send(**first), send(**second))
    assert_says_the_same(fields, send(**second))


def test_values_that_are_only_stored_may_differ_without_being_learned_again():
    templates = SendTemplates()
    extra = "KEYS\x01k{0}\x02__SHARDINGKEY\x01{0}\x02city\x01B {0}\x02"
    _, fields = seen(templates, send(extra=extra.format(1)), send(extra=extra.format(2)))
    assert not fields.template.takes_all
    assert fields.texts == (b"k2", b"2", b"B 2", (KEY % 1).encode(), b"TagA")
    assert fields.texts[fields.template.unique_at] == (KEY % 1).encode()
    assert_says_the_same(fields, send(extra=extra.format(2)))


@pytest.mark.parametrize("name", ["DELAY", "TRAN_MSG", "WAIT", "__NEW", "MSG_REGION"])
def test_values_that_something_is_decided_by_are_learned_one_by_one(name):
    templates = SendTemplates()
    seen(templates, send(properties=f"UNIQ_KEY\x01A\x02{name}\x011\x02"))
    assert match(templates, send(properties=f"UNIQ_KEY\x01A\x02{name}\x012\x02")) is None


@pytest.mark.parametrize("text", ['"', "\\", "\n", "é", "\x01", "\x02DELAY\x013"])
def test_a_value_that_is_not_plain_goes_to_the_decoder(text):
    templates = SendTemplates()
    header = send(extra="KEYS\x01abcdefgh\x02")
    seen(templates, header)
    assert match(templates, header)
    assert match(templates, send(extra=f"KEYS\x01{text}\x02")) is None
    forged = header.replace(b"abcdefgh", text.encode().ljust(8, b"x"))
    assert match(templates, forged) is None


def test_properties_without_a_unique_key_are_taken_as_they_come():
    templates = SendTemplates()
    _, fields = seen(templates, send(properties=""), send(properties="a\x01b\x02"))
    assert_says_the_same(fields, send(properties="a\x01b\x02"))


def changing():
    templates = SendTemplates()
    extras = [f"name{n}\x01value\x02" for n in range(KINDS_MAX + 1)]
    seen(templates, *[send(extra=extra, opaque=20) for extra in extras])
    assert match(templates, send(extra="KEYS\x01new\x02", opaque=30))
    return templates


@pytest.mark.parametrize("text", ["中文", "é\x01", "\U0001f600", "a b", "\x7f"])
def test_changing_properties_may_hold_any_text_that_needs_no_escape(text):
    header = send(extra=f"KEYS\x01{text}\x02", opaque=30)
    fields = match(changing(), header)
    assert_says_the_same(fields, header)


@pytest.mark.parametrize("text", ['"', "\\", "\n", "\x00", "\\u0001", 'x"y'])
def test_changing_properties_with_other_escapes_go_to_the_decoder(text):
    assert match(changing(), send(extra=f"KEYS\x01{text}\x02", opaque=30)) is None


def test_changing_properties_that_are_no_utf_8_go_to_the_decoder():
    header = send(extra="KEYS\x01@\x02", opaque=30).replace(b"@", b"\xff")
    assert match(changing(), header) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"e":"3"', b'"e":"x"'),
        (b'"e":"3"', b'"e":"-"'),
        (b'"g":"1', b'"g":"-'),
        (b'"g":"1', b'"g":" '),
        (b'"opaque":17', b'"opaque":07'),
        (b'"opaque":17', b'"opaque":-7'),
        (b'"opaque":17', b'"opaque":1 '),
        (b'"opaque":17', b'"opaque":1.'),
        (b"BA01", b'BA"1'),
        (b"BA01", b"BA\\1"),
        (b"BA01", b"BA\xff1"),
        (b'"b":"T1"', b'"b":"T2"'),
        (b'"language":"JAVA"', b'"language":"RUST"'),
    ],
)
def test_a_gap_that_holds_anything_else_goes_to_the_decoder(old, new):
    templates = SendTemplates()
    header = send()
    see(templates, header)
    assert match(templates, header)
    forged = header.replace(old, new)
    assert forged != header
    assert len(forged) == len(header)
    assert match(templates, forged) is None


@pytest.mark.parametrize(
    "header",
    [
        send(opaque=1234567890),
        send(opaque=-3),
        send(opaque=0),
        send(queue_id="-1"),
        send(queue_id="1024"),
        send(queue_id="x"),
        send(born=-5),
        send(born=1234567890123456789),
        send(properties="x" * 5000),
        send().replace(b'"e":"3"', b'"e":3'),
        send().replace(b'"e":"3"', b'"e":"3","e":"4"'),
        send().replace(b'"e":"3"', b'"\\u0065":"3"'),
        send().replace(b'"flag":0', b'"flag":0,"opaque":17'),
        send().replace(b'"flag":0', b'"flag":0,"x":[]'),
        send().replace(b'"flag":0', b'"flag":0,"x":{"e":"3"}'),
        send().replace(b'"opaque":17', b'"opaque":"17"'),
        send().replace(b'"a":"PG",', b""),
        send(code=11),
        b'{"code":310,',
        b'{"code":310}',
        b"{}",
        b"",
    ],
)
def test_what_is_out_of_the_ordinary_is_never_learned(header):
    templates = SendTemplates()
    assert seen(templates, *[header] * 10) == [None] * 10


@pytest.mark.parametrize(
    "properties",
    [
        "UNIQ_KEY\x01A\x02UNIQ_KEY\x01B\x02",
        "MY_UNIQ_KEY\x01AB\x02",
        "KEYS\x01UNIQ_KEY\x01AB\x02",
        "UNIQ_KEY\x01\x02",
        "UNIQ_KEY\\u0001AB\x02",
        "UNIQ_KEY\x01AB\\u0002x\x02",
    ],
)
def test_a_unique_key_that_does_not_stand_alone_is_no_gap(properties):
    templates = SendTemplates()
    seen(templates, *[send(properties=properties)] * 3)
    fields = match(templates, send(properties=properties, opaque=18))
    if fields is not None:
        assert fields.template.takes_all
        assert_says_the_same(fields, send(properties=properties, opaque=18))


def test_a_unique_key_at_the_very_end_is_a_gap():
    templates = SendTemplates()
    _, fields = seen(
        templates, send(properties="UNIQ_KEY\x01AB"), send(properties="UNIQ_KEY\x01CD")
    )
    assert not fields.template.takes_all
    assert fields.properties == b"UNIQ_KEY\x01CD"


def test_headers_with_spaces_and_another_order_are_recognised():
    templates = SendTemplates()

    def spaced(opaque):
        value = json.loads(send(opaque=opaque))
        return json.dumps(dict(reversed(value.items()))).encode()

    _, fields = seen(templates, spaced(17), spaced(18))
    assert_says_the_same(fields, spaced(18))


def test_templates_are_bounded_whatever_is_sent():
    templates = SendTemplates()
    for number in range(2000):
        header = send(
            topic=f"T{number % 500}", opaque=10 ** (number % 9) + number, tags="x" * (number % 7)
        )
        fields = see(templates, header)
        if fields:
            assert_says_the_same(fields, header)
        assert len(templates.templates) <= TEMPLATES_MAX


def test_a_rotation_of_a_hundred_topics_is_matched_after_one_round():
    templates = SendTemplates()
    headers = [send(topic=f"{'T' * (number % 7)}{number:03}") for number in range(100)]
    assert seen(templates, *headers) == [None] * 100
    for header in headers + headers[::-1]:
        assert_says_the_same(match(templates, header), header)


def test_the_templates_of_one_prefix_stay_few():
    templates = SendTemplates()
    headers = [
        send(code=10, opaque=20).replace(b'"topic":"T1"', b'"topic":"T%02d"' % number)
        for number in range(SAME_PREFIX_MAX + 8)
    ]
    seen(templates, send(), *headers)
    assert len({template.prefix for template in templates.templates}) == 2
    assert len(templates.templates) == 1 + SAME_PREFIX_MAX
    assert match(templates, headers[0]) is None
    assert match(templates, headers[-1]) is not None
    assert match(templates, send()) is not None


def test_a_dropped_template_matches_no_more():
    templates = SendTemplates()
    headers = [send(topic="T1"), send(topic="T2")]
    seen(templates, *headers)
    first = match(templates, headers[0]).template
    templates.drop([first])
    assert match(templates, headers[0]) is None
    assert match(templates, headers[1]) is not None
    templates.forget()
    assert match(templates, headers[1]) is None


def test_learning_pauses_while_few_headers_are_recognised():
    templates = SendTemplates()
    headers = [send(topic=f"T{number:05}", opaque=20) for number in range(MISSES_MAX + PAUSE + 2)]
    seen(templates, *headers[: MISSES_MAX + 1])
    assert templates._pause == PAUSE
    seen(templates, *headers[MISSES_MAX + 1 : -1])
    assert templates._pause == 0
    assert match(templates, headers[-2]) is None
    see(templates, headers[-1])
    assert match(templates, headers[-1])


@given(st.lists(sends, max_size=30))
def test_whatever_is_recognised_says_what_the_decoder_says(headers):
    templates = SendTemplates()
    for header in headers:
        fields = see(templates, header)
        if fields is not None:
            assert_says_the_same(fields, header)


@given(st.lists(sends, min_size=1, max_size=6), st.data())
def test_no_forged_header_is_decoded_differently_than_by_the_decoder(headers, data):
    templates = SendTemplates()
    seen(templates, *headers, *headers)
    forged = bytearray(data.draw(st.sampled_from(headers)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(forged) - 1))
        forged[at] = data.draw(st.sampled_from(b'"\\0123u{}:,-e \x01\xff'))
    fields = match(templates, bytes(forged))
    if fields is not None:
        assert_says_the_same(fields, bytes(forged))


signed = st.builds(
    send,
    queue_id=st.sampled_from(["0", "12"]),
    born=st.sampled_from([BORN, 7]),
    opaque=st.sampled_from([1, 17]),
    extra=st.just("")
    | st.sampled_from(["KEYS\x01k%d\x02", "é\x01%\x02", "n1\x01v\x02n2\x01w\x02"]),
    topic=st.sampled_from(["T1", "T%b"]),
    code=st.sampled_from([10, 310]),
    body=st.sampled_from([b"hello", b"%b"]),
)
CHECK = partial(is_signature, SECRET_KEY.encode())


def is_signed_by_the_decoder(header, body):
    command, _ = decoded(header)
    return command.ext["Signature"] == sign(command.ext, body, SECRET_KEY)


@given(st.lists(signed, min_size=1, max_size=12), st.data())
def test_a_signature_is_right_where_the_decoder_says_so(headers, data):
    templates = SendTemplates()
    templates.check = CHECK
    seen(templates, *headers, *headers)
    header = data.draw(st.sampled_from(headers))
    forged = bytearray(header)
    for _ in range(data.draw(st.integers(0, 2))):
        forged[data.draw(st.integers(0, len(forged) - 1))] = data.draw(st.sampled_from(b"0123kA=/"))
    for one in (header, bytes(forged)):
        fields = match(templates, one)
        assert fields is not None or one != header
        if fields is not None:
            assert_says_the_same(fields, one)
            for body in (b"hello", b"%b", b""):
                is_signed = fields.template.is_signed(fields.values, body)
                assert is_signed == is_signed_by_the_decoder(one, body)


def test_one_template_stands_for_all_signatures():
    templates = SendTemplates()
    headers = [send(opaque=at, born=BORN + at, key=KEY % at, body=b"x") for at in range(1, 9)]
    assert [see(templates, header) is None for header in headers] == [True] + [False] * 7
    assert templates.templates[0].is_signed((), b"anything"), "nobody asked for a check"


def test_a_match_is_never_one_that_the_decoder_refuses():
    templates = SendTemplates()
    header = send()
    seen(templates, header, header)
    for at in range(len(header)):
        for byte in b'"\\0{}:,e\xff\x00':
            forged = header[:at] + bytes([byte]) + header[at + 1 :]
            fields = match(templates, forged)
            if fields is not None:
                try:
                    assert_says_the_same(fields, forged)
                except ProtocolError:
                    pytest.fail(f"{forged!r} was recognised")
