"""Sends parked messages back from their table: repairs bodies, then lets their keys go on.

Owns which rows are repaired and which keys are released; the group's members carry it out, in
order. Works on rows of `read_parked`, or on any frame with the same columns. Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client.blocking.admin import Admin
from cometmq.errors import SettingsError
from cometmq.model.parking import RedriveReport, Refusal
from cometmq.spark.connection_security import SECURITY_OPTIONS, security_of
from cometmq.spark.option_reader import OptionReader
from cometmq.spark.tables.spark_failures import spark_errors_translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from cometmq.model.parking import ParkedMessage

ROWS_MAX = 100_000
"""Rows that one call sends back; they come to the driver."""
_NEEDED = ("group", "broker", "position", "body")
_ON_ITS_WAY = "it follows a command already, so its body was not repaired"


def send_back(
    rows: DataFrame,
    *,
    namesrv: str | None = None,
    to: str | None = None,
    redrive: bool = False,
    dry_run: bool = False,
    wait_s: float = 60.0,
    options: Mapping[str, str] | None = None,
) -> RedriveReport:
    """Let the keys of these parked messages go on, in order, with the bodies that the rows have.

    A row whose `body` is not the message's own repairs it: do that in SQL. Then each key with a
    chosen message goes as a whole to its group's handler; with `redrive` to its topic again, or
    `to` another, for all groups. Rows of messages that have left are passed over, so a second call,
    or a second operator, does nothing twice. One member of each group has to run.

    - `wait_s`: seconds to wait for the members of each group. `dry_run`: only counts.
    - `options`: those of the source that are about keys and TLS.

    Raises SettingsError for a frame without a needed column or with more than 100,000 rows, before
    anything is changed; ClientError, RemotingError, and CometError for errors of Spark.
    """
    if to is not None and not redrive:
        raise SettingsError("to is for redrive=True: a released message stays in its group")
    wanted = _collected(rows)
    security = security_of(OptionReader(options or {}, SECURITY_OPTIONS)).client_settings()
    asked, done, refused = 0, 0, list[Refusal]()
    with Admin(namesrv=namesrv, **security) as admin:
        for group, bodies in sorted(wanted.items()):
            there = admin.parked(group, places=bodies)
            stuck = [] if dry_run else _repair(admin, group, there, bodies)
            kept = {_place(one.message) for one in stuck}
            places = {_place(one) for one in there} - kept
            if redrive:
                report = admin.redrive_parked(
                    group, to=to, places=places, wait_s=wait_s, dry_run=dry_run
                )
            else:
                report = admin.release_parked(group, places=places, wait_s=wait_s, dry_run=dry_run)
            asked += report.asked + len(stuck)
            done += report.done
            refused += [*stuck, *report.refused]
    return RedriveReport(asked=asked, done=done, refused=tuple(refused), is_dry_run=dry_run)


def _collected(rows: DataFrame) -> dict[str, dict[tuple[str, int], bytes]]:
    """The bodies by group, and by broker and position in its parking topic."""
    missing = [name for name in _NEEDED if name not in rows.columns]
    if missing:
        raise SettingsError(
            f"send_back needs the columns {', '.join(missing)}: select them from the table as well"
        )
    with spark_errors_translated():
        chosen = rows.selectExpr("group", "broker", "position", "cast(body AS binary) AS body")
        found = chosen.limit(ROWS_MAX + 1).collect()
    if len(found) > ROWS_MAX:
        raise SettingsError(
            f"more than {ROWS_MAX:,} rows were chosen: send the keys back in several calls"
        )
    wanted: dict[str, dict[tuple[str, int], bytes]] = {}
    for group, broker, position, body in found:
        wanted.setdefault(group, {})[broker, position] = bytes(body)
    return wanted


def _repair(
    admin: Admin,
    group: str,
    there: Iterable[ParkedMessage],
    bodies: Mapping[tuple[str, int], bytes],
) -> list[Refusal]:
    """Give the messages the bodies of their rows; those that could not get theirs."""
    refused = []
    for one in there:
        body = bodies[_place(one)]
        is_other = bytes(admin.parked_message(group, one).body) != body
        if is_other and not admin.repair_parked(group, one, body):
            refused.append(Refusal(one, _ON_ITS_WAY))
    return refused


def _place(one: ParkedMessage) -> tuple[str, int]:
    return one.broker_name, one.position
