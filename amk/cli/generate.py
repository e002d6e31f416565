"""`amk generate`: tokens after a prompt."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from amk.cli.common import (
    UsageError,
    add_dtype,
    add_json,
    add_model,
    command,
    positive,
    print_json,
    progress,
    say,
    usage,
)
from amk.errors import AmkError

EXAMPLES = """\
  amk generate toy --prompt-ids 1,2,3 --max-tokens 8
  amk generate model.gguf --prompt "The capital of France is" --max-tokens 32 --verify --json
  amk generate model.gguf --chat --prompt "Why is the sky blue?" --stream
  amk generate model.gguf --chat                       a conversation, a line a turn
  amk generate model.gguf --prompt Once --temperature 0.8 --top-p 0.9 --seed 1 --stream
"""

BACKENDS = ("auto", "native", "reference", "simt", "cuda")
DEFAULT_TOKENS = 64


def register(subparsers: Any) -> None:
    parser = command(subparsers, "generate", run, "make tokens after a prompt", EXAMPLES)
    add_model(parser)
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt, as text")
    prompt.add_argument(
        "--prompt-ids", metavar="1,2,3", help="the prompt, as ids; ids are printed then"
    )
    parser.add_argument(
        "--chat",
        action="store_true",
        help="put the prompt through the model's chat template; without --prompt, talk on stdin",
    )
    parser.add_argument("--max-tokens", type=positive, default=DEFAULT_TOKENS, metavar="N")
    parser.add_argument("--max-seq", type=positive, metavar="N", help="positions of the cache")
    parser.add_argument("--target", default="cpu", metavar="T", help="see `amk targets`")
    add_dtype(parser)
    parser.add_argument(
        "--weights",
        choices=("f32", "native"),
        default="f32",
        help="decode a file's blocks to --dtype (f32), or run them as they are (native)",
    )
    parser.add_argument("--threads", type=positive, metavar="N", help="workers (default: all CPUs)")
    parser.add_argument("--ignore-eos", action="store_true", help="go on after an end token")
    parser.add_argument("--backend", choices=BACKENDS, default="auto")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument(
        "--verify", action="store_true", help="compare the tokens with HuggingFace's greedy ones"
    )
    output = parser.add_mutually_exclusive_group()
    add_json(output)  # type: ignore[arg-type]
    output.add_argument("--stream", action="store_true", help="print text as tokens come")


def run(options: argparse.Namespace) -> int:
    from amk.runtime.backends import Settings, choose_backend, open_decoder
    from amk.runtime.source import open_source
    from amk.targets import find_target

    check_options(options)
    with usage():
        target = find_target(options.target)
    backend = choose_backend(options.backend)
    if options.weights == "native":
        raise AmkError("--weights native is not available in this version: use --weights f32")
    source = open_source(options.model)
    with progress() as report:
        settings = Settings(target, options.max_seq, options.dtype, options.threads, report)
        if options.chat and options.prompt is None:
            from amk.cli.chat import converse

            return converse(options, source, backend, settings)
        prompt = prompt_of(options, source)
        check_prompt(options, source, prompt)
        decoder = open_decoder(backend, source, settings)
    with decoder:
        return answer(options, source, backend, decoder, prompt)


def answer(
    options: argparse.Namespace, source: Any, backend: str, decoder: Any, prompt: list[int]
) -> int:
    """Runs the prompt, shows what came, and compares it when asked."""
    from amk.runtime import generate as g
    from amk.runtime.backends import BACKENDS as ROWS

    stop = g.NO_STOP if options.ignore_eos else frozenset(source.eos_token_ids())
    writer = Writer(None if options.prompt is None else source.tokenizer(), options.stream)
    start = time.perf_counter()
    made = g.decode(decoder, prompt, options.max_tokens, choose_of(options), stop, writer.push)
    seconds = time.perf_counter() - start
    latencies = decoder.latencies_us
    if not options.json:
        writer.finish(made)
        say(f"{len(made)} tokens after {len(prompt)} in {seconds:.3f} s: {rate(latencies, made)}")
    eager, notes = None, []
    if options.verify:
        with progress() as report:
            report("comparing with transformers")
            eager = g.eager_tokens(source, prompt, options.max_tokens, options.dtype, stop)
        notes.append(g.verified_against(options.dtype))
    result = g.record(
        prompt, made, latencies, options.max_tokens, ROWS[backend].device, backend, source.name,
        options.target, eager, notes,
    )  # fmt: skip
    if options.json:
        text = None if options.prompt is None else source.tokenizer().decode(made)
        print_json({**result.to_dict(), "text": text, "seconds": seconds})
    elif result.matches_eager is not None:
        say(verdict(result))
    return 1 if result.matches_eager is False else 0


def rate(latencies_us: list[float], made: list[int]) -> str:
    """Tokens a second of the launches that followed the prompt."""
    steps = latencies_us[len(latencies_us) - len(made) + 1 :]
    if not steps:
        return f"first after {sum(latencies_us) / 1e3:.1f} ms"
    first = sum(latencies_us[: len(latencies_us) - len(steps)]) / 1e3
    return f"first after {first:.1f} ms, then {len(steps) * 1e6 / sum(steps):.1f} tokens/s"


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


def check_options(options: argparse.Namespace) -> None:
    from amk.runtime.sampling import chooser

    if options.prompt is None and options.prompt_ids is None and not options.chat:
        raise UsageError("give --prompt TEXT, --prompt-ids 1,2,3 or --chat")
    if options.chat and options.prompt_ids is not None:
        raise UsageError("--chat takes a text: use --prompt")
    talks = options.chat and options.prompt is None
    if talks and (options.json or options.verify):
        raise UsageError("--json and --verify need one prompt: give --prompt with --chat")
    if options.verify and options.temperature != 0:
        raise UsageError("--verify compares greedy tokens: leave --temperature at 0")
    with usage():
        chooser(options.temperature, options.top_p, options.seed)


def choose_of(options: argparse.Namespace) -> Any:
    from amk.runtime.sampling import chooser

    return chooser(options.temperature, options.top_p, options.seed)


def prompt_of(options: argparse.Namespace, source: Any) -> list[int]:
    if options.prompt_ids is not None:
        return parse_ids(options.prompt_ids)
    if options.chat:
        messages = [{"role": "user", "content": options.prompt}]
        return source.tokenizer().chat(source.chat_template(), messages)
    return source.tokenizer().encode(options.prompt)


def parse_ids(text: str) -> list[int]:
    ids: list[int] = []
    for word in text.replace(",", " ").split():
        try:
            ids.append(int(word))
        except ValueError:
            raise UsageError(f"prompt id {word!r} is not an integer") from None
    return ids


def check_prompt(options: argparse.Namespace, source: Any, prompt: list[int]) -> None:
    from amk.compiler import options_for
    from amk.runtime.generate import check_fits, checked_ids

    with usage():
        length = options_for(source, "cpu", options.max_seq, options.dtype).max_seq
        check_fits(checked_ids(prompt), options.max_tokens, length, source.vocab_size)


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
