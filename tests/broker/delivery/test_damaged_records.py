"""Records that are damaged while the broker runs: said once, and nothing behind them waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.commands import received
from broker.delivery.send_back_commands import send_and_pull, send_back
from broker.delivery.transaction_commands import COMMIT, QUICK, SELDOM, end, end_header, half
from broker.delivery.transaction_commands import produce as join_producers
from broker.harness import STORE, new_disk, run, running
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.records import message_id

if TYPE_CHECKING:
    import pytest

    from cometmq.testing.sim_files import SimFiles

LOG = STORE / "commitlog" / f"{0:020d}"
SHORT = {"message_delay_level": "1s 2s 1h"}


def damage(disk: SimFiles, body: bytes) -> None:
    """Change a byte of a record where the disk has it: where its body first occurs."""
    live = disk._names[LOG].live  # type: ignore[union-attr]
    at = live.find(body)
    assert at > 0
    live[at] ^= 1


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]


def test_a_send_back_is_refused_and_said_once_however_often_it_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client = await harness.client()
            record = await send_and_pull(client)
            damage(disk, b"hard")
            for _ in range(5):
                refused = await send_back(client, record)
                assert refused.code == ResponseCode.SYSTEM_ERROR
                assert "deleted or damaged; send your copy" in str(refused.remark)
            (said,) = errors(caplog)
            assert said.startswith(f"the record at byte {record.phy_offset} of the log is damaged")

    run(scenario())


def test_a_look_up_by_key_and_by_place_leaves_it_out_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client = await harness.client()
            for body in (b"first", b"second"):
                sent = await client.send("T", body, properties={"KEYS": "k"})
                assert sent.code == 0
            damage(disk, b"first")
            asked = {"topic": "T", "key": "k", "maxNum": "9", "beginTimestamp": "0"}
            asked["endTimestamp"] = str(1 << 60)
            found = await client.call(RequestCode.QUERY_MESSAGE, **asked)
            assert (found.code, b"second" in found.body) == (0, True)
            assert b"irst" not in found.body
            gone = await client.call(RequestCode.VIEW_MESSAGE_BY_ID, offset="0")
            assert gone.code == ResponseCode.SYSTEM_ERROR
            (said,) = errors(caplog)
            assert said.startswith("the record at byte 0 of the log is damaged")

    run(scenario())


def test_delayed_messages_behind_a_damaged_one_come_when_due(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **SHORT) as harness:
            client = await harness.client()
            for body in (b"one", b"broken", b"three"):
                pairs = {"DELAY": "1", "UNIQ_KEY": "U" + body.decode()[:1]}
                assert (await client.send("T", body, properties=pairs)).code == 0
            damage(disk, b"broken")
            assert [each.body for each in await received(client, 2)] == [b"one", b"three"]
            said = errors(caplog)
            assert len(said) == 2
            assert "is not delivered: its record is damaged" in said[1]

    run(scenario())


def test_half_messages_behind_a_damaged_one_are_asked_about_and_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **QUICK) as harness:
            client = await harness.client()
            await half(client, "broken-half")
            await half(client, "H2")
            damage(disk, b"broken-half")
            await join_producers(client)
            asked = await client.asked_next()
            assert asked.ext["msgId"] == "H2"
            (said,) = {line for line in errors(caplog) if "half message" in line}
            assert said.endswith("is not asked about: its record is damaged")

    run(scenario())


def test_the_commit_of_a_damaged_half_message_is_refused_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk, **SELDOM) as harness:
            client = await harness.client()
            answer = await half(client, "broken-half")
            behind = await half(client, "H2")
            damage(disk, b"broken-half")
            refused = await client.call(
                RequestCode.END_TRANSACTION, end_header(answer, COMMIT, msg_id="broken-half")
            )
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert (await end(client, behind, COMMIT)).code == 0
            assert [each.body for each in await client.drain("T")] == [b"H2"]
            _, place = message_id.parse_offset_id(answer.ext["msgId"])
            (said,) = errors(caplog)
            assert said.startswith(f"the record at byte {place} of the log is damaged")

    run(scenario())
