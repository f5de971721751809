"""Journals of finished offsets: cut anywhere, failed commits, other owners."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.rules.queues.completed_offsets import CompletedOffsets, runs_of
from cometmq.rules.queues.offset_journal import (
    FAILURES_MAX,
    JournalState,
    OffsetJournal,
    commits_record,
    decode_journal,
    failure_record,
    finished_record,
    start_record,
)


@st.composite
def journals(draw):
    """Records, and for each number of whole records what they say."""
    base = draw(st.integers(0, 1 << 40))
    done, ours, top = CompletedOffsets(base), (base,), 0
    records = [start_record(JournalState("me", ours, top, done, {}))]
    tried = {}
    said = [(ours, top, done.base, done.runs, {})]
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from("TAD"))
        if kind == "A":
            offset, failures = draw(st.integers(0, 1 << 40)), draw(st.integers(1, 1_000_000))
            tried[offset] = (failures, draw(st.integers(0, 1 << 45)))
            records.append(failure_record(offset, *tried[offset]))
        elif kind == "T":
            ours = tuple(draw(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=2)))
            records.append(commits_record(ours))
        else:
            fresh = sorted(draw(st.sets(st.integers(done.base, done.base + 50))))
            top = max(top, draw(st.integers(0, 1 << 45)))
            runs = runs_of(fresh)
            for start, end in runs:
                done.add(start, end)
            done.advance(done.base + draw(st.integers(0, 20)))
            records.append(finished_record(done.base, top, runs))
        said.append((ours, top, done.base, done.runs, dict(tried)))
    return records, said


@given(journals(), st.integers(0, 1 << 16), st.integers(0, 255))
@settings(max_examples=200)
def test_a_journal_torn_anywhere_says_what_its_whole_records_say(journal, cut, junk):
    records, said = journal
    torn = b"".join(records)
    torn = torn[: cut % (len(torn) + 1)] + bytes([junk]) * 40  # which may happen to complete one
    whole, at = 0, 0
    while whole < len(records) and torn[at:].startswith(records[whole]):
        at += len(records[whole])
        whole += 1
    found = decode_journal(torn)
    if not whole:
        assert found is None
    else:
        done = found.completed
        assert (found.own_commits, found.top_store_ms, done.base, done.runs, found.failures) == (
            said[whole - 1]
        )


def test_what_is_no_journal_says_nothing():
    assert decode_journal(b"") is None
    assert decode_journal(bytes(100)) is None
    assert decode_journal(commits_record([1])) is None


def journal_of(start, found, *, is_reset=False):
    return OffsetJournal("me", start, found, is_reset=is_reset)


def test_a_map_counts_only_where_the_committed_offset_is_its_writers():
    first = journal_of(10, None)
    data = first.opening_records() + first.record_finished([12, 13, 15], 10, 500)
    assert all(journal_of(10, data).was_finished(offset, 500) for offset in (12, 13, 15))
    assert not journal_of(10, data).was_finished(14, 500)
    assert not journal_of(10, data).was_finished(12, 501), "stored later: a topic made anew"
    assert not journal_of(9, data).was_finished(12, 500)
    assert not journal_of(10, data, is_reset=True).was_finished(12, 500)
    assert not OffsetJournal("you", 10, data, is_reset=False).was_finished(12, 500)


def test_failures_are_counted_over_restarts_until_their_message_is_finished():
    first = journal_of(10, None)
    data = (
        first.opening_records()
        + first.record_failure(12, 1, 400)
        + first.record_failure(12, 2, 400)
    )
    data += first.record_failure(14, 1, 401)
    again = journal_of(10, data)
    assert [again.failures_of(at, 400) for at in (11, 12, 13)] == [0, 2, 0]
    assert again.failures_of(12, 399) == 0, "another message at its place"
    assert journal_of(10, again.opening_records()).failures_of(12, 400) == 2, (
        "a new file has them as well"
    )
    assert journal_of(9, data).failures_of(12, 400) == 0, "an offset that is not ours"
    assert journal_of(10, data, is_reset=True).failures_of(12, 400) == 0
    data += again.record_finished([12], 10, 400)
    assert again.failures == {14: (1, 401)}
    assert journal_of(10, data).failures == {14: (1, 401)}


def test_the_messages_whose_failures_are_kept_are_bounded():
    journal = journal_of(0, None)
    for offset in range(FAILURES_MAX + 5):
        journal.record_failure(offset, 3, offset)
    assert len(journal.failures) == FAILURES_MAX
    assert journal.failures_of(4, 4) == 0
    assert journal.failures_of(5, 5) == 3
    assert len(journal.opening_records()) < 65_536


def test_while_a_commit_is_under_way_either_offset_is_ours():
    first = journal_of(10, None)
    data = (
        first.opening_records()
        + first.record_finished([10, 11, 13], 12, 500)
        + first.record_commit_begin(12)
    )
    for start in (10, 12):
        again = journal_of(start, data)
        assert again.was_finished(11, 500)
        assert again.was_finished(13, 500)
    data += first.record_commit_done(12)
    assert not journal_of(10, data).was_finished(13, 500)
    assert journal_of(12, data).was_finished(13, 500)


def test_offsets_whose_commit_was_never_confirmed_stay_ours_but_only_the_last_few():
    first = journal_of(0, None)
    data = first.opening_records() + first.record_finished([20], 15, 500)
    for offset in range(1, 6):
        data += first.record_commit_begin(offset)
    assert [journal_of(at, data).was_finished(20, 1) for at in range(6)] == [
        True,
        False,
        False,
        True,
        True,
        True,
    ]
