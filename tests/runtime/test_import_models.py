"""The forms a model may be given in, and what the imported module says about it."""

from __future__ import annotations

import copy
from io import StringIO

import pytest
import torch
from torch import nn
from xdsl.context import Context
from xdsl.dialects import builtin, func
from xdsl.dialects.builtin import ModuleOp, NameLoc, StringAttr
from xdsl.parser import Parser
from xdsl.printer import Printer

from amk.errors import ImportRefused
from amk.frontend.hf import import_model
from amk.interpreters.lm import Decoder, empty_caches, run
from amk.ir import kv, lm
from tests import families


def test_dict_and_config_give_one_module() -> None:
    config = families.FAMILIES["gemma2"]()
    assert str(import_model(config.to_dict())) == str(import_model(config))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["llama-tied", "gemma3"])
def test_model_and_config_give_one_module(name: str, dtype: str) -> None:
    model = families.build(name, dtype)
    ours = import_model(model, 4, dtype)
    assert str(ours) == str(import_model(families.FAMILIES[name](), 4, dtype))
    # A model of another dtype imports as its config would in the dtype asked for.
    other = "bf16" if dtype == "f32" else "f32"
    assert str(import_model(model, 4, other)) == str(
        import_model(families.FAMILIES[name](), 4, other)
    )


def test_model_is_left_alone() -> None:
    model = families.build("llama")
    before = (model.config.to_dict(), torch.get_rng_state(), list(model.state_dict()))
    implementation = model.config._attn_implementation
    import_model(model)
    after = (model.config.to_dict(), torch.get_rng_state(), list(model.state_dict()))
    assert before[0] == after[0]
    assert torch.equal(before[1], after[1])
    assert before[2] == after[2]
    assert model.config._attn_implementation == implementation == "eager"
    assert not any(p.is_meta for p in model.parameters())


def test_own_buffers_of_a_model_are_used() -> None:
    """`model.to(bf16)` rounds the inverse frequencies, and eager then computes with those."""
    model = families.build("llama").to(torch.bfloat16)
    ours = Decoder(import_model(model, 1, "bf16"), families.weights(model))
    eager = families.Eager(model)
    for token in families.random_tokens(4):
        assert torch.equal(ours.step([token]), eager.step([token]))


def test_changed_model_is_refused() -> None:
    model = families.build("llama")
    model.model.layers[1].mlp.act_fn = nn.GELU()
    with pytest.raises(ImportRefused, match=r"model.layers.1.mlp.act_fn differs"):
        import_model(model)


def test_hooked_model_is_refused() -> None:
    model = families.build("llama")
    model.model.norm.register_forward_hook(lambda module, args, out: out * 2)
    with pytest.raises(ImportRefused, match=r"model.norm has a forward hook"):
        import_model(model)


def test_f16() -> None:
    model = families.build("llama", "f16")
    ours = Decoder(import_model(model, 1, "f16"), families.weights(model))
    eager = families.Eager(model)
    for token in families.random_tokens(3):
        assert torch.equal(ours.step([token]), eager.step([token]))


def test_attributes_and_signature() -> None:
    module = import_model(families.FAMILIES["llama"](), 3, "bf16", policy="doubling")
    attributes = module.attributes
    assert attributes["amk.tokens"] == lm.integer(3)
    assert attributes["amk.dtype"] == StringAttr("bf16")
    assert attributes["amk.vocab"] == lm.integer(families.VOCAB)
    assert attributes["amk.name"] == StringAttr("llama")
    (step,) = module.body.block.ops
    assert isinstance(step, func.FuncOp)
    bf16 = builtin.BFloat16Type()
    cache = kv.CacheType.get((1, 2, -1, 8), 2, bf16, "doubling")
    inputs, outputs = step.function_type.inputs.data, step.function_type.outputs.data
    assert inputs == (lm.tensor((1, 3), builtin.i64), builtin.IndexType(), *[cache] * 4)
    assert outputs == (lm.tensor((1, 3, families.VOCAB), bf16), *[cache] * 4)


@pytest.mark.parametrize("name", ["llama", "llama-tied", "gpt2", "cohere"])
def test_weight_keys_are_those_of_the_state_dict(name: str) -> None:
    weights = families.weights(families.build(name))
    keys = [op.key.data for op in weight_ops(import_model(families.FAMILIES[name]()))]
    assert len(keys) == len(set(keys)), "each weight appears once"
    tied = {"llama-tied", "gpt2", "cohere"}
    assert set(keys) == set(weights) - ({"lm_head.weight"} if name in tied else set())


