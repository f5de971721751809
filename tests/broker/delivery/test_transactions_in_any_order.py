"""Transactions in any order, with crashes: nothing committed is lost, nothing else is seen.

Once with kills, once with power cuts under SYNC_FLUSH. The clock stands still until the scenario
moves it, the disk and the connections are simulated.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.commands import Client, properties_of, send_header
from broker.delivery.transaction_commands import COMMIT, HALF, LOST, OP, ROLLBACK, UNKNOWN, produce
from broker.harness import SMALL_STORE, sim_worker
from cometmq.broker.app import Broker
from cometmq.net.channel import Channel, connect
from cometmq.settings.broker import BrokerSettings
from cometmq.testing.sim_files import SimClock, SimFiles
from cometmq.testing.sim_loop import SimLoop
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.transaction import EndTransactionRequestHeader
from cometmq.wire.records import message_id

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from cometmq.wire.command import Command

ROOT = Path("/sim/store")
SETTINGS = BrokerSettings(
    broker_name="b0",
    listen_port=0,
    store_path_root_dir=str(ROOT),
    transaction_check_interval_ms=86_400_000,
    transaction_check_max=1_000,
)
VERDICTS = st.sampled_from([COMMIT, ROLLBACK, UNKNOWN])


class Scenario(RuleBasedStateMachine):
    """One broker, one producer, and what the producer knows of its transactions."""

    store, cuts_power = SMALL_STORE, False

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimLoop()
        self.clock, self.files = SimClock(), SimFiles(random.Random(7))
        self.places: dict[str, tuple[int, int]] = {}
        self.verdicts: dict[str, int] = {}
        self.ended: set[str] = set()
        self.old: set[str] = set()
        """Sent before the last restart: their producer may be asked after an end by first place."""
        self.excused: set[str] = set()
        self.needless: list[str] = []
        self.questions: list[Command] = []
        self.do(self._open())

    def do(self, step: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(30):
                return await step

        return self.loop.run_until_complete(bounded())

    async def _open(self) -> None:
        self.broker = Broker.open(
            SETTINGS, self.store, clock=self.clock, files=self.files, worker=sim_worker
        )
        await self.broker.start()
        self.client = Client(await connect(self.broker.address, on_request=self._asked), None)  # type: ignore[arg-type]
        await produce(self.client)

    def _asked(self, command: Command, _channel: Channel) -> None:
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self.questions.append(command)
            key = command.ext["msgId"]
            if key in self.ended and key not in self.excused:
                self.needless.append(key)

    async def _kill(self) -> None:
        """Leave as a killed process does: what was written stays, nothing is finished."""
        self.client.close()
        await self.client.channel.wait_closed()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.broker.store.abandon()
        await self.broker._server.stop()
        if self.cuts_power:
            self.files.power_cut()

    async def _stop(self) -> None:
        self.client.close()
        await self.client.channel.wait_closed()
        await self.broker.stop()

    @rule(verdict=VERDICTS, immunity=st.sampled_from([None, None, "1", "60"]))
    def send(self, verdict: int, immunity: str | None) -> None:
        key = f"K{len(self.verdicts)}"
        pairs = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": key}
        if immunity:
            pairs["CHECK_IMMUNITY_TIME_IN_SECONDS"] = immunity
        header = send_header("T", properties=pairs, sys_flag=4, born_timestamp=self.clock.ms)
        call = self.client.call(RequestCode.SEND_MESSAGE_V2, header, key.encode())
        answer = self.do(call)
        assert answer.code == 0
        _, phy_offset = message_id.parse_offset_id(answer.ext["msgId"])
        self.places[key] = (int(answer.ext["queueOffset"]), phy_offset)
        self.verdicts[key] = verdict

    async def _end(self, key: str, place: tuple[int, int], *, asked: bool) -> None:
        how = self.verdicts[key]
        header = EndTransactionRequestHeader(
            producer_group="PG",
            tran_state_table_offset=place[0],
            commit_log_offset=place[1],
            commit_or_rollback=how,
            from_transaction_check=asked,
            msg_id=key,
        )
        answer = await self.client.call(RequestCode.END_TRANSACTION, header)
        if how != UNKNOWN and answer.code == 0:
            self.ended.add(key)

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.places)))
        self.excused |= {key} & self.old
        self.do(self._end(key, self.places.pop(key), asked=False))

    @rule(seconds=st.sampled_from([1, 7, 30, 61]))
    def wait(self, seconds: int) -> None:
        self.clock.ms += seconds * 1000

    @rule()
    def run_check_round(self) -> None:
        async def look() -> None:
            await self.broker.state.check_back.check()
            await asyncio.sleep(0)
            await produce(self.client)  # whatever was asked before has arrived with the answer

        self.do(look())

    @precondition(lambda self: self.questions)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        asked = self.questions.pop(data.draw(st.integers(0, len(self.questions) - 1)))
        self.do(self._answer(asked))

    async def _answer(self, asked: Command) -> None:
        place = int(asked.ext["tranStateTableOffset"]), int(asked.ext["commitLogOffset"])
        await self._end(asked.ext["msgId"], place, asked=True)

    @rule(verdict=VERDICTS)
    def decide(self, verdict: int) -> None:
        for key, known in self.verdicts.items():
            if known == UNKNOWN:
                self.verdicts[key] = verdict

    @rule(how=st.sampled_from(["stop", "kill"]), seconds=st.sampled_from([0, 10]))
    def restart(self, how: str, seconds: int) -> None:
        self.do(self._kill() if how == "kill" else self._stop())
        self.clock.ms += seconds * 1000
        self.questions.clear()
        self.old |= set(self.verdicts)
        self.do(self._open())

    @invariant()
    def only_the_committed_are_seen(self) -> None:
        seen = {record.body.decode() for record in self.do(self.client.drain("T"))}
        committed = {key for key in self.ended if self.verdicts[key] == COMMIT}
        assert seen == committed
        assert not self.needless, "asked about what had ended"

    def teardown(self) -> None:
        """Have every question asked and answered: then nothing is open, and nothing is lost."""
        self.do(self._end_all())
        self.only_the_committed_are_seen()
        assert set(self.verdicts) == self.ended
        assert self.broker.store.max_offset(LOST, 0) == 0
        offsets = self.broker.state.offsets.committed
        halves = self.do(self.client.drain(HALF))
        assert offsets("CID_RMQ_SYS_TRANS", HALF, 0) in (len(halves), -1)
        ops = self.do(self.client.drain(OP))
        assert offsets("CID_RMQ_SYS_TRANS", OP, 0) in (len(ops), -1)
        assert all("REAL_TOPIC" in properties_of(record) for record in halves)
        self.do(self._stop())
        self.loop.close()

    async def _end_all(self) -> None:
        for key, known in self.verdicts.items():
            if known == UNKNOWN:
                self.verdicts[key] = ROLLBACK
        for _ in range(5):
            self.clock.ms += 61_000
            await self.broker.state.check_back.check()
            await asyncio.sleep(0)
            await produce(self.client)
            while self.questions:
                await self._answer(self.questions.pop())


class PowerCuts(Scenario):
    """The same where the power goes, and every write is flushed before it is answered."""

    store, cuts_power = replace(SMALL_STORE, flush_disk_type="SYNC_FLUSH"), True


BOUNDS = settings(
    max_examples=8,
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
)
Scenario.TestCase.settings = PowerCuts.TestCase.settings = BOUNDS
TestTransactionsInAnyOrder = Scenario.TestCase
TestTransactionsOverPowerCuts = PowerCuts.TestCase
