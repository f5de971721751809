"""What a broker remembers, on a store in memory: for unit tests of a part without a broker."""

import asyncio
from random import Random
from typing import Any

from cometmq.access.server_access import ServerAccess
from cometmq.broker.broker_state import BrokerEnvironment, BrokerState
from cometmq.rules.delay_levels import DelayLevels
from cometmq.settings.access import AccessSettings
from cometmq.settings.broker import BrokerSettings
from cometmq.store.message_store import MessageStore
from cometmq.store.put_result import PutStatus
from cometmq.testing.memory_store import SMALL_FILES, STORE_ROOT, memory_store
from cometmq.testing.sim_files import SimFiles


def memory_state(**settings: Any) -> tuple[BrokerState, MessageStore]:
    """The tables of a broker with these settings, and its store. Must be used on a running loop."""
    files = SimFiles(Random(0))
    store = memory_store(files=files)
    broker_settings = BrokerSettings(**settings)
    access = ServerAccess(AccessSettings(), STORE_ROOT / "config", files)
    environment = BrokerEnvironment(
        broker_settings, SMALL_FILES, STORE_ROOT, files.clock, files, access
    )
    levels = DelayLevels.parse(broker_settings.message_delay_level)
    return BrokerState(environment, store, levels), store


async def until_durable(store: MessageStore) -> PutStatus:
    """Wait until what was put is as safe as promised, and visible."""
    done = asyncio.get_running_loop().create_future()
    store.on_durable(done.set_result)
    async with asyncio.timeout(5):
        status: PutStatus = await done
    return status
