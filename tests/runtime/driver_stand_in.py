"""A stand-in for the CUDA driver's bindings that records every call and keeps memory, and one that
runs what is launched, on the host."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from amk import compiler
from amk.runtime.cuda_driver import CudaDevice
from amk.runtime.kernel_device import Arguments
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.kernel_session import KernelSession
from amk.runtime.simt import BLOCKS, compile_simt, load
from amk.runtime.source import open_source

ATTRIBUTES = {16: 132, 75: 9, 76: 0, 95: 1, 97: 232448}


class Recorder:
    """The driver's functions. Memory is the host's. `fail` names a function that fails with
    `status`, after it has worked `works` times."""

    def __init__(
        self, name: str = "NVIDIA H100 80GB HBM3", fail: str = "", status: int = 2, works: int = 0,
        **attributes: int,
    ):  # fmt: skip
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.memory: dict[int, np.ndarray] = {}
        self.name, self.fail, self.status, self.works = name, fail, status, works
        self.attributes = {**ATTRIBUTES, **{int(k[1:]): v for k, v in attributes.items()}}
        self.launches: list[dict[str, int]] = []
        self.total = self.free = 80 << 30
        self.resident = 1
        self.on_launch: Callable[[Arguments], None] = lambda arguments: None

    def __getattr__(self, function: str) -> Any:
        if not function.startswith("cu"):
            raise AttributeError(function)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((function, arguments))
            if function == self.fail:
                self.works -= 1
                if self.works < 0:
                    return (self.status,)
            return (0, *getattr(self, f"_{function}", lambda *a: ())(*arguments))

        return call

    def names(self, start: int = 0) -> list[str]:
        return [name for name, _ in self.calls[start:]]

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

    def _cuMemGetInfo(self) -> tuple[int, int]:
        return self.free, self.total

    def _cuMemAlloc(self, nbytes: int) -> tuple[int]:
        array = np.full(nbytes + 256, 0xEE, np.uint8)
        array = array[-array.ctypes.data % 256 :][:nbytes]
        self.memory[array.ctypes.data] = array
        return (array.ctypes.data,)

    def _cuMemsetD8(self, address: int, value: int, nbytes: int) -> tuple[()]:
        self.bytes_at(address, nbytes)[:] = value
        return ()

    def _cuMemFree(self, address: int) -> tuple[()]:
        del self.memory[address]
        return ()

    def _cuMemcpyHtoD(self, to: int, source: int, nbytes: int) -> tuple[()]:
        ctypes.memmove(self.bytes_at(to, nbytes).ctypes.data, source, nbytes)
        return ()

    def _cuMemcpyDtoH(self, to: int, source: int, nbytes: int) -> tuple[()]:
        ctypes.memmove(to, self.bytes_at(source, nbytes).ctypes.data, nbytes)
        return ()

    def _cuMemcpyDtoD(self, to: int, source: int, nbytes: int) -> tuple[()]:
        self.bytes_at(to, nbytes)[:] = self.bytes_at(source, nbytes)
        return ()

    def bytes_at(self, address: int, nbytes: int) -> np.ndarray:
        """Memory that lies inside one allocation."""
        for start, array in self.memory.items():
            if start <= address and address + nbytes <= start + array.nbytes:
                return array[address - start :][:nbytes]
        raise AssertionError(f"{nbytes} bytes at {address:#x} are not allocated")

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


class SimtDriver(Recorder):
    """A driver whose launches run here. Machine code is the path of a library for the host; an
    event is the time at which it was recorded."""

    def _cuModuleLoadData(self, image: bytes) -> tuple[ctypes.CDLL]:  # type: ignore[override]
        return (load(Path(image.decode())),)

    def _cuModuleGetFunction(self, module: ctypes.CDLL, name: bytes) -> tuple[ctypes.CDLL]:  # type: ignore[override]
        assert name == b"amk_program"
        return (module,)

    def _cuLaunchCooperativeKernel(self, function: Any, *numbers: int) -> tuple[()]:
        super()._cuLaunchCooperativeKernel(function, *numbers)
        (pointer,) = (ctypes.c_void_p * 1).from_address(numbers[-1])
        function.amk_simt_launch(pointer, numbers[0], 0, -1, 0)
        return ()

    def _cuEventCreate(self, flags: int) -> tuple[list[int]]:
        return ([0],)

    def _cuEventRecord(self, event: list[int], stream: int) -> tuple[()]:
        event[0] = time.perf_counter_ns()
        return ()

    def _cuEventElapsedTime(self, start: list[int], end: list[int]) -> tuple[float]:
        return ((end[0] - start[0]) / 1e6,)


Code = Callable[[KernelProgram, int], str]


def tokens_of(program: KernelProgram, number: int) -> str:
    return str(program.facts.tokens[number])


def host_code(program: KernelProgram, number: int) -> str:
    """What `SimtDriver` takes for machine code."""
    return str(compile_simt(program.source(number)))


def fake_code(made: KernelProgram, folder: Path, code: Code = tokens_of) -> KernelProgram:
    """A copy of a program in `folder`, with something else in place of machine code: by default
    the number of its tokens."""
    shutil.copytree(made.folder, folder)
    for number, tokens in enumerate(made.facts.tokens):
        (folder / f"program-{tokens}.cubin").write_text(code(made, number))
    program = KernelProgram(folder)
    program.check = lambda: None  # type: ignore[method-assign]  # its files are not the proved ones
    return program


compile_kernels = compiler.compile_kernels


def compile_for_host(*arguments: Any, **more: Any) -> KernelProgram:
    """As `compiler.compile_kernels`, with code that the stand-ins for a driver can run."""
    made = compile_kernels(*arguments, **more, workers=BLOCKS, machine_code=False)
    return fake_code(made, Path(tempfile.mkdtemp()) / "program", host_code)


def opened(program: KernelProgram, api: Recorder) -> KernelSession:
    return KernelSession(program, open_source("toy"), CudaDevice(program, api))
