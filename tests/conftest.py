"""What holds for all tests: hypothesis judges what comes out, never how long an example took."""

from hypothesis import settings

settings.register_profile("cometmq", deadline=None)
settings.load_profile("cometmq")
