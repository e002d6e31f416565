"""A session on a device with memory of its own: weights, caches and counters are laid out there
once, and a step is one launch and one read of what it made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from amk.codegen.layout import Slot
from amk.errors import AmkError
from amk.runtime.certificate import refuse_several_steps
from amk.runtime.decoder import Decoder
from amk.runtime.kernel_device import Allocator, Arguments, Device
from amk.runtime.kernel_program import KernelProgram, Plan, bytes_of
from amk.runtime.kernel_timeline import StageTime, stage_times, stamp_bytes
from amk.runtime.kernel_trouble import TROUBLE_WORDS, explain
from amk.runtime.kernel_weights import KernelWeights
from amk.runtime.kv_memory import DeviceMemory
from amk.runtime.kv_state import KvState, cache_specs
from amk.runtime.source import Source

PATIENCE_S = 5.0
MAX_ENDS = 64
TROUBLE_BYTES = 4 * TROUBLE_WORDS


class KernelSession(Decoder):
    """A decoder whose weights and caches stay on a device.

    Each program has a *mailbox* on it: the trouble words of a lost launch, then the tokens a
    launch reads, then those it made. A launch costs one write into it and one read of it; logits
    are read when they are asked for."""

    def __init__(
        self,
        program: KernelProgram,
        weights: Source | Mapping[str, np.ndarray],
        device: Device,
        patience_s: float = PATIENCE_S,
    ):
        program.check()
        shared = KernelWeights(program, weights, device)
        try:
            memory = DeviceMemory(device)
            cache = KvState(cache_specs(program.layout), program.facts.max_seq, memory)
        except BaseException:
            shared.release()
            raise
        self._start(program, shared, cache, int(patience_s * 1e9))

    def _start(
        self, program: KernelProgram, weights: KernelWeights, cache: KvState, patience_ns: int
    ) -> None:
        super().__init__(program.facts, cache)
        self.program = program
        self.device = weights.device
        self.patience_ns = patience_ns
        self.launched = [0] * len(program.plans)
        self._shared = weights
        self._allocate = Allocator(self.device)
        try:
            self._place()
        except BaseException:
            self.close()
            raise

    # ---- memory ----

    def _place(self) -> None:
        layout, plans = self.program.layout, self.program.plans
        arenas = [self._allocate(n) for n in layout.arenas]
        self._boxes = [self._allocate(self._mailbox_bytes(plan)) for plan in plans]
        self._slots: list[int] = []
        for i, slot in enumerate(layout.slots):
            if slot.kind == "weight":
                self._slots.append(self._shared.addresses[i])
            elif slot.kind == "activation":
                self._slots.append(arenas[slot.program] + slot.offset)
            elif slot.kind == "cache":
                self._slots.append(0)  # `_moved` says where
            elif slot.kind == "input" or self._feeds_back(slot):
                # The token a decode step makes goes where the next one reads its own.
                self._slots.append(self._boxes[slot.program] + TROUBLE_BYTES)
            else:
                self._slots.append(self._allocate(bytes_of(slot, 0)))
        self._logits = [self._find("output", "logits", i) for i in range(len(plans))]
        self._arguments = [self._prepare(i, plan) for i, plan in enumerate(plans)]
        self._moved()

    def _mailbox_bytes(self, plan: Plan) -> int:
        return TROUBLE_BYTES + 8 * plan.tokens + 8 * self.max_seq

    def _feeds_back(self, slot: Slot) -> bool:
        """Proved: nothing reads the old token when the new one is written in its place."""
        makes = (slot.kind, slot.source, slot.shape) == ("output", "next", (1, 1))
        return makes and self.program.several_steps

    def _find(self, kind: str, source: str, number: int) -> int:
        for slot, address in zip(self.program.layout.slots, self._slots, strict=True):
            if (slot.kind, slot.source, slot.program) == (kind, source, number):
                return address
        raise AmkError(f"the program has no {kind} buffer {source!r}")

    def _prepare(self, number: int, plan: Plan) -> Arguments:
        """What stays the same in every launch of a program."""
        tokens = self._boxes[number] + TROUBLE_BYTES
        return Arguments(
            operands=self._allocate(8 * max(len(plan.operands), 1)),
            events=self._allocate(4 * plan.counters),
            trouble=self._boxes[number],
            scratch=self._allocate(plan.blocks * plan.scratch_bytes),
            patience=self.patience_ns,
            token=tokens,
            made=tokens + 8 * plan.tokens,
            ends=self._allocate(8 * MAX_ENDS),
            steps=1,
            timeline=self._allocate(stamp_bytes(plan)) if plan.timeline else 0,
        )

    def _moved(self) -> None:
        """Tells the programs where the caches are and how many rows they have."""
        assert self.cache is not None
        for i, slot in enumerate(self.program.layout.slots):
            if slot.kind == "cache":
                self._slots[i] = self.cache.arrays[slot.source]
        # The rows of a ring are a constant of the kernel.
        growing = [name for name, spec in self.cache.specs.items() if spec.slots is None]
        capacities = {self.cache.capacity(name) for name in growing} or {0}
        if len(capacities) > 1:
            raise AmkError(f"kernels take one capacity, and the caches have {capacities}")
        for plan, arguments in zip(self.program.plans, self._arguments, strict=True):
            arguments.capacity = next(iter(capacities))
            table = np.array([self._slots[k] for k in plan.operands] or [0], np.uint64)
            self.device.write(arguments.operands, table)

    def _weights(self) -> dict[str, np.ndarray]:
        return self._shared.samples

    # ---- launches ----

    def _run(self, number: int, tokens: Sequence[int]) -> np.ndarray:
        plan = self.program.plans[number]
        self._go(number, tokens, 0)
        logits = np.empty((plan.tokens, self.vocab), np.float32)
        self.device.read(self._logits[number], logits)
        return logits

    def _go(self, number: int, tokens: Sequence[int], count: int) -> np.ndarray:
        """One launch; the first `count` tokens it made, −1 for a step that was not taken."""
        plan, box = self.program.plans[number], self._boxes[number]
        arguments = self._arguments[number]
        letter = np.full(plan.tokens + count, -1, np.int64)
        letter[: plan.tokens] = tokens
        self.device.write(box + TROUBLE_BYTES, letter)
        self.launched[number] += 1
        arguments.past = self.length
        arguments.number = self.launched[number] & 0xFFFFFFFF
        self.device.launch(number, plan, arguments)
        answer = np.empty(TROUBLE_BYTES + letter.nbytes, np.uint8)
        self.device.read(box, answer)
        trouble = answer[:TROUBLE_BYTES].view(np.uint32)
        if trouble[0]:
            self._recover(number, plan, arguments)
            raise AmkError(explain(trouble.tolist(), plan))
        return answer[TROUBLE_BYTES:].view(np.int64)[plan.tokens :]

    @property
    def chooses(self) -> bool:
        feeds = self.program.plans[0].feeds_back and self.program.several_steps
        return feeds and self.facts.ids >= self.facts.vocab

    def steps(self, token: int, count: int, ends: Sequence[int] = ()) -> list[int]:
        """As `Decoder.steps`, with at most `MAX_ENDS` ends; AmkError when the launch is lost."""
        if len(ends) > MAX_ENDS:
            raise AmkError(f"{len(ends)} end tokens: a launch takes {MAX_ENDS} at most")
        return super().steps(token, count, ends)

    def _check_steps(self) -> None:
        if not self.program.plans[0].feeds_back:
            raise AmkError(f"{self.facts.model}: the kernel makes no token that a step could read")
        refuse_several_steps(self.program.folder, self.program.several_steps)

    def _run_steps(self, token: int, count: int, ends: Sequence[int]) -> list[int]:
        arguments = self._arguments[0]
        if ends and count > 1:
            self.device.write(arguments.ends, np.array(ends, np.int64))
        arguments.steps, arguments.end_count = count, len(ends) if count > 1 else 0
        try:
            found = self._go(0, [token], count)
        finally:
            arguments.steps, arguments.end_count = 1, 0
        made = found[found >= 0].tolist()
        if not made:
            raise AmkError(f"launch lost: position {self.length}: the kernel made no token")
        self.launched[0] += len(made) - 1
        return made

    def _recover(self, number: int, plan: Plan, arguments: Arguments) -> None:
        """Counters of a lost launch tell nothing: they start again."""
        self.device.write(arguments.trouble, np.zeros(TROUBLE_WORDS, np.uint32))
        self.device.write(arguments.events, np.zeros(plan.counters, np.uint32))
        self.launched[number] = 0

    # ---- forks, and the end ----

    def fork(self) -> Self:
        """An independent session that continues from here, on the same device. The two share
        weights, and the cache until one of them is fed."""
        cache = self._open_cache("fork").fork()
        child = type(self).__new__(type(self))
        child._start(self.program, self._shared.share(), cache, self.patience_ns)
        child.tokens = list(self.tokens)
        child._fed = self._fed
        return child

    def read_slot(self, slot: Slot) -> np.ndarray:
        """The bytes of a buffer, for tests and debugging: uint8."""
        at = self.program.layout.slots.index(slot)
        rows = self.program.facts.max_seq
        if slot.kind == "cache" and self.cache is not None:
            rows = self.cache.capacity(slot.source)
        out = np.empty(bytes_of(slot, rows), np.uint8)
        self.device.read(self._slots[at], out)
        return out

    def timeline(self, number: int = 0) -> list[StageTime]:
        """When the blocks of the last launch of a program were in each stage; AmkError for one
        that was compiled without a timeline."""
        plan = self.program.plans[number]
        if not plan.timeline:
            raise AmkError(f"{self.facts.model}: compiled without a timeline")
        stamps = np.empty(stamp_bytes(plan) // 8, np.uint64)
        self.device.read(self._arguments[number].timeline, stamps)
        return stage_times(stamps, plan)

    def cache_bytes(self) -> int:
        """Bytes allocated for the cache."""
        return 0 if self.cache is None else self.cache.nbytes

    def close(self) -> None:
        if self._closed:
            return
        super().close()
        self._allocate.free()
        self._shared.release()

    def __del__(self) -> None:
        if hasattr(self, "_shared"):
            self.close()
