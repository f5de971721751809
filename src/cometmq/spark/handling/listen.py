"""`listen`: the handler of a push consumer, run by Spark over a streaming read.

Owns the options of the read that carries the messages, and the start of the query. Invariants: the
read is of whole queues where order counts; the group's offsets are committed by the source, once
Spark has noted that a batch is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.model.topic import retry_topic_of
from cometmq.spark.connection_security import SECURITY_OPTIONS, security_of
from cometmq.spark.handling import job_option
from cometmq.spark.handling.batch_runner import OutcomeCheck
from cometmq.spark.handling.handler_settings import (
    consumer_settings,
    filter_options,
    handler_job,
    secured,
)
from cometmq.spark.handling.record_messages import COLUMNS
from cometmq.spark.handling.start_offsets import start_offsets
from cometmq.spark.option_reader import OptionReader
from cometmq.spark.pyspark_version import require_pyspark
from cometmq.spark.source.source_options import RETRY_FOR_MS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Unpack

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.handling.handler_call import Handler
    from cometmq.model.selector import MessageSelector
    from cometmq.spark.handling.handler_settings import HandlerJob, ListenSettings

SOURCE_OPTIONS = (
    *SECURITY_OPTIONS,
    "brokers",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "slots",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "failOnMissingTopic",
    "idleWaitMs",
    "timeoutMs",
    "retryForMs",
)
"""The options of the source that a caller may give."""
_SPLITTING = ("minPartitions", "maxRecordsPerPartition")
_WITHOUT_PYTHON = ("continuous", "realTime")


def listen(
    spark: SparkSession,
    group: str,
    topic: str,
    expression: str | MessageSelector = "*",
    handler: Handler | None = None,
    *,
    checkpoint: str,
    trigger: Mapping[str, Any] | None = None,
    source: Mapping[str, str] | None = None,
    name: str | None = None,
    wait_most_s: float = 60.0,
    **settings: Unpack[ListenSettings],
) -> StreamingQuery:
    """Start a query that gives the messages of a topic to a push consumer's handler.

    `group`, `expression`, `handler` and `settings` are those of `PushConsumer` and its `subscribe`;
    so are order, attempts, delays, dead letters and failure policies. The handler is pickled to
    Spark's workers, and runs in `consume_threads` threads of each task; what it keeps in itself or
    in its module lives as long as the worker process. A batch ends when each of its messages is
    done, was given up by its policy, or lies in the group's retry topic, which is read as well.
    Then the next start goes on behind it, and the offsets of the group are committed. Delivery is
    at least once: a batch that is replayed hands all its messages out again.

    `checkpoint` is the directory that says how far the query is; without one in it, it begins where
    a push consumer of the group would. `trigger` is what `writeStream.trigger` takes by name, as
    `{"availableNow": True}`. `source` has options of the source, such as `maxOffsetsPerTrigger`;
    keys and TLS in it hold for what handlers send back as well. `name` names the query.
    `wait_most_s` is how long a batch may wait while no handler runs and no message gets done; then
    the query fails with BatchNotHandled.

    Raises SettingsError or ClientError for wrong arguments, in order also for a policy that would
    make a batch wait for ever or too long; RemotingError when the brokers do not answer, and
    AccessDenied when they refuse the keys.
    """
    require_pyspark()
    _check_trigger(trigger or {})
    job, read = prepare(group, topic, expression, handler, source or {}, wait_most_s, **settings)
    if job.is_in_order and spark.conf.get("spark.speculation", "false").lower() == "true":
        raise SettingsError(
            "spark.speculation=true runs a task twice at a time, and messages out of order: set it "
            "to false, or say order='none'"
        )
    handled = spark.readStream.format("rocketmq").options(**read)
    frame = handled.option(job_option.OPTION, job_option.text_of(job)).load()
    writer = frame.where("problem IS NOT NULL").writeStream.foreachBatch(OutcomeCheck(topic))
    writer = writer.option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.start()


def prepare(
    group: str,
    topic: str,
    expression: str | MessageSelector,
    handler: Handler | None,
    source: Mapping[str, str],
    wait_most_s: float,
    **settings: Unpack[ListenSettings],
) -> tuple[HandlerJob, dict[str, str]]:
    """What runs in the tasks, and the options of the read; raises what `listen` does."""
    client, options = consumer_settings(group, settings)
    given = _source_options(source, options)
    texts = OptionReader(given, SOURCE_OPTIONS)
    security = security_of(texts)
    job = handler_job(client, security, options, topic, handler, wait_most_s)
    read = {
        **given,
        **filter_options(topic, expression),
        "namesrv": ";".join(client.namesrv),
        "subscribe": f"{topic},{retry_topic_of(options.group)}",
        "group": options.group,
        "commitOffsets": "true",
        "columns": ",".join(COLUMNS),
        "startingOffsets": start_offsets(
            secured(client, security),
            options,
            topic,
            retry_for_s=texts.whole("retryForMs", RETRY_FOR_MS, least=0) / 1000,
            brokers=texts.names("brokers"),
        ),
    }
    return job, read


def _check_trigger(trigger: Mapping[str, Any]) -> None:
    for name in _WITHOUT_PYTHON:
        if trigger.get(name) is not None:
            raise SettingsError(
                f"the trigger {name} refuses sources written in Python: say processingTime or "
                "availableNow, or run a push consumer for milliseconds between message and handler"
            )


def _source_options(given: Mapping[str, str], options: ConsumerOptions) -> dict[str, str]:
    """The caller's options of the source; raises SettingsError for one that is not the caller's."""
    known = {name.lower() for name in SOURCE_OPTIONS}
    for name in given:
        if name.lower() not in known:
            raise SettingsError(
                f"source has {name}, which listen sets itself or which is no option; it may have "
                f"{', '.join(SOURCE_OPTIONS)}"
            )
    split = [name for name in _SPLITTING if name.lower() in {one.lower() for one in given}]
    if split and options.is_locking:
        raise SettingsError(
            f"{split[0]} splits queues, which have no order then: leave it out, or say order='none'"
        )
    return dict(given)
