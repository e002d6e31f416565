"""`mk` programs as one C file: functions of stages, tables of stages, four entry points.

The file is self-contained (the device headers are part of its text), so its hash names the
compiled program. Entry points:

    void *amk_open(int workers);                    a pool of workers, or null
    int amk_launch(void *pool, int program, long past, void *const *buffers, const long *capacity);
    int amk_steps(void *pool, long past, void *const *buffers, const long *capacity, long count,
                  const int64_t *ends, long nends, int64_t *made, long *taken);
    void amk_close(void *pool);

`buffers` and `capacity` are indexed as in `Layout`. `amk_steps` takes greedy steps of the first
program in one launch (steps.h); a program that makes no token has none to take (error -1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files

from xdsl.ir import SSAValue

from amk.codegen.cpu.stage import StageEmitter
from amk.codegen.layout import Layout, Slot
from amk.codegen.ready import refuse_unplaced, refuse_unready
from amk.errors import AmkError
from amk.ir import mk

HEADERS = (
    "fpenv.h", "formulas.h", "simd.h", "scalar_math.h", "matmul.h", "reduce.h", "attention.h",
    "parking.h", "pool.h", "steps.h",
)  # fmt: skip

SUPPORT = """
static inline long amk_floordiv(long a, long b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
static inline int8_t amk_f32_to_i8(float x) {
  float r = __builtin_rintf(x);
  return (int8_t)(r < 127.0f ? (r > -127.0f ? r : -127.0f) : 127.0f);
}
static inline long amk_minl(long a, long b) { return a < b ? a : b; }
static inline long amk_maxl(long a, long b) { return a > b ? a : b; }
#define b(k) (ctx->buffers[operands[k]])
#define cap(k) (ctx->capacity[operands[k]])
"""


def slot_of(buffer: mk.BufferOp, program: int) -> Slot:
    """Weights, caches and constants are shared between programs; the rest is a program's own."""
    shared = buffer.kind.data in ("weight", "cache", "constant")
    return Slot(
        buffer.kind.data,
        buffer.source.data,
        buffer.memory_shape,
        str(buffer.type.element_type),
        -1 if shared else program,
        -1 if buffer.offset is None else buffer.offset.value.data,
        buffer.growth,
        0 if buffer.window is None else buffer.window.value.data,
        buffer.sink_rows,
    )


def device_headers() -> str:
    """The runtime's headers as one text, each once, without includes of each other."""
    folder = files("amk.codegen.cpu")
    text = "\n".join((folder / name).read_text() for name in HEADERS)
    return re.sub(r'^#include ".*"\n', "", text, flags=re.MULTILINE)


def emit_c(programs: Sequence[mk.ProgramOp]) -> tuple[str, Layout]:
    """The C file of some programs that share weights and caches, and its buffer table.

    Raises AmkError for a program that a pass has still to see, or that is not proved."""
    for program in programs:
        refuse_what_the_pool_lacks(program)
        refuse_unready(program, "cpu")
    return write_c(programs)


def write_c(programs: Sequence[mk.ProgramOp]) -> tuple[str, Layout]:
    """As `emit_c`, of programs that need not be proved: tests write single ops this way."""
    layout = Layout()
    functions: dict[tuple[str, ...], int] = {}
    stage_names: dict[int, list[str]] = {}
    tables: list[str] = []
    private = 0
    for number, program in enumerate(programs):
        refuse_what_the_pool_lacks(program)
        refuse_unplaced(program, "cpu")
        layout.tokens.append(program.tokens.value.data)
        layout.arenas.append(program.arena.value.data if program.arena is not None else 0)
        rows: list[str] = []
        events: dict[SSAValue, int] = {e.result: i for i, e in enumerate(program.events())}
        for i, stage in enumerate(program.stages()):
            emitter = StageEmitter(stage, program.tokens.value.data)
            prologue, tile, tiles, floats = emitter.emit()
            private = max(private, floats)
            function = functions.setdefault((prologue, tile, tiles), len(functions))
            stage_names.setdefault(function, []).append(stage.sym_name.data)
            operands = [layout.index(slot_of(b, number)) for b in emitter.operands]
            waits = [events[w] for w in stage.waits]
            if len(stage.signals) > 1:
                raise AmkError(f"cpu: stage {stage.sym_name.data!r} signals more than one event")
            signal = events[stage.signals[0]] if stage.signals else -1
            tables.append(array(f"operands_{number}_{i}", operands))
            tables.append(array(f"waits_{number}_{i}", waits))
            start = f"prologue_{function}" if prologue.strip() else "0"
            rows.append(
                f"  {{{start}, tile_{function}, tiles_{function}, operands_{number}_{i},"
                f" waits_{number}_{i}, {len(waits)}, {signal}, {c_string(stage.sym_name.data)}}},"
            )
        tables.append(f"static const amk_stage program_{number}[] = {{")
        tables += [*rows, "};"]
    text = [
        f"/* amk: {', '.join(p.sym_name.data for p in programs)}, for the CPU. */",
        device_headers(),
        SUPPORT,
    ]
    for (prologue, tile, tiles), function in functions.items():
        text += function_text(function, prologue, tile, tiles, stage_names[function])
    text += tables
    sizes = [(len(p.stages()), len(p.events())) for p in programs]
    text += entry_points(sizes, private * 4, feedback_of(layout))
    return "\n".join(text) + "\n", layout


def refuse_what_the_pool_lacks(program: mk.ProgramOp) -> None:
    """The pool claims tiles and counts whole stages. Raises AmkError for anything else."""
    if program.static_workers is not None:
        raise AmkError("cpu: workers claim tiles; schedule the program as claimed")
    for op in program.walk():
        if isinstance(op, mk.WaitOp | mk.SignalOp):
            raise AmkError(f"cpu: {op.name} in a part; schedule the program without groups")


def array(name: str, values: Sequence[int]) -> str:
    return f"static const int {name}[] = {{{', '.join(map(str, values)) or '0'}}};"


def c_string(text: str) -> str:
    """A C literal of any text."""
    safe = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "?" for c in text)
    return f'"{safe}"'


