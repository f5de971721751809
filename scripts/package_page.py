# ruff: noqa: INP001, T201
"""Prints README.md with absolute links, as the page of a package needs them.

    .venv/bin/python scripts/package_page.py https://HOST/OWNER/cometmq/blob/v0.1.0

The argument is where the files of a release are shown. A release replaces README.md by this before
it builds, and adds [project.urls] to pyproject.toml: the repository has no public address yet.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
_LINK = re.compile(r"\]\(([^)#:\s]+)(#[\w-]*)?\)")
"""A link to a file of the repository."""


def page(text: str, address: str) -> str:
    """The text with each link to a file at this address."""
    where = address.rstrip("/")
    return _LINK.sub(lambda link: f"]({where}/{link[1]}{link[2] or ''})", text)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].startswith("https://"):
        sys.exit(__doc__)
    print(page(README.read_text(encoding="utf-8"), sys.argv[1]), end="")
