"""`amk generate --chat` without a prompt: a conversation, a line of stdin a turn."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from amk.cli.common import UsageError, say
from amk.runtime.backends import Settings, open_decoder
from amk.runtime.decoder import Decoder
from amk.runtime.generate import NO_STOP, decode
from amk.runtime.sampling import chooser
from amk.runtime.source import Source


def converse(options: argparse.Namespace, source: Source, backend: str, settings: Settings) -> int:
    """Answers each line until stdin ends. What the cache already holds is not run again."""
    tokenizer, template = source.tokenizer(), source.chat_template()
    tokenizer.chat(template, [{"role": "user", "content": "?"}])
    stop = NO_STOP if options.ignore_eos else frozenset(source.eos_token_ids())
    choose = chooser(options.temperature, options.top_p, options.seed)
    messages: list[dict[str, Any]] = []
    held: list[int] = []
    with open_decoder(backend, source, settings) as decoder:
        while (line := read_turn()) is not None:
            messages.append({"role": "user", "content": line})
            prompt = tokenizer.chat(template, messages)
            room = decoder.max_seq - len(prompt) + 1
            if room < 1:
                raise UsageError(
                    f"the conversation is {len(prompt)} tokens, more than max_seq "
                    f"{decoder.max_seq}: give --max-seq N"
                )
            fresh = rewind_to_common(decoder, held, prompt)
            live = tokenizer.stream()

            def show(token: int, live: Any = live) -> None:
                sys.stdout.write(live.push(token))
                sys.stdout.flush()

            made = decode(
                decoder, fresh, min(options.max_tokens, room), choose, stop, show,
                options.tokens_per_launch,
            )  # fmt: skip
            print(live.finish(), flush=True)
            held = [*prompt, *made[:-1]]
            messages.append({"role": "assistant", "content": tokenizer.decode(made)})
    return 0


def rewind_to_common(decoder: Decoder, held: list[int], prompt: list[int]) -> list[int]:
    """Keeps the cache's longest prefix of `prompt` that leaves a token to run; the rest of it."""
    same = 0
    limit = min(len(held), len(prompt) - 1)
    while same < limit and held[same] == prompt[same]:
        same += 1
    decoder.truncate(same)
    return prompt[same:]


def read_turn() -> str | None:
    """The next line that says something; None at the end of stdin."""
    while True:
        if sys.stdin.isatty():
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            if sys.stdin.isatty():
                say("")
            return None
        if line.strip():
            return line.strip()
