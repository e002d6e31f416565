"""Imports a decoder as a module of the lm dialect.

One importer for every architecture: the model is built on the meta device, its attention and its
cache are replaced through transformers' own extension points, and torch.export gives the graph.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from xdsl.dialects.builtin import ModuleOp

from amk.errors import ImportRefused
from amk.frontend import ops
from amk.frontend.buffers import fill_buffers
from amk.frontend.guards import check_config
from amk.frontend.masks import window_of
from amk.frontend.translate import Source, build_module
from amk.frontend.types import DTYPES
from amk.ir.kv import POLICIES

IMPLEMENTATION = "amk"


def import_model(
    model: PreTrainedConfig | Mapping[str, Any] | nn.Module,
    tokens: int = 1,
    dtype: str = "f32",
    policy: str = "static",
) -> ModuleOp:
    """The lm module of `model` for launches of `tokens` new tokens.

    `model` is a transformers config, the contents of a config.json, a transformers model, or a
    plain `nn.Module` whose `forward(tokens [1, S] i64, positions [1, S] i64)` returns logits
    [1, S, V] and calls the ops of `amk.frontend.ops`. `dtype` ("f32", "bf16" or "f16") is the
    dtype the model computes in; a plain module already computes in it. `policy` is the growth
    policy of the caches. Weights are not read: `lm.weight` names them by state-dict key.

    The module holds `@step(tokens [1, S], position, caches…) → (logits [1, S, V], caches…)`; it
    carries `amk.tokens`, `amk.dtype`, `amk.vocab` and `amk.name`.

    Raises ImportRefused when the model holds anything that cannot be imported exactly, and
    ValueError for bad `tokens`, `dtype` or `policy`.
    """
    if tokens < 1:
        raise ValueError(f"tokens is {tokens}; an import needs at least 1")
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r} is not one of {', '.join(POLICIES)}")
    if isinstance(model, Mapping):
        model = config_from_dict(model)
    if isinstance(model, PreTrainedConfig):
        built, constants = from_config(model, DTYPES[dtype])
    else:
        raise ImportRefused(f"{type(model).__name__} is not a model or a config")
    program = export(wrap(built), tokens)
    source = Source(program, weight_keys(built), constants, policy)
    return build_module(source, tokens, dtype, built.config.model_type)


# ---- building on meta -----------------------------------------------------------------------


def config_from_dict(contents: Mapping[str, Any]) -> PreTrainedConfig:
    """The config object of a config.json; its class is one of transformers' own."""
    fields = dict(contents)
    model_type = fields.pop("model_type", None)
    if not isinstance(model_type, str):
        raise ImportRefused("config.json has no model_type")
    try:
        return AutoConfig.for_model(model_type, **fields)
    except ValueError as problem:
        raise ImportRefused(f"model_type {model_type!r} is not one of transformers' own") from problem


def from_config(
    config: PreTrainedConfig, dtype: torch.dtype
) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    """The causal LM of `config` on the meta device, and the values of its constant buffers."""
    check_config(config)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ImportRefused(f"{config.model_type} has no causal language model in transformers")
    cls = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    config = copy.deepcopy(config)
    config.use_cache = True
    config.output_attentions = config.output_hidden_states = False
    with torch.device("meta"):
        model = cls._from_config(config, dtype=dtype, attn_implementation=IMPLEMENTATION)
    model.eval()
    return model, fill_buffers(model)


def weight_keys(model: nn.Module) -> dict[str, str]:
    """State-dict key of every parameter and persistent buffer, by path.

    Tensors that are one share a key: the first name that is not tied to another.
    """
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    stored = set(model.state_dict(keep_vars=True))
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *((n, b) for n, b in model.named_buffers(remove_duplicate=False) if n in stored),
    ]
    first: dict[int, str] = {}
    for name, tensor in sorted(tensors, key=lambda pair: pair[0] in tied):
        first.setdefault(id(tensor), name)
    return {name: first[id(tensor)] for name, tensor in tensors}


# ---- attention, masks and the cache -----------------------------------------------------------

# Arguments of attention that eager arithmetic does not read: the mask carries the window.
IGNORED = frozenset({
    "sliding_window", "position_ids", "use_cache", "output_attentions", "output_hidden_states",
    "is_causal", "cache_position", "return_dict",
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
    **rest: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in place of its own attention."""
    unknown = sorted(k for k, v in rest.items() if v is not None and k not in IGNORED)
    if unknown:
        raise ImportRefused(f"attention takes {', '.join(unknown)}, which lm.attention has not")
    if dropout:
        raise ImportRefused(f"attention with dropout {dropout}; call model.eval() first")
    if attention_mask is None:
        raise ImportRefused("attention without a causal mask")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if not isinstance(scale, int | float):
        raise ImportRefused("attention's scale is not a constant number")
    out = ops.attention(query, key, value, attention_mask, float(scale), softcap, s_aux)
    return out, None


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    mask_function: Any,
    attention_mask: Tensor | None = None,
    device: Any = "meta",
    **rest: Any,
) -> Tensor:
    """What transformers calls in place of building a mask: a token that carries the window."""
    if attention_mask is not None:
        raise ImportRefused("attention under a padding mask")
    return ops.mask(window_of(mask_function) or 0, torch.device(device))


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
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = refuse  # type: ignore[assignment]
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


class Wrapped(nn.Module):
    """`forward(tokens, positions) → logits` of a causal LM, with a fresh cache inside."""

    def __init__(self, model: PreTrainedModel, cache_argument: str):
        super().__init__()
        self.model = model
        self.cache_argument = cache_argument

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        count = self.model.config.num_hidden_layers
        cache = Cache(layers=[Layer(i) for i in range(count)])
        out = self.model(
            input_ids=tokens,
            position_ids=positions,
            use_cache=True,
            return_dict=True,
            **{self.cache_argument: cache},
        )
        return out.logits


def wrap(model: PreTrainedModel) -> Wrapped:
    """Refuses a model whose forward takes no positions or no cache."""
    parameters = inspect.signature(model.forward).parameters
    names = [n for n in ("cache", "past_key_values") if n in parameters]
    if not names:
        raise ImportRefused(f"{type(model).__name__}.forward takes no KV cache")
    if "position_ids" not in parameters:
        raise ImportRefused(f"{type(model).__name__}.forward takes no position_ids")
    return Wrapped(model, names[0])


def export(wrapped: nn.Module, tokens: int) -> torch.export.ExportedProgram:
    """The graph of one launch; a failure to trace is a refusal that quotes its first line."""
    example = torch.zeros(1, tokens, dtype=torch.int64, device="meta")
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(wrapped, (example, example.clone()), strict=False)
    except ImportRefused:
        raise
    except Exception as problem:
        line = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
        raise ImportRefused(f"torch.export cannot trace the model: {line}") from problem
