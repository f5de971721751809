"""The broker itself: what it is doing (28).

Owns the keys that admin tools look for; missing ones make them fail, so those without a meaning
here (of thread pools, timers, buffers) are reported as 0.
Java: AdminBrokerProcessor.prepareRuntimeInfo.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.broker.metrics import metric_definitions as catalog
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.net.endpoint import Endpoint
from cometmq.net.handler import Reply
from cometmq.wire.bodies.name_lists import encode_kv_table
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.command import VERSION
from cometmq.wire.records import log_record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.broker.delivery.delayed_messages import DelayedMessages
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.metrics.registry import Metric, MetricsRegistry
    from cometmq.metrics.traffic_counters import TrafficTotal
    from cometmq.net.connection import Connection
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command

_ZERO = [
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "litePullThreadPoolQueueSize",
    "queryThreadPoolQueueSize",
    "ackThreadPoolQueueSize",
    "EndTransactionQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "litePullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "dispatchMaxBuffer",
    "startAcceptSendRequestTimeStamp",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
]
_ZERO_RATES = ("timerEnqueueTps", "timerDequeueTps")
_CAPACITIES = {
    "sendThreadPoolQueueCapacity": "10000",
    "pullThreadPoolQueueCapacity": "100000",
    "litePullThreadPoolQueueCapacity": "100000",
    "queryThreadPoolQueueCapacity": "20000",
    "ackThreadPoolQueueCapacity": "100000",
    "EndTransactionThreadPoolQueueCapacity": "100000",
    "remainTransientStoreBufferNumbs": "2147483647",
}


_DELAYS = [
    "<=0ms",
    "0~10ms",
    "10~50ms",
    "50~100ms",
    "100~200ms",
    "200~500ms",
    "500ms~1s",
    "1~2s",
    "2~3s",
    "3~4s",
    "4~5s",
    "5~10s",
    "10s~",
]
"""The names of the classes of `store/log/put_latency`."""


class RuntimeRequests:
    """Answers requests about the broker."""

    def __init__(
        self,
        store: MessageStore,
        delayed_messages: DelayedMessages,
        stats: BrokerStats,
        metrics: MetricsRegistry,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._delayed_messages = delayed_messages
        self._stats = stats
        self._metrics = metrics
        self._now_ms = now_ms
        self._boot_ms = now_ms()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (Endpoint(Code.GET_BROKER_RUNTIME_INFO, self.runtime_info),)

    def runtime_info(self, _request: Command, _connection: Connection) -> Reply | Awaitable[Reply]:
        """Tell what the broker is doing (28)."""
        return self._store.cold_reader.prepare_and_apply(self._earliest_ms, self._answer)

    def _answer(self, earliest_ms: int) -> Reply:
        table = dict.fromkeys(_ZERO, "0") | dict.fromkeys(_ZERO_RATES, "0.0") | _CAPACITIES
        table |= self._counts() | self._put_times() | self._disk(earliest_ms) | self._schedule()
        return Reply(body=encode_kv_table(table))

    def _counts(self) -> dict[str, str]:
        stats, now_ms = self._stats, self._now_ms()
        stats.refresh()
        puts, gets = stats.puts, stats.gets
        put_rates, get_rates = _rates(puts), _rates(gets)
        return {
            "brokerActive": "true",
            "brokerVersionDesc": "V5_3_3",
            "brokerVersion": str(VERSION),
            "bootTimestamp": str(self._boot_ms),
            "runtime": _duration(now_ms - self._boot_ms),
            "putTps": put_rates,
            "getTransferredTps": get_rates,
            "getTransferedTps": get_rates,
            "getFoundTps": _rates(stats.found_pulls),
            "getMissTps": _rates(stats.empty_pulls),
            "getTotalTps": _rates(stats.found_pulls, stats.empty_pulls),
            "getMessageEntireTimeMax": str(self._whole(catalog.READ_LONGEST_MS)),
            "dispatchBehindBytes": str(self._whole(catalog.DISPATCH_BEHIND)),
            "putMessageTimesTotal": str(puts.count),
            "putMessageSizeTotal": str(puts.bytes),
            "putMessageAverageSize": str(puts.bytes / puts.count if puts.count else 0.0),
            "msgPutTotalYesterdayMorning": str(stats.puts_at_midnight[0]),
            "msgPutTotalTodayMorning": str(stats.puts_at_midnight[1]),
            "msgPutTotalTodayNow": str(stats.user_puts.count),
            "msgGetTotalYesterdayMorning": str(stats.gets_at_midnight[0]),
            "msgGetTotalTodayMorning": str(stats.gets_at_midnight[1]),
            "msgGetTotalTodayNow": str(stats.user_gets.count),
            "cometmqColdReads": str(self._store.cold_reader.waits),
        }

    def _put_times(self) -> dict[str, str]:
        times, now_s = self._store.put_times, asyncio.get_running_loop().time()
        classes = zip(_DELAYS, times.classes(now_s), strict=True)
        return {
            "putMessageFailedTimes": str(self._whole(catalog.PUTS_FAILED)),
            "putMessageEntireTimeMax": str(int(self._metrics.value(catalog.PUT_LONGEST_S) * 1000)),
            "putMessageDistributeTime": " ".join(f"[{name}]:{count}" for name, count in classes),
            "putLatency99": f"{times.percentile(0.99, now_s) * 1000:.2f}",
            "putLatency999": f"{times.percentile(0.999, now_s) * 1000:.2f}",
        }

    def _disk(self, earliest_ms: int) -> dict[str, str]:
        used = self._metrics.value(catalog.DISK_USED_RATIO)
        total = self._metrics.value(catalog.DISK_TOTAL)
        return {
            "commitLogDiskRatio": str(round(used, 4)),
            f"commitLogDiskRatio_{self._store.commit_log_directory}": str(round(used, 4)),
            "consumeQueueDiskRatio": str(round(used, 4)),
            "commitLogDirCapacity": f"Total : {_size(total)}, Free : {_size(total * (1 - used))}.",
            "commitLogMinOffset": str(self._whole(catalog.LOG_MIN_OFFSET)),
            "commitLogMaxOffset": str(self._whole(catalog.LOG_MAX_OFFSET)),
            "earliestMessageTimeStamp": str(earliest_ms),
            "remainHowManyDataToFlush": _size(self._whole(catalog.FLUSH_BEHIND)),
        }

    def _whole(self, metric: Metric) -> int:
        return int(self._metrics.value(metric))

    def _schedule(self) -> dict[str, str]:
        """Of each delay level how far it is delivered, and how far it is filled."""
        return {
            f"scheduleMessageOffset_{level}": f"{offset},"
            f"{self._store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in self._delayed_messages.offsets.items()
        }

    def _earliest_ms(self, context: ReadContext) -> int:
        """When the oldest message of the log was stored; -1 for an empty log."""
        record = context.record_at(self._store.min_phy_offset)
        return log_record.decode(record).store_ms if record else -1


def _rates(*totals: TrafficTotal) -> str:
    """The sum of the totals a second, over ten seconds, a minute and ten minutes."""
    return " ".join(str(sum(each.rate(seconds) for each in totals)) for seconds in (10, 60, 600))


def _duration(ms: int) -> str:
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes any size")
