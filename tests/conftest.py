"""What holds for all tests: hypothesis judges what comes out, never how long an example took."""

from hypothesis import HealthCheck, settings

slow_is_well = [HealthCheck.too_slow]
settings.register_profile("cometmq", deadline=None, suppress_health_check=slow_is_well)
settings.load_profile("cometmq")
