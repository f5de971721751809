"""How long a new process takes to its first row, with all that Spark has to start.

    python bench/spark/cold.py --save spark-cold  also writes bench/results/spark-cold.txt

Five processes, one after the other, over one topic of 1,000 messages: from before the interpreter
starts to the session, and to the first row of a batch read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median

from bed import LocalCluster, Report, arguments, fill

CHILD = """
import json, sys, time
from cometmq.spark.session import spark_session
spark = spark_session("cold")
session = time.time()
frame = spark.read.format("rocketmq").options(namesrv=sys.argv[1], topic="Cold").load()
assert frame.first() is not None
print(json.dumps([session, time.time()]))
spark.stop()
"""


def main() -> None:
    asked = arguments(__doc__)
    report = Report(asked.save)
    session, first = [], []
    with LocalCluster() as cluster:
        fill(cluster, "Cold", 1000, 128)
        for _ in range(asked.rounds):
            began = time.time()
            done = subprocess.run(
                [sys.executable, "-c", CHILD, cluster.namesrv],
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
            )
            at = json.loads(done.stdout.strip().splitlines()[-1])
            session.append(at[0] - began)
            first.append(at[1] - began)
    for name, found in (("to the session", session), ("to the first row", first)):
        report.say(
            f"{name:<26}{median(found):6.1f} s ({min(found):.1f} to {max(found):.1f})  "
            f"load {os.getloadavg()[0]:.1f}"
        )
    report.save()


if __name__ == "__main__":
    main()
