"""A stand-in for the CUDA driver's bindings that records every call and keeps memory."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from amk.runtime.cuda_driver import CudaDevice
from amk.runtime.kernel_device import Arguments
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.kernel_session import KernelSession
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

    def _cuMemGetInfo(self) -> tuple[tuple[int, int]]:
        return ((self.free, self.total),)

    def _cuMemAlloc(self, nbytes: int) -> tuple[int]:
        array = np.full(nbytes, 0xEE, np.uint8)
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


def fake_code(made: KernelProgram, folder: Path) -> KernelProgram:
    """A copy of a program in `folder`, with its number of tokens in place of machine code."""
    shutil.copytree(made.folder, folder)
    for tokens in made.facts.tokens:
        (folder / f"program-{tokens}.cubin").write_text(str(tokens))
    program = KernelProgram(folder)
    program.check = lambda: None  # type: ignore[method-assign]  # its files are not the proved ones
    return program


def opened(program: KernelProgram, api: Recorder) -> KernelSession:
    return KernelSession(program, open_source("toy"), CudaDevice(program, api))
