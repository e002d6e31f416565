"""Machine code for GPUs that are not here: targets, reports, instructions, errors."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from amk import compiler
from amk.codegen.cuda import build
from amk.errors import AmkError, ToolchainError
from amk.runtime import cuda_nvrtc
from amk.runtime.certificate import CERTIFICATE
from amk.runtime.cuda_flow import before_any, control_flow, holding
from amk.runtime.cuda_inspect import LOCAL_MEMORY, MATRIX, having, instructions
from amk.runtime.cuda_nvrtc import Usage, check_arch, compile_cubin, usage_of
from amk.runtime.cuda_report import report_of, resources_of
from amk.runtime.kernel_program import KernelProgram, Plan
from amk.runtime.source import as_source
from amk.targets import GPUS, TARGETS, Target, find_target
from amk.verify.resources import resident_blocks
from tests import families

pytestmark = pytest.mark.usefixtures("cache_root")
needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="the extra 'cuda' is not installed"
)
ROWS = [t for t in TARGETS.values() if t.gpu is not None]


def compiled(target: str | Target, dtype: str = "bf16") -> KernelProgram:
    return compiler.compile_kernels("toy", target, 300, dtype)


@needs_nvrtc
@pytest.mark.parametrize("name", ["h100"])
def test_the_code_does_what_it_should(name: str) -> None:
    program = compiled(name)
    assert all("co-resident" in line and " 0 B spilled" in line for line in program.notes)
    decode, chunk = (instructions(program.cubin(i)) for i in range(2))
    for found in (decode, chunk):
        assert not any(having(found, name) for name in LOCAL_MEMORY)
    # Weights: bulk copies into the ring, read from there 16 bytes at a time.
    assert having(decode, "UBLKCP") > 0
    assert having(decode, "LDS", "128") > 0
    assert sum(having(chunk, name) for name in MATRIX) > 0
    assert having(chunk, "LDG", "128") > 0


# What a wait is made of in machine code: the look at a counter, and the barrier of the computing
# warps that tells them what was seen.
WAIT = (r"LDG\.E\.STRONG\.GPU", r"BAR\.SYNC\S* 0x1")


@needs_nvrtc
def test_weights_move_before_waits_resolve() -> None:
    """In the machine code every copy of weights can be reached without having waited for anything;
    what reads the ring and what leaves the kernel cannot."""
    flow = control_flow(compiled("h100").cubin(0))
    early = before_any(flow, *WAIT)
    copies = holding(flow, "UBLKCP")
    assert copies
    assert copies <= early
    for late in (r"LDS\S*\.128", "STG"):
        assert holding(flow, late)
        assert not holding(flow, late) & early


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("target", ROWS, ids=lambda t: t.name)
def test_every_row(target: Target) -> None:
    program = compiled(target)
    assert target.gpu is not None
    assert len(program.notes) == 2
    assert all(" 0 B stack, 0 B spilled" in line for line in program.notes)
    assert all(line.endswith("co-resident") for line in program.notes)
    decode, chunk = (instructions(program.cubin(i)) for i in range(2))
    kind = "UBLKCP" if target.gpu.bulk_copy else "LDGSTS" if target.gpu.async_copy else "LDG"
    assert having(decode, kind) > 0
    has_mma = sum(having(chunk, name) for name in MATRIX) > 0
    assert has_mma == target.gpu.bf16_mma  # a T4 multiplies bf16 by FMA


@needs_nvrtc
@pytest.mark.slow
def test_a_t4_multiplies_f16_chunks_by_matrix_instructions() -> None:
    assert having(instructions(compiled("t4", "f16").cubin(1)), "HMMA") > 0


@needs_nvrtc
def test_another_gpu_is_a_row_and_nothing_else() -> None:
    gpu = replace(GPUS["l4"][1], sms=7, bandwidth=1e11)
    program = compiled(Target("made-up", "cuda", "seven SMs", gpu))
    assert [plan.blocks for plan in program.plans] == [7, 7]
    assert "7 of 7 blocks" in program.notes[0]


def test_weights_are_fed_without_waiting_for_events() -> None:
    """The streaming warp's functions hold no wait, so its loads stand before all of them."""
    text = compiler.compile_kernels(
        "toy", "h100", 300, "bf16", workers=3, machine_code=False
    ).source(0)
    feeds = [part.split("\n}\n")[0] for part in text.split("AMK_INLINE void feed_")[1:]]
    assert feeds
    for feed in feeds:
        assert "amk_stream(" in feed
        assert "amk_wait(" not in feed and "amk_look(" not in feed  # noqa: PT018


def test_size_does_not_grow_with_depth() -> None:
    counts = []
    for layers in (3, 5):
        config = families.FAMILIES["llama"]()
        config.num_hidden_layers = layers
        source = as_source(AutoModelForCausalLM.from_config(config), "f32")
        text = compiler.compile_kernels(
            source, "h100", 64, "bf16", workers=3, machine_code=False
        ).source(0)
        counts.append(text.count("AMK_INLINE void stage_"))
    assert counts[0] == counts[1]


# ---- V10 ----


def proofs_of(program: KernelProgram) -> list[dict[str, Any]]:
    return json.loads((program.folder / CERTIFICATE).read_text())["programs"]


