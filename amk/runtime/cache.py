"""A content-addressed cache on disk.

An entry is a directory `<root>/<kind>/<key>`. It is built elsewhere and renamed into place, so it
is either whole or absent, and it is never changed afterwards.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from amk.errors import AmkError

# Where unfinished entries live. The leading dot keeps them apart from the kinds.
BUILDING = ".building"

# A build directory younger than this may not have taken its lock yet.
ABANDONED_AFTER_S = 60.0

NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS}


@dataclass(frozen=True)
class CacheStats:
    """Entries and bytes of one kind of entry."""

    kind: str
    entries: int
    nbytes: int


def cache_dir() -> Path:
    """The cache's root: AMK_CACHE_DIR, else XDG_CACHE_HOME/amk, else ~/.cache/amk. Not created."""
    if explicit := os.environ.get("AMK_CACHE_DIR"):
        return Path(explicit).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification says to ignore a relative path.
    if base and os.path.isabs(base):
        return Path(base) / "amk"
    return Path.home() / ".cache" / "amk"


def stable_hash(*parts: object) -> str:
    """SHA-256 (hex) of `parts`, the same in every process.

    Parts are None, bool, int, float, str, bytes, or lists, tuples and dicts of those (dicts with
    str keys, whose order does not count). Each is written with its type and length, so no two
    different argument lists meet. TypeError for anything else.
    """
    digest = hashlib.sha256()
    for piece in _encoded(parts):
        digest.update(piece)
    return digest.hexdigest()


def _encoded(part: object) -> Iterator[bytes]:
    if part is None or isinstance(part, bool | int | float):
        text = repr(part).encode()
        yield b"n%d:" % len(text) + text
    elif isinstance(part, str):
        text = part.encode("utf-8", "surrogatepass")
        yield b"s%d:" % len(text) + text
    elif isinstance(part, bytes):
        yield b"b%d:" % len(part)
        yield part
    elif isinstance(part, list | tuple):
        yield b"l%d:" % len(part)
        for item in part:
            yield from _encoded(item)
    elif isinstance(part, dict):
        yield b"d%d:" % len(part)
        for key in sorted(part):
            yield from _encoded(key)
            yield from _encoded(part[key])
    else:
        raise TypeError(f"cannot hash a {type(part).__name__}")


class Cache:
    """The entries of one kind, for instance "native" or "weights".

    Safe between processes: when two build one key at once, the first to finish provides the entry
    and the other's work is thrown away.
    """

    def __init__(self, kind: str, root: Path | None = None):
        if not kind or kind.startswith(".") or "/" in kind:
            raise ValueError(f"cache kind {kind!r} is not a plain name")
        self.kind = kind
        self.root = root if root is not None else cache_dir()

    def get(self, key: str) -> Path | None:
        """The entry's directory, or None."""
        path = self._path(key)
        return path if path.is_dir() else None

    def put(self, key: str, build: Callable[[Path], None]) -> Path:
        """The entry's directory; `build` fills an empty directory first when it is absent.

        What `build` raises passes through and leaves nothing behind. AmkError when the disk is
        full or the cache cannot be written.
        """
        if (entry := self.get(key)) is not None:
            return entry
        with _cache_errors(self.root), self._building() as directory:
            build(directory)
            _sync(directory)
            return self._publish(directory, key)

    def stats(self) -> CacheStats:
        """Entries and bytes on disk, of this kind."""
        folder = self.root / self.kind
        if not folder.is_dir():
            return CacheStats(self.kind, 0, 0)
        entries = [path for path in folder.iterdir() if path.is_dir()]
        return CacheStats(self.kind, len(entries), sum(_tree_bytes(path) for path in entries))

    def clear(self) -> None:
        """Remove the entries of this kind, and what dead processes left half built."""
        with _cache_errors(self.root):
            _sweep(self.root / BUILDING)
            shutil.rmtree(self.root / self.kind, ignore_errors=True)

    def _path(self, key: str) -> Path:
        if not key.isalnum():
            raise ValueError(f"cache key {key!r} is not alphanumeric")
        return self.root / self.kind / key

    @contextmanager
    def _building(self) -> Iterator[Path]:
        """A fresh directory, locked while in use so that others can tell it from a dead one."""
        nursery = self.root / BUILDING
        nursery.mkdir(parents=True, exist_ok=True)
        _sweep(nursery)
        directory = Path(tempfile.mkdtemp(prefix=f"{self.kind}-", dir=nursery))
        lock = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)

    def _publish(self, directory: Path, key: str) -> Path:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.chmod(directory, 0o755)
        try:
            os.rename(directory, path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        return path


def all_stats(root: Path | None = None) -> list[CacheStats]:
    """The stats of every kind that has a folder, by name."""
    root = root if root is not None else cache_dir()
    if not root.is_dir():
        return []
    kinds = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    return [Cache(kind, root).stats() for kind in kinds]


def clear_all(root: Path | None = None) -> None:
    """Remove every entry of every kind; the root itself stays."""
    root = root if root is not None else cache_dir()
    for stats in all_stats(root):
        Cache(stats.kind, root).clear()


@contextmanager
def _cache_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise AmkError(
                f"no space left for the cache in {root}: free some, run `amk cache clear`, "
                "or set AMK_CACHE_DIR"
            ) from error
        inside = str(error.filename or "").startswith(str(root))
        if inside and error.errno in NOT_WRITABLE | {errno.ENOTDIR, errno.EEXIST}:
            raise AmkError(
                f"the cache in {root} cannot be written ({os.strerror(error.errno or 0)}): "
                "set AMK_CACHE_DIR to a folder that can"
            ) from error
        raise


def _sync(directory: Path) -> None:
    """Put the entry's bytes on disk before its name, or a power cut could leave a name alone."""
    for path in [*directory.rglob("*"), directory]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sweep(nursery: Path) -> None:
    """Remove build directories whose process is gone: nobody holds their lock."""
    if not nursery.is_dir():
        return
    for path in nursery.iterdir():
        try:
            if time.time() - path.stat().st_mtime < ABANDONED_AFTER_S:
                continue
            lock = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def _tree_bytes(path: Path) -> int:
    return sum(item.stat().st_size for item in path.rglob("*") if item.is_file())
