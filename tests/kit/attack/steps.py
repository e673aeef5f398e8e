"""Steps and walks: a walker's actions as values, which can be saved in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One action of a walker. ``kind`` names it; ``given`` has its arguments as JSON values."""

    kind: str
    given: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return this step as a dictionary, in the form of a finding's file."""
        return {"kind": self.kind, **self.given}

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> Step:
        """Return the step of a dictionary that :meth:`as_json` returned."""
        rest = {key: each for key, each in value.items() if key != "kind"}
        return Step(str(value["kind"]), rest)


@dataclass(frozen=True, slots=True)
class Walk:
    """Steps of one walker, which one player plays one after the other."""

    port: str
    """The name of the walker."""
    seed: str
    """The seed from which the steps were drawn."""
    steps: Sequence[Step]

    def as_json(self) -> dict[str, Any]:
        """Return this walk as a dictionary, in the form of a finding's file."""
        return {
            "port": self.port,
            "seed": self.seed,
            "steps": [step.as_json() for step in self.steps],
        }

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> Walk:
        """Return the walk of a dictionary that :meth:`as_json` returned."""
        steps = tuple(Step.of_json(step) for step in value["steps"])
        return Walk(str(value["port"]), str(value["seed"]), steps)
