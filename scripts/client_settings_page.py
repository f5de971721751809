# ruff: noqa: INP001
"""Writes docs/guide/client-settings.md from the options of clients, so the page cannot be wrong.

    .venv/bin/python scripts/client_settings_page.py

Names, types and defaults come from the classes; `NOTES` says what each is for, with its unit.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from pathlib import Path
from typing import Any

from cometmq.client.consumer.consumer_options import ConsumerOptions
from cometmq.client.consumer.push_options import PushSettings, push_options
from cometmq.client.polling.lite_pull_options import LitePullSettings, lite_pull_options
from cometmq.client.producer.producer_options import ProducerOptions, ProducerSettings
from cometmq.client.session.client_options import ClientOptions, ClientSettings

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "client-settings.md"
NOTES = {
    "namesrv": "name servers, `host:port`, several by `;` or as a list; else `NAMESRV_ADDR`",
    "instance_name": "distinguishes clients of one process; one is made where none is given",
    "route_refresh_s": "time between looks for new brokers and queues, s",
    "connect_timeout_s": "how long a connection may take, s",
    "heartbeat_s": "time between heartbeats, s; brokers forget a client after 120 s of silence",
    "access_key": "who signs the requests; with `secret_key`",
    "secret_key": "the key to it; in no log and no repr",
    "security_token": "a token beside both",
    "namespace": "instance of a shared cluster, as `INST%topic` (RocketMQ 4)",
    "namespace_v2": "the same as a field of each request (RocketMQ 5)",
    "unit_name": "a part of the client id",
    "tls": "True, or an `ssl.SSLContext`; [Connect](connect.md)",
    "trace": "True or a topic: RocketMQ's message trace",
    "middleware": "[Middleware](middleware.md), [Tracing](opentelemetry.md)",
    "attempt_timeout_s": "bounds one attempt, s; None: what is left of the call",
    "retries": "attempts after the first, on other brokers where there are any",
    "compress_over_bytes": "bodies from here on are compressed, bytes",
    "compress_level": "0 to 9",
    "body_bytes_max": "a larger body is refused, bytes; brokers have a limit of their own",
    "default_topic_queues": "queues of a topic that the first send makes",
    "pending_max": "calls of `send_async` under way",
    "check": "answers a broker that asks about an open transaction",
    "retry_not_ok": "what is stored less safely than asked for goes to another broker as well",
    "latency_fault": "avoids slow and failing brokers: `off`, `classic`, `current`, a LatencyTable",
    "detect_faults": "probes whether an unreachable broker is back",
    "keys": "how a sharding key finds its queue: `hash` or `balanced`",
    "strict_order": "a send fails rather than let a key change its queue",
    "compression": "`zlib`, `lz4` or `zstd`",
    "orderly": "the same as `order='queue'`",
    "broadcasting": "each member gets every message",
    "offsets_dir": "where members that are broadcast to keep their offsets",
    "consume_threads": "calls of handlers at once: threads, tasks or processes",
    "batch_size": "messages a call at most",
    "pull_batch_size": "messages a pull at most; Apache's brokers give 32 unless they allow more; "
    "None: 32, or from ours up to 256 and a quarter of `flow.count`",
    "pull_batch_bytes": "bytes a pull at most, where the broker goes by it",
    "inflated_bytes_max": "a compressed body that grows beyond is refused, bytes",
    "pull_interval_ms": "pause between pulls of a queue, ms",
    "max_attempts": "None: 17, in order without end; then a dead letter",
    "suspend_ms": "pause before an ordered message is tried again, ms",
    "auto_commit": "False: the handler, or the program, says when",
    "retry_in_place_s": "pause where no broker takes a failed message back, s",
    "consume_timeout_s": "a handler that runs longer gives up its message, s",
    "consume_from": "where a new group begins: `last`, `first`, `timestamp`",
    "consume_timestamp_ms": "that time, ms since 1970",
    "allocate": "how queues are shared: a name, or a function",
    "flow": "`FlowLimits`: how much a member holds of a queue",
    "persist_s": "time between commits, s",
    "rebalance_s": "time between looks who has which queue, s; changes are noticed at once",
    "lock_renew_s": "time between renewals of queue locks, s",
    "lock_valid_s": "how long one counts without an answer, s",
    "rejoin_grace_s": "how long a queue waits for a member whose connection broke, s",
    "stop_timeout_s": "how long `stop` waits for handlers, s",
    "poll_suspend_s": "how long a pull waits at the broker, s",
    "order": "`none`, `queue` or `key`: [What each order costs](order-costs.md)",
    "key": "of what key lanes are made: a property, or a function; else the sharding key",
    "without_key": "what messages without a key wait for: [Key lanes](key-lanes.md)",
    "state_dir": "where key lanes keep completed offsets",
    "on_failure": "[failure policies](failures.md)",
    "breaker": "`BreakerLimits`: when a circuit breaker opens",
    "workers": "`thread` or `process`",
    "auto_commit_s": "time between commits, s",
    "cached_max": "messages held of all queues",
}
"""What every setting is for."""
SECTIONS: tuple[tuple[str, str, type, type], ...] = (
    ("Every client", "", ClientSettings, ClientOptions),
    ("Producers", "`Producer`, `AsyncProducer`", ProducerSettings, ProducerOptions),
    ("Push consumers", "`PushConsumer`, `AsyncPushConsumer`", PushSettings, ConsumerOptions),
    ("Polling consumers", "`LitePullConsumer`, `AsyncLitePullConsumer`", LitePullSettings,
     ConsumerOptions),
)  # fmt: skip


def page() -> str:
    """The page as it should be."""
    lines = [
        "# All settings of clients",
        "",
        "Keyword arguments of the constructors, beside the group. A wrong name or value raises at"
        " once, in one sentence.",
        "Written by `scripts/client_settings_page.py`; nothing here is typed in. Java's names are"
        " in [the list of its classes](../java-map.md).",
    ]
    for title, who, names, options in SECTIONS:
        lines += ["", f"## {title}"]
        if who:
            lines += [f"{who}; and those of [every client](#every-client)."]
        lines += ["", "| Setting | Type | Default | |", "|---|---|---|---|"]
        hints = names.__annotations__
        own = [name for name in hints if names is ClientSettings or name not in _OF_ALL]
        lines += [
            f"| `{name}` | `{_type(hints[name])}` "
            f"| {_default(name, names, options)} | {NOTES[name]} |"
            for name in own
        ]
    return "\n".join(lines) + "\n"


_OF_ALL = frozenset(ClientSettings.__annotations__)
_PLAIN = {
    "ssl.SSLContext": "SSLContext",
    "PathLike[str]": "path",
    "Allocate": "a function",
    "TransactionCheck": "a function",
    "WithoutKey": "a choice",
    "Path": "path",
}


def _type(hint: Any) -> str:
    text = str(getattr(hint, "__forward_arg__", hint))
    text = re.sub(r"Literal\[([^]]*)\]", lambda found: found[1].replace(", ", " | "), text)
    parts = [_PLAIN.get(part, part) for part in text.split(" | ")]
    return " \\| ".join("a function" if "Callable" in part else part for part in parts)


def _default(name: str, names: type, options: type) -> str:
    if names is LitePullSettings:
        made: list[Any] = list(lite_pull_options("g", {"namesrv": "h:1"}, {}))
    elif names is PushSettings:
        made = list(push_options("g", {"namesrv": "h:1"}, {}))
    else:
        fields = {field.name: field for field in dataclasses.fields(options)}
        default = fields[name].default
        return "" if default is dataclasses.MISSING else _shown(default)
    found = next(getattr(one, name) for one in reversed(made) if hasattr(one, name))
    return _shown(found)


def _shown(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"`{value.name}`"
    if value == ():
        return "none"
    if callable(value):
        return '`"AVG"`'
    if dataclasses.is_dataclass(value):
        return f"`{type(value).__name__}()`"
    if isinstance(value, Path):
        return f"`{value.as_posix()}`"
    return f"`{value!r}`".replace("'", '"')


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
