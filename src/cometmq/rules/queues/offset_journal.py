"""The journal of a queue that is handled by key: what is finished above the committed offset.

Owns the encoding and what counts of a journal that was found; knows nothing of files and brokers.
Invariants: any whole records from the start of a journal are true, if only of an earlier time, so a
torn tail costs repeats and loses nothing; a journal calls nothing finished that was stored after
`top_store_ms`.
Layout of a record: crc32 u32, length u16, then `length` bytes: kind u8 and varints. S starts anew,
D adds finished runs, T names the offsets that brokers may have from us, A says how often an offset
has failed, and when its message was stored. A run is the distance from the end of the one before
(first: from the base) and its length.
Java: nothing alike
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from cometmq.rules.queues.completed_offsets import RUNS_MAX, CompletedOffsets, runs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cometmq.rules.queues.completed_offsets import Run

    FailureCount = tuple[int, int]  # failures, and the store time of the message

FAILURES_MAX = 1024
"""Messages whose failures are kept; the oldest of more is dropped and starts at 0 again."""
_PENDING_MAX = 2
_HEAD = Struct(">IH")
_START, _FINISHED, _COMMITS, _FAILURE = b"S", b"D", b"T", b"A"
_SHIFT, _LOW, _MORE = 7, 0x7F, 0x80


class JournalState(NamedTuple):
    """What a journal says."""

    owner: str
    """Whose offsets these are: a digest of group, name servers and queue."""
    own_commits: tuple[int, ...]
    """The offsets that this journal's writer committed, or may have; only the last ones."""
    top_store_ms: int
    """The latest store time of what was finished."""
    completed: CompletedOffsets
    failures: dict[int, FailureCount]
    """How often offsets have failed that were not finished."""


def start_record(saved: JournalState) -> bytes:
    """Encode the record that a journal starts with."""
    owner, done = saved.owner.encode(), saved.completed
    numbers = [saved.top_store_ms, done.base, len(saved.own_commits), *saved.own_commits]
    payload = _varints([len(owner)]) + owner + _varints(numbers) + _runs(done.base, done.runs)
    return _record(_START, payload)


def finished_record(base: int, top_store_ms: int, runs: Sequence[Run]) -> bytes:
    """Encode what was finished since the last such record, and the base that follows from it."""
    first = runs[0][0] if runs else base
    known = runs[:RUNS_MAX]
    return _record(_FINISHED, _varints([top_store_ms, base, first]) + _runs(first, known))


def commits_record(ours: Sequence[int]) -> bytes:
    """Encode the offsets that a broker may have from us."""
    return _record(_COMMITS, _varints([len(ours), *ours]))


def failure_record(offset: int, failures: int, store_ms: int) -> bytes:
    """Encode how often a message has failed so far."""
    return _record(_FAILURE, _varints([offset, failures, store_ms]))


def decode_journal(data: bytes) -> JournalState | None:
    """Decode a journal as far as it can be read; None when it does not start as one."""
    saved: JournalState | None = None
    at = 0
    while (payload := _payload(data, at)) is not None:
        at += _HEAD.size + len(payload)
        saved = _apply(saved, payload)
        if saved is None:
            return None
    return saved


