"""Builds what is to be exported: the model on the meta device, and what its tensors are called."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from amk.errors import ImportRefused
from amk.frontend.buffers import fill_buffers
from amk.frontend.guards import check_config
from amk.frontend.hooks import IMPLEMENTATION, Layer
from amk.frontend.translate import Source


@dataclass(frozen=True)
class Built:
    """`wrapper.model` is the model on meta; `wrapper(tokens, positions)` its logits.

    `weights` maps tensor paths below the model to state-dict keys; `constants` maps the paths of
    buffers that no checkpoint holds to their values.
    """

    wrapper: nn.Module
    name: str
    weights: Mapping[str, str]
    constants: Mapping[str, Tensor]

    def source(self, program: torch.export.ExportedProgram, policy: str) -> Source:
        return Source(program, self.weights, self.constants, policy, self.name)


# ---- configs ------------------------------------------------------------------------------


def config_from_dict(contents: Mapping[str, Any]) -> PreTrainedConfig:
    """The config object of a config.json; its class is one of transformers' own."""
    fields = dict(contents)
    model_type = fields.pop("model_type", None)
    if not isinstance(model_type, str):
        raise ImportRefused("config.json has no model_type")
    try:
        cls = type(AutoConfig.for_model(model_type))
    except ValueError:
        raise ImportRefused(
            f"model_type {model_type!r} is not one of transformers' own; remote code is not run"
        ) from None
    try:
        return cls(**fields)
    except Exception as problem:
        raise ImportRefused(
            f"config.json is no {model_type} config: {first_line(problem)}"
        ) from None


