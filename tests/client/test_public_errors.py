"""The errors that users catch stand at the root of the package, and travel between processes."""

import pickle

import pytest

import cometmq
from cometmq import MessageQueue, errors

WITH_FIELDS = [
    errors.BadHeader("topic"),
    errors.BrokerError(17, "no such topic", "b:1"),
    errors.BrokerAway("away", ["b0"]),
    errors.BadFilter("no token", 3),
    errors.WouldHideMessages("hidden", {MessageQueue("T", "b", 0): 7}),
    errors.PartlySent([None], errors.ClientError("why")),
    errors.RowNotSent(1, 2, "T", "why"),
    errors.Reject(1, "no"),
]


def test_the_errors_that_users_catch_are_at_the_root():
    names = "PartlySent BrokerError RemotingError RemotingTimeout RouteNotFound InvalidMessage"
    for name in [*names.split(), "SettingsError", "ClientError", "CometError"]:
        assert getattr(cometmq, name) is getattr(errors, name)
        assert name in cometmq.__all__


def kinds(root):
    return {root, *(each for kind in root.__subclasses__() for each in kinds(kind))}


def test_every_error_arrives_whole_in_another_process():
    given = {type(one): one for one in WITH_FIELDS}
    ours = {kind for kind in kinds(errors.CometError) if kind.__module__ == errors.__name__}
    for kind in ours:
        error = given.get(kind) or kind("what, where, what to do")
        error.msg_id = "AB"
        there = pickle.loads(pickle.dumps(error))
        assert (type(there), str(there), vars(there)) == (kind, str(error), vars(error))
        with pytest.raises(kind):
            raise there
