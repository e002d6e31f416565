"""What a kernel session asks of a device, and what it hands to a launch.

A device is the CUDA driver's, the host that runs blocks as threads, or a recorder in a test.
"""

from __future__ import annotations

import ctypes
from typing import Protocol

import numpy as np

from amk.runtime.kernel_program import Plan
from amk.runtime.kv_memory import MemoryDevice


class Arguments(ctypes.Structure):
    """`struct amk_launch` of device/amk_worker.h."""

    _fields_ = [
        ("past", ctypes.c_int64),
        ("capacity", ctypes.c_int64),
        ("operands", ctypes.c_uint64),
        ("events", ctypes.c_uint64),
        ("trouble", ctypes.c_uint64),
        ("scratch", ctypes.c_uint64),
        ("patience", ctypes.c_uint64),
        ("token", ctypes.c_uint64),
        ("made", ctypes.c_uint64),
        ("ends", ctypes.c_uint64),
        ("number", ctypes.c_uint32),
        ("steps", ctypes.c_uint32),
        ("end_count", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("timeline", ctypes.c_uint64),
    ]


class Device(MemoryDevice, Protocol):
    """Memory and launches, all in the order of the calls. Addresses are plain numbers; errors are
    AmkError."""

    def launch(self, number: int, plan: Plan, arguments: Arguments) -> None:
        """Starts a program's kernel, all its blocks at once. The arguments are the caller's again
        when it returns."""
        ...

    def close(self) -> None: ...


class Allocator:
    """Memory that is freed together. What `device` cannot give raises AmkError, as it does."""

    def __init__(self, device: Device):
        self.device = device
        self.addresses: list[int] = []

    def __call__(self, nbytes: int) -> int:
        """Zeroed memory of 16 bytes or more."""
        address = self.device.allocate(max(nbytes, 16))
        self.addresses.append(address)
        return address

    def array(self, array: np.ndarray) -> int:
        """Memory that holds a copy of `array`."""
        address = self(array.nbytes)
        self.device.write(address, array)
        return address

    def free(self) -> None:
        while self.addresses:
            self.device.free(self.addresses.pop())
