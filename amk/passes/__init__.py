"""The registry of passes and pipelines, and the driver that runs them.

A pass is imported when it is first asked for. `PIPELINES` name pipeline strings, which may be
used inside others; options given to a pipeline go to its passes that have them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError, VerifyException

from amk.errors import AmkError
from amk.ir import context as context
from amk.passes.remarks import Remark
from amk.passes.rewriting import where


def _load(module: str, name: str) -> Callable[[], type[ModulePass]]:
    return lambda: getattr(import_module(module), name)


PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    "assign-workers": _load("amk.passes.assign_workers", "AssignWorkers"),
    "canonicalize": _load("amk.passes.canonicalize", "Canonicalize"),
    "cse": _load(
        "xdsl.transforms.common_subexpression_elimination", "CommonSubexpressionElimination"
    ),
    "dce": _load("xdsl.transforms.dead_code_elimination", "DeadCodeElimination"),
    "greedy-head": _load("amk.passes.greedy_head", "GreedyHead"),
    "legal-lm": _load("amk.passes.legal_lm", "LegalLm"),
    "legal-mk": _load("amk.passes.legal_mk", "LegalMk"),
    "promote-f32": _load("amk.passes.promote_f32", "PromoteF32"),
    "raise": _load("amk.passes.raise_", "Raise"),
    "fuse": _load("amk.passes.fuse", "Fuse"),
    "fold-kv": _load("amk.passes.fold_kv", "FoldKv"),
    "unfold-kv": _load("amk.passes.unfold_kv", "UnfoldKv"),
    "kv-window-outputs": _load("amk.passes.kv_window_outputs", "KvWindowOutputs"),
    "kv-dtype": _load("amk.passes.kv_dtype", "KvDtype"),
    "kv-policy": _load("amk.passes.kv_policy", "KvPolicy"),
    "lower-lm-to-mk": _load("amk.passes.lower_lm_to_mk", "LowerLmToMk"),
    "pack-weights": _load("amk.passes.pack_weights", "PackWeights"),
    "place-kv-append": _load("amk.passes.place_kv_append", "PlaceKvAppend"),
    "plan-buffers": _load("amk.passes.plan_buffers", "PlanBuffers"),
    "schedule": _load("amk.passes.schedule", "Schedule"),
    "split-init": _load("amk.passes.split_init", "SplitInit"),
    "split-kv": _load("amk.passes.split_kv", "SplitKv"),
    "stream-weights": _load("amk.passes.stream_weights", "StreamWeights"),
    "minimize-waits": _load("amk.passes.minimize_waits", "MinimizeWaits"),
    "verify-mk": _load("amk.passes.verify_mk", "VerifyMk"),
    "warp-reductions": _load("amk.passes.warp_reductions", "WarpReductions"),
}

PIPELINES: dict[str, str] = {
    "amk-lm": "promote-f32,canonicalize,raise,split-init,canonicalize,split-kv,legal-lm",
    "amk-mk": (
        "kv-policy,kv-dtype,greedy-head,fuse,place-kv-append,lower-lm-to-mk,legal-mk,"
        "plan-buffers,schedule,verify-mk"
    ),
    "amk-decode": "amk-lm,amk-mk",
    "amk-prefill": "amk-lm,amk-mk",
    "amk-cuda": (
        "amk-lm,pack-weights,kv-policy,kv-dtype,greedy-head,fuse{whole-heads=reader},"
        "place-kv-append,lower-lm-to-mk{tile-bytes=262144},legal-mk,"
        "warp-reductions,plan-buffers,schedule{kind=static groups=true}"
    ),
}


@dataclass(frozen=True)
class PassReport:
    """One pass that ran: its name, wall seconds, what it counted, and what it had to say."""

    name: str
    seconds: float
    statistics: dict[str, int] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)


def parse_passes(spec: str) -> list[ModulePass]:
    """The passes of a pipeline string, named pipelines expanded.

    Raises AmkError for an unknown pass, an unknown option or a bad value.
    """
    try:
        specs = list(parse_pipeline(spec))
    except ArgSpecParseError as e:
        raise AmkError(f"cannot read the pipeline {spec!r}: {last_line(e)}") from e
    return [p for s in specs for p in _instantiate(s)]


def _instantiate(spec: ArgSpec) -> Iterator[ModulePass]:
    if spec.name in PIPELINES:
        yield from _instantiate_pipeline(spec)
        return
    if spec.name not in PASSES:
        known = ", ".join(sorted([*PASSES, *PIPELINES]))
        raise AmkError(f"unknown pass {spec.name!r}; known: {known}")
    try:
        yield PASSES[spec.name]().from_spec(spec)
    except (ValueError, TypeError) as e:
        raise AmkError(f"pass {spec.name}: {first_line(e)}") from e


def _instantiate_pipeline(spec: ArgSpec) -> Iterator[ModulePass]:
    inner = list(parse_pipeline(PIPELINES[spec.name]))
    taken: set[str] = set()
    for s in inner:
        options = _options(s.name)
        given = {k: v for k, v in spec.parameters.items() if k.replace("-", "_") in options}
        taken |= given.keys()
        yield from _instantiate(ArgSpec(s.name, {**s.parameters, **given}))
    if unknown := spec.parameters.keys() - taken:
        raise AmkError(f"pipeline {spec.name}: no pass has the option {sorted(unknown)[0]!r}")


def _options(name: str) -> set[str]:
    """The options a pass, or any pass of a pipeline, has."""
    if name in PIPELINES:
        return set().union(*(_options(s.name) for s in parse_pipeline(PIPELINES[name])))
    return {f.name for f in dataclasses.fields(PASSES[name]())} if name in PASSES else set()


def run_pipeline(
    module: ModuleOp,
    spec: str,
    ctx: Context | None = None,
    on_pass: Callable[[str, ModuleOp, float], None] | None = None,
    check: str = "each",
) -> list[PassReport]:
    """Runs the passes `spec` names on `module`, in place.

    `check` says when the module is verified: after "each" pass, at the "borders" between phases
    (after a legality pass and after the last one), or "never". `on_pass(name, module, seconds)`
    is called after each pass. Raises AmkError that names the pass when the pass fails or leaves
    IR that does not verify.
    """
    ctx = context() if ctx is None else ctx
    reports: list[PassReport] = []
    passes = parse_passes(spec)
    for p in passes:
        start = time.perf_counter()
        try:
            p.apply(ctx, module)
        except VerifyException as e:
            raise AmkError(f"pass {p.name}: {first_line(e)}") from e
        seconds = time.perf_counter() - start
        try:
            border = p.name.startswith("legal-") or p is passes[-1]
            if check == "each" or (check == "borders" and border):
                verify(module)
        except VerifyException as e:
            raise AmkError(f"after pass {p.name} the module is invalid: {first_line(e)}") from e
        counted, said = (p.__dict__.get(name, ()) for name in ("statistics", "remarks"))
        reports.append(PassReport(p.name, seconds, dict(counted), list(said)))
        if on_pass is not None:
            on_pass(p.name, module, seconds)
    return reports


def verify(module: ModuleOp) -> None:
    """Verifies every op, and that each value is defined before it is used (xDSL checks the first
    only). Raises VerifyException that names the op."""
    _verify(module, set())


def _verify(op: Operation, seen: set[SSAValue]) -> None:
    try:
        op.verify(verify_nested_ops=False)
    except VerifyException as e:
        raise VerifyException(f"{first_line(e)}, at {where(op)}") from e
    for region in op.regions:
        for block in region.blocks:
            seen.update(block.args)
            for inner in block.ops:
                for i, value in enumerate(inner.operands):
                    if value not in seen:
                        raise VerifyException(
                            f"operand {i} is used before it is defined, at {where(inner)}"
                        )
                _verify(inner, seen)
                seen.update(inner.results)


def first_line(error: BaseException) -> str:
    """The first line of a message that says something (xDSL prints the whole op before it)."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    plain = [line for line in lines if not line.startswith(("Operation does not verify", '"', "^"))]
    return (plain or lines or [type(error).__name__])[0]


def last_line(error: BaseException) -> str:
    """The last line of a message that says something (the pipeline parser shows the text first)."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
