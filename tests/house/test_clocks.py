"""Who reads the wall clock, and why: it may be set at any time, so waits must not use it."""

from __future__ import annotations

import ast

from house.tree import MODULES, Module

READS = {"now_ms", "_now_ms", "local_hour", "_local_hour", "local_stamp"}
"""The names by which the wall clock is read; `monotonic_ms` is the other clock."""

STORED = "stored, and shown or compared with what others stored"
MADE = "given on: a part that is listed here, or a version of a table, gets it"
BORN = "the born time and the id of a message"
SHOWN = "shown to people, or reported to administrators"

WALL = {
    "broker/admin/progress_requests.py": "how long ago a stored message was stored",
    "broker/admin/runtime_requests.py": SHOWN,
    "broker/app.py": MADE,
    "broker/broker_state.py": MADE,
    "broker/cluster/config_requests.py": STORED,
    "broker/cluster/topics.py": STORED,
    "broker/delivery/delayed_messages.py": "the version of delayOffset.json",
    "broker/delivery/timer_messages.py": "the version of timercheck",
    "broker/delivery/timer_requests.py": "the version of timercheck, as slaves get it",
    "broker/delivery/reply.py": STORED,
    "broker/delivery/send_back.py": STORED,
    "broker/groups/client_registry.py": SHOWN,
    "broker/metrics/broker_figures.py": "how long ago a stored message was stored",
    "broker/groups/consumer_groups.py": STORED,
    "broker/groups/consumer_offsets.py": STORED,
    "broker/metrics/broker_stats.py": "the hour of the day at which totals of a day begin",
    "broker/pulls/consumer_filters.py": STORED,
    "broker/request_handlers.py": MADE,
    "broker/served_broker.py": "the name of a file of unreplicated messages",
    "cli/doctor_command.py": "compared with brokers' wall clocks",
    "cli/snapshot_command.py": SHOWN,
    "cli/store_commands.py": "the version of a table that is made anew",
    "cli/time_arguments.py": "times that people give as how long ago",
    "client/admin/dead_letter_redrive.py": "a message carries when it was made",
    "client/parking/key_drains.py": "a message carries when it was made",
    "client/parking/parking_log.py": "records carry when they were made; how long one is parked",
    "client/admin/cluster_survey.py": "compared with brokers' wall clocks",
    "client/admin/group_watch.py": MADE,
    "client/consumer/broker_requests.py": SHOWN,
    "client/consumer/push_engine.py": "the version of subscriptions, which outlives the process",
    "client/failures/blocked_queues.py": SHOWN,
    "client/failures/failed_message_sender.py": STORED,
    "client/failures/failure_actions.py": SHOWN,
    "client/handling/by_key.py": "the age of files, and since when a key fails, for operators",
    "client/middleware/trace.py": STORED,
    "client/polling/lite_pull_engine.py": "the version of subscriptions",
    "client/producer/async_producer.py": BORN,
    "client/producer/batch_sender.py": BORN,
    "client/producer/request_reply.py": BORN,
    "client/producer/send_fast_path.py": BORN,
    "client/producer/send_pipeline.py": BORN,
    "client/producer/thread_sender.py": BORN,
    "client/producer/transactions.py": BORN,
    "otel/tracing.py": "when the request of a batch began, as exporters want it",
    "spark/sink/chunk_sender.py": STORED,
    "spark/sink/rejected_rows.py": STORED,
    "spark/tables/manifest_log.py": "since when merged files are not needed, for later runs",
    "store/index/key_index.py": "the name of a new index file",
    "store/log/retention.py": "the hour of the day at which old files are deleted",
    "store/message_appender.py": "the store's clock, not the wall clock",
    "store/recovery/full_disk.py": "compared with the times of files",
    "store/store_clock.py": "the one place that keeps store times near the wall clock",
}
"""Files that read the wall clock, and what for."""

EDGES = {"runtime", "testing"}


def _reads(module: Module) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr in READS and isinstance(node.ctx, ast.Load)
    ]


def test_only_the_named_files_read_the_wall_clock():
    found = {m.name: lines for m in MODULES if m.package not in EDGES and (lines := _reads(m))}
    new = {name: lines for name, lines in found.items() if name not in WALL}
    assert not new, "use monotonic_ms for waits and ages, or name the file here with its reason"
    assert not WALL.keys() - found.keys(), "the file reads no wall clock any more: take it out"


def test_nobody_asks_the_system_for_the_wall_clock():
    asked = {"time.time", "time.time_ns", "datetime.datetime.now", "datetime.datetime.utcnow"}
    allowed = {"runtime/system_clock_and_files.py", "spark/source/offset_bounds.py"}
    found = [
        f"{m.name}:{line}"
        for m in MODULES
        if m.name not in allowed and m.package != "demo"
        for line, name in m.calls()
        if name in asked
    ]
    assert not found
