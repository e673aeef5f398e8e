"""Explain why ``send --wait`` ended without an acknowledgement, and what to do next.

A state alone (``queued``, ``sent``, ``dead``) would send the user to the logs of two machines. This
module makes one sentence of the state and of the entry of the destination in ``status.outgoing``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from srmp_spark.errors import with_hint
from srmp_spark.names import split_url
from srmp_spark.transports import transport_of

_ANSWER = re.compile(r"(\d{3})(?: ([a-z-]+)(?=;|$))?")
"""Pattern of ``last_error`` after an HTTP answer.

It has the status, and the code of the header ``Srmp-Reason`` if the peer is srmp-spark.
"""

REMEDIES: dict[str, str] = {
    "not-transactional": "that queue is not transactional: send with --delivery "
    "recoverable, or create it with :transactional",
    "transactional-queue": "that queue is transactional: send without --delivery, or with "
    "--delivery transactional",
    "unknown-queue": "there is no queue of that name: create it there, or correct the URL "
    "(/msmq/private$/NAME)",
    "foreign-host": "the receiver does not go by that host name: use another one, or give "
    "it serve --host-name there",
    "not-a-writer": "that queue takes messages only from its writers: a [[writer]] there "
    "lets you in",
    "target": "is the URL right? Its path begins with /msmq/",
}
"""Code of ``Srmp-Reason`` → advice to the sender; ``doctor`` advises the receiver."""
_MAYBE_NOT_MSMQ = frozenset((403, 404, 405))
"""HTTP statuses of a web server that has no MSMQ at this path."""
_REFUSED = (
    "its queue's name, or its kind: a queue that is not transactional takes --delivery recoverable"
)
"""Advice for an answer 400 without a reason, which MSMQ itself sends."""


def unfinished(state: str, outgoing: Mapping[str, Any] | None) -> str:
    """Return one sentence about the messages that ``--wait`` left in ``state``.

    ``outgoing`` is the entry of the messages' destination in ``status``, or ``None`` if ``status``
    no longer has the entry.
    """
    told = outgoing or {}
    error: str | None = told.get("last_error")
    if state == "dead":
        return _dead(error)
    session: Mapping[str, Any] = told.get("wsrm") or {}
    # The error of a lost session says what an operator can do.
    if session.get("state") == "lost" and error is not None:
        return f"not acknowledged: {error}"
    if told.get("state") == "OnHold":
        cause = told.get("damaged") or "the destination is on hold"
        return with_hint(
            cause,
            "srmp-spark streams resume --destination URL sends what waits, streams drop "
            "gives it up",
        )
    if error is not None:
        # The remedies are for peers that speak SRMP.
        rules = transport_of(told.get("destination", "")).rules
        remedy = "" if rules.speaks_soap else _remedy(error)
        return with_hint(
            f"not acknowledged: {error}; it is kept and tried again",
            remedy or "see streams --table",
        )
    if session.get("buffer_remaining") == 0:
        return (
            "not acknowledged in that time: the service has no room (BufferRemaining 0); "
            "what waits is kept, and goes as soon "
            "as there is some: it is asked every --wsrm-poll-interval seconds"
        )
    if state == "queued" or told.get("stream_id") is None:
        return (
            "not acknowledged in that time; it is kept and sent: srmp-spark streams "
            "--table shows how it stands"
        )
    same: Mapping[str, Any] = told.get("same_queue") or {}
    if same.get("receipts_missing"):
        return with_hint(same["text"], same["hint"])
    return _no_receipt(told.get("send_receipts_to"))


def _dead(error: str | None) -> str:
    answer = _ANSWER.match(error or "")
    # Only an answer 400 makes a dead letter. Any other last error is about another message.
    if answer is None or answer[1] != "400":
        hint = (
            "the log of the queue manager (sender.dead) and the table "
            "dead_letter_queue of --state have the reason"
        )
        return with_hint(
            "a dead letter: refused by the peer, expired, or given up by an operator", hint
        )
    return with_hint(
        f"a dead letter: the peer refused it for good ({error})",
        REMEDIES.get(answer[2] or "", _REFUSED),
    )


def _remedy(error: str) -> str:
    """Return advice for an error that may pass, or an empty text if the error explains itself."""
    answer = _ANSWER.match(error)
    if answer is None:
        return ""
    hint = REMEDIES.get(answer[2] or "", "")
    return hint or (REMEDIES["target"] if int(answer[1]) in _MAYBE_NOT_MSMQ else "")


def _no_receipt(send_receipts_to: str | None) -> str:
    """Return the sentence for a missing stream receipt.

    ``send_receipts_to`` is the URL to which the receiver sends receipts. Only the receiver can see
    the cause: it is not allowed to send to this URL, or cannot reach the URL.
    """
    ours = "our --public-url"
    if send_receipts_to:
        url = split_url(send_receipts_to)
        ours = f"{url.scheme}://{url.authority}"
    return (
        "sent, but no stream receipt came back: look at the receiver's status or doctor; "
        f"there --allow-url {ours} may be missing, or it cannot reach that address"
    )
