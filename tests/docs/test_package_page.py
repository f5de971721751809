"""The page of the package: README.md without a link that only works in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def test_every_link_of_the_package_page_is_absolute_and_leads_to_a_file(
    writer_of: Callable[[str], Any],
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    made = writer_of("package_page").page(text, "https://example.org/cometmq/blob/v1/")
    links = re.findall(r"\]\(([^)\s]+)\)", made)
    assert len(links) > 50
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    files = [link.removeprefix("https://example.org/cometmq/blob/v1/") for link in links]
    paths = [ROOT / name.partition("#")[0] for name in files if not name.startswith(("http", "#"))]
    assert [path for path in paths if not path.exists()] == []
