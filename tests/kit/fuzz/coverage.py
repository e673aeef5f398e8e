"""Which steps from line to line an input takes: what leads the long run to inputs that reach new code.

``sys.settrace`` on the few files of one target: a parser that is mostly regular expressions has few lines, so this costs a
third of the speed and needs no compiler. A regular expression is one line, whatever it does: that part stays blind.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.kit.fuzz.judge import Outcome

Step = tuple[str, int, int]
"""File, line before, line."""


class Coverage:
    """The steps seen so far in ``files``."""

    def __init__(self, files: frozenset[str]) -> None:
        self._files = files
        self.seen: set[Step] = set()
        self._now: set[Step] = set()

    def watch(self, function: Callable[[], Outcome]) -> Outcome:
        """Run ``function`` and note its steps."""
        self._now = set()
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            return function()
        finally:
            sys.settrace(before)

    def is_new(self) -> bool:
        """Whether the last run took a step that none took before; they count as seen from now on."""
        new = self._now - self.seen
        self.seen |= new
        return bool(new)

    def _called(self, frame: FrameType, event: str, _argument: Any) -> Any:  # noqa: ANN401  # the signature of settrace
        file = frame.f_code.co_filename
        if file not in self._files:
            return None
        steps, last = self._now, -frame.f_lineno

        def stepped(frame: FrameType, event: str, _argument: Any) -> Any:  # noqa: ANN401  # the signature of settrace
            nonlocal last
            if event == "line":
                steps.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return stepped

        return stepped
