"""Speed against others, in interleaved rounds: only ratios within one run mean anything.

Each contender decodes the same number of tokens in turn, round after round, so that whatever else
the machine does falls on all alike. A ratio is taken within a round; what is reported is the
median over the rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from amk.errors import AmkError
from amk.runtime.backends import Report
from amk.runtime.llama_cpp import LlamaBench, find_binary
from amk.runtime.source import Source

CONTENDERS = ("hf", "torch-compile", "llama.cpp", "roof")


class Contender(Protocol):
    def seconds(self, tokens: int, position: int) -> float:
        """Wall time of `tokens` decode steps that start after `position` tokens."""
        ...

    def close(self) -> None: ...


class Worker:
    """A contender in a child process, see `bench_worker`; `facts` is what it says of itself."""

    def __init__(self, contender: str, spec: Mapping[str, Any]):
        self._name = contender
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "amk.runtime.bench_worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(spec["threads"])},
        )  # fmt: skip
        try:
            self.facts: dict[str, Any] = self._ask({**spec, "contender": contender})["ready"]
        except BaseException:
            self.close()
            raise

    def seconds(self, tokens: int, position: int) -> float:
        return self._ask({"tokens": tokens, "position": position})["seconds"]

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise AmkError(f"{self._name}: its process ended") from None
        line = self._process.stdout.readline()
        if not line:
            raise AmkError(f"{self._name}: its process ended with status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise AmkError(f"{self._name}: {answer['error']}")
        return answer

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True)
class Row:
    """A contender: its median tokens a second, and the median over rounds of amk's speed over its
    (1 for amk itself)."""

    name: str
    tokens_per_s: float
    amk_over_it: float


@dataclass(frozen=True)
class Scaling:
    """Time a token at `position` over that at 0, against the bytes read there over those at 0."""

    position: int
    time_ratio: float
    bytes_ratio: float

    @property
    def over_bytes(self) -> float:
        return self.time_ratio / self.bytes_ratio


@dataclass(frozen=True)
class Bench:
    model: str
    dtype: str
    threads: int
    tokens: int
    rounds: int
    rows: list[Row]
    scaling: Scaling | None

    def to_dict(self) -> dict[str, Any]:
        found = asdict(self)
        if self.scaling is not None:
            found["scaling"]["over_bytes"] = self.scaling.over_bytes
        return found


def bench(
    source: Source,
    against: Sequence[str] = (),
    dtype: str = "bf16",
    threads: int = 2,
    tokens: int = 32,
    rounds: int = 7,
    max_seq: int | None = None,
    position: int | None = None,
    report: Report = lambda text: None,
) -> Bench:
    """Runs amk and the contenders `against` ("hf", "torch-compile", "llama.cpp", "roof").

    With `position`, the time a token there is compared with that at the start, interleaved too.
    AmkError when a contender is not there or fails; nothing is left running.
    """
    from amk.compiler import options_for

    if "llama.cpp" in against:
        find_binary()
    max_seq = options_for(source, max_seq=max_seq).max_seq
    spec = {
        "model": source.name, "dtype": dtype, "threads": threads, "max_seq": max_seq,
        "rows": tokens + 8,
    }  # fmt: skip
    open_by_name: dict[str, Callable[[], Contender]] = {
        "llama.cpp": lambda: LlamaBench(model_path(source), dtype, threads)
    }
    contenders: dict[str, Contender] = {}
    try:
        report("starting amk")
        amk = contenders["amk"] = Worker("amk", spec)
        for name in against:
            report(f"starting {name}")
            opener = open_by_name.get(name)
            contenders[name] = opener() if opener is not None else Worker(name, spec)
        seconds = interleave(contenders, tokens, rounds, report)
        scaling = None
        if position is not None:
            scaling = scale(amk, tokens, rounds, position, report)
    finally:
        for contender in contenders.values():
            contender.close()
    rows = [
        Row(name, median(tokens / s for s in found), ratio(seconds["amk"], found))
        for name, found in seconds.items()
    ]
    return Bench(source.name, dtype, threads, tokens, rounds, rows, scaling)


def model_path(source: Source) -> Path:
    if source.path is None:
        raise AmkError(f"llama.cpp: {source.name} is no file")
    return source.path


def interleave(
    contenders: Mapping[str, Contender], tokens: int, rounds: int, report: Report
) -> dict[str, list[float]]:
    """Seconds of each round by contender. Who goes first moves on by one each round."""
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in [*names[turn:], *names[:turn]]:
            report(f"round {number + 1} of {rounds}: {name}")
            seconds[name].append(contenders[name].seconds(tokens, 0))
    return seconds


def scale(amk: Worker, tokens: int, rounds: int, position: int, report: Report) -> Scaling:
    """Bytes at a position are the weights and the cache rows below it; both sides' mean row count
    over the tokens timed is what is compared."""
    last = amk.facts["max_seq"] - tokens
    if not 0 < position <= last:
        raise AmkError(f"position {position} is not between 1 and {last}: give a larger max_seq")
    ratios = []
    amk.seconds(1, position)
    for number in range(rounds):
        report(f"position {position}, round {number + 1} of {rounds}")
        ratios.append(amk.seconds(tokens, position) / amk.seconds(tokens, 0))
    weights, row = amk.facts["weight_bytes"], amk.facts["cache_bytes_per_position"]
    middle = (tokens + 1) / 2
    far, near = weights + row * (position + middle), weights + row * middle
    return Scaling(position, median(ratios), far / near)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How many times as fast we are, within rounds."""
    return median(t / o for o, t in zip(ours, theirs, strict=True))


def median(values: Any) -> float:
    return float(statistics.median(values))
