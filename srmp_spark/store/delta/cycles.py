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

Notify = Callable[[dict[str, Any]], None]
_log = logging.getLogger(__name__)


class OlderCopyError(StoreDamagedError):
    """The tables hold what the data directory has not given out: it would give the same numbers out again."""


class GivenUpError(OlderCopyError):
    """The queue manager was restored elsewhere: what this data directory accepts nobody reads."""


def run_cycles(
    cycle: Callable[[], None], forget: Callable[[], None], interval_s: float, stop: threading.Event, notify: Notify
) -> None:
    """Call ``cycle`` every ``interval_s`` seconds until ``stop`` is set; then once more, so that a clean end leaves no lag.

    ``forget`` drops all handles after an error of the store or the network. Events as :class:`.publisher.Publisher` says.
    """
    wait = interval_s
    while True:
        last = stop.is_set()
        began = time.monotonic()
        try:
            cycle()
            wait = interval_s
        except OlderCopyError as error:
            notify({"event": "failed", "error": str(error), "fatal": True, "older_copy": True})
            if last or not isinstance(error, GivenUpError):
                return
            stop.wait()  # once more when nothing is accepted any more: the last message names all that is here alone
            continue
        except StoreDamagedError as error:
            _log.error("delta.damaged: %s", error)  # the message says it all, a traceback hides it
            notify({"event": "failed", "error": str(error), "fatal": True})
            return
        except StoreError as error:  # another publisher, rows trimmed meanwhile, a damaged row: look again
            _log.warning("delta.failed: %s", error)
            notify({"event": "failed", "error": str(error), "fatal": False})
        except Exception as error:  # whatever a store or network raises: the rows are safe in the log, try again
            _log.exception("delta.failed: tried again in %.0f s", min(wait * 2, RETRY_WAIT_S_MAX))
            notify({"event": "failed", "error": f"{type(error).__name__}: {error}", "fatal": False})
            forget()
            wait = min(max(wait, 1.0) * 2, RETRY_WAIT_S_MAX)
        if last:
            return
        stop.wait(max(0.0, wait - (time.monotonic() - began)))
