"""The page of settings is what its generator writes, and the generator knows every setting."""

import importlib.util
from dataclasses import fields
from pathlib import Path

import pytest

from cometmq.settings.java_keys import JAVA_KEYS
from cometmq.settings.keys import key_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location(
        "settings_page", ROOT / "scripts" / "settings_page.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_settings_is_fresh(generator):
    kept = generator.PAGE.read_text(encoding="utf-8")
    assert kept == generator.page(), "run .venv/bin/python scripts/settings_page.py"


def test_every_setting_says_what_it_is(generator):
    silent = [
        f"{kind.__name__}.{field.name}"
        for _, _, kind in generator.SECTIONS
        for field in fields(kind)
        if not field.metadata["note"]
    ]
    assert not silent


def test_the_default_of_rocketmq_is_given_for_every_key_it_shares(generator):
    theirs = generator._java_defaults()
    shared = {
        f"{role}.{key_of(field)}"
        for _, role, kind in generator.SECTIONS
        for field in fields(kind)
        if key_of(field) in JAVA_KEYS
    }
    assert shared <= theirs.keys()
    assert {key.partition(".")[2] for key in theirs} <= JAVA_KEYS
