"""Speculative greedy decoding without a second model: the text itself proposes what comes next.

The longest suffix that was seen before proposes the tokens that followed it (prompt lookup, Saxena
2023). A program of several tokens checks the proposal in one launch, for about the price of one
token where weights, not arithmetic, bound a launch; the agreed prefix is kept and the rest of the
cache truncated. Each row of that program equals the one-token program bit for bit, so the tokens
are those of plain greedy decoding, always.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from amk.runtime.decoder import Decoder
from amk.runtime.generate import NO_STOP
from amk.runtime.sampling import greedy

WIDTH = 8
"""Tokens of a checking launch, at most: the pending one and the proposed ones."""
SHORTEST, LONGEST = 2, 12
"""Lengths of suffixes that are looked up, in tokens."""


class Ngrams:
    """A text and, for each run of SHORTEST to LONGEST tokens in it, where it was last followed."""

    def __init__(self, tokens: Sequence[int] = ()):
        self.tokens: list[int] = []
        self.followed: dict[tuple[int, ...], int] = {}
        for token in tokens:
            self.push(token)

    def push(self, token: int) -> None:
        at = len(self.tokens)
        for n in range(SHORTEST, min(LONGEST, at) + 1):
            self.followed[tuple(self.tokens[at - n :])] = at
        self.tokens.append(token)

    def propose(self, count: int) -> list[int]:
        """`count` tokens that followed the longest suffix seen before; [] when none was.

        A proposal that runs into the end of the text goes on through itself: text with a period
        is continued with that period."""
        for n in range(min(LONGEST, len(self.tokens)), SHORTEST - 1, -1):
            start = self.followed.get(tuple(self.tokens[-n:]))
            if start is not None:
                period = len(self.tokens) - start
                return [self.tokens[start + i % period] for i in range(count)]
        return []


@dataclass
class Speculation:
    """What came of a run: launches that checked a proposal, tokens proposed and kept."""

    checks: int = 0
    proposed: int = 0
    kept: int = 0


def checking_width(decoder: Decoder, most: int = WIDTH) -> int:
    """Tokens of the widest program that checks up to `most`; 1 when there is none."""
    return max(n for n in decoder.facts.tokens if n <= most)


def speculate(
    decoder: Decoder,
    prompt: Sequence[int],
    max_tokens: int,
    stop: frozenset[int] = NO_STOP,
    on_token: Callable[[int], None] = lambda token: None,
    report: Speculation | None = None,
) -> list[int]:
    """Greedy tokens after `prompt`, as `generate.decode` makes them: `max_tokens`, or up to and
    with the first in `stop`. The last token made is not in the cache."""
    report = Speculation() if report is None else report
    width = checking_width(decoder)
    text = Ngrams([*decoder.tokens, *prompt])
    made: list[int] = []

    def take(token: int) -> bool:
        """Adds a token; true when it is the last."""
        made.append(token)
        text.push(token)
        on_token(token)
        return token in stop or len(made) == max_tokens

    if take(greedy(decoder.prefill(prompt))):
        return made
    while True:
        # A check appends `width` rows before it truncates, so they must fit.
        room = min(max_tokens - len(made), decoder.max_seq - decoder.length)
        proposal = text.propose(width - 1) if width > 1 and room >= width else []
        if not proposal:
            if take(greedy(decoder.step(made[-1]))):
                return made
            continue
        length = decoder.length
        rows = decoder.logits([made[-1], *proposal])
        report.checks += 1
        report.proposed += len(proposal)
        agreed, done = accept(rows, proposal, take)
        report.kept += agreed
        decoder.truncate(length + 1 + agreed)
        if done:
            return made


def accept(
    rows: np.ndarray, proposal: Sequence[int], take: Callable[[int], bool]
) -> tuple[int, bool]:
    """Takes the greedy token of each row as long as the row before was right; how many proposed
    tokens were right and stand in the cache, and whether the last token is made."""
    for i, row in enumerate(rows):
        token = greedy(row)
        done = take(token)
        if done or i == len(proposal) or token != proposal[i]:
            return i, done
    raise AssertionError("a proposal has one row more than tokens")
