"""What tests with Spark on Apache RocketMQ's broker share; the session is in conftest.py."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin

if TYPE_CHECKING:
    from interop.apache import ApacheCluster

ON_SPARK = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
_numbers = count()


class OnApache:
    """Apache's broker as the planned cases use one."""

    def __init__(self, apache: ApacheCluster) -> None:
        self.namesrv, self.broker = apache.namesrv, apache.broker

    def make_topic(self, topic: str, queues: int) -> str:
        name = f"{topic}OnApache{next(_numbers)}"
        with Admin(namesrv=self.namesrv) as admin:
            admin.create_topic(name, queues=queues)
        return name
