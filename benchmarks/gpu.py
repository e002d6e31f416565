"""Decode on a GPU: checks, times and a comparison, in one run of a few minutes.

    python benchmarks/gpu.py [--shapes smollm2,llama-1b,qwen3-0.6b] [--out gpu.json]
    python benchmarks/gpu.py --model SmolLM2.gguf --text TEXT    with the fidelity gate
    python benchmarks/gpu.py --predict --target h200             no GPU needed: the cost model

For each shape, with random bf16 weights: logits against transformers in float32 at positions 0, 1,
127, 128 and 2,047; microseconds a token by device events, the median of warm launches back to back,
one token and 32 tokens a launch; the share of the bandwidth of a large copy in the same run; and
transformers with a static cache and CUDA graphs in the same run. With --model, the KL divergence of
a real model to transformers' float32. What is worth most comes first, the report is written after
each part, and a part for which too little of --seconds is left is skipped and named. Exits with 1
when a part failed or a check is over its bar.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from gpu_shapes import MEASURED, SHAPES, random_model
from gpu_transformers import device_of, reference_logits, relative_error, time_transformers

POSITIONS = (0, 1, 127, 128, 2047)
LOGITS_BAR = 2e-2
"""Difference from float32 over the largest logit: cached keys and values are rounded to bf16."""
BATCH, STEPS_A_LAUNCH = 20, 32
NEEDS_S = {"ours": 45, "fidelity": 60, "timeline": 40, "transformers": 60}
"""What a part takes, seconds: it is not begun with less left."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def predict_shape(shape: str, target: str, position: int) -> float:
    """Prints the cost model's table; microseconds a token."""
    from amk import compiler
    from amk.codegen.cuda.build import lower_for_gpu
    from amk.codegen.cuda.cost import predict, table
    from amk.runtime.source import as_source
    from amk.targets import find_target

    row = find_target(target)
    assert row.gpu is not None
    source = as_source(random_model(shape, "meta"), "bf16")
    options = compiler.Options(max_seq=max(POSITIONS) + 1, dtype="bf16")
    module = lower_for_gpu(source, options, 1, row.gpu.sms)
    (program,) = compiler.programs_of(module)
    costs = predict(program, row.gpu, position)
    say(f"{shape} on {target}, position {position}: predicted, not measured\n{table(costs)}\n")
    return sum(c.us for c in costs)


class Gpu:
    """The first GPU: its row, its driver, device events and copies."""

    def __init__(self) -> None:
        from amk.runtime.cuda_driver import Driver, detect

        self.target = detect()
        self.call = Driver()
        self.device = self.call("cuDeviceGet", 0)
        self.call("cuCtxSetCurrent", self.call("cuDevicePrimaryCtxRetain", self.device))
        self.start, self.end = self.call("cuEventCreate", 0), self.call("cuEventCreate", 0)

    def us(self, work: Callable[[], None]) -> float:
        """Microseconds the GPU takes for what `work` queues."""
        self.call("cuEventRecord", self.start, 0)
        work()
        self.call("cuEventRecord", self.end, 0)
        self.call("cuEventSynchronize", self.end)
        return 1e3 * float(self.call("cuEventElapsedTime", self.start, self.end))

    def copy_bandwidth(self, nbytes: int) -> float:
        """Bytes a second that a large copy reads and writes."""
        places = [self.call("cuMemAlloc", nbytes) for _ in range(2)]
        try:
            times = [self.us(lambda: self.call("cuMemcpyDtoD", *places, nbytes)) for _ in range(12)]
        finally:
            for place in places:
                self.call("cuMemFree", place)
        return 2 * nbytes / (1e-6 * statistics.median(times[2:]))


