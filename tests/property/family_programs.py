"""Every family of tests/families.py as `mk` programs: decode and prefill, several schedules.

Chunks are short and tiles small, so that many shapes and groups occur in few positions.
"""

from __future__ import annotations

import functools

from amk.frontend.hf import import_model
from amk.ir import mk
from amk.passes import run_pipeline
from tests import families

MAX_SEQ = 64
CHUNK = 16
WIDE = 16
SCHEDULES = {
    "claimed": "schedule",
    "groups": "schedule{groups=true}",
    "static": (
        "schedule{kind=static workers=3 groups=true},stream-weights{ring-bytes=1024 slot-bytes=256}"
    ),
}


@functools.cache
def lowered(name: str, tokens: int) -> str:
    """The program before it is scheduled, as text."""
    module = import_model(families.FAMILIES[name](), tokens, "f32")
    run_pipeline(
        module,
        f"amk-lm{{max-seq={MAX_SEQ} chunk={CHUNK}}},kv-policy,greedy-head,fuse,"
        "place-kv-append,lower-lm-to-mk{tile-bytes=512},legal-mk,plan-buffers",
    )
    for op in list(module.ops):
        if not isinstance(op, mk.ProgramOp):
            op.detach()
            op.erase()
    return str(module)


@functools.cache
def family_program(name: str, tokens: int, schedule: str) -> mk.ProgramOp:
    """A program nobody may change: clone it first."""
    from amk.ir import parse_module

    module = parse_module(lowered(name, tokens))
    run_pipeline(module, SCHEDULES[schedule])
    return next(op for op in module.ops if isinstance(op, mk.ProgramOp))
