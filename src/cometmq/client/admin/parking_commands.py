"""Commands of operators about parked keys: appends them, and watches owners carry them out.

Owns the report; leaves to the fold (`rules.failures.parked_keys`) whether a command counts. A
command that is given twice counts once. Java: none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.client.parking.parking_messages import control_form
from cometmq.model.parking import ParkingRecord, ParkingStep, RedriveReport, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.client.parking.parking_log import ParkingLog
    from cometmq.model.parking import ParkedMessage, Progress, Selection

_LOOK_S = 0.2


class ParkingCommands:
    """Commands to one group. The logs have been read to their ends."""

    def __init__(
        self, logs: Sequence[ParkingLog], wanted: Selection, progress: Progress | None
    ) -> None:
        self._logs = logs
        self._wanted = wanted
        self._progress = progress

    async def run(
        self, step: ParkingStep, to: str, rate: float, wait_s: float, *, dry_run: bool
    ) -> RedriveReport:
        """Let the keys with a chosen message leave, and wait for it."""
        asked = [(log, key) for log in self._logs for key in self._keys(log)]
        left = {
            (log, one.topic, one.queue_id, one.offset): one for log, key in asked for one in key
        }
        if dry_run:
            return RedriveReport(asked=len(left), is_dry_run=True)
        stored: dict[ParkingLog, int] = {}
        for log, key in asked:
            head = key[0]
            record = ParkingRecord(
                step=step,
                topic=head.topic,
                queue_id=head.queue_id,
                key=head.key,
                offset=head.offset,
                to=to,
                rate=rate / len(asked),
            )
            if not head.command:  # else it is on its way already
                stored[log] = await log.append(control_form(log.topic, record, log.stamp_ms))
        for log, position in stored.items():
            await log.read_through(position)
        return await self._watch(left, wait_s)

    async def drop(self, *, dry_run: bool) -> RedriveReport:
        """Let the chosen messages count as done."""
        chosen = [
            (log, one) for log in self._logs for one in log.messages() if self._wanted.takes(one)
        ]
        if dry_run:
            return RedriveReport(asked=len(chosen), is_dry_run=True)
        for log, one in chosen:
            await self._append(log, one, ParkingStep.DROP)
        gone = sum(not _is_there(log, one) for log, one in chosen)
        return RedriveReport(asked=len(chosen), done=gone)

    async def repair(self, parked: ParkedMessage, body: bytes) -> bool:
        """Give a message another body; whether that counts."""
        log = self._logs[0]
        position = await self._append(log, parked, ParkingStep.REPAIR, body)
        return any(one.repaired_at == position for one in log.messages())

    def _keys(self, log: ParkingLog) -> list[list[ParkedMessage]]:
        """The parked messages of each key of which one is chosen."""
        by_key: dict[tuple[str, int, str], list[ParkedMessage]] = {}
        for one in log.messages():
            by_key.setdefault((one.topic, one.queue_id, one.key), []).append(one)
        return [key for key in by_key.values() if any(map(self._wanted.takes, key))]

    async def _watch(
        self, left: dict[tuple[ParkingLog, str, int, int], ParkedMessage], wait_s: float
    ) -> RedriveReport:
        """Wait until all have left, or wait no more; their owners report in the log."""
        loop, count = asyncio.get_running_loop(), len(left)
        deadline = loop.time() + wait_s
        while True:
            there = {}
            for log in self._logs:
                await log.read_to_end()
                for one in log.messages():
                    there[log, one.topic, one.queue_id, one.offset] = one
            stay = {place: there[place] for place in left if place in there}
            if self._progress is not None:
                self._progress(count - len(stay), count)
            if all(not one.command for one in stay.values()) or loop.time() >= deadline:
                break
            await asyncio.sleep(_LOOK_S)
        refused = tuple(
            Refusal(one, _why(one)) for one in stay.values() if one.has_failed or one.command
        )
        return RedriveReport(asked=count, done=count - len(stay), refused=refused)

    async def _append(
        self, log: ParkingLog, one: ParkedMessage, step: ParkingStep, body: bytes = b""
    ) -> int:
        record = ParkingRecord(
            step=step, topic=one.topic, queue_id=one.queue_id, key=one.key, offset=one.offset
        )
        return await log.append_and_read(control_form(log.topic, record, log.stamp_ms, body))


def _is_there(log: ParkingLog, parked: ParkedMessage) -> bool:
    return any(one.position == parked.position for one in log.messages())


def _why(one: ParkedMessage) -> str:
    if one.command:
        return "it is still on its way: no member of the group has come to it"
    return f"it failed again: {one.reason}"
