"""Build the source of a saved reliable sequence, and the envelopes of its messages."""

from __future__ import annotations

import time
import uuid

from srmp_spark.queue_manager.sender.reliable.reliable_limits import settings_of
from srmp_spark.srmp.sending.outgoing_effects import Send
from srmp_spark.store.outbox.tables.sessions import SessionRow
from srmp_spark.wsrm.codec.elements import Range, SoapMessage
from srmp_spark.wsrm.codec.versions import Versions
from srmp_spark.wsrm.sending.source import RmSource, SourceRow
from srmp_spark.wsrm.sending.source_effects import Transmit
from srmp_spark.wsrm.sending.source_states import RmSourceState


def restored_source(
    row: SessionRow, in_flight: tuple[Range, ...], url: str, poll_interval: float
) -> RmSource:
    """Build the source of a saved sequence; ``row`` has a ``create_id``.

    ``in_flight`` are the numbers of all messages that may have been sent, as runs (first, last
    included). ``poll_interval`` is in seconds. Raises :class:`ConfigurationError` if the versions
    in ``row`` are unknown.
    """
    now = time.monotonic()
    state = RmSourceState.OPEN if row.identifier else RmSourceState.CREATING
    source = RmSource.restored(
        settings_of(url, Versions.load(row.versions), poll_interval),
        SourceRow(
            row.create_id,
            row.identifier,
            state,
            row.assigned,
            row.assigned,
            in_flight,
            row.buffer_remaining,
            0,
            False,
        ),
        now,
    )
    if row.ending:
        source.end(now)
    return source


def envelope_of(source: RmSource, transmit: Transmit, send: Send | None) -> SoapMessage:
    """Return the SOAP envelope of the message ``send``, with the same bytes each time.

    ``transmit`` states the number. If ``send`` is ``None``, return the envelope of the LastMessage
    of version 1.0.
    """
    if send is None:
        return source.envelope(transmit, "", b"", f"{source.create_id}/LastMessage")
    message = send.message
    message_id = uuid.uuid5(uuid.UUID(message.lineage), str(message.uniquifier))
    return source.envelope(transmit, message.action, bytes(message.body), f"urn:uuid:{message_id}")
