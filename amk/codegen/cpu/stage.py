"""One `mk.stage` as two C functions: its prologue and its tiles.

Every value is an array of floats: small ones on the stack, large ones in the worker's private
memory, after what the prologue keeps there. A reshape is another name for the same array.
Buffers are reached as `b(k)`, operand k of the stage, so that stages that differ in their buffers
alone share their functions. How one op is written stands in `memory_rules` and `compute_rules`.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import Block, SSAValue

from amk.codegen.cpu.c_text import c_expr, loops
from amk.codegen.cpu.compute_rules import COMPUTE
from amk.codegen.cpu.memory_rules import MEMORY
from amk.ir import mk
from amk.ir.lm import shape_of

STACK_FLOATS = 1024
LINE = 16  # floats of a cache line

RULES = {**MEMORY, **COMPUTE}


class StageEmitter:
    """Text of one stage. `operands` lists its buffers, in the order of their first use."""

    def __init__(self, stage: mk.StageOp, tokens: int):
        self.stage = stage
        self.tokens = tokens
        self.operands: list[mk.BufferOp] = []
        self.names: dict[SSAValue, str] = {}
        self.lines: list[str] = []
        self.count = 0
        self.private = 0  # floats of private memory in use
        self.widest = 0
        self.kept: list[tuple[int, int]] = []  # offset and floats of each kept value

    def emit(self) -> tuple[str, str, str, int]:
        """(prologue body, tile body, tile count, floats of private memory)"""
        prologue = self.emit_prologue()
        tile = self.emit_parts()
        counts = [self.tiles(part) for part in self.stage.part_ops()]
        return prologue, tile, " + ".join(counts) or "0", self.widest

    # ---- names and memory ----

    def fresh(self, floats: int) -> str:
        """A new array; where it lives depends on its size."""
        name = f"v{self.count}"
        self.count += 1
        if floats <= STACK_FLOATS:
            self.lines.append(f"_Alignas(64) float {name}[{floats}];")
        else:
            self.lines.append(f"float *const {name} = priv + {self.private};")
            self.private += -(-floats // LINE) * LINE
            self.widest = max(self.widest, self.private)
        return name

    def define(self, value: SSAValue) -> str:
        self.names[value] = self.fresh(prod(shape_of(value)))
        return self.names[value]

    def operand(self, value: SSAValue) -> int:
        buffer = mk.buffer_of(value)
        if buffer not in self.operands:
            self.operands.append(buffer)
        return self.operands.index(buffer)

    # ---- bodies ----

    def emit_prologue(self) -> str:
        block = self.stage.prologue.block
        last = block.last_op
        assert isinstance(last, mk.YieldOp)
        for value in last.arguments:
            floats = -(-prod(shape_of(value)) // LINE) * LINE
            self.kept.append((self.private, floats))
            self.private += floats
        self.widest = self.private
        self.body(block)
        for value, (offset, _) in zip(last.arguments, self.kept, strict=True):
            size = prod(shape_of(value))
            self.lines.append(
                f"memcpy(priv + {offset}, {self.names[value]}, {size} * sizeof(float));"
            )
        return self.take()

    def emit_parts(self) -> str:
        base = sum(n for _, n in self.kept)
        for arg, (offset, _) in zip(self.stage.parts.block.args, self.kept, strict=True):
            self.names[arg] = f"k{arg.index}"
            self.lines.append(f"const float *const k{arg.index} = priv + {offset};")
        for part in self.stage.part_ops():
            self.private = base
            self.count = 0
            self.lines.append(f"if (tile < {self.tiles(part)}) {{")
            extents = [c_expr(e) for e in part.grid]
            rest = "tile"
            for i in reversed(range(1, len(extents))):
                self.lines.append(f"const long t{i} = {rest} % ({extents[i]});")
                rest = f"{rest} / ({extents[i]})"
            self.lines.append(f"const long t0 = {rest};")
            used = " ".join(f"(void)t{i};" for i in range(len(extents)))
            self.lines.append(used)
            self.body(part.body.block)
            self.lines += ["return;", "}", f"tile -= {self.tiles(part)};"]
        return self.take()

    def tiles(self, part: mk.PartOp) -> str:
        """The number of tiles; a negative extent counts as none."""
        known = (e.constant for e in part.grid)
        return " * ".join(
            f"amk_maxl(0, {c_expr(e)})" if n is None else str(max(n, 0))
            for e, n in zip(part.grid, known, strict=True)
        )

    def body(self, block: Block) -> None:
        for op in block.ops:
            if not isinstance(op, mk.YieldOp):
                RULES[type(op)](self, op)

    def take(self) -> str:
        text = "\n".join("  " + line for line in self.lines)
        self.lines = []
        return text

    def loop(self, sizes, strides, body: str) -> None:  # type: ignore[no-untyped-def]
        self.lines += loops(sizes, strides, body)
