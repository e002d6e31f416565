"""Where a ring keeps its rows: the first ones stay, the others share what is left in turns."""

from __future__ import annotations

from typing import Any

import numpy as np


def ring_slot(row: Any, rows: int, sinks: int) -> Any:
    """The slot of row `row` (a number or an array) in a ring of `rows` slots of which the first
    `sinks` are kept: row j lies in slot j below that, else in
    sinks + (j − sinks) mod (rows − sinks)."""
    return np.where(row < sinks, row, sinks + (row - sinks) % (rows - sinks))
