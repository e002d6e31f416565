"""`amk generate`: tokens after a prompt."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
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
from amk.cli.writer import Writer, rate, verdict
from amk.errors import AmkError

EXAMPLES = """\
  amk generate toy --prompt-ids 1,2,3 --max-tokens 8
  amk generate model.gguf --prompt "The capital of France is" --max-tokens 32 --verify --json
  amk generate model.gguf --chat --prompt "Why is the sky blue?" --stream
  amk generate model.gguf --chat                       a conversation, a line a turn
  amk generate model.gguf --prompt TEXT --save-state text.kv     then --load-state text.kv
  amk generate model.gguf --prompt Once --tokens-per-launch 16 --stream
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
    parser.add_argument(
        "--target",
        default="cpu",
        metavar="T",
        help="see `amk targets`; cuda is this machine's GPU, and runs there",
    )
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
    parser.add_argument(
        "--speculate",
        choices=("ngram",),
        help="let the text propose tokens and check several in a launch: the same tokens, sooner",
    )
    parser.add_argument(
        "--tokens-per-launch",
        type=positive,
        default=1,
        metavar="K",
        help="greedy steps of a launch: the same tokens, with fewer returns to the host",
    )
    parser.add_argument("--save-state", type=Path, metavar="F", help="keep the cache in a file")
    parser.add_argument(
        "--load-state",
        type=Path,
        metavar="F",
        help="go on from a saved cache; a prompt is optional",
    )
    output = parser.add_mutually_exclusive_group()
    add_json(output)  # type: ignore[arg-type]
    output.add_argument("--stream", action="store_true", help="print text as tokens come")


def run(options: argparse.Namespace) -> int:
    from amk.runtime.backends import Settings, choose_backend, open_decoder, resolve_target
    from amk.runtime.source import open_source

    check_options(options)
    on_gpu = options.target == "cuda" and options.backend == "auto"
    backend = choose_backend("cuda" if on_gpu else options.backend)
    with usage():
        target = resolve_target(options.target)
    options.target = target.name
    if options.weights == "native":
        raise AmkError("--weights native is not available in this version: use --weights f32")
    source = open_source(options.model)
    with progress() as report:
        settings = Settings(
            target, options.max_seq, options.dtype, options.threads, report,
            options.speculate is not None,
        )  # fmt: skip
        if options.chat and options.prompt is None:
            from amk.cli.chat import converse

            return converse(options, source, backend, settings)
        prompt = prompt_of(options, source)
        check_prompt(options, source, prompt)
        decoder = open_decoder(backend, source, settings)
    with decoder:
        before, prompt = resume(options, decoder, prompt)
        return answer(options, source, backend, decoder, before, prompt)


def resume(options: argparse.Namespace, decoder: Any, prompt: list[int]) -> tuple[list[int], Any]:
    """Loads the state that was asked for: the tokens before the prompt, and the prompt. Without one
    the state's last token is run again, for the logits after it."""
    from amk.runtime.generate import check_fits

    if options.load_state is None:
        return [], prompt
    decoder.load(options.load_state)
    if not prompt:
        prompt = decoder.tokens[-1:]
        decoder.truncate(decoder.length - 1)
    before = list(decoder.tokens)
    with usage():
        check_fits([*before, *prompt], options.max_tokens, decoder.max_seq, None)
    return before, prompt


def answer(
    options: argparse.Namespace,
    source: Any,
    backend: str,
    decoder: Any,
    before: list[int],
    prompt: list[int],
) -> int:
    """Runs the prompt after the tokens `before` it, shows what came, and compares it when asked."""
    from amk.runtime import generate as g
    from amk.runtime.backends import BACKENDS as ROWS
    from amk.runtime.speculate import Speculation, speculate

    stop = g.NO_STOP if options.ignore_eos else frozenset(source.eos_token_ids())
    writer = Writer(None if options.prompt is None else source.tokenizer(), options.stream)
    start = time.perf_counter()
    notes: list[str] = []
    prompt_launches: list[int] = []

    def show(token: int) -> None:
        if not prompt_launches:
            prompt_launches.append(decoder.launches)
        writer.push(token)

    if options.speculate is None:
        made = g.decode(
            decoder, prompt, options.max_tokens, choose_of(options), stop, show,
            options.tokens_per_launch,
        )  # fmt: skip
    else:
        report = Speculation()
        made = speculate(decoder, prompt, options.max_tokens, stop, show, report)
        notes.append(f"speculation: {report.kept} of {report.proposed} proposed tokens kept")
    seconds = time.perf_counter() - start
    latencies = list(decoder.latencies_us)
    if options.save_state is not None:
        decoder.step(made[-1])
        decoder.save(options.save_state)
    prompt = [*before, *prompt]
    if not options.json:
        writer.finish(made)
        speed = rate(latencies, prompt_launches[0], made)
        say(f"{len(made)} tokens after {len(prompt)} in {seconds:.3f} s: {speed}")
    eager = None
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


def check_options(options: argparse.Namespace) -> None:
    from amk.runtime.sampling import chooser

    given = (options.prompt, options.prompt_ids, options.load_state)
    if given == (None, None, None) and not options.chat:
        raise UsageError("give --prompt TEXT, --prompt-ids 1,2,3 or --chat")
    if options.chat and options.prompt_ids is not None:
        raise UsageError("--chat takes a text: use --prompt")
    talks = options.chat and options.prompt is None
    states = options.save_state or options.load_state or options.speculate
    if talks and (options.json or options.verify or states):
        raise UsageError(
            "--json, --verify, --speculate and states need one prompt: give --prompt with --chat"
        )
    if options.speculate is not None and options.temperature != 0:
        raise UsageError("--speculate makes greedy tokens: leave --temperature at 0")
    if options.tokens_per_launch > 1 and options.temperature != 0:
        raise UsageError("--tokens-per-launch makes greedy tokens: leave --temperature at 0")
    if options.tokens_per_launch > 1 and options.speculate is not None:
        raise UsageError("--speculate checks tokens a launch at a time: leave out one of the two")
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
    if options.prompt is None:
        return []  # what the saved state holds
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

    if not prompt and options.prompt is None and options.prompt_ids is None:
        return  # a saved state goes on without one
    with usage():
        length = options_for(source, "cpu", options.max_seq, options.dtype).max_seq
        check_fits(checked_ids(prompt), options.max_tokens, length, source.vocab_size)
