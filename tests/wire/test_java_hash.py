"""Java's hash of texts of any length, which takes no longer than the text is long."""

from __future__ import annotations

import random
import time

import pytest

from cometmq.wire.java_hash import BLOCK, SHORT, hash_from, java_hash


def by_definition(value: int, units: list[int]) -> int:
    for unit in units:
        value = (31 * value + unit) % (1 << 32)
    return value


def test_hashes_are_those_of_java() -> None:
    assert java_hash("TagA") == 2598919
    assert java_hash("*") == 42
    assert java_hash("polygenelubricants") == -(1 << 31)


LENGTHS = [0, 1, SHORT - 1, SHORT, SHORT + 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("letter", ["k", "ü", "\uffff", "\U0001f600", "\udc00"])
def test_a_text_of_any_length_has_the_hash_of_its_units(letter: str, length: int) -> None:
    text = ("abc" + letter * length)[:length]
    raw = text.encode("utf-16-be", "surrogatepass")
    units = [raw[at] << 8 | raw[at + 1] for at in range(0, len(raw), 2)]
    assert java_hash(text) % (1 << 32) == by_definition(0, units)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("start", [0, 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_hash_goes_on_from_any_other(start: int, length: int) -> None:
    for units in (b"\xff" * length, random.Random(length).randbytes(length)):
        assert hash_from(start, units) == by_definition(start, list(units))


def test_the_time_that_a_hash_takes_does_not_grow_faster_than_its_text() -> None:
    units = [ord("k")] * 300_000
    began = time.thread_time()
    assert java_hash("k" * len(units)) % (1 << 32) == by_definition(0, units)
    taken_s = time.thread_time() - began
    assert taken_s < 3, f"{taken_s:.1f} s; a number that all units are put into takes 15"
