"""The examples of a page of the guide that are not run with the others."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "spark-clusters.md"


def example(language: str, word: str) -> str:
    """The one block of the page about clusters that has a word in it."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    return found
