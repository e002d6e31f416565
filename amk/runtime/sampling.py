"""How the next token is chosen from logits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Choose = Callable[[np.ndarray], int]


def greedy(logits: np.ndarray) -> int:
    """The most likely token; of equals the first."""
    return int(logits.argmax())


class Sampler:
    """Draws from softmax(logits / temperature), cut to the nucleus of mass `top_p`.

    The nucleus is the fewest most likely tokens whose probabilities reach `top_p` (Holtzman et
    al. 2020). The same seed draws the same tokens on every run: uniforms are made of the bit
    generator's raw words, whose stream numpy keeps. ValueError unless temperature > 0 and finite,
    0 < top_p ≤ 1 and seed ≥ 0.
    """

    def __init__(self, temperature: float = 1.0, top_p: float = 1.0, seed: int = 0):
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ValueError(f"temperature {temperature} is not a positive number")
        if not 0 < top_p <= 1:
            raise ValueError(f"top-p {top_p} is not in (0, 1]")
        if seed < 0:
            raise ValueError(f"seed {seed} is negative")
        self.temperature = temperature
        self.top_p = top_p
        self._bits = np.random.PCG64(seed)

    def __call__(self, logits: np.ndarray) -> int:
        scaled = logits.astype(np.float64) / self.temperature
        weights = np.exp(scaled - scaled.max())
        order = np.argsort(-weights, kind="stable")
        mass = np.cumsum(weights[order])
        kept = int(np.searchsorted(mass, self.top_p * mass[-1])) + 1
        kept = min(kept, len(order))
        drawn = self._uniform() * mass[kept - 1]
        return int(order[min(int(np.searchsorted(mass[:kept], drawn, side="right")), kept - 1)])

    def _uniform(self) -> float:
        """53 random bits in [0, 1)."""
        return (int(self._bits.random_raw()) >> 11) * 2.0**-53


def chooser(temperature: float, top_p: float, seed: int) -> Choose:
    """Greedy at temperature 0, else a `Sampler`."""
    return greedy if temperature == 0 else Sampler(temperature, top_p, seed)
