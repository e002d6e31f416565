"""Decode on a GPU: checks, times and a comparison, in one run of a few minutes.

    python benchmarks/gpu.py [--shapes llama-1b,qwen3-0.6b,smollm2] [--out gpu.json]
    python benchmarks/gpu.py --predict --target h200        no GPU needed: the cost model's table

For each shape, with random bf16 weights: logits against transformers at positions 0, 1, 127, 128
and 2,047; time per token by device events, median over warm launches, at positions 0 and 2,047;
transformers with a static cache and torch.compile(mode="reduce-overhead") in the same run; and the
bandwidth of a large copy in the same run, of which the share is given.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

POSITIONS = (0, 1, 127, 128, 2047)
MAX_SEQ = 2048
STEPS = 50
COPY_BYTES = 4 << 30

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-1b": (
        "llama",
        {
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
        },
    ),
    "qwen3-0.6b": (
        "qwen3",
        {
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
    ),
    "smollm2": (
        "llama",
        {
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "head_dim": 64,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        },
    ),
}


def config_of(shape: str) -> Any:
    from transformers import AutoConfig

    kind, numbers = SHAPES[shape]
    return AutoConfig.for_model(kind, **numbers)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- the prediction, without a GPU ----


def predict_shape(shape: str, target: str, position: int) -> float:
    """Prints the cost model's table; microseconds a token."""
    from amk import compiler
    from amk.codegen.cuda.build import lower_for_gpu
    from amk.codegen.cuda.cost import predict, table
    from amk.runtime.source import as_source
    from amk.targets import find_target

    row = find_target(target)
    assert row.gpu is not None
    source = as_source(meta_model(shape), "bf16")
    options = compiler.Options(max_seq=MAX_SEQ, dtype="bf16")
    module = lower_for_gpu(source, options, 1, row.gpu.sms)
    (program,) = compiler.programs_of(module)
    costs = predict(program, row.gpu, position)
    say(f"{shape} on {target}, position {position}: predicted, not measured\n{table(costs)}\n")
    return sum(c.us for c in costs)


def meta_model(shape: str) -> Any:
    """The model without weights: lowering needs shapes alone."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config_of(shape), dtype=torch.bfloat16)


# ---- measurements ----


def random_model(shape: str) -> Any:
    """The seeded model on the CPU, in bf16."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    config = config_of(shape)
    return AutoModelForCausalLM.from_config(
        config, dtype=torch.bfloat16, attn_implementation="eager"
    ).eval()


class Clock:
    """Device events of the driver."""

    def __init__(self, call: Any):
        self.call = call
        self.start, self.end = call("cuEventCreate", 0), call("cuEventCreate", 0)

    def us(self, work: Any) -> float:
        self.call("cuEventRecord", self.start, 0)
        work()
        self.call("cuEventRecord", self.end, 0)
        self.call("cuEventSynchronize", self.end)
        return 1e3 * float(self.call("cuEventElapsedTime", self.start, self.end))


def time_steps(session: Any, clock: Clock, position: int) -> float:
    """Median microseconds of a decode launch at `position`, back to back, nothing read between."""
    arguments, plan = session._arguments[0], session.program.plans[0]
    session.cache.reserve(0, position + 1)
    session._moved()

    def launch() -> None:
        session.launched[0] += 1
        arguments.past, arguments.number = position, session.launched[0]
        session.device.launch(0, plan, arguments)

    for _ in range(10):
        launch()
    return statistics.median(clock.us(launch) for _ in range(STEPS))


def check_logits(session: Any, model: Any) -> dict[str, float]:
    """Largest difference from transformers in f32 over the largest logit, by position."""
    import numpy as np
    import torch

    reference = model.to("cuda", torch.float32)
    ids = np.random.default_rng(0).integers(0, session.vocab, max(POSITIONS) + 1)
    with torch.no_grad():
        hidden = reference.model(torch.tensor(ids, device="cuda")[None]).last_hidden_state[0]
        wanted = {p: reference.lm_head(hidden[p]).cpu().numpy() for p in POSITIONS}
    session.reset()
    found: dict[int, Any] = {}
    for position, token in enumerate(ids):
        logits = session.step(int(token))
        if position in wanted:
            found[position] = logits
    model.to("cpu", torch.bfloat16)
    torch.cuda.empty_cache()
    return {
        str(p): float(np.abs(found[p] - wanted[p]).max() / np.abs(wanted[p]).max())
        for p in POSITIONS
    }


def time_transformers(model: Any) -> float:
    """Median microseconds a token of transformers: static cache, CUDA graphs."""
    import torch
    from transformers import StaticCache

    model = model.to("cuda", torch.bfloat16)
    model.set_attn_implementation("sdpa")
    cache = StaticCache(config=model.config, max_cache_len=MAX_SEQ)
    step = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
    token = torch.zeros(1, 1, dtype=torch.long, device="cuda")
    times = []
    with torch.no_grad():
        for i in range(STEPS + 10):
            position = torch.tensor([i], device="cuda")
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            step(
                input_ids=token, position_ids=position[None], past_key_values=cache,
                use_cache=True, cache_position=position,
            )  # fmt: skip
            end.record()
            end.synchronize()
            times.append(1e3 * start.elapsed_time(end))
    model.to("cpu")
    return statistics.median(times[10:])


def copy_bandwidth() -> float:
    """Bytes a second that a large copy reads and writes."""
    import torch

    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(12):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(1e-3 * start.elapsed_time(end))
    return 2 * COPY_BYTES / statistics.median(times[2:])


def measure(shape: str, target: Any, bandwidth: float, against: bool) -> dict[str, Any]:
    from amk import compiler
    from amk.runtime.cuda_driver import CudaDevice
    from amk.runtime.kernel_session import KernelSession
    from amk.runtime.source import as_source

    model = random_model(shape)
    source = as_source(model, "bf16")
    program = compiler.compile_kernels(source, target, MAX_SEQ, "bf16")
    with KernelSession(program, source, CudaDevice(program)) as session:
        clock = Clock(session.device._call)
        us = {str(p): time_steps(session, clock, p) for p in (0, MAX_SEQ - 1)}
        errors = check_logits(session, model)
    nbytes = program.weight_bytes()
    result = {
        "us_per_token": us,
        "weight_bytes": nbytes,
        "share_of_bandwidth": nbytes / (us["0"] * 1e-6) / bandwidth,
        "relative_error_by_position": errors,
        "reports": program.notes,
    }
    if against:
        result["transformers_us_per_token"] = time_transformers(model)
    say(json.dumps({shape: result}, indent=1))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--target", default="h200", help="of --predict")
    parser.add_argument("--predict", action="store_true", help="the cost model alone")
    parser.add_argument("--alone", action="store_true", help="without transformers' time")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    shapes = options.shapes.split(",")
    if options.predict:
        found: dict[str, Any] = {
            s: {str(p): predict_shape(s, options.target, p) for p in (0, MAX_SEQ - 1)}
            for s in shapes
        }
        report = {"target": options.target, "predicted_us_per_token": found}
    else:
        from amk.runtime.cuda_driver import detect

        target = detect()
        bandwidth = copy_bandwidth()
        measured = {s: measure(s, target, bandwidth, not options.alone) for s in shapes}
        report = {"target": target.name, "copy_bytes_per_s": bandwidth, "measured": measured}
    text = json.dumps(report, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
