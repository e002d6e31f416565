"""What a config says that no import can honour: refused by name, before any work."""

from __future__ import annotations

from typing import Any

from amk.errors import ImportRefused

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
SIZES = {"num_hidden_layers": 1 << 10, "hidden_size": 1 << 20, "vocab_size": 1 << 26}
DYNAMIC_ROPE = ("dynamic", "longrope")


def check_config(config: Any) -> None:
    """Raises ImportRefused for a config no decoder of this kind can be imported from."""
    name = getattr(config, "model_type", type(config).__name__)
    for problem in (
        sizes(config),
        quantised(config),
        encoder_decoder(config),
        several_parts(config),
        experts(config),
        not_causal(config),
        dynamic_rope(config),
    ):
        if problem is not None:
            raise ImportRefused(f"{name}: {problem}")


def sizes(config: Any) -> str | None:
    """Counts outside the bounds of any real model, which would only exhaust memory."""
    text = text_config(config)
    for key, largest in SIZES.items():
        value = getattr(text, key, None)
        if value is not None and not (isinstance(value, int) and 0 < value <= largest):
            return f"{key} is {value!r}; it must be an integer from 1 to {largest}"
    return None


def text_config(config: Any) -> Any:
    """The part of a config that reads text; None where several do."""
    try:
        return config.get_text_config()
    except ValueError:
        return None


def quantised(config: Any) -> str | None:
    if getattr(config, "quantization_config", None) is None:
        return None
    return "quantization_config is set; import the unquantised model"


def encoder_decoder(config: Any) -> str | None:
    if not getattr(config, "is_encoder_decoder", False):
        return None
    return "an encoder-decoder model; only decoders are imported"


def several_parts(config: Any) -> str | None:
    if text_config(config) is config:
        return None
    return "a model of several modalities; import its text config (config.get_text_config())"


def experts(config: Any) -> str | None:
    for key in EXPERTS:
        count = getattr(config, key, None)
        if isinstance(count, int) and count > 1:
            return f"a mixture of experts ({key} = {count}) is not supported yet"
    return None


def not_causal(config: Any) -> str | None:
    if getattr(config, "is_causal", True) is False:
        return "is_causal is false; only causal attention is imported"
    if getattr(config, "use_bidirectional_attention", None):
        return "bidirectional attention; only causal attention is imported"
    return None


def dynamic_rope(config: Any) -> str | None:
    """RoPE kinds whose frequencies change with the length of the text."""
    for kind in rope_types(getattr(config, "rope_parameters", None)):
        if any(word in kind for word in DYNAMIC_ROPE):
            return f"rope_type {kind!r} changes its frequencies with the length of the text"
    return None


def rope_types(parameters: Any) -> list[str]:
    """Every rope_type of a config: one, or one a layer type."""
    if not isinstance(parameters, dict):
        return []
    own = parameters.get("rope_type")
    inner = [kind for value in parameters.values() for kind in rope_types(value)]
    return [own, *inner] if isinstance(own, str) else inner
