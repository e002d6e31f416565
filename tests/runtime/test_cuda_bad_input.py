"""What can go wrong on the way to a GPU: one line each, and nothing half-written."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amk import compiler
from amk.runtime import backends, cuda_driver, cuda_nvrtc
from amk.targets import TARGETS, Target
from tests.runtime.conftest import Amk
from tests.runtime.driver_stand_in import Recorder, SimtDriver, compile_for_host

needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="the extra 'cuda' is not installed"
)
GENERATE = ("generate", "toy", "--prompt-ids", "1,2,3", "--max-tokens", 6, "--dtype", "bf16")


def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if neither bindings nor NVRTC were installed."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name.startswith("cuda") else found(name)
    )
    monkeypatch.setattr(cuda_nvrtc, "nvrtc", cuda_nvrtc.nvrtc.__wrapped__)


def check_nothing_written(ran: Any, folder: Path, *words: str) -> None:
    ran.refused(1, *words)
    assert list(folder.iterdir()) == []


def test_compile_without_the_packages(
    amk: Amk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_packages(monkeypatch)
    ran = amk("compile", "toy", "--target", "h100", "-o", tmp_path / "out")
    check_nothing_written(ran, tmp_path, "cuda-bindings is missing; install the extra: pip install")


def test_unknown_targets(amk: Amk, tmp_path: Path) -> None:
    for name in ("h1000", "sm_90", "", "H100"):
        ran = amk("compile", "toy", "--target", name, "-o", tmp_path / "out")
        ran.refused(2, f"unknown target {name!r}; known: cpu, t4")
        amk(*GENERATE, "--target", name).refused(2, f"unknown target {name!r}")
    assert list(tmp_path.iterdir()) == []


@needs_nvrtc
def test_an_architecture_that_nvrtc_does_not_know(
    amk: Amk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu = TARGETS["h100"].gpu
    assert gpu is not None
    future = Target("h100", "cuda", "", replace(gpu, arch="999a"))
    monkeypatch.setitem(TARGETS, "h100", future)
    ran = amk("compile", "toy", "--target", "h100", "-o", tmp_path / "out")
    check_nothing_written(ran, tmp_path, "sm_999a: this NVRTC does not know it; it compiles for")


@needs_nvrtc
def test_a_model_too_large_is_refused_before_it_is_compiled(
    amk: Amk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def compile_cubin(*arguments: Any) -> Any:
        raise AssertionError("compiled")

    monkeypatch.setattr("amk.codegen.cuda.build.compile_cubin", compile_cubin)
    gpu = TARGETS["h100"].gpu
    assert gpu is not None
    monkeypatch.setitem(TARGETS, "h100", Target("h100", "cuda", "", replace(gpu, memory=200_000)))
    ran = amk("compile", "toy", "--target", "h100", "--max-seq", 64, "-o", tmp_path / "out")
    check_nothing_written(ran, tmp_path, "toy needs 0.0 GB", "h100 has 0.0", "shorter max_seq")


@needs_nvrtc
def test_a_failing_nvrtc(amk: Amk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = ("--gpu-architecture=sm_90a", "--no-such-option")
    compile_text = cuda_nvrtc.compile_text
    monkeypatch.setattr(cuda_nvrtc, "compile_text", lambda text, _: compile_text(text, broken))
    ran = amk("compile", "toy", "--target", "h100", "--max-seq", 8, "-o", tmp_path / "out")
    check_nothing_written(ran, tmp_path, "NVRTC failed for sm_90a: ", "source kept in")


# ---- on a GPU -------------------------------------------------------------------------------


def test_no_gpu(amk: Amk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "cuda_device_count", lambda: 0)
    said = "device 'cuda': the CUDA driver offers no device on this machine"
    for words in (("--backend", "cuda"), ("--target", "cuda")):
        amk(*GENERATE, *words).refused(1, said)
    amk("compile", "toy", "--target", "cuda").refused(1, said)


def test_a_gpu_without_the_bindings(amk: Amk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "cuda_device_count", lambda: 1)
    without_packages(monkeypatch)
    amk(*GENERATE, "--target", "cuda").refused(1, "cuda-bindings is missing; install the extra")


Start = Callable[..., Recorder]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, cache_root: Path) -> Start:
    """Puts a stand-in in the place of the driver, and host code in that of machine code."""

    def with_driver(api: Recorder) -> Recorder:
        monkeypatch.setattr(backends, "cuda_device_count", lambda: 1)
        monkeypatch.setattr(cuda_driver, "driver_api", lambda: api)
        monkeypatch.setattr(compiler, "compile_kernels", compile_for_host)
        return api

    return with_driver


def test_generation_through_a_driver(amk: Amk, start: Start) -> None:
    """`--target cuda`: the tokens of the processor, and no logits read but those of the prompt."""
    wanted = amk(*GENERATE, "--json").json["tokens"]
    api = start(SimtDriver())
    found = amk(*GENERATE, "--target", "cuda", "--json").json
    assert found["tokens"] == wanted
    assert (found["device"], found["backend"], found["gpu"]) == ("cuda", "cuda", "h100")
    launches = api.launches
    assert len(launches) == 3 + 5
    start(SimtDriver())
    several = amk(*GENERATE, "--target", "cuda", "--tokens-per-launch", 4, "--json").json
    assert several["tokens"] == wanted
    assert len(several["per_step_latency_us"]) == 3 + 2


@pytest.mark.parametrize(
    ("function", "works"),
    [
        ("cuInit", 1), ("cuDeviceGet", 1), ("cuDevicePrimaryCtxRetain", 0), ("cuCtxSetCurrent", 0),
        ("cuModuleLoadData", 0), ("cuModuleLoadData", 1), ("cuModuleGetFunction", 1),
        ("cuFuncSetAttribute", 0), ("cuMemAlloc", 0), ("cuMemAlloc", 4), ("cuMemAlloc", 30),
        ("cuMemcpyHtoD", 2), ("cuLaunchCooperativeKernel", 0), ("cuMemcpyDtoH", 0),
    ],
)  # fmt: skip
def test_driver_errors(amk: Amk, start: Start, function: str, works: int) -> None:
    """Each ends in one line that names the call, with all memory given back."""
    api = start(SimtDriver(fail=function, works=works))
    amk(*GENERATE, "--target", "cuda").refused(1, f"CUDA driver: {function} failed: out of memory")
    assert api.memory == {}
    retained = api.names().count("cuDevicePrimaryCtxRetain") - (
        function == "cuDevicePrimaryCtxRetain"
    )
    assert api.names().count("cuDevicePrimaryCtxRelease") == retained


def test_too_large_for_what_is_free(amk: Amk, start: Start) -> None:
    for api in (SimtDriver(), SimtDriver()):
        api.free = 50_000
        start(api)
        amk(*GENERATE, "--target", "cuda").refused(1, "toy needs 0.0 GB on the GPU, which has 0.0")
        assert "cuMemAlloc" not in api.names()


def test_a_target_that_is_not_the_gpu(amk: Amk, start: Start) -> None:
    start(SimtDriver())
    ran = amk(*GENERATE, "--backend", "cuda", "--target", "t4")
    ran.refused(1, "target 't4' is not this machine's GPU: use 'h100'")
