"""A match of a pull header equals the ordinary decode, whatever comes; and templates stay few."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import BadHeader, ProtocolError
from cometmq.wire import header_json
from cometmq.wire.command import Command
from cometmq.wire.frame import Frame, encode_frame
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.templates.header_template import (
    BYTES_A_BYTE,
    LEARNING_AT_ONCE_MS,
    LEARNING_SHARE,
    MISSES_MAX,
    PAUSE,
    TEMPLATES_MAX,
    LearningLimiter,
)
from cometmq.wire.templates.pull_template import PullTemplates


def pull(*, code=11, opaque=17, flag=0, **more):
    ext = {
        "commitOffset": "0",
        "consumerGroup": "CG",
        "expressionType": "TAG",
        "maxMsgNums": "32",
        "queueId": "3",
        "queueOffset": "100",
        "subVersion": "1795237145786",
        "subscription": "*",
        "suspendTimeoutMillis": "15000",
        "sysFlag": "2",
        "topic": "T",
    }
    return header_json.encode(code, opaque, flag, 0, 479, None, {**ext, **more})


def assert_says_the_same(fields, header):
    template, queue_id, queue_offset, commit_offset, opaque = fields
    command = Command.decode(Frame(0, header, b""))
    from_template = replace(
        template.header, queue_id=queue_id, queue_offset=queue_offset, commit_offset=commit_offset
    )
    assert from_template == PullMessageRequestHeader.decode(command.ext)
    assert (template.code, int(opaque), 0) == (command.code, command.opaque, command.flag)
    assert (template.language, template.version) == (command.language, command.version)


def match(templates, header):
    return fields_of(templates.match_at(header, 0, len(header)))


def fields_of(found):
    if found is None:
        return None
    one, values = found
    places = (one.queue_at, one.offset_at, one.commit_at)
    return one, *[int(values[at]) for at in places], values[one.opaque_at]


def known(*headers):
    templates = PullTemplates()
    for header in headers:
        templates.match_or_learn(header)
    return templates


@pytest.mark.parametrize("code", [11, 361])
def test_the_next_pull_of_a_consumer_is_recognised(code):
    header = pull(code=code, queueId="5", queueOffset="132", commitOffset="9", opaque=18)
    fields = match(known(pull(code=code)), header)
    assert fields[1:] == (5, 132, 9, b"18")
    assert_says_the_same(fields, header)


def test_a_header_amid_a_chunk_is_recognised():
    header = pull(opaque=18)
    found = known(pull()).match_at(b"before" + header + b"behind", 6, 6 + len(header))
    assert_says_the_same(fields_of(found), header)


@pytest.mark.parametrize(
    "header",
    [
        pull(topic="U"),
        pull(consumerGroup="CH"),
        pull(sysFlag="3"),
        pull(subVersion="1795237145787"),
        pull(code=34),
        pull(flag=2),
        pull(queueOffset="-10"),
        pull(queueOffset="1e2"),
        pull().replace(b'"100"', b'"1"" '),
        pull(queueId="x"),
        pull(opaque=-1),
        pull().replace(b'"opaque":17', b'"opaque":07'),
        pull().replace(b'"opaque":17', b'"opaque":1 '),
    ],
)
def test_any_other_header_goes_to_the_decoder(header):
    assert match(known(pull()), header) is None


@pytest.mark.parametrize(
    "header",
    [
        pull(code=310),
        pull(flag=1),
        pull(flag=2),
        pull(queueId="-3"),
        pull(queueId="1" * 10),
        pull(queueOffset="9" * 19),
        pull(opaque=1 << 30),
        pull(maxMsgNums="many"),
        pull(topic="T" * 5000),
        pull().replace(b'"queueOffset":"100"', b'"queueOffset":100'),
        pull().replace(b'"queueId"', b'"queue\\u0049d"'),
        pull().replace(b'"queueId":"3"', b'"queueId":"3","queueId":"4"'),
        pull().replace(b'"commitOffset":"0",', b""),
        b'{"code":11}',
        b'{"code":11',
        b"",
    ],
)
def test_what_a_template_cannot_express_is_not_learned(header):
    assert match(known(header), header) is None


def test_one_template_stands_for_numbers_of_all_widths():
    headers = [pull(opaque=8), pull(queueOffset="5", opaque=100), pull(queueId="12", opaque=9)]
    templates = known(pull())
    for header in headers:
        assert_says_the_same(match(templates, header), header)


def test_the_templates_of_a_connection_stay_few():
    templates = PullTemplates()
    for number in range(10 * TEMPLATES_MAX):
        header = pull(topic=f"T{number}" + "x" * (number % 97))
        templates.match_or_learn(header)
        match(templates, header)
        assert len(templates.templates) <= TEMPLATES_MAX


def test_nothing_is_learned_for_a_while_from_a_client_that_never_pulls_alike():
    templates = PullTemplates()
    for number in range(MISSES_MAX + 1):
        templates.match_or_learn(pull(topic=f"T{number}"))
    templates.match_or_learn(pull())
    assert match(templates, pull()) is None
    for _ in range(PAUSE):
        templates.match_or_learn(pull())
    assert match(templates, pull())


class TimedPulls(PullTemplates):
    """Learns for 2 ms of the clock they are made with, and counts how often."""

    def __init__(self, budget, clock):
        super().__init__(budget)
        self.clock, self.learned = clock, 0

    def _learn(self, header):
        self.clock.now += 2
        self.learned += 1
        super()._learn(header)


@pytest.fixture
def clock():
    return SimpleNamespace(now=1000)


def timed(clock, count):
    """The templates of so many connections of one server."""
    budget = LearningLimiter(lambda: clock.now)
    return [TimedPulls(budget, clock) for _ in range(count)]


def learned_ms(connections):
    return 2 * sum(one.learned for one in connections)


def test_all_connections_together_learn_for_a_tenth_of_the_time(clock):
    connections = timed(clock, 20)
    for number in range(50):
        for at, templates in enumerate(connections):
            templates.match_or_learn(pull(topic=f"T{at}-{number}"))
            clock.now += 1
            bound_ms = LEARNING_AT_ONCE_MS + (clock.now - 1000) * LEARNING_SHARE
            assert learned_ms(connections) <= bound_ms + 2
    assert learned_ms(connections) >= (clock.now - 1000) * LEARNING_SHARE


def test_a_connection_learns_again_once_time_has_passed(clock):
    greedy, late = timed(clock, 2)
    for number in range(LEARNING_AT_ONCE_MS):
        greedy.match_or_learn(pull(topic=f"T{number}"))
    late.match_or_learn(pull())
    assert match(late, pull()) is None
    assert match(greedy, pull(topic="T0")), "what is known is matched all the same"
    clock.now += 100
    late.match_or_learn(pull())
    assert match(late, pull())


def test_above_the_bound_of_learned_headers_the_connection_with_most_forgets_them(clock):
    size = BYTES_A_BYTE * len(pull(topic="T0"))
    budget = LearningLimiter(lambda: clock.now, bytes_max=6 * size)
    greedy, modest = PullTemplates(budget), PullTemplates(budget)
    for number in range(5):
        greedy.match_or_learn(pull(topic=f"T{number}"))
    modest.match_or_learn(pull(topic="M0"))
    assert budget.kept_bytes == 6 * size
    modest.match_or_learn(pull(topic="M1"))
    assert budget.kept_bytes == 2 * size, "the greedy one gave up"
    assert match(modest, pull(topic="M0"))
    assert match(modest, pull(topic="M1"))
    assert match(greedy, pull(topic="T0")) is None
    greedy.match_or_learn(pull(topic="T0"))
    assert match(greedy, pull(topic="T0")) is None, "and pauses, so that it cannot go on so"
    for templates in (greedy, modest):
        templates.forget()
    assert budget.kept_bytes == 0


numbers = st.integers(0, 10**19).map(str) | st.text("0123456789-+ .e", max_size=6)


@given(
    st.lists(
        st.builds(
            pull,
            code=st.sampled_from([11, 361, 34]),
            opaque=st.integers(-9, 10**10),
            flag=st.sampled_from([0, 0, 0, 1, 2]),
            queueId=numbers,
            queueOffset=numbers,
            commitOffset=numbers,
            topic=st.sampled_from("AB"),
        )
        | st.builds(pull, opaque=st.integers(0, 99), queueOffset=numbers),
        max_size=12,
    )
)
def test_a_match_equals_the_decode(headers):
    templates = PullTemplates()
    for header in headers * 2:
        fields = match(templates, header)
        if fields is not None:
            assert_says_the_same(fields, header)
        templates.match_or_learn(header)


@given(st.binary(max_size=8), st.integers(0, 400), st.integers(0, 8))
def test_no_damaged_header_is_decoded_differently_than_by_the_decoder(new, at, width):
    templates = known(pull())
    header = pull()[:at] + new + pull()[at + width :]
    fields = match(templates, header)
    if fields is not None:
        try:
            assert_says_the_same(fields, header)
        except (ProtocolError, BadHeader) as refusal:
            raise AssertionError(f"{header!r} is none: {refusal}") from refusal


# ---- chunks


def numbers_of(template, header):
    fields = fields_of((template, template.match(header).groups()))
    return fields[1:]


@pytest.mark.usefixtures("each_form")
def test_the_pulls_of_a_chunk_are_cut_as_each_alone():
    templates = known(pull())
    headers = [pull(queueId=str(n), queueOffset=str(7 * n), opaque=n + 1) for n in range(40)]
    assert match(templates, headers[0]), "from now on it is the recent one"
    chunk, at, found = b"".join(map(encode_frame, headers)) + encode_frame(b"{}"), 0, []
    while cut := templates.cut(chunk, at):
        template, pulls = cut
        assert 0 < len(pulls) < 32, "a pull that takes another way must not cost a cut of all"
        found += [numbers for _, *numbers in pulls]
        at = pulls[-1][0]
    assert at == len(chunk) - len(encode_frame(b"{}"))
    assert [tuple(numbers) for numbers in found] == [numbers_of(template, one) for one in headers]


@pytest.mark.usefixtures("each_form")
def test_another_template_takes_over_in_the_midst_of_a_chunk():
    headers = [pull(), pull(topic="U"), pull(opaque=9)]
    templates = known(*headers)
    chunk, at, topics = b"".join(map(encode_frame, headers)), 0, []
    while at < len(chunk):
        template, pulls = templates.cut(chunk, at)
        topics += [template.header.topic] * len(pulls)
        at = pulls[-1][0]
    assert topics == ["T", "U", "T"]
