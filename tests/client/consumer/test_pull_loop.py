"""What a queue's pulls do when its broker falls silent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from client.scripted_broker import BROKER, TOPIC, ScriptedBroker
from client.short_delay_cluster import until
from cometmq import PushConsumer
from cometmq.client.consumer import pull_request
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    import pytest

PULL = RequestCode.PULL_MESSAGE


def test_a_pull_that_is_never_answered_closes_its_own_connection(
    scripted_broker: ScriptedBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its broker may have no address any more, or another one, by the time the pull gives up."""
    monkeypatch.setattr(pull_request, "_RESPONSE_GRACE_S", 0.5)
    consumer = PushConsumer("g", namesrv=scripted_broker.addr, poll_suspend_s=0.5)
    consumer.subscribe(TOPIC, "*", lambda _messages: None)
    with consumer, caplog.at_level(logging.DEBUG, "cometmq.client"):
        until(lambda: scripted_broker.requests(PULL))
        session = consumer._inner._engine._session
        channel = session.pool.open_channel(session.routes.read_addr(BROKER, 0))
        session.routes._addrs.clear()  # as if no route named the broker any more
        until(lambda: channel.is_closed)
        until(lambda: "will be tried again" in caplog.text)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
