"""Weight data types and the conversions between them.

numpy has no bfloat16: a bf16 tensor travels as `uint16` bit patterns beside the tag "bf16".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from amk.errors import ModelFileError

# Tag -> the numpy dtype that carries it. These are the dtypes a program may ask for.
CARRIERS: dict[str, np.dtype] = {
    "f32": np.dtype("<f4"),
    "bf16": np.dtype("<u2"),
    "f16": np.dtype("<f2"),
}

# Elements converted at a time, so that temporaries stay in the last-level cache.
CHUNK = 1 << 18


@dataclass(frozen=True)
class TensorInfo:
    """What a file says about one tensor.

    `shape` is the shape under the state-dict key, row major. `dtype` is the tag of the narrowest
    type in `CARRIERS` that holds every value exactly. `encoding` is how the file stores it: the
    same tag, or a block format such as "Q4_1".
    """

    shape: tuple[int, ...]
    dtype: str
    encoding: str

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


def carrier(dtype: str) -> np.dtype:
    """The numpy dtype that carries `dtype`; ModelFileError for a tag that is not known."""
    try:
        return CARRIERS[dtype]
    except KeyError:
        known = ", ".join(CARRIERS)
        raise ModelFileError(f"dtype {dtype!r} is not one of {known}") from None


def destination(shape: tuple[int, ...], dtype: str, out: np.ndarray | None) -> np.ndarray:
    """`out` after checking that it can hold the tensor, or a new array.

    `out` must be C-contiguous, writable, of `shape` and of the dtype that carries `dtype`;
    anything else raises ValueError, for it is the caller's mistake and not the file's.
    """
    wanted = carrier(dtype)
    if out is None:
        return np.empty(shape, wanted)
    if out.shape != shape or out.dtype != wanted:
        raise ValueError(f"buffer is {out.dtype}{out.shape}, the tensor needs {wanted}{shape}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("buffer must be C-contiguous and writable")
    return out


def convert(source: np.ndarray, source_dtype: str, out: np.ndarray, dtype: str) -> None:
    """Write `source` (any shape, carrying `source_dtype`) into `out` as `dtype`, in order.

    Narrowing rounds once, to nearest with ties to even; every widening is exact. Values too large
    for f16 become infinities and every NaN stays a NaN. `out` is C-contiguous with as many
    elements as `source`. At most `CHUNK` elements of scratch are in use.
    """
    flat_in, flat_out = source.reshape(-1), out.reshape(-1)
    if source_dtype == dtype:
        np.copyto(flat_out, flat_in)
        return
    for start in range(0, flat_in.size, CHUNK):
        piece = flat_in[start : start + CHUNK]
        target = flat_out[start : start + CHUNK]
        if dtype == "f32":
            _widen(piece, source_dtype, target)
            continue
        wide = piece
        if source_dtype != "f32":
            wide = np.empty(piece.size, np.float32)
            _widen(piece, source_dtype, wide)
        if dtype == "bf16":
            _round_to_bf16(wide, target)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                np.copyto(target, wide, casting="same_kind")


def _widen(source: np.ndarray, source_dtype: str, out: np.ndarray) -> None:
    """bf16 or f16 into f32."""
    if source_dtype == "bf16":
        bits = out.view(np.uint32)
        np.copyto(bits, source)
        np.left_shift(bits, 16, out=bits)
    else:
        np.copyto(out, source)


def _round_to_bf16(source: np.ndarray, out: np.ndarray) -> None:
    """f32 to the nearest bf16, ties to even.

    Adding half of the last kept bit, less one when that bit is even, carries into the kept bits
    exactly when the value has to go up.
    """
    bits = np.ascontiguousarray(source).view(np.uint32)
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits
    rounded >>= 16
    np.copyto(out, rounded, casting="unsafe")
    nan = np.isnan(source)
    if nan.any():
        # The carry could turn a NaN into an infinity; keep its sign and make it quiet.
        out[nan] = (bits[nan] >> 16).astype(np.uint16) | 0x0040
