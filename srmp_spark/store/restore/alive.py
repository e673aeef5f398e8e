"""Whether the queue manager that is to be restored lives: the restore's side of :mod:`srmp_spark.store.delta.restore_watch`."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from srmp_spark.errors import ConfigurationError
from srmp_spark.store.delta.restore_watch import LOOK_SECONDS
from srmp_spark.store.delta.state_folder import state_folder
from srmp_spark.store.delta.state_table import StateTable
from srmp_spark.store.directory import NETWORK_FILE_SYSTEMS, file_system_of

ANSWER_SECONDS = 4 * LOOK_SECONDS
"""What a queue manager gets for its answer: four looks at the state. A slow store or a busy machine may miss three of them."""
NETWORK_ANSWER_SECONDS = 150.0
"""The same where the state lies on a network file system: by default NFS shows a file that another machine has made up to 60 s
later, and here there are two, the question and the answer."""
LIVING_SECONDS = 60.0
"""A queue manager of a version that does not answer and wrote to the state so short a time ago may be alive."""
_POLL_SECONDS = 0.25

OnWait = Callable[[float], object]
"""Is called with the seconds that a wait takes at most, before it begins."""


def answer_seconds_of(state_uri: str) -> float:
    """Return how long to wait for an answer."""
    folder = state_folder(state_uri)
    on_network = folder is not None and file_system_of(folder)[0] in NETWORK_FILE_SYSTEMS
    return NETWORK_ANSWER_SECONDS if on_network else ANSWER_SECONDS


def refuse_if_alive(
    inbox: StateTable, guid: str, uri: str, last_heard: str, answer_seconds: float, on_wait: OnWait
) -> None:
    """Ask the queue manager whether it lives, and wait for the answer. The question stays open until the restore ends.

    Raises :class:`ConfigurationError` when it answers, or publishes rows meanwhile. No clock of another machine counts.
    """
    appends, asked, began = inbox.appends, inbox.ask(), time.monotonic()
    on_wait(answer_seconds)
    while True:
        inbox.refresh()
        waited = time.monotonic() - began
        if inbox.answered >= asked or inbox.appends != appends:
            raise ConfigurationError(
                f"queue manager {guid} is alive: it answered {waited:.0f} s after it was "
                f"asked through {uri}, and wrote to it "
                f"last at {last_heard}. Two must not go on: what one of them accepts "
                "nobody would read. Stop it (a clean stop "
                "publishes all that it has), then restore. If nobody can reach it add "
                "--force: it ends when it looks at the "
                f"state again, within {LOOK_SECONDS:.0f} s, and what it accepts until then is lost"
            )
        if waited >= answer_seconds:
            return
        time.sleep(min(_POLL_SECONDS, answer_seconds - waited))


def refuse_if_written_lately(guid: str, uri: str, as_of: datetime | None, now: datetime) -> None:
    """Raise :class:`ConfigurationError` if a queue manager that does not answer wrote a moment ago, by its own clock.

    A time that lies ahead of ours says that a clock is wrong, and nothing else: it refuses nobody.
    """
    if as_of is not None and timedelta() <= (age := now - as_of) < timedelta(
        seconds=LIVING_SECONDS
    ):
        raise ConfigurationError(
            f"queue manager {guid} wrote to {uri} {age.total_seconds():.0f} s ago: it may "
            "be alive, and two must not go "
            f"on. Stop it and wait {LIVING_SECONDS:.0f} s, or, if its disk is lost for "
            "certain, add --force"
        )
