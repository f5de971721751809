"""Batches, at a producer and at a broker: the loops in C give what their form in Python gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cometmq import native
from cometmq.broker.sends.plain_batches import SMALL_BATCH_MAX, SPECIAL_MARKS
from cometmq.client.producer import plain_batch
from cometmq.client.producer.plain_batch import BATCH_MESSAGES_MAX
from cometmq.client.producer.send_fast_path import QueueTarget, results_of
from cometmq.model.message import Message
from cometmq.model.queue import MessageQueue
from cometmq.model.results import SendResult
from cometmq.wire.records import log_record, message_batch
from cometmq.wire.templates.send_request import SendRequestTemplate

if TYPE_CHECKING:
    from cometmq.client.producer.send_statistics import SendCounts

if native.c is None:
    pytest.skip(f"the hot loops in C are missing: {native.why_not}", allow_module_level=True)
c = native.c


class Queue:
    """What the loops know of a consume queue."""

    next_offset = 7


KEYS = st.one_of(
    st.sampled_from(
        [None, "", " ", "  ", "a b", "k" * 1024, "k" * 1025, "\x7f", "\x1f", "é", "\ud800"]
    ),
    st.just("k"),
)
USUAL = st.builds(
    Message, st.just("T"), st.just(b"x"), tags=st.sampled_from(["a", None]), keys=KEYS
)
UNUSUAL = st.one_of(
    st.builds(Message, st.sampled_from(["T", "U"]), st.binary(max_size=1)),
    st.builds(Message, st.just("T"), st.just(b"x"), tags=st.sampled_from(["bad", "a"])),
    st.builds(Message, st.just("T"), st.just(b"x"), sharding_key=st.sampled_from([None, "s"])),
    st.builds(Message, st.just("T"), st.just(b"x"), delay_level=st.integers(0, 1)),
    st.builds(Message, st.just("T"), st.just(b"x"), flag=st.integers(0, 1)),
    st.builds(Message, st.just("T"), st.just(b"x"), properties=st.sampled_from([{}, {"a": "b"}])),
    st.builds(Message, st.just("T"), st.just(b"x"), wait_store_ok=st.booleans()),
)


@given(st.lists(st.one_of(USUAL, USUAL, UNUSUAL), min_size=2, max_size=6))
def test_messages_make_one_plain_batch_as_in_python(messages):
    def tail_of(tag: str | None) -> bytes | None:
        return {None: b"", "a": b"TAGS\x01a\x02"}.get(tag)

    ids = [f"{number:032X}" for number in range(len(messages))]
    expected = plain_batch._plain_batch_in_python(messages, tail_of)
    batch = plain_batch.plain_batch(messages, tail_of, 32, 1 << 20)
    assert (batch is None) == (expected is None)
    if batch is None or expected is None:
        return
    body = expected.body(ids)
    assert batch.body(ids) == body
    assert plain_batch.plain_batch(messages, tail_of, 32, len(body)) is not None
    assert plain_batch.plain_batch(messages, tail_of, 32, len(body) - 1) is None


def test_a_body_takes_only_the_keys_that_it_has_room_for():
    body = c.pack_messages([Message("T", b"x"), Message("T", b"yy")], Message, lambda _: b"", 3, 99)
    for keys in (["a"], ["abc"], ["abc", "ab"], ["abc", "abcd"], ["abc"] * 3, ["abc", "x" * 999]):
        with pytest.raises(ValueError, match="other"):
            c.fill_keys(bytearray(body), keys)
    for cut in range(1, len(body)):
        with pytest.raises(ValueError, match="other"):
            c.fill_keys(body[:cut], ["abc", "def"])
    c.fill_keys(body, ["abc", "def"])
    assert body.count(b"UNIQ_KEY\x01abc\x02") == body.count(b"UNIQ_KEY\x01def\x02") == 1


def test_a_message_whose_fields_were_deleted_is_not_plain():
    odd = Message("T", b"x")
    del odd.tags
    assert c.pack_messages([Message("T", b"x"), odd], Message, lambda _: b"", 3, 999) is None


@given(
    st.one_of(st.integers(0, 1 << 64), st.integers((1 << 63) - 9, (1 << 63) + 9)),
    st.lists(st.text("0123456789ABCDEFé", max_size=4), max_size=5),
    st.integers(0, 5),
)
@example(1 << 63, ["A"], 1)
@example(0, ["é"], 1)
def test_results_of_a_batch_are_those_of_the_form_in_python(first, offset_ids, count):
    queue, ids = MessageQueue("T", "b", 3), [f"id-{number}" for number in range(count)]
    form = SendRequestTemplate("g", "T", "b", 3, 4)
    target = QueueTarget(queue, form, form, {}, cast("SendCounts", None))
    answer = 3, first, ",".join(offset_ids), None
    got = results_of(target, ids, answer)
    assert all(type(one) is SendResult for one in got)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "c", None)
        assert got == results_of(target, ids, answer)


# ---- batches of a broker


def shape_of(*, with_sum: bool) -> tuple[object, bytes]:
    """What records share: the shape, and the fields behind the front."""
    magic, topic_part = log_record.topic_part("T")
    fields = (0, 0, bytes(8), 99, bytes(8), 7, 0, 0)
    return (magic, 0, topic_part, with_sum), log_record.behind_front(0).pack(*fields)


ITEMS = st.lists(
    st.builds(
        message_batch.BatchItem,
        st.sampled_from([0] * 9 + [1]),
        st.binary(min_size=1, max_size=9),
        st.one_of(
            st.sampled_from(
                [
                    b"",
                    b"UNIQ_KEY\x01u\x02TAGS\x01a\x02",
                    b"UNIQ_KEY\x01u\x02TAGS\x01a",
                    b"TAGS\x01b\x02KEYS\x01k",
                    b"TAGS\x01\xc3\xa9",
                    b"KEYS\x01DELAY\x01",
                    b"DELAY\x013",
                    b"x" * 90,
                ]
            ),
            st.binary(max_size=9),
        ),
    ),
    min_size=1,
    max_size=5,
)


@given(ITEMS, st.booleans(), st.integers(0, 400), st.integers(1, 5), st.binary(max_size=2))
def test_the_body_of_a_batch_is_stored_as_its_messages_are(items, with_sum, room, most, harm):
    shape, behind = shape_of(with_sum=with_sum)
    body = message_batch.encode(items) + harm
    queue, size_max, properties_max = Queue(), 180, 80
    made = c.put_batch(
        *(body, most, SPECIAL_MARKS, shape, behind, [None, None], [None, queue].__getitem__),
        *(1, 1000, 5 * room, 99, properties_max, size_max, b"AB"),
    )
    raws = [item.properties for item in items]
    bodies = [item.body for item in items]
    codes = c.plain_tag_codes(raws, SPECIAL_MARKS)
    fixed = 36 + len(behind) + 2 + len("T") + 1 + 20 * with_sum
    total, longest, largest = c.measure_records(bodies, raws, fixed, with_sum)
    is_usual = not harm and codes is not None and not any(item.flag for item in items)
    is_short = len(items) <= most and longest <= properties_max and largest <= size_max
    if not (is_usual and is_short and total + 8 <= 5 * room):
        assert made is None
        return
    assert made is not None
    records, entries, places = c.batch_records(
        *(shape, behind, queue, 1, 7, 1000, 99, bodies, raws, codes)
    )
    ids = b",".join([b"AB%016X" % place for place in places])
    assert made == (records, entries, ids, 7)


def test_an_error_of_opening_a_queue_is_passed_on():
    shape, behind = shape_of(with_sum=True)
    body = message_batch.encode([message_batch.BatchItem(0, b"x", b"")])
    with pytest.raises(KeyError):
        c.put_batch(
            *(body, 9, (), shape, behind, [None], {}.__getitem__), *(0, 0, 999, 0, 99, 999, b"")
        )


@pytest.mark.parametrize("count_max", [-1, c.BATCH_MESSAGES_MAX + 1])
def test_no_more_messages_are_cut_than_there_is_room_for(count_max):
    shape, behind = shape_of(with_sum=True)
    body = message_batch.encode([message_batch.BatchItem(0, b"x", b"")] * 600)
    with pytest.raises(ValueError, match="more messages"):
        c.put_batch(
            *(body, count_max, (), shape, behind, [Queue()], Queue),
            *(0, 0, 1 << 20, 0, 99, 999, b""),
        )


def test_the_limits_of_batches_in_python_are_within_those_in_c():
    assert BATCH_MESSAGES_MAX <= c.BATCH_MESSAGES_MAX
    assert SMALL_BATCH_MAX <= c.BATCH_MESSAGES_MAX


def test_an_error_of_a_message_is_passed_on():
    class Broken:
        topic = "T"

    def tail_of(tag: str | None) -> bytes:
        raise KeyError(tag)

    with pytest.raises(KeyError):
        c.pack_messages([Message("T", b"x", tags="a")], Message, tail_of, 32, 999)
    with pytest.raises(TypeError, match="no slot topic"):
        c.pack_messages([Broken()], Broken, tail_of, 32, 999)
