"""Java's properties syntax, read as Java reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.settings.properties import PropertiesEntry, parse


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a:b", "a", "b"),
        ("a b c", "a", "b c"),
        ("  a  =  b c  ", "a", "b c"),
        ("a = = b", "a", "= b"),
        ("a=http://x:1/", "a", "http://x:1/"),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("a\\ b=c", "a b", "c"),
        ("a\\=b=c", "a=b", "c"),
        ("a=\\u0041\\tb\\\\", "a", "A\tb\\"),
        ("a=one\\\n   two", "a", "onetwo"),
        ("a=one\\\r\n   two", "a", "onetwo"),
        ("a=b\\\\\nc=d", "a", "b\\"),
        ("a=b#c", "a", "b#c"),
        ("\ufeffa=b", "a", "b"),
    ],
)
def test_one_entry_is_read_as_java_reads_it(text: str, key: str, value: str) -> None:
    assert parse(text)[0] == PropertiesEntry(key, value, 1)


def test_comments_and_blank_lines_are_skipped_and_lines_are_counted() -> None:
    text = "# one\n\n  ! two\na=1\n# b=2\\\nc=3\\\n 4\nd=5\r\ne=6\rf=7"
    found = [
        PropertiesEntry("a", "1", 4),
        PropertiesEntry("c", "34", 6),
        PropertiesEntry("d", "5", 8),
    ]
    assert parse(text) == [*found, PropertiesEntry("e", "6", 9), PropertiesEntry("f", "7", 10)]


def test_a_key_given_twice_comes_twice() -> None:
    assert [entry.value for entry in parse("a=1\na=2")] == ["1", "2"]


@given(st.text())
def test_every_text_can_be_read(text: str) -> None:
    parse(text)


_plain = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)


@given(st.dictionaries(_plain, _plain, max_size=5))
def test_what_is_written_with_escapes_is_read_back(table: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return "".join(f"\\{c}" if c in "\\=:#! " else c for c in text)

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in table.items())
    assert {entry.key: entry.value for entry in parse(text)} == table
