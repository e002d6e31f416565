"""Imports a decoder as a module of the lm dialect.

One importer for every architecture: the model is built on the meta device, its attention and its
cache are replaced through transformers' own extension points, and torch.export gives the graph.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx.config as fx_config
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from xdsl.dialects.builtin import ModuleOp

from amk.errors import ImportRefused
from amk.frontend.build import (
    Built,
    config_from_dict,
    first_line,
    from_config,
    from_model,
    from_module,
)
from amk.frontend.eager import check_eager
from amk.frontend.hooks import TRACE, Trace
from amk.frontend.translate import build_module
from amk.frontend.types import DTYPES
from amk.ir.kv import POLICIES

Model = PreTrainedConfig | Mapping[str, Any] | nn.Module


def import_model(
    model: Model, tokens: int = 1, dtype: str = "f32", policy: str = "static"
) -> ModuleOp:
    """The lm module of `model` for launches of `tokens` new tokens at batch 1.

    `model` is a transformers config, the contents of a config.json, a transformers model, or a
    plain `nn.Module`. `dtype` ("f32", "bf16" or "f16") is the dtype it computes in. `policy` is
    the growth policy of the caches. Weights are not read: `lm.weight` names them by state-dict
    key.

    The module holds `@step(tokens [1, S] i64, position, caches…) → (logits [1, S, V], caches…)`
    with the caches of each layer, keys then values, [1, Hkv, ?, D]. It carries `amk.tokens`,
    `amk.dtype`, `amk.vocab` and `amk.name`; every op's location names the module it came from.

    A plain module's `forward(tokens [1, S] i64, positions [1, S] i64)` returns logits [1, S, V]
    and calls the ops of `amk.frontend.ops`:

        class Attention(nn.Module):
            def forward(self, x, layer):                                 # [1, S, H · D]
                q, k, v = (p(x).unflatten(2, (H, D)).transpose(1, 2) for p in self.qkv)
                k, v = torch.ops.amk.kv_append(k, v, layer)
                seen = torch.ops.amk.mask(0, x.device)                   # causal, no window
                return torch.ops.amk.attention(q, k, v, seen, D**-0.5).flatten(2)

    Raises ImportRefused when the model holds anything that cannot be imported exactly, and
    ValueError for bad `tokens`, `dtype` or `policy`.
    """
    if tokens < 1:
        raise ValueError(f"tokens is {tokens}; an import needs at least 1")
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r} is not one of {', '.join(POLICIES)}")
    built = build(model, DTYPES[dtype])
    trace = Trace()
    program = export(built.wrapper, tokens, trace, lines=False)
    check_eager(trace.calls)
    try:
        return build_module(built.source(program, policy), tokens, dtype)
    except ImportRefused:
        # Source lines are a third of the time of a trace, and only a refusal quotes one.
        program = export(built.wrapper, tokens, Trace(), lines=True)
        return build_module(built.source(program, policy), tokens, dtype)


def build(model: Model, dtype: torch.dtype) -> Built:
    if isinstance(model, Mapping):
        return from_config(config_from_dict(model), dtype)
    if isinstance(model, PreTrainedConfig):
        return from_config(model, dtype)
    if isinstance(model, PreTrainedModel):
        return from_model(model, dtype)
    if isinstance(model, nn.Module):
        return from_module(model, dtype)
    raise ImportRefused(f"{type(model).__name__} is not a config, a model or an nn.Module")


def export(
    wrapper: nn.Module, tokens: int, trace: Trace, lines: bool
) -> torch.export.ExportedProgram:
    """The graph of one launch; a failure to trace is a refusal that quotes its first line.

    With `lines` each node carries the source line it came from.
    """
    example = torch.zeros(1, tokens, dtype=torch.int64, device="meta")
    current = TRACE.set(trace)
    try:
        with torch.no_grad(), warnings.catch_warnings(), source_lines(lines):
            warnings.simplefilter("ignore")
            return torch.export.export(wrapper, (example, example.clone()), strict=False)
    except ImportRefused:
        raise
    except Exception as problem:
        raise ImportRefused(f"torch.export cannot trace it: {first_line(problem)}") from problem
    finally:
        TRACE.reset(current)


@contextmanager
def source_lines(wanted: bool) -> Iterator[None]:
    """Whether torch records the source line of each node; its setting is put back."""
    before = fx_config.do_not_emit_stack_traces
    fx_config.do_not_emit_stack_traces = not wanted
    try:
        yield
    finally:
        fx_config.do_not_emit_stack_traces = before
