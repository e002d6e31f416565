"""Greedy and sampled generation: what every backend and the command line share."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.runtime.backends import (
    Settings,
    choose_backend,
    choose_device,
    open_decoder,
    resolve_target,
)
from amk.runtime.decoder import Decoder
from amk.runtime.result import GenerateResult, divergence
from amk.runtime.sampling import Choose, greedy
from amk.runtime.source import Source, as_source
from amk.targets import Target

if TYPE_CHECKING:
    from torch import nn

NO_STOP: frozenset[int] = frozenset()


def generate(
    model: str | Path | Source | nn.Module,
    gpu: str | Target,
    prompt_ids: Sequence[int],
    max_tokens: int,
    device: str = "auto",
    dtype: str = "f32",
    verify: bool = False,
    eager_model: Any = None,
    tokens_per_launch: int = 1,
) -> dict[str, Any]:
    """Makes `max_tokens` greedy tokens after `prompt_ids`; the fields of `GenerateResult`.

    `model` is what MODEL may be on the command line, a transformers model, or a plain nn.Module.
    `gpu` names a target, or is "cuda" for this machine's GPU; on a CPU it is validated and
    otherwise unused. `device` is "auto" (the CPU), "cpu" or "cuda". With `verify` the tokens are
    compared with the greedy ones of `eager_model`, or of transformers' own eager run of `model`.
    With `tokens_per_launch` more than 1 each launch after the prompt makes so many tokens, the
    last one fewer; they are the same tokens.

    All before any work: ValueError for an empty prompt, an id that is no integer of the
    vocabulary, `max_tokens` or `tokens_per_launch` < 1, or len(prompt) + max_tokens − 1 positions
    beyond max_seq; KeyError that lists the known ones for an unknown target; RuntimeError for
    device "cuda" without a device. Later, ImportRefused, ModelFileError or ToolchainError.
    """
    from amk.compiler import options_for

    prompt, count = checked_ids(prompt_ids), checked_count(max_tokens)
    each = checked_count(tokens_per_launch, "tokens_per_launch")
    target = resolve_target(gpu)
    where = choose_device(device)
    backend = choose_backend("auto", device)
    source = as_source(model, dtype)
    if verify and eager_model is None and not source.has_eager:
        raise ValueError(f"{source.name} has no eager run of HuggingFace's: give eager_model")
    options = options_for(source, dtype=dtype)
    check_fits(prompt, count, options.max_seq, source.vocab_size)
    with open_decoder(backend, source, Settings(target, dtype=dtype)) as decoder:
        made = decode(decoder, prompt, count, tokens_per_launch=each)
        latencies = decoder.latencies_us
    eager = None
    if verify:
        eager = eager_tokens(source, prompt, count, dtype, eager_model=eager_model)
    return record(
        prompt, made, latencies, count, where, backend, source.name, target.name, eager,
        [verified_against(dtype)] if verify else [],
    ).to_dict()  # fmt: skip


def decode(
    decoder: Decoder,
    prompt: Sequence[int],
    max_tokens: int,
    choose: Choose = greedy,
    stop: frozenset[int] = NO_STOP,
    on_token: Callable[[int], None] = lambda token: None,
    tokens_per_launch: int = 1,
) -> list[int]:
    """Appends `prompt` and makes tokens: `max_tokens`, or up to and with the first in `stop`.

    `on_token` sees each as soon as it is chosen, and those of a launch of several when it is
    done. The last token made is not appended. With `tokens_per_launch` more than 1 the launches
    after the prompt choose for themselves: ValueError unless `choose` is `greedy`.
    """
    if tokens_per_launch > 1 and choose is not greedy:
        raise ValueError("several tokens a launch are greedy ones: leave sampling out")
    feeds = tokens_per_launch > 1 or (choose is greedy and decoder.chooses)
    made = [choose(decoder.prefill(prompt))]
    on_token(made[0])
    while made[-1] not in stop and len(made) < max_tokens:
        if feeds:
            count = min(tokens_per_launch, max_tokens - len(made))
            new = decoder.steps(made[-1], count, sorted(stop))
        else:
            new = [choose(decoder.step(made[-1]))]
        for token in new:
            made.append(token)
            on_token(token)
    return made


def eager_tokens(
    source: Source,
    prompt: Sequence[int],
    max_tokens: int,
    dtype: str,
    stop: frozenset[int] = NO_STOP,
    eager_model: Any = None,
) -> list[int]:
    """HuggingFace's greedy tokens under the same stop rule; see `amk.runtime.verify`."""
    from amk.runtime import verify

    model = eager_model if eager_model is not None else verify.eager_model(source, dtype)
    return verify.eager_greedy(model, prompt, max_tokens, stop)


def verified_against(dtype: str) -> str:
    """A note that says what `--verify` compares with."""
    weights = "" if dtype == "f32" else f", weights rounded to {dtype}"
    return f"verified against transformers, eager attention, float32 arithmetic{weights}"


def record(
    prompt: Sequence[int],
    made: Sequence[int],
    latencies_us: Sequence[float],
    max_tokens: int,
    device: str,
    backend: str,
    model: str,
    gpu: str,
    eager: Sequence[int] | None,
    notes: Iterable[str] = (),
) -> GenerateResult:
    """The result of a run; `eager` is None when it was not verified."""
    index = -1 if eager is None else divergence(made, eager, max_tokens)
    return GenerateResult(
        tokens=[*prompt, *made],
        generated=list(made),
        per_step_latency_us=list(latencies_us),
        divergence_index=index,
        max_tokens=max_tokens,
        matches_eager=None if eager is None else index == max_tokens,
        device=device,
        backend=backend,
        model=model,
        gpu=gpu,
        eager_tokens=None if eager is None else list(eager),
        notes=list(notes),
    )


# ---- what is checked before any work ------------------------------------------------------


def checked_ids(prompt_ids: Iterable[Any]) -> list[int]:
    """The prompt as plain ints; ValueError when it is empty or holds anything but ids ≥ 0."""
    ids = [_integer(i, "prompt id") for i in prompt_ids]
    if not ids:
        raise ValueError("the prompt is empty: give one token at least")
    for i in ids:
        if i < 0:
            raise ValueError(f"prompt id {i} is negative")
    return ids


def checked_count(value: Any, name: str = "max_tokens") -> int:
    """A number of one or more as a plain int; ValueError, which names it, for anything else."""
    count = _integer(value, name)
    if count < 1:
        raise ValueError(f"{name} {count} is less than 1")
    return count


def check_fits(prompt: Sequence[int], max_tokens: int, max_seq: int, vocab: int | None) -> None:
    """ValueError when the run would leave the cache or an id the vocabulary."""
    needed = len(prompt) + max_tokens - 1
    if needed > max_seq:
        raise ValueError(
            f"{len(prompt)} prompt tokens and {max_tokens} new ones need {needed} positions, "
            f"more than max_seq {max_seq}"
        )
    for i in prompt:
        if vocab is not None and i >= vocab:
            raise ValueError(f"prompt id {i} is outside the vocabulary [0, {vocab})")


def _integer(value: Any, what: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{what} {value!r} is not an integer") from None
