"""Which PySpark this package works with, said in one sentence where an older one is installed.

Imports only the standard library, because every process that looks up data sources loads it.
"""

from __future__ import annotations

import re

from cometmq.errors import SettingsError

LEAST = (4, 2)
"""4.2 brought limits on micro-batches and AvailableNow over several of them to Python sources."""


def require_pyspark(found: str | None = None) -> None:
    """Raise SettingsError when PySpark is missing or too old; `found` is its version, for tests."""
    has = found or _installed()
    numbers = tuple(int(part) for part in re.findall(r"\d+", has)[:2])
    if numbers < LEAST:
        raise SettingsError(
            f"cometmq needs PySpark {LEAST[0]}.{LEAST[1]} or later and finds {has or 'none'}: "
            "pip install 'cometmq[spark]'"
        )


def _installed() -> str:
    try:
        import pyspark
    except ImportError:
        return ""
    return str(pyspark.__version__)