class Shape:
    """One shape on the GPU: the model, its program, and what was found."""

    def __init__(self, gpu: Gpu, name: str, max_seq: int):
        from amk.runtime.source import as_source

        self.gpu, self.name, self.max_seq = gpu, name, max_seq
        self.model = random_model(name, device_of()).to("cpu")
        self.source = as_source(self.model, "bf16")
        self.positions = [p for p in POSITIONS if p < max_seq]

    def session(self, timeline: bool = False) -> Any:
        from amk import compiler
        from amk.runtime.cuda_driver import CudaDevice
        from amk.runtime.kernel_session import KernelSession

        program = compiler.compile_kernels(
            self.source, self.gpu.target, self.max_seq, "bf16", tokens=(1,), timeline=timeline
        )
        return KernelSession(program, self.source, CudaDevice(program))

    def ours(self, bandwidth: float, repeats: int) -> dict[str, Any]:
        """Times at both ends of the cache, shares of the bandwidth, logits."""
        start = time.perf_counter()
        with self.session() as session:
            ready = time.perf_counter() - start
            last = self.max_seq - 1
            nbytes = {p: bytes_read(session.program, p) for p in (0, last)}
            us = {p: self.time_launches(session, p, repeats) for p in (0, last)}
            many = min(STEPS_A_LAUNCH, self.max_seq)
            at_once = self.time_steps(session, many, repeats)
            errors = self.check_logits(session)
            notes = session.program.notes
        return {
            "us_per_token": {str(p): us[p] for p in us},
            f"us_per_token_{many}_a_launch": at_once,
            "bytes": {str(p): nbytes[p] for p in nbytes},
            "share_of_bandwidth": {str(p): nbytes[p] / (us[p] * 1e-6) / bandwidth for p in us},
            "growth_over_bytes": (us[last] / us[0]) / (nbytes[last] / nbytes[0]),
            "relative_error_by_position": errors,
            "logits_within_bar": max(errors.values()) <= LOGITS_BAR,
            "seconds_to_compile_and_load": ready,
            "reports": notes,
        }

    def time_launches(self, session: Any, position: int, repeats: int) -> float:
        """Median microseconds of a launch at `position`, in batches that the host runs ahead of."""
        launch = launcher(session, position, 1)
        for _ in range(3):
            launch()

        def batch() -> None:
            for _ in range(BATCH):
                launch()

        return statistics.median(self.gpu.us(batch) for _ in range(repeats)) / BATCH

    def time_steps(self, session: Any, count: int, repeats: int) -> float:
        """Median microseconds a token of launches of `count` tokens from position 0."""
        launch = launcher(session, 0, count)
        launch()
        return statistics.median(self.gpu.us(launch) for _ in range(repeats)) / count

    def check_logits(self, session: Any) -> dict[str, float]:
        """The relative error by position."""
        ids = np.random.default_rng(0).integers(0, session.vocab, max(self.positions) + 1).tolist()
        wanted = reference_logits(self.model, ids, self.positions)
        session.reset()
        found: dict[int, np.ndarray] = {}
        for position, token in enumerate(ids):
            logits = session.step(token)
            if position in wanted:
                found[position] = logits
        return {str(p): relative_error(found[p], wanted[p]) for p in self.positions}

    def timeline(self) -> list[dict[str, Any]]:
        """Where a warm launch at position 0 spends its time, stage by stage."""
        from dataclasses import asdict

        from amk.runtime.kernel_timeline import table

        with self.session(timeline=True) as session:
            for _ in range(5):
                session.reset()
                session.step(1)
            times = session.timeline()
        say(
            f"{self.name}, position 0: measured with a kernel that takes the time\n{table(times)}\n"
        )
        return [asdict(t) for t in times]


def launcher(session: Any, position: int, steps: int) -> Callable[[], None]:
    """Queues a decode launch at `position` and reads nothing. What the cache holds there does not
    matter to its time."""
    arguments, plan = session._arguments[0], session.program.plans[0]
    if session.cache.reserve(0, position + steps):
        session._moved()
    session.cache.written = 0

    def launch() -> None:
        arguments.past, arguments.steps = position, steps
        arguments.number = session.launched[0] + 1
        session.device.launch(0, plan, arguments)
        session.launched[0] += steps
        arguments.steps = 1

    return launch


def bytes_read(program: Any, position: int) -> int:
    """Bytes of weights and live cache rows that a step at `position` reads."""
    from amk.runtime.kernel_program import bytes_of

    caches = [s for s in program.layout.slots if s.kind == "cache"]
    return program.weight_bytes() + sum(bytes_of(s, position + 1) for s in caches)


def fidelity(gpu: Gpu, model: str, text: Path, tokens: int) -> dict[str, Any]:
    """KL to transformers' float32 on a text, against transformers' own eager run in bf16."""
    from amk import compiler
    from amk.runtime.cuda_driver import CudaDevice
    from amk.runtime.evaluate import evaluate
    from amk.runtime.kernel_session import KernelSession
    from amk.runtime.source import open_source
    from amk.runtime.verify import eager_model

    source = open_source(model)
    ids = source.tokenizer().encode(text.read_text(encoding="utf-8"))[:tokens]
    program = compiler.compile_kernels(source, gpu.target, len(ids), "bf16", tokens=(1,))
    with KernelSession(program, source, CudaDevice(program)) as session:
        return evaluate(session, eager_model(source), ids, source.name, "bf16").to_dict()