def function_text(n: int, prologue: str, tile: str, tiles: str, names: Sequence[str]) -> list[str]:
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    comment = c_string(names[0]).strip('"').replace("*/", "* /")
    head = f"/* {comment}{others} */"
    unused = "  (void)P; (void)operands; (void)ctx; (void)priv;"
    out = ["", head]
    if prologue.strip():
        out += [
            f"static void prologue_{n}(const amk_ctx *ctx, const int *operands, float *priv) {{",
            "  const long P = ctx->past;",
            unused,
            prologue,
            "}",
        ]
    out += [
        f"static void tile_{n}(const amk_ctx *ctx, const int *operands, const float *kept,"
        " long tile) {",
        "  const long P = ctx->past;",
        "  float *const priv = (float *)kept;",
        unused,
        tile,
        "}",
        f"static long tiles_{n}(long P) {{ (void)P; return {tiles}; }}",
    ]
    return out


def feedback_of(layout: Layout) -> tuple[int, int] | None:
    """The buffers in which the first program reads a token and makes the next one; None when it
    takes several or makes none."""
    if layout.tokens[:1] != [1]:
        return None
    found = {s.source: i for i, s in enumerate(layout.slots) if s.program == 0 and s.dtype == "i64"}
    return (found["tokens"], found["next"]) if {"tokens", "next"} <= found.keys() else None


def entry_points(
    sizes: Sequence[tuple[int, int]], private_bytes: int, feedback: tuple[int, int] | None
) -> list[str]:
    cases = [
        f"  if (program == {i}) return amk_pool_run(pool, program_{i}, {stages}, {events}, &ctx);"
        for i, (stages, events) in enumerate(sizes)
    ]
    steps = ["  *taken = 0;", "  return -1;"]
    if feedback is not None:
        token, made = feedback
        stages, events = sizes[0]
        steps = [
            "  const amk_ctx ctx = {past, buffers, capacity};",
            f"  const amk_steps_request request = {{count, buffers[{token}], buffers[{made}], made,"
            " ends, nends};",
            f"  return amk_pool_steps(pool, program_0, {stages}, {events}, ctx, &request, taken);",
        ]
    return [
        "",
        f"void *amk_open(int workers) {{ return amk_pool_create(workers, {private_bytes}); }}",
        "void amk_close(void *pool) { amk_pool_destroy(pool); }",
        "int amk_launch(void *pool, int program, long past, void *const *buffers,",
        "               const long *capacity) {",
        "  const amk_ctx ctx = {past, buffers, capacity};",
        *cases,
        "  return -1;",
        "}",
        "int amk_steps(void *pool, long past, void *const *buffers, const long *capacity,",
        "              long count, const int64_t *ends, long nends, int64_t *made, long *taken) {",
        *steps,
        "}",
    ]
