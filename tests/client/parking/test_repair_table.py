"""The repair table alone: of two operators each row has one."""

import sqlite3
from contextlib import closing

import pytest

from cometmq import RepairTable, SettingsError
from cometmq.model.message import MessageExt
from cometmq.model.parking import ParkedMessage, RedriveReport


class Parked:
    """An admin whose group has two parked messages of one key."""

    def __init__(self):
        self.bodies = {1: b"a1", 2: b"a2"}
        self.repairs, self.released = [], 0

    def parked(self, group, *, key=None):
        assert group == "group"
        return [
            ParkedMessage(
                topic="t", queue_id=0, offset=at, order=at, key="a", position=at, msg_id=f"id{at}",
                reason="bad", attempts=1, broker_name="b",
            )
            for at in self.bodies
            if key in (None, "a")
        ]  # fmt: skip

    def parked_message(self, _group, one):
        body = self.bodies[one.offset]
        return MessageExt("t", 0, 0, body, b"", 0, 0, 0, 0, 0, bytes(8), 1, bytes(8), 0, "b")

    def repair_parked(self, _group, one, body):
        self.repairs.append((one.offset, body))

    def release_parked(self, _group, *, key):
        assert key == "a"
        self.released += 1
        count = len(self.bodies)
        self.bodies.clear()
        return RedriveReport(asked=count, done=count)


@pytest.fixture
def table(tmp_path):
    made = RepairTable(lambda: sqlite3.connect(tmp_path / "db"), "repairs", "group")
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        database.execute(made.schema())
    return made


def test_each_parked_message_becomes_one_row(table):
    admin = Parked()
    assert (table.fill(admin), table.fill(admin)) == (2, 0)
    assert [(row.msg_id, row.body, row.state) for row in table.rows("new")] == [
        ("id1", b"a1", "new"),
        ("id2", b"a2", "new"),
    ]


def test_two_operators_never_have_the_same_row(table):
    admin = Parked()
    table.fill(admin)
    assert len(table.take("a", "ann")) == 2
    assert table.take("a", "bob") == []
    (row, _) = table.take("a", "ann")
    assert not table.repair(row._replace(operator="bob"), b"bob's")
    assert table.repair(row, b"a1, repaired")
    report = table.send_back(admin, "a", "ann")
    assert (report.done, admin.repairs) == (2, [(1, b"a1, repaired")])
    assert [row.state for row in table.rows()] == ["sent", "sent"]
    assert table.send_back(admin, "a", "ann").done == 0, "a second time nothing is sent"


def test_a_bad_table_is_refused():
    with pytest.raises(SettingsError, match="no name of a table"):
        RepairTable(lambda: None, "a b", "group")
    with pytest.raises(SettingsError, match="paramstyle"):
        RepairTable(lambda: None, "a", "group", paramstyle="numeric")
