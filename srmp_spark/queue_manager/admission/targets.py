"""Judge the target of a request to an HTTP port: can it be a queue of this port?"""

from __future__ import annotations

import re
from functools import lru_cache

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.srmp.codec.http_head import check_target

TARGETS_REMEMBERED = 1_024
"""Request targets whose check is cached. A sender uses one for each of its queues."""

_WSRM = re.compile(rb"(?:https?://[^/]*)?/wsrm(?=[/\\])", re.IGNORECASE)


@lru_cache(TARGETS_REMEMBERED)
def queue_of_srmp(target: bytes) -> str:
    """Return the canonical name of the queue in a target of the SRMP port: ``/msmq/QUEUE``.

    Whether the queue exists is not checked. Raises :class:`RemoteProtocolError` for a target that
    cannot be a queue: 400, or 404 for a target of WS-ReliableMessaging, which
    earlier releases served on this port.
    """
    if _WSRM.match(target):
        message = "WS-ReliableMessaging has a port of its own: serve --listen-wsrm"
        raise RemoteProtocolError(message, status_hint=404, section="docs/INTERFACE.md section 2")
    return check_target(target)


@lru_cache(TARGETS_REMEMBERED)
def queue_of_wsrm(target: bytes) -> str:
    """Return the canonical name of the queue in the request target ``/wsrm/QUEUE``.

    Whether the queue exists is not checked. Raises :class:`RemoteProtocolError`: 404 for any other
    path, and the refusals of ``/msmq/QUEUE`` for a name that no queue can have.
    """
    match = _WSRM.match(target)
    if match is None:
        raise RemoteProtocolError(
            "this port serves only /wsrm/QUEUE", status_hint=404, section="WS-ReliableMessaging"
        )
    return check_target(b"/msmq" + target[match.end() :])
