"""The blocking classes are fresh, and have the methods of the asyncio classes behind them."""

import importlib.util
import inspect
from pathlib import Path

import pytest

from cometmq.client.admin.async_admin import AsyncAdmin
from cometmq.client.admin.broker_admin import AsyncBrokerAdmin
from cometmq.client.admin.group_admin import AsyncGroupAdmin
from cometmq.client.admin.message_admin import AsyncMessageAdmin
from cometmq.client.admin.topic_admin import AsyncTopicAdmin
from cometmq.client.admin.user_admin import AsyncUserAdmin
from cometmq.client.blocking.admin import Admin
from cometmq.client.blocking.broker_admin import BrokerAdmin
from cometmq.client.blocking.group_admin import GroupAdmin
from cometmq.client.blocking.lite_pull_consumer import LitePullConsumer
from cometmq.client.blocking.message_admin import MessageAdmin
from cometmq.client.blocking.producer import Producer, Transaction
from cometmq.client.blocking.push_consumer import PushConsumer
from cometmq.client.blocking.topic_admin import TopicAdmin
from cometmq.client.blocking.user_admin import UserAdmin
from cometmq.client.consumer.async_push_consumer import AsyncPushConsumer
from cometmq.client.polling.async_lite_pull_consumer import AsyncLitePullConsumer
from cometmq.client.producer.async_producer import AsyncProducer
from cometmq.client.producer.transactions import AsyncTransaction

SCRIPT = Path(__file__).parents[3] / "scripts" / "blocking_faces.py"
COLOURS = [
    (AsyncProducer, Producer),
    (AsyncTransaction, Transaction),
    (AsyncPushConsumer, PushConsumer),
    (AsyncAdmin, Admin),
    (AsyncBrokerAdmin, BrokerAdmin),
    (AsyncTopicAdmin, TopicAdmin),
    (AsyncGroupAdmin, GroupAdmin),
    (AsyncMessageAdmin, MessageAdmin),
    (AsyncUserAdmin, UserAdmin),
    (AsyncLitePullConsumer, LitePullConsumer),
]
RENAMED = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}


def public(cls):
    names = [
        name
        for name in vars(cls)
        if not name.startswith("_") or name in ("__init__", *RENAMED, *RENAMED.values())
    ]
    return {name: inspect.getattr_static(cls, name) for name in names}


@pytest.mark.parametrize(("async_class", "sync_class"), COLOURS)
def test_both_faces_have_the_same_methods_arguments_and_docstrings(async_class, sync_class):
    theirs, ours = public(async_class), public(sync_class)
    assert {RENAMED.get(name, name) for name in theirs} == set(ours)
    assert async_class.__doc__ == sync_class.__doc__
    for name, theirs_one in theirs.items():
        ours_one = ours[RENAMED.get(name, name)]
        if isinstance(theirs_one, property):
            theirs_one, ours_one = theirs_one.fget, ours_one.fget
        assert theirs_one.__doc__ == ours_one.__doc__, name
        if name == "__init__" and async_class is AsyncTransaction:  # made by producers only
            continue
        one, other = inspect.signature(theirs_one), inspect.signature(ours_one)
        assert one.parameters == other.parameters, name
        if name not in ("send_async", "transaction"):  # of their own kind
            assert one.return_annotation == other.return_annotation, name


def test_the_generated_files_are_fresh():
    spec = importlib.util.spec_from_file_location("blocking_faces", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.faces()
    assert len(made) == 10
    for path, text in made.items():
        kept = path.read_text(encoding="utf-8")
        assert kept == text, f"{path.name} is stale: run .venv/bin/python scripts/{SCRIPT.name}"
