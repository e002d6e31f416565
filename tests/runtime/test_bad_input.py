"""Bad input costs one clear line on stderr, the right exit code, and nothing half-written."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amk.runtime import bind, cache, toolchain
from amk.runtime.source import open_source
from tests.runtime.conftest import Amk
from tests.runtime.tiny_files import raw_safetensors, save_folder, save_toy, write_gguf

IDS = ("--prompt-ids", "1,2,3", "--max-tokens", "2")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "amk.cli.main", *map(str, words)]


# ---- model files --------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["generate", "compile", "import"])
def test_missing_model(amk: Amk, verb: str) -> None:
    words = IDS if verb == "generate" else ()
    amk(verb, "no/such/model", *words).refused(1, "no/such/model")
    amk(verb, "no-such.gguf", *words).refused(1, "no-such.gguf", "no such file")


def test_truncated_gguf(amk: Amk, tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf").read_bytes()
    for length in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        path = tmp_path / f"cut{length}.gguf"
        path.write_bytes(whole[:length])
        amk("generate", path, *IDS).refused(1, str(path))


def test_truncated_safetensors(amk: Amk, tmp_path: Path) -> None:
    folder = save_toy(tmp_path / "model")
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for length in (0, 7, 50, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        amk("generate", folder, *IDS).refused(1, "model.safetensors")


def test_safetensors_header_that_lies(amk: Amk, tmp_path: Path) -> None:
    folder = save_toy(tmp_path / "model")
    raw_safetensors(folder / "model.safetensors", b"{}", b"", length=1 << 60)
    amk("generate", folder, *IDS).refused(1, "model.safetensors")


def toy_tensors() -> dict[str, np.ndarray]:
    toy = open_source("toy")
    return {key: toy.read(key) for key in toy.tensors()}


DOWN = "model.layers.0.mlp.down_proj.weight"


def test_missing_key(amk: Amk, lowered_once: None, tmp_path: Path) -> None:
    tensors = toy_tensors()
    del tensors[DOWN]
    save_folder(tmp_path / "model", tensors, open_source("toy").config())
    amk("generate", tmp_path / "model", *IDS).refused(1, "no tensor", DOWN)


@pytest.mark.parametrize("shape", [(64, 127), (128, 64), (64 * 128,)])
def test_wrong_shape(amk: Amk, tmp_path: Path, shape: tuple[int, ...]) -> None:
    tensors = {**toy_tensors(), DOWN: np.zeros(shape, np.float32)}
    save_folder(tmp_path / "model", tensors, open_source("toy").config())
    ran = amk("generate", tmp_path / "model", *IDS)
    ran.refused(1, DOWN, str(list(shape)), "its config needs [64, 128]")


def test_weights_that_do_not_fit_a_session(cache_root: Path) -> None:
    import amk

    program = amk.compile("toy", max_seq=64)
    with pytest.raises(amk.errors.ModelFileError, match="missing"):
        program.session({})
    with pytest.raises(amk.errors.ModelFileError, match="the program wants"):
        program.session({**toy_tensors(), DOWN: np.zeros((3, 3), np.float32)})
    with pytest.raises(amk.errors.ModelFileError, match="float32, float16 or bf16"):
        program.session({**toy_tensors(), DOWN: np.zeros((64, 128), np.int64)})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "not a causal language model"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "not a causal language model"),
        ({"model_type": "no_such_type"}, "no_such_type"),
        ({"model_type": "llama", "quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"num_attention_heads": 7}, ""),
    ],
)
def test_other_models_are_refused_by_name(
    amk: Amk, tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    folder = save_toy(tmp_path / "model", **config)
    amk("generate", folder, *IDS).refused(1, words)


def test_a_pickle_is_never_loaded(amk: Amk, tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"\x80\x04.")
    amk("generate", path, *IDS).refused(1, "pickle")


# ---- what was typed -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--prompt-ids", "1,256"), "256 is outside the vocabulary [0, 256)"),
        (("--prompt-ids", "1,-1"), "-1 is negative"),
        (("--prompt-ids", "1,x"), "'x' is not an integer"),
        (("--prompt-ids", "1.5"), "'1.5' is not an integer"),
        (("--prompt-ids", ""), "prompt is empty"),
        (("--prompt", ""), "prompt is empty"),
        ((), "give --prompt"),
        (("--prompt-ids", "1", "--max-tokens", "2049"), "more than max_seq 2048"),
        (("--prompt-ids", "1,2", "--max-seq", "4", "--max-tokens", "4"), "more than max_seq 4"),
        (("--prompt-ids", "1", "--target", "h1000"), "unknown target 'h1000'; known: cpu"),
        (("--prompt-ids", "1", "--temperature", "-1"), "temperature"),
        (("--prompt-ids", "1", "--top-p", "2", "--temperature", "1"), "top-p"),
        (("--prompt-ids", "1", "--verify", "--temperature", "1"), "greedy"),
        (("--prompt-ids", "1", "--chat"), "--prompt"),
        (("--chat", "--json"), "--prompt"),
    ],
)
def test_usage_errors(amk: Amk, words: tuple[str, ...], said: str) -> None:
    amk("generate", "toy", *words).refused(2, said)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("fly",),
        ("generate",),
        ("generate", "toy", "--max-tokens", "0", *IDS[:2]),
        ("generate", "toy", "--max-tokens", "many", *IDS[:2]),
        ("generate", "toy", "--threads", "0", *IDS),
        ("generate", "toy", "--dtype", "f64", *IDS),
        ("generate", "toy", "--prompt", "a", *IDS),
        ("generate", "toy", "--json", "--stream", *IDS),
        ("eval", "toy"),
        ("bench", "toy", "--against", "gpt"),
        ("compile", "toy", "--target", "h1000"),
        ("cache", "burn"),
    ],
)
def test_argument_errors_exit_with_2(amk: Amk, words: tuple[str, ...]) -> None:
    ran = amk(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "error:" in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--backend", "cuda"), "cuda"),
        (("--weights", "native"), "--weights native"),
        (("--chat", "--prompt", "hi"), "no chat template"),
    ],
)
def test_what_cannot_be_done_yet_is_one_line(amk: Amk, words: tuple[str, ...], said: str) -> None:
    words = words if "--prompt" in words else (*words, *IDS)
    amk("generate", "toy", *words).refused(1, said)


def test_eval_texts(amk: Amk, tmp_path: Path) -> None:
    amk("eval", "toy", "--text", tmp_path / "none.txt").refused(1, "none.txt", "No such file")
    (tmp_path / "latin").write_bytes(b"caf\xe9 au lait")
    amk("eval", "toy", "--text", tmp_path / "latin").refused(1, "not UTF-8")
    (tmp_path / "short").write_text("a")
    amk("eval", "toy", "--text", tmp_path / "short").refused(2, "1 tokens")
    (tmp_path / "long").write_text("a" * 70)
    words = ("--text", tmp_path / "long", "--max-seq", 64)
    amk("eval", "toy", *words).refused(2, "70 tokens exceed max_seq 64")


# ---- the compiler -------------------------------------------------------------------------


def test_no_compiler(amk: Amk, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/no/such/cc")
    amk("generate", "toy", *IDS).refused(1, "/no/such/cc")


def test_failing_compiler(
    amk: Amk, lowered_once: None, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/bin/false")
    amk("generate", "toy", *IDS).refused(1, "/bin/false", "failed")
    # One that tells its version and then fails on the program.
    script = tmp_path / "cc"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo 1.0 && exit 0\necho no >&2\nexit 1\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    amk("generate", "toy", *IDS).refused(1, str(script), "failed")
    out = tmp_path / "out"
    amk("compile", "toy", "-o", out).refused(1, "failed")
    assert not out.exists()
    assert half_written(tmp_path, empty_cache) == []


# ---- the disk -----------------------------------------------------------------------------


def half_written(*folders: Path) -> list[str]:
    """Unfinished work left behind: build folders, temporary files, entries without a manifest."""
    left = []
    for folder in folders:
        for path in folder.rglob("*"):
            building = path.parent.name == cache.BUILDING
            if building or (path.name.startswith(".") and path.name != cache.BUILDING):
                left.append(str(path))
        programs = folder / "programs"
        if programs.is_dir():
            left += [str(p) for p in programs.iterdir() if not (p / "program.so").is_file()]
    return left


def full_disk(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("where", ["text", "library", "sync"])
def test_full_disk(
    amk: Amk, lowered_once: None, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    target = {
        "text": (Path, "write_text"),
        "library": (toolchain.subprocess, "run"),
        "sync": (cache, "_sync"),
    }[where]
    if where == "library":
        toolchain.find_compiler()
    monkeypatch.setattr(*target, full_disk)
    amk("generate", "toy", *IDS).refused(1, "" if where == "library" else "no space left")
    assert half_written(empty_cache) == []
    monkeypatch.undo()


def test_full_disk_for_the_output(
    amk: Amk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "replace", full_disk)
    amk("import", "toy", "-o", tmp_path / "f.mlir").refused(1, "f.mlir", "No space left")
    monkeypatch.setattr(os, "rename", full_disk)
    amk("compile", "toy", "-o", tmp_path / "out").refused(1)
    assert list(tmp_path.iterdir()) == []


def test_decoded_weights_need_no_space(
    amk: Amk, lowered_once: None, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keeping them is for the next start; without the space this one warns and goes on."""
    plain = amk("generate", "toy", *IDS).out
    monkeypatch.setattr(bind.weight_cache, "write_packed", full_disk)
    words = ("generate", "toy", *IDS, "--max-seq", 77)
    ran = amk(*words)
    assert (ran.code, ran.out) == (0, plain)
    assert ran.err.startswith("amk: warning: decoded weights are not kept: no space left")
    monkeypatch.undo()


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of 128 KiB, where this user may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "amk-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_disk_that_is_really_full(small_disk: Path) -> None:
    environment = {**os.environ, "AMK_CACHE_DIR": str(small_disk / "cache")}
    done = subprocess.run(
        command("generate", "toy", *IDS), env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "No space left" in done.stderr or "no space left" in done.stderr
    assert half_written(small_disk / "cache") == []


def test_cache_that_cannot_be_written(
    amk: Amk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("AMK_CACHE_DIR", str(blocker / "cache"))
    amk("generate", "toy", *IDS).refused(1, "AMK_CACHE_DIR")


# ---- other processes and signals ----------------------------------------------------------


def test_two_processes_compile_one_model(tmp_path: Path) -> None:
    environment = {**os.environ, "AMK_CACHE_DIR": str(tmp_path / "cache")}
    both = [
        subprocess.Popen(
            command("generate", "toy", *IDS),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    ran = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], ran
    assert ran[0][0] == ran[1][0] != ""
    assert len(list((tmp_path / "cache" / "programs").iterdir())) == 1
    assert half_written(tmp_path / "cache") == []


def test_interrupt_leaves_cleanly(cache_root: Path) -> None:
    words = ("--prompt-ids", "1", "--max-tokens", "2000", "--stream", "--backend", "reference")
    # A suite that runs in the background has SIGINT ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            command("generate", "toy", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, "")


def test_interrupt_in_process(amk: Amk, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("amk.runtime.generate.decode", interrupted)
    ran = amk("generate", "toy", *IDS)
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_closed_pipe_is_quiet(cache_root: Path) -> None:
    process = subprocess.Popen(
        command("import", "toy-2L"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    error = process.stderr.read()
    process.wait(timeout=60)
    assert (process.returncode, error) == (1, b"")
