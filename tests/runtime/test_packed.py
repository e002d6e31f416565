"""Packed weights: round trip, alignment, copies, damage."""

import os
import struct

import numpy as np
import pytest

from amk.errors import ModelFileError
from amk.runtime import packed
from amk.runtime.packed import copy_into, huge_array, open_packed, write_packed


def sample():
    generator = np.random.default_rng(5)
    return {
        "a": generator.standard_normal((3, 5)).astype(np.float32),
        "b": generator.integers(0, 1 << 16, 7).astype(np.uint16),
        "scalar": np.array(2.5, np.float16),
        "empty": np.empty((0, 4), np.float32),
        "big": generator.integers(0, 255, 300_001).astype(np.uint8),
    }


@pytest.fixture
def path(tmp_path):
    write_packed(tmp_path / "w.packed", sample().items())
    return tmp_path / "w.packed"


def test_round_trip(path):
    weights = open_packed(path)
    assert list(weights) == list(sample())
    for name, array in sample().items():
        assert weights[name].dtype == array.dtype
        assert np.array_equal(weights[name], array)
        assert weights[name].ctypes.data % 64 == 0 or array.size == 0
        assert not weights[name].flags.writeable


def test_tensors_are_made_one_at_a_time(tmp_path):
    alive = []

    def stream():
        for n in range(4):
            alive.append(n)
            yield str(n), np.full(4, n, np.float32)
            # The file already has this one when the next is asked for.
            assert alive[-1] == n

    write_packed(tmp_path / "w", stream())
    assert open_packed(tmp_path / "w")["3"].tolist() == [3, 3, 3, 3]


def test_a_failing_write_leaves_nothing(tmp_path):
    def stream():
        yield "a", np.zeros(4, np.float32)
        raise KeyError("gone")

    with pytest.raises(KeyError):
        write_packed(tmp_path / "w", stream())
    assert list(tmp_path.iterdir()) == []
    write_packed(tmp_path / "w", [("a", np.ones(2, np.float32))])
    for bad in ([("a", np.zeros(2)), ("a", np.zeros(2))], [("a", np.array([object()]))]):
        with pytest.raises(ValueError, match="'a'"):
            write_packed(tmp_path / "w", bad)
    assert open_packed(tmp_path / "w")["a"].tolist() == [1, 1]


def test_copy_fills_the_destination(path, monkeypatch):
    monkeypatch.setattr(packed, "READ_BYTES", 1000)
    weights = open_packed(path)
    out = {name: np.empty_like(array) for name, array in sample().items()}
    copy_into(weights, out)
    for name, array in sample().items():
        assert np.array_equal(out[name], array), name


def test_copy_checks_the_destination(path):
    weights = open_packed(path)
    with pytest.raises(ValueError, match="'a' has 8 bytes, not 60"):
        copy_into(weights, {"a": np.empty(2, np.float32)})
    with pytest.raises(ValueError, match="contiguous"):
        copy_into(weights, {"a": np.empty((5, 3), np.float32).T})
    with pytest.raises(KeyError):
        copy_into(weights, {"zz": np.empty(2, np.float32)})


def test_copy_notices_a_file_that_shrank(path):
    weights = open_packed(path)
    os.truncate(path, 4096)
    with pytest.raises(ModelFileError, match="cut short"):
        copy_into(weights, {"big": np.empty(300_001, np.uint8)})


@pytest.mark.parametrize("size", [0, 1, 63, 64, 5000, -1, -200])
def test_truncated(path, size):
    whole = path.read_bytes()
    path.write_bytes(whole[: size if size >= 0 else len(whole) + size])
    with pytest.raises(ModelFileError, match="amk cache clear"):
        open_packed(path)


@pytest.mark.parametrize(
    ("offset", "message"), [(0, "magic"), (8, "cut short"), (16, "cut short"), (30, "checksum")]
)
def test_damaged_preamble(path, offset, message):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message):
        open_packed(path)


def test_damaged_header(path):
    data = bytearray(path.read_bytes())
    (at,) = struct.unpack_from("<Q", data, 8)
    data[at + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="checksum"):
        open_packed(path)


def test_missing_file(tmp_path):
    with pytest.raises(ModelFileError, match="cannot read"):
        open_packed(tmp_path / "none")


@pytest.mark.parametrize("nbytes", [0, 1, 4096, (2 << 20) + 5])
def test_huge_array(nbytes):
    array = huge_array(nbytes)
    assert array.size == nbytes
    assert array.dtype == np.uint8
    assert not array.any()
    if nbytes:
        assert array.ctypes.data % (2 << 20) == 0
        array[:] = 7
        part = array[-1:].view()
        del array
        assert part[0] == 7
