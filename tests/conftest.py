"""Property tests run the same examples everywhere; a machine's speed is no reason to fail."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fedeas", deadline=None, derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fedeas")
