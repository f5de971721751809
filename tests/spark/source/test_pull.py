"""Reading ranges over a socket: every message once and in order, whatever the broker does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import (
    AccessDenied,
    BrokerAway,
    ConnectFailed,
    DataLoss,
    MessagesDeleted,
    RouteNotFound,
)
from cometmq.model.queue import MessageQueue
from cometmq.spark.source.cluster_client import cluster_client_of
from cometmq.spark.source.offset_planning import OffsetRange
from cometmq.spark.source.pull import PULLS_IN_FLIGHT_MAX, pull_range, read_batches
from spark.scripted import Script, ScriptedBroker, error_of

if TYPE_CHECKING:
    from cometmq.spark.source.source_options import SourceOptions
    from cometmq.wire.command import Command


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", queue_id)


def offsets_of(options: SourceOptions, *ranges: OffsetRange) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for batch in read_batches(options, ranges):
        found += zip(batch["queue_id"].to_pylist(), batch["queue_offset"].to_pylist(), strict=True)
    return found


@pytest.mark.parametrize("pull_max", [1, 8, 32, 5000])
def test_a_range_comes_whole_and_in_order_however_little_a_pull_brings(pull_max: int) -> None:
    script = Script(pull_max=pull_max).fill(0, 700).fill(1, 10)
    with ScriptedBroker(script) as scripted:
        found = offsets_of(
            scripted.options(),
            OffsetRange(queue(0), 13, 650),
            OffsetRange(queue(1), 0, 9),
        )
    assert found == [(0, at) for at in range(13, 650)] + [(1, at) for at in range(9)]


def test_no_more_pulls_than_needed_once_the_size_of_an_answer_is_known() -> None:
    script = Script(pull_max=32).fill(0, 3200)
    with ScriptedBroker(script) as scripted:
        assert len(offsets_of(scripted.options(), OffsetRange(queue(0), 0, 3200))) == 3200
    assert script.pulls <= 3200 / 32 * 1.2


@pytest.mark.parametrize("scan_max", [3, 40, 800])
def test_tags_are_filtered_by_the_broker_and_nothing_comes_twice(scan_max: int) -> None:
    script = Script(scan_max=scan_max)
    script.tags = {(0, at): "rare" if at % 97 == 0 else "often" for at in range(2000)}
    script.fill(0, 2000)
    with ScriptedBroker(script) as scripted:
        found = offsets_of(scripted.options(tags="rare || none"), OffsetRange(queue(0), 1, 1999))
    assert found == [(0, at) for at in range(97, 1999, 97)]


def test_a_connection_that_breaks_again_and_again_loses_and_repeats_nothing() -> None:
    script = Script(break_after_pulls=13).fill(0, 900)
    with ScriptedBroker(script) as scripted:
        found = offsets_of(scripted.options(), OffsetRange(queue(0), 0, 900))
    assert found == [(0, at) for at in range(900)]
    assert script.codes.count(105) >= 3


def test_a_broker_that_stays_away_is_an_error_that_names_the_queue_and_the_option() -> None:
    script = Script().fill(0, 900)
    with ScriptedBroker(script) as scripted:
        cluster = cluster_client_of(scripted.options(retryForMs="300"))
        chunks = pull_range(cluster, OffsetRange(queue(0), 0, 900))
        next(chunks)
        script.break_after_pulls, script.registered = 1, False
        away = r"broker broker-a is away and queue T@broker-a/0 cannot be read .*retryForMs"
        with pytest.raises(BrokerAway, match=away):
            list(chunks)


def test_a_reader_that_stops_early_leaves_no_response_unread() -> None:
    script = Script().fill(0, 2000)
    with ScriptedBroker(script) as scripted:
        cluster = cluster_client_of(scripted.options())
        next(pull_range(cluster, OffsetRange(queue(0), 0, 2000)))
        assert cluster.positions()[queue(0)].max_offset == 2000
        assert not cluster.channel(queue(0))._answers
        assert not cluster.channel(queue(0))._wanted
        assert script.pulls <= PULLS_IN_FLIGHT_MAX + 1


def test_messages_deleted_by_the_broker_are_an_error_or_are_skipped_on_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script(earliest_offsets={0: 40}).fill(0, 100)
    whole = OffsetRange(queue(0), 10, 100)
    with ScriptedBroker(script) as scripted:
        said = error_of(lambda: offsets_of(scripted.options(), whole))
        assert "queue T@broker-a/0 no longer holds the messages from 10 up to 40" in said
        assert "failOnDataLoss=false" in said
        with caplog.at_level(logging.WARNING, "cometmq.spark"):
            found = offsets_of(scripted.options(failOnDataLoss="false"), whole)
    assert found == [(0, at) for at in range(40, 100)]
    assert "from 10 up to 40" in caplog.text


@pytest.mark.parametrize("tags", ["*", "even"])
def test_messages_that_the_broker_passes_over_once_it_has_deleted_them_are_an_error(
    tags: str, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(removed={0: 40}, scan_max=10).fill(0, 100)
    whole = OffsetRange(queue(0), 10, 100)
    with ScriptedBroker(script) as scripted:
        said = error_of(lambda: offsets_of(scripted.options(tags=tags), whole))
        assert "queue T@broker-a/0 no longer holds the messages from 10 up to 20" in said
        with caplog.at_level(logging.WARNING, "cometmq.spark"):
            found = offsets_of(scripted.options(tags=tags, failOnDataLoss="false"), whole)
    assert found == [(0, at) for at in range(40, 100) if tags == "*" or at % 2 == 0]
    assert "from 30 up to 40" in caplog.text


def test_messages_that_the_broker_passes_over_in_an_answer_with_others_are_an_error() -> None:
    script = Script(removed={0: 40}).fill(0, 100)
    with ScriptedBroker(script) as scripted:
        said = error_of(lambda: offsets_of(scripted.options(), OffsetRange(queue(0), 10, 100)))
    assert "queue T@broker-a/0 no longer holds the messages from 10 up to 40" in said


def test_messages_that_the_broker_cannot_read_are_left_out_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    damaged = {(0, 0), (0, 20), (0, 21)}
    script = Script(damaged=damaged, pull_max=10, scan_max=10).fill(0, 60)
    with ScriptedBroker(script) as scripted, caplog.at_level(logging.WARNING, "cometmq.spark"):
        found = offsets_of(scripted.options(), OffsetRange(queue(0), 0, 60))
    assert found == [(0, at) for at in range(60) if (0, at) not in damaged]
    assert "queue T@broker-a/0 has no readable message from 0 up to 1" in caplog.text
    assert "has no readable message from 20 up to 22" in caplog.text


def test_messages_that_are_deleted_while_an_answer_is_made_are_an_error_or_are_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = OffsetRange(queue(0), 0, 60)

    def read(**more: str) -> list[tuple[int, int]]:
        with ScriptedBroker(Script(removal={0: (5, 9)}).fill(0, 60)) as scripted:
            return offsets_of(scripted.options(**more), whole)

    with pytest.raises(MessagesDeleted, match="no longer holds the messages from 5 up to 9"):
        read()
    with caplog.at_level(logging.WARNING, "cometmq.spark"):
        assert read(failOnDataLoss="false") == [(0, at) for at in range(60) if not 5 <= at < 9]
    assert "from 5 up to 9" in caplog.text
    assert len(read(tags="odd")) == 28, "a filter hides what is gone"


def test_gaps_that_a_broker_has_for_good_are_named_and_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    damaged = {(0, 5), (0, 6), (0, 9), (0, 31)}
    script = Script(damaged=damaged).fill(0, 60)
    with ScriptedBroker(script) as scripted, caplog.at_level(logging.WARNING, "cometmq.spark"):
        found = offsets_of(scripted.options(), OffsetRange(queue(0), 0, 60))
    assert found == [(0, at) for at in range(60) if (0, at) not in damaged]
    assert "has no readable message from 5 up to 7" in caplog.text
    assert "has no readable message at 4 offsets in 3 gaps from 5 up to 32" in caplog.text


def test_messages_that_a_broker_left_out_and_returns_later_are_an_error_not_rows_out_of_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(damaged={(0, 5)}).fill(0, 60)
    answer = ScriptedBroker._pull

    def mend_after(scripted: ScriptedBroker, asked: Command, queue_id: int) -> Command:
        found = answer(scripted, asked, queue_id)
        script.damaged.clear()
        return found

    monkeypatch.setattr(ScriptedBroker, "_pull", mend_after)
    with ScriptedBroker(script) as scripted:
        with pytest.raises(BrokerAway, match="left out messages from 5 of queue T@broker-a/0"):
            offsets_of(scripted.options(), OffsetRange(queue(0), 0, 60))
        assert len(offsets_of(scripted.options(), OffsetRange(queue(0), 0, 60))) == 60


def test_a_queue_that_ends_too_early_is_waited_for_then_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script().fill(0, 50)
    whole = OffsetRange(queue(0), 0, 60)
    with ScriptedBroker(script) as scripted:
        with pytest.raises(DataLoss, match="ends at 50, but messages up to 60 were planned"):
            offsets_of(scripted.options(retryForMs="300"), whole)
        patient = read_batches(scripted.options(), [whole])
        script.fill(0, 10)
        assert sum(batch.num_rows for batch in patient) == 60
        kept = offsets_of(
            scripted.options(retryForMs="300", failOnDataLoss="false"), whole._replace(end=70)
        )
    assert kept == [(0, at) for at in range(60)]
    assert "the rest is left out" in caplog.text


def test_a_topic_deleted_after_it_was_planned_is_an_error_or_is_left_out_on_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script(pull_max=8).fill(0, 100)
    whole = OffsetRange(queue(0), 0, 100)
    with ScriptedBroker(script) as scripted:
        options = scripted.options(failOnDataLoss="false")
        answers = pull_range(cluster_client_of(options), whole)
        assert next(answers).data
        script.topic = "Other"
        with caplog.at_level(logging.WARNING, "cometmq.spark"):
            assert list(answers) == []
        assert "no longer has queue T@broker-a/0, whose messages from 8 up to 100" in caplog.text
        assert caplog.text.count("the topic was deleted") == 1
        with pytest.raises(DataLoss, match="from 0 up to 100 were planned: the topic was deleted"):
            offsets_of(scripted.options(), whole)


def test_a_topic_that_does_not_exist_is_a_one_sentence_error() -> None:
    with ScriptedBroker(Script().fill(0, 1)) as scripted:
        options = scripted.options(topic="Nowhere", retryForMs="100")
        with pytest.raises(
            RouteNotFound, match="topic Nowhere does not exist: no name server of 127"
        ):
            cluster_client_of(options).positions()
        assert (
            cluster_client_of(
                scripted.options(topic="Nowhere", failOnMissingTopic="false")
            ).positions()
            == {}
        )


def test_a_topic_that_may_not_be_read_is_a_one_sentence_error() -> None:
    with (
        ScriptedBroker(Script(perm=2).fill(0, 1)) as scripted,
        pytest.raises(AccessDenied, match="topic T may not be read: no broker permits it"),
    ):
        cluster_client_of(scripted.options()).positions()


def test_a_name_server_that_is_away_is_a_one_sentence_error_and_the_next_one_is_asked() -> None:
    with ScriptedBroker(Script().fill(0, 3)) as scripted:
        options = scripted.options(namesrv=f"127.0.0.1:1;{scripted.addr}")
        assert cluster_client_of(options).positions()[queue(0)].max_offset == 3
        away = scripted.options(namesrv="127.0.0.1:1", retryForMs="0")
        with pytest.raises(ConnectFailed, match=r"no connection to 127\.0\.0\.1:1"):
            cluster_client_of(away).positions()


def test_a_name_server_that_did_not_answer_is_not_asked_first_again() -> None:
    deaf = Script(breaks=True)
    with ScriptedBroker(deaf) as away, ScriptedBroker(Script().fill(0, 3)) as scripted:
        options = scripted.options(namesrv=f"{away.addr};{scripted.addr}")
        for _ in range(3):
            assert cluster_client_of(options).positions()[queue(0)].max_offset == 3
            cluster_client_of(options).reset()
        assert len(deaf.codes) == 1


def test_a_topic_of_thousands_of_queues_is_asked_for_its_ends() -> None:
    script = Script(queues={at: [] for at in range(2500)})
    with ScriptedBroker(script) as scripted:
        assert len(cluster_client_of(scripted.options()).positions()) == 2500
