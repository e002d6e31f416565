"""Compiles a model's kernels for every GPU of the table, where none needs to be present.

    python benchmarks/gpu_compile.py MODEL                        all rows, for example SmolLM2
    python benchmarks/gpu_compile.py llama-1b --targets h100      a shape of gpu_shapes.py
    python benchmarks/gpu_compile.py MODEL --json rows.json

A line a kernel: its lines of CUDA C, the seconds NVRTC takes, and the resource
report. Exit code 1 when a kernel spills, is not resident at once, or cannot be compiled.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpu_shapes import SHAPES, random_model

from amk.compiler import compile_kernels
from amk.errors import AmkError
from amk.runtime.cache import Cache
from amk.runtime.cuda_nvrtc import compile_cubin
from amk.targets import GPUS


def rows(model: Any, target: str, max_seq: int, dtype: str) -> list[dict[str, Any]]:
    """A row for each kernel of `model`."""
    program = compile_kernels(model, target, max_seq, dtype)
    return [
        {
            "target": target,
            "tokens": plan.tokens,
            "lines": len(program.source(number).splitlines()),
            "seconds": round(nvrtc_seconds(program.source(number), target), 1),
            "report": note,
            "fits": " 0 B stack, 0 B spilled" in note and note.endswith(": co-resident"),
        }
        for number, (plan, note) in enumerate(zip(program.plans, program.notes, strict=True))
    ]


def nvrtc_seconds(source: str, target: str) -> float:
    """Seconds that NVRTC takes from CUDA C to machine code, with nothing found in a cache."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        compile_cubin(source, GPUS[target][1].arch, Cache("cubin", Path(folder)))
        return time.perf_counter() - start


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help=f"MODEL, or a shape: {', '.join(SHAPES)}")
    parser.add_argument("--targets", default=",".join(GPUS), help="names, with commas")
    parser.add_argument("--max-seq", type=int, default=2048)
    parser.add_argument("--dtype", default="bf16", choices=("f32", "bf16", "f16"))
    parser.add_argument("--json", type=Path, metavar="F")
    options = parser.parse_args(argv)
    model = random_model(options.model, "meta") if options.model in SHAPES else options.model
    found: list[dict[str, Any]] = []
    refused = 0
    for target in options.targets.split(","):
        try:
            new = rows(model, target, options.max_seq, options.dtype)
        except AmkError as problem:
            refused += 1
            print(f"{target:8} {problem}", flush=True)
            continue
        found += new
        for row in new:
            size = f"{row['lines']:5} lines {row['seconds']:6.1f} s"
            print(f"{target:8} {size}  {row['report']}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    bad = [row for row in found if not row["fits"]]
    print(
        f"{len(found)} kernels, {len(bad)} do not fit, {refused} targets refused", file=sys.stderr
    )
    return 1 if bad or refused else 0


if __name__ == "__main__":
    sys.exit(main())