class Run:
    """The parts of a run in their order; each leaves its result, or why it has none."""

    def __init__(self, seconds: float, out: Path | None):
        self.until = time.monotonic() + seconds
        self.out = out
        self.report: dict[str, Any] = {}
        self.failed = False

    def part(self, kind: str, key: str, work: Callable[[], Any]) -> Any:
        """Runs one part, if there is time, and writes the report."""
        results = self.report.setdefault(kind, {})
        left = self.until - time.monotonic()
        if left < NEEDS_S.get(kind, 0):
            results[key] = {"skipped": f"{max(left, 0):.0f} s left, {NEEDS_S[kind]} needed"}
        else:
            try:
                results[key] = work()
            except Exception as error:  # the other parts are worth having
                self.failed = True
                words = " ".join(str(error).split())
                results[key] = {"failed": f"{type(error).__name__}: {words}"}
        say(f"{kind} {key}: {json.dumps(results[key])[:600]}")
        if self.out is not None:
            self.out.write_text(json.dumps(self.report, indent=1) + "\n")
        return results[key]

    def within_bars(self) -> bool:
        """Did everything that was checked pass?"""
        ours = self.report.get("ours", {}).values()
        fits = self.report.get("fidelity", {}).values()
        return all(r.get("logits_within_bar", True) for r in ours) and all(
            r.get("within_bar") is not False for r in fits
        )


def measure(options: argparse.Namespace) -> int:
    run = Run(options.seconds, options.out)
    gpu = Gpu()
    run.report.update(target=gpu.target.name, max_seq=options.max_seq)
    bandwidth = run.part("copy", "bytes_per_s", lambda: gpu.copy_bandwidth(options.copy_bytes))
    shapes: dict[str, Shape] = {}
    for name in options.shapes:

        def ours(name: str = name) -> dict[str, Any]:
            shapes[name] = Shape(gpu, name, options.max_seq)
            return shapes[name].ours(bandwidth, options.repeats)

        run.part("ours", name, ours)
    if options.model is not None:
        text = options.text or Path(__file__).parents[1] / "docs" / "architecture.md"
        tokens = min(512, options.max_seq)
        work = lambda: fidelity(gpu, options.model, text, tokens)  # noqa: E731
        run.part("fidelity", Path(options.model).name, work)
    for name in [n for n in options.timeline if n in shapes]:
        run.part("timeline", name, shapes[name].timeline)
    for name, shape in shapes.items() if not options.alone else ():
        work = lambda s=shape: time_transformers(s.model, options.max_seq, options.repeats)  # noqa: E731
        run.part("transformers", name, work)
    print(json.dumps(run.report, indent=1))
    say(summary(run.report))
    return 0 if run.within_bars() and not run.failed else 1


def summary(report: dict[str, Any]) -> str:
    """A line a shape, for people."""
    lines = [f"{'shape':12} {'us/token':>9} {'at the end':>10} {'share':>6} {'transformers':>12}"]
    for name, found in report.get("ours", {}).items():
        if "us_per_token" not in found:
            lines.append(f"{name:12} {found}")
            continue
        first, last = found["us_per_token"].values()
        share = next(iter(found["share_of_bandwidth"].values()))
        theirs = report.get("transformers", {}).get(name)
        shown = f"{theirs:12.1f}" if isinstance(theirs, float) else f"{'-':>12}"
        lines.append(f"{name:12} {first:9.1f} {last:10.1f} {share:6.2f} {shown}")
    return "\n".join(lines)


def predict(options: argparse.Namespace) -> int:
    found = {
        s: {str(p): predict_shape(s, options.target, p) for p in (0, max(POSITIONS))}
        for s in options.shapes
    }
    text = json.dumps({"target": options.target, "predicted_us_per_token": found}, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")
    return 0


def names(text: str) -> list[str]:
    found = [name for name in text.split(",") if name]
    for name in found:
        if name not in SHAPES:
            raise argparse.ArgumentTypeError(f"unknown shape {name!r}; known: {', '.join(SHAPES)}")
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", type=names, default=list(MEASURED))
    parser.add_argument(
        "--timeline", type=names, default=["llama-1b"], help="shapes to time by stage"
    )
    parser.add_argument("--model", type=Path, help="a real model, for the fidelity gate")
    parser.add_argument("--text", type=Path, help="of the fidelity gate")
    parser.add_argument("--alone", action="store_true", help="without transformers' time")
    parser.add_argument("--max-seq", type=int, default=max(POSITIONS) + 1)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--copy-bytes", type=int, default=4 << 30)
    parser.add_argument("--seconds", type=float, default=450, help="for all parts")
    parser.add_argument("--predict", action="store_true", help="the cost model alone")
    parser.add_argument("--target", default="h200", help="of --predict")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    from amk.errors import AmkError

    try:
        return predict(options) if options.predict else measure(options)
    except AmkError as error:
        say(f"gpu.py: {error}")
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
