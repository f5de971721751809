"""Golden bytes: files of one sentence and hex."""

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def read_golden(name: str) -> bytes:
    lines = (GOLDEN / f"{name}.txt").read_text().splitlines()
    assert lines[0].startswith("# "), "a golden file starts with a sentence"
    return bytes.fromhex("".join(lines[1:]))


@pytest.fixture(scope="session")
def golden() -> Callable[[str], bytes]:
    return read_golden
