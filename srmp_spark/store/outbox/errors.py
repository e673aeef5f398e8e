"""Errors of a stage or batch that the caller caused, with status and code of the API's answer."""

from __future__ import annotations

from srmp_spark.errors import SrmpSparkError, with_hint

BAD_STAGE = "bad-stage"
"""Code for 400: the file, a column or a row cannot become a message."""
BAD_BATCH = "bad-batch"
"""Code for 400: the stages do not make one batch."""
UNKNOWN_STAGE = "unknown-stage"
"""Code for 404: a stage does not exist, and the batch was not committed with it."""
NEEDS_KEY = "needs-key"
"""Code for 400: two rows of one batch have the same source position and the same content."""
NO_ROOM = "no-room"
"""Code for 503: the disk would become full."""
LOOP = "loop"
"""Code for 400: a row would return to the queue that it was read from."""
KEY_CONFLICT = "key-conflict"
"""Code for 409: the key was used before with other content."""
POSITION_CONFLICT = "position-conflict"
"""Code for 409: the source position was used before with other content."""

NO_DEAD_LETTER_QUEUE = "no-dead-letter-queue"
"""Code for 409: a bad row is to become a letter in a queue that cannot have it."""

FAIL, IGNORE, DEAD_LETTER = ON_CONFLICT = ("fail", "ignore", "dead-letter")
"""Fates of a row whose key or source position belongs to other content.

``fail`` refuses the batch of the row, ``ignore`` does not send the row, and ``dead-letter`` makes
the row a dead letter.
"""

SKIP = "skip"
ON_BAD_ROW = (FAIL, DEAD_LETTER, SKIP)
"""Fates of a row that can never be sent (:mod:`.staging.refusals`).

``fail`` refuses the stage of the row, ``dead-letter`` puts a letter about the row into the queue
for dead letters, and ``skip`` only counts the row.
"""
BAD_ROW = "bad-row"
"""Reason of the dead letter about a row that can never be sent. The letter has the details."""


class BatchError(SrmpSparkError):
    """A stage or a commit was refused, because of what the caller gave or for lack of room.

    None of its rows became outgoing. ``status`` is the HTTP status and ``code`` the code of the
    API's answer. ``message`` states the problem and ``hint`` what to do next.
    """

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(with_hint(message, hint))
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint


class RowRefusedError(BatchError):
    """A row of a stage can never become a message, so the stage is refused (400)."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(400, BAD_STAGE, message, hint)
