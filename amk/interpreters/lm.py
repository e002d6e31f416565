"""Runs functions of the lm dialect in torch, on the CPU.

A freshly imported module gives the bits of transformers' eager model, because each op is the
torch op it was imported from. The raised ops have the meaning their docstrings in `amk.ir.lm`
state, computed in f32 where a pass may choose the order. `lm_ops` holds the meaning of each op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, IndexType, ModuleOp, StringAttr, TensorType
from xdsl.ir import Block, Operation, SSAValue

from amk.errors import AmkError
from amk.interpreters import kv as kv_meaning
from amk.interpreters.literals import torch_dtype
from amk.interpreters.lm_ops import MEANING, Value
from amk.ir import kv, lm

Weights = Mapping[str, Tensor]


class Machine:
    """Values of SSA names while one function runs."""

    def __init__(self, weights: Weights):
        self.weights = weights
        self.values: dict[SSAValue, Value] = {}
        self.past = 0
        self.saved: dict[str, Tensor] = {}
        """What `kv.save` wrote, for `kv.load`."""

    def tensor(self, value: SSAValue) -> Tensor:
        return cast(Tensor, self.values[value])

    def optional(self, value: SSAValue | None) -> Tensor | None:
        return None if value is None else self.tensor(value)

    def index(self, value: SSAValue) -> int:
        return cast(int, self.values[value])

    def block(self, block: Block) -> list[Value]:
        """Runs the ops of `block`; returns what its terminator passes on."""
        for op in block.ops:
            if isinstance(op, func.ReturnOp | lm.YieldOp):
                return [self.values[v] for v in op.operands]
            meaning = MEANING.get(type(op))
            if meaning is None:
                raise AmkError(f"the lm interpreter has no meaning for {op.name}")
            results = meaning(self, op)
            outs = results if isinstance(results, tuple) else (results,)
            for name, value in zip(op.results, outs, strict=True):
                self.values[name] = checked(op, name, value)
        raise AmkError("a block of the lm dialect ends in func.return or lm.yield")


def checked(op: Operation, name: SSAValue, value: Value) -> Value:
    """A result must have the type the op states: a wrong meaning stops here."""
    if isinstance(name.type, TensorType):
        value = cast(Tensor, value)
        shape = name.type.get_shape()
        known = [d if d < 0 else n for d, n in zip(shape, value.shape, strict=False)]
        found = (len(value.shape), known, value.dtype)
        if found != (len(shape), list(shape), torch_dtype(name.type.element_type)):
            raise AmkError(f"{op.name} gives {found} where its type is {name.type}")
    return value


def run(
    module: ModuleOp,
    tokens: Tensor,
    past: int,
    caches: Sequence[Tensor],
    weights: Weights,
    function: str = "step",
) -> tuple[Tensor, list[Tensor]]:
    """One launch: `tokens` [1, S] i64 at past length `past`.

    `caches` are in the order of the function's arguments, each with exactly `past` rows; `weights`
    map keys to tensors of the dtype and shape the module states. Returns logits and the next
    versions of the caches. The arguments are not changed.
    """
    step = function_named(module, function)
    types = list(step.body.block.arg_types)
    given: list[Value] = [tokens, past, *caches]
    for i, (type, value) in enumerate(zip(types, given, strict=True)):
        check_argument(i, type, value, past)
    results = evaluate(step, given, weights, past)
    return cast(Tensor, results[0]), cast(list[Tensor], results[1:])


def run_init(module: ModuleOp, weights: Weights, function: str = "init") -> dict[str, Tensor]:
    """What `@init()` computes, as `@init/NAME` → tensor.

    The function's `amk.names` attribute names its results in order.
    """
    init = function_named(module, function)
    names = init.attributes.get("amk.names")
    if not isinstance(names, ArrayAttr):
        raise AmkError(f"@{function} has no amk.names attribute that names its results")
    values = evaluate(init, [], weights)
    keys = [f"@{function}/{cast(StringAttr, n).data}" for n in names]
    return dict(zip(keys, cast(list[Tensor], values), strict=True))


def function_named(module: ModuleOp, name: str) -> func.FuncOp:
    for op in module.body.block.ops:
        if isinstance(op, func.FuncOp) and op.sym_name.data == name:
            return op
    raise AmkError(f"the module has no function @{name}")


def check_argument(i: int, type: Any, value: Value, past: int) -> None:
    """ValueError unless `value` is what an argument of `type` may be at this past length."""
    if isinstance(type, IndexType):
        fits = isinstance(value, int) and value >= 0
    else:
        shape = tuple(past if d < 0 else d for d in type.get_shape())
        cache = isinstance(type, kv.CacheType)
        dtype = kv_meaning.dtype_of(type) if cache else torch_dtype(type.element_type)
        expected = (shape, dtype)
        fits = isinstance(value, Tensor) and (tuple(value.shape), value.dtype) == expected
    if not fits:
        raise ValueError(f"argument {i} does not fit {type} at past length {past}")


def evaluate(
    function: func.FuncOp, arguments: Sequence[Value], weights: Weights, past: int = 0
) -> list[Value]:
    """The results of `function` on `arguments`, in order; `past` is P."""
    machine = Machine(weights)
    machine.past = past
    block = function.body.block
    machine.values.update(zip(block.args, arguments, strict=True))
    with torch.no_grad():
        return machine.block(block)


def empty_caches(module: ModuleOp, function: str = "step") -> list[Tensor]:
    """The caches of `function` before the first launch."""
    types = function_named(module, function).body.block.arg_types
    caches = [t for t in types if isinstance(t, kv.CacheType)]
    return [kv_meaning.empty(t, kv_meaning.dtype_of(t)) for t in caches]


class Decoder:
    """Decodes with one module per chunk length, holding the caches between launches.

    `modules` are imports of one model that differ in `amk.tokens`; where one has an `@init`
    function it runs once, here.
    """

    def __init__(self, modules: ModuleOp | Sequence[ModuleOp], weights: Weights):
        listed = [modules] if isinstance(modules, ModuleOp) else list(modules)
        self.steps = {chunk_length(m): (m, with_init(m, weights)) for m in listed}
        self.caches = empty_caches(listed[0])
        self.past = 0

    def step(self, tokens: Sequence[int]) -> Tensor:
        """One launch over `tokens`; returns logits [S, V]. ValueError if no module has S."""
        count = len(tokens)
        if count not in self.steps:
            raise ValueError(f"no module for {count} tokens; there are {sorted(self.steps)}")
        module, weights = self.steps[count]
        ids = torch.tensor([list(tokens)], dtype=torch.int64)
        logits, self.caches = run(module, ids, self.past, self.caches, weights)
        self.past += count
        return logits[0]

    def prefill(self, tokens: Sequence[int]) -> Tensor:
        """All of `tokens` in the largest chunks that fit; returns logits [len(tokens), V]."""
        rows, done = [], 0
        while done < len(tokens):
            fitting = [s for s in self.steps if s <= len(tokens) - done]
            if not fitting:
                raise ValueError(f"no module for the last {len(tokens) - done} tokens")
            rows.append(self.step(tokens[done : done + max(fitting)]))
            done += max(fitting)
        return torch.cat(rows)


def chunk_length(module: ModuleOp) -> int:
    return cast(Any, module.attributes["amk.tokens"]).value.data


def with_init(module: ModuleOp, weights: Weights) -> Weights:
    names = [op.sym_name.data for op in module.body.block.ops if isinstance(op, func.FuncOp)]
    return {**weights, **run_init(module, weights)} if "init" in names else weights
