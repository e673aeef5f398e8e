"""Send events of the reader process to the main process, in packets below PACKET_MAX."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

from srmp_spark.queue_manager.reader.crossing import READER_EVENTS, PositionsSynced, ReaderEvent
from srmp_spark.store.delta.tables.events import PublisherFailed, StateEvent, StatePublished

EVENT_QUEUES_MAX = 100
"""Most queues in one packet of an event; further queues are sent in more packets.

Even names of 127 characters, each written by JSON as six bytes, stay below PACKET_MAX.
"""
EVENT_TEXT_MAX = 8_192
"""Most characters of an error in an event. A longer error is cut."""

log = logging.getLogger(__name__)


class Events:
    """Sends events of the reader process to the main process, in packets below PACKET_MAX.

    A report of the publisher is sent as its changes since the last report. The last packet of a
    report is the event itself. The packets before it are :class:`.PositionsSynced`.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._reported: dict[tuple[str, str], int] = {}

    def tell(self, event: StateEvent) -> None:
        """Send an event to the main process. Any thread may call this; it raises no error.

        A packet that is too large is logged. Other errors are ignored, because then the main
        process has ended.
        """
        with self._lock:
            try:
                for each in self._parts(event):
                    self._control.send(READER_EVENTS.encode(each))
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    name = READER_EVENTS.name_of(event)
                    log.error("reader.event_too_large event=%s", name)  # noqa: TRY400  # nothing to trace

    def _parts(self, event: StateEvent) -> Iterator[ReaderEvent]:
        if isinstance(event, PublisherFailed):
            event = replace(event, error=event.error[:EVENT_TEXT_MAX])
        elif isinstance(event, StatePublished):
            last = {
                (epoch, queue): sequence
                for epoch, found in event.sequences.items()
                for queue, sequence in found.items()
            }
            changed = [
                (key, sequence)
                for key, sequence in last.items()
                if self._reported.get(key) != sequence
            ]
            while len(changed) > EVENT_QUEUES_MAX:
                part, changed = changed[:EVENT_QUEUES_MAX], changed[EVENT_QUEUES_MAX:]
                yield PositionsSynced(_by_epoch(part))
            # Damage was sent in events of its own.
            event = replace(event, sequences=_by_epoch(changed), damaged={})
            self._reported = last
        yield event


def _by_epoch(sequences: list[tuple[tuple[str, str], int]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (epoch, queue), sequence in sequences:
        found.setdefault(epoch, {})[queue] = sequence
    return found
