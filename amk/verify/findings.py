"""What a proof says: findings, the report that holds them, and the certificate that stays."""

from __future__ import annotations

from dataclasses import dataclass, field

RULES: dict[str, str] = {
    "V1": "every element is written exactly once",
    "V2": "every access lies inside its buffer",
    "V3": "nothing is read before it is written",
    "V4": "every read happens after the writes it needs",
    "V5": "no two unordered accesses conflict",
    "V6": "buffers that share bytes take turns",
    "V7": "weights, constants and inputs are never written",
    "V8": "outputs are always produced",
    "V9": "every wait is met and every threshold is the number of signals",
    "V10": "every block is resident at once",
    "V11": "the order of every reduction is fixed",
    "V12": "a slot of a ring is refilled only after its last reader",
    "V13": "address arithmetic fits its integer type",
}


STEPS = ("one step a launch", "any number of steps a launch")
"""How many steps a proof covers when a launch feeds itself."""


@dataclass(frozen=True)
class Finding:
    """One reason to reject a program.

    `position` is the smallest past length at which it happens; `places` names the op, the tile and
    the stage of each side; `elements` is the range of the buffer in question; `chain` says which
    events should have ordered the two sides, or what is known instead."""

    rule: str
    what: str
    position: int
    places: tuple[str, ...] = ()
    buffer: str = ""
    elements: str = ""
    chain: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f", {self.buffer}{self.elements}" if self.buffer else ""
        rest = "; ".join([*self.places, *([", ".join(self.chain)] if self.chain else [])])
        head = f"{self.rule} at P = {self.position}: {self.what}{where}"
        return f"{head}: {rest}" if rest else head


@dataclass(frozen=True)
class Certificate:
    """The summary of a proof. `program` is the hash of the program's text; `steps` is one of
    `STEPS`; `obligations` counts what was proved under each rule; `seconds` is the time it took."""

    program: str
    name: str
    positions: int
    workers: str
    steps: str
    obligations: dict[str, int]
    exhausted: int
    notes: tuple[str, ...]
    seconds: float


@dataclass
class Report:
    """The outcome for one program; `holds` when nothing was found.

    `obligations` counts per rule; `exhausted` counts the shapes that were enumerated tile by tile
    because strides alone did not decide; `notes` says what was taken from outside. `steps` is one
    of `STEPS`; of a program that could feed itself, `step_findings` say why it may not: they are
    no reason to reject it, as long as a launch takes one step."""

    name: str
    positions: int
    workers: str
    steps: str = STEPS[0]
    findings: list[Finding] = field(default_factory=list)
    step_findings: list[Finding] = field(default_factory=list)
    obligations: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RULES, 0))
    exhausted: int = 0
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return not self.findings

    def count(self, rule: str, number: int = 1) -> None:
        self.obligations[rule] += number

    def certificate(self, program_hash: str) -> Certificate:
        """Only of a program that holds."""
        assert self.holds
        return Certificate(
            program_hash,
            self.name,
            self.positions,
            self.workers,
            self.steps,
            dict(self.obligations),
            self.exhausted,
            tuple(self.notes),
            round(self.seconds, 4),
        )

    def summary(self) -> str:
        """A few lines for people."""
        proved = ", ".join(f"{rule} {n}" for rule, n in self.obligations.items() if n)
        how = f"{self.exhausted} shapes enumerated" if self.exhausted else "by strides alone"
        lines = [
            f"{self.name}: every past length 0 … {self.positions - 1}, {self.workers},"
            f" {self.steps}, {how}",
            f"  obligations: {proved}",
            *(f"  note: {note}" for note in self.notes),
            *(f"  {finding}" for finding in self.findings),
            *(f"  several steps a launch: {finding}" for finding in self.step_findings),
        ]
        return "\n".join(lines)
