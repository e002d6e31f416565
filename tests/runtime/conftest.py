"""The command line in process, over one cache that all tests of a run share."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from amk import compiler
from amk.cli.main import main
from amk.runtime import reference
from amk.runtime.source import Source


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code and its two outputs."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)

    def refused(self, code: int, *words: str) -> None:
        """Nothing on stdout, the exit code, and one line that says these words."""
        assert (self.code, self.out) == (code, "")
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("amk: error: ")
        for word in words:
            assert word in lines[0]


_lower = compiler.lower
_lowered: dict[tuple[Any, ...], Any] = {}


def lower_once(source: Source, options: compiler.Options, tokens: int, on_pass: Any = None) -> Any:
    """`compiler.lower`, once a run for what is the same; `on_pass` is not called again."""
    key = (source.fingerprint(), options, tokens)
    if key not in _lowered:
        _lowered[key] = _lower(source, options, tokens, on_pass)
    return _lowered[key]


@pytest.fixture
def lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that compile often and are about something else."""
    monkeypatch.setattr(compiler, "lower", lower_once)
    monkeypatch.setattr(reference, "lower", lower_once)


Amk = Callable[..., Ran]


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache_root(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the whole run; what one test compiled the next finds."""
    monkeypatch.setenv("AMK_CACHE_DIR", str(shared_cache))
    return shared_cache


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("AMK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def amk(cache_root: Path, capsys: pytest.CaptureFixture[str]) -> Amk:
    """`amk(*argv)` runs the command line in this process."""

    def run(*argv: object) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in argv])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
