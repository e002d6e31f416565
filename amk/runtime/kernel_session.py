"""A session on a device with memory of its own: weights, caches and counters are laid out there
once, and a step is one launch and one read of the logits.

The device is anything with the six methods of `Device`: the CUDA driver, the host that runs blocks
as threads, or a recorder in a test.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from amk.codegen.layout import Slot
from amk.errors import AmkError
from amk.runtime.bind import bind_weights
from amk.runtime.decoder import Decoder
from amk.runtime.kernel_program import KernelProgram, Plan, bytes_of
from amk.runtime.kernel_trouble import TROUBLE_WORDS, explain
from amk.runtime.kv_memory import DeviceMemory
from amk.runtime.kv_state import KvState, cache_specs
from amk.runtime.program import INIT_PREFIX
from amk.runtime.source import Source
from amk.runtime.state_file import sample

PATIENCE_S = 5.0
MAX_ENDS = 64


class Arguments(ctypes.Structure):
    """`struct amk_launch` of device/amk_worker.h."""

    _fields_ = [
        ("past", ctypes.c_int64),
        ("capacity", ctypes.c_int64),
        ("operands", ctypes.c_uint64),
        ("events", ctypes.c_uint64),
        ("trouble", ctypes.c_uint64),
        ("scratch", ctypes.c_uint64),
        ("patience", ctypes.c_uint64),
        ("token", ctypes.c_uint64),
        ("made", ctypes.c_uint64),
        ("ends", ctypes.c_uint64),
        ("number", ctypes.c_uint32),
        ("steps", ctypes.c_uint32),
        ("end_count", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    ]


class Device(Protocol):
    """Memory and launches. Addresses are plain numbers; errors are AmkError."""

    def allocate(self, nbytes: int) -> int:
        """Zeroed memory, aligned to 256 bytes."""
        ...

    def free(self, address: int) -> None: ...

    def write(self, address: int, array: np.ndarray) -> None: ...

    def read(self, address: int, array: np.ndarray) -> None:
        """Fills `array`, after everything launched before."""
        ...

    def launch(self, number: int, plan: Plan, arguments: Arguments) -> None:
        """Starts a program's kernel, all its blocks at once, after everything before."""
        ...

    def close(self) -> None: ...