def first_line(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[0] if lines else type(problem).__name__


def from_config(config: PreTrainedConfig, dtype: torch.dtype) -> Built:
    """The causal LM of `config`; raises ImportRefused when transformers has none."""
    model = meta_model(config, dtype)
    return wrapped(model, fill_buffers(model))


def meta_model(config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    check_config(config)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ImportRefused(f"{config.model_type} has no causal language model in transformers")
    cls: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    config = copy.deepcopy(config)
    config.use_cache = True
    config.output_attentions = config.output_hidden_states = False
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            model = cls._from_config(config, dtype=dtype, attn_implementation=IMPLEMENTATION)
    except ImportRefused:
        raise
    except Exception as problem:
        raise ImportRefused(
            f"transformers cannot build {cls.__name__}: {first_line(problem)}"
        ) from problem
    for module in model.modules():
        own = getattr(module, "config", None)
        if isinstance(own, PreTrainedConfig):
            own._attn_implementation_internal = IMPLEMENTATION  # type: ignore[attr-defined]
    return model.eval()


# ---- models -------------------------------------------------------------------------------


def from_model(model: PreTrainedModel, dtype: torch.dtype) -> Built:
    """The structure of a transformers model, built again on meta from its config.

    Where the model computes in `dtype` its own non-persistent buffers are used; otherwise those
    its config gives in `dtype`.
    """
    built = meta_model(model.config, dtype)
    check_same_structure(model, built)
    constants = fill_buffers(built)
    if model.dtype == dtype:
        constants |= own_buffers(model, built)
    return wrapped(built, constants)


def own_buffers(model: nn.Module, built: nn.Module) -> dict[str, Tensor]:
    """The values `model` has for the buffers no checkpoint holds; `built` takes their dtypes."""
    values = {}
    for path, buffer in non_persistent(model).items():
        if buffer.is_meta:
            continue
        parent, _, name = path.rpartition(".")
        built.get_submodule(parent)._buffers[name] = torch.empty_like(buffer, device="meta")
        values[path] = buffer.detach().cpu()
    return values


def check_same_structure(model: PreTrainedModel, built: PreTrainedModel) -> None:
    """Raises ImportRefused when `model` is not what its config builds."""
    name = type(model).__name__
    if type(model) is not type(built):
        raise ImportRefused(f"{name} is not {type(built).__name__}, which its config builds")
    found, expected = structure(model), structure(built)
    for path in sorted(found.keys() | expected.keys()):
        if found.get(path) != expected.get(path):
            raise ImportRefused(f"{name} is not what its config builds: {path or name} differs")
    for path, module in model.named_modules():
        hooked = module._forward_hooks or module._forward_pre_hooks
        if hooked or ("forward" in module.__dict__ and not hasattr(module, "_hf_hook")):
            raise ImportRefused(f"{path or name} has a forward hook, which an import cannot see")


def structure(model: nn.Module) -> dict[str, Any]:
    """Path → class of a module or shape of a tensor."""
    kinds: dict[str, Any] = {path: type(module) for path, module in model.named_modules()}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return kinds | {path: tuple(tensor.shape) for path, tensor in tensors}


def from_module(model: nn.Module, dtype: torch.dtype) -> Built:
    """A copy on meta of a plain module; its floating parameters must be of `dtype`."""
    for path, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != dtype:
            raise ImportRefused(f"{path} is {parameter.dtype}; call model.to({dtype}) first")
    if len(inspect.signature(model.forward).parameters) != 2:
        raise ImportRefused(f"{type(model).__name__}.forward does not take (tokens, positions)")
    tensors = [*model.parameters(), *model.buffers()]
    memo = {id(t): on_meta(t) for t in tensors}
    clone = copy.deepcopy(model, memo).eval()
    values = {p: b.detach().cpu() for p, b in non_persistent(model).items() if not b.is_meta}
    return Built(Plain(clone), type(model).__name__, weight_keys(clone), values)


def on_meta(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


# ---- wrappers -----------------------------------------------------------------------------


class Plain(nn.Module):
    """A plain module under the name `model`, as the causal LMs are."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.model(tokens, positions)


class CausalLM(nn.Module):
    """`forward(tokens, positions) → logits` of a causal LM, with a fresh cache inside."""

    def __init__(self, model: PreTrainedModel, cache_argument: str):
        super().__init__()
        self.model = model
        self.cache_argument = cache_argument

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        layers: list[Any] = [Layer(i) for i in range(self.model.config.num_hidden_layers)]
        out = self.model(
            input_ids=tokens,
            position_ids=positions,
            use_cache=True,
            return_dict=True,
            **{self.cache_argument: Cache(layers=layers)},
        )
        return out.logits


def wrapped(model: PreTrainedModel, constants: Mapping[str, Tensor]) -> Built:
    """Refuses a model whose forward takes no positions or no cache."""
    name = type(model).__name__
    parameters = inspect.signature(model.forward).parameters
    # transformers renames the argument: past_key_values before 5.40, cache from then on.
    names = [n for n in ("cache", "past_key_values") if n in parameters]
    if not names:
        raise ImportRefused(f"{name}.forward takes no KV cache")
    if "position_ids" not in parameters:
        raise ImportRefused(f"{name}.forward takes no position_ids")
    wrapper = CausalLM(model, names[0])
    return Built(wrapper, model.config.model_type, weight_keys(model), constants)


# ---- names of tensors ---------------------------------------------------------------------


def weight_keys(model: nn.Module) -> dict[str, str]:
    """State-dict key of every parameter and persistent buffer, by path.

    Paths of one tensor share a key: the first that is not tied to another.
    """
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    absent = non_persistent(model)
    buffers = model.named_buffers(remove_duplicate=False)
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *((path, buffer) for path, buffer in buffers if path not in absent),
    ]
    first: dict[int, str] = {}
    for path, tensor in sorted(tensors, key=lambda pair: pair[0] in tied):
        first.setdefault(id(tensor), path)
    return {path: first[id(tensor)] for path, tensor in tensors}


def non_persistent(model: nn.Module) -> dict[str, Tensor]:
    """The buffers no checkpoint holds, by path."""
    found = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name in module._non_persistent_buffers_set:
            buffer = module._buffers.get(name)
            if buffer is not None:
                found[f"{prefix}.{name}".lstrip(".")] = buffer
    return found
