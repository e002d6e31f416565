"""A model that is a torch object: its class is the structure, its tensors are the weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from amk.errors import AmkError, ModelFileError
from amk.runtime.cache import stable_hash
from amk.runtime.source import PROVENANCE_FIELDS, Source
from amk.runtime.tokenizer import TextTokenizer
from amk.runtime.weights import TensorInfo, convert, destination

if TYPE_CHECKING:
    from torch import Tensor, nn


class ObjectSource(Source):
    """A transformers model, or a plain nn.Module of the kind `import_model` takes.

    `dtype` is the one it is compiled for. Weights are the object's own tensors, read when they
    are bound and never held twice. TypeError when `model` is not an nn.Module.
    """

    def __init__(self, model: nn.Module, dtype: str = "f32"):
        from torch import nn
        from transformers import PreTrainedModel

        if not isinstance(model, nn.Module):
            raise TypeError(
                f"a model is a path, a hub id, a transformers model or an nn.Module, "
                f"not {type(model).__name__}"
            )
        super().__init__(type(model).__name__, None)
        self.model = model
        self.dtype = dtype
        self.has_eager = isinstance(model, PreTrainedModel)

    @cached_property
    def _state(self) -> Mapping[str, Tensor]:
        return self.model.state_dict()

    def _load_config(self) -> dict[str, Any]:
        if not self.has_eager:
            return {}
        import json

        return json.loads(self.model.config.to_json_string(use_diff=False))  # type: ignore

    def _load_tensors(self) -> Mapping[str, TensorInfo]:
        tags = dtype_tags()
        return {
            key: TensorInfo(tuple(tensor.shape), tags[tensor.dtype], tags[tensor.dtype])
            for key, tensor in self._state.items()
            if tensor.dtype in tags
        }

    def _read(self, key: str, out: np.ndarray | None, dtype: str) -> np.ndarray:
        import torch

        info, tensor = self.tensors()[key], self._state[key]
        if tensor.is_meta:
            raise ModelFileError(f"{self.name}: tensor {key!r} is on the meta device: it is empty")
        target = destination(info.shape, dtype, out)
        own = tensor.detach().cpu().contiguous()
        array = own.view(torch.uint16).numpy() if info.dtype == "bf16" else own.numpy()
        convert(array, info.dtype, target, dtype)
        return target

    def fingerprint(self) -> str:
        """Of the imported module's text: two objects of one class may compute different things,
        so that what is compiled is all that can name it."""
        from amk.frontend.hf import import_model

        text = str(import_model(self.model, 1, self.dtype))
        config = {k: v for k, v in self._config.items() if k not in PROVENANCE_FIELDS}
        table = {key: [list(t.shape), t.dtype] for key, t in self._tensors.items()}
        return stable_hash("object", self.name, config, table, text)

    def weights_key(self) -> str | None:
        return None

    def importable(self) -> Any:
        return self.model

    def _load_tokenizer(self) -> TextTokenizer:
        raise AmkError(f"{self.name} is an object without a tokenizer: give ids")


def dtype_tags() -> dict[Any, str]:
    import torch

    return {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
