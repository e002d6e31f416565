"""Collects every .mlir file below this folder as one test."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlir_runner import FileCheckFailure, run_file


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".mlir":
        return MlirFile.from_parent(parent, path=file_path)
    return None


class MlirFile(pytest.File):
    def collect(self):
        yield MlirTest.from_parent(self, name="filecheck")


class MlirTest(pytest.Item):
    def runtest(self) -> None:
        run_file(self.path)

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, FileCheckFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, None, f"filecheck {self.path.name}"
