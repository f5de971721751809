"""Topics in Spark: `listen` runs handlers, `deduplicated` drops what was written twice.

Each name is loaded when it is first used; without PySpark a call says in one sentence what to
install. Reads and writes need no import: `spark.read.format("rocketmq")`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.spark.deduplication import deduplicated
    from cometmq.spark.handling.listen import listen

__all__ = ["deduplicated", "listen"]

_HOMES = {"deduplicated": "deduplication", "listen": "handling.listen"}


def __getattr__(name: str) -> object:
    """Load a public name at its first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'cometmq.spark' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"cometmq.spark.{home}"), name)
    return value
