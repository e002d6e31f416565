"""Conversions against torch, on every bit pattern that is small enough to list."""

import numpy as np
import pytest

from amk.errors import ModelFileError
from amk.runtime import weights
from amk.runtime.weights import convert, destination


def converted(values, source_dtype, dtype):
    out = np.empty(values.shape, weights.CARRIERS[dtype])
    convert(values, source_dtype, out, dtype)
    return out


def all_patterns(dtype):
    return np.arange(1 << 16, dtype=np.uint16).view(weights.CARRIERS[dtype])


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_widening_is_exact(dtype):
    import torch

    patterns = all_patterns(dtype)
    kind = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    expected = torch.from_numpy(patterns.view(np.uint16).copy()).view(kind).float().numpy()
    got = converted(patterns, dtype, "f32")
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(got), nan)
    assert np.array_equal(got.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_narrowing_undoes_widening(dtype):
    patterns = all_patterns(dtype)
    wide = converted(patterns, dtype, "f32")
    back = converted(wide, "f32", dtype)
    finite = ~np.isnan(wide)
    assert np.array_equal(back.view(np.uint16)[finite], patterns.view(np.uint16)[finite])


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_narrowing_rounds_as_torch_does(dtype):
    import torch

    bits = np.random.default_rng(3).integers(0, 1 << 32, 400_000, dtype=np.uint64)
    values = bits.astype(np.uint32).view(np.float32)
    # Halfway cases, where ties go to even: a kept part with exactly half of its last bit after it.
    halves = ((np.arange(1 << 16, dtype=np.uint32) << 16) | 0x8000).view(np.float32)
    values = np.concatenate([values, halves])
    kind = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    expected = torch.from_numpy(values).to(kind).view(torch.uint16).numpy()
    got = converted(values, "f32", dtype).view(np.uint16)
    nan = np.isnan(values)
    assert np.array_equal(got[~nan], expected[~nan])
    assert np.isnan(converted(got.view(weights.CARRIERS[dtype]), dtype, "f32")[nan]).all()


def test_pieces_meet(monkeypatch):
    monkeypatch.setattr(weights, "CHUNK", 7)
    values = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    expected = values.astype(np.float16)
    assert np.array_equal(converted(values, "f32", "f16"), expected)
    assert np.array_equal(converted(expected, "f16", "f32"), expected.astype(np.float32))


def test_half_to_bfloat_goes_through_float():
    import torch

    patterns = all_patterns("f16")
    expected = torch.from_numpy(patterns.copy()).to(torch.bfloat16).view(torch.uint16).numpy()
    finite = ~np.isnan(patterns.astype(np.float32))
    assert np.array_equal(converted(patterns, "f16", "bf16")[finite], expected[finite])


def test_destination_checks_the_buffer():
    good = np.empty((2, 3), np.float32)
    assert destination((2, 3), "f32", good) is good
    assert destination((2, 3), "bf16", None).dtype == np.uint16
    strided = np.empty((2, 6), np.float32)[:, ::2]
    for bad in (np.empty((3, 2), np.float32), np.empty((2, 3), np.float64), strided):
        with pytest.raises(ValueError, match="buffer"):
            destination((2, 3), "f32", bad)
    with pytest.raises(ModelFileError, match="'f64' is not one of f32, bf16, f16"):
        destination((2, 3), "f64", None)
