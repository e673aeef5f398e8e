"""Judge the signature of a message once, when it is accepted, and count the verdict.

Messages without a signature are not judged. A verdict is kept with the record
(:class:`~srmp_spark.rows.group.Form`). So the row shows forever the verdict under the keys that
were trusted then.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from srmp_spark.log_once import OncePerKey
from srmp_spark.message import Message
from srmp_spark.queue_manager.metrics import Metrics
from srmp_spark.srmp.codec.mime import Parts
from srmp_spark.srmp.signing.signature import Verdict, Verifier, judge

log = logging.getLogger(__name__)


class Signatures:
    """Checks signatures with the trusted keys. Logs and counts the verdicts."""

    def __init__(self, keys: Mapping[str, Sequence[Verifier]], metrics: Metrics) -> None:
        """Prepare to trust ``keys``, which are grouped by SourceQmGuid in lower case."""
        self._keys = keys
        self._metrics = metrics
        self._told: OncePerKey[tuple[str | None, Verdict]] = OncePerKey(starts_over=True)

    def __repr__(self) -> str:
        return f"<Signatures signers={len(self._keys)}>"

    def checked(self, message: Message, content: bytes, parts: Parts) -> Message:
        """Judge the signature of ``message``; return the message with the verdict.

        ``content`` is the HTTP body from which it was decoded, ``parts`` the places of its parts.
        An invalid or unverified signature is a verdict and no error. Raises
        :class:`RemoteProtocolError` (400) if the signature is malformed or does not fit the
        attachments.
        """
        verdict = judge(content, parts, self._keys.get(message.source_qm or "", ()))
        self._metrics.signatures[verdict] += 1
        self._tell(message, verdict)
        return message._replace(signature=verdict.status)

    def _tell(self, message: Message, verdict: Verdict) -> None:
        """Log the verdict once for each sender, so that no client can fill the log.

        After KEYS_MAX pairs of sender and verdict it may be logged again.
        """
        if not self._told.is_new((message.source_qm, verdict)):
            return
        level = logging.WARNING if verdict.status == "invalid" else logging.INFO
        log.log(
            level,
            "signature.%s source_qm=%s how=%s first=%s",
            verdict.status,
            message.source_qm,
            verdict.how,
            message.id,
        )
