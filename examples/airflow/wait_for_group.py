"""A DAG of Airflow that waits until a group has handled a topic, and one that messages start.

`GroupIdleSensor` asks `Admin` from a worker or, deferred, leaves that to a trigger, which keeps no
worker. `MessageTrigger` makes each message of a group an event of an asset, which starts DAGs.
Airflow 3 with cometmq in its environment; put this file into the folder of DAGs.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Asset, AssetWatcher, BaseSensorOperator, task
from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from cometmq import Admin, AsyncAdmin, AsyncLitePullConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from airflow.sdk import Context

    from cometmq.model.group_status import QueueLag

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
HERE = __name__


def is_done(lags: Sequence[QueueLag]) -> bool:
    """Whether nothing is left; a queue that the group has not begun counts as left."""
    return all(one.lag == 0 or one.end_offset == 0 for one in lags)


class GroupIdleSensor(BaseSensorOperator):
    """Waits until `group` has done all that `topic` has."""

    template_fields = ("group", "topic")

    def __init__(
        self,
        *,
        group: str,
        topic: str,
        namesrv: str = NAMESRV,
        deferrable: bool = True,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.group, self.topic, self.namesrv = group, topic, namesrv
        self.deferrable = deferrable

    def poke(self, context: Context) -> bool:
        """One look. An unknown group or topic raises, and so fails the task."""
        with Admin(namesrv=self.namesrv) as admin:
            return is_done(admin.group_lag(self.group, self.topic))

    def execute(self, context: Context) -> Any:
        """Look once, then hand over to the trigger; or poll as every sensor does."""
        if not self.deferrable:
            return super().execute(context)
        if not self.poke(context):
            trigger = GroupIdleTrigger(self.group, self.topic, self.namesrv, self.poke_interval)
            self.defer(
                trigger=trigger, method_name="resume", timeout=timedelta(seconds=self.timeout)
            )
        return None

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """What the trigger says ends the task."""
        self.log.info("%s has done %s messages of %s", self.group, event["messages"], self.topic)


class GroupIdleTrigger(BaseTrigger):
    """Fires once `group` has done all that `topic` has; looks every `every_s` seconds."""

    def __init__(self, group: str, topic: str, namesrv: str, every_s: float) -> None:
        super().__init__()
        self.group, self.topic, self.namesrv, self.every_s = group, topic, namesrv, every_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What makes this trigger anew in the triggerer."""
        names = ("group", "topic", "namesrv", "every_s")
        return f"{HERE}.GroupIdleTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until nothing is left."""
        async with AsyncAdmin(namesrv=self.namesrv) as admin:
            while not is_done(lags := await admin.group_lag(self.group, self.topic)):
                await asyncio.sleep(self.every_s)
        yield TriggerEvent({"messages": sum(one.end_offset for one in lags)})


class MessageTrigger(BaseEventTrigger):
    """Makes an event of each message that `group` gets of `topic`; an event may come twice."""

    def __init__(self, group: str, topic: str, namesrv: str = NAMESRV) -> None:
        super().__init__()
        self.group, self.topic, self.namesrv = group, topic, namesrv

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What makes this trigger anew in the triggerer."""
        names = ("group", "topic", "namesrv")
        return f"{HERE}.MessageTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Fire for one message after the other; the next one commits the one before."""
        consumer = AsyncLitePullConsumer(self.group, namesrv=self.namesrv, consume_from="first")
        consumer.subscribe(self.topic)
        async with consumer:
            async for message in consumer:
                yield TriggerEvent({"msg_id": message.msg_id, "body": message.body.decode()})


with DAG("after_the_orders", schedule=None, catchup=False):

    @task
    def bill() -> str:
        """What may begin once all orders are handled."""
        print("every order is handled")
        return "billed"

    waiting = GroupIdleSensor(
        task_id="wait", group="airflow-clerks", topic="airflow-orders", poke_interval=1, timeout=600
    )
    waiting >> bill()

watched = MessageTrigger("airflow-watch", "airflow-orders")
orders = Asset("orders", watchers=[AssetWatcher(name="orders", trigger=watched)])

with DAG("for_each_order", schedule=[orders], catchup=False):

    @task
    def look(triggering_asset_events: Any = None) -> None:
        """What the messages said that started this run."""
        for events in triggering_asset_events.values():
            for event in events:
                print("order", event.extra["payload"])

    look()
