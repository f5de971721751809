"""Slaves are promoted while all fails: nothing answered is lost, and one master is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.replication import failing_group
from broker.replication.failing_group import run_seeds
from broker.replication.seeded_runs import counts_what_was_sent
from cometmq.broker.replication import epoch_peers
from cometmq.broker.replication.epoch_keeper import EpochKeeper
from cometmq.broker.replication.epoch_peers import EpochPeers
from cometmq.broker.replication.replication_client import ReplicationClient
from cometmq.broker.replication.replication_server import ReplicationServer
from cometmq.broker.replication.role_file import RoleFile
from oracle_runs import record_run

if TYPE_CHECKING:
    from cometmq.broker.replication.log_follower import LogFollower
    from cometmq.broker.replication.master_connection import MasterConnection
    from cometmq.broker.replication.role_file import KeptRole
    from cometmq.model.replication import EpochStatus

SEEDS, MANY, PARTS = 50, 100_000, 50
FOUND_WITHIN = 400


def test_what_is_answered_survives_promotions() -> None:
    counts = run_seeds(range(SEEDS))
    assert counts["PUT_OK"] > 200
    assert min(counts[what] for what in ("promotions", "cut", "crash", "part")) > 15


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_answered_survives_promotions_from_many_seeds(part: int) -> None:
    counts = run_seeds(range(part * MANY // PARTS, (part + 1) * MANY // PARTS))
    record_run(
        "promotions",
        str(part),
        replay="pytest -m slow tests/broker/replication/test_simulated_promotions.py",
        seeds=MANY // PARTS,
        promotions=counts["promotions"],
        logs_cut=counts["cut"],
        answered_ok=counts["PUT_OK"],
    )


def test_a_slave_that_forgets_its_promise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EpochKeeper, "promise", lambda _keeper, _number: None)
    with pytest.raises(AssertionError, match="the new master has it not"):
        run_seeds(range(FOUND_WITHIN))


def test_a_slave_that_follows_whom_it_checked_before_its_promise_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_a_second_look(
        client: ReplicationClient, follower: LogFollower, _looks: int
    ) -> MasterConnection:
        return new_connection(client, follower, client._looks)

    new_connection = ReplicationClient._new_connection
    monkeypatch.setattr(ReplicationClient, "_new_connection", without_a_second_look)
    with pytest.raises(AssertionError, match="the new master has it not"):
        run_seeds(range(FOUND_WITHIN))


def test_a_slave_that_keeps_what_it_alone_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def adopt(peers: EpochPeers, _end: int, theirs: EpochStatus) -> None:
        peers._keeper.adopt(theirs.epochs)

    monkeypatch.setattr(EpochPeers, "_part", adopt)
    with pytest.raises(AssertionError):
        run_seeds(range(FOUND_WITHIN))


def test_a_master_that_looks_for_no_newer_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_other(_peers: EpochPeers) -> None:
        return None

    monkeypatch.setattr(failing_group.Peers, "newer_master", no_other)
    with pytest.raises(AssertionError, match="masters"):
        run_seeds(range(FOUND_WITHIN))


def test_a_promise_that_is_not_on_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(file: RoleFile, kept: KeptRole) -> None:
        if kept.epochs != file.kept.epochs or kept.broker_id != file.kept.broker_id:
            on_disk(file, kept)
        file.kept = kept

    on_disk = RoleFile.keep
    monkeypatch.setattr(RoleFile, "keep", keep)
    with pytest.raises(AssertionError):
        run_seeds(range(100, FOUND_WITHIN))  # few seeds find it


def test_histories_that_part_nowhere_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def shorter(_mine: object, my_end: int, _theirs: object, their_end: int) -> int:
        return min(my_end, their_end)

    monkeypatch.setattr(epoch_peers, "common_end", shorter)
    with pytest.raises(AssertionError, match="logs differ"):
        run_seeds(range(FOUND_WITHIN))


def test_a_slave_that_counts_for_what_was_sent_to_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReplicationServer, "acknowledge", counts_what_was_sent)
    with pytest.raises(AssertionError, match="the new master has it not"):
        run_seeds(range(FOUND_WITHIN))
