"""Parts of verify-mk against independent arithmetic: V10, V13, certificates, needs, groups."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp

from amk.cli.main import main
from amk.errors import AmkError
from amk.interpreters.explore import hold, sample
from amk.interpreters.mk import Machine
from amk.ir import mk, parse_module
from amk.ir.expr import Const, Expr, P, Sym, exprs, maximum, minimum
from amk.ir.lm import integer
from amk.passes import run_pipeline
from amk.passes.minimize_waits import minimize
from amk.runtime.certificate import (
    CERTIFICATE,
    RULES,
    check_certificate,
    covers_steps,
    refuse_several_steps,
    save_certificate,
)
from amk.verify import prove
from amk.verify.bounds import INDEX_BITS
from amk.verify.certify import certify, proof_of
from amk.verify.families import Families
from amk.verify.findings import STEPS
from amk.verify.fingerprint import fingerprint
from amk.verify.model import Access, Part
from amk.verify.needs import Needs
from amk.verify.positions import Positions
from amk.verify.resources import NAMES, RESOURCES, resident_blocks
from amk.verify.tiles import boxes
from tests.property.family_programs import SCHEDULES, family_program
from tests.property.mutations import drop_wait


def fresh(schedule: str, tokens: int = 1, family: str = "llama") -> mk.ProgramOp:
    program = family_program(family, tokens, schedule).clone()
    assert isinstance(program, mk.ProgramOp)
    return program


# ---- positions and families ---------------------------------------------------------------


def random_expr(rng: random.Random, depth: int = 3) -> Expr:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([P, Sym("t0"), Sym("t1"), Const(rng.randint(-3, 3))])
    a, b = random_expr(rng, depth - 1), random_expr(rng, depth - 1)
    return rng.choice(
        [a + b, a - b, a * rng.randint(-3, 3), a // rng.randint(1, 4), minimum(a, b), maximum(a, b)]
    )


@pytest.mark.parametrize("seed", range(150))
def test_intervals_hold_every_value(seed: int) -> None:
    rng = random.Random(seed)
    e, grid = random_expr(rng), (Const(3), P // 3 + 1)
    at = Positions(12)
    low, high = (np.broadcast_to(n, (12,)) for n in at.interval(e, grid))
    for past in range(12):
        values = [
            e.evaluate({"P": past, "t0": i, "t1": j})
            for i in range(3)
            for j in range(past // 3 + 1)
        ]
        assert low[past] <= min(values)
        assert max(values) <= high[past]


@pytest.mark.parametrize("seed", range(300))
def test_dense_and_disjoint_are_true(seed: int) -> None:
    """What strides decide about a family is what its boxes, painted one by one, show."""
    rng = random.Random(seed)
    grid = (Const(rng.randint(1, 3)), rng.choice([Const(2), P // 2 + 1]))
    sizes = (rng.randint(1, 3), rng.randint(1, 3))

    def axis() -> Expr:
        terms = [
            Sym("t0") * rng.randint(0, 4),
            Sym("t1") * rng.randint(0, 4),
            P * rng.randint(0, 1),
        ]
        return rng.choice(terms) + rng.choice([*terms, Const(0), Const(1)])

    offsets = (axis(), axis())
    box = tuple((o, o + n) for o, n in zip(offsets, sizes, strict=True))
    at = Positions(5)
    family = Families(at).make(box, grid)
    part = Part.__new__(Part)
    part.grid = grid
    access = Access.__new__(Access)
    access.box, access.part, access.prologue = box, part, False
    for past in range(5):
        counts = np.zeros((64, 64), int)
        for (a, b), (c, d) in boxes(access, past).tolist():
            counts[a:b, c:d] += 1
        hull = tuple(
            slice(*(int(np.broadcast_to(n, (5,))[past]) for n in ends)) for ends in family.hull
        )
        assert counts[hull].sum() == counts.sum()
        if family.disjoint:
            assert counts.max() <= 1
        if family.dense:
            assert counts[hull].all()


# ---- V10 and V13 --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_residency_is_a_packing(seed: int) -> None:
    """Blocks are put on processors one by one until no limit has room: as many as V10 allows."""
    rng = random.Random(seed)
    n = {
        "threads": rng.choice([128, 256, 512]), "registers": rng.choice([32, 64, 128, 255]),
        "shared_bytes": rng.choice([0, 16_384, 100_000, 200_000]), "processors": rng.randint(1, 8),
        "max_threads": 2048, "max_registers": 65_536, "max_shared_bytes": 233_472,
        "max_blocks": rng.choice([4, 32]),
    }  # fmt: skip
    room = 0
    for _ in range(n["processors"]):
        blocks = threads = registers = shared = 0
        while True:
            threads += n["threads"]
            registers += n["threads"] * n["registers"]
            shared += n["shared_bytes"]
            fits = threads <= n["max_threads"] and registers <= n["max_registers"]
            if not (fits and shared <= n["max_shared_bytes"] and blocks < n["max_blocks"]):
                break
            blocks += 1
        room += blocks
    assert resident_blocks(n) == room
    program = fresh("static")
    for workers in (room, room + 1):
        if workers < 1:
            continue
        program.properties["workers"] = integer(workers)
        program.attributes[RESOURCES] = DictionaryAttr({k: integer(n[k]) for k in NAMES})
        assert any(f.rule == "V10" for f in prove(program).findings) == (workers > room)


def furthest_byte(program: mk.ProgramOp) -> int:
    """The end of the largest buffer; every one is read or written to its last element."""
    longest = program.max_seq.value.data
    ends = []
    for b in program.buffers():
        shape = [b.ring_rows or longest if d == -1 else d for d in b.type.get_shape()]
        start = 0 if b.offset is None else b.offset.value.data
        ends.append(start + int(np.prod(shape)) * b.type.element_bytes())
    return max(ends)


def test_index_type_is_just_wide_enough() -> None:
    program = fresh("claimed")
    bits = furthest_byte(program).bit_length() + 1
    for width, fits in ((bits, True), (bits - 1, False), (64, True)):
        program.attributes[INDEX_BITS] = integer(width)
        report = prove(program)
        assert report.holds == fits
        assert {f.rule for f in report.findings} <= {"V13"}


# ---- certificates -------------------------------------------------------------------------


def test_fingerprint_sees_what_matters() -> None:
    program = fresh("claimed")
    before = fingerprint(program)
    again = next(op for op in parse_module(str(program)).ops if isinstance(op, mk.ProgramOp))
    assert fingerprint(again) == before
    program.buffers()[0].result.name_hint = "other"
    assert fingerprint(program) == before
    part = program.stages()[0].part_ops()[0]
    part.properties["grid"] = exprs(*(e + 1 for e in part.grid))
    assert fingerprint(program) != before


def test_proof_is_renewed_when_the_program_changes() -> None:
    program = fresh("claimed")
    first = proof_of(program)
    assert proof_of(program) is first
    assert drop_wait(program, random.Random(0))
    assert not proof_of(program).holds
    with pytest.raises(AmkError, match="verify-mk: decode: V"):
        certify(program)


def test_certificate_is_for_these_files(tmp_path: Path) -> None:
    (tmp_path / "program.so").write_bytes(b"code")
    proof = {"positions": 64, "steps": STEPS[0], "obligations": dict.fromkeys(RULES, 1)}
    save_certificate(tmp_path, [proof], ["program.so"])
    check_certificate(tmp_path, 64, [1], ["program.so"])
    with pytest.raises(AmkError, match="another program"):
        check_certificate(tmp_path, 65, [1], ["program.so"])
    with pytest.raises(AmkError, match="another program"):
        check_certificate(tmp_path, 64, [1, 16], ["program.so"])
    (tmp_path / "program.so").write_bytes(b"c0de")
    with pytest.raises(AmkError, match="other contents"):
        check_certificate(tmp_path, 64, [1], ["program.so"])
    (tmp_path / CERTIFICATE).write_text("{")
    with pytest.raises(AmkError, match="no certificate"):
        check_certificate(tmp_path, 64, [1], ["program.so"])
    del proof["obligations"]["V12"]  # type: ignore[attr-defined]
    save_certificate(tmp_path, [proof], ["program.so"])
    with pytest.raises(AmkError, match="another program"):
        check_certificate(tmp_path, 64, [1], ["program.so"])


@pytest.mark.parametrize("covered", [False, True])
def test_several_steps_need_a_proof(tmp_path: Path, covered: bool) -> None:
    proof = {"positions": 64, "steps": STEPS[covered], "obligations": dict.fromkeys(RULES, 1)}
    save_certificate(tmp_path, [proof], [])
    assert covers_steps(tmp_path, 0) == covered
    refuse_several_steps(tmp_path, True)
    with pytest.raises(AmkError, match="the proof is for one step a launch"):
        refuse_several_steps(tmp_path, False)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_decoders_take_any_number_of_steps(schedule: str) -> None:
    """Decode programs are proved for several steps a launch, and the oracle agrees; a chunk makes
    no token that a step could read."""
    program = fresh(schedule)
    assert certify(program, several_steps=True).steps == STEPS[1]
    for past in (0, 15, 16, 62):
        assert not sample(program, past, runs=1, steps=2)
    with pytest.raises(AmkError, match="a launch takes one step"):
        certify(fresh(schedule, 16), several_steps=True)


# ---- needs --------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_is_needed_is_needed(schedule: str) -> None:
    """After minimize-waits the program is right, and every wait that is left prevents a hazard
    that the oracle sees without it."""
    program = fresh(schedule)
    before = len(Needs(program).waits())
    counts = minimize(program)
    assert prove(program).holds
    assert prove(program).steps == STEPS[1]
    needs = Needs(program)
    left = needs.waits()
    assert len(left) == before - counts["waits removed"]
    for number, awaited in enumerate(left):
        finding = needs.without(awaited)
        assert finding is not None
        if number % 3 == 0:
            other = program.clone()
            assert isinstance(other, mk.ProgramOp)
            takeout = Needs(other)
            remove_op(other, takeout, number)
            past = finding.position
            assert sample(other, past) or sample(other, past, steps=2) or hold(other, past, 2)


def remove_op(program: mk.ProgramOp, needs: Needs, number: int) -> None:
    from amk.passes.minimize_waits import drop

    drop(needs, needs.waits()[number])


def test_waits_that_follow_are_removed() -> None:
    program = fresh("claimed")
    from amk.passes.minimize_waits import set_operands

    *_, last = program.stages()
    events = [e.result for e in program.events()]
    set_operands(last, events, list(last.signals))
    assert minimize(program)["waits removed"] == len(events) - 1


def test_one_worker_needs_no_wait() -> None:
    module = ModuleOp([fresh("claimed")])
    run_pipeline(module, "assign-workers{workers=1},minimize-waits")
    program = next(op for op in module.ops if isinstance(op, mk.ProgramOp))
    assert not program.events()
    assert prove(program).holds


@pytest.mark.parametrize("tokens", [1, 16])
@pytest.mark.parametrize("schedule", ["groups", "static"])
def test_schedules_give_the_same_bits(schedule: str, tokens: int) -> None:
    """Groups and static lists, shuffled as they allow, change nothing that is computed."""
    results = []
    for name, seed in (("claimed", None), (schedule, 1), (schedule, 2)):
        program = fresh(name, tokens)
        rng = np.random.default_rng(0)
        weights = {
            b.source.data: (rng.normal(size=b.type.get_shape()) * 0.2).astype(np.float32)
            for b in program.buffers()
            if b.kind.data == "weight"
        }
        caches = {
            b.source.data: rng.normal(
                size=[program.max_seq.value.data if d == -1 else d for d in b.type.get_shape()]
            ).astype(np.float32)
            for b in program.buffers()
            if b.kind.data == "cache"
        }
        machine = Machine(program, weights, caches)
        tokens_in = np.arange(tokens, dtype=np.int64)
        results.append(machine.launch(tokens_in, 33, workers=3, seed=seed).copy())
        assert np.isfinite(results[-1]).all()
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_groups_are_narrower_than_stages() -> None:
    """Some head of attention waits for a part of what the stage before it made."""
    waits = [op for op in fresh("groups").walk() if isinstance(op, mk.WaitOp)]
    assert any("t0" in w.groups.data[0].symbols() for w in waits)


# ---- amk explain --------------------------------------------------------------------------


def explain(tmp_path: Path, capsys: pytest.CaptureFixture[str], program: mk.ProgramOp, *options):
    path = tmp_path / "program.mlir"
    path.write_text(str(program))
    code = main(["explain", str(path), *options])
    return code, capsys.readouterr()


def test_explain_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = fresh("claimed")
    code, printed = explain(tmp_path, capsys, program)
    assert code == 0
    assert "every past length 0 … 63" in printed.out
    assert drop_wait(program, random.Random(0))
    code, printed = explain(tmp_path, capsys, program, "--json")
    answer = json.loads(printed.out)["answers"][0]
    assert code == 1
    assert not answer["holds"]
    assert answer["findings"][0]["rule"] in ("V4", "V6")


def test_explain_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = fresh("claimed")
    code, printed = explain(tmp_path, capsys, program, "--wait", "1")
    assert code == 0
    assert "without it, V4 at P = 0" in printed.out
    code, printed = explain(tmp_path, capsys, program, "--wait", "@no-such-stage")
    assert code == 2
    assert drop_wait(program, random.Random(0))
    code, printed = explain(tmp_path, capsys, program, "--wait", "1")
    assert code == 1
    assert "is wrong as it is" in printed.err


def test_explain_wants_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.mlir"
    path.write_text("builtin.module {\n}\n")
    assert main(["explain", str(path)]) == 1
    assert "no mk.program" in capsys.readouterr().err
