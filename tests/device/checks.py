"""What must hold on a GPU, as functions of a machine: tests/device calls them where there is one,
and tests/runtime/test_device_checks.py with a driver that runs kernels on the host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from amk import compiler
from amk.errors import AmkError
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.kernel_session import KernelSession
from amk.runtime.simt import BLOCKS, SimtDevice
from amk.runtime.source import Source, as_source
from amk.runtime.verify import eager_model
from tests.device.machine import Machine

POSITIONS = (0, 1, 127, 128, 2047)
RELATIVE = {"f32": 1e-4, "bf16": 2e-2, "f16": 5e-3}
"""Largest difference from transformers' float32 over the largest logit. In 16 bits cached keys and
values are rounded, 2^-8 of themselves in bf16; weights are the same on both sides."""
CHUNKS = {"f32": 0.0, "bf16": 2e-2, "f16": 5e-3}
"""The same between chunks, multiplied by matrix instructions in 16 bits, and steps."""
SIGNAL = "amk_signal(w, row.signal, (uint32_t)n);"


def ids_for(vocab: int, count: int) -> list[int]:
    return np.random.default_rng(0).integers(0, vocab, count).tolist()


def gap(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference over the largest value wanted."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def check_logits(
    machine: Machine, source: Source, dtype: str, positions: Sequence[int] = POSITIONS
) -> None:
    """Steps come as close to transformers as rounding allows, chunks as close to steps."""
    count = max(positions) + 1
    program = machine.compile(source, count, dtype)
    ids = ids_for(program.facts.ids, count)
    with torch.no_grad():
        wanted = eager_model(source, dtype)(torch.tensor([ids])).logits[0].float().numpy()
    with machine.session(program, source) as session:
        rows = {p: logits for p in range(count) if (logits := session.step(ids[p])) is not None}
        for p in positions:
            assert gap(rows[p], wanted[p]) <= RELATIVE[dtype], f"position {p}"
        session.reset()
        chunks = session.logits(ids)
        for p in positions:
            assert gap(chunks[p], rows[p]) <= CHUNKS[dtype], f"position {p}, in chunks"


def check_bits_of_the_host(machine: Machine, source: Source, dtype: str, count: int = 20) -> None:
    """Steps have the bits of the same text run on the host, whose grid is another."""
    there = machine.compile(source, 300, dtype)
    here = compiler.compile_kernels(
        source, machine.target, 300, dtype, workers=BLOCKS, machine_code=False
    )
    with (
        machine.session(there, source) as device,
        KernelSession(here, source, SimtDevice(here), 120) as host,
    ):
        for i, token in enumerate(ids_for(here.facts.ids, count)):
            np.testing.assert_array_equal(
                device.step(token), host.step(token), err_msg=f"position {i}"
            )


def greedy(session: KernelSession, token: int, count: int) -> list[int]:
    made: list[int] = []
    for _ in range(count):
        token = int(session.step(token).argmax())
        made.append(token)
    return made


def check_steps(machine: Machine, program: KernelProgram, source: Source, count: int) -> None:
    """K tokens a launch are those of K launches, and so is the state after them."""
    with machine.session(program, source) as plain, machine.session(program, source) as at_once:
        made = greedy(plain, 5, count)
        assert at_once.steps(5, count) == made
        np.testing.assert_array_equal(at_once.step(3), plain.step(3))
        at_once.reset()
        upto = made.index(made[count // 2]) + 1
        assert at_once.steps(5, count, [made[count // 2]]) == made[:upto]
        assert at_once.length == upto


def check_growth(machine: Machine, program: KernelProgram, source: Source, count: int) -> None:
    """A cache that grew as it was filled holds what one with room from the start does."""
    ids = ids_for(program.facts.ids, count)
    with machine.session(program, source) as grown, machine.session(program, source) as roomy:
        assert roomy.cache is not None
        assert grown.cache is not None
        roomy.cache.reserve(0, count)
        roomy._moved()
        for token in ids:
            np.testing.assert_array_equal(grown.step(token), roomy.step(token))
        assert grown.cache.reallocations > 3
        assert roomy.cache.reallocations == 1
        for name in grown.cache.specs:
            np.testing.assert_array_equal(
                grown.cache.rows(name, count), roomy.cache.rows(name, count)
            )


def check_fork(machine: Machine, program: KernelProgram, source: Source) -> None:
    """Forks go their own ways from one cache, also after the session they came from is closed."""
    ids = ids_for(program.facts.ids, 9)
    with machine.session(program, source) as plain:
        plain.prefill([*ids, 1])
        first = plain.step(4)
        plain.reset()
        plain.prefill([*ids, 2])
        second = plain.step(4)
    session = machine.session(program, source)
    session.prefill(ids)
    with session.fork() as fork:
        fork.step(1)
        session.step(2)
        np.testing.assert_array_equal(session.step(4), second)
        session.close()
        np.testing.assert_array_equal(fork.step(4), first)


def check_state(machine: Machine, program: KernelProgram, source: Source, folder: Path) -> None:
    """Saved, loaded into another session, cut back: decoding goes on as if nothing had been."""
    ids = ids_for(program.facts.ids, 11)
    with machine.session(program, source) as saved, machine.session(program, source) as loaded:
        saved.prefill(ids)
        saved.save(folder / "state.kv")
        loaded.load(folder / "state.kv")
        expected = saved.step(7)
        np.testing.assert_array_equal(loaded.step(7), expected)
        loaded.truncate(len(ids))
        np.testing.assert_array_equal(loaded.step(7), expected)


def check_hang(machine: Machine, program: KernelProgram, source: Source) -> None:
    """A kernel that forgets to raise a counter ends by itself and says where; the GPU goes on."""
    broken = machine.edited(program, lambda text: text.replace(SIGNAL, "", 1))
    with machine.session(broken, source, patience_s=0.3) as session:
        for _ in range(2):
            with pytest.raises(
                AmkError, match=r"launch lost: stage \d+ \('.*'\), block \d+, position 0: waited"
            ):
                session.step(1)
            assert session.length == 0
    with machine.session(program, source) as session:
        assert np.isfinite(session.step(1)).all()


def check_timeline(machine: Machine, source: Source) -> None:
    """The stages of a launch follow each other in each block."""
    program = machine.compile(source, 64, "bf16", tokens=(1,), timeline=True)
    with machine.session(program, source) as session:
        for token in (1, 2, 3):
            session.step(token)
        stages = session.timeline()
        assert min(s.start for s in stages) == 0
        assert all(s.longest <= s.end - s.start + 1 for s in stages)
        assert 0 < max(s.end for s in stages) < 60e6


def check_greedy_tokens(
    machine: Machine, source: Source, prompt: Sequence[int], count: int
) -> None:
    """The greedy tokens of transformers' float32 run, whatever a launch makes of them."""
    from amk.runtime.generate import decode, eager_tokens

    program = machine.compile(source, 256, "f32")
    wanted = eager_tokens(source, prompt, count, "f32")
    with machine.session(program, source) as session:
        for each in (1, 7):
            session.reset()
            assert decode(session, prompt, count, tokens_per_launch=each) == wanted


def seeded_llama(max_seq: int) -> Source:
    """A Llama with weights from a seed: heads of 64, chunks of attention, a vocabulary of 1,000."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, max_position_embeddings=max_seq,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    return as_source(model, "f32")
