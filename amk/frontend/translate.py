"""An exported graph → a module of the lm dialect."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, fx
from torch.export.graph_signature import InputKind, OutputKind
from xdsl.dialects import builtin, func
from xdsl.dialects.builtin import IndexType, NameLoc, NoneAttr, StringAttr, i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from amk.errors import ImportRefused
from amk.frontend.aten import ASSERTIONS, FRESH, IN_PLACE, ROWS
from amk.frontend.call import Call, Result, bind, result_types, unread
from amk.frontend.graph import (
    WRAPPED,
    append_nodes,
    changes_unseen,
    has_value,
    live_nodes,
    mask_node,
    module_path,
    source_line,
)
from amk.frontend.types import MAX_CONSTANT, tensor_type
from amk.interpreters.literals import literal
from amk.ir import kv, lm

ops: Any = torch.ops.amk


@dataclass(frozen=True)
class Source:
    """What an exported program says about its inputs.

    `weights` maps a parameter's path below the wrapper to its state-dict key, `constants` a
    buffer's path to its value. `policy` is the growth policy of every cache; `name` is the model's.
    """

    program: torch.export.ExportedProgram
    weights: Mapping[str, str]
    constants: Mapping[str, Tensor]
    policy: str
    name: str


class Translator:
    """Walks the graph once, in order, and emits what the outputs and the caches need."""

    def __init__(self, source: Source, tokens: int):
        self.source = source
        self.tokens = tokens
        self.env: dict[fx.Node, Result] = {}
        self.leaves: dict[str, SSAValue] = {}
        self.caches: dict[int, tuple[SSAValue, SSAValue]] = {}
        self.layers: dict[fx.Node, int] = {}
        self.location = self.place("")
        self.placeholders = {s.arg.name: s for s in source.program.graph_signature.input_specs}

    # ---- the function ---------------------------------------------------------------------

    def run(self) -> func.FuncOp:
        graph = self.source.program.graph
        self.refuse_side_effects(graph)
        appends = append_nodes(graph)
        live = live_nodes(graph, appends.values())
        token_type = lm.tensor((1, self.tokens), i64)
        cache_types = [t for node in appends.values() for t in self.cache_types(node)]
        self.block = Block(arg_types=[token_type, IndexType(), *cache_types])
        self.name_arguments(appends)
        for node in graph.nodes:
            if node in live:
                self.node(node)
        outputs = [self.logits(graph), *(c for pair in self.caches.values() for c in pair)]
        end = func.ReturnOp(*outputs)
        self.block.add_op(end)
        types = ([a.type for a in self.block.args], [v.type for v in outputs])
        step = func.FuncOp("step", types, Region(self.block))
        step.location = end.location = self.place("")
        return step

    def name_arguments(self, appends: dict[int, fx.Node]) -> None:
        self.block.args[0].name_hint = "tokens"
        self.block.args[1].name_hint = "pos"
        for i, layer in enumerate(appends):
            keys, values = self.block.args[2 + 2 * i], self.block.args[3 + 2 * i]
            keys.name_hint, values.name_hint = f"k{layer}", f"v{layer}"
            self.caches[layer] = (keys, values)

    def cache_types(self, node: fx.Node) -> list[kv.CacheType]:
        types = []
        for part in result_types(node):
            if part.dim() != 4 or part.shape[0] != 1:
                self.refuse(node, "appends a cache entry that is not [1, heads, S, depth]")
            shape = (1, int(part.shape[1]), -1, int(part.shape[3]))
            element = tensor_type(part).element_type
            types.append(kv.CacheType.get(shape, 2, element, self.source.policy))
        return types

    def logits(self, graph: fx.Graph) -> SSAValue:
        specs = self.source.program.graph_signature.output_specs
        odd = [s for s in specs if s.kind != OutputKind.USER_OUTPUT]
        if odd or len(specs) != 1:
            what = odd[0].target or odd[0].kind.name if odd else f"{len(specs)} outputs"
            raise ImportRefused(f"the model's forward returns or changes more than logits: {what}")
        (node,) = graph.output_node().args[0]  # type: ignore[misc]
        value = self.env.get(node)  # type: ignore[arg-type]
        shape = lm.shape_of(value) if isinstance(value, SSAValue) else ()
        if len(shape) != 3 or shape[:2] != (1, self.tokens):
            raise ImportRefused(f"logits are {shape}; an import needs [1, {self.tokens}, V]")
        assert isinstance(value, SSAValue)
        return value

    # ---- one node ---------------------------------------------------------------------------

    def node(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            return  # emitted where it is first read
        if node.op == "output":
            return
        if node.op != "call_function":
            self.refuse(node, f"{node.op} in an exported graph")
        for argument in node.all_input_nodes:
            if argument.op == "placeholder" and argument not in self.env:
                self.env[argument] = self.leaf(argument)
        self.location = self.place(module_path(node))
        try:
            self.env[node] = self.call(node)
        except ImportRefused as problem:
            self.refuse(node, str(problem))
        except VerifyException as problem:
            self.refuse(node, f"{node.target} does not fit lm: {problem}")

    def call(self, node: fx.Node) -> Result:
        if node.target is GETITEM:
            parts = self.env[node.args[0]]  # type: ignore[index]
            assert isinstance(parts, tuple)
            return parts[int(node.args[1])]  # type: ignore[call-overload]
        if mask_node(node) is not None:
            return ()  # folded into the window of the attention that reads it
        special = SPECIAL.get(node.target)
        if special is not None:
            return special(self, node)
        row = ROWS.get(node.target)
        if row is None:
            raise ImportRefused(f"{node.target} has no lm op")
        call = Call(node, bind(node), self.env, self.emit)
        result = row(call)
        if (rest := unread(call)) is not None:
            raise ImportRefused(f"{node.target} with {rest}")
        values = result if isinstance(result, tuple) else (result,)
        expected = [tensor_type(t) for t in result_types(node)]
        if [v.type for v in values] != expected:
            found = ", ".join(str(v.type) for v in values)
            wanted = ", ".join(map(str, expected))
            raise ImportRefused(f"{node.target} gives {wanted}, its lm op {found}")
        return result

    def place(self, path: str) -> NameLoc:
        """The location of what comes from a module: its dotted path, or the model's name."""
        return NameLoc(StringAttr(path or self.source.name), NoneAttr())

    def emit(self, op: Operation) -> SSAValue:
        op.location = self.location
        self.block.add_op(op)
        return op.results[0]

    def refuse(self, node: fx.Node, what: str) -> NoReturn:
        raise ImportRefused(f"{what}, in {module_path(node) or 'forward'}{source_line(node)}")

    def refuse_side_effects(self, graph: fx.Graph) -> None:
        """In-place and assertion ops change results without being read, so they are refused even
        where nothing reads them."""
        for node in graph.nodes:
            schema = getattr(node.target, "_schema", None)
            if node.target in IN_PLACE and not changes_unseen(node, FRESH):
                self.refuse(node, f"{node.target} changes a value in place that others may see")
            known = node.target in ROWS or node.target in SPECIAL or node.target in ASSERTIONS
            if schema is None or known:
                continue
            if schema.is_mutable or not schema.returns:
                self.refuse(node, f"{node.target} has an effect beside its result")

    # ---- leaves -----------------------------------------------------------------------------

    def leaf(self, node: fx.Node) -> Result:
        spec = self.placeholders[node.name]
        if spec.kind == InputKind.USER_INPUT:
            return self.user_input(node)
        path = (spec.target or "").removeprefix(WRAPPED)
        key = self.source.weights.get(path)
        self.location = self.place((key or path).rpartition(".")[0])
        if key is not None:
            return self.weight(key, node.meta["val"])
        if path in self.source.constants:
            return self.constant(path, self.source.constants[path])
        literal_value = self.source.program.constants.get(spec.target or "")
        if spec.kind == InputKind.CONSTANT_TENSOR and has_value(literal_value):
            return self.constant(path, literal_value)  # type: ignore[arg-type]
        raise ImportRefused(f"{path} is neither a weight nor a constant with a known value")

    def user_input(self, node: fx.Node) -> SSAValue:
        first, _ = self.source.program.graph_signature.user_inputs
        tokens, positions = self.block.args[0], self.block.args[1]
        if node.name == first:
            return tokens
        self.location = self.place("")
        return self.emit(lm.PositionsOp(positions, lm.tensor((1, self.tokens), i64)))

    def weight(self, key: str, value: Tensor) -> SSAValue:
        if key not in self.leaves:
            self.leaves[key] = self.emit(lm.WeightOp(key, tensor_type(value)))
        return self.leaves[key]

    def constant(self, path: str, value: Tensor) -> SSAValue:
        if value.numel() > MAX_CONSTANT:
            raise ImportRefused(
                f"buffer {path} holds {value.numel()} elements; a constant has {MAX_CONSTANT} at"
                " most, so make it a persistent buffer or a parameter"
            )
        if path not in self.leaves:
            self.leaves[path] = self.emit(lm.ConstantOp(literal(value)))
        return self.leaves[path]

    # ---- caches and attention ---------------------------------------------------------------

    def append(self, node: fx.Node) -> Result:
        keys, values, layer = node.args
        assert isinstance(layer, int)
        for user in node.users:
            if user.target is not GETITEM:
                raise ImportRefused(f"{user.target} reads the cache of layer {layer}")
            self.check_readers(user, layer)
        pair = []
        for cache, entries in zip(self.caches[layer], (keys, values), strict=True):
            entry = self.env[entries]  # type: ignore[index]
            assert isinstance(entry, SSAValue)
            pair.append(self.emit(kv.AppendOp(cache, entry)))
        self.caches[layer] = (pair[0], pair[1])
        self.layers[node] = layer
        return tuple(pair)

    def check_readers(self, cache: fx.Node, layer: int) -> None:
        """Between its append and attention nothing else may touch a cache."""
        operand = 1 + int(cache.args[1])  # type: ignore[call-overload]
        for user in cache.users:
            places = [i for i, a in enumerate(user.args) if a is cache]
            if user.target is not ops.attention.default or places != [operand]:
                name = ("keys", "values")[operand - 1]
                raise ImportRefused(
                    f"{user.target} reads the {name} of layer {layer} outside attention"
                )

    def attention(self, node: fx.Node) -> Result:
        a = bind(node)
        layers = [self.cache_layer(a[name]) for name in ("keys", "values")]
        if layers[0] is None or layers[0] != layers[1]:
            raise ImportRefused("attention over keys and values that are not one layer's cache")
        token = mask_node(a["mask"])
        if token is None:
            raise ImportRefused("attention under a mask that is not causal or sliding-causal")
        query, sinks = self.env[a["query"]], a["sinks"]
        assert isinstance(query, SSAValue)
        sink_value = None if sinks is None else self.env[sinks]
        assert sink_value is None or isinstance(sink_value, SSAValue)
        keys, values = self.caches[layers[0]]
        given = bind(token)
        window, first_rows = int(given["window"]) or None, int(given["first_rows"])
        position = self.block.args[1]
        op = lm.AttentionOp(
            query, keys, values, position, a["scale"], window, a["softcap"], sink_value,
            first_rows,
        )  # fmt: skip
        return self.emit(op)

    def cache_layer(self, node: Any) -> int | None:
        if not isinstance(node, fx.Node) or node.target is not GETITEM:
            return None
        return self.layers.get(node.args[0])  # type: ignore[arg-type]


GETITEM = operator.getitem
SPECIAL: dict[Any, Any] = {
    ops.kv_append.default: Translator.append,
    ops.attention.default: Translator.attention,
}


def build_module(source: Source, tokens: int, dtype: str) -> builtin.ModuleOp:
    """The verified module of `source`: `@step`, and what amk.* attributes say about it."""
    step = Translator(source, tokens).run()
    vocab = lm.shape_of(step.body.block.last_op.operands[0])[-1]  # type: ignore[union-attr]
    attributes = {
        "amk.tokens": lm.integer(tokens),
        "amk.dtype": StringAttr(dtype),
        "amk.vocab": lm.integer(vocab),
        "amk.name": StringAttr(source.name),
    }
    module = builtin.ModuleOp([step], attributes)
    module.verify()
    return module
