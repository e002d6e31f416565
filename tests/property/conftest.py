"""How many programs a property test generates: few, and the same on every run, by default. With
AMK_EXAMPLES it is so many, others each time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "amk",
    max_examples=int(os.environ.get("AMK_EXAMPLES", "12")),
    derandomize="AMK_EXAMPLES" not in os.environ,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("amk")
