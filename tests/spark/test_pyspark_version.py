"""An older PySpark is refused in one sentence."""

import pytest

from cometmq.spark.pyspark_version import require_pyspark
from spark.scripted import error_of


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4", "3.5.1", "4.1.0.dev2"])
def test_an_older_pyspark_is_refused(version: str) -> None:
    said = error_of(lambda: require_pyspark(version))
    assert f"cometmq needs PySpark 4.2 or later and finds {version}: pip install" in said


def test_newer_ones_are_taken() -> None:
    for version in ("4.2.0", "4.2.1.dev1", "4.10.0", "5.0.0", None):
        require_pyspark(version)
