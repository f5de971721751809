"""Pages that are made from the code are fresh, and say something of every setting and code."""

import re
from dataclasses import fields

import pytest

from cometmq.settings.java_keys import JAVA_KEYS
from cometmq.settings.keys import key_of
from cometmq.wire.codes import RequestCode


@pytest.mark.parametrize(
    "name", ["client_settings_page", "codes_page", "settings_page", "testing_page"]
)
def test_a_written_page_is_fresh(writer_of, name):
    writer = writer_of(name)
    kept = writer.PAGE.read_text(encoding="utf-8")
    assert kept == writer.page(), f"run .venv/bin/python scripts/{name}.py"


def test_the_reference_is_fresh(writer_of):
    writer = writer_of("reference_pages")
    kept = {path: path.read_text(encoding="utf-8") for path in writer.PAGES.glob("*.md")}
    assert kept == writer.pages(), "run make pages"


def test_every_code_of_rocketmq_has_one_line(writer_of):
    kept = writer_of("codes_page").PAGE.read_text(encoding="utf-8")
    codes = [(int(code), name) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", kept, re.M)]
    assert sorted(codes) == [(int(code), code.name) for code in sorted(RequestCode)]


def test_every_setting_says_what_it_is(writer_of):
    silent = [
        f"{kind.__name__}.{field.name}"
        for _, _, kind in writer_of("settings_page").SECTIONS
        for field in fields(kind)
        if not field.metadata["note"]
    ]
    assert not silent


def test_the_default_of_rocketmq_is_given_for_every_key_it_shares(writer_of):
    writer = writer_of("settings_page")
    theirs = writer._java_defaults()
    shared = {
        f"{role}.{key_of(field)}"
        for _, role, kind in writer.SECTIONS
        for field in fields(kind)
        if key_of(field) in JAVA_KEYS
    }
    assert shared <= theirs.keys()
    assert {key.partition(".")[2] for key in theirs} <= JAVA_KEYS
