"""The signature of a message on its way in: judged once, when it is accepted, and counted.

Messages without a signature do not come here. A verdict is kept with the record (:class:`~srmp_spark.rows.group.Form`), so that
the row says for ever what was found with the keys that were trusted then.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from srmp_spark.message import Message
from srmp_spark.queue_manager.metrics import Metrics
from srmp_spark.srmp.mime import Parts
from srmp_spark.srmp.signature import Verdict, Verifier, judge

TOLD_MAX = 1_000
"""Senders and verdicts that the log has a line of; the line comes again when this many others were new."""

log = logging.getLogger(__name__)


class Signatures:
    """The keys that are trusted, and what was found with them."""

    def __init__(self, keys: Mapping[str, Sequence[Verifier]], metrics: Metrics) -> None:
        """``keys``: of each SourceQmGuid, in lower case."""
        self._keys = keys
        self._metrics = metrics
        self._told: set[tuple[str | None, Verdict]] = set()

    def __repr__(self) -> str:
        return f"<Signatures signers={len(self._keys)}>"

    def checked(self, message: Message, content: bytes, parts: Parts) -> Message:
        """``message`` with the verdict about its signature. ``content`` is the HTTP body that it was decoded from.

        Raises :class:`RemoteProtocolError` (400) when the signature is malformed or does not fit the attachments.
        """
        verdict = judge(content, parts, self._keys.get(message.source_qm or "", ()))
        self._metrics.signatures[verdict] += 1
        self._tell(message, verdict)
        return message._replace(signature=verdict.status)

    def _tell(self, message: Message, verdict: Verdict) -> None:
        """One line for each sender and verdict: a stranger must not fill the log."""
        key = message.source_qm, verdict
        if key in self._told:
            return
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told.add(key)
        level = logging.WARNING if verdict.status == "invalid" else logging.INFO
        log.log(
            level,
            "signature.%s source_qm=%s how=%s first=%s",
            verdict.status,
            message.source_qm,
            verdict.how,
            message.id,
        )
