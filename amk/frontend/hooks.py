"""What transformers calls during an import in place of its own attention, masks and cache."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.cache_utils import CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from amk.errors import ImportRefused
from amk.frontend import ops
from amk.frontend.masks import window_of

EAGER = "eager"


class Implementation(str):
    """The name these hooks are registered under, which also answers to "eager".

    A model may ask whether its attention is eager and compute otherwise if so. Eager is what an
    import must equal, so the answer is yes; the registries find the hooks all the same, because
    their lookup goes by hash.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or other == EAGER

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


IMPLEMENTATION = Implementation("amk")


@dataclass(frozen=True)
class AttentionCall:
    """One call of attention while tracing, as the model made it; shapes without the batch."""

    module: nn.Module
    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    dtype: torch.dtype
    window: int | None
    scaling: float | None
    softcap: float | None
    sinks: str | None
    extra: dict[str, Any]


@dataclass
class Trace:
    """What the hooks saw during one trace: attention calls, and the mask tokens they made."""

    calls: list[AttentionCall] = field(default_factory=list)
    masks: list[tuple[Tensor, int]] = field(default_factory=list)

    def window(self, token: Tensor | None) -> int:
        """The window a mask token stands for, 0 for none."""
        for made, window in self.masks:
            if made is token or (token is not None and uncut(token, made)):
                return window
        raise ImportRefused("attention under a mask that is not causal or sliding-causal")


def uncut(view: Tensor, made: Tensor) -> bool:
    """Whether `view` is all of `made`: a model may slice its mask from first row to last."""
    return view._base is made and view.shape == made.shape


TRACE: ContextVar[Trace | None] = ContextVar("TRACE", default=None)
"""The trace in progress; None outside one."""


def current_trace() -> Trace:
    trace = TRACE.get()
    if trace is None:
        raise ImportRefused("attention 'amk' traces a model for import; it does not run one")
    return trace


# Arguments of attention that lm.attention has no use for: its mask carries the window, and the
# rest say how to return. `eager.py` checks that eager arithmetic does not use them either.
EXTRA = frozenset({
    "sliding_window", "position_ids", "cache_position", "use_cache", "output_attentions",
    "output_hidden_states", "is_causal", "return_dict",
})  # fmt: skip


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **extra: Any,
) -> tuple[Tensor, None]:
    """The attention function of transformers' `AttentionInterface`."""
    trace = current_trace()
    given = {k: v for k, v in extra.items() if v is not None}
    if unknown := sorted(given.keys() - EXTRA):
        raise ImportRefused(f"attention takes {', '.join(unknown)}, which lm.attention has not")
    if dropout:
        raise ImportRefused(f"attention drops out {dropout} of its weights")
    window = trace.window(attention_mask)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if not isinstance(scale, int | float):
        raise ImportRefused("attention's scale is not a constant number")
    trace.calls.append(
        AttentionCall(
            module,
            shape(query),
            shape(key),
            shape(value),
            query.dtype,
            window or None,
            scaling,
            softcap,
            parameter_name(module, s_aux),
            given,
        )
    )
    out = ops.attention(
        query, key, value, cast(Tensor, attention_mask), float(scale), softcap, s_aux
    )
    return out, None


def shape(tensor: Tensor) -> tuple[int, ...]:
    """Heads, rows and depth: without the batch, which is 1."""
    return tuple(int(d) for d in tensor.shape[1:])


def parameter_name(module: nn.Module, tensor: Tensor | None) -> str | None:
    """The name of the module's own parameter that `tensor` is."""
    if tensor is None:
        return None
    for name, parameter in module.named_parameters(recurse=False):
        if parameter is tensor:
            return name
    raise ImportRefused("attention sinks are not a parameter of the attention module")


def mask(
    batch_size: int,
    q_length: int,
    kv_length: Any,
    mask_function: Any,
    attention_mask: Tensor | None = None,
    device: Any = "meta",
    **rest: Any,
) -> Tensor:
    """The mask function of transformers' `AttentionMaskInterface`: a token with the window."""
    if attention_mask is not None:
        raise ImportRefused("attention under a padding mask")
    window = window_of(mask_function) or 0
    token = ops.mask(window, torch.device(device), int(q_length))
    current_trace().masks.append((token, window))
    return token


AttentionInterface.register(IMPLEMENTATION, attention)
AttentionMaskInterface.register(IMPLEMENTATION, mask)


class PastLength:
    """The past length while tracing: a number nothing may compute with.

    Positions come from `position_ids`; a model that derives anything else from the length of its
    cache would have the length at tracing time baked in.
    """

    def refuse(self, *_: Any) -> Any:
        raise ImportRefused("the model computes with the length of its cache")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = refuse
    __bool__ = __int__ = __index__ = __float__ = refuse
    __hash__ = None  # type: ignore[assignment]


class Layer(CacheLayerMixin):
    """One layer's cache: an update becomes `amk::kv_append`."""

    is_sliding = False

    def __init__(self, layer: int):
        super().__init__()
        self.layer = layer
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        pass

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return ops.kv_append(key_states, value_states, self.layer)

    def get_mask_sizes(self, query_length: Any) -> Any:
        return PastLength(), 0

    def get_seq_length(self, *_: Any) -> Any:
        return PastLength()

    def get_max_length(self) -> int:
        return -1

    # The name of get_max_length in older transformers 5 releases.
    def get_max_cache_shape(self) -> int:
        return -1
