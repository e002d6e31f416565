"""Random sequences of operations on sessions and their forks, against lists and plain torch.

The model's logits are its attention's output, so a wrong row, a stale window or a lost truncation
shows at the next step; see tests/runtime/kv_probe.py.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from amk.interpreters.attention import attend
from amk.runtime.decoder import Decoder
from tests.runtime.kv_probe import (
    FULL,
    MAX_SEQ,
    VOCAB,
    WINDOWED,
    Shape,
    fresh,
    poison,
    probe,
    state,
)

TOKENS = st.integers(0, VOCAB - 1)
MOST_ROWS = 60


@dataclass(frozen=True)
class Kind:
    """How the cache of a machine is kept."""

    shape: Shape = FULL
    policy: str = "doubling"
    storage: str | None = None

    def fresh(self, backend: str) -> Decoder:
        return fresh(backend, self.shape, policy=self.policy, storage=self.storage)


KINDS = {
    "doubling": Kind(),
    "static": Kind(policy="static"),
    "ring": Kind(WINDOWED),
    "ring-sinks": Kind(Shape(window=4, first_rows=3)),
    "doubling-int8": Kind(storage="int8"),
    "ring-int8": Kind(WINDOWED, storage="int8"),
}


def stored(rows: torch.Tensor, storage: str | None) -> torch.Tensor:
    """Rows as the cache gives them back."""
    if storage is None:
        return rows
    scale = rows.abs().amax(-1, keepdim=True) * torch.tensor(1 / 127, dtype=torch.float32)
    return torch.round(rows / scale) * scale


def expected(kind: Kind, ids: list[int]) -> np.ndarray:
    """The logits after `ids`, by plain torch attention over all rows."""
    shape = kind.shape
    table = probe(shape).embed.weight.detach()
    rows = table[torch.tensor(ids)].unflatten(1, (-1, shape.depth)).transpose(0, 1)[None]
    q, k, v = rows.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
    k, v = stored(k, kind.storage), stored(v, kind.storage)
    out = attend(q[:, :, -1:], k, v, len(ids) - 1, shape.depth**-0.5, shape.window or None,
                 first_rows=shape.first_rows)  # fmt: skip
    return out.flatten().numpy()


class Sessions(RuleBasedStateMachine):
    """Each session beside the list of tokens it should hold; `written` is the most a ring was
    fed, which bounds how far it may be cut back."""

    backend = "native"
    kind = KINDS["doubling"]

    sessions = Bundle("sessions")
    files = Bundle("files")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.open: list[Decoder] = []
        self.held: dict[int, list[int]] = {}
        self.fed: dict[int, bool] = {}
        self.written: dict[int, int] = {}
        self.count = 0

    def add(self, decoder: Decoder, ids: list[int], fed: bool, written: int) -> Decoder:
        self.open.append(decoder)
        self.held[id(decoder)], self.fed[id(decoder)] = list(ids), fed
        self.written[id(decoder)] = written
        return decoder

    @initialize(target=sessions)
    def begin(self) -> Decoder:
        return self.add(self.kind.fresh(self.backend), [], False, 0)

    @rule(session=sessions, ids=st.lists(TOKENS, min_size=1, max_size=20))
    def feed(self, session: Decoder, ids: list[int]) -> None:
        held = self.held[id(session)]
        if len(held) + len(ids) > MOST_ROWS:
            return
        logits = session.prefill(ids)
        held += ids
        self.fed[id(session)] = True
        self.written[id(session)] = max(self.written[id(session)], len(held))
        assert np.abs(logits - expected(self.kind, held)).max() < 1e-5

    @rule(session=sessions, data=st.data())
    def truncate(self, session: Decoder, data: st.DataObject) -> None:
        held = self.held[id(session)]
        length = data.draw(st.integers(0, len(held) + 2))
        too_far = self.fed[id(session)] and length > len(held)
        if too_far or self.lost(session, length):
            with pytest.raises(ValueError, match="cannot truncate"):
                session.truncate(length)
            return
        session.truncate(length)
        del held[length:]
        if not length:
            self.written[id(session)] = 0

    def lost(self, session: Decoder, length: int) -> bool:
        """Has a ring written over a row that position `length` would read?"""
        spec = state(session).specs["k0"]
        if spec.slots is None or length == 0:
            return False
        first = max(self.kind.shape.first_rows, length - self.kind.shape.window + 1)
        return first < min(length, self.written[id(session)] - (spec.slots - spec.sinks))

    @rule(session=sessions)
    def reset(self, session: Decoder) -> None:
        session.reset()
        self.held[id(session)], self.fed[id(session)] = [], False
        self.written[id(session)] = 0

    @rule(session=sessions)
    def spoil_spare_rows(self, session: Decoder) -> None:
        if not self.kind.shape.window and state(session)._sharers.count == 1:
            poison(session)

    @precondition(lambda self: len(self.open) < 4)
    @rule(target=sessions, session=sessions)
    def fork(self, session: Decoder) -> Decoder:
        key = id(session)
        return self.add(session.fork(), self.held[key], self.fed[key], self.written[key])

    @rule(target=files, session=sessions)
    def save(self, session: Decoder) -> tuple[Path, list[int]] | None:
        if not self.fed[id(session)]:
            return None
        self.count += 1
        path = Path(self.folder.name, f"{self.count}.kv")
        session.save(path)
        return path, list(self.held[id(session)])

    @rule(session=sessions, saved=consumes(files))
    def load(self, session: Decoder, saved: tuple[Path, list[int]] | None) -> None:
        if saved is None:
            return
        session.load(saved[0])
        self.held[id(session)], self.fed[id(session)] = list(saved[1]), True
        self.written[id(session)] = len(saved[1])

    @invariant()
    def lengths_agree(self) -> None:
        for session in self.open:
            assert session.tokens == self.held[id(session)]
            cache = state(session)
            for name, spec in cache.specs.items():
                rows = cache.rows(name, session.length)
                assert spec.slots is not None or cache.capacity(name) >= rows.shape[2]
                assert np.isfinite(rows).all()
            full = sum(s.nbytes(s.slots or MAX_SEQ) for s in cache.specs.values())
            assert cache.nbytes <= full
            if self.kind.policy == "static" or self.kind.shape.window:
                assert (cache.nbytes, cache.reallocations) == (full, 0)

    def teardown(self) -> None:
        for session in self.open:
            session.close()
        self.folder.cleanup()


EXAMPLES = {"native": 12, "reference": 6, "simt": 5}


def run(backend: str, kind: Kind, examples: int) -> None:
    machine = type("Chosen", (Sessions,), {"backend": backend, "kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    if "AMK_CACHE_DIR" not in os.environ:
        monkeypatch.setenv("AMK_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "kv-cache"))


QUICK = ("doubling", "static", "ring-sinks", "ring-int8")


@pytest.mark.parametrize("kind", QUICK)
@pytest.mark.parametrize("backend", EXAMPLES)
def test_operations(backend: str, kind: str) -> None:
    run(backend, KINDS[kind], EXAMPLES[backend])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", EXAMPLES)
def test_many_operations(backend: str, kind: str) -> None:
    run(backend, KINDS[kind], 15 * EXAMPLES[backend])
