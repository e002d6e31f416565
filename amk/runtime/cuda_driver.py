"""A CUDA device through the driver API: memory, modules and cooperative launches.

`api` is `cuda.bindings.driver`, or a stand-in with the same functions; each returns a tuple whose
first element is a status, zero for success.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import threading
from typing import Any

import numpy as np

from amk.errors import AmkError
from amk.runtime.cuda_nvrtc import INSTALL_HINT
from amk.runtime.kernel_device import Arguments
from amk.runtime.kernel_program import KernelProgram, Plan
from amk.targets import TARGETS, Target

KERNEL = b"amk_program"
LOST = frozenset({700, 702, 714, 715, 716, 717, 718, 719, 720, 999})
"""Statuses after which a context answers every call with the same status (cuda.h)."""
# Numbers of the driver's enumerations (cuda.h), so that a stand-in needs none of its own.
SMS, MAJOR, MINOR, COOPERATIVE, SHARED_OPT_IN = 16, 75, 76, 95, 97
MAX_DYNAMIC_SHARED = 8


def driver_api() -> Any:
    """The driver's bindings; AmkError without them."""
    if (
        importlib.util.find_spec("cuda") is None
        or importlib.util.find_spec("cuda.bindings") is None
    ):
        raise AmkError(f"cuda-bindings is missing; {INSTALL_HINT}")
    return importlib.import_module("cuda.bindings.driver")


