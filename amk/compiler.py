"""The way of a model from source to compiled program; see docs/architecture.md."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.errors import AmkError
from amk.runtime.cache import Cache, stable_hash
from amk.runtime.certificate import save_certificate
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.program import CERTIFIED, INIT_PREFIX, LIBRARY, Facts, Program, save_program
from amk.runtime.source import Source, as_source
from amk.runtime.toolchain import compile_shared, cpu_identity, find_compiler
from amk.targets import TARGETS, Target, find_target

if TYPE_CHECKING:
    from torch import nn
    from xdsl.dialects.builtin import ModuleOp

DTYPES = ("f32", "bf16", "f16")
KV_DTYPES = (*DTYPES, "int8")
KV_POLICIES = ("doubling", "static")
PREFILL_TOKENS = 16
CHECKING_TOKENS = 8
"""Tokens of the program that checks proposals; see `amk.runtime.speculate`."""
DEFAULT_MAX_SEQ = 2048
IMPORTED_WITH = ("torch", "transformers", "xdsl")
"""Packages whose version may change what a model is imported as."""
COMPILED_FOLDERS = ("ir", "interpreters", "frontend", "passes", "verify", "codegen")

OnPass = Callable[[str, "ModuleOp", float], Any]


@dataclass(frozen=True)
class Options:
    """Everything besides the model that decides what is compiled."""

    target: str = "cpu"
    max_seq: int = DEFAULT_MAX_SEQ
    dtype: str = "f32"
    tokens: tuple[int, ...] = (1, PREFILL_TOKENS)
    kv_dtype: str | None = None
    """Storage dtype of the cache; None for `dtype`."""
    kv_policy: str = "doubling"
    """How caches that hold all rows grow: "doubling", or "static" for `max_seq` rows at once."""

    def __post_init__(self) -> None:
        find_target(self.target)
        if self.dtype not in DTYPES:
            raise ValueError(f"unknown dtype {self.dtype!r}; known: {', '.join(DTYPES)}")
        if self.kv_dtype not in (None, *KV_DTYPES):
            raise ValueError(f"unknown kv_dtype {self.kv_dtype!r}; known: {', '.join(KV_DTYPES)}")
        if self.kv_policy not in KV_POLICIES:
            known = ", ".join(KV_POLICIES)
            raise ValueError(f"unknown kv_policy {self.kv_policy!r}; known: {known}")
        if self.max_seq < 1:
            raise ValueError(f"max_seq {self.max_seq} is not positive")


@functools.cache
def compiler_key() -> str:
    """Changes whenever a file that decides what is emitted does."""
    root = Path(__file__).parent
    found = [p for d in COMPILED_FOLDERS for p in sorted((root / d).rglob("*.[ph]*"))]
    texts = [(str(p.relative_to(root)), p.read_bytes()) for p in found if p.suffix in (".py", ".h")]
    return stable_hash(*(part for pair in texts for part in pair))


def compile(
    model: str | Path | Source | nn.Module,
    target: str = "cpu",
    max_seq: int | None = None,
    dtype: str = "f32",
    on_pass: OnPass | None = None,
    speculate: bool = False,
    kv_dtype: str | None = None,
    kv_policy: str = "doubling",
) -> Program | KernelProgram:
    """Compiles a model for a target, or finds it compiled in the cache.

    `model` is what MODEL may be on the command line, an open Source, a transformers model, or a
    plain nn.Module. `max_seq` defaults to
    2,048 or the model's own longest sequence, whichever is less. With `speculate` there is one more
    program, which checks proposed tokens. `kv_dtype` is the storage dtype of the cache, by default
    that of the weights; `kv_policy` says how it grows, "doubling" or "static". Raises KeyError for
    an unknown target, ImportRefused for a model that cannot be compiled exactly, ToolchainError
    without a working C compiler.
    """
    source = as_source(model, dtype)
    options = options_for(source, target, max_seq, dtype, speculate, kv_dtype, kv_policy)
    if find_target(target).gpu is not None:
        return compile_kernels(
            source, target, max_seq, dtype, on_pass, kv_dtype=kv_dtype, kv_policy=kv_policy
        )
    key = stable_hash(
        "program", compiler_key(), source.fingerprint(), options.target, options.max_seq,
        options.dtype, list(options.tokens), options.kv_dtype, options.kv_policy,
        find_compiler().version, cpu_identity(), [version(package) for package in IMPORTED_WITH],
    )  # fmt: skip
    folder = Cache("programs").put(key, lambda d: build(source, options, d, on_pass))
    return Program(folder)


def compile_kernels(
    model: str | Path | Source | nn.Module,
    target: str | Target,
    max_seq: int | None = None,
    dtype: str = "f32",
    on_pass: OnPass | None = None,
    workers: int | None = None,
    machine_code: bool = True,
    tile_bytes: int | None = None,
    kv_dtype: str | None = None,
    tokens: Sequence[int] | None = None,
    timeline: bool = False,
    kv_policy: str = "doubling",
) -> KernelProgram:
    """Compiles a model's kernels for a GPU, or finds them compiled in the cache.

    `model`, `max_seq`, `dtype`, `kv_dtype` and `kv_policy` as in `compile`; `workers` is the
    grid, by default the GPU's SMs, and `tile_bytes` of weights go to a tile. Without
    `machine_code` only the text is made, for the host to run. `tokens` are the numbers of new
    tokens to compile for, by default 1 and a chunk; with `timeline` blocks write down when they
    began and ended each stage. Raises KeyError for an unknown target, ToolchainError without NVRTC,
    AmkError for a model that does not fit the GPU.
    """
    from amk.codegen.cuda.build import build_kernels

    source, chosen = as_source(model, dtype), find_target(target)
    if chosen.gpu is None:
        raise AmkError(f"target {chosen.name!r} is no GPU")
    options = options_for(source, "cpu", max_seq, dtype, kv_dtype=kv_dtype, kv_policy=kv_policy)
    options = replace(options, target=chosen.name if chosen.name in TARGETS else "cpu")
    if tokens is not None:
        options = replace(options, tokens=tuple(tokens))
    key = stable_hash(
        "kernels", compiler_key(), source.fingerprint(), repr(chosen), options.max_seq,
        options.dtype, list(options.tokens), options.kv_dtype, options.kv_policy, workers,
        machine_code, tile_bytes, timeline, [version(package) for package in IMPORTED_WITH],
    )  # fmt: skip
    folder = Cache("kernels").put(
        key,
        lambda d: build_kernels(
            source, options, chosen, d, on_pass, workers, machine_code, tile_bytes, timeline
        ),
    )
    return KernelProgram(folder)


def options_for(
    source: Source,
    target: str = "cpu",
    max_seq: int | None = None,
    dtype: str = "f32",
    speculate: bool = False,
    kv_dtype: str | None = None,
    kv_policy: str = "doubling",
) -> Options:
    """What `compile` compiles when it is given these; errors as there, before any work."""
    longest = source.max_position_embeddings or DEFAULT_MAX_SEQ
    length = min(DEFAULT_MAX_SEQ, longest) if max_seq is None else max_seq
    wanted = (1, *((CHECKING_TOKENS,) if speculate else ()), PREFILL_TOKENS)
    tokens = tuple(n for n in wanted if n <= length)
    return Options(target, length, dtype, tokens, kv_dtype, kv_policy)


def lower(source: Source, options: Options, tokens: int, on_pass: OnPass | None = None) -> ModuleOp:
    """Imports the model for `tokens` new positions and lowers it to a scheduled mk program."""
    from amk.frontend.hf import import_model
    from amk.passes import run_pipeline

    module = import_model(source.importable(), tokens=tokens, dtype=options.dtype)
    if on_pass is not None:
        on_pass("import", module, 0.0)
    name = "amk-decode" if tokens == 1 else "amk-prefill"
    storage = options.kv_dtype or "keep"
    spec = f"{name}{{max-seq={options.max_seq} storage={storage} policy={options.kv_policy}}}"
    run_pipeline(module, spec, on_pass=on_pass, check="borders")
    return module


def build(source: Source, options: Options, folder: Path, on_pass: OnPass | None = None) -> None:
    """Compiles into `folder`: the manifest, @init, the C file and the library."""
    from amk.codegen.cpu.emit import emit_c
    from amk.interpreters.common_init import common_init
    from amk.verify.certify import certify

    if find_target(options.target).gpu is not None:
        from amk.codegen.cuda.build import build_kernels

        build_kernels(source, options, find_target(options.target), folder, on_pass)
        return
    modules = [lower(source, options, n, on_pass) for n in options.tokens]
    check_weights(source, modules[0])
    init = common_init(modules)
    programs = [p for m in modules for p in programs_of(m)]
    proofs = [asdict(certify(p)) for p in programs]
    c_source, layout = emit_c(programs)
    save_program(folder, facts_of(source, options, modules[0]), layout, init, c_source)
    shutil.copyfile(compile_shared(c_source), folder / LIBRARY)
    save_certificate(folder, proofs, CERTIFIED)


def check_weights(source: Source, module: ModuleOp) -> None:
    """ModelFileError unless `source` has each weight of a lowered module, in its shape."""
    from amk.runtime.bind import check_shape

    for key, shape in weights_of(module):
        check_shape(source, key, shape)


def weights_of(module: ModuleOp) -> Iterator[tuple[str, tuple[int, ...]]]:
    """State-dict key and shape of what a lowered module reads from the model's files."""
    from amk.ir.lm import WeightOp, shape_of
    from amk.ir.mk import BufferOp

    for op in module.walk():
        if isinstance(op, WeightOp):
            yield op.key.data, shape_of(op.result)
        elif isinstance(op, BufferOp) and op.kind.data == "weight":
            key = op.source.data
            if not key.startswith(INIT_PREFIX):
                yield key, op.type.get_shape()


def facts_of(source: Source, options: Options, module: ModuleOp) -> Facts:
    """What is known of the programs of `source`; `module` is one of them, lowered."""
    vocab = module.attributes["amk.vocab"].value.data  # type: ignore[attr-defined]
    return Facts(
        source.name, options.target, options.dtype, vocab, readable_ids(module, vocab),
        options.max_seq, options.tokens, source.fingerprint(),
    )  # fmt: skip


def readable_ids(module: ModuleOp, vocab: int) -> int:
    """How many ids a lowered module can read: the rows of the shortest table that tokens choose
    from, or `vocab` where they choose from none."""
    from amk.ir.mk import GatherOp, buffer_of

    chosen = (op for op in module.walk() if isinstance(op, GatherOp))
    by_tokens = (op for op in chosen if buffer_of(op.indices).kind.data == "input")
    return min((op.table.type.get_shape()[0] for op in by_tokens), default=vocab)  # type: ignore[union-attr]


def programs_of(module: ModuleOp) -> Iterator[Any]:
    from amk.ir.mk import ProgramOp

    return (op for op in module.ops if isinstance(op, ProgramOp))
