"""Checks that a model's own eager attention is the arithmetic that lm.attention stands for.

An import replaces a model's attention by one op. That is only right when the function it
replaces, the `eager_attention_forward` of the model's file, computes the same: so that function
runs beside the op's meaning on random tensors, and the bits must agree.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from amk.errors import ImportRefused
from amk.frontend.hooks import AttentionCall
from amk.interpreters.attention import attend, visible

PAST, TOKENS = 9, 3
"""Rows in the cache before the launch, and new rows, of the check."""


def check_eager(calls: Iterable[AttentionCall]) -> None:
    """Raises ImportRefused when the eager attention behind one of `calls` differs."""
    seen: set[Any] = set()
    for call in calls:
        function = eager_function(call.module)
        key = (
            function, call.query[::2], call.key[::2], call.value[2], call.dtype, call.window,
            call.scaling, call.softcap, call.sinks is None,
        )  # fmt: skip
        if key in seen:
            continue
        seen.add(key)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            check_call(call, function)


def eager_function(module: nn.Module) -> Any:
    name = type(module).__module__
    function = getattr(sys.modules[name], "eager_attention_forward", None)
    if function is None:
        raise ImportRefused(f"{name} has no eager_attention_forward to compare attention with")
    return function


def check_call(call: AttentionCall, function: Any) -> None:
    live = PAST + TOKENS if call.window is None else min(PAST, call.window - 1) + TOKENS
    query = random((1, call.query[0], TOKENS, call.query[2]), call.dtype) * 3
    keys = random((1, call.key[0], live, call.key[2]), call.dtype)
    values = random((1, call.value[0], live, call.value[2]), call.dtype)
    seen = visible(PAST, TOKENS, live, call.window)
    hidden = torch.finfo(call.dtype).min
    mask = torch.where(seen, torch.zeros((), dtype=call.dtype), hidden)[None, None]
    module, sinks = stand_in(call)
    optional = {"softcap": call.softcap, "s_aux": sinks}
    given = {k: v for k, v in optional.items() if v is not None}
    name = type(call.module).__name__
    extra = {k: concrete(k, v) for k, v in call.extra.items()}
    try:
        theirs, _ = function(
            module, query, keys, values, mask, scaling=call.scaling, dropout=0.0, **given, **extra
        )
    except Exception as problem:
        raise ImportRefused(f"the eager attention of {name} fails: {problem}") from problem
    scale = query.shape[-1] ** -0.5 if call.scaling is None else call.scaling
    # The rows outside the window are already gone: the past is what is left of it.
    past = live - TOKENS
    ours = attend(query, keys, values, past, scale, call.window, call.softcap, sinks)
    if theirs.shape != ours.shape or not torch.equal(theirs, ours):
        raise ImportRefused(f"the eager attention of {name} is not the arithmetic of lm.attention")


def random(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, dtype=torch.float32).to(dtype)


def stand_in(call: AttentionCall) -> tuple[nn.Module, Tensor | None]:
    """The attention module with random values for its own parameters, and its sinks."""
    module = copy.copy(call.module)
    own = {
        name: nn.Parameter(random(tuple(p.shape), p.dtype))
        for name, p in call.module.named_parameters(recurse=False)
    }
    object.__setattr__(module, "_parameters", own)
    return module, None if call.sinks is None else own[call.sinks]


def concrete(name: str, value: Any) -> Any:
    """An extra argument as the check passes it: positions become those of the check."""
    if not isinstance(value, Tensor):
        return value
    if name in ("position_ids", "cache_position"):
        positions = torch.arange(PAST, PAST + TOKENS)
        return positions[None] if value.dim() == 2 else positions
    raise ImportRefused(f"attention takes a tensor {name}, which lm.attention has not")
