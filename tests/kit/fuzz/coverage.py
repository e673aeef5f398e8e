"""Finds the steps from line to line that an input makes the parser take.

New steps lead the long run to new code. The module uses ``sys.settrace`` on the few files of one
target. A parser that consists mostly of regular expressions has few lines, so tracing costs a third
of the speed and needs no compiler. A regular expression is one line whatever it matches, so its
inner branches are not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.kit.fuzz.judge import Outcome

Step = tuple[str, int, int]
"""A step from one executed line to the next: file, line before, line."""


class Coverage:
    """Collects the steps that are executed in ``files``. :data:`Step` explains a step."""

    def __init__(self, files: frozenset[str]) -> None:
        self._files = files
        self.seen: set[Step] = set()
        self._now: set[Step] = set()

    def watch(self, function: Callable[[], Outcome]) -> Outcome:
        """Call ``function``, record its steps, and return its result."""
        self._now = set()
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            return function()
        finally:
            sys.settrace(before)

    def is_new(self) -> bool:
        """Return whether the last run took a step that no run before took.

        The steps of the last run count as seen afterwards.
        """
        new = self._now - self.seen
        self.seen |= new
        return bool(new)

    # ``Any`` is in the signature that settrace demands.
    def _called(self, frame: FrameType, event: str, _argument: Any) -> Any:  # noqa: ANN401
        file = frame.f_code.co_filename
        if file not in self._files:
            return None
        steps, last = self._now, -frame.f_lineno

        def stepped(frame: FrameType, event: str, _argument: Any) -> Any:  # noqa: ANN401
            nonlocal last
            if event == "line":
                steps.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return stepped

        return stepped
