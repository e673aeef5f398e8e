"""Find out whether the queue manager that is to be restored is alive.

The module is the restore's side of :mod:`srmp_spark.store.delta.restore_watch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from srmp_spark.errors import ConfigurationError
from srmp_spark.store.delta.restore_watch import LOOK_SECONDS
from srmp_spark.store.delta.tables.state_folder import state_folder
from srmp_spark.store.delta.tables.state_table import StateTable
from srmp_spark.store.directory import NETWORK_FILE_SYSTEMS, file_system_of

ANSWER_SECONDS = 4 * LOOK_SECONDS
"""Seconds that a queue manager has for its answer: four times :data:`.LOOK_SECONDS`.

A slow store or a busy machine may miss three looks at the table. Without an answer in this time the
restore goes on.
"""
NETWORK_ANSWER_SECONDS = 150.0
"""Seconds that a queue manager has for its answer through a network file system.

By default NFS shows a new file of another machine up to 60 s later, and a question needs two files:
the question and the answer.
"""
LIVING_SECONDS = 60.0
"""Seconds since the last write within which a queue manager counts as perhaps alive.

The limit is for a queue manager whose version does not answer questions.
"""
_POLL_SECONDS = 0.25

OnWait = Callable[[float], object]
"""Function that is called before a wait begins, with the longest wait in seconds."""


def answer_seconds_of(state_uri: str) -> float:
    """Return how many seconds a restore waits for an answer through ``state_uri``.

    The result is NETWORK_ANSWER_SECONDS on a network file system, else ANSWER_SECONDS. Raises
    :class:`ConfigurationError` if Delta cannot use the folder.
    """
    folder = state_folder(state_uri)
    on_network = folder is not None and file_system_of(folder)[0] in NETWORK_FILE_SYSTEMS
    return NETWORK_ANSWER_SECONDS if on_network else ANSWER_SECONDS


def refuse_if_alive(
    inbox: StateTable, guid: str, uri: str, last_heard: str, answer_seconds: float, on_wait: OnWait
) -> None:
    """Ask queue manager ``guid`` whether it is alive, and wait ``answer_seconds`` for an answer.

    The question is a commit to ``inbox``. ``on_wait`` is called once, before the wait. Without an
    answer the function returns, and the question stays open until the restore ends. ``last_heard``
    is for the text of the error. Raises :class:`ConfigurationError` if the queue manager answers,
    or publishes rows meanwhile, and the errors of the table. Clocks of other machines are not used.
    """
    appends, asked, began = inbox.appends, inbox.ask(), time.monotonic()
    on_wait(answer_seconds)
    while True:
        inbox.refresh()
        waited = time.monotonic() - began
        if inbox.answered >= asked or inbox.appends != appends:
            raise ConfigurationError(
                f"queue manager {guid} is alive: it answered {waited:.0f} s after it was "
                f"asked through {uri}, and last wrote there at {last_heard}. Two must not "
                "run: messages that one of them accepts would never be read. Stop it (a "
                "clean stop publishes all that it has), then restore. If it cannot be "
                "reached, add --force: it ends when it looks at the state again, within "
                f"{LOOK_SECONDS:.0f} s, and messages that it accepts until then are lost"
            )
        if waited >= answer_seconds:
            return
        time.sleep(min(_POLL_SECONDS, answer_seconds - waited))


def refuse_if_written_lately(guid: str, uri: str, as_of: datetime | None, now: datetime) -> None:
    """Raise :class:`ConfigurationError` if ``as_of`` is less than LIVING_SECONDS before ``now``.

    ``as_of`` is the time of the last commit by the clock of the queue manager, or ``None`` if it is
    unknown. The function is for a queue manager whose version does not answer. A time in the future
    only shows that a clock is wrong, so it does not count.
    """
    if as_of is not None and timedelta() <= (age := now - as_of) < timedelta(
        seconds=LIVING_SECONDS
    ):
        raise ConfigurationError(
            f"queue manager {guid} wrote to {uri} {age.total_seconds():.0f} s ago: it may be "
            f"alive, and two must not run. Stop it and wait {LIVING_SECONDS:.0f} s, or, if "
            "its disk is certainly lost, add --force"
        )
