"""Tests that need a GPU: marked `device`, skipped with a reason where the driver offers none."""

from __future__ import annotations

from pathlib import Path

import pytest

from amk.runtime.driver import cuda_device_count
from tests.device.machine import Machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    absent = pytest.mark.skip(reason="the CUDA driver offers no device on this machine")
    without = cuda_device_count() == 0
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.device)
            if without:
                item.add_marker(absent)


@pytest.fixture(scope="session")
def machine() -> Machine:
    return Machine()


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test compiled the next finds."""
    root = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("AMK_CACHE_DIR", str(root))
