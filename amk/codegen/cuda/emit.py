"""`mk` programs as CUDA C: a persistent kernel a program, a block a worker.

The text is the same for a GPU (through NVRTC, with device/amk_device.h) and for the host (with
simt/amk_device.h). Its kernel is `amk_program`; `Plan` says how to launch it and what its tables
expect. Stages that differ in their buffers alone share a function, so neither text nor compile time
grows with depth.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from amk.codegen.cpu.emit import c_string, slot_of
from amk.codegen.cuda.counters import Counters
from amk.codegen.cuda.stage import Functions, Machine, StageEmitter
from amk.codegen.layout import Layout
from amk.codegen.ready import refuse_unready
from amk.errors import AmkError
from amk.ir import mk
from amk.runtime.kernel_program import Plan
from amk.targets import Gpu

WARPS = 8
ALIGNMENT = 128
SUMS_BYTES = 4 * WARPS * 4


def shared_wanted(program: mk.ProgramOp, machine: Machine) -> tuple[int, int]:
    """Bytes of shared memory that prologues and tiles of a program want: (kept, a tile's)."""
    sizes = [StageEmitter(stage, machine).emit() for stage in program.stages()]
    return align(max(f.kept_bytes for f in sizes)), align(max(f.area_bytes for f in sizes))


def machine_of(program: mk.ProgramOp, gpu: Gpu, kept_limit: int | None = None) -> Machine:
    """The configuration that the attributes of a program and a GPU decide. What prologues keep
    beyond `kept_limit` bytes, by default all of shared memory, goes to global memory."""
    workers = program.static_workers
    if workers is None:
        raise AmkError("cuda: the schedule is not static; run assign-workers")
    streams = [op for op in program.body.block.ops if isinstance(op, mk.StreamOp)]
    if len(streams) > 1:
        raise AmkError("cuda: one ring a worker")
    slots, slot_bytes = (
        (streams[0].slots.value.data, streams[0].slot_bytes.value.data) if streams else (0, 0)
    )
    tokens = program.tokens.value.data
    mma = {"AMK_F16", *(["AMK_BF16"] if gpu.bf16_mma else [])} if tokens % 16 == 0 else set()
    return Machine(
        workers=workers,
        tokens=tokens,
        max_seq=program.max_seq.value.data,
        kept_limit=gpu.shared if kept_limit is None else kept_limit,
        slots=slots,
        slot_bytes=slot_bytes,
        mma=frozenset(mma),
    )


def emit_cuda(
    program: mk.ProgramOp,
    number: int,
    layout: Layout,
    gpu: Gpu,
    title: str,
    machine: Machine,
    timeline: bool = False,
) -> tuple[str, Plan]:
    """The CUDA C file of one program, and its plan. `layout` gains the program's buffers. With
    `timeline` each block writes down when it began, could begin to work on, and ended each stage.

    Raises AmkError when what a tile keeps does not fit the shared memory of a block, and for a
    program that a pass has still to see, or that is not proved.
    """
    refuse_unready(program, "cuda")
    tables = Tables(program, number, layout, machine)
    functions: dict[tuple[str, str], int] = {}
    names: dict[int, list[str]] = {}
    sizes: list[Functions] = []
    for stage in program.stages():
        emitter = StageEmitter(stage, machine, raises=stage is tables.maker)
        text = emitter.emit()
        sizes.append(text)
        key = (with_operands(text.compute), with_operands(text.feed))
        function = functions.setdefault(key, len(functions))
        names.setdefault(function, []).append(stage.sym_name.data)
        tables.add(stage, function, emitter)
    plan = plan_of(tables, sizes, machine, gpu)
    plan.timeline = timeline
    parts = [
        header(title, plan, machine, gpu),
        tables.text(),
        *(function_text(n, *key, names[n]) for key, n in functions.items()),
        kernel_text(list(functions), machine, tables.feedback, timeline),
    ]
    return "\n".join(parts), plan


def with_operands(text: str) -> str:
    """A function's body behind the pointers it uses."""
    used = sorted({int(k) for k in re.findall(r"\bb(\d+)\b", text)})
    names = [f"  uint8_t *const b{k} = (uint8_t *)operands[{k}];\n" for k in used]
    return "".join(names) + text


def plan_of(tables: Tables, sizes: Sequence[Functions], machine: Machine, gpu: Gpu) -> Plan:
    kept = align(max((f.kept_bytes for f in sizes), default=0))
    area = align(max((f.area_bytes for f in sizes), default=0))
    plan = Plan(
        tokens=machine.tokens,
        blocks=machine.workers,
        threads=WARPS * 32 + (32 if machine.slots else 0),
        shared_bytes=0,
        scratch_bytes=align(max((f.scratch_bytes for f in sizes), default=0)),
        counters=max(len(tables.counters.tiles), 1),
        operands=tables.operands,
        stages=tables.names,
        counter_names=tables.counters.names,
        feeds_back=tables.feedback is not None,
        slots=machine.slots,
        slot_bytes=machine.slot_bytes,
        kept_bytes=kept,
        area_bytes=area,
    )
    fixed = fixed_bytes(machine.slots) + kept + machine.slots * machine.slot_bytes
    areas = 2 if fixed + 2 * area <= gpu.shared else 1
    plan.shared_bytes = fixed + areas * area
    if plan.shared_bytes > gpu.shared:
        raise AmkError(
            f"cuda: a block wants {plan.shared_bytes} bytes of shared memory, the GPU has"
            f" {gpu.shared}: {kept} kept, {area} for a tile, {machine.slots} slots of"
            f" {machine.slot_bytes}"
        )
    return plan


def fixed_bytes(slots: int) -> int:
    """Sums over the block and the ring's barriers."""
    return align(SUMS_BYTES + 16 * slots)


def align(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


def header(title: str, plan: Plan, machine: Machine, gpu: Gpu) -> str:
    """Comment and macros; the ring comes last in shared memory."""
    fixed = fixed_bytes(plan.slots)
    areas = (plan.shared_bytes - fixed - plan.kept_bytes - plan.slots * plan.slot_bytes) // max(
        plan.area_bytes, 1
    )
    ring = fixed + plan.kept_bytes + areas * plan.area_bytes
    stamps = (
        f"#define AMK_TIMELINE {len(plan.stages)} /* stages timed */\n" if plan.timeline else ""
    )
    return f"""/* amk: {title}
 *
 * {plan.blocks} blocks of {plan.threads} threads: {WARPS} warps compute{
        ", one more streams weights through a ring" if plan.slots else ""
    }.
 * Shared memory: sums and barriers, {plan.kept_bytes} bytes of prologue results, {areas} x {
        plan.area_bytes
    } for a tile,
 * {plan.slots} slots of {
        plan.slot_bytes
    }. Each stage waits for counters of finished tiles, computes its
 * prologue once a block and then the block's tiles. */
#define AMK_WARPS {WARPS}
#define AMK_WORKERS {plan.blocks}
#define AMK_ROWS {machine.rows}
#define AMK_KEPT {fixed}
#define AMK_AREA {fixed + plan.kept_bytes}
#define AMK_AREA_BYTES {plan.area_bytes}
#define AMK_AREAS {max(areas, 1)}
#define AMK_RING {ring}
#define AMK_SLOTS {plan.slots}
#define AMK_SLOT_BYTES {plan.slot_bytes}
#define AMK_SHARED_BYTES {plan.shared_bytes}
#define AMK_SCRATCH_BYTES {plan.scratch_bytes}L
{stamps}#include "amk_program.h"
"""


class Tables:
    """The constant tables of a program: stages, what they wait for, tiles a counter."""

    def __init__(self, program: mk.ProgramOp, number: int, layout: Layout, machine: Machine):
        self.layout = layout
        self.number = number
        self.operands: list[int] = []
        self.names: list[str] = []
        self.rows: list[str] = []
        self.waits: list[int] = []
        self.bases: list[int] = []
        self.counters = Counters(program, machine)
        self.feedback: tuple[int, int] | None = None
        """The counters of the stage that makes the next token, and of finished steps."""
        self.maker = maker_of(program)

    def add(self, stage: mk.StageOp, function: int, emitter: StageEmitter) -> None:
        if len(stage.signals) > 1:
            raise AmkError(f"cuda: stage {stage.sym_name.data!r} signals more than one event")
        waits = [c for event in stage.waits for c in self.counters.of(event)]
        signal = self.counters.of(stage.signals[0])[0] if stage.signals else -1
        if stage is self.maker:
            signal = self.counters.extra(stage.sym_name.data)
            self.feedback = signal, self.counters.extra("the step")
        shift = 0 if stage.shift is None else stage.shift.value.data
        name = c_string(stage.sym_name.data).strip('"').replace("*/", "* /")
        self.rows.append(
            f"  {{{function}, {shift}, {len(self.operands)}, {len(self.waits)}, {len(waits)},"
            f" {signal}, {len(self.bases)}}}, /* {len(self.rows)}: {name} */"
        )
        self.operands += [self.layout.index(slot_of(b, self.number)) for b in emitter.operands]
        self.waits += waits
        self.bases += [self.counters.of(event)[0] for event in emitter.events]
        self.names.append(stage.sym_name.data)

    def text(self) -> str:
        return "\n".join(
            [
                "AMK_TABLE amk_stage amk_stages[] = {",
                *self.rows,
                "};",
                f"#define AMK_STAGES {len(self.rows)}",
                f"AMK_TABLE short amk_waits[] = {{{numbers(self.waits)}}};",
                f"[[maybe_unused]] AMK_TABLE short amk_bases[] = {{{numbers(self.bases)}}};",
                "/* Tiles that raise each counter in a launch, at most. */",
                f"AMK_TABLE uint32_t amk_tiles[] = {{{numbers(self.counters.tiles)}}};",
                "",
            ]
        )


def maker_of(program: mk.ProgramOp) -> mk.StageOp | None:
    """The stage of one tile, the last, whose token the next step may read; None without."""
    last = program.stages()[-1]
    stores = [op for op in last.walk() if isinstance(op, mk.StoreOp)]
    makes = [mk.buffer_of(op.buffer).source.data for op in stores] == ["next"]
    tiles = [e.constant for part in last.part_ops() for e in part.grid]
    alone = makes and not last.signals and all(n == 1 for n in tiles) and len(tiles) == 1
    return last if alone and program.tokens.value.data == 1 else None


def numbers(values: Sequence[int]) -> str:
    """A list in lines of twenty."""
    texts = [str(v) for v in values] or ["0"]
    lines = [", ".join(texts[i : i + 20]) for i in range(0, len(texts), 20)]
    return ",\n  ".join(lines)


def function_text(n: int, compute: str, feed: str, names: Sequence[str]) -> str:
    others = f", and {len(names) - 1} more like it" if len(names) > 1 else ""
    name = c_string(names[0]).strip('"').replace("*/", "* /")
    head = (
        "  [[maybe_unused]] const long P = w.past, capacity = w.launch->capacity;\n"
        "  [[maybe_unused]] void *const *const operands = w.launch->operands + row.operands;\n"
    )
    text = f"/* {name}{others} */\n"
    text += (
        f"AMK_INLINE void stage_{n}(amk_worker &w, const amk_stage &row) {{\n{head}{compute}\n}}\n"
    )
    if feed:
        text += (
            f"AMK_INLINE void feed_{n}(amk_worker &w, const amk_stage &row) {{\n{head}{feed}\n}}\n"
        )
    return text


def kernel_text(
    functions: Sequence[tuple[str, str]],
    machine: Machine,
    feedback: tuple[int, int] | None,
    timeline: bool = False,
) -> str:
    """The kernel: steps, in each all stages, on the compute warps and on the streaming warp."""

    def steps(kind: str, chosen: Sequence[int]) -> list[str]:
        streams = kind == "feed"
        stamped = timeline and not streams
        last, stepped = feedback or (0, 0)
        end = [
            *([] if streams else [f"  amk_finish_step(w, amk_tiles, {last}, {stepped}, step);"]),
            "  if (step + 1 >= (int)launch.steps) break;",
            f"  if (!amk_next_step(w, amk_tiles, {stepped}, step, {str(streams).lower()})) break;",
        ]
        return [
            "for (int step = 0;; step++) {",
            "  for (w.stage = 0; w.stage < AMK_STAGES; w.stage++) {",
            "    amk_renew(w);",
            "    const amk_stage &row = amk_stages[w.stage];",
            *(["    amk_stamp(w, AMK_BEGIN);"] if stamped else []),
            "    switch (row.function) {",
            *(f"      case {n}: {kind}_{n}(w, row); break;" for n in chosen),
            "    }",
            *(["    amk_stamp(w, AMK_END);"] if stamped else []),
            "  }",
            *(end if feedback is not None else ["  break;"]),
            "}",
        ]

    feeding = [n for n, (_, feed) in enumerate(functions) if feed]
    streaming = (
        [
            "if (w.warp == AMK_WARPS) { /* the streaming warp: weights never wait for events */",
            *(f"  {line}" for line in steps("feed", feeding)),
            "  return;",
            "}",
        ]
        if machine.slots
        else []
    )
    body = [
        "AMK_SHARED(shared);",
        f"const amk_areas areas = {{AMK_RING, {SUMS_BYTES}, 0}};",
        "amk_worker w = amk_begin(launch, shared, areas, AMK_SLOTS, AMK_SCRATCH_BYTES);",
        *streaming,
        *steps("stage", range(len(functions))),
    ]
    threads = WARPS * 32 + (32 if machine.slots else 0)
    lines = [f"AMK_KERNEL(amk_program, {threads}) {{", *(f"  {line}" for line in body), "}", ""]
    return "\n".join(lines)
