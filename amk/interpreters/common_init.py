"""One `@init` for the programs of a model that differ in the tokens of a launch.

The passes see other shapes at S = 1 than at S = 16 (a unit axis more or less), so they may write
one table in two ways. Results are the same when they are computed by the same ops, or, where no
weight takes part, when they evaluate to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from amk.errors import AmkError
from amk.interpreters.init_numpy import cone, evaluate, init_function
from amk.ir.lm import WeightOp


def common_init(modules: Sequence[ModuleOp]) -> str:
    """The text of a module with the `@init` that all of `modules` share, that of the first.

    Raises AmkError that names the result about which two of them disagree.
    """
    first, *rest = modules
    own = results(first)
    for other in rest:
        theirs = results(other)
        if own.keys() != theirs.keys():
            names = ", ".join(sorted(own.keys() ^ theirs.keys()))
            raise AmkError(f"@init: the programs of one model disagree about {names}")
        for name, value in own.items():
            if not same(value, theirs[name]):
                raise AmkError(f"@init: the programs of one model disagree about {name}")
    inits = [f for f in first.ops if isinstance(f, FuncOp) and f.sym_name.data == "init"]
    return str(ModuleOp([f.clone() for f in inits])) + "\n"


def results(module: ModuleOp) -> dict[str, SSAValue]:
    """The results of a module's `@init` by name; {} without one."""
    init = init_function(module)
    if init is None:
        return {}
    last, names = init.body.block.last_op, init.attributes.get("amk.names")
    if not isinstance(last, ReturnOp) or not isinstance(names, ArrayAttr):
        raise AmkError("@init: the attribute amk.names must name each result")
    keys = [n.data for n in names.data if isinstance(n, StringAttr)]
    return dict(zip(keys, last.arguments, strict=True))


def same(a: SSAValue, b: SSAValue) -> bool:
    """Do two results of `@init` functions hold the same bits, whatever the weights?"""
    if a.type != b.type:
        return False
    ops_a, ops_b = cone(a), cone(b)
    if recipe(ops_a) == recipe(ops_b):
        return True
    if any(isinstance(v.owner, WeightOp) for v in (*ops_a, *ops_b)):
        return False
    return np.array_equal(value_of(ops_a), value_of(ops_b), equal_nan=True)


def recipe(values: Sequence[SSAValue]) -> list[tuple[object, ...]]:
    """What computes each value: its op, properties, type, and operands by their place."""
    place = {v: i for i, v in enumerate(values)}
    out: list[tuple[object, ...]] = []
    for v in values:
        op = v.owner
        assert isinstance(op, Operation)
        numbers = tuple(sorted((k, str(p)) for k, p in op.properties.items()))
        out.append((op.name, numbers, v.type, tuple(place[o] for o in op.operands)))
    return out


def value_of(values: Sequence[SSAValue]) -> np.ndarray:
    """The last of `values`, evaluated; no weight takes part."""
    found: dict[SSAValue, Any] = {}
    for v in values:
        found[v] = evaluate(v, found, no_weight)
    return np.asarray(found[values[-1]])


def no_weight(key: str) -> np.ndarray:
    raise AmkError(f"@init: {key} is a weight where none was expected")
