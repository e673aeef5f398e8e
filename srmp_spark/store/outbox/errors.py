"""What a batch can be told: an error of the caller's, with the status and code that the API answers."""

from __future__ import annotations

from srmp_spark.errors import SrmpSparkError, with_hint

BAD_STAGE = "bad-stage"
"""400: the file, a column or a row cannot become a message."""
BAD_BATCH = "bad-batch"
"""400: the stages do not make one batch."""
UNKNOWN_STAGE = "unknown-stage"
"""404: a stage is not there (any more), and this very commit never was."""
NEEDS_KEY = "needs-key"
"""400: two rows of one batch have one source position, and one content."""
NO_ROOM = "no-room"
"""503: the disk would become full."""
LOOP = "loop"
"""400: a row would return to the queue that it came from."""
KEY_CONFLICT = "key-conflict"
"""409: a key came before with another content."""
POSITION_CONFLICT = "position-conflict"
"""409: a source position came before with another content."""

FAIL, IGNORE, DEAD_LETTER = ON_CONFLICT = ("fail", "ignore", "dead-letter")
"""What becomes of a row whose key or source position belongs to another content: its batch is refused; it is not sent; it
becomes a dead letter."""


class BatchError(SrmpSparkError):
    """A stage or commit that is refused; nothing of it was made outgoing."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(with_hint(message, hint))
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
