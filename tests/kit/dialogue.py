"""Tests that read like the specification: ``>>`` is an input, ``<<`` is an expected output.

    assert Playbook() >> post(message) << row("private$/ledger", 1) >> synced() << ok()

is short for

    playbook = Playbook()
    playbook.step(post(message))
    assert playbook.heard == [row("private$/ledger", 1)]
    ...

The outputs that follow an input must be exactly those that the dialogue lists before the next
input. Otherwise the assertion fails with a diff of the two conversations. A dialogue that is never
asserted raises an error when it is garbage-collected. The idea comes from mitmproxy.
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
    """One ``>>`` step of a dialogue: a text and an action."""

    text: str
    act: Callable[[Any], None]
    """Carries out the step on the dialogue, which is the argument."""

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Output:
    """One ``<<`` step of a dialogue; two outputs are equal if their texts are equal."""

    text: str

    def __repr__(self) -> str:
        return self.text


class Dialogue(ABC):
    """The script of a conversation, and the outputs that really happened.

    ``heard`` has the outputs since the last input. An assertion of the object plays the script.
    """

    def __init__(self) -> None:
        self.heard: list[Output] = []
        self._script: list[Input | Output] = []

    @abstractmethod
    def describe(self) -> str:
        """Return the state of the engine, for the message of a failed assertion."""

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
        """Carry out ``step`` and return the outputs that it caused."""
        self.heard = []
        step.act(self)
        return self.heard
