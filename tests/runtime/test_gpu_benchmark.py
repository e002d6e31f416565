"""benchmarks/gpu.py from its first line to its last, through a driver that launches here."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from amk import compiler
from amk.runtime import cuda_driver
from amk.runtime.kernel_session import KernelSession
from tests.runtime.driver_stand_in import Recorder, SimtDriver, compile_for_host

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
WORDS = [
    "--shapes", "tiny", "--max-seq", "40", "--repeats", "2", "--copy-bytes", "65536", "--seconds",
    "100000",
]  # fmt: skip


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, cache_root: Path) -> ModuleType:
    """The script as a module, over a stand-in."""
    api = SimtDriver("NVIDIA H200")
    monkeypatch.setattr(cuda_driver, "driver_api", lambda: api)
    monkeypatch.setattr(compiler, "compile_kernels", compile_for_host)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("gpu_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.api = api  # type: ignore[attr-defined]
    return module


def test_a_whole_run(gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "gpu.json"
    text = tmp_path / "text"
    text.write_text("A text that is not long, but long enough to be told from noise.")
    words = [*WORDS, "--timeline", "tiny", "--model", "toy", "--text", str(text)]
    code = gpu.main([*words, "--out", str(out)])
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert code == 0, captured.err
    assert json.loads(out.read_text()) == report
    assert report["target"] == "h200"
    assert report["copy"]["bytes_per_s"] > 0
    ours = report["ours"]["tiny"]
    assert ours["logits_within_bar"] is True
    assert list(ours["relative_error_by_position"]) == ["0", "1"]
    assert list(ours["us_per_token"]) == ["0", "39"]
    assert all(us > 0 for us in [*ours["us_per_token"].values(), report["transformers"]["tiny"]])
    # Two layers of keys and values, two heads of 16 in bf16, for 39 rows more.
    assert ours["bytes"]["39"] - ours["bytes"]["0"] == 39 * 2 * 2 * 2 * 16 * 2
    stages = report["timeline"]["tiny"]
    assert stages[0]["start"] == 0
    assert any("o_proj" in stage["name"] for stage in stages)
    fit = report["fidelity"]["toy"]
    assert fit["within_bar"] is True
    assert fit["kl_mean_ratio"] < 1.05
    assert "tiny" in captured.err
    assert gpu.api.memory == {}


def test_a_part_that_fails_leaves_the_others(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(*arguments: Any) -> None:
        raise RuntimeError("the launch\nwas lost")

    monkeypatch.setattr(KernelSession, "step", lost)
    assert gpu.main([*WORDS, "--timeline", ""]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ours"]["tiny"] == {"failed": "RuntimeError: the launch was lost"}
    assert report["transformers"]["tiny"] > 0


def test_parts_for_which_no_time_is_left(
    gpu: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu.main([*WORDS, "--seconds", "20"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ours"]["tiny"]["skipped"].endswith("s left, 45 needed")


def test_without_a_gpu(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = Recorder(fail="cuInit", status=100)
    monkeypatch.setattr(cuda_driver, "driver_api", lambda: api)
    assert gpu.main(WORDS) == 1
    assert capsys.readouterr().err.startswith("gpu.py: CUDA driver: cuInit failed")
    with pytest.raises(SystemExit):
        gpu.main(["--shapes", "gpt-5"])
    assert "unknown shape 'gpt-5'" in capsys.readouterr().err


def test_logits_over_the_bar_fail_the_run(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = KernelSession.step
    monkeypatch.setattr(KernelSession, "step", lambda s, token: step(s, token) * 1.1)
    assert gpu.main([*WORDS, "--alone", "--timeline", ""]) == 1
    assert json.loads(capsys.readouterr().out)["ours"]["tiny"]["logits_within_bar"] is False


def test_the_prediction(
    gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "predicted.json"
    assert gpu.main(["--predict", "--shapes", "tiny", "--target", "l4", "--out", str(out)]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report == json.loads(out.read_text())
    first, last = report["predicted_us_per_token"]["tiny"].values()
    assert 0 < first < last
    assert "predicted, not measured" in captured.err
    assert "cuLaunchCooperativeKernel" not in gpu.api.names()