class OffsetJournal:
    """The journal of a queue in work: what was found on disk, and what to append next.

    What was found counts only if the offset to start from is one that its writer committed; any
    other offset, or a reset, means that somebody else has moved the offset.
    """

    __slots__ = (
        "_known",
        "_known_ms",
        "completed",
        "failures",
        "own_commits",
        "owner",
        "top_store_ms",
    )

    def __init__(self, owner: str, start: int, found: bytes | None, *, is_reset: bool) -> None:
        self.owner = owner
        self.own_commits: tuple[int, ...] = (start,)
        saved = decode_journal(found) if found and not is_reset else None
        is_ours = saved is not None and saved.owner == owner and start in saved.own_commits
        self.completed = saved.completed if saved and is_ours else CompletedOffsets(start)
        self.top_store_ms = saved.top_store_ms if saved and is_ours else 0
        self._known = CompletedOffsets(self.completed.base, self.completed.runs)
        self._known_ms = self.top_store_ms if is_ours else -1
        self.failures: dict[int, FailureCount] = {}
        if saved and is_ours:
            self.failures = {
                at: one for at, one in saved.failures.items() if at not in self.completed
            }

    def was_finished(self, offset: int, store_ms: int) -> bool:
        """Whether the message was finished before the start.

        One that was stored later than all that was finished is another one, of a topic made anew.
        """
        return store_ms <= self._known_ms and offset in self._known

    def failures_of(self, offset: int, store_ms: int) -> int:
        """How often the message has failed, restarts included; 0 for another one at its place."""
        failures, stored_ms = self.failures.get(offset, (0, store_ms))
        return failures if stored_ms == store_ms else 0

    def record_failure(self, offset: int, failures: int, store_ms: int) -> bytes:
        """Note how often an unfinished message has failed; return the record to append."""
        if offset not in self.failures and len(self.failures) >= FAILURES_MAX:
            del self.failures[next(iter(self.failures))]
        self.failures[offset] = (failures, store_ms)
        assert len(self.failures) <= FAILURES_MAX, "more failures are kept than may be"
        return failure_record(offset, failures, store_ms)

    def opening_records(self) -> bytes:
        """Return the records that a new file starts with."""
        saved = JournalState(
            self.owner, self.own_commits, self.top_store_ms, self.completed, self.failures
        )
        tried = [failure_record(offset, *one) for offset, one in self.failures.items()]
        return start_record(saved) + b"".join(tried)

    def record_finished(self, offsets: Iterable[int], base: int, top_store_ms: int) -> bytes:
        """Note what was finished, and that all below `base` is; return the record to append."""
        runs = runs_of(sorted(offsets))
        for start, end in runs:
            self.completed.add(start, end)
        self.completed.advance(base)
        if self.failures:
            for start, end in runs:
                for offset in range(start, end):
                    self.failures.pop(offset, None)
        self.top_store_ms = max(self.top_store_ms, top_store_ms)
        return finished_record(base, self.top_store_ms, runs)

    def record_commit_begin(self, offset: int) -> bytes:
        """Note that `offset` is about to be committed; return the record to append before that."""
        assert offset >= self.own_commits[0], "commits never go backwards"
        pending = self.own_commits[1:][-_PENDING_MAX:]  # sent before, and not known to have arrived
        self.own_commits = (self.own_commits[0], *pending, offset)
        assert len(self.own_commits) <= _PENDING_MAX + 2, "more commits are kept than may be"
        return commits_record(self.own_commits)

    def record_commit_done(self, offset: int) -> bytes:
        """Note that the broker has `offset` for certain; return the record to append."""
        assert offset in self.own_commits, "a commit is done only after it began"
        self.own_commits = (offset,)
        return commits_record(self.own_commits)


def _apply(saved: JournalState | None, payload: bytes) -> JournalState | None:
    kind, rest = payload[:1], payload[1:]
    if kind == _START:
        return _started(rest)
    if saved is None:
        return None
    numbers = _numbers(rest)
    if kind == _COMMITS:
        return saved._replace(own_commits=tuple(numbers[1 : 1 + numbers[0]]))
    if kind == _FAILURE:
        offset, failures, store_ms = numbers
        saved.failures[offset] = (failures, store_ms)
        return saved
    if kind != _FINISHED:
        return None
    top_store_ms, base, first = numbers[:3]
    for start, end in _read_runs(first, numbers[3:]):
        saved.completed.add(start, end)
    saved.completed.advance(base)
    return saved._replace(top_store_ms=max(saved.top_store_ms, top_store_ms))


def _started(rest: bytes) -> JournalState:
    size, at = _varint(rest, 0)
    owner = rest[at : at + size].decode()
    numbers = _numbers(rest[at + size :])
    top_store_ms, base, number = numbers[:3]
    ours, runs = numbers[3 : 3 + number], numbers[3 + number :]
    return JournalState(
        owner, tuple(ours), top_store_ms, CompletedOffsets(base, _read_runs(base, runs)), {}
    )


def _payload(data: bytes, at: int) -> bytes | None:
    """The payload of the record at a place; None when there is no whole one."""
    if at + _HEAD.size > len(data):
        return None
    check, length = _HEAD.unpack_from(data, at)
    payload = data[at + _HEAD.size : at + _HEAD.size + length]
    if not length or len(payload) < length or crc32(payload) != check:
        return None
    return payload


def _record(kind: bytes, rest: bytes) -> bytes:
    payload = kind + rest
    assert len(payload) <= 0xFFFF, "the length of a record has 16 bits"
    return _HEAD.pack(crc32(payload), len(payload)) + payload


def _runs(origin: int, runs: Iterable[Run]) -> bytes:
    numbers: list[int] = []
    for start, end in runs:
        assert origin <= start < end, "runs are in order, and none is empty"
        numbers += (start - origin, end - start)
        origin = end
    return _varints(numbers)


def _read_runs(origin: int, numbers: Sequence[int]) -> list[Run]:
    runs = []
    for at in range(0, len(numbers) - 1, 2):
        start = origin + numbers[at]
        origin = start + numbers[at + 1]
        runs.append((start, origin))
    return runs


def _varints(numbers: Iterable[int]) -> bytes:
    out = bytearray()
    for number in numbers:
        assert number >= 0, "varints have no sign"
        left = number
        while left > _LOW:
            out.append(left & _LOW | _MORE)
            left >>= _SHIFT
        out.append(left)
    return bytes(out)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & _LOW) << shift
        shift += _SHIFT
        if byte <= _LOW:
            return number, at


def _numbers(data: bytes) -> list[int]:
    numbers, at = [], 0
    while at < len(data):
        number, at = _varint(data, at)
        numbers.append(number)
    return numbers
