"""The list of mutants that every test run judges.

The mutants follow from a seed, so they are the same on every machine and in every Python version. A
mutant is identified by its target and its number: ``python -m tests.kit.fuzz --target envelope
--number 4711`` shows one.
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
"""Number of inputs in the list of each parser (T16)."""


@cache
def _mutator(seeds: tuple[bytes, ...], tokens: tuple[bytes, ...]) -> Mutator:
    return Mutator(seeds, tokens)


def mutator_of(target: Target) -> Mutator:
    """Return the mutator with the seeds and tokens of a target."""
    return _mutator(tuple(target.seeds), tuple(target.tokens))


def mutant(target: Target, number: int) -> bytes:
    """Return input ``number`` of a target's list: first its seeds as they are, then mutants."""
    if number < len(target.seeds):
        return target.seeds[number]
    # ``Random`` hashes a text by SHA-512, so the seed is the same in every process.
    rng = Random(f"{target.name} {number}")
    return mutator_of(target).mutate(rng.choice(target.seeds), rng)


def mutants(target: Target, count: int = MUTANTS) -> Iterator[bytes]:
    """Yield the first ``count`` inputs of a target's list."""
    return (mutant(target, number) for number in range(count))


@dataclass(slots=True)
class Report:
    """The results of many inputs.

    ``runs`` counts the inputs, ``accepted`` those that the parser accepted.
    """

    runs: int = 0
    accepted: int = 0
    worst: Worst = field(default_factory=Worst)
    findings: list[Finding] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    """Refusal, as a text of at most 60 characters → number of inputs that were refused so."""

    def __str__(self) -> str:
        worst = self.worst
        return (
            f"{self.runs} inputs, {self.accepted} accepted, {len(self.kinds)} refusals, "
            f"worst {worst.seconds * 1000:.1f} ms, "
            f"{worst.memory / 1024:.0f} KiB; {len(self.findings)} findings"
        )


def run(target: Target, inputs: Iterable[bytes], *, memory_every: int = 1) -> Report:
    """Judge each input with ``target`` and return the report.

    The peak of memory is measured for every ``memory_every``-th input, or for none if that is 0.
    """
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
    """Return the paths of the findings of earlier runs, in order of name.

    ``corpus`` is ``tests/fuzz/corpus``. The tests judge these findings again in every run.
    """
    return sorted((corpus / target.name).glob("*.bin"))
