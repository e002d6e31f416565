"""Finding a compiler, compiling once, and saying what went wrong."""

import ctypes
import os
import sys
import types
from pathlib import Path

import pytest

from amk.errors import ToolchainError
from amk.runtime import toolchain
from amk.runtime.cache import Cache
from amk.runtime.toolchain import CFLAGS, compile_shared, find_compiler

ADD = "double add(double a, double b) { return a + b; }\n"


@pytest.fixture(autouse=True)
def no_cc(monkeypatch):
    monkeypatch.delenv("CC", raising=False)


@pytest.fixture
def cache(tmp_path):
    return Cache("native", tmp_path / "cache")


def fake(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_compiles_and_runs(cache):
    library = ctypes.CDLL(str(compile_shared(ADD, cache=cache)))
    library.add.restype = ctypes.c_double
    library.add.argtypes = [ctypes.c_double] * 2
    assert library.add(1.5, 2.0) == 3.5


def test_no_contraction_into_fused_multiply_add(cache):
    source = "float f(float a, float b, float c) { return a * b + c; }\n"
    library = ctypes.CDLL(str(compile_shared(source, cache=cache)))
    library.f.restype = ctypes.c_float
    library.f.argtypes = [ctypes.c_float] * 3
    # a * a is 1 + 2^-11 + 2^-24: the last term is lost exactly when the product is rounded.
    a = 1.0 + 2.0**-12
    assert library.f(a, a, -1.0 - 2.0**-11) == 0.0


def test_second_compile_runs_no_compiler(cache, monkeypatch):
    first = compile_shared(ADD, cache=cache)
    real = toolchain._run

    def only_versions(command, directory):
        assert "-o" not in command, "the compiler ran"
        return real(command, directory)

    monkeypatch.setattr(toolchain, "_run", only_versions)
    assert compile_shared(ADD, cache=cache) == first
    with pytest.raises(AssertionError, match="the compiler ran"):
        compile_shared(ADD + "\n", cache=cache)


def test_key_covers_source_flags_compiler_and_cpu(cache, monkeypatch, tmp_path):
    paths = {compile_shared(ADD, cache=cache), compile_shared(ADD + "\n", cache=cache)}
    paths.add(compile_shared(ADD, (*CFLAGS, "-DX"), cache))
    paths.add(compile_shared(ADD, tuple(reversed(CFLAGS)), cache))
    monkeypatch.setattr(toolchain, "cpu_identity", lambda: "another")
    paths.add(compile_shared(ADD, cache=cache))
    monkeypatch.setenv("CC", f"{find_compiler().command[0]} -DY")
    paths.add(compile_shared(ADD, cache=cache))
    wrapper = 'case "$1" in --version) echo 1.0;; *) exec cc "$@";; esac'
    monkeypatch.setenv("CC", str(fake(tmp_path, "wrapped", wrapper)))
    paths.add(compile_shared(ADD, cache=cache))
    assert len(paths) == 7


def test_an_upgraded_compiler_compiles_again(cache, monkeypatch, tmp_path):
    script = 'case "$1" in --version) echo {};; *) exec cc "$@";; esac'
    paths = set()
    for version in ("1.0", "1.1"):
        monkeypatch.setenv("CC", str(fake(tmp_path, "wrapped", script.format(version))))
        # Within one process the compiler is asked once.
        toolchain._find_compiler.cache_clear()
        paths.add(compile_shared(ADD, cache=cache))
    assert len(paths) == 2


def test_a_failing_compile_says_why_and_keeps_the_source(cache):
    with pytest.raises(ToolchainError, match=r"error: .*(source kept in .*program\.c)") as caught:
        compile_shared("int f(void) { return nope; }\n", cache=cache)
    message = str(caught.value)
    assert "\n" not in message
    kept = Path(message.split("source kept in ")[1].rstrip(")"))
    assert kept.read_text() == "int f(void) { return nope; }\n"
    assert cache.stats().entries == 0


def test_a_compiler_that_makes_nothing(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("CC", str(fake(tmp_path, "mute", "exit 0")))
    with pytest.raises(ToolchainError, match="without a message"):
        compile_shared(ADD, cache=cache)


def test_a_compiler_that_crashes(cache, monkeypatch, tmp_path):
    script = 'case "$1" in --version) echo 1.0;; *) echo "boom at pass 3" >&2; exit 4;; esac'
    monkeypatch.setenv("CC", str(fake(tmp_path, "crash", script)))
    with pytest.raises(ToolchainError, match="crash failed: boom at pass 3"):
        compile_shared(ADD, cache=cache)


def test_cc_is_split_but_never_given_to_a_shell(cache, monkeypatch, tmp_path):
    compiler = fake(tmp_path, "my cc", 'exec cc "$@"')
    monkeypatch.setenv("CC", f"'{compiler}' -DONE='a b'")
    assert find_compiler().command == (str(compiler), "-DONE=a b")
    assert compile_shared(ADD, cache=cache).is_file()
    monkeypatch.setenv("CC", f"cc; touch {tmp_path / 'owned'}")
    with pytest.raises(ToolchainError):
        compile_shared(ADD, cache=cache)
    monkeypatch.setenv("CC", f"cc $(touch {tmp_path / 'owned'})")
    with pytest.raises(ToolchainError):
        compile_shared(ADD, cache=cache)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no-such-compiler", "names no program"),
        ("'open", "cannot be split"),
        ("''", "names no program"),
        ("false", "failed"),
    ],
)
def test_a_bad_cc_is_an_error_and_not_ignored(monkeypatch, value, message):
    monkeypatch.setenv("CC", value)
    with pytest.raises(ToolchainError, match=message) as caught:
        find_compiler()
    assert "\n" not in str(caught.value)


def test_a_cc_that_cannot_be_run(monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(ToolchainError, match="cannot run"):
        find_compiler()


def test_candidates_in_order(monkeypatch, tmp_path):
    folder = tmp_path / "bin"
    fake(folder, "clang", "echo clang 1")
    monkeypatch.setenv("PATH", str(folder))
    assert find_compiler().command == (str(folder / "clang"),)
    monkeypatch.setenv("PATH", f"{folder}:")
    fake(folder, "gcc", "echo gcc 1")
    assert find_compiler().command == (str(folder / "gcc"),)
    assert find_compiler().version == "gcc 1"


def test_zig_wheel_is_the_last_resort(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match="no C compiler found: install gcc or clang"):
        find_compiler()
    monkeypatch.setenv("PATH", f"{tmp_path}:")
    spec = types.SimpleNamespace(name="ziglang")
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(toolchain, "_version", " ".join)
    found = find_compiler()
    assert found.command == (sys.executable, "-m", "ziglang", "cc")
    assert found.version.endswith("ziglang version")


def test_cpu_identity_is_steady():
    assert toolchain.cpu_identity() == toolchain.cpu_identity()
    if os.path.exists("/proc/cpuinfo"):
        assert (
            "flags" in Path("/proc/cpuinfo").read_text()
            or "Features" in Path("/proc/cpuinfo").read_text()
        )
