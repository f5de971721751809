"""Golden bytes: files of one sentence and hex."""

from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.txt"))


def read_golden(name: str) -> bytes:
    lines = (GOLDEN / f"{name}.txt").read_text().splitlines()
    assert lines[0].startswith("# "), "a golden file starts with a sentence"
    return bytes.fromhex("".join(lines[1:]))