class KernelSession(Decoder):
    """A decoder whose weights and caches stay on a device."""

    def __init__(
        self,
        program: KernelProgram,
        weights: Source | Mapping[str, np.ndarray],
        device: Device,
        patience_s: float = PATIENCE_S,
    ):
        program.check()
        cache = KvState(cache_specs(program.layout), program.facts.max_seq, DeviceMemory(device))
        super().__init__(program.facts, cache)
        self.program = program
        self.device = device
        self.patience_ns = int(patience_s * 1e9)
        self.launched = [0] * len(program.plans)
        self._addresses: list[int] = []
        self._samples: dict[str, np.ndarray] = {}
        try:
            self._place(weights)
        except BaseException:
            self.close()
            raise

    # ---- memory ----

    def _allocate(self, nbytes: int) -> int:
        address = self.device.allocate(max(nbytes, 16))
        self._addresses.append(address)
        return address

    def _place(self, weights: Source | Mapping[str, np.ndarray]) -> None:
        layout = self.program.layout
        rows = self.program.facts.max_seq
        arenas = [self._allocate(n) for n in layout.arenas]
        self._slots: list[int] = []
        bound = bind_weights(self.program, weights)  # type: ignore[arg-type]
        for slot in layout.slots:
            if slot.kind == "activation":
                self._slots.append(arenas[slot.program] + slot.offset)
                continue
            if slot.kind == "cache":
                self._slots.append(0)  # `_moved` says where
                continue
            address = self._allocate(bytes_of(slot, rows))
            if slot.kind == "weight":
                if not slot.source.startswith(INIT_PREFIX):
                    self._samples[slot.source] = sample(bound[slot])
                self.device.write(address, bound.pop(slot))
            self._slots.append(address)
        self._inputs = [self._find("input", "tokens", i) for i in self._numbers()]
        self._logits = [self._find("output", "logits", i) for i in self._numbers()]
        self._feed_back()
        self._arguments = [self._prepare(i, plan) for i, plan in enumerate(self.program.plans)]
        self._moved()

    def _numbers(self) -> range:
        return range(len(self.program.plans))

    def _find(self, kind: str, source: str, number: int) -> int:
        for slot, address in zip(self.program.layout.slots, self._slots, strict=True):
            if (slot.kind, slot.source, slot.program) == (kind, source, number):
                return address
        raise AmkError(f"the program has no {kind} buffer {source!r}")

    def _feed_back(self) -> None:
        """The token a decode step makes goes where the next one reads its own."""
        for i, slot in enumerate(self.program.layout.slots):
            if (slot.kind, slot.source) == ("output", "next") and slot.shape == (1, 1):
                self._slots[i] = self._inputs[slot.program]

    def _prepare(self, number: int, plan: Plan) -> Arguments:
        """What stays the same in every launch of a program."""
        return Arguments(
            operands=self._allocate(8 * max(len(plan.operands), 1)),
            events=self._allocate(4 * plan.counters),
            trouble=self._allocate(4 * TROUBLE_WORDS),
            scratch=self._allocate(plan.blocks * plan.scratch_bytes),
            patience=self.patience_ns,
            token=self._inputs[number],
            made=self._allocate(8 * self.max_seq),
            ends=self._allocate(8 * MAX_ENDS),
            steps=1,
        )

    def _moved(self) -> None:
        """Tells the programs where the caches are and how many rows they have."""
        assert self.cache is not None
        for i, slot in enumerate(self.program.layout.slots):
            if slot.kind == "cache":
                self._slots[i] = self.cache.arrays[slot.source]
        capacities = {self.cache.capacity(name) for name in self.cache.specs} or {0}
        if len(capacities) > 1:
            raise AmkError(f"kernels take one capacity, and the caches have {capacities}")
        for plan, arguments in zip(self.program.plans, self._arguments, strict=True):
            arguments.capacity = next(iter(capacities))
            table = np.array([self._slots[k] for k in plan.operands] or [0], np.uint64)
            self.device.write(arguments.operands, table)

    def _weights(self) -> dict[str, np.ndarray]:
        return self._samples

    # ---- launches ----

    def _run(self, number: int, tokens: Sequence[int]) -> np.ndarray:
        self.device.write(self._inputs[number], np.asarray(tokens, np.int64))
        self.launched[number] += 1
        arguments = self._arguments[number]
        arguments.past = self.length
        arguments.number = self.launched[number] & 0xFFFFFFFF
        plan = self.program.plans[number]
        self.device.launch(number, plan, arguments)
        logits = np.empty((plan.tokens, self.vocab), np.float32)
        trouble = np.zeros(TROUBLE_WORDS, np.uint32)
        self.device.read(self._logits[number], logits)
        self.device.read(arguments.trouble, trouble)
        if trouble[0]:
            self._recover(number, plan, arguments)
            raise AmkError(explain(trouble.tolist(), plan))
        return logits

    def steps(self, token: int, count: int, ends: Sequence[int] = ()) -> list[int]:
        """As `Decoder.steps`, with at most `MAX_ENDS` ends; AmkError when the launch is lost."""
        if len(ends) > MAX_ENDS:
            raise ValueError(f"{len(ends)} end tokens: a launch takes {MAX_ENDS} at most")
        return super().steps(token, count, ends)

    def _run_steps(self, token: int, count: int, ends: Sequence[int]) -> list[int]:
        if not self.program.plans[0].feeds_back:
            raise AmkError(f"{self.facts.model}: the kernel makes no token that a step could read")
        arguments = self._arguments[0]
        unmade = np.full(count, -1, np.int64)
        self.device.write(arguments.made, unmade)
        if ends:
            self.device.write(arguments.ends, np.array(ends, np.int64))
        arguments.steps, arguments.end_count = count, len(ends)
        try:
            self._run(0, [token])
        finally:
            arguments.steps, arguments.end_count = 1, 0
        self.device.read(arguments.made, unmade)
        made = [int(t) for t in unmade if t >= 0]
        self.launched[0] += len(made) - 1
        return made

    def _recover(self, number: int, plan: Plan, arguments: Arguments) -> None:
        """Counters of a lost launch tell nothing: they start again."""
        self.device.write(arguments.trouble, np.zeros(TROUBLE_WORDS, np.uint32))
        self.device.write(arguments.events, np.zeros(plan.counters, np.uint32))
        self.launched[number] = 0

    def read_slot(self, slot: Slot) -> np.ndarray:
        """The bytes of a buffer, for tests and debugging: uint8."""
        at = self.program.layout.slots.index(slot)
        rows = self.program.facts.max_seq
        if slot.kind == "cache" and self.cache is not None:
            rows = self.cache.capacity(slot.source)
        out = np.empty(bytes_of(slot, rows), np.uint8)
        self.device.read(self._slots[at], out)
        return out

    def close(self) -> None:
        if self._closed:
            return
        super().close()
        for address in self._addresses:
            self.device.free(address)
        self._addresses = []
        self.device.close()

    def __del__(self) -> None:
        if hasattr(self, "_addresses"):
            self.close()
