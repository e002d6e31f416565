"""What `amk generate` shows people: tokens, their rate, and what a comparison found."""

from __future__ import annotations

import sys
from typing import Any


class Writer:
    """Shows tokens on stdout: text with a tokenizer, else ids; at once when it streams."""

    def __init__(self, tokenizer: Any, stream: bool):
        self.tokenizer = tokenizer
        self.live = None
        self.stream = stream
        if stream and tokenizer is not None:
            self.live = tokenizer.stream()

    def push(self, token: int) -> None:
        if not self.stream:
            return
        text = f"{token} " if self.live is None else self.live.push(token)
        sys.stdout.write(text)
        sys.stdout.flush()

    def finish(self, made: list[int]) -> None:
        if self.stream:
            print("" if self.live is None else self.live.finish(), flush=True)
        elif self.tokenizer is None:
            print(" ".join(map(str, made)), flush=True)
        else:
            print(self.tokenizer.decode(made), flush=True)


def rate(latencies_us: list[float], prompt_launches: int, made: list[int]) -> str:
    """Tokens a second of the launches that followed the prompt."""
    first, steps = latencies_us[:prompt_launches], latencies_us[prompt_launches:]
    text = f"first after {sum(first) / 1e3:.1f} ms"
    if not steps:
        return text
    return f"{text}, then {(len(made) - 1) * 1e6 / sum(steps):.1f} tokens/s"


def verdict(result: Any) -> str:
    count = len(result.generated)
    if result.matches_eager:
        return f"verified: all {count} tokens equal HuggingFace's"
    index = result.divergence_index
    ours, eager = (
        ids[index] if index < len(ids) else "no token"
        for ids in (result.generated, result.eager_tokens)
    )
    return f"diverged at token {index}: {ours} here, {eager} from HuggingFace"
