"""How fast handlers get through a backlog: `listen` beside a push consumer, on the same messages.

    python bench/spark/handlers.py                        400,000 messages of 128 B, 8 queues
    python bench/spark/handlers.py --scale 0.1            a tenth of them
    python bench/spark/handlers.py --save spark-handlers  also writes it to bench/results

The handler does nothing but count. Both run it with their defaults, concurrently and then in order
by queue, in five rounds in turns, each with a group of its own. The push consumer runs in this
process, whose CPU counts as Spark's side; `listen` reads batches of 100,000 messages until none is
left. What differs is how far they use the cores: a push consumer is one process, `listen` one a
task.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from functools import partial
from typing import TYPE_CHECKING

from bed import Figures, LocalCluster, Report, arguments, fill, process_of, session
from formats import does_nothing

from cometmq import PushConsumer
from cometmq.spark.handling.listen import listen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from cometmq import MessageExt

ROWS, SIZE, TOPIC, BATCH_MOST = 400_000, 128, "Handled", 100_000
ATTEMPTS, MOST_S = 3, 600
ORDERS = {"concurrent": "none", "in order by queue": "queue"}
_numbers = itertools.count()


def pushed(rows: int, namesrv: str, order: str) -> None:
    """Let a push consumer handle the topic."""
    left, is_done = itertools.count(rows, -1), threading.Event()
    next(left)

    def handler(messages: Sequence[MessageExt]) -> None:
        for _ in messages:
            if next(left) == 0:
                is_done.set()

    group = f"pushed{next(_numbers)}"
    consumer = PushConsumer(
        group, namesrv=namesrv, consume_from="first", order=order, max_attempts=ATTEMPTS
    )
    consumer.subscribe(TOPIC, "*", handler)
    with consumer:
        if not is_done.wait(MOST_S):
            raise SystemExit(f"bench: the push consumer does not get on, {next(left)} are left")


def listened(spark: SparkSession, rows: int, namesrv: str, order: str) -> None:
    """Let a query handle the topic."""
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as place:
        query = listen(
            spark,
            f"listened{next(_numbers)}",
            TOPIC,
            "*",
            does_nothing,
            namesrv=namesrv,
            consume_from="first",
            order=order,
            max_attempts=ATTEMPTS,
            checkpoint=place,
            trigger={"availableNow": True},
            source={"maxOffsetsPerTrigger": str(BATCH_MOST)},
        )
        if not query.awaitTermination(MOST_S):
            raise SystemExit("bench: the query does not get on")
        handled = sum(one["numInputRows"] for one in query.recentProgress)
        assert handled == rows, handled


def main() -> None:
    asked = arguments(__doc__)
    rows = int(ROWS * asked.scale)
    report = Report(asked.save)
    with LocalCluster() as cluster, session() as spark:
        broker, where = process_of(cluster), cluster.namesrv
        fill(cluster, TOPIC, rows, SIZE)
        for name, order in ORDERS.items():
            push, query = Figures(), Figures()
            actions = (
                (push, partial(pushed, rows, where, order)),
                (query, partial(listened, spark, rows, where, order)),
            )
            for number in range(-1, asked.rounds):
                for figures, action in actions:
                    if number < 0:
                        action()
                    else:
                        figures.measure(rows, broker, action)
            report.say(push.line(f"push consumer, {name}"))
            report.say(query.line(f"listen, {name}", push))
    report.save()


if __name__ == "__main__":
    main()
