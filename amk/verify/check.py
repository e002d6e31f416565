"""The proof of one program: reads it, applies every rule, returns the report."""

from __future__ import annotations

import time

from amk.ir import mk
from amk.verify.arena import check_arena
from amk.verify.bounds import check_bounds
from amk.verify.context import Context
from amk.verify.coverage import check_coverage
from amk.verify.findings import Report
from amk.verify.model import read_program
from amk.verify.ordering import check_ordering
from amk.verify.progress import check_progress
from amk.verify.resources import check_resources
from amk.verify.steps import check_steps


def prove(op: mk.ProgramOp) -> Report:
    """Checks V1 … V13 for every past length 0 … max_seq − tokens, and, of a program that is right
    for one step a launch, whether it is for any number. The program has passed its verifier. Never
    raises for a wrong program: what is wrong is in `findings`."""
    start = time.perf_counter()
    ctx = Context.of(read_program(op))
    check_bounds(ctx)
    check_coverage(ctx)
    check_resources(ctx)
    if check_progress(ctx):
        check_ordering(ctx)
        check_arena(ctx)
    if ctx.report.holds:
        check_steps(ctx)
    ctx.report.seconds = time.perf_counter() - start
    return ctx.report
