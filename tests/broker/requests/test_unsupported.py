"""Request codes that nobody answers."""

from __future__ import annotations

import pytest

from broker.harness import run, running
from cometmq.wire.codes import RequestCode, ResponseCode


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.SWITCH_TIMER_ENGINE, 31_999])
def test_an_unknown_code_is_answered_and_the_connection_stays(code: int) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await client.call(code)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert "not supported" in (answer.remark or "")
            assert str(int(code)) in (answer.remark or "")
            assert (await client.send("T")).code == 0

    run(scenario())
