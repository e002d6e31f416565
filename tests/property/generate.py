"""Generates decoders as `lm` modules, in the form an import has, with random weights.

`decoders()` is a hypothesis strategy of `DecoderSpec`; `build_decoder.build(spec)` makes the module
and its weights. Every field of a spec has the plainest choice first, which is what hypothesis
shrinks to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

NORMS = (
    "rms",  # w · (x · rsqrt(mean(x²) + eps))
    "rms-square",  # (x · x), weight on the right
    "rms-power",  # (…) ^ −0.5
    "rms-plus-one",  # (1 + w)
    "rms-plain",  # no weight
    "layer",  # lm.layer_norm
    "layer-steps",  # mean, variance, weight and bias written out
    "layer-no-bias",
)
POSITIONS = (
    "rope",  # position · inv_freq, rotate-half
    "rope-matmul",  # inv_freq × position as a matrix product
    "rope-outer",  # position × inv_freq as a matrix product
    "rope-halves",  # written on halves, tables half as wide
    "learned",  # rows of a table
    "learned-offset",  # rows from the third on
    "none",
)
QKV = ("separate", "fused", "fused-heads", "fused-planes", "conv1d")
MLP = ("gated", "gated-fused", "plain", "plain-conv1d")
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "gelu-steps")
MAX_SEQ = 64


@dataclass(frozen=True)
class DecoderSpec:
    """A decoder. Sizes are extents; `rotary` counts the rotated features of a head."""

    tokens: int = 1
    layers: int = 1
    kv_heads: int = 1
    group: int = 1
    head: int = 4
    rotary: int = 4
    width: int = 8
    inner: int = 8
    vocab: int = 11
    norm: str = "rms"
    positions: str = "rope"
    qkv: str = "separate"
    mlp: str = "gated"
    activation: str = "silu"
    bias: bool = False
    qk_norm: bool = False
    parallel: bool = False
    tied: bool = False
    window: int | None = None
    first_rows: int = 0  # that stay in sight beside a window; never drawn
    attention_softcap: float | None = None
    sinks: bool = False
    embedding_scale: float | None = None
    scale_is_tensor: bool = False
    residual_scale: float | None = None
    logits_softcap: float | None = None
    dtype: str = "f32"
    cache_dtype: str = "f32"
    seed: int = 0

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group


def maybe(values: st.SearchStrategy[float]) -> st.SearchStrategy[float | None]:
    return st.none() | values


@st.composite
def decoders(draw: st.DrawFn, dtypes: tuple[str, ...] = ("f32",)) -> DecoderSpec:
    """Valid decoders of every kind the fields of `DecoderSpec` name."""
    head = draw(st.sampled_from((4, 8)))
    scalars = st.sampled_from((1.0, 0.5, 3.0, 0.21875))
    dtype = draw(st.sampled_from(dtypes))
    return DecoderSpec(
        tokens=draw(st.sampled_from((1, 3, 16))),
        layers=draw(st.integers(1, 2)),
        kv_heads=draw(st.integers(1, 2)),
        group=draw(st.integers(1, 3)),
        head=head,
        rotary=draw(st.sampled_from((head, head // 2))),
        width=draw(st.sampled_from((8, 12))),
        inner=draw(st.sampled_from((8, 10))),
        norm=draw(st.sampled_from(NORMS)),
        positions=draw(st.sampled_from(POSITIONS)),
        qkv=draw(st.sampled_from(QKV)),
        mlp=draw(st.sampled_from(MLP)),
        activation=draw(st.sampled_from(ACTIVATIONS)),
        bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        parallel=draw(st.booleans()),
        tied=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 20)),
        attention_softcap=draw(maybe(st.sampled_from((2.0, 30.0)))),
        sinks=draw(st.booleans()),
        embedding_scale=draw(maybe(scalars)),
        scale_is_tensor=draw(st.booleans()),
        residual_scale=draw(maybe(scalars)),
        logits_softcap=draw(maybe(st.sampled_from((2.0, 30.0)))),
        dtype=dtype,
        cache_dtype=dtype,
        seed=draw(st.integers(0, 3)),
    )


ANY_CACHE = decoders(("f32", "bf16")).flatmap(
    lambda spec: st.sampled_from([spec, replace(spec, cache_dtype="f32")])
)
"""Decoders of both dtypes, and bf16 ones over a cache that keeps every bit of f32."""
