"""What the jobs `deadletters` and `parked` have in common: topics that groups have, in one table.

Owns how the topics are found, and what such a table is: a row for each message of them, whoever
wrote it, without partitions. The columns are each job's own.
Java: none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cometmq.spark.tables.archive import source_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class GroupTopicRows:
    """What a table has of each message in the topics of a prefix, one topic a group."""

    table: str
    """What the messages are; a directory takes those of one kind."""
    prefix: str
    source_columns: tuple[str, ...]
    """What must be read."""
    columns: tuple[str, ...]
    """The columns of the table, as expressions over what was read."""

    def source(
        self, groups: Sequence[str] | None, namesrv: str | None, options: Mapping[str, str] | None
    ) -> dict[str, str]:
        """Options that read the topics of these groups, of all without any; none is no error."""
        names = "|".join(map(re.escape, groups)) if groups else ".*"
        source = source_of({"subscribePattern": f"{self.prefix}({names})"}, namesrv, options)
        return {**source, "failOnMissingTopic": "false"}

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same in every run."""
        return {"table": self.table}

    @property
    def may_misfit(self) -> bool:
        """Every message is a row."""
        return False

    def shaped(self, frame: DataFrame) -> DataFrame:
        """The columns of the table."""
        return frame.selectExpr(*self.columns)

    def rows(self, shaped: DataFrame) -> DataFrame:
        """All of them."""
        return shaped

    def partition_columns(self, rows: DataFrame) -> list[str]:
        """None: there are few such messages, or something else is wrong."""
        del rows
        return []

    def misfits(self, shaped: DataFrame) -> DataFrame:
        """There are none."""
        return shaped.where("false")
