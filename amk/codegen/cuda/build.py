"""From a model to kernels for a GPU: lowering, configurations from large to small, machine code."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import DictionaryAttr

from amk.codegen.cpu.emit import slot_of
from amk.codegen.cuda.emit import emit_cuda, fixed_bytes, machine_of, shared_wanted
from amk.codegen.layout import Layout, Slot
from amk.errors import AmkError
from amk.ir import mk
from amk.ir.lm import integer
from amk.runtime.certificate import save_certificate
from amk.runtime.cuda_nvrtc import CUBIN_NAME, LOG_NAME, check_arch, compile_cubin, usage_of
from amk.runtime.cuda_report import Report, report_of, resources_of
from amk.runtime.kernel_program import KernelProgram, Plan, bytes_of, certified, save_kernels
from amk.runtime.source import Source
from amk.targets import Gpu, Target
from amk.verify.certify import certify
from amk.verify.resources import RESOURCES

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from amk.compiler import OnPass, Options

MAX_SLOTS = 64  # of the ring: what its barriers are given room for


@dataclass(frozen=True)
class Configuration:
    """What may be made smaller when a kernel does not fit: the ring, and the rows of a matrix that
    a warp multiplies at a time. `kept_bytes` is what prologues may keep in shared memory."""

    ring_bytes: int
    rows: int
    kept_bytes: int

    def __str__(self) -> str:
        return f"{self.ring_bytes // 1024} KB ring, {self.rows} row(s) a warp"


@dataclass
class Kernel:
    """One program, emitted and perhaps compiled."""

    text: str
    plan: Plan
    proof: dict[str, Any]
    program: mk.ProgramOp
    report: Report | None = None
    folder: Path | None = None
    notes: list[str] | None = None


def build_kernels(
    source: Source,
    options: Options,
    target: Target,
    folder: Path,
    on_pass: OnPass | None = None,
    workers: int | None = None,
    machine_code: bool = True,
    tile_bytes: int | None = None,
    timeline: bool = False,
) -> None:
    """Compiles a model into `folder` (see KernelProgram). `workers` is the grid, by default the
    GPU's SMs; without `machine_code` the text alone is written, for a host that runs it.

    Raises ToolchainError without NVRTC or when it does not know the architecture, AmkError when
    the model cannot fit the GPU's memory or no configuration is free of spills; before files.
    """
    from amk.compiler import check_weights, facts_of, programs_of
    from amk.interpreters.common_init import common_init

    gpu = target.gpu
    assert gpu is not None
    if machine_code:
        check_arch(gpu.arch)
    layout, kernels = Layout(), []
    modules: list[ModuleOp] = []
    for number, tokens in enumerate(options.tokens):
        blocks = workers or gpu.sms
        module = lower_for_gpu(source, options, tokens, blocks, on_pass, tile_bytes)
        modules.append(module)
        (program,) = programs_of(module)
        slots = [slot_of(b, number) for b in program.buffers()]
        check_memory(source.name, *resident_bytes(slots, options.max_seq), target)
        layout.tokens.append(tokens)
        layout.arenas.append(program.arena.value.data)
        title = f"{program.sym_name.data} of {source.name}, {options.dtype}, for {target.name}"
        kernels.append(fit(module, number, layout, gpu, title, machine_code, timeline))
    check_weights(source, modules[0])
    init = common_init(modules)
    notes = [line for k in kernels for line in k.notes or ()]
    save_kernels(
        folder, facts_of(source, options, modules[0]), layout, init,
        [k.text for k in kernels], [k.plan for k in kernels], notes,
    )  # fmt: skip
    made = KernelProgram(folder)
    check_memory(source.name, made.device_bytes(), made.weight_bytes(), target)
    for kernel, tokens in zip(kernels, options.tokens, strict=True):
        if kernel.folder is not None:
            shutil.copyfile(kernel.folder / CUBIN_NAME, folder / f"program-{tokens}.cubin")
    save_certificate(folder, [k.proof for k in kernels], certified(folder))


def lower_for_gpu(
    source: Source,
    options: Options,
    tokens: int,
    workers: int,
    on_pass: OnPass | None = None,
    tile_bytes: int | None = None,
) -> ModuleOp:
    """Imports the model and lowers it to a static schedule of `workers` blocks."""
    from amk.frontend.hf import import_model
    from amk.passes import run_pipeline

    module = import_model(source.importable(), tokens=tokens, dtype=options.dtype)
    if on_pass is not None:
        on_pass("import", module, 0.0)
    tiles = "" if tile_bytes is None else f" tile-bytes={tile_bytes}"
    storage = options.kv_dtype or "keep"
    kept = f"storage={storage} policy={options.kv_policy}"
    spec = f"amk-cuda{{max-seq={options.max_seq} workers={workers} {kept}{tiles}}}"
    run_pipeline(module, spec, on_pass=on_pass, check="borders")
    return module


def fit(
    module: ModuleOp,
    number: int,
    layout: Layout,
    gpu: Gpu,
    title: str,
    machine_code: bool,
    timeline: bool = False,
) -> Kernel:
    """The first configuration whose kernel is resident at once and spills nothing."""
    notes: list[str] = []
    for configuration in configurations(module, gpu):
        kernel = emit(module, number, layout, gpu, title, configuration, timeline)
        if not machine_code:
            return kernel
        kernel.folder = compile_cubin(kernel.text, gpu.arch)
        usage = usage_of((kernel.folder / LOG_NAME).read_text())
        kernel.report = report_of(kernel.plan, usage, gpu)
        line = f"program of {kernel.plan.tokens} token(s): {kernel.report.line()}"
        if kernel.report.coresident and not kernel.report.spills:
            kernel.notes = [*notes, line]
            resources = resources_of(kernel.plan, usage, gpu)
            kernel.proof = certify_resident(kernel.program, resources)
            return kernel
        notes.append(f"{line}; {configuration} does not fit, trying the next smaller")
    raise AmkError(f"cuda: no configuration fits sm_{gpu.arch}: {notes[-1] if notes else title}")


def configurations(module: ModuleOp, gpu: Gpu) -> Iterator[Configuration]:
    """From what keeps the memory busiest to what takes the least."""
    from amk.compiler import programs_of

    (program,) = programs_of(module)
    wanted, area = shared_wanted(program, machine_of(program, gpu))
    kept = max(min(wanted, gpu.shared - fixed_bytes(MAX_SLOTS) - area), 0)
    room = gpu.shared - fixed_bytes(MAX_SLOTS) - kept - 2 * area
    ring = min(gpu.in_flight, room) if program.tokens.value.data == 1 else 0
    # A smaller ring saves shared memory, fewer rows save registers; without a ring nothing runs
    # ahead, so that comes last.
    for size in (ring, ring // 2, 0) if ring > 0 else (0,):
        for rows in (2, 1):
            yield Configuration(size, rows, kept)


def emit(
    module: ModuleOp,
    number: int,
    layout: Layout,
    gpu: Gpu,
    title: str,
    chosen: Configuration,
    timeline: bool = False,
) -> Kernel:
    from amk.compiler import programs_of
    from amk.passes import run_pipeline

    streamed = module.clone()
    if chosen.ring_bytes:
        run_pipeline(streamed, f"stream-weights{{ring-bytes={chosen.ring_bytes}}}", check="borders")
    (program,) = programs_of(streamed)
    machine = replace(machine_of(program, gpu, chosen.kept_bytes), rows=chosen.rows)
    text, plan = emit_cuda(program, number, layout, gpu, title, machine, timeline)
    return Kernel(text, plan, asdict(certify(program)), program)


def certify_resident(program: mk.ProgramOp, resources: Mapping[str, int]) -> dict[str, Any]:
    """The proof of a program with V10 decided by what its machine code takes and the GPU has.
    AmkError when the grid would not be resident at once."""
    numbers = {name: integer(n) for name, n in resources.items()}
    program.attributes[RESOURCES] = DictionaryAttr(numbers)
    return asdict(certify(program))


def resident_bytes(slots: Sequence[Slot], max_seq: int) -> tuple[int, int]:
    """Bytes of weights and caches of `max_seq` rows, and of the weights alone."""
    weights = sum(bytes_of(s, 0) for s in slots if s.kind == "weight")
    return weights + sum(bytes_of(s, max_seq) for s in slots if s.kind == "cache"), weights


def check_memory(name: str, need: int, weights: int, target: Target) -> None:
    """AmkError when `need` bytes, some of them of weights, exceed the GPU's memory."""
    gpu = target.gpu
    assert gpu is not None
    if need > gpu.memory:
        raise AmkError(
            f"{name} needs {need / 1e9:.1f} GB ({weights / 1e9:.1f} of weights) and"
            f" {target.name} has {gpu.memory / 1e9:.1f}: use a shorter max_seq, a smaller dtype or"
            " another target"
        )
