"""Check, before rows are read, that the queue for letters about bad rows exists.

The check matters with ``onBadRow=dead-letter`` alone: the first bad row may come months after the
start, and would then end the query. Without that option a missing ``deadLetterQueue`` is a warning,
because dead letters are kept elsewhere too.
"""

from __future__ import annotations

import shlex
from typing import Any

from srmp_spark.errors import ConfigurationError
from srmp_spark.spark.settings.sink_options import SinkOptions


def check_letter_queue(options: SinkOptions, *, retry_seconds: float = 60.0) -> None:
    """Raise :class:`ConfigurationError` if letters about bad rows would have no queue.

    The queue manager is asked for the queue; nothing is asked without ``onBadRow=dead-letter``.
    ``retry_seconds`` is the longest time to wait for the queue manager. Raises :class:`ApiError`
    and :class:`ApiUnreachableError`.
    """
    queue = options.dead_letter_queue
    if options.on_bad_row != "dead-letter" or queue is None:
        return
    from srmp_spark.client.api import QueueManagerClient

    client = QueueManagerClient(
        options.queue_manager,
        options.token,
        retry_seconds=retry_seconds,
        allow_plain_token=options.allow_plain_token,
    )
    found: list[dict[str, Any]] = client.status(queues=queue)["queues"]
    entry = next((each for each in found if each["name"] == queue), None)
    if entry is not None and entry["transactional"]:
        return
    if entry is None:
        problem = "has no such queue, or the token is not for it"
        remedy = f"To make it: srmp-spark queue create {shlex.quote(queue)} --transactional"
    else:
        # The kind of a queue is fixed: `serve --queue` and `queue create` refuse to change it.
        problem = "has it as a queue that is not transactional"
        remedy = "Name another queue, or make one: srmp-spark queue create NAME --transactional"
    raise ConfigurationError(
        f"option deadLetterQueue: {queue} cannot take the letters of onBadRow=dead-letter, because "
        f"the queue manager at {options.queue_manager} {problem}. {remedy}"
    )
