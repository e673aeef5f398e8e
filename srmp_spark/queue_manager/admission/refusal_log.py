"""Log why messages were refused, so that no sender can fill the log."""

from __future__ import annotations

import logging

from srmp_spark.log_once import OncePerKey

NAME_MAX, TEXT_MAX = 200, 500
"""Most characters of a destination, and of a reason, in the log.

Both are cut there, because a sender chooses them.
"""

log = logging.getLogger(__name__)


class RefusalLog:
    """Logs refusals of messages, each kind once.

    The log must explain a refusal, because a 400 makes its sender delete the message, and no other
    place records the reason.
    """

    def __init__(self) -> None:
        self._told: OncePerKey[tuple[str, str, str]] = OncePerKey()

    def tell(
        self,
        status: int,
        reason: str,
        destination: str,
        peer: str,
        sender_name: str | None,
        text: str,
    ) -> None:
        """Log why a message was refused, once for each reason, destination and sender.

        For a 403 it is once for each text. At most KEYS_MAX refusals are logged.
        Later ones are counted in the metrics only.
        """
        key = (
            (reason, text, "")
            if status == 403
            else (reason, destination[:NAME_MAX], sender_name or peer.rpartition(":")[0])
        )
        if not self._told.is_new(key):
            return
        hint = (
            "the sender deletes it; try srmp-spark doctor --url URL --queue QUEUE"
            if status == 400
            else "the sender keeps it"
        )
        log.warning(
            "accept.refused status=%d reason=%s destination=%r peer=%s sender_name=%r "
            'because="%s" hint="%s"',
            status,
            reason,
            destination[:NAME_MAX],
            peer,
            sender_name,
            text[:TEXT_MAX],
            hint,
        )
