"""The cache: whole entries or none, whatever happens while one is built."""

import errno
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from amk.errors import AmkError
from amk.runtime import cache as cache_module
from amk.runtime.cache import Cache, all_stats, cache_dir, clear_all, stable_hash


def writes(text):
    def build(directory: Path):
        (directory / "file").write_text(text)

    return build


def leftovers(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_an_entry_is_built_once(tmp_path):
    cache = Cache("kind", tmp_path)
    assert cache.get("k1") is None
    entry = cache.put("k1", writes("one"))
    assert (entry / "file").read_text() == "one"
    assert cache.put("k1", writes("two")) == entry == cache.get("k1")
    assert (entry / "file").read_text() == "one"
    assert Cache("other", tmp_path).get("k1") is None


def test_a_failing_build_leaves_nothing(tmp_path):
    def build(directory: Path):
        (directory / "file").write_text("half")
        raise KeyError("x")

    cache = Cache("kind", tmp_path)
    with pytest.raises(KeyError):
        cache.put("k", build)
    assert cache.get("k") is None
    assert leftovers(tmp_path) == []


def test_full_disk_is_one_line(tmp_path):
    def build(directory: Path):
        (directory / "file").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device", str(directory / "file"))

    with pytest.raises(AmkError, match=r"no space left for the cache in .*AMK_CACHE_DIR") as caught:
        Cache("kind", tmp_path).put("k", build)
    assert "\n" not in str(caught.value)
    assert leftovers(tmp_path) == []


def test_full_device_for_real(tmp_path):
    def build(directory: Path):
        with (directory / "file").open("w") as file:
            file.write("half")
        with open("/dev/full", "w") as full:
            full.write("x")

    with pytest.raises(AmkError, match="no space left"):
        Cache("kind", tmp_path).put("k", build)
    assert leftovers(tmp_path) == []


def test_unwritable_cache_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AmkError, match="cannot be written"):
        Cache("kind", tmp_path / "file" / "cache").put("k", writes("x"))


def test_read_only_cache_is_one_line(tmp_path, monkeypatch):
    def refuse(prefix, dir):
        raise PermissionError(errno.EACCES, "Permission denied", f"{dir}/{prefix}")

    monkeypatch.setattr(cache_module.tempfile, "mkdtemp", refuse)
    with pytest.raises(AmkError, match=r"cannot be written .Permission denied"):
        Cache("kind", tmp_path).put("k", writes("x"))


def test_other_errors_of_a_build_pass_through(tmp_path):
    def build(directory: Path):
        raise PermissionError(errno.EACCES, "Permission denied", "/somewhere/else")

    with pytest.raises(PermissionError):
        Cache("kind", tmp_path).put("k", build)


def test_the_loser_of_a_race_takes_the_winners_entry(tmp_path):
    cache = Cache("kind", tmp_path)

    def build(directory: Path):
        (directory / "file").write_text("loser")
        Cache("kind", tmp_path).put("k", writes("winner"))

    entry = cache.put("k", build)
    assert (entry / "file").read_text() == "winner"
    assert len(leftovers(tmp_path)) == 1


def _race(root, barrier, results, name):
    def build(directory: Path):
        for part in range(50):
            (directory / f"part{part}").write_text(name)
        time.sleep(0.05)

    barrier.wait()
    entry = Cache("kind", root).put("k", build)
    # Whoever won, the entry is whole and of one writer at every moment it can be seen.
    results.put({(entry / f"part{part}").read_text() for part in range(50)})


def test_processes_that_race_see_one_whole_entry(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(3), context.Queue()
    workers = [
        context.Process(target=_race, args=(tmp_path, barrier, results, str(n))) for n in range(3)
    ]
    for worker in workers:
        worker.start()
    seen = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert len(seen[0]) == 1
    assert seen.count(seen[0]) == 3
    assert len(leftovers(tmp_path)) == 50


def test_what_a_killed_process_left_is_swept(tmp_path, monkeypatch):
    killed = (
        "import sys, os\nfrom pathlib import Path\nfrom amk.runtime.cache import Cache\n"
        "def build(d):\n    (d / 'file').write_text('half')\n    os._exit(9)\n"
        "Cache('kind', Path(sys.argv[1])).put('k', build)\n"
    )
    done = subprocess.run([sys.executable, "-c", killed, str(tmp_path)], check=False)
    assert done.returncode == 9
    cache = Cache("kind", tmp_path)
    assert cache.get("k") is None
    assert len(leftovers(tmp_path)) == 1
    cache.put("other", writes("x"))
    assert len(leftovers(tmp_path)) == 2, "young build folders are left alone"
    monkeypatch.setattr(cache_module, "ABANDONED_AFTER_S", 0.0)
    cache.put("third", writes("x"))
    assert len(leftovers(tmp_path)) == 2, "the two entries and not the half built one"


def test_a_living_build_is_not_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "ABANDONED_AFTER_S", 0.0)

    def build(directory: Path):
        Cache("kind", tmp_path).put("inner", writes("inner"))
        (directory / "file").write_text("outer")

    assert (Cache("kind", tmp_path).put("outer", build) / "file").read_text() == "outer"


def test_stats_and_clear(tmp_path):
    Cache("a", tmp_path).put("k1", writes("12345"))
    Cache("a", tmp_path).put("k2", writes("123"))
    Cache("b", tmp_path).put("k1", writes("1"))
    stats = {s.kind: (s.entries, s.nbytes) for s in all_stats(tmp_path)}
    assert stats == {"a": (2, 8), "b": (1, 1)}
    Cache("a", tmp_path).clear()
    assert Cache("a", tmp_path).stats().entries == 0
    assert Cache("b", tmp_path).get("k1") is not None
    clear_all(tmp_path)
    assert leftovers(tmp_path) == []
    assert all_stats(tmp_path / "none") == []
    clear_all(tmp_path / "none")


@pytest.mark.parametrize("key", ["", "../x", "a/b", ".", "a b"])
def test_keys_stay_inside_the_cache(tmp_path, key):
    with pytest.raises(ValueError, match="key"):
        Cache("kind", tmp_path).get(key)


@pytest.mark.parametrize("kind", ["", ".building", "a/b"])
def test_kinds_are_plain_names(tmp_path, kind):
    with pytest.raises(ValueError, match="kind"):
        Cache(kind, tmp_path)


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AMK_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == tmp_path / "home" / ".cache" / "amk"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_dir() == tmp_path / "home" / ".cache" / "amk"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "amk"
    monkeypatch.setenv("AMK_CACHE_DIR", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"


def test_hash_tells_different_parts_apart():
    different = [
        ("a", "b"), ("ab",), ("a", b"b"), (["a", "b"],), (["a"], "b"), (1,), (1.0,), (True,),
        (None,), ("1",), ("None",), ({"a": 1},), ({"a": "1"},), ({},), ([],), ("",), (),
        ({"a": {"b": 1}},), (["a", ["b"]],), ("\ud800",),
    ]  # fmt: skip
    assert len({stable_hash(*parts) for parts in different}) == len(different)
    assert stable_hash({"a": 1, "b": 2}) == stable_hash({"b": 2, "a": 1})
    with pytest.raises(TypeError):
        stable_hash(object())


def test_hash_is_the_same_in_every_process():
    code = (
        "from amk.runtime.cache import stable_hash; print(stable_hash('x', {'b': 1, 'a': [2.5]}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "99"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == stable_hash("x", {"a": [2.5], "b": 1})
