"""How many programs a property test generates: AMK_EXAMPLES, few by default."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "amk",
    max_examples=int(os.environ.get("AMK_EXAMPLES", "12")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("amk")
