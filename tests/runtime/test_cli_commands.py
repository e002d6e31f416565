"""`amk import`, `compile`, `eval`, `targets`, `doctor` and `cache`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amk as package
from amk.cli.common import module_text
from amk.cli.compile import Levels
from amk.cli.main import COMMANDS
from amk.ir import parse_module
from amk.passes import run_pipeline
from amk.runtime import evaluate as ev
from amk.runtime.program import Program
from amk.targets import TARGETS
from tests.runtime.conftest import Amk


def test_help_shows_examples(amk: Amk) -> None:
    whole = amk("--help")
    assert whole.code == 0
    for name in COMMANDS:
        word = name.rstrip("_")
        assert word in whole.out
        ran = amk(word, "--help")
        assert ran.code == 0
        assert f"examples:\n  amk {word}" in ran.out


# ---- import -------------------------------------------------------------------------------


def test_import_to_stdout_and_to_a_file(amk: Amk, tmp_path: Path) -> None:
    text = amk("import", "toy", "--tokens", 4).out
    module = parse_module(text)
    assert "tensor<1x4xi64>" in text
    # Locations survive the text.
    assert 'loc("model.layers.0.mlp.down_proj")' in text
    assert module_text(module) == text
    path = tmp_path / "f.mlir"
    ran = amk("import", "toy", "--tokens", 4, "-o", path)
    assert (ran.code, ran.out) == (0, "")
    assert path.read_text() == text
    amk("import", "toy", "-o", tmp_path / "none" / "f.mlir").refused(1, "cannot write")


# ---- compile ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(shared_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from amk.cli.main import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMK_CACHE_DIR", str(shared_cache))
        folder = tmp_path_factory.mktemp("compiled") / "out"
        assert main(["compile", "toy-2L", "--max-seq", "128", "-o", str(folder)]) == 0
    return folder


def test_compile_writes_every_level(compiled: Path) -> None:
    assert [p.name for p in compiled.parent.iterdir()] == ["out"]
    for name in ("program.c", "program.so", "program.json", "init.mlir"):
        assert (compiled / name).stat().st_size > 0
    for kind in ("decode", "prefill"):
        names = [p.name for p in sorted((compiled / kind).iterdir())]
        assert names[0] == "00-import.mlir"
        assert [int(name[:2]) for name in names] == list(range(len(names)))
        assert {"raise", "fuse", "schedule"} <= {name[3:-5] for name in names}


def test_the_folder_is_a_program(compiled: Path, cache_root: Path) -> None:
    program = Program(compiled)
    with (
        program.session("toy-2L") as ours,
        package.compile("toy-2L", max_seq=128).session("toy-2L") as other,
    ):
        assert np.array_equal(ours.logits([1, 2, 3]), other.logits([1, 2, 3]))


@pytest.mark.parametrize("kind", ["decode", "prefill"])
def test_passes_resume_from_each_level(compiled: Path, kind: str) -> None:
    levels = sorted((compiled / kind).iterdir())
    last = levels[-1].read_text()
    # Every third level is enough to notice a level that does not come back as it was.
    for i in range(0, len(levels) - 1, 3):
        module = parse_module(levels[i].read_text(), str(levels[i]))
        rest = [path.stem[3:] for path in levels[i + 1 :]]
        spec = ",".join(f"{name}{{max-seq=128}}" if name in SIZED else name for name in rest)
        run_pipeline(module, spec)
        assert module_text(module) == last, levels[i].name


SIZED = ("split-init", "split-kv")


def test_compile_replaces_its_own_and_nothing_else(amk: Amk, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    amk("compile", "toy", "-o", mine).refused(1, "holds other files")
    assert [p.name for p in mine.iterdir()] == ["thesis.tex"]
    amk("compile", "toy", "-o", mine / "thesis.tex").refused(1, "is a file")
    out = tmp_path / "out"
    out.mkdir()
    assert amk("compile", "toy", "--max-seq", 64, "-o", out).code == 0
    first = (out / "program.json").read_text()
    found = amk("compile", "toy", "--max-seq", 32, "-o", out, "--json").json
    assert (found["max_seq"], found["target"], found["folder"]) == (32, "cpu", str(out))
    assert "program.so" in found["files"]
    assert (out / "program.json").read_text() != first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "out"]


def test_a_failed_compile_leaves_the_old_output(
    amk: Amk, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {p: p.read_bytes() for p in compiled.rglob("*") if p.is_file()}

    def fail(self: Levels, name: str, module: Any, seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Levels, "__call__", fail)
    assert amk("compile", "toy", "-o", compiled).code == 130
    assert {p: p.read_bytes() for p in compiled.rglob("*") if p.is_file()} == before
    assert [p.name for p in compiled.parent.iterdir()] == ["out"]


def test_compile_without_output_warms_the_cache(amk: Amk, cache_root: Path) -> None:
    found = amk("compile", "toy", "--max-seq", 64, "--json").json
    assert Path(found["folder"]).is_relative_to(cache_root)


# ---- eval ---------------------------------------------------------------------------------

TEXT = "It was the best of times, it was the worst of times, it was the age of wisdom. " * 2


def test_eval(amk: Amk, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    words = ("eval", "toy", "--text", path, "--tokens", 100)
    exact = amk(*words, "--json").json
    assert exact["tokens"] == 100
    assert exact["hf_dtype"] is None
    assert exact["within_bar"] is None
    assert abs(exact["amk"]["nll"] - exact["hf_f32"]["nll"]) < 1e-6
    assert exact["amk"]["kl_mean"] < 1e-8
    rounded = amk(*words, "--dtype", "bf16", "--json").json
    assert 0 < rounded["amk"]["kl_mean"] <= 1.05 * rounded["hf_dtype"]["kl_mean"]
    assert rounded["within_bar"] is True
    assert rounded["kl_mean_ratio"] == pytest.approx(
        rounded["amk"]["kl_mean"] / rounded["hf_dtype"]["kl_mean"]
    )
    table = amk(*words, "--dtype", "bf16").out
    assert "HuggingFace bf16" in table
    assert "bar 1.05" in table


def test_nll_is_transformers_own(cache_root: Path) -> None:
    """Against the loss transformers computes, over a text longer than a chunk."""
    import torch

    from amk.runtime.source import open_source
    from amk.runtime.verify import eager_model

    ids = list(TEXT.encode())
    assert len(ids) > 2 * ev.CHUNK
    model = eager_model(open_source("toy"))
    with torch.no_grad():
        loss = model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item()
    session = package.compile("toy", max_seq=256).session("toy")
    found = ev.evaluate(session, model, ids, "toy", "f32")
    assert found.hf_f32.nll == pytest.approx(loss, abs=1e-5)
    assert found.amk.nll == pytest.approx(loss, abs=1e-5)
    assert found.amk.perplexity == pytest.approx(np.exp(loss), rel=1e-4)


def test_kl() -> None:
    p, q = np.log([[0.5, 0.5], [0.9, 0.1]]), np.log([[0.25, 0.75], [0.9, 0.1]])
    expected = 0.5 * np.log(2) + 0.5 * np.log(2 / 3)
    assert ev.kl(p, q) == pytest.approx([expected, 0.0])
    logits = np.array([[1e4, 0, -1e4]], np.float32)
    assert np.isfinite(ev.log_softmax(logits)).all()


def test_bars() -> None:
    fit, own = ev.Fit(1, 1, 1.04, 1.09), ev.Fit(1, 1, 1.0, 1.0)
    assert ev.Evaluation("m", "bf16", 9, fit, own, own).within_bar is True
    assert ev.Evaluation("m", "bf16", 9, ev.Fit(1, 1, 1.06, 1.0), own, own).within_bar is False
    assert ev.Evaluation("m", "bf16", 9, ev.Fit(1, 1, 1.0, 1.11), own, own).within_bar is False


# ---- targets, doctor, cache ---------------------------------------------------------------


def test_targets(amk: Amk) -> None:
    lines = amk("targets").out.splitlines()
    assert [line.split()[0] for line in lines] == list(TARGETS)
    listed = amk("targets", "--json").json["targets"]
    assert [t["name"] for t in listed] == list(TARGETS)


def test_doctor(amk: Amk, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = amk("doctor")
    assert ran.code == 0
    assert all(line.split()[0] in ("ok", "note") for line in ran.out.splitlines())
    monkeypatch.setenv("CC", "/no/such/cc")
    monkeypatch.setenv("AMK_CACHE_DIR", "/proc/none")
    ran = amk("doctor", "--json")
    assert ran.code == 1
    bad = {c["check"]: c["detail"] for c in json.loads(ran.out)["checks"] if c["status"] == "bad"}
    assert bad.keys() == {"C compiler", "cache"}
    assert "/no/such/cc" in bad["C compiler"]


def test_cache(amk: Amk, empty_cache: Path) -> None:
    assert amk("cache", "--json").json == {"root": str(empty_cache), "kinds": [], "freed": 0}
    assert amk("generate", "toy", "--prompt-ids", "1", "--max-tokens", 1).code == 0
    kinds = {k["kind"]: k for k in amk("cache", "--json").json["kinds"]}
    assert kinds.keys() == {"native", "programs", "weights"}
    assert kinds["programs"]["entries"] == 1
    assert str(empty_cache) in amk("cache").out
    ran = amk("cache", "clear")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("freed ")
    assert sum(k["entries"] for k in amk("cache", "--json").json["kinds"]) == 0
