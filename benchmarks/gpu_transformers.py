"""What gpu.py compares with: transformers' logits in float32, and its time by CUDA graphs."""

from __future__ import annotations

import inspect
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def device_of() -> str:
    """Where torch runs: the GPU, or the processor where this is a rehearsal without one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def reference_logits(model: Any, ids: Sequence[int], positions: Sequence[int]) -> dict[int, Any]:
    """Logits [vocab] in float32 arithmetic at some positions of a text. `model` ends where and as
    it was."""
    import torch

    device, (home, dtype) = device_of(), placement(model)
    model.to(device, torch.float32)
    try:
        with torch.no_grad():
            hidden = model.model(torch.tensor([list(ids)], device=device)).last_hidden_state[0]
            return {p: model.lm_head(hidden[p]).cpu().numpy() for p in positions}
    finally:
        model.to(home, dtype)
        release()


def placement(model: Any) -> tuple[Any, Any]:
    parameter = next(model.parameters())
    return parameter.device, parameter.dtype


def release() -> None:
    """Gives torch's unused memory back to the GPU."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def time_transformers(model: Any, max_seq: int, steps: int) -> float:
    """Median microseconds a token in bf16: a static cache of `max_seq` rows, and on a GPU
    torch.compile(mode="reduce-overhead"), which records CUDA graphs."""
    import torch
    from transformers import StaticCache

    device, (home, dtype) = device_of(), placement(model)
    model.to(device)
    model.set_attn_implementation("sdpa")
    cache = StaticCache(config=model.config, max_cache_len=max_seq)
    # transformers 5.24 calls it `cache`, earlier ones do not know that name.
    known = inspect.signature(model.forward).parameters
    keyword = "cache" if "cache" in known else "past_key_values"
    token = torch.ones(1, 1, dtype=torch.long, device=device)

    def step(position: int, forward: Callable[..., Any]) -> None:
        at = torch.tensor([[position]], device=device)
        with torch.no_grad():
            forward(input_ids=token, position_ids=at, use_cache=True, **{keyword: cache})

    try:
        step(0, model.forward)  # the cache gets its memory outside of what is compiled
        fast: Callable[..., Any] = model.forward
        if device == "cuda":
            fast = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
        warm = min(10, max_seq // 2)
        for position in range(1, warm):
            step(position, fast)
        return statistics.median(
            elapsed_us(lambda p=p: step(p, fast), device)
            for p in range(warm, min(warm + steps, max_seq))
        )
    finally:
        torch.compiler.reset()
        model.to(home, dtype)
        release()


def elapsed_us(work: Callable[[], None], device: str) -> float:
    """Microseconds of some work, by the device's events."""
    import torch

    if device == "cpu":
        start = time.perf_counter()
        work()
        return 1e6 * (time.perf_counter() - start)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    work()
    last.record()
    last.synchronize()
    return 1e3 * first.elapsed_time(last)


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference over the largest value wanted."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())
