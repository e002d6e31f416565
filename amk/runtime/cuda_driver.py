"""A CUDA device through the driver API: memory, modules and cooperative launches.

`api` is `cuda.bindings.driver`, or a stand-in with the same functions; each returns a tuple whose
first element is a status, zero for success.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from typing import Any

import numpy as np

from amk.errors import AmkError
from amk.runtime.cuda_nvrtc import INSTALL_HINT
from amk.runtime.kernel_program import KernelProgram, Plan
from amk.runtime.kernel_session import Arguments
from amk.targets import TARGETS, Target

KERNEL = b"amk_program"
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


class Driver:
    """Calls of the driver, with errors as AmkError."""

    def __init__(self, api: Any | None = None):
        self.api = driver_api() if api is None else api

    def __call__(self, function: str, *arguments: object) -> Any:
        try:
            status, *rest = getattr(self.api, function)(*arguments)
        except RuntimeError as error:  # the bindings find no driver to load
            raise AmkError(f"CUDA driver: {function}: {str(error).splitlines()[0]}") from error
        if int(status) != 0:
            raise AmkError(f"CUDA driver: {function} failed: {self.message(status)}")
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
    """One GPU, in the primary context of the process."""

    def __init__(self, program: KernelProgram, api: Any | None = None, ordinal: int = 0):
        self._call = Driver(api)
        self._modules: list[Any] = []
        self._retained = False
        self._call("cuInit", 0)
        self.device = self._call("cuDeviceGet", ordinal)
        self._check_memory(program)
        self._context = self._call("cuDevicePrimaryCtxRetain", self.device)
        self._retained = True
        try:
            self._call("cuCtxSetCurrent", self._context)
            self._functions = [self._load(program, i) for i in range(len(program.plans))]
        except BaseException:
            self.close()
            raise

    def _check_memory(self, program: KernelProgram) -> None:
        """Before anything is allocated."""
        total = int(self._call("cuDeviceTotalMem", self.device))
        need = program.device_bytes()
        if need > total:
            raise AmkError(
                f"{program.facts.model} needs {need / 1e9:.1f} GB on the GPU, which has"
                f" {total / 1e9:.1f}: use a shorter max_seq or a smaller dtype"
            )

    def _load(self, program: KernelProgram, number: int) -> Any:
        plan = program.plans[number]
        module = self._call("cuModuleLoadData", program.cubin(number))
        self._modules.append(module)
        function = self._call("cuModuleGetFunction", module, KERNEL)
        kind = getattr(self._call.api, "CUfunction_attribute", int)
        self._call("cuFuncSetAttribute", function, kind(MAX_DYNAMIC_SHARED), plan.shared_bytes)
        each = self._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", function, plan.threads,
            plan.shared_bytes,
        )  # fmt: skip
        sms = self._call.attribute(SMS, self.device)
        if not self._call.attribute(COOPERATIVE, self.device):
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
            self._call("cuMemFree", address)
            raise
        return int(address)

    def free(self, address: int) -> None:
        self._call("cuMemFree", address)

    def write(self, address: int, array: np.ndarray) -> None:
        array = np.ascontiguousarray(array)
        self._call("cuMemcpyHtoD", address, array.ctypes.data, array.nbytes)

    def read(self, address: int, array: np.ndarray) -> None:
        self._call("cuMemcpyDtoH", array.ctypes.data, address, array.nbytes)

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
        for module in self._modules:
            self._call("cuModuleUnload", module)
        self._modules = []
        self._call("cuDevicePrimaryCtxRelease", self.device)
