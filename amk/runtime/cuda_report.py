"""Does a compiled kernel fit a GPU? The resource report, from the real compilation."""

from __future__ import annotations

from dataclasses import dataclass

from amk.runtime.cuda_nvrtc import Usage
from amk.runtime.kernel_program import Plan
from amk.targets import Gpu

WARP = 32
REGISTER_GRANULE = 256  # registers a warp is given, in steps
MAX_THREADS = {75: 1024, 86: 1536, 89: 1536, 120: 1536}  # of an SM; 2,048 elsewhere
MAX_BLOCKS = 16


@dataclass(frozen=True)
class Report:
    """What a kernel takes of a GPU, and whether all its blocks are resident at once."""

    usage: Usage
    shared_bytes: int
    threads: int
    blocks: int
    blocks_per_sm: int
    resident: int
    """Blocks the GPU holds at once."""

    @property
    def coresident(self) -> bool:
        return self.blocks <= self.resident

    @property
    def spills(self) -> bool:
        u = self.usage
        return u.spill_load_bytes > 0 or u.spill_store_bytes > 0 or u.stack_bytes > 0

    def line(self) -> str:
        """One line for people."""
        u = self.usage
        memory = f"{u.stack_bytes} B stack, {u.spill_store_bytes + u.spill_load_bytes} B spilled"
        verdict = "co-resident" if self.coresident else "NOT co-resident"
        return (
            f"{u.registers} registers, {memory}, {self.shared_bytes} B shared,"
            f" {self.blocks_per_sm} block(s) of {self.threads} threads an SM,"
            f" {self.blocks} of {self.resident} blocks: {verdict}"
        )


def report_of(plan: Plan, usage: Usage, gpu: Gpu) -> Report:
    """The report of a program compiled for `gpu`; the rules of the CUDA occupancy calculator."""
    warps = -(-plan.threads // WARP)
    granted = -(-usage.registers * WARP // REGISTER_GRANULE) * REGISTER_GRANULE * warps
    threads = MAX_THREADS.get(gpu.capability, 2048)
    shared = gpu.shared_per_sm // (plan.shared_bytes + gpu.reserved_shared)
    by = [gpu.registers // granted, threads // plan.threads, MAX_BLOCKS, shared]
    if plan.shared_bytes > gpu.shared:
        by.append(0)
    each = min(by)
    return Report(usage, plan.shared_bytes, plan.threads, plan.blocks, each, each * gpu.sms)


def resources_of(plan: Plan, usage: Usage, gpu: Gpu) -> dict[str, int]:
    """The numbers that V10 of `verify-mk` decides with: of a block its threads, the registers a
    thread is granted and the shared memory it takes, and what the device and each SM have."""
    warps = -(-plan.threads // WARP)
    granted = -(-usage.registers * WARP // REGISTER_GRANULE) * REGISTER_GRANULE
    return {
        "threads": warps * WARP,
        "registers": granted // WARP,
        "shared_bytes": plan.shared_bytes + gpu.reserved_shared,
        "processors": gpu.sms,
        "max_threads": MAX_THREADS.get(gpu.capability, 2048),
        "max_registers": gpu.registers,
        "max_shared_bytes": gpu.shared_per_sm if plan.shared_bytes <= gpu.shared else 0,
        "max_blocks": MAX_BLOCKS,
    }
