"""A publisher's cycles, at most one interval apart, until it is told to stop; and what a failed one means.

A store that is away stops nothing: the cycle is tried again after a growing wait, and the lag grows. Damage that another
cycle cannot mend ends the publisher, never the queue manager; only an older copy of the data directory must not go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from srmp_spark.errors import StoreDamagedError, StoreError

RETRY_WAIT_S_MAX = 60.0
"""Longest wait after a failed cycle; the first one is the interval, each further one twice the last."""

ENDED_REMEDY = (
    "repair what the reason says, then start the queue manager again: until "
    "then its publisher rests, and rows stay in the log"
)
"""What to do about a failure that another cycle cannot mend."""
AWAY_REMEDY = (
    "look at the store of --state: its address, credentials, rights and room; nothing "
    "need be started again, and rows stay in "
    "the log"
)
"""What to do about a failure of the store or the network."""
AGAIN_REMEDY = "it is tried again by itself; if it stays so, look in the log for what came before"
"""What to do about what another cycle may mend: another publisher, a damaged row, no room."""

Notify = Callable[[dict[str, Any]], None]
_log = logging.getLogger(__name__)


class TableGoneError(StoreError):
    """A table was deleted under the publisher: it is opened, and that is made, anew."""


class OlderCopyError(StoreDamagedError):
    """The tables hold what the data directory has not given out: it would give the same numbers out again."""


class GivenUpError(OlderCopyError):
    """The queue manager was restored elsewhere: what this data directory accepts nobody reads."""


def run_cycles(
    of: str,
    cycle: Callable[[], bool],
    forget: Callable[[], None],
    interval_s: float,
    stop: threading.Event,
    notify: Notify,
) -> None:
    """Call ``cycle`` every ``interval_s`` seconds until ``stop`` is set; then once more, so that a clean end leaves no lag.

    ``cycle`` returns whether all is published. ``forget`` drops all handles after an error of the store or the network. ``of``
    names the publisher in its events, which are as :class:`.publisher.Publisher` says.
    """

    def fail(error: str, remedy: str, **more: Any) -> None:  # noqa: ANN401  # values of JSON
        notify(
            {"event": "failed", "of": of, "error": error, "remedy": remedy, "fatal": False} | more
        )

    wait = interval_s
    failing = True  # of the process before this one nobody here knows
    while True:
        last = stop.is_set()
        began = time.monotonic()
        failed_before, failing = failing, True
        try:
            failing = not cycle()
            wait = interval_s
            if failed_before and not failing:
                notify({"event": "recovered", "of": of})
        except OlderCopyError as error:
            fail(str(error), ENDED_REMEDY, fatal=True, older_copy=True)
            if last or not isinstance(error, GivenUpError):
                return
            stop.wait()  # once more when nothing is accepted any more: the last message names all that is here alone
            continue
        except StoreDamagedError as error:
            _log.error("delta.damaged: %s", error)  # the message says it all, a traceback hides it
            fail(str(error), ENDED_REMEDY, fatal=True)
            return
        except (
            StoreError
        ) as error:  # another publisher, rows trimmed meanwhile, a damaged row: look again
            _log.warning("delta.failed: %s", error)
            fail(str(error), AGAIN_REMEDY)
            if isinstance(error, TableGoneError):
                forget()
        except (
            Exception
        ) as error:  # whatever a store or network raises: the rows are safe in the log, try again
            _log.exception("delta.failed: tried again in %.0f s", min(wait * 2, RETRY_WAIT_S_MAX))
            fail(f"{type(error).__name__}: {error}", AWAY_REMEDY)
            forget()
            wait = min(max(wait, 1.0) * 2, RETRY_WAIT_S_MAX)
        if last:
            return
        stop.wait(max(0.0, wait - (time.monotonic() - began)))
