"""The page of request codes says what is answered, and every code has its line."""

import importlib.util
import re
from pathlib import Path

import pytest

from cometmq.wire.codes import RequestCode

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("codes_page", ROOT / "scripts" / "codes_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_codes_is_fresh(generator):
    kept = generator.PAGE.read_text(encoding="utf-8")
    assert kept == generator.page(), "run .venv/bin/python scripts/codes_page.py"


def test_every_code_of_rocketmq_has_one_line(generator):
    kept = generator.PAGE.read_text(encoding="utf-8")
    told = [(int(code), name) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", kept, re.M)]
    assert sorted(told) == [(int(code), code.name) for code in sorted(RequestCode)]
