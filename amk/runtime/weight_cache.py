"""Bound weights that were costly to make, kept in the cache for the next start.

A slot is costly when its array is computed (@init), decoded from blocks, or narrowed. What a file
holds as it is, or only has to be widened, is read from the file every time.
"""

from __future__ import annotations

import functools
import shutil
import warnings
from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np

from amk.codegen.layout import Slot
from amk.errors import AmkError
from amk.runtime.cache import Cache, cache_dir, stable_hash
from amk.runtime.packed import copy_into, open_packed, write_packed
from amk.runtime.program import INIT_PREFIX, Program
from amk.runtime.source import Source
from amk.runtime.weights import CARRIERS

FILE = "weights.packed"
KIND = "weights"

# The files that decide what lands in a slot, beside the program and the model file.
DECIDED_BY = (
    "interpreters/init_numpy.py", "interpreters/numerics_float.py", "runtime/bind.py",
    "runtime/weights.py", "runtime/gguf_source.py", "runtime/safetensors_source.py",
    "runtime/toy.py",
)  # fmt: skip

# Of the space left on the disk, what a packed file may take.
SHARE = 0.5


def kept(source: Source, slots: Collection[Slot]) -> list[Slot]:
    """The slots that go through the cache: the costly ones, or all when some were blocks, so that
    the next start need not open the model file."""
    costly: list[Slot] = []
    for slot in slots:
        if slot.source.startswith(INIT_PREFIX):
            costly.append(slot)
            continue
        encoding = source.info(slot.source).encoding.lower()
        if encoding not in CARRIERS:
            return list(slots)
        if encoding != slot.dtype and slot.dtype != "f32":
            costly.append(slot)
    return costly


def weights_key(program: Program, source: Source, slots: list[Slot]) -> str | None:
    """Names the content of `slots`: the data, the layout, and the code that fills it. None when
    the data has no name."""
    data = source.weights_key()
    if data is None:
        return None
    table = [[s.source, list(s.shape), s.dtype] for s in slots]
    return stable_hash(
        "bound", _code_key(), data, source.fingerprint(), table, program.init_text, version("gguf"),
    )  # fmt: skip


@functools.cache
def _code_key() -> str:
    root = Path(__file__).parent.parent
    return stable_hash(*((root / name).read_bytes() for name in DECIDED_BY))


def load(key: str, arrays: Mapping[Slot, np.ndarray]) -> bool:
    """Fills `arrays` from the cache; False when it has no such entry."""
    entry = Cache(KIND).get(key)
    if entry is None:
        return False
    copy_into(open_packed(entry / FILE), _named(arrays))
    return True


def save(key: str, arrays: Mapping[Slot, np.ndarray]) -> None:
    """Puts `arrays` into the cache. A disk with too little space is a warning: the weights are in
    memory already, and only the next start is slower."""
    nbytes = sum(a.nbytes for a in arrays.values())
    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
        if nbytes > SHARE * shutil.disk_usage(cache_dir()).free:
            raise AmkError(f"{nbytes >> 20} MiB would take most of the space in {cache_dir()}")
        Cache(KIND).put(key, lambda d: write_packed(d / FILE, _named(arrays).items()))
    except (AmkError, OSError) as error:
        warnings.warn(f"decoded weights are not kept: {error}", RuntimeWarning, stacklevel=2)


def _named(arrays: Mapping[Slot, np.ndarray]) -> dict[str, np.ndarray]:
    """Slots of one key may differ in shape or dtype, so that a name needs its place, too."""
    return {f"{i}:{slot.source}": array for i, (slot, array) in enumerate(arrays.items())}
