"""Questions about an exported graph: what is live, where a node comes from, what has a value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor

import amk.frontend.ops  # noqa: F401  (registers torch.ops.amk)
from amk.errors import ImportRefused

WRAPPED = "model."
"""What the paths of a wrapper's tensors and modules begin with."""


def append_nodes(graph: fx.Graph) -> dict[int, fx.Node]:
    """The `kv_append` node of each layer, by ascending layer."""
    found: dict[int, fx.Node] = {}
    for node in graph.nodes:
        if node.target is torch.ops.amk.kv_append.default:
            layer = node.args[2]
            if layer in found:
                raise ImportRefused(f"layer {layer} appends to its cache twice in one step")
            found[layer] = node
    if not found:
        raise ImportRefused("the model appends to no KV cache: it is not an autoregressive decoder")
    return dict(sorted(found.items()))


def live_nodes(graph: fx.Graph, appends: Iterable[fx.Node]) -> set[fx.Node]:
    """What the output and the appends depend on."""
    live: set[fx.Node] = set()
    work = [graph.output_node(), *appends]
    while work:
        node = work.pop()
        if node not in live:
            live.add(node)
            work.extend(node.all_input_nodes)
    return live


def changes_unseen(node: fx.Node, fresh: frozenset[Any]) -> bool:
    """Whether nobody can see that an in-place `node` changes its first operand: that has memory of
    its own (an op of `fresh` made it), nothing reads it later, and what read it earlier has
    memory of its own as well."""
    changed = node.args[0]
    if not isinstance(changed, fx.Node) or changed.target not in fresh:
        return False
    others = [user for user in changed.users if user is not node]
    return all(user.target in fresh and user < node for user in others)


def mask_node(node: Any) -> fx.Node | None:
    """The `mask` node that `node` is, or is a view of all rows of."""
    views = (torch.ops.aten.slice.Tensor, torch.ops.aten.alias.default)
    while isinstance(node, fx.Node) and node.target in views:
        inner = node.args[0]
        if not isinstance(inner, fx.Node) or inner.meta["val"].shape != node.meta["val"].shape:
            return None
        node = inner
    is_mask = isinstance(node, fx.Node) and node.target is torch.ops.amk.mask.default
    return node if is_mask else None


def has_value(value: Any) -> bool:
    """Whether a tensor the trace met carries data (one made on meta or while faking does not)."""
    return isinstance(value, Tensor) and not isinstance(value, FakeTensor) and not value.is_meta


def module_path(node: fx.Node) -> str:
    """The dotted path of the innermost module whose forward made the node; "" at the top."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return (paths[-1] if paths else "").removeprefix(WRAPPED.rstrip(".")).removeprefix(".")


def source_line(node: fx.Node) -> str:
    """` (FILE:LINE)` of the model's code, or "" when the graph does not carry it."""
    lines = [ln for ln in (node.meta.get("stack_trace") or "").splitlines() if "File " in ln]
    if not lines:
        return ""
    parts = lines[-1].split('"')
    line = lines[-1].split("line ")[1].split(",")[0]
    return f" ({parts[1]}:{line})"
