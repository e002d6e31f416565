"""What `amk.generate` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class GenerateResult:
    """A run of `generate`.

    `tokens` is the prompt followed by what was made, `generated` what was made alone.
    `per_step_latency_us` has an entry a launch, those of the prompt first. `divergence_index` is
    the index in `generated` of the first token that differs from HuggingFace's greedy
    `eager_tokens`, `max_tokens` when none does, −1 when not verified; `matches_eager` is None
    then.
    """

    tokens: list[int]
    generated: list[int]
    per_step_latency_us: list[float]
    divergence_index: int
    max_tokens: int
    matches_eager: bool | None
    device: str
    backend: str
    model: str
    gpu: str
    eager_tokens: list[int] | None = None
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def divergence(ours: Sequence[int], eager: Sequence[int], max_tokens: int) -> int:
    """The first index at which two token lists differ, one ending early included; `max_tokens`
    when they are the same."""
    if list(ours) == list(eager):
        return max_tokens
    pairs = zip(ours, eager, strict=False)
    shorter = min(len(ours), len(eager))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
