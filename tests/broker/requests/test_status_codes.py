"""What the store says as response codes and remarks."""

from __future__ import annotations

from cometmq.broker.requests.status_codes import (
    GET_STATUS_CODES,
    PUT_STATUS_CODES,
    PUT_STATUS_REMARKS,
)
from cometmq.store.get_result import GetStatus
from cometmq.store.put_result import PutStatus


def test_every_status_of_the_store_has_a_code() -> None:
    assert set(GET_STATUS_CODES) == set(GetStatus)
    assert set(PUT_STATUS_CODES) == set(PutStatus)


def test_every_failure_has_a_remark() -> None:
    assert set(PUT_STATUS_REMARKS) == set(PutStatus) - {PutStatus.PUT_OK}
    assert all(PUT_STATUS_REMARKS.values())
