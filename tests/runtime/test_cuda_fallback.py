"""A kernel that does not fit a GPU as it is first compiled: smaller ones are tried, and said so."""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import replace

import pytest

from amk import compiler
from amk.codegen.cuda import build
from amk.codegen.layout import Layout
from amk.errors import AmkError
from amk.runtime.cuda_nvrtc import LOG_NAME, Usage, compile_cubin, usage_of
from amk.runtime.cuda_report import report_of
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.source import as_source
from amk.targets import GPUS, Gpu, Target

pytestmark = [
    pytest.mark.usefixtures("cache_root"),
    pytest.mark.skipif(
        importlib.util.find_spec("cuda") is None, reason="the extra 'cuda' is not installed"
    ),
]
SMS, MAX_SEQ = 5, 8
"""So short that there is the one-token program alone."""
H100 = replace(GPUS["h100"][1], sms=SMS)


def compiled(gpu: Gpu) -> KernelProgram:
    return compiler.compile_kernels("toy", Target("made-up", "cuda", "", gpu), MAX_SEQ, "bf16")


def kernels() -> list[tuple[build.Configuration, build.Kernel, Usage]]:
    """Every configuration, largest first, as NVRTC really compiles it."""
    options = compiler.Options(max_seq=MAX_SEQ, dtype="bf16", tokens=(1,))
    module = build.lower_for_gpu(as_source("toy", "bf16"), options, 1, SMS)
    found = []
    for configuration in build.configurations(module, H100):
        kernel = build.emit(module, 0, Layout(), H100, "toy", configuration)
        log = (compile_cubin(kernel.text, H100.arch) / LOG_NAME).read_text()
        found.append((configuration, kernel, usage_of(log)))
    return found


def registers_for(kernel: build.Kernel, usage: Usage) -> int:
    """The fewest registers of an SM that hold a block."""
    counts = range(0, H100.registers + 1, 256)
    return next(
        n for n in counts if report_of(kernel.plan, usage, replace(H100, registers=n)).coresident
    )


def test_little_shared_memory_an_sm() -> None:
    """A block may opt in to more than half of what an SM has, but the ring must then be halved."""
    program = compiled(replace(H100, shared_per_sm=H100.shared // 2))
    *refused, taken = program.notes
    assert refused
    for note in refused:
        assert note.startswith("program of 1 token(s): ")
        assert "0 block(s) of 288 threads an SM, 5 of 0 blocks: NOT co-resident; 190 KB" in note
        assert note.endswith("does not fit, trying the next smaller")
    assert taken.endswith("1 block(s) of 288 threads an SM, 5 of 5 blocks: co-resident")
    (plan,) = program.plans
    assert 0 < plan.slots * plan.slot_bytes <= 95 * 1024
    assert program.cubin(0)


def test_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    every = build.configurations
    monkeypatch.setattr(build, "configurations", lambda *a: itertools.islice(every(*a), 2))
    with pytest.raises(AmkError) as caught:
        compiled(replace(H100, registers=1000))
    line = str(caught.value)
    assert line.startswith("cuda: no configuration fits sm_90a: program of 1 token(s): ")
    assert "5 of 0 blocks: NOT co-resident; 190 KB ring, 1 row(s) a warp does not fit" in line
    assert "\n" not in line
    with pytest.raises(AmkError, match=r"cuda: a block wants \d+ bytes of shared memory, the GPU"):
        compiled(replace(H100, shared=2048))


@pytest.mark.slow
def test_few_registers() -> None:
    """The first configuration that fits is taken, and each before it is reported."""
    tried = kernels()
    needs = [registers_for(kernel, usage) for _, kernel, usage in tried]
    assert min(needs) < needs[0], "every configuration takes as many registers as the first"
    at = needs.index(min(needs))
    program = compiled(replace(H100, registers=min(needs)))
    assert len(program.notes) == at + 1
    for note, (configuration, _, usage) in zip(program.notes, tried[:at], strict=False):
        assert f"{usage.registers} registers" in note
        assert note.endswith(f"{configuration} does not fit, trying the next smaller")
    assert program.notes[-1].endswith(": co-resident")
    assert program.plans[0].slots == tried[at][1].plan.slots
    with pytest.raises(AmkError, match="no configuration fits sm_90a"):
        compiled(replace(H100, registers=min(needs) - 256))
