"""llama.cpp as a contender: its llama-bench program over a GGUF file in the bench's dtype."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from amk.errors import AmkError, ModelFileError
from amk.runtime.cache import Cache, stable_hash
from amk.runtime.model_files import file_identity

BINARY_VARIABLE, BINARY = "AMK_LLAMA_BENCH", "llama-bench"

# The dtype's name among ggml's types, and the `general.file_type` that llama.cpp shows for it.
GGML = {"f32": ("F32", 0), "f16": ("F16", 1), "bf16": ("BF16", 32)}


def find_binary() -> Path:
    """llama-bench: $AMK_LLAMA_BENCH, else on the PATH. AmkError when there is none."""
    named = os.environ.get(BINARY_VARIABLE)
    found = shutil.which(named or BINARY)
    if found is None:
        where = f"{BINARY_VARIABLE}={named!r} is no program" if named else "not on the PATH"
        raise AmkError(f"llama.cpp: {BINARY} was not found ({where}): set {BINARY_VARIABLE}")
    return Path(found)


def decoded_gguf(path: Path, dtype: str) -> Path:
    """A copy of a GGUF file in the cache with its matrices in `dtype`, vectors in float32.

    One tensor is decoded at a time. ModelFileError when `path` is not GGUF.
    """
    key = stable_hash("decoded-gguf", file_identity(path), dtype)
    entry = Cache("bench").put(key, lambda folder: _decode(path, dtype, folder / "model.gguf"))
    return entry / "model.gguf"


def _decode(path: Path, dtype: str, out: Path) -> None:
    import gguf
    import numpy as np

    if path.suffix != ".gguf":
        raise ModelFileError(f"llama.cpp runs GGUF files alone, {path} is none")
    name, file_type = GGML[dtype]
    vector, matrix = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType[name]
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    skipped = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")
    for field in reader.fields.values():
        if field.name.startswith(skipped):
            continue
        inner = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(file_type)
    kinds = [matrix if len(t.shape) > 1 else vector for t in reader.tensors]
    for tensor, kind in zip(reader.tensors, kinds, strict=True):
        shape = tuple(int(n) for n in reversed(tensor.shape))
        nbytes = int(np.prod(shape)) * gguf.GGML_QUANT_SIZES[kind][1]
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), nbytes, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor, kind in zip(reader.tensors, kinds, strict=True):
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.write_tensor_data(gguf.quantize(values, kind))
    writer.close()


class LlamaBench:
    """Each round is a run of llama-bench, which loads, warms up, and then times the tokens."""

    def __init__(self, model: Path, dtype: str, threads: int):
        self._command = [
            str(find_binary()), "-m", str(decoded_gguf(model, dtype)),
            "-t", str(threads), "-p", "0", "-r", "1", "-o", "json",
        ]  # fmt: skip

    def seconds(self, tokens: int, position: int) -> float:
        """Wall time of `tokens` decode steps after `position` tokens, by its own clock."""
        command = [*self._command, "-n", str(tokens), "-d", str(position)]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
        try:
            return json.loads(done.stdout)[0]["avg_ns"] / 1e9
        except (ValueError, LookupError, TypeError):
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            reason = lines[-1] if lines else f"exit status {done.returncode}"
            raise AmkError(f"llama-bench failed: {reason}") from None

    def close(self) -> None:
        pass
