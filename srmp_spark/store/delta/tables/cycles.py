"""Run the cycles of a publisher until it is stopped, and decide what a failed cycle means.

The cycles are at most one interval apart. A store that is unavailable stops nothing: the cycle is
tried again after a growing wait, and the lag grows. Damage that another cycle cannot repair ends
the publisher, never the queue manager. The exception is an older copy of the data directory, which
must not go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from srmp_spark.errors import StoreDamagedError, StoreError
from srmp_spark.store.delta.tables.events import Notify, PublisherFailed, PublisherRecovered

RETRY_WAIT_S_MAX = 60.0
"""Longest wait after a failed cycle, in seconds.

The first wait is twice the interval, and at least 2 s. Each further wait is twice as long as the
last.
"""

ENDED_REMEDY = (
    "repair what the reason states, then start the queue manager again; until then its "
    "publisher is stopped, and rows stay in the log"
)
"""Advice for a failure that another cycle cannot repair."""
AWAY_REMEDY = (
    "check the store of --state: its address, credentials, rights and room; no restart is "
    "needed, and rows stay in the log"
)
"""Advice for a failure of the store or the network."""
AGAIN_REMEDY = "the publisher tries again; if the failure stays, look in the log for earlier errors"
"""Advice for a failure that another cycle may repair: another publisher, a damaged row, no room."""

_log = logging.getLogger(__name__)


class TableGoneError(StoreError):
    """A table was deleted while the publisher ran.

    The next cycle opens the table, and so creates the table again.
    """


class OlderCopyError(StoreDamagedError):
    """The tables hold rows that the data directory has not issued: it is an older copy.

    The data directory would issue the same numbers again.
    """


class GivenUpError(OlderCopyError):
    """The queue manager was restored elsewhere.

    Messages that this data directory accepts would never be read.
    """


def run_cycles(
    of: str,
    cycle: Callable[[], bool],
    forget: Callable[[], None],
    interval_s: float,
    stop: threading.Event,
    notify: Notify,
) -> None:
    """Call ``cycle`` every ``interval_s`` seconds until ``stop`` is set, and then once more.

    The last call is there so that a clean end leaves no lag. ``cycle`` returns whether everything
    is published. Errors of ``cycle`` are notified and not raised. ``of`` names the publisher in its
    events (:mod:`.events`).

    The function returns earlier after a :class:`StoreDamagedError`, with one exception: after a
    :class:`GivenUpError` it waits for ``stop``. After another :class:`StoreError` the next cycle
    follows at its time. After any other error (of the store or the network) the wait doubles, up to
    RETRY_WAIT_S_MAX. ``forget`` drops all handles; it is called after such an error, and after a
    :class:`TableGoneError`.
    """
    wait = interval_s
    # The state of the earlier process is unknown, so a first success counts as a recovery.
    failing = True
    while True:
        last = stop.is_set()
        began = time.monotonic()
        failed_before, failing = failing, True
        try:
            failing = not cycle()
            wait = interval_s
            if failed_before and not failing:
                notify(PublisherRecovered(of))
        except OlderCopyError as error:
            notify(PublisherFailed(of, str(error), ENDED_REMEDY, fatal=True, older_copy=True))
            if last or not isinstance(error, GivenUpError):
                return
            # Run once more when no message is accepted any longer. The last notification then names
            # all rows that exist only here.
            stop.wait()
            continue
        except StoreDamagedError as error:
            # The message is complete; a traceback would hide it.
            _log.error("delta.damaged: %s", error)
            notify(PublisherFailed(of, str(error), ENDED_REMEDY, fatal=True))
            return
        except StoreError as error:
            # Another publisher, trimmed rows or a damaged row: the next cycle looks again.
            _log.warning("delta.failed: %s", error)
            notify(PublisherFailed(of, str(error), AGAIN_REMEDY))
            if isinstance(error, TableGoneError):
                forget()
        except Exception as error:
            # A store or a network may raise anything. The rows are safe in the log, so the cycle is
            # tried again.
            _log.exception("delta.failed: next attempt in %.0f s", min(wait * 2, RETRY_WAIT_S_MAX))
            notify(PublisherFailed(of, f"{type(error).__name__}: {error}", AWAY_REMEDY))
            forget()
            wait = min(max(wait, 1.0) * 2, RETRY_WAIT_S_MAX)
        if last:
            return
        stop.wait(max(0.0, wait - (time.monotonic() - began)))
