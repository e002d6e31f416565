"""The checks of tests/device, through a driver that runs kernels on the host: so that they do not
fail on the first real machine for reasons of their own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from amk import compiler
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.simt import BLOCKS, compile_simt
from amk.runtime.source import Source, as_source
from tests.device import checks
from tests.device.machine import Machine
from tests.runtime.driver_stand_in import SimtDriver, fake_code, host_code

pytestmark = pytest.mark.usefixtures("cache_root")


class HostMachine(Machine):
    """A machine whose GPU is the host."""

    def compile(self, source: Source, max_seq: int, dtype: str, **more: Any) -> KernelProgram:
        made = compiler.compile_kernels(
            source, self.target, max_seq, dtype, workers=BLOCKS, machine_code=False, **more
        )
        return fake_code(made, Path(tempfile.mkdtemp()) / "program", host_code)

    def code(self, text: str) -> bytes:
        return str(compile_simt(text)).encode()


@pytest.fixture
def machine() -> HostMachine:
    return HostMachine(SimtDriver(), patience_s=60)


@pytest.fixture
def toy() -> Source:
    return as_source("toy", "bf16")


@pytest.fixture
def program(machine: HostMachine, toy: Source) -> KernelProgram:
    return machine.compile(toy, 300, "bf16")


def test_logits(machine: HostMachine) -> None:
    checks.check_logits(machine, as_source("toy", "f32"), "f32", (0, 1, 33))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_logits_of_the_seeded_llama(machine: HostMachine, dtype: str) -> None:
    checks.check_logits(machine, checks.seeded_llama(512), dtype, (0, 1, 127, 128))


def test_bits_of_the_host(machine: HostMachine, toy: Source) -> None:
    checks.check_bits_of_the_host(machine, toy, "bf16", 6)


def test_steps(machine: HostMachine, program: KernelProgram, toy: Source) -> None:
    checks.check_steps(machine, program, toy, 20)


def test_growth(machine: HostMachine, program: KernelProgram, toy: Source) -> None:
    checks.check_growth(machine, program, toy, 17)
    api = machine.api
    assert "cuMemcpyDtoD" in api.names()
    assert api.memory == {}


def test_fork(machine: HostMachine, program: KernelProgram, toy: Source) -> None:
    checks.check_fork(machine, program, toy)


def test_state(machine: HostMachine, program: KernelProgram, toy: Source, tmp_path: Path) -> None:
    checks.check_state(machine, program, toy, tmp_path)


def test_hang(machine: HostMachine, program: KernelProgram, toy: Source) -> None:
    checks.check_hang(machine, program, toy)


def test_timeline(machine: HostMachine, toy: Source) -> None:
    checks.check_timeline(machine, toy)


def test_greedy_tokens(machine: HostMachine) -> None:
    checks.check_greedy_tokens(machine, as_source("toy", "f32"), [1, 2, 3], 12)
