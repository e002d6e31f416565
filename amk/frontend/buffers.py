"""Values of the buffers a checkpoint does not store, for a model built on the meta device.

RoPE's inverse frequencies and embedding scales are non-persistent buffers. transformers fills
them after loading by `_init_weights`, module by module; here the same function fills them, on
the CPU, for the modules that own one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from amk.frontend.types import MAX_CONSTANT


def fill_buffers(model: Any) -> dict[str, Tensor]:
    """Puts values into the non-persistent buffers of `model`, whose parameters stay on meta.

    Returns them by path. A buffer that `_init_weights` leaves untouched has no value and is left
    out: an import that needs it is refused.
    """
    found: dict[str, Tensor] = {}
    with torch.no_grad():
        for path, module, owner in modules_with_owner(model):
            for name, pair in initialised(module, owner).items():
                found[f"{path}.{name}".lstrip(".")] = pair
    return found


def initialised(module: nn.Module, owner: Any) -> dict[str, Tensor]:
    """The buffers of `module` that `_init_weights` determines, by name.

    It runs over two different fillings; an element that differs afterwards was never written.
    """
    names = sorted(module._non_persistent_buffers_set)
    buffers = {n: b for n in names if (b := module._buffers[n]) is not None}
    small = {n: b for n, b in buffers.items() if b.numel() <= MAX_CONSTANT}
    if not small:
        return {}
    runs = []
    for filling in (0, 1):
        for name, buffer in small.items():
            fresh = torch.full(buffer.shape, filling, dtype=buffer.dtype, device="cpu")
            module._buffers[name] = fresh
        with torch.device("cpu"):
            owner._init_weights(module)
        runs.append({name: module._buffers[name] for name in small})
    for name, buffer in small.items():
        module._buffers[name] = buffer
    return {n: runs[0][n] for n in small if torch.equal(runs[0][n], runs[1][n])}


def modules_with_owner(model: Any) -> Iterator[tuple[str, nn.Module, Any]]:
    """Every module with its path and the innermost enclosing model that has `_init_weights`."""
    owners: dict[str, Any] = {}
    for path, module in model.named_modules():
        parent = path.rpartition(".")[0]
        owner = module if hasattr(module, "_init_weights") else owners[parent]
        owners[path] = owner
        yield path, module, owner
