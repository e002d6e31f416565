"""NVIDIA's own bindings, called as a GPU would be, over a driver library that runs on the host."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amk.runtime.toolchain import find_compiler
from tests.runtime.conftest import Amk

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="the extra 'cuda' is not installed"
)
ROOT = Path(__file__).parents[2]
CHILD = """
import sys
from amk import compiler
from tests.runtime.driver_stand_in import compile_for_host
compiler.compile_kernels = compile_for_host
{what}
"""
GENERATE = """
from amk.cli.main import main
raise SystemExit(main(sys.argv[1:]))
"""
BENCHMARK = """
import runpy
sys.argv[0] = sys.argv.pop(1)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).parent / "fake_libcuda.c"
    words = (*find_compiler().command, "-std=gnu11", "-shared", "-fPIC", "-Wall", "-Wextra")
    output = folder / "libcuda.so.1"
    subprocess.run([*words, "-o", str(output), str(source), "-ldl"], check=True)
    return folder


def run(library: Path, what: str, *words: object) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-c", CHILD.format(what=what), *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_generation(library: Path, amk: Amk) -> None:
    words = ("generate", "toy", "--prompt-ids", "1,2,3", "--max-tokens", 6, "--dtype", "bf16")
    done = run(library, GENERATE, *words, "--target", "cuda", "--json", "--tokens-per-launch", 2)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["backend"], found["gpu"], len(found["generated"])) == ("cuda", "h200", 6)
    assert amk(*words, "--json").json["tokens"] == found["tokens"]


@pytest.mark.slow
def test_benchmark(library: Path, cache_root: Path) -> None:
    script = ROOT / "benchmarks" / "gpu.py"
    words = (
        "--shapes", "tiny", "--timeline", "tiny", "--max-seq", 40, "--repeats", 2, "--alone",
        "--copy-bytes", 65536,
    )  # fmt: skip
    done = run(library, BENCHMARK, script, *words)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ours"]["tiny"]["logits_within_bar"] is True
    assert report["copy"]["bytes_per_s"] > 0
    assert report["timeline"]["tiny"]


def test_a_library_that_is_not_there(library: Path, cache_root: Path) -> None:
    done = run(
        library / "nothing", GENERATE, "generate", "toy", "--prompt-ids", 1, "--target", "cuda"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("amk: error: device 'cuda': the CUDA driver offers no device")
