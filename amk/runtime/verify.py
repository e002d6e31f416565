"""HuggingFace's own eager run of a model: what the tokens made here are compared with."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from amk.errors import AmkError
from amk.runtime.gguf_facts import handed_to_transformers
from amk.runtime.gguf_source import GgufSource
from amk.runtime.object_source import ObjectSource
from amk.runtime.safetensors_source import SafetensorsSource
from amk.runtime.source import Source


class Eager:
    """A transformers model and a cache, fed in chunks; logits come as float32 numpy [n, vocab]."""

    def __init__(self, model: Any):
        import torch
        from transformers import DynamicCache

        self.model = model.eval()
        self._torch = torch
        # transformers renames the argument: past_key_values before 5.40, cache from then on.
        parameters = inspect.signature(model.forward).parameters
        names = [n for n in ("cache", "past_key_values") if n in parameters]
        if not names:
            raise AmkError(f"{type(model).__name__}.forward takes no KV cache")
        self._cache = {names[0]: DynamicCache(config=model.config)}

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        ids = self._torch.tensor([list(tokens)], device=self.model.device)
        with self._torch.inference_mode():
            out = self.model(input_ids=ids, use_cache=True, return_dict=True, **self._cache)
        return out.logits[0].float().cpu().numpy()

    def step(self, token: int) -> np.ndarray:
        return self.logits([token])[-1]


def eager_greedy(
    model: Any, prompt: Sequence[int], max_tokens: int, stop: frozenset[int] = frozenset()
) -> list[int]:
    """The greedy tokens of a transformers model: `max_tokens` of them, or up to and with the
    first that is in `stop`."""
    eager = Eager(model)
    logits = eager.logits(prompt)[-1]
    made: list[int] = []
    while True:
        made.append(int(logits.argmax()))
        if made[-1] in stop or len(made) == max_tokens:
            return made
        logits = eager.step(made[-1])


def eager_model(source: Source, dtype: str = "f32") -> Any:
    """The transformers model of `source`, loaded by transformers itself where it can.

    It computes in float32 with eager attention. Its weights are rounded to `dtype` first, as
    those of the compiled program are, so that what is left to differ is the program.
    """
    with quiet_transformers():
        model = LOADERS.get(type(source), _from_config)(source)
    return rounded(model, dtype)


def rounded(model: Any, dtype: str) -> Any:
    """`model` in place, in float32, its parameters rounded to `dtype`."""
    import torch

    narrow = {"bf16": torch.bfloat16, "f16": torch.float16}.get(dtype)
    model = model.to(torch.float32).eval()
    if narrow is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.to(narrow))
    return model


def _from_gguf(source: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    with handed_to_transformers(source.file, source.name, "weights") as arguments:
        return AutoModelForCausalLM.from_pretrained(
            **arguments, dtype=torch.float32, attn_implementation="eager"
        )


def _from_folder(source: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        source.folder,
        dtype=torch.float32,
        attn_implementation="eager",
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    )


def _from_config(source: Source) -> Any:
    """A model that no file of transformers' holds: built from its config, weights read here."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    contents = source.config()
    config = AutoConfig.for_model(contents.pop("model_type"), **contents)
    with torch.random.fork_rng(devices=[]):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    stored = {key: torch.from_numpy(source.read(key, None, "f32")) for key in model.state_dict()}
    model.load_state_dict(stored)
    return model


def _from_object(source: Any) -> Any:
    """A copy of the caller's own model."""
    if not source.has_eager:
        raise AmkError("a plain nn.Module has no eager run of HuggingFace's: give eager_model")
    model = copy.deepcopy(source.model)
    model.set_attn_implementation("eager")
    return model


LOADERS: dict[type[Source], Callable[[Any], Any]] = {
    GgufSource: _from_gguf,
    ObjectSource: _from_object,
    SafetensorsSource: _from_folder,
}


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Loading bars and warnings off; the settings are put back.

    The bar over GGUF tensors heeds no setting, so that stderr itself is put aside; what goes wrong
    is raised, not printed.
    """
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
