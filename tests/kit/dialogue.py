"""Tests that read like the specification: ``>>`` goes in, ``<<`` must come out.

    assert Playbook() >> post(message) << row("private$/ledger", 1) >> synced() << ok()

is short for

    playbook = Playbook()
    playbook.step(post(message))
    assert playbook.heard == [row("private$/ledger", 1)]
    ...

What comes out after one ``>>`` must be exactly what stands before the next. When it is not, the assertion fails with a diff
of the two conversations. A dialogue that nobody asserted fails when it is forgotten. The idea is mitmproxy's.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

D = TypeVar("D", bound="Dialogue")


@dataclass(frozen=True, slots=True)
class Input:
    """A ``>>`` step."""

    text: str
    act: Callable[[Any], None]
    """What it does to the dialogue."""

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Output:
    """A ``<<`` step; two are equal if they read the same."""

    text: str

    def __repr__(self) -> str:
        return self.text


class Dialogue(ABC):
    """The script, and what happened."""

    def __init__(self) -> None:
        self.heard: list[Output] = []
        self._script: list[Input | Output] = []

    @abstractmethod
    def describe(self) -> str:
        """The state at the end, for a failed assertion."""

    def __rshift__(self: D, step: Input) -> D:
        self._script.append(step)
        return self

    def __lshift__(self: D, step: Output) -> D:
        self._script.append(step)
        return self

    def __bool__(self) -> bool:
        script, self._script = self._script, []
        happened: list[str] = []
        for step in script:
            if isinstance(step, Input):
                happened.append(f">> {step}")
                happened += [f"<< {output}" for output in self.step(step)]
        expected = [f"{'>>' if isinstance(step, Input) else '<<'} {step}" for step in script]
        if happened != expected:
            diff = "\n".join(difflib.ndiff(expected, happened))
            raise AssertionError(
                f"the dialogue went otherwise (- expected, + happened):\n{diff}\n{self.describe()}"
            )
        return True

    def __del__(self) -> None:
        if self._script:
            raise RuntimeError("Unfinished playbook! write: assert (Playbook() >> … << …)")

    def step(self, step: Input) -> list[Output]:
        """Let ``step`` happen; what came out."""
        self.heard = []
        step.act(self)
        return self.heard
