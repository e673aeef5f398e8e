"""Why a row can never be sent: one table of reasons, and what is said about each refused row.

The checks of rows (:mod:`.row_checks`) report to :class:`Refusals`. The sink's option ``onBadRow``
decides what a refusal means (:mod:`.bad_rows`): it refuses the stage, or it takes the row out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NO_BODY = "no-body"
TOO_LARGE = "too-large"
NO_DESTINATION = "no-destination"
BAD_DESTINATION = "bad-destination"
BAD_LABEL = "bad-label"
BAD_RESPONSE_QUEUE = "bad-response-queue"
BAD_ADMIN_QUEUE = "bad-admin-queue"
BAD_PRIORITY = "bad-priority"
BAD_APP_SPECIFIC = "bad-app-specific"
BAD_BODY_TYPE = "bad-body-type"
BAD_CORRELATION_ID = "bad-correlation-id"
BAD_KEY = "bad-key"
BAD_TIME = "bad-time"
BAD_DELIVERY = "bad-delivery"
NO_MULTICAST = "no-multicast"
NOT_ENCODABLE = "not-encodable"
NOT_FOR_SOAP = "not-for-soap"
BAD_SOAP_ACTION = "bad-soap-action"
BAD_SOAP_BODY = "bad-soap-body"
WOULD_LOOP = "loop"

REASONS: Mapping[str, str] = {
    NO_BODY: "`body` is null; an empty body is `''`",
    TOO_LARGE: "`body` and `extension` have more than 4 MiB; to a multicast address: more than "
    "64 KB as sent",
    NO_DESTINATION: "`destination` is null",
    BAD_DESTINATION: "`destination` is no address that can be sent to, is too long, or names a "
    "queue twice",
    BAD_LABEL: "`label` has more than 249 characters, or a control character",
    BAD_RESPONSE_QUEUE: "`response_queue` is no format name, or is too long",
    BAD_ADMIN_QUEUE: "`admin_queue` is no HTTP address, or is too long",
    BAD_PRIORITY: "`priority` lies outside 0 to 7",
    BAD_APP_SPECIFIC: "`app_specific` has more than 32 bits, or is negative",
    BAD_BODY_TYPE: "`body_type` has more than 32 bits, or is negative",
    BAD_CORRELATION_ID: "`correlation_id` does not have 20 bytes",
    BAD_KEY: "`key` has more than 1,024 bytes",
    BAD_TIME: "`time_to_reach_queue` lies outside 1970 to 9999",
    BAD_DELIVERY: "`delivery` is unknown, or its destination cannot have it",
    NO_MULTICAST: "`destination` is a multicast address, and `serve` runs without `--pgm`",
    NOT_ENCODABLE: "the message cannot be written as SRMP",
    NOT_FOR_SOAP: "a column has a value for which a message to `wsrm:URL` has no place",
    BAD_SOAP_ACTION: "`soap_action` is missing or no URI, or a version is not supported",
    BAD_SOAP_BODY: "`body` is no content of a SOAP Body",
    WOULD_LOOP: "the row would return to the queue that it was read from (`allowLoop`)",
}
"""Each reason for which a row can never be sent, with its meaning for people."""


class RowRefusal(NamedTuple):
    """Why one row can never be sent."""

    reason: str
    """One of :data:`REASONS`."""
    message: str
    """The problem, with the value if it is short."""
    hint: str
    """What to change."""


class Refusals:
    """Collects what the checks refuse in one slice of rows, at most one refusal for each row."""

    def __init__(self, rows: int, on_refused: Callable[[int, RowRefusal], object]) -> None:
        """Begin without refusals. ``rows`` is the number of rows.

        ``on_refused`` is called with the index of each row that is refused, once. It may raise, to
        end the check with the first refusal.
        """
        self.good = np.ones(rows, bool)
        """Mask of the rows that were not refused so far."""
        self._on_refused = on_refused

    def add(self, row: int, reason: str, message: str, hint: str) -> None:
        """Refuse the row at index ``row``, unless it was refused before."""
        if self.good[row]:
            self.good[row] = False
            self._on_refused(row, RowRefusal(reason, message, hint))

    def add_all(
        self, bad: pa.Array, reason: str, what: str, hint: str, shown: pa.Array | None = None
    ) -> None:
        """Refuse each row for which the mask ``bad`` is true; a null means that it is not.

        ``shown`` has a value for each row, which the message states.
        """
        if not pc.any(bad, min_count=0).as_py():
            return
        for row in np.flatnonzero(pc.fill_null(bad, False).to_numpy(zero_copy_only=False)):
            value = "" if shown is None else f", got {shown[row]}"
            self.add(int(row), reason, f"{what}{value}", hint)
