"""Cost of `verify-mk` at the shapes of large decoders.

    python benchmarks/verify_scale.py [--plot docs/verify_scale.svg] [--max-seq 131072] [--json]

Shapes of Llama-3.2-1B, Llama-3.1-8B and -70B, decode; claimed, and static on 132 and 148 workers
with group waits and streamed weights. Processor seconds of the proof alone, and the peak memory of
the process (each shape in a process of its own). `--plot` proves the 70B shapes at 10 … 80 layers
as well and draws seconds over layers. No weights are needed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
           "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
           "tie_word_embeddings": True},
    "8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
    "70B": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128},
}  # fmt: skip
LIMITS = {"1B": 2.0, "8B": 4.0, "70B": 15.0}
VOCAB = 128_256
SCHEDULES = {
    "claimed": "schedule",
    "static-132": "schedule{kind=static workers=132 groups=true},stream-weights{ring-bytes=180224}",
    "static-148": "schedule{kind=static workers=148 groups=true},stream-weights{ring-bytes=180224}",
}


def lower(shape: dict[str, Any], max_seq: int):
    """The module before it is scheduled."""
    from transformers import LlamaConfig

    from amk.frontend.hf import import_model
    from amk.passes import run_pipeline

    config = LlamaConfig(
        **shape,
        vocab_size=VOCAB,
        max_position_embeddings=131_072,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
    )
    module = import_model(config, tokens=1, dtype="bf16")
    run_pipeline(
        module,
        f"amk-lm{{max-seq={max_seq}}},kv-policy,greedy-head,fuse,place-kv-append,lower-lm-to-mk,"
        "legal-mk,plan-buffers",
        check=False,
    )
    return module


def measure(shape: dict[str, Any], max_seq: int, runs: int = 3) -> dict[str, Any]:
    """Seconds of a proof, the best of some runs, for each schedule; peak memory in MB."""
    from amk.ir import mk
    from amk.passes import run_pipeline
    from amk.verify import prove

    found: dict[str, Any] = {"layers": shape["num_hidden_layers"]}
    module = lower(shape, max_seq)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    for name, spec in SCHEDULES.items():
        copy = module.clone()
        run_pipeline(copy, spec, check=False)
        program = next(op for op in copy.ops if isinstance(op, mk.ProgramOp))
        seconds = []
        for _ in range(runs):
            start = time.process_time()
            report = prove(program)
            seconds.append(time.process_time() - start)
            if not report.holds:
                raise SystemExit(report.summary())
        found[name] = round(min(seconds), 3)
        found["obligations"] = sum(report.obligations.values())
        found["shapes"] = report.exhausted
    found["MB before"] = before
    found["MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return found


def in_process(shape: dict[str, Any], max_seq: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", json.dumps(shape), "--max-seq", str(max_seq)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def plot(points: list[tuple[int, float]], path: Path) -> None:
    """Seconds over layers as a small SVG."""
    width, height, margin = 520, 320, 46
    most = max(seconds for _, seconds in points) * 1.15
    last = max(layers for layers, _ in points)

    def x(layers: float) -> float:
        return margin + layers / last * (width - 2 * margin)

    def y(seconds: float) -> float:
        return height - margin - seconds / most * (height - 2 * margin)

    marks = "".join(
        f'<circle cx="{x(n):.1f}" cy="{y(s):.1f}" r="3.5"/>'
        f'<text x="{x(n):.1f}" y="{y(s) - 9:.1f}" text-anchor="middle">{s:.2f}</text>'
        f'<text x="{x(n):.1f}" y="{height - margin + 18}" text-anchor="middle">{n}</text>'
        for n, s in points
    )
    line = " ".join(f"{x(n):.1f},{y(s):.1f}" for n, s in points)
    axes = f"M{margin} {margin} V{height - margin} H{width - margin}"
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="11" fill="#222">\n'
        f'<path d="{axes}" fill="none" stroke="#888"/>\n'
        f'<polyline points="{line}" fill="none" stroke="#2a6fb0" stroke-width="1.5"/>\n'
        f'{marks}\n<text x="{width / 2}" y="{height - 8}" text-anchor="middle">layers</text>\n'
        f'<text x="{margin}" y="{margin - 14}">seconds of a proof, 70B shapes, 148 workers</text>\n'
        "</svg>\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--max-seq", type=int, default=131_072)
    parser.add_argument("--plot", type=Path, help="write a plot of seconds over layers (SVG)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="which, by comma")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(json.loads(options.one), options.max_seq)))
        return 0
    results = {n: in_process(SHAPES[n], options.max_seq) for n in options.shapes.split(",")}
    if options.plot:
        points: list[tuple[int, float]] = []
        for layers in (10, 20, 40, 60, 80):
            shape = {**SHAPES["70B"], "num_hidden_layers": layers}
            points.append((layers, in_process(shape, options.max_seq)["static-148"]))
        plot(points, options.plot)
        results["layers"] = {str(n): s for n, s in points}
    if options.json:
        print(json.dumps(results))
        return 0
    head = ("shape", "layers", *SCHEDULES, "limit s", "MB", "MB before", "obligations")
    print("  ".join(f"{h:>11}" for h in head))
    for name, limit in LIMITS.items():
        if name in results:
            r = results[name]
            row = (name, r["layers"], *(r[s] for s in SCHEDULES), limit, r["MB"], r["MB before"],
                   r["obligations"])  # fmt: skip
            print("  ".join(f"{v:>11}" for v in row))
    for layers, seconds in results.get("layers", {}).items():
        print(f"70B shapes, {layers:>3} layers: {seconds} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
