"""Write each record of the log as one line of text, whatever text a client has put into it."""

from __future__ import annotations

import logging
import time

TEXT_FORM = "%(asctime)s %(levelname)s %(message)s"
_CONTROLS = {
    number: f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
    for number in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}
"""Escapes for characters that end a line or move a terminal's cursor.

Without them the URL of a message could write log lines of its own.
"""


class OneLineFormatter(logging.Formatter):
    """Writes the control characters of a log message as escapes. Times are UTC.

    A traceback has lines of its own, after the message.
    """

    def __init__(self, form: str = TEXT_FORM) -> None:
        super().__init__(form)
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """Return the log line of ``record``, with control characters as escapes."""
        return super().formatMessage(record).translate(_CONTROLS)
