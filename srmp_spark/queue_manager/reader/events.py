"""What the reader process tells the main process unasked, in packets below PACKET_MAX."""

from __future__ import annotations

import errno
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

EVENT_QUEUES_MAX = 100
"""Queues in one packet of an event: even names of 127 characters that JSON writes as six each stay below PACKET_MAX."""
EVENT_TEXT_MAX = 8_192
"""Characters of an error in an event."""

log = logging.getLogger(__name__)


class Events:
    """What the reader tells the main process unasked, in packets below PACKET_MAX.

    Of a report of the publisher only what changed since the last one goes out; its last packet is the event itself, those
    before it are ``{"event": "synced", "sequences"}``.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._told: dict[tuple[str, str], int] = {}

    def tell(self, event: dict[str, Any]) -> None:
        """Send an event. A packet that does not fit is logged; a main process that is gone is not worth a word."""
        with self._lock:
            try:
                for packet in self._packets(event):
                    self._control.send(packet)
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    log.error("reader.event_too_large event=%s", event["event"])  # noqa: TRY400  # nothing to trace

    def _packets(self, event: dict[str, Any]) -> Iterator[bytes]:
        if "error" in event:
            event = {**event, "error": event["error"][:EVENT_TEXT_MAX]}
        if event["event"] == "published":
            last = {
                (epoch, queue): sequence
                for epoch, found in event["sequences"].items()
                for queue, sequence in found.items()
            }
            changed = [
                (key, sequence) for key, sequence in last.items() if self._told.get(key) != sequence
            ]
            while len(changed) > EVENT_QUEUES_MAX:
                part, changed = changed[:EVENT_QUEUES_MAX], changed[EVENT_QUEUES_MAX:]
                yield json.dumps({"event": "synced", "sequences": _by_epoch(part)}).encode()
            event = {
                key: value for key, value in event.items() if key != "damaged"
            }  # told as events of their own
            event["sequences"] = _by_epoch(changed)
            self._told = last
        yield json.dumps(event).encode()


def _by_epoch(sequences: list[tuple[tuple[str, str], int]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (epoch, queue), sequence in sequences:
        found.setdefault(epoch, {})[queue] = sequence
    return found
