"""Reads the window out of a mask function of transformers."""

from __future__ import annotations

from typing import Any

from transformers import masking_utils

from amk.errors import ImportRefused

CAUSAL = masking_utils.causal_mask_function
INTERSECTION = masking_utils.and_masks(CAUSAL).__qualname__
WINDOW = masking_utils.sliding_window_overlay(1).__qualname__


def window_of(function: Any) -> int | None:
    """The window of a causal (None) or sliding-causal mask; ImportRefused for any other.

    A mask function is opaque code, so its structure is matched, not its values: causal itself, or
    the intersection of causal and one sliding window.
    """
    if function is CAUSAL:
        return None
    parts = variable(function, INTERSECTION, "mask_functions")
    if isinstance(parts, tuple | list) and len(parts) == 2 and CAUSAL in parts:
        (other,) = [p for p in parts if p is not CAUSAL] or [None]
        window = variable(other, WINDOW, "sliding_window")
        if isinstance(window, int) and not isinstance(window, bool) and window > 0:
            return window
    name = getattr(function, "__qualname__", repr(function))
    raise ImportRefused(
        f"attention mask {name} is neither causal nor sliding-causal (chunked, bidirectional,"
        " block and packed masks are not supported)"
    )


def variable(function: Any, qualname: str, name: str) -> Any:
    """The value a closure named `qualname` has for its free variable `name`, or None."""
    code = getattr(function, "__code__", None)
    if code is None or function.__module__ != masking_utils.__name__:
        return None
    if function.__qualname__ != qualname or name not in code.co_freevars:
        return None
    return function.__closure__[code.co_freevars.index(name)].cell_contents
