"""A contender of `amk bench` in a process of its own.

    python -m amk.runtime.bench_worker

The first line of stdin is a JSON object {"contender", "model", "dtype", "threads", "max_seq",
"rows"}; "rows" are the positions that a round at 0 takes at most. The worker answers
{"ready": facts} or {"error": text}, then a line of {"seconds": s} for every line that asks for
{"tokens": n, "position": p}. Between rounds it sleeps on stdin, so that it takes nothing from the
others.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Round = Callable[[int, int], float]
"""Seconds for `tokens` decode steps that start after `position` tokens."""


def open_amk(spec: dict[str, Any]) -> tuple[Round, dict[str, Any]]:
    from amk.runtime.backends import Settings, open_decoder
    from amk.runtime.roof import read_each_token
    from amk.runtime.session import Session
    from amk.runtime.source import open_source
    from amk.runtime.weights import carrier

    source = open_source(spec["model"])
    settings = Settings(max_seq=spec["max_seq"], dtype=spec["dtype"], threads=spec["threads"])
    session = open_decoder("native", source, settings)
    assert isinstance(session, Session)
    slots = session.program.layout.slots
    weight_bytes = sum(
        s.shape[0] * s.shape[1] * carrier(s.dtype).itemsize
        for s in read_each_token(slots, session.max_seq)
    )
    facts = {
        "weight_bytes": weight_bytes,
        "cache_bytes_per_position": cache_row_bytes(slots),
        "max_seq": session.max_seq,
    }

    written = 0

    def run(tokens: int, position: int) -> float:
        nonlocal written
        if written < position:
            session.tokens = [1] * written
            session.prefill([1] * (position - written))
            written = position
        # Rows below `position` are written, which is all a launch asks of the past.
        session.tokens = [1] * position
        token = 1
        start = time.perf_counter()
        for _ in range(tokens):
            token = int(session.step(token).argmax())
        seconds = time.perf_counter() - start
        written = max(written, position + tokens)
        return seconds

    return run, facts


def cache_row_bytes(slots: Any) -> int:
    """Bytes of a position in all caches of a layout."""
    from math import prod

    from amk.runtime.weights import carrier

    caches = [s for s in slots if s.kind == "cache"]
    return sum(prod(n for n in s.shape if n != -1) * carrier(s.dtype).itemsize for s in caches)


def open_roof(spec: dict[str, Any]) -> tuple[Round, dict[str, Any]]:
    from amk.compiler import compile
    from amk.runtime.bind import bind_weights
    from amk.runtime.program import Program
    from amk.runtime.roof import Roof, read_each_token
    from amk.runtime.source import open_source

    source = open_source(spec["model"])
    program = compile(source, "cpu", spec["max_seq"], spec["dtype"])
    assert isinstance(program, Program)
    arrays = bind_weights(program, source)
    slots = read_each_token(list(arrays), program.facts.max_seq)
    roof = Roof({slot: arrays[slot] for slot in slots}, spec["threads"])
    return lambda tokens, position: roof.seconds(tokens), {}


def transformers_model(spec: dict[str, Any]) -> Any:
    """The model as transformers runs it by default (attention by torch), in the dtype."""
    import torch

    from amk.runtime.evaluate import torch_dtype
    from amk.runtime.source import open_source
    from amk.runtime.verify import eager_model

    torch.set_num_threads(spec["threads"])
    model = eager_model(open_source(spec["model"])).to(torch_dtype(spec["dtype"]))
    model.set_attn_implementation("sdpa")
    return model


def open_hf(spec: dict[str, Any]) -> tuple[Round, dict[str, Any]]:
    from amk.runtime.verify import Eager

    model = transformers_model(spec)

    def run(tokens: int, position: int) -> float:
        eager = Eager(model)
        token = int(eager.logits([1] * (position + 1))[-1].argmax())
        start = time.perf_counter()
        for _ in range(tokens):
            token = int(eager.step(token).argmax())
        return time.perf_counter() - start

    return run, {}


def open_torch_compile(spec: dict[str, Any]) -> tuple[Round, dict[str, Any]]:
    import torch
    from transformers import StaticCache

    model = transformers_model(spec)
    compiled = torch.compile(model, dynamic=False, fullgraph=True)
    # A static cache is read whole at every step: no longer than the rounds need.
    cache = StaticCache(config=model.config, max_cache_len=spec["rows"])

    def step(token: int, position: int) -> int:
        at = torch.tensor([[position]])
        with torch.no_grad():
            out = compiled(
                input_ids=torch.tensor([[token]]), position_ids=at, past_key_values=cache
            )
        return int(out.logits[0, -1].argmax())

    def run(tokens: int, position: int) -> float:
        cache.reset()
        token = 1
        for at in range(position + 1):
            token = step(token, at)
        start = time.perf_counter()
        for at in range(position + 1, position + 1 + tokens):
            token = step(token, at)
        return time.perf_counter() - start

    return run, {}


OPENERS: dict[str, Callable[[dict[str, Any]], tuple[Round, dict[str, Any]]]] = {
    "amk": open_amk,
    "hf": open_hf,
    "torch-compile": open_torch_compile,
    "roof": open_roof,
}


def main() -> None:
    # Answers go to the real stdout; whatever a library prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    spec = json.loads(sys.stdin.readline())
    try:
        run, facts = OPENERS[spec["contender"]](spec)
        run(2, 0)
        print(json.dumps({"ready": facts}), file=answers)
        for line in sys.stdin:
            asked = json.loads(line)
            print(json.dumps({"seconds": run(asked["tokens"], asked["position"])}), file=answers)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        print(json.dumps({"error": reason}), file=answers)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
