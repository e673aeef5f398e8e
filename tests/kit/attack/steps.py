"""Steps and walks: what a walker does, as values that can be written to a file and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a walker does; ``given`` holds values of JSON alone."""

    kind: str
    given: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return this step as it stands in a file of a finding."""
        return {"kind": self.kind, **self.given}

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> Step:
        """Return the step that :meth:`as_json` wrote."""
        rest = {key: each for key, each in value.items() if key != "kind"}
        return Step(str(value["kind"]), rest)


@dataclass(frozen=True, slots=True)
class Walk:
    """Steps of one walker, played one after the other by one player."""

    port: str
    """Name of the walker."""
    seed: str
    """What the steps were drawn from."""
    steps: Sequence[Step]

    def as_json(self) -> dict[str, Any]:
        """Return this walk as it stands in a file of a finding."""
        return {
            "port": self.port,
            "seed": self.seed,
            "steps": [step.as_json() for step in self.steps],
        }

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> Walk:
        """Return the walk that :meth:`as_json` wrote."""
        steps = tuple(Step.of_json(step) for step in value["steps"])
        return Walk(str(value["port"]), str(value["seed"]), steps)