def weight_ops(module: ModuleOp) -> list[lm.WeightOp]:
    return [op for op in module.walk() if isinstance(op, lm.WeightOp)]


def test_windows_become_attributes() -> None:
    windows = [
        None if op.window is None else op.window.value.data
        for op in import_model(families.FAMILIES["gemma3"]()).walk()
        if isinstance(op, lm.AttentionOp)
    ]
    assert windows == [5, 5, None]


def test_text_round_trip_keeps_bits_and_locations() -> None:
    module = import_model(families.FAMILIES["gemma3"](), 2, "bf16")
    text = StringIO()
    Printer(stream=text, print_debuginfo=True).print_op(module)
    again = parse(text.getvalue())
    assert str(again) == str(module)
    assert [op.location for op in again.walk()] == [op.location for op in module.walk()]
    paths = [op.location.desc.data for op in module.walk() if isinstance(op.location, NameLoc)]
    assert "model.layers.2.self_attn.q_proj" in paths
    assert "model.rotary_emb" in paths
    assert len(paths) == len(list(module.walk())) - 1, "every op but the module has a name"
    constants = [op.value for op in module.walk() if isinstance(op, lm.ConstantOp)]
    assert constants == [op.value for op in again.walk() if isinstance(op, lm.ConstantOp)]


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (builtin.Builtin, func.Func, lm.LM, kv.KV):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


# ---- plain modules ------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, layer: int, window: int):
        super().__init__()
        self.layer, self.window = layer, window
        self.norm = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 64)
        self.out = nn.Linear(32, 32)
        self.sinks = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).split([32, 16, 16], dim=-1)
        q, k, v = (t.unflatten(2, (-1, 8)).transpose(1, 2) for t in (q, k, v))
        k, v = torch.ops.amk.kv_append(k, v, self.layer)
        seen = torch.ops.amk.mask(self.window, x.device)
        out = torch.ops.amk.attention(q, k, v, seen, 8**-0.5, 20.0, self.sinks)
        return x + self.out(out.flatten(2))


class Tiny(nn.Module):
    """A decoder that is no transformers model: learned positions, sinks, softcap, a window."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(97, 32), nn.Embedding(64, 32)
        self.blocks = nn.ModuleList([Block(0, 3), Block(1, 0)])
        self.head = nn.Linear(32, 97, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("gain", torch.tensor(1.5), persistent=False)
        self.register_buffer("shift", torch.randn(32))

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) * self.gain + self.place(positions) + self.shift
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture
def tiny() -> Tiny:
    torch.manual_seed(0)
    return Tiny().eval()


def test_plain_module(tiny: Tiny) -> None:
    """Run outside an import, the module computes a launch at position 0: that is the oracle."""
    tokens = torch.tensor([families.random_tokens(7)])
    with torch.no_grad():
        expect = tiny(tokens, torch.arange(7)[None])
    weights = {k: v.detach() for k, v in tiny.state_dict().items()}
    module = import_model(tiny, 7)
    logits, caches = run(module, tokens, 0, empty_caches(module), weights)
    assert torch.equal(logits, expect)
    assert [tuple(c.shape) for c in caches] == [(1, 2, 7, 8)] * 4

    ours = Decoder(import_model(tiny, 1), weights)
    rows = torch.cat([ours.step([int(t)]) for t in tokens[0]])
    torch.testing.assert_close(rows, expect[0], rtol=1e-5, atol=1e-5)


def test_plain_module_names(tiny: Tiny) -> None:
    module = import_model(tiny)
    keys = {op.key.data for op in weight_ops(module)}
    assert keys == set(tiny.state_dict()) - {"head.weight"}
    assert module.attributes["amk.name"] == StringAttr("Tiny")
    assert not any(p.is_meta for p in tiny.parameters())


def test_plain_module_in_bf16(tiny: Tiny) -> None:
    half = copy.deepcopy(tiny).to(torch.bfloat16)
    tokens = torch.tensor([families.random_tokens(5)])
    with torch.no_grad():
        expect = half(tokens, torch.arange(5)[None])
    module = import_model(half, 5, "bf16")
    weights = {k: v.detach() for k, v in half.state_dict().items()}
    logits, _ = run(module, tokens, 0, empty_caches(module), weights)
    assert torch.equal(logits, expect)
