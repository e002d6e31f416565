"""A program's weights on a device, which a session and its forks share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amk.runtime.bind import bind_weights
from amk.runtime.kernel_device import Allocator, Device
from amk.runtime.kernel_program import KernelProgram, bytes_of
from amk.runtime.program import INIT_PREFIX
from amk.runtime.source import Source
from amk.runtime.state_file import sample


class KernelWeights:
    """Addresses by slot of the layout. The last sharer to `release` frees them and closes the
    device; so does an error while they are loaded."""

    def __init__(
        self, program: KernelProgram, weights: Source | Mapping[str, np.ndarray], device: Device
    ):
        self.device = device
        self.samples: dict[str, np.ndarray] = {}
        """Some values of each of the model's own weights, by key, to know the model by."""
        self.addresses: dict[int, int] = {}
        self._allocate = Allocator(device)
        self._sharers = 1
        try:
            self._load(program, weights)
        except BaseException:
            self.release()
            raise

    def _load(self, program: KernelProgram, weights: Source | Mapping[str, np.ndarray]) -> None:
        slots = [(i, s) for i, s in enumerate(program.layout.slots) if s.kind == "weight"]
        bound = bind_weights(program, weights)  # type: ignore[arg-type]
        for i, slot in slots:
            array = bound.pop(slot)
            if not slot.source.startswith(INIT_PREFIX):
                self.samples[slot.source] = sample(array)
            address = self.addresses[i] = self._allocate(bytes_of(slot, 0))
            self.device.write(address, array)

    def share(self) -> KernelWeights:
        """The same weights for one more session."""
        self._sharers += 1
        return self

    def release(self) -> None:
        self._sharers -= 1
        if self._sharers == 0:
            self._allocate.free()
            self.device.close()
