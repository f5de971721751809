"""The tags codes of a batch are those of its messages one by one, however its properties look."""

from __future__ import annotations

from random import Random

from cometmq.broker.sends.batch_tag_codes import batch_tag_codes
from cometmq.broker.sends.tag_codes import tags_code_of
from cometmq.wire.records import properties

PIECES = (
    *(b"TAGS\x01TagA\x02", b"TAGS\x01TagB\x02", b"TAGS\x01TagA", b"TAGS\x01\x02", b"TAGS\x01"),
    *(b"MYTAGS\x01TagA\x02", b"KEYS\x01TAGS\x02", b"KEYS\x01k\x02", b"\x02", b"A\x01TAGS", b"TA"),
    *(b"WAIT\x01true\x02", b"GS\x01TagA\x02", b"TAGS\x01TagA\x01B\x02"),
)


def code_of(raw: bytes) -> int:
    """The code of one message."""
    tag = properties.find(raw, b"TAGS")
    return 0 if tag is None else tags_code_of(tag)


def test_codes_are_those_of_the_messages_one_by_one() -> None:
    random, asked = Random(1), list[bytes]()

    def counted(raw: bytes) -> int:
        asked.append(raw)
        return code_of(raw)

    spared = 0
    for _ in range(20_000):
        pieces = random.sample(PIECES, random.randint(1, 4))
        raws = [b"".join(random.choices(pieces, k=random.randint(1, 4))) for _ in range(3)]
        if random.random() < 0.5:
            raws = [
                b"UNIQ_KEY\x01%d\x02TAGS\x01TagA\x02%b" % (n, raw) for n, raw in enumerate(raws)
            ]
        asked.clear()
        found = batch_tag_codes(raws, b"".join(raws), counted)
        assert found == list(map(code_of, raws)), raws
        spared += len(asked) == 1
    assert spared > 50, "the quick way was hardly taken"


def test_messages_with_one_tag_ask_once() -> None:
    raws = [b"UNIQ_KEY\x01%032d\x02TAGS\x01TagA\x02KEYS\x01k%d\x02" % (n, n) for n in range(32)]
    asked = list[bytes]()

    def counted(raw: bytes) -> int:
        asked.append(raw)
        return code_of(raw)

    assert batch_tag_codes(raws, b"".join(raws), counted) == [tags_code_of(b"TagA")] * 32
    assert len(asked) == 1


def test_messages_without_tag_have_the_code_0() -> None:
    assert batch_tag_codes([b"KEYS\x01a\x02"] * 3, b"KEYS\x01a\x02" * 3, code_of) == [0, 0, 0]
