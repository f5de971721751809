"""The pipeline of the guide, run by `spark-pipelines` twice: each run takes what is new."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from cometmq import Admin, Message, Producer
from spark.page_examples import example
from spark.standalone import HOME, MASTER, QUICK, SOURCE, environment

if TYPE_CHECKING:
    from pathlib import Path

    from spark.live import Live

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1300)]


def send(live: Live, numbers: range) -> None:
    with Producer("parcels", namesrv=live.namesrv) as producer:
        for number in numbers:
            producer.send(Message("parcels", b"%d" % number, keys=f"P{number}"))


def message_count(live: Live, topic: str) -> int:
    with Admin(namesrv=live.namesrv) as admin:
        return sum(one.max_offset for one in admin.topic_stats(topic).values())


def run(project: Path) -> None:
    """Run the pipeline, with a Java machine of its own."""
    command = [HOME / "bin" / "spark-pipelines", "run"]
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.ui.enabled": "false",
    }
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    more = {"PYTHONPATH": SOURCE, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command,
        cwd=project,
        env=environment(MASTER, **more),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def column(project: Path, table: str, name: str) -> list[object]:
    files = (project / "spark-warehouse" / table).rglob("*.parquet")
    return sorted(value for file in files for value in parquet.read_table(file)[name].to_pylist())


def test_the_pipeline_of_the_guide_reads_a_topic_and_writes_another(
    live: Live, tmp_path: Path
) -> None:
    for topic in ("parcels", "heavy-parcels"):
        live.make_topic(topic, 2)
    (tmp_path / "transformations").mkdir()
    spec = example("yaml", "storage").replace("/var/lib/parcels", str(tmp_path))
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    definition = example("python", "pipelines as dp").replace("127.0.0.1:9876", live.namesrv)
    (tmp_path / "transformations" / "parcels.py").write_text(definition)
    for numbers in (range(30), range(30, 45)):
        send(live, numbers)
        run(tmp_path)
        assert column(tmp_path, "parcels", "kg") == list(range(numbers.stop))
        assert column(tmp_path, "weights", "kg") == [sum(range(numbers.stop))]
        assert message_count(live, "heavy-parcels") == numbers.stop - 21
