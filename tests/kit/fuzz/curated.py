"""The list of mutants that every run of the tests goes through: from a seed, so the same on every machine and in every Python.

A mutant is known by its target and its number; ``python -m tests.kit.fuzz --target envelope --number 4711`` shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from tests.kit.fuzz.judge import Finding, Target, Worst, judge
from tests.kit.fuzz.mutators import Mutator

MUTANTS = 10_000
"""For each parser (T16)."""


@cache
def _mutator(seeds: tuple[bytes, ...], tokens: tuple[bytes, ...]) -> Mutator:
    return Mutator(seeds, tokens)


def mutator_of(target: Target) -> Mutator:
    """The changes that fit a target."""
    return _mutator(tuple(target.seeds), tuple(target.tokens))


def mutant(target: Target, number: int) -> bytes:
    """Input ``number`` of a target's list: first its seeds as they are, then changes of them."""
    if number < len(target.seeds):
        return target.seeds[number]
    rng = Random(f"{target.name} {number}")  # a text: hashed by SHA-512, the same in every process
    return mutator_of(target).mutate(rng.choice(target.seeds), rng)


def mutants(target: Target, count: int = MUTANTS) -> Iterator[bytes]:
    """The list."""
    return (mutant(target, number) for number in range(count))


@dataclass(slots=True)
class Report:
    """What became of many inputs."""

    runs: int = 0
    accepted: int = 0
    worst: Worst = field(default_factory=Worst)
    findings: list[Finding] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    """Refusals by what they say."""

    def __str__(self) -> str:
        worst = self.worst
        return (
            f"{self.runs} inputs, {self.accepted} accepted, {len(self.kinds)} refusals, "
            f"worst {worst.seconds * 1000:.1f} ms, "
            f"{worst.memory / 1024:.0f} KiB; {len(self.findings)} findings"
        )


def run(target: Target, inputs: Iterable[bytes], *, memory_every: int = 1) -> Report:
    """Judge each input; the memory of every ``memory_every``-th (0: of none)."""
    report = Report()
    for number, data in enumerate(inputs):
        memory = bool(memory_every) and number % memory_every == 0
        outcome, finding = judge(target, data, memory=memory, worst=report.worst)
        report.runs += 1
        if outcome is not None and outcome.accepted:
            report.accepted += 1
        elif outcome is not None:
            report.kinds[repr(outcome.value)[:60]] += 1
        if finding is not None:
            report.findings.append(finding)
    return report


def saved(corpus: Path, target: Target) -> list[Path]:
    """Findings of earlier runs (``tests/fuzz/corpus/<target>``), replayed for ever."""
    return sorted((corpus / target.name).glob("*.bin"))
