"""A model compiled to kernels: a text a program, how to launch each, and the table of buffers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from amk.codegen.layout import Layout, Slot
from amk.errors import AmkError
from amk.runtime.certificate import check_certificate, covers_steps
from amk.runtime.program import FORMAT, INIT, MANIFEST, Facts


@dataclass
class Plan:
    """How a program is launched: what the runtime needs besides its text."""

    tokens: int
    blocks: int
    threads: int
    shared_bytes: int
    scratch_bytes: int
    """Global memory of a block, bytes."""
    counters: int
    operands: list[int] = field(default_factory=list)
    """Slots of the layout, stage after stage."""
    stages: list[str] = field(default_factory=list)
    counter_names: list[str] = field(default_factory=list)
    feeds_back: bool = False
    """Whether a launch can go on with the token it made."""
    timeline: bool = False
    """Whether blocks write down when they began and ended each stage."""
    slots: int = 0
    slot_bytes: int = 0
    kept_bytes: int = 0
    area_bytes: int = 0


class KernelProgram:
    """A compiled folder: `program.json`, `init.mlir`, and `program-S.cu` for each number S of new
    tokens, beside `program-S.cubin` when it was compiled for a GPU."""

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
            self.plans = [Plan(**p) for p in manifest["plans"]]
            self.notes: list[str] = manifest["notes"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AmkError(f"{folder}: not a compiled kernel ({error})") from error

    def check(self) -> None:
        """AmkError when the certificate does not match the program's files."""
        facts = self.facts
        check_certificate(self.folder, facts.max_seq, facts.tokens, certified(self.folder))

    @cached_property
    def several_steps(self) -> bool:
        """Is the decode program proved for any number of steps a launch?"""
        return covers_steps(self.folder, 0)

    @property
    def init_text(self) -> str:
        """The module with @init, for what is computed from the weights at load."""
        return (self.folder / INIT).read_text()

    def source(self, number: int) -> str:
        """The CUDA C of a program."""
        return (self.folder / f"{self.name(number)}.cu").read_text()

    def cubin(self, number: int) -> bytes:
        """The machine code of a program; AmkError when it was not compiled for a GPU."""
        path = self.folder / f"{self.name(number)}.cubin"
        try:
            return path.read_bytes()
        except OSError as error:
            raise AmkError(f"{path}: no machine code; compile for a GPU target") from error

    def name(self, number: int) -> str:
        return f"program-{self.facts.tokens[number]}"

    def weight_bytes(self) -> int:
        return sum(bytes_of(s, 0) for s in self.layout.slots if s.kind == "weight")

    def device_bytes(self) -> int:
        """Global memory a session takes, with caches of `max_seq` rows."""
        slots = sum(
            bytes_of(s, self.facts.max_seq) for s in self.layout.slots if s.kind != "activation"
        )
        return slots + sum(self.layout.arenas) + sum(p.blocks * p.scratch_bytes for p in self.plans)


def certified(folder: Path) -> list[str]:
    """The files of a kernel program that its certificate names."""
    kinds = (".cu", ".cubin")
    return [MANIFEST, *sorted(p.name for p in folder.iterdir() if p.suffix in kinds)]


ITEM_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i8": 1}


def bytes_of(slot: Slot, rows: int) -> int:
    """Bytes of a slot's array, an open axis taken as `rows`."""
    count = 1
    for d in slot.shape:
        count *= rows if d == -1 else d
    return count * ITEM_BYTES[slot.dtype]


def save_kernels(
    folder: Path,
    facts: Facts,
    layout: Layout,
    init: str,
    texts: Sequence[str],
    plans: Sequence[Plan],
    notes: Sequence[str],
) -> None:
    """Writes everything of a kernel program but machine code into `folder`."""
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "facts": asdict(facts),
        "slots": [asdict(s) for s in layout.slots],
        "arenas": layout.arenas,
        "plans": [asdict(p) for p in plans],
        "notes": list(notes),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))
    (folder / INIT).write_text(init)
    for tokens, text in zip(facts.tokens, texts, strict=True):
        (folder / f"program-{tokens}.cu").write_text(text)
