"""Random sequences of operations on sessions and their forks, against lists and plain torch.

The model's logits are its attention's output, so a wrong row, a stale window or a lost truncation
shows at the next step; see tests/runtime/kv_probe.py.
"""

from __future__ import annotations

import os
import tempfile
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


def expected(shape: Shape, ids: list[int]) -> np.ndarray:
    """The logits after `ids`, by plain torch attention over all rows."""
    table = probe(shape).embed.weight.detach()
    rows = table[torch.tensor(ids)].unflatten(1, (-1, shape.depth)).transpose(0, 1)[None]
    q, k, v = rows.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
    out = attend(q[:, :, -1:], k, v, len(ids) - 1, shape.depth**-0.5, shape.window or None)
    return out.flatten().numpy()


class Sessions(RuleBasedStateMachine):
    """Each session beside the list of tokens it should hold; `written` is the most a ring was
    fed, which bounds how far it may be cut back."""

    backend = "native"
    shape = FULL

    sessions = Bundle("sessions")
    files = Bundle("files")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.open: list[Decoder] = []
        self.held: dict[int, list[int]] = {}
        self.fed: dict[int, bool] = {}
        self.count = 0

    def add(self, decoder: Decoder, ids: list[int], fed: bool) -> Decoder:
        self.open.append(decoder)
        self.held[id(decoder)], self.fed[id(decoder)] = list(ids), fed
        return decoder

    @initialize(target=sessions)
    def begin(self) -> Decoder:
        return self.add(fresh(self.backend, self.shape), [], False)

    @rule(session=sessions, ids=st.lists(TOKENS, min_size=1, max_size=20))
    def feed(self, session: Decoder, ids: list[int]) -> None:
        held = self.held[id(session)]
        if len(held) + len(ids) > MOST_ROWS:
            return
        logits = session.prefill(ids)
        held += ids
        self.fed[id(session)] = True
        assert np.abs(logits - expected(self.shape, held)).max() < 1e-5

    @rule(session=sessions, data=st.data())
    def truncate(self, session: Decoder, data: st.DataObject) -> None:
        held = self.held[id(session)]
        length = data.draw(st.integers(0, len(held) + 2))
        if length > len(held) and self.fed[id(session)]:
            with pytest.raises(ValueError, match="cannot truncate"):
                session.truncate(length)
            return
        session.truncate(length)
        del held[length:]

    @rule(session=sessions)
    def reset(self, session: Decoder) -> None:
        session.reset()
        self.held[id(session)], self.fed[id(session)] = [], False

    @rule(session=sessions)
    def spoil_spare_rows(self, session: Decoder) -> None:
        if not self.shape.window and state(session)._sharers.count == 1:
            poison(session)

    @precondition(lambda self: len(self.open) < 4)
    @rule(target=sessions, session=sessions)
    def fork(self, session: Decoder) -> Decoder:
        return self.add(session.fork(), self.held[id(session)], self.fed[id(session)])

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

    @invariant()
    def lengths_agree(self) -> None:
        for session in self.open:
            assert session.tokens == self.held[id(session)]
            cache = state(session)
            for name, spec in cache.specs.items():
                rows = cache.rows(name, session.length)
                assert spec.slots is not None or cache.capacity(name) >= rows.shape[2]
                assert np.isfinite(rows).all()
            assert cache.nbytes <= 2 * sum(s.nbytes(MAX_SEQ) for s in cache.specs.values())

    def teardown(self) -> None:
        for session in self.open:
            session.close()
        self.folder.cleanup()


@pytest.mark.parametrize("shape", [FULL, WINDOWED], ids=["doubling", "ring"])
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_operations(
    backend: str, shape: Shape, tmp_path_factory: pytest.TempPathFactory, monkeypatch
) -> None:
    if "AMK_CACHE_DIR" not in os.environ:
        monkeypatch.setenv("AMK_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "kv-cache"))
    machine = type("Chosen", (Sessions,), {"backend": backend, "shape": shape})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25 if backend == "native" else 10,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
