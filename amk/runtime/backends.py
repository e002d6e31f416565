"""What can run a program, as a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from amk.errors import AmkError
from amk.runtime.decoder import Decoder
from amk.runtime.driver import cuda_device_count
from amk.runtime.source import Source
from amk.targets import Target, find_target

DEVICES = ("auto", "cpu", "cuda")
Report = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How a source is to be run. `report` is told what long work is at, a line each time."""

    target: Target = field(default_factory=lambda: find_target("cpu"))
    max_seq: int | None = None
    dtype: str = "f32"
    threads: int | None = None
    report: Report = field(default=lambda text: None)
    speculate: bool = False
    """Whether there is to be a program that checks proposed tokens."""
    kv_dtype: str | None = None
    kv_policy: str = "doubling"
    """As in `amk.compile`."""


@dataclass(frozen=True)
class Backend:
    """`open` compiles a source and gives a decoder; None until the backend exists."""

    device: str
    open: Callable[[Source, Settings], Decoder] | None


def open_native(source: Source, settings: Settings) -> Decoder:
    """The C program on this machine's processor."""
    from amk.compiler import compile
    from amk.runtime.program import Program

    def on_pass(name: str, module: object, seconds: float) -> None:
        settings.report(f"compiling {source.name}: {name}")

    settings.report(f"looking for {source.name} in the cache")
    program = compile(
        source, "cpu", settings.max_seq, settings.dtype, on_pass, settings.speculate,
        settings.kv_dtype, settings.kv_policy,
    )  # fmt: skip
    assert isinstance(program, Program)
    settings.report(f"loading the weights of {source.name}")
    return program.session(source, settings.threads)


def open_reference(source: Source, settings: Settings) -> Decoder:
    """The interpreter of mk over the same lowered programs; no C compiler is needed."""
    from amk.runtime.reference import open_interpreter

    return open_interpreter(source, settings)


def open_simt(source: Source, settings: Settings) -> Decoder:
    """The CUDA program's own text, run on this machine's processor, a thread a block."""
    from amk.compiler import compile_kernels
    from amk.runtime.kernel_session import KernelSession
    from amk.runtime.simt import BLOCKS, SIMT_PATIENCE_S, SimtDevice

    target = settings.target if settings.target.gpu is not None else find_target("h100")
    settings.report(f"compiling {source.name} for {target.name}, to run here")
    program = compile_kernels(
        source, target, settings.max_seq, settings.dtype, workers=BLOCKS, machine_code=False,
        kv_dtype=settings.kv_dtype, kv_policy=settings.kv_policy,
    )  # fmt: skip
    return KernelSession(program, source, SimtDevice(program), SIMT_PATIENCE_S)


def open_cuda(source: Source, settings: Settings) -> Decoder:
    """The kernels on the first GPU, for the settings' target or else for what the GPU is."""
    from amk.compiler import compile_kernels
    from amk.runtime.cuda_driver import CudaDevice, detect
    from amk.runtime.kernel_session import KernelSession

    target, found = settings.target, detect()
    if target.gpu is None:
        target = found
    if target.gpu is None or found.gpu is None or target.gpu.arch != found.gpu.arch:
        raise AmkError(f"target {target.name!r} is not this machine's GPU: use {found.name!r}")
    settings.report(f"compiling {source.name} for {target.name}")
    program = compile_kernels(
        source, target, settings.max_seq, settings.dtype, kv_dtype=settings.kv_dtype,
        kv_policy=settings.kv_policy,
    )  # fmt: skip
    settings.report(f"loading the weights of {source.name}")
    return KernelSession(program, source, CudaDevice(program))


BACKENDS: dict[str, Backend] = {
    "native": Backend("cpu", open_native),
    "reference": Backend("cpu", open_reference),
    "simt": Backend("cpu", open_simt),
    "cuda": Backend("cuda", open_cuda),
}


def resolve_target(target: str | Target) -> Target:
    """As `find_target`, and "cuda" means the row that this machine's GPU is.

    KeyError for an unknown name; AmkError for "cuda" without a device, its driver's bindings, or a
    row for it."""
    if target != "cuda":
        return find_target(target)
    from amk.runtime.cuda_driver import detect

    choose_device("cuda")
    return detect()


def choose_device(device: str) -> str:
    """ "cpu" or "cuda"; AmkError, a RuntimeError, when "cuda" is asked for and the driver offers
    none. "auto" is the CPU: see docs/decisions.md."""
    if device not in DEVICES:
        raise ValueError(f"device {device!r} is not one of {', '.join(DEVICES)}")
    if device == "cuda" and cuda_device_count() == 0:
        raise AmkError("device 'cuda': the CUDA driver offers no device on this machine")
    return "cpu" if device == "auto" else device


def choose_backend(name: str, device: str = "auto") -> str:
    """The name of the backend "auto" stands for, or `name` itself when it can run here.

    AmkError, a RuntimeError, for a backend that is not there yet or needs an absent device.
    """
    if name == "auto":
        name = "cuda" if choose_device(device) == "cuda" else "native"
    if name not in BACKENDS:
        raise KeyError(f"unknown backend {name!r}; known: auto, {', '.join(BACKENDS)}")
    backend = BACKENDS[name]
    if backend.open is None:
        raise AmkError(f"backend {name!r} is not available in this version: use --backend native")
    if backend.device == "cuda":
        choose_device("cuda")
    return name


def open_decoder(name: str, source: Source, settings: Settings) -> Decoder:
    """Compiles `source` and opens it on backend `name`, one that `choose_backend` gave."""
    opened = BACKENDS[name].open
    if opened is None:
        raise AmkError(f"backend {name!r} is not available in this version: use --backend native")
    return opened(source, settings)
