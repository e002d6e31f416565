"""A compiled program: a shared library, the table of buffers it expects, and its @init."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.codegen.layout import Layout, Slot
from amk.errors import AmkError
from amk.runtime.certificate import check_certificate, covers_steps

if TYPE_CHECKING:
    import numpy as np

    from amk.runtime.session import Session
    from amk.runtime.source import Source

FORMAT = 2
INIT_PREFIX = "@init/"
MANIFEST, INIT, LIBRARY, SOURCE = "program.json", "init.mlir", "program.so", "program.c"
CERTIFIED = (LIBRARY, MANIFEST)


@dataclass(frozen=True)
class Facts:
    """What is known of a program without running it."""

    model: str
    target: str
    dtype: str
    vocab: int
    """Logits a position has, hence ids it can make."""
    ids: int
    """Ids the model's tables have a row for, hence ids it can read."""
    max_seq: int
    tokens: tuple[int, ...]
    """New tokens a launch of each program takes, ascending; the first is 1."""
    fingerprint: str = ""
    """Of all that compiling the model depends on but its weights' values."""


class Program:
    """A compiled model. `session` binds weights to it; many sessions may share one program."""

    def __init__(self, folder: Path):
        self.folder = folder
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            if manifest["format"] != FORMAT:
                raise AmkError(f"{folder}: compiled by another version; clear the cache")
            facts = manifest["facts"]
            self.facts = Facts(**{**facts, "tokens": tuple(facts["tokens"])})
            slots = [Slot(**{**s, "shape": tuple(s["shape"])}) for s in manifest["slots"]]
            self.layout = Layout(slots, manifest["arenas"], list(self.facts.tokens))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AmkError(f"{folder}: not a compiled program ({error})") from error

    @cached_property
    def library(self) -> ctypes.CDLL:
        """The loaded library; AmkError when its certificate does not match it."""
        check_certificate(self.folder, self.facts.max_seq, self.facts.tokens, CERTIFIED)
        library = ctypes.CDLL(str(self.folder / LIBRARY))
        library.amk_open.restype = ctypes.c_void_p
        library.amk_open.argtypes = [ctypes.c_int]
        library.amk_close.argtypes = [ctypes.c_void_p]
        library.amk_launch.argtypes = [
            ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
        library.amk_steps.argtypes = [
            ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long,
            ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
        return library

    @cached_property
    def several_steps(self) -> bool:
        """Is the decode program proved for any number of steps a launch?"""
        return covers_steps(self.folder, 0)

    @property
    def init_text(self) -> str:
        """The module with @init, for what is computed from the weights at load."""
        return (self.folder / INIT).read_text()

    def session(
        self,
        weights: Source | Mapping[str, np.ndarray],
        threads: int | None = None,
        capacity: int | None = None,
    ) -> Session:
        """Binds `weights` (a Source, or arrays by state-dict key) and allocates the cache.

        `capacity` is the rows it starts with: the whole of a cache that does not grow."""
        from amk.runtime.session import Session

        return Session(self, weights, threads, capacity)


def save_program(folder: Path, facts: Facts, layout: Layout, init: str, c_source: str) -> None:
    """Writes everything of a program but its library into `folder`."""
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "facts": asdict(facts),
        "slots": [asdict(s) for s in layout.slots],
        "arenas": layout.arenas,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))
    (folder / INIT).write_text(init)
    (folder / SOURCE).write_text(c_source)
