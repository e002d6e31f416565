"""Every place of an append gives the same bits in compiled programs: native, and the CUDA text on
the host. The interpreter's part is in tests/property/test_place_kv_append.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from amk import compiler, passes
from amk.codegen.cuda.build import build_kernels
from amk.compiler import Options, compile
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.kernel_session import KernelSession
from amk.runtime.program import Program
from amk.runtime.simt import SimtDevice, Weather
from amk.runtime.source import as_source
from amk.targets import find_target
from tests.runtime.kv_probe import Shape, probe
from tests.runtime.kv_probe import tokens as random_ids
from tests.runtime.simt_tools import logits

pytestmark = pytest.mark.usefixtures("cache_root")
PLACES = ("epilogue", "attention", "stage")


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch):
    """Makes every pipeline put appends at one place, and the cache forget what it compiled."""

    def place(at: str) -> None:
        for name in ("amk-mk", "amk-cuda"):
            spec = plain[name].replace("place-kv-append", f"place-kv-append{{at={at}}}")
            monkeypatch.setitem(passes.PIPELINES, name, spec)
        monkeypatch.setattr(compiler, "compiler_key", lambda: f"{key} at={at}")

    plain, key = dict(passes.PIPELINES), compiler.compiler_key()
    return place


@pytest.mark.parametrize("kv_dtype", [pytest.param(None, marks=pytest.mark.slow), "int8"])
def test_native_programs(placed, kv_dtype: str | None) -> None:
    """Chunks of 16 rows over the border of two chunks of attention, then steps."""
    model = probe(Shape(heads=6))
    ids = random_ids(270)
    found = {}
    for at in PLACES:
        placed(at)
        program = compile(model, max_seq=320, kv_dtype=kv_dtype)
        assert isinstance(program, Program)
        with program.session(as_source(model)) as session:
            head = session.logits(ids[:9])
            chunks = session.logits(ids[9:265])
            steps = [session.step(t) for t in ids[265:]]
            found[at] = np.concatenate([head, chunks, np.stack(steps)])
    for at in PLACES:
        np.testing.assert_array_equal(found[at], found["epilogue"], err_msg=at)


def kernels(folder: Path) -> KernelProgram:
    folder.mkdir()
    target = find_target("h100")
    source = as_source("toy", "bf16")
    build_kernels(source, Options("h100", 300, "bf16"), target, folder, workers=3,
                  machine_code=False, tile_bytes=1024)  # fmt: skip
    return KernelProgram(folder)


def reads_after_a_barrier(text: str) -> None:
    """What threads stored into the caches is read by others: a barrier lies between."""
    appending = [body for body in text.split("AMK_INLINE void stage_") if "amk_attention<" in body]
    assert appending
    for body in appending:
        before, _, _ = body.rpartition("amk_attention<")
        assert "amk_sync(w);" in before[before.rindex("amk_put<") :]


def test_kernels(placed, tmp_path: Path) -> None:
    """Decode steps over the border, fibres in a random order; a chunk of 16 rows over it."""
    found, chunks = {}, {}
    for at in PLACES:
        placed(at)
        program = kernels(tmp_path / at)
        found[at] = logits(program, Weather("random", 3))
        if at == "attention":
            reads_after_a_barrier(program.source(0))
        with KernelSession(program, as_source("toy", "bf16"), SimtDevice(program), 60) as session:
            assert session.cache is not None
            session.cache.reserve(0, 280)
            session._moved()
            session.tokens = [0] * 250
            chunks[at] = session.logits([7 * i % 250 for i in range(17)])
    for at in PLACES:
        np.testing.assert_array_equal(found[at], found["epilogue"], err_msg=at)
        np.testing.assert_array_equal(chunks[at], chunks["epilogue"], err_msg=at)
