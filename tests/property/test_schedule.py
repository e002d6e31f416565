"""schedule orders all that conflicts, and waits for nothing it need not."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from amk.interpreters.mk import Launch, Machine
from amk.ir import mk
from amk.passes import run_pipeline
from tests.property.generate import DecoderSpec, decoders
from tests.property.mk_running import LOWERINGS, Lowering, lower, program_of
from tests.property.programs import ProgramSpec, StageSpec, build_program, bytes_of, programs


def conflicts(program: mk.ProgramOp) -> set[tuple[int, int]]:
    """Pairs of stages that touch a byte of memory that one of them writes."""
    touched = [
        (accessed(s, mk.StoreOp, True), accessed(s, mk.StoreOp, False)) for s in program.stages()
    ]
    found = set()
    for j, (writes, reads) in enumerate(touched):
        for i, (earlier_writes, earlier_reads) in enumerate(touched[:j]):
            pairs = [(a, b) for a in earlier_writes for b in writes | reads]
            pairs += [(a, b) for a in earlier_reads for b in writes]
            if any(share(a, b) for a, b in pairs):
                found.add((i, j))
    return found


def accessed(stage: mk.StageOp, kind: type, stores: bool) -> set[mk.BufferOp]:
    return {
        mk.buffer_of(v)
        for op in stage.walk()
        if isinstance(op, kind) == stores
        for v in op.operands
        if isinstance(v.type, mk.BufferType)
    }


def share(a: mk.BufferOp, b: mk.BufferOp) -> bool:
    if a is b:
        return True
    if a.offset is None or b.offset is None:
        return False
    x, y = bytes_of(a), bytes_of(b)
    return x.start < y.stop and y.start < x.stop


def order(program: mk.ProgramOp) -> nx.DiGraph:
    """i → j where stage j waits for an event that stage i signals."""
    graph = nx.DiGraph()
    signaller = {}
    for j, stage in enumerate(program.stages()):
        graph.add_node(j)
        graph.add_edges_from((signaller[e], j) for e in stage.waits)
        signaller |= dict.fromkeys(stage.signals, j)
    return graph


def check(program: mk.ProgramOp) -> None:
    graph, pairs = order(program), conflicts(program)
    assert all(i < j for i, j in graph.edges), "a wait points backwards"
    assert pairs <= set(nx.transitive_closure(graph).edges), "conflicting stages are ordered"
    for edge in list(graph.edges):
        graph.remove_edge(*edge)
        left = set(nx.transitive_closure(graph).edges)
        assert not pairs <= left, f"the wait of {edge} orders nothing"
        graph.add_edge(*edge)


@given(programs())
@settings(max_examples=200, deadline=None)
def test_random_programs(spec: ProgramSpec) -> None:
    module, program = build_program(spec)
    run_pipeline(module, "plan-buffers,schedule")
    check(program)


@given(decoders(), LOWERINGS)
@settings(max_examples=6, deadline=None)
def test_decoders(spec: DecoderSpec, how: Lowering) -> None:
    module, _ = lower(spec, how)
    check(program_of(module))


@given(programs(), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_any_order_gives_the_same_memory(spec: ProgramSpec, seed: int) -> None:
    module, program = build_program(spec)
    run_pipeline(module, "plan-buffers,schedule")
    arenas = []
    for chosen in (None, seed, seed + 10):
        machine = Machine(program, {"one": np.ones(1, np.float32)}, {})
        Launch(machine, 0, workers=3, seed=chosen).run()
        arenas.append(machine.arena.copy())
    np.testing.assert_array_equal(arenas[0], arenas[1])
    np.testing.assert_array_equal(arenas[0], arenas[2])


def test_a_missing_wait_shows() -> None:
    """The shuffled interpreter gives another result when a wait is taken away."""
    spec = ProgramSpec((16, 16), (StageSpec((), (0,)), StageSpec((0,), (1,))))
    module, program = build_program(spec)
    run_pipeline(module, "plan-buffers,schedule")
    program.stages()[1].operands = []
    program.stages()[1].properties["operandSegmentSizes"] = mk.DenseArrayBase.from_list(
        mk.IntegerType(32), [0, 0]
    )
    wrong = 0
    for seed in range(20):
        machine = Machine(program, {"one": np.ones(1, np.float32)}, {})
        Launch(machine, 0, workers=2, seed=seed).run()
        wrong += bool(np.isnan(machine.arena).any())
    assert 0 < wrong < 20
