"""The arithmetic of the native targets in numpy, bit for bit.

Every function repeats the operations of the C snippets in `amk/codegen/cpu` in their documented
order, on float32 arrays. NaNs agree as NaNs; their payloads are left open.
"""

from amk.interpreters.numerics_attention import attention_combine, attention_partial
from amk.interpreters.numerics_float import (
    fma32,
    from_bf16_bits,
    from_f16_bits,
    to_bf16_bits,
    to_f16_bits,
)
from amk.interpreters.numerics_math import (
    erf,
    exp,
    gelu_erf,
    gelu_tanh,
    rsqrt,
    sigmoid,
    silu,
    tanh,
)
from amk.interpreters.numerics_reduce import (
    matmul,
    reduce_max,
    reduce_mean,
    reduce_sum,
    reduce_sum_squares,
)

__all__ = [
    "attention_combine",
    "attention_partial",
    "erf",
    "exp",
    "fma32",
    "from_bf16_bits",
    "from_f16_bits",
    "gelu_erf",
    "gelu_tanh",
    "matmul",
    "reduce_max",
    "reduce_mean",
    "reduce_sum",
    "reduce_sum_squares",
    "rsqrt",
    "sigmoid",
    "silu",
    "tanh",
    "to_bf16_bits",
    "to_f16_bits",
]
