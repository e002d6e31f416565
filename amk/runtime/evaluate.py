"""How close a compiled program comes to HuggingFace's float32 run, on real text.

KL divergence is of the next-token distributions, KL(p ‖ q) = Σ p (ln p − ln q), with p from
float32; in nats, a value a position. The bar for reduced precision is HuggingFace's own eager run
in that dtype over the same text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import numpy as np

from amk.runtime.backends import Report
from amk.runtime.decoder import Decoder

CHUNK = 64
"""Positions compared at a time, to bound the scratch memory."""

MEAN_BAR, P95_BAR = 1.05, 1.10
"""What our KL may be over HuggingFace's own in the dtype: the mean, the 95th percentile."""

Logits = Callable[[Sequence[int]], np.ndarray]


@dataclass(frozen=True)
class Fit:
    """One run over a text: mean NLL a token (nats), perplexity, and KL to float32 (None for the
    float32 run itself)."""

    nll: float
    perplexity: float
    kl_mean: float | None = None
    kl_p95: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """`amk`, `hf_f32`, and `hf_dtype` (None for f32) over the first `tokens` of a text."""

    model: str
    dtype: str
    tokens: int
    amk: Fit
    hf_f32: Fit
    hf_dtype: Fit | None

    @property
    def mean_ratio(self) -> float | None:
        return None if self.hf_dtype is None else _ratio(self.amk.kl_mean, self.hf_dtype.kl_mean)

    @property
    def p95_ratio(self) -> float | None:
        return None if self.hf_dtype is None else _ratio(self.amk.kl_p95, self.hf_dtype.kl_p95)

    @property
    def within_bar(self) -> bool | None:
        """Whether both ratios are within the bar; None where there is none, in f32."""
        if self.mean_ratio is None or self.p95_ratio is None:
            return None
        return self.mean_ratio <= MEAN_BAR and self.p95_ratio <= P95_BAR

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "kl_mean_ratio": self.mean_ratio,
            "kl_p95_ratio": self.p95_ratio,
            "within_bar": self.within_bar,
        }


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None


def evaluate(
    decoder: Decoder,
    eager: Any,
    ids: Sequence[int],
    model: str,
    dtype: str,
    report: Report = lambda text: None,
) -> Evaluation:
    """Runs `ids` through `decoder` and through the transformers model `eager` (float32, eager
    attention; it is turned into `dtype` on the way). ValueError for less than two tokens.
    """
    if len(ids) < 2:
        raise ValueError("a text of less than two tokens predicts nothing")
    from amk.runtime.verify import Eager

    def progress(what: str, done: int) -> None:
        report(f"{what}: {done} of {len(ids)} tokens")

    # float32 goes first and alone: its logits are kept on disk, so that one model at a time is
    # in memory in one dtype.
    with tempfile.TemporaryFile(prefix="amk-eval-") as file:
        run = Eager(eager).logits
        exact = Stored(file, run, ids, lambda n: progress("transformers, f32", n))
        ours = measure(decoder.logits, ids, exact, lambda n: progress("amk", n))
        theirs = None
        if dtype != "f32":
            run = Eager(eager.to(torch_dtype(dtype))).logits
            theirs = measure(run, ids, exact, lambda n: progress(f"transformers, {dtype}", n))
    return Evaluation(model, dtype, len(ids), ours, exact.fit, theirs)


class Stored:
    """Log-probabilities of a run, float32 in a file."""

    def __init__(
        self, file: BinaryIO, logits: Logits, ids: Sequence[int], done: Callable[[int], None]
    ):
        self._file = file
        losses: list[np.ndarray] = []
        for start, rows in chunks(logits, ids):
            found = log_softmax(rows)
            losses.append(nll(found, ids, start))
            self._width = found.shape[1]
            self._file.write(found.astype(np.float32).tobytes())
            done(start + len(rows))
        mean = float(np.concatenate(losses).mean())
        self.fit = Fit(mean, float(np.exp(mean)))

    def rows(self, start: int, count: int) -> np.ndarray:
        self._file.seek(start * self._width * 4)
        data = self._file.read(count * self._width * 4)
        return np.frombuffer(data, np.float32).reshape(count, self._width).astype(np.float64)


def measure(logits: Logits, ids: Sequence[int], exact: Stored, done: Callable[[int], None]) -> Fit:
    losses: list[np.ndarray] = []
    divergences: list[np.ndarray] = []
    for start, rows in chunks(logits, ids):
        found = log_softmax(rows)
        losses.append(nll(found, ids, start))
        divergences.append(kl(exact.rows(start, len(rows)), found))
        done(start + len(rows))
    mean = float(np.concatenate(losses).mean())
    spread = np.concatenate(divergences)
    return Fit(mean, float(np.exp(mean)), float(spread.mean()), float(np.percentile(spread, 95.0)))


def chunks(logits: Logits, ids: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """(first position, logits of a chunk) over a text."""
    for start in range(0, len(ids), CHUNK):
        yield start, logits(ids[start : start + CHUNK])


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """float64 [n, vocab] of float32 logits."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


def nll(log_probabilities: np.ndarray, ids: Sequence[int], start: int) -> np.ndarray:
    """−ln p of each next token; the last position of the text has none."""
    following = np.asarray(ids[start + 1 : start + 1 + len(log_probabilities)], np.int64)
    return -log_probabilities[np.arange(len(following)), following]


def kl(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """KL(p ‖ q) of each row, nats."""
    return (np.exp(log_p) * (log_p - log_q)).sum(axis=-1)


def torch_dtype(dtype: str) -> Any:
    import torch

    return {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
