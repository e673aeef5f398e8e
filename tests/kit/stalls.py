"""Measure how long this machine keeps a ready process waiting, while a test judges times.

A test that says "a healthy sender waits at most 250 ms" means srmp-spark, not the machine. On a
machine with sixteen ready processes for two cores any process waits that long now and then. So a
second process sleeps for a moment again and again, and records how late it wakes up. Nothing in
srmp-spark can be the reason. A test adds a multiple of the recorded time to its limit.
"""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType

NAP_S = 0.005
"""Length of one sleep of the recording process, in seconds."""
SHARE = 3.0
"""Factor by which the recorded time is multiplied for a test's limit.

Sender, queue manager and its reader must each be run once until an answer is there.
"""
_RECORD = f"""
import select, sys, time
worst = 0.0
while not select.select([sys.stdin], [], [], 0)[0]:
    begun = time.monotonic()
    time.sleep({NAP_S})
    worst = max(worst, time.monotonic() - begun - {NAP_S})
print(worst)
"""


class MachineStalls:
    """Records in a ``with`` block. :attr:`allowance` is known after the block."""

    def __init__(self) -> None:
        self.worst = 0.0
        """Longest wait of a ready process, in seconds."""

    def __enter__(self) -> MachineStalls:
        self._process = subprocess.Popen(  # noqa: S603  # our own interpreter
            [sys.executable, "-c", _RECORD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        out, _ = self._process.communicate("end")
        self.worst = float(out)

    @property
    def allowance(self) -> float:
        """Return the seconds that a test adds to its limit: SHARE times the longest wait."""
        return SHARE * self.worst
