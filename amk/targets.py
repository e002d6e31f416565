"""The machines a program can be compiled for, as data.

Another GPU is a new row of `GPUS` and nothing else. Its figures are the maker's: SMs, the shared
memory a block may opt in to, registers and L2 from the CUDA programming guide and the device's
own properties; bandwidth and memory from its data sheet. `in_flight` is what an SM must have
under way to keep the memory busy, bandwidth × latency / SMs, with a generous latency since a
kernel's stages also wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

KB = 1024
GB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    """What the compiler has to know of a GPU. Sizes in bytes, bandwidth in bytes a second."""

    arch: str
    """The architecture as NVRTC names it, without `sm_`."""
    sms: int
    shared: int
    """Shared memory a block may opt in to."""
    l2: int
    bandwidth: float
    memory: int
    in_flight: int
    registers: int = 65536
    shared_per_sm: int = 0
    reserved_shared: int = KB
    cluster: int = 1
    """Blocks that may form a cluster."""

    @property
    def capability(self) -> int:
        """Compute capability times ten."""
        return int(self.arch.rstrip("af"))

    @property
    def bf16_mma(self) -> bool:
        return self.capability >= 80

    @property
    def async_copy(self) -> bool:
        """Copies of 16 bytes from memory to shared memory that complete on a barrier."""
        return self.capability >= 80

    @property
    def bulk_copy(self) -> bool:
        """Copies of any multiple of 16 bytes by one instruction (sm_90 and later)."""
        return self.capability >= 90


@dataclass(frozen=True)
class Target:
    """A machine: the name a user types, the emitter ("cpu" or "cuda"), and a line about it."""

    name: str
    kind: str
    summary: str
    gpu: Gpu | None = None


def ampere(arch: str, sms: int, l2_mb: int, gb_s: float, memory_gb: int, shared_kb: int) -> Gpu:
    """A GPU with 16-byte asynchronous copies, sm_80 and later."""
    return Gpu(
        arch, sms, shared_kb * KB, l2_mb << 20, gb_s * 1e9, memory_gb * GB, 64 * KB,
        shared_per_sm=(shared_kb + 1) * KB,
    )  # fmt: skip


def hopper(arch: str, sms: int, l2_mb: int, gb_s: float, memory_gb: int) -> Gpu:
    """A GPU with bulk copies and 227 KB of shared memory a block."""
    return Gpu(
        arch, sms, 227 * KB, l2_mb << 20, gb_s * 1e9, memory_gb * GB, 190 * KB,
        shared_per_sm=228 * KB, cluster=8,
    )  # fmt: skip


TURING = Gpu(
    "75", 40, 64 * KB, 4 << 20, 320e9, 15 * GB, 32 * KB,
    shared_per_sm=64 * KB, reserved_shared=0,
)  # fmt: skip

GPUS: dict[str, tuple[str, Gpu]] = {
    "t4": ("NVIDIA T4", TURING),
    "rtx3090": ("NVIDIA GeForce RTX 3090", ampere("86", 82, 6, 936, 24, 99)),
    "a10g": ("NVIDIA A10G", ampere("86", 80, 6, 600, 22, 99)),
    "a100": ("NVIDIA A100 80 GB", ampere("80", 108, 40, 2039, 80, 163)),
    "l4": ("NVIDIA L4", ampere("89", 58, 48, 300, 22, 99)),
    "l40s": ("NVIDIA L40S", ampere("89", 142, 96, 864, 45, 99)),
    "rtx4090": ("NVIDIA GeForce RTX 4090", ampere("89", 128, 72, 1008, 24, 99)),
    "rtx5090": ("NVIDIA GeForce RTX 5090", ampere("120a", 170, 96, 1792, 32, 99)),
    "h100": ("NVIDIA H100 SXM", hopper("90a", 132, 50, 3350, 80)),
    "h200": ("NVIDIA H200", hopper("90a", 132, 50, 4800, 141)),
    "b200": ("NVIDIA B200", hopper("100a", 148, 126, 7700, 180)),
}

TARGETS: dict[str, Target] = {
    "cpu": Target("cpu", "cpu", "the processor of this machine, through its C compiler"),
    **{
        name: Target(name, "cuda", f"{title}, sm_{gpu.arch}, {gpu.sms} SMs", gpu)
        for name, (title, gpu) in GPUS.items()
    },
}


def find_target(target: str | Target) -> Target:
    """The target of a name, or `target` itself; KeyError that lists the known names.

    `sm_90a` and the like mean the first row of that architecture.
    """
    if isinstance(target, Target):
        return target
    if target in TARGETS:
        return TARGETS[target]
    for row in TARGETS.values():
        if row.gpu is not None and target == f"sm_{row.gpu.arch}":
            return row
    raise KeyError(f"unknown target {target!r}; known: {', '.join(TARGETS)}")