class DriverError(AmkError):
    """A call of the driver failed."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class Driver:
    """Calls of the driver; a failed one raises DriverError."""

    def __init__(self, api: Any | None = None):
        self.api = driver_api() if api is None else api

    def __call__(self, function: str, *arguments: object) -> Any:
        try:
            status, *rest = getattr(self.api, function)(*arguments)
        except RuntimeError as error:  # the bindings find no driver to load
            raise AmkError(f"CUDA driver: {function}: {str(error).splitlines()[0]}") from error
        if int(status) != 0:
            lost = "; this process cannot use the GPU any more" if int(status) in LOST else ""
            raise DriverError(
                f"CUDA driver: {function} failed: {self.message(status)}{lost}", int(status)
            )
        return rest[0] if len(rest) == 1 else rest or None

    def message(self, status: Any) -> str:
        found = self.api.cuGetErrorString(status)[1]
        text = found.decode() if isinstance(found, bytes) else str(found)
        return f"{text} ({int(status)})"

    def attribute(self, which: int, device: Any) -> int:
        kind = getattr(self.api, "CUdevice_attribute", int)
        return int(self("cuDeviceGetAttribute", kind(which), device))


def detect(api: Any | None = None, ordinal: int = 0) -> Target:
    """The row of the table that a device is: its architecture and number of SMs, then its name.

    AmkError when no row has its architecture."""
    call = Driver(api)
    call("cuInit", 0)
    device = call("cuDeviceGet", ordinal)
    capability = 10 * call.attribute(MAJOR, device) + call.attribute(MINOR, device)
    sms = call.attribute(SMS, device)
    name = call("cuDeviceGetName", 256, device)
    name = (name.decode() if isinstance(name, bytes) else str(name)).strip("\0")
    rows = [t for t in TARGETS.values() if t.gpu is not None and t.gpu.capability == capability]
    if not rows:
        raise AmkError(
            f"{name} (sm_{capability}): no target has this architecture; see amk targets"
        )

    def distance(row: Target) -> tuple[bool, int]:
        """A row whose name the device bears comes first, then one with as many SMs."""
        assert row.gpu is not None
        bears = row.name in name.lower().replace(" ", "")
        return not bears, abs(row.gpu.sms - sms)

    return min(rows, key=distance)


class CudaDevice:
    """One GPU, in the primary context of the process, from any of its threads.

    Once the GPU has given up on a launch or an access, the context answers nothing any more: the
    error says so, and what this device holds is left to the end of the process."""

    def __init__(self, program: KernelProgram, api: Any | None = None, ordinal: int = 0):
        self._driver = Driver(api)
        self._modules: list[Any] = []
        self._retained = self._lost = False
        self._threads = threading.local()
        self._driver("cuInit", 0)
        self.device = self._driver("cuDeviceGet", ordinal)
        need = program.device_bytes()
        self._check_memory(program, need, int(self._driver("cuDeviceTotalMem", self.device)))
        self._context = self._driver("cuDevicePrimaryCtxRetain", self.device)
        self._retained = True
        try:
            self._check_memory(program, need, int(self._call("cuMemGetInfo")[0]), " free")
            self._functions = [self._load(program, i) for i in range(len(program.plans))]
        except BaseException:
            self.close()
            raise

    def _call(self, function: str, *arguments: object) -> Any:
        """A call of the driver in this device's context."""
        if getattr(self._threads, "context", None) is None:
            self._driver("cuCtxSetCurrent", self._context)
            self._threads.context = self._context
        try:
            return self._driver(function, *arguments)
        except DriverError as error:
            self._lost = self._lost or error.status in LOST
            raise

    def _check_memory(self, program: KernelProgram, need: int, room: int, kind: str = "") -> None:
        """Before anything is allocated."""
        if need > room:
            raise AmkError(
                f"{program.facts.model} needs {need / 1e9:.1f} GB on the GPU, which has"
                f" {room / 1e9:.1f}{kind}: use a shorter max_seq or a smaller dtype"
            )

    def _load(self, program: KernelProgram, number: int) -> Any:
        plan = program.plans[number]
        module = self._call("cuModuleLoadData", program.cubin(number))
        self._modules.append(module)
        function = self._call("cuModuleGetFunction", module, KERNEL)
        kind = getattr(self._driver.api, "CUfunction_attribute", int)
        self._call("cuFuncSetAttribute", function, kind(MAX_DYNAMIC_SHARED), plan.shared_bytes)
        each = self._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", function, plan.threads,
            plan.shared_bytes,
        )  # fmt: skip
        sms = self._driver.attribute(SMS, self.device)
        if not self._driver.attribute(COOPERATIVE, self.device):
            raise AmkError("the GPU has no cooperative launch")
        if int(each) * sms < plan.blocks:
            raise AmkError(
                f"the kernel wants {plan.blocks} blocks at once and this GPU holds"
                f" {int(each) * sms} ({sms} SMs): compile for its own target"
            )
        return function

    # ---- Device ----

    def allocate(self, nbytes: int) -> int:
        address = self._call("cuMemAlloc", nbytes)
        try:
            self._call("cuMemsetD8", address, 0, nbytes)
        except BaseException:
            self.free(int(address))
            raise
        return int(address)

    def free(self, address: int) -> None:
        if not self._lost:
            self._call("cuMemFree", address)

    def write(self, address: int, array: np.ndarray) -> None:
        array = np.ascontiguousarray(array)
        self._call("cuMemcpyHtoD", address, array.ctypes.data, array.nbytes)

    def read(self, address: int, array: np.ndarray) -> None:
        self._call("cuMemcpyDtoH", array.ctypes.data, address, array.nbytes)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        self._call("cuMemcpyDtoD", to, source, nbytes)

    def launch(self, number: int, plan: Plan, arguments: Arguments) -> None:
        # The driver copies the arguments before the call returns.
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        self._call(
            "cuLaunchCooperativeKernel", self._functions[number], plan.blocks, 1, 1, plan.threads,
            1, 1, plan.shared_bytes, 0, ctypes.addressof(pointers),
        )  # fmt: skip

    def close(self) -> None:
        if not self._retained:
            return
        self._retained = False
        while self._modules and not self._lost:
            self._call("cuModuleUnload", self._modules.pop())
        self._driver("cuDevicePrimaryCtxRelease", self.device)
