"""FastStream's subscribers in a FastAPI application, by the package faststream_fastapi."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI
from faststream_fastapi import FastStreamAPI

from cometmq.faststream import CometBroker

if TYPE_CHECKING:
    from cometmq.testing import LocalCluster


def rate() -> int:
    return 3


@pytest.mark.filterwarnings("ignore:Using .httpx. with")
def test_a_handler_has_the_dependencies_of_the_web_application(
    cometmq_cluster: LocalCluster, topic: str
) -> None:
    from fastapi.testclient import TestClient

    broker = CometBroker(cometmq_cluster.namesrv, group=f"web-{topic}")
    web, billed, is_billed = FastAPI(), list[int](), threading.Event()

    @broker.subscriber(topic, consume_from="first")
    async def bill(price: int, rate: Annotated[int, Depends(rate)]) -> None:
        billed.append(price * rate)
        is_billed.set()

    @web.post("/orders/{price}")
    async def order(price: int) -> dict[str, str]:
        return {"msg_id": (await broker.publish(price, topic)).msg_id}

    web.dependency_overrides[rate] = lambda: 5
    with TestClient(FastStreamAPI(broker, application=web)) as client:
        answer = client.post("/orders/7")
        assert isinstance(answer, httpx.Response)
        assert (answer.status_code, len(answer.json()["msg_id"])) == (200, 32)
        assert is_billed.wait(30)
    assert billed == [35]
    assert not broker._connection, "the end of the application stops the broker"
