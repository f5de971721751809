"""Finds the commits of an archive: manifests in a directory, or a table of an Iceberg catalog."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.spark.tables.manifest_log import ManifestLog
from cometmq.spark.tables.table_files import table_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from cometmq.spark.tables.iceberg_log import IcebergLog


def table_log(
    spark: SparkSession, place: str | Path, iceberg: str | Catalog | None = None
) -> ManifestLog | IcebergLog:
    """The commits of the archive in a directory, or with `iceberg` in a table of that catalog.

    Raises SettingsError for a place that cannot be used, and without pyiceberg.
    """
    if iceberg is None:
        return ManifestLog(table_files(spark, place))
    if find_spec("pyiceberg") is None:
        raise SettingsError("a table of Iceberg needs pyiceberg: pip install 'cometmq[iceberg]'")
    from pyiceberg.catalog import load_catalog

    from cometmq.spark.tables.iceberg_log import IcebergLog

    try:
        catalog = load_catalog(iceberg) if isinstance(iceberg, str) else iceberg
    except ValueError as error:
        raise SettingsError(
            f"pyiceberg has no catalog {iceberg}: describe it in .pyiceberg.yaml, or in variables "
            f"PYICEBERG_CATALOG__... ({error})"
        ) from error
    return IcebergLog(spark, catalog, str(place))
