"""The driver's side of a session, against a stand-in that records every call and keeps memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amk.errors import AmkError
from amk.runtime.cuda_driver import CudaDevice, detect
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.kernel_session import Arguments, KernelSession
from amk.runtime.kernel_trouble import TROUBLE_WORDS
from amk.runtime.source import open_source
from tests.runtime.simt_tools import toy

ATTRIBUTES = {16: 132, 75: 9, 76: 0, 95: 1, 97: 232448}


class Recorder:
    """The driver's functions. Memory is the host's; `fail` names a function that fails."""

    def __init__(self, name: str = "NVIDIA H100 80GB HBM3", fail: str = "", **attributes: int):
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.memory: dict[int, np.ndarray] = {}
        self.name, self.fail = name, fail
        self.attributes = {**ATTRIBUTES, **{int(k[1:]): v for k, v in attributes.items()}}
        self.launches: list[dict[str, int]] = []
        self.total, self.resident = 80 << 30, 1
        self.on_launch: Callable[[Arguments], None] = lambda arguments: None

    def __getattr__(self, function: str) -> Any:
        if not function.startswith("cu"):
            raise AttributeError(function)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((function, arguments))
            if function == self.fail:
                return (2,)
            return (0, *getattr(self, f"_{function}", lambda *a: ())(*arguments))

        return call

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def _cuGetErrorString(self, status: int) -> tuple[bytes]:
        return (b"out of memory",)

    def _cuDeviceGet(self, ordinal: int) -> tuple[int]:
        return (ordinal,)

    def _cuDeviceGetName(self, size: int, device: int) -> tuple[bytes]:
        return (self.name.encode() + b"\0" * 4,)

    def _cuDeviceGetAttribute(self, which: int, device: int) -> tuple[int]:
        return (self.attributes[which],)

    def _cuDeviceTotalMem(self, device: int) -> tuple[int]:
        return (self.total,)

    def _cuDevicePrimaryCtxRetain(self, device: int) -> tuple[str]:
        return ("context",)

    def _cuModuleLoadData(self, image: bytes) -> tuple[str]:
        return (f"module {image.decode()}",)

    def _cuModuleGetFunction(self, module: str, name: bytes) -> tuple[str]:
        return (f"{name.decode()} of {module}",)

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *_: Any) -> tuple[int]:
        return (self.resident,)

    def _cuMemAlloc(self, nbytes: int) -> tuple[int]:
        array = np.full(nbytes, 0xEE, np.uint8)
        self.memory[array.ctypes.data] = array
        return (array.ctypes.data,)

    def _cuMemsetD8(self, address: int, value: int, nbytes: int) -> tuple[()]:
        self.memory[address][:nbytes] = value
        return ()

    def _cuMemFree(self, address: int) -> tuple[()]:
        del self.memory[address]
        return ()

    def _cuMemcpyHtoD(self, to: int, source: int, nbytes: int) -> tuple[()]:
        assert nbytes <= self.memory[to].nbytes
        ctypes.memmove(to, source, nbytes)
        return ()

    def _cuMemcpyDtoH(self, to: int, source: int, nbytes: int) -> tuple[()]:
        assert nbytes <= self.memory[source].nbytes
        ctypes.memmove(to, source, nbytes)
        return ()

    def _cuLaunchCooperativeKernel(self, function: str, *numbers: int) -> tuple[()]:
        (pointer,) = (ctypes.c_void_p * 1).from_address(numbers[-1])
        arguments = Arguments.from_address(pointer)
        self.launches.append(
            {name: getattr(arguments, name) for name, _ in Arguments._fields_}
            | {"function": function, "grid": numbers[:3], "block": numbers[3:6],
               "shared": numbers[6], "stream": numbers[7]}  # type: ignore[dict-item]
        )  # fmt: skip
        self.on_launch(arguments)
        return ()


@pytest.fixture
def program(cache_root: Path, tmp_path: Path) -> KernelProgram:
    """The toy for three blocks, with its number of tokens in place of machine code."""
    import shutil

    from amk.runtime.certificate import CERTIFICATE

    made = toy()
    folder = tmp_path / "program"
    shutil.copytree(made.folder, folder)
    for tokens in made.facts.tokens:
        (folder / f"program-{tokens}.cubin").write_text(str(tokens))
    assert (folder / CERTIFICATE).is_file()
    return KernelProgram(folder)


def opened(program: KernelProgram, api: Recorder) -> KernelSession:
    program.check = lambda: None  # type: ignore[method-assign]
    return KernelSession(program, open_source("toy"), CudaDevice(program, api))


def test_launches(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:
        session.step(3)
        session.step(4)
        plan = program.plans[0]
        first, second = api.launches
        assert first["grid"] == (plan.blocks, 1, 1)
        assert first["block"] == (plan.threads, 1, 1)
        assert first["shared"] == plan.shared_bytes
        assert first["stream"] == 0
        assert first["function"] == "amk_program of module 1"
        assert (first["past"], first["number"]) == (0, 1)
        assert (second["past"], second["number"]) == (1, 2)
        assert second["capacity"] >= 2
        session.prefill(list(range(16)))
        assert api.launches[-1]["function"] == "amk_program of module 16"
        assert (api.launches[-1]["past"], api.launches[-1]["number"]) == (2, 1)


def test_weights_are_written_once_and_nothing_but_results_is_read(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:
        before = len(api.calls)
        session.step(3)
        session.step(4)
        session.step(5)
        moved = [a for n, a in api.calls[before:] if n == "cuMemcpyHtoD"]
        weights = program.weight_bytes()
        assert sum(a[2] for a in moved) < weights / 10
        last = list(api.names())[-4:]
        assert last == [
            "cuMemcpyHtoD", "cuLaunchCooperativeKernel", "cuMemcpyDtoH", "cuMemcpyDtoH"
        ]  # fmt: skip


def test_operands_point_to_what_was_written(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:
        session.step(9)
        table = np.frombuffer(api.memory[api.launches[0]["operands"]], np.uint64)
        plan = program.plans[0]
        at = plan.operands.index(
            next(i for i, s in enumerate(program.layout.slots) if s.kind == "input")
        )
        token = np.frombuffer(api.memory[int(table[at])][:8], np.int64)
        assert token[0] == 9


def test_everything_is_freed(program: KernelProgram) -> None:
    api = Recorder()
    opened(program, api).close()
    assert api.memory == {}
    assert api.names().count("cuModuleUnload") == 2
    assert api.names()[-1] == "cuDevicePrimaryCtxRelease"


def test_a_lost_launch_is_explained_and_the_next_starts_afresh(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:

        def lose(arguments: Arguments) -> None:
            words = np.array([2, 1, 0, 2, 1, 5, 8, 0], np.uint32)
            api.memory[arguments.trouble][: 4 * TROUBLE_WORDS] = words.view(np.uint8)
            api.memory[arguments.events][:4] = 7

        api.on_launch = lose
        with pytest.raises(AmkError, match=r"stage 2 .*o_proj.*event 0.*5 of 8 counted, 3 missing"):
            session.step(1)
        assert session.length == 0
        api.on_launch = lambda arguments: None
        session.step(1)
        assert api.launches[-1]["number"] == 1
        assert not api.memory[api.launches[-1]["events"]].any()


@pytest.mark.parametrize("function", ["cuMemAlloc", "cuModuleLoadData", "cuMemsetD8"])
def test_errors_say_what_failed_and_leave_nothing(program: KernelProgram, function: str) -> None:
    api = Recorder(fail=function)
    with pytest.raises(AmkError, match=rf"CUDA driver: {function} failed: out of memory \(2\)"):
        opened(program, api)
    assert api.memory == {}


def test_a_grid_that_does_not_fit_is_refused(program: KernelProgram) -> None:
    api = Recorder()
    api.resident = 0
    with pytest.raises(AmkError, match="wants 3 blocks at once and this GPU holds 0"):
        opened(program, api)
    assert "cuMemAlloc" not in api.names()


def test_a_model_too_large_is_refused_before_any_allocation(program: KernelProgram) -> None:
    api = Recorder()
    api.total = 1000
    with pytest.raises(AmkError, match=r"needs .* GB on the GPU, which has 0\.0"):
        opened(program, api)
    assert "cuMemAlloc" not in api.names()
    assert "cuDevicePrimaryCtxRetain" not in api.names()


@pytest.mark.parametrize(
    ("name", "capability", "sms", "target"),
    [
        ("NVIDIA H100 80GB HBM3", 90, 132, "h100"),
        ("NVIDIA H200", 90, 132, "h200"),
        ("NVIDIA L4", 89, 58, "l4"),
        ("NVIDIA GeForce RTX 4090", 89, 128, "rtx4090"),
        ("NVIDIA A100-SXM4-80GB", 80, 108, "a100"),
        ("Tesla T4", 75, 40, "t4"),
        ("NVIDIA A10G", 86, 80, "a10g"),
    ],
)
def test_detection(name: str, capability: int, sms: int, target: str) -> None:
    api = Recorder(name, a75=capability // 10, a76=capability % 10, a16=sms)
    assert detect(api).name == target


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(AmkError, match="sm_53"):
        detect(Recorder("NVIDIA Old", a75=5, a76=3))