@needs_nvrtc
def test_the_certificate_decides_v10_with_the_real_numbers() -> None:
    """Of a compiled kernel; the text alone takes it on trust, and says so."""
    for proof in proofs_of(compiled("h100")):
        assert proof["obligations"]["V10"] == 1
        (note,) = proof["notes"]
        held = re.fullmatch(r"V10: 132 blocks of (\d+) that the device holds at once", note)
        assert held and int(held[1]) in (132, 264)  # noqa: PT018
    text = compiler.compile_kernels("toy", "h100", 300, "bf16", workers=3, machine_code=False)
    for proof in proofs_of(text):
        assert proof["obligations"]["V10"] == 0
        assert "taken to run at once" in proof["notes"][0]


def test_a_row_that_cannot_hold_the_grid() -> None:
    """Seven blocks of a kernel and six SMs: V10, whatever the report says."""
    options = compiler.Options(max_seq=64, tokens=(1,))
    module = build.lower_for_gpu(as_source("toy", "f32"), options, 1, 7)
    (program,) = compiler.programs_of(module)
    plan, usage = replace(PLAN, blocks=7), Usage(120, 0, 0, 0)
    gpu = replace(GPUS["h100"][1], sms=7)
    assert (
        build.certify_resident(program, resources_of(plan, usage, gpu))["obligations"]["V10"] == 1
    )
    small = replace(gpu, sms=6)
    with pytest.raises(AmkError, match="V10 at P = 0: 7 blocks, and the device holds 6 at once"):
        build.certify_resident(program, resources_of(plan, usage, small))


@needs_nvrtc
def test_no_kernel_for_a_row_that_cannot_hold_the_grid() -> None:
    """An SM holds two blocks of the smallest configuration at most."""
    small = Target("made-up", "cuda", "one SM", replace(GPUS["h100"][1], sms=1))
    refusal = r"no configuration fits .*3 of [12] blocks: NOT co-resident"
    with pytest.raises(AmkError, match=refusal):
        compiler.compile_kernels("toy", small, 300, "bf16", workers=3)


@pytest.mark.parametrize("registers", [24, 65, 120, 168, 255])
@pytest.mark.parametrize("shared", [1_000, 50_000, 113_000, 200_000, 233_000])
@pytest.mark.parametrize("row", ROWS, ids=lambda t: t.name)
def test_v10_counts_as_the_report_does(row: Target, registers: int, shared: int) -> None:
    """Two computations of the blocks that a GPU holds at once."""
    assert row.gpu is not None
    for threads in (64, 288, 1024):
        plan, usage = replace(PLAN, threads=threads, shared_bytes=shared), Usage(registers, 0, 0, 0)
        room = resident_blocks(resources_of(plan, usage, row.gpu))
        assert room == report_of(plan, usage, row.gpu).resident


# ---- reports ----

PLAN = Plan(1, 132, 288, 200_000, 0, 1)


def test_report_of_a_kernel_that_fits() -> None:
    gpu = GPUS["h100"][1]
    report = report_of(PLAN, Usage(120, 0, 0, 0), gpu)
    assert report.coresident and not report.spills  # noqa: PT018
    assert report.blocks_per_sm == 1


@pytest.mark.parametrize(
    ("plan", "usage"),
    [
        (replace(PLAN, blocks=133), Usage(120, 0, 0, 0)),
        (replace(PLAN, shared_bytes=233_000), Usage(120, 0, 0, 0)),
        (replace(PLAN, threads=1024), Usage(128, 0, 0, 0)),
    ],
    ids=["more blocks than SMs", "too much shared memory", "too many registers"],
)
def test_report_of_a_kernel_that_does_not(plan: Plan, usage: Usage) -> None:
    assert not report_of(plan, usage, GPUS["h100"][1]).coresident


def test_usage_is_read_from_the_log() -> None:
    log = (
        "ptxas info    : Function properties for amk_program\n"
        "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 101 registers, used 2 barriers\n"
    )
    assert usage_of(log) == Usage(101, 8, 4, 12)
    with pytest.raises(ToolchainError, match="no resource usage"):
        usage_of("")


# ---- errors ----


def test_unknown_target() -> None:
    with pytest.raises(KeyError, match="unknown target 'h1000'; known: cpu, t4"):
        find_target("h1000")


@needs_nvrtc
def test_unknown_architecture() -> None:
    with pytest.raises(ToolchainError, match="sm_12: this NVRTC does not know it; it compiles for"):
        check_arch("12")


@needs_nvrtc
def test_a_text_that_does_not_compile(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"NVRTC failed for sm_90a: .*error.*source kept in"):
        compile_cubin("this is not C\n", "90a")


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_nvrtc.nvrtc.cache_clear()
    monkeypatch.setattr(cuda_nvrtc.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match="cuda-bindings is missing; install the extra"):
        compiled("a100", "f32")
    cuda_nvrtc.nvrtc.cache_clear()


def test_a_model_too_large_for_the_gpu() -> None:
    tiny = Target("tiny", "cuda", "no memory", replace(GPUS["h100"][1], memory=100_000))
    with pytest.raises(AmkError, match=r"toy needs .* GB .* and tiny has 0\.0: use a shorter"):
        compiler.compile_kernels("toy", tiny, 300, "f32", machine_code=False)
