"""The errors that users catch stand at the root of the package."""

import cometmq
from cometmq import (
    errors,
)


def test_the_errors_that_users_catch_are_at_the_root():
    names = "PartlySent BrokerError RemotingError RemotingTimeout RouteNotFound InvalidMessage"
    for name in [*names.split(), "SettingsError", "ClientError", "CometError"]:
        assert getattr(cometmq, name) is getattr(errors, name)
        assert name in cometmq.__all__
