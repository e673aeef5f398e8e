"""Send events of the reader process to the main process, in packets below PACKET_MAX."""

from __future__ import annotations

import errno
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

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
    report is the event itself. The packets before it are ``{"event": "synced", "sequences"}``.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._told: dict[tuple[str, str], int] = {}

    def tell(self, event: dict[str, Any]) -> None:
        """Send an event to the main process. Any thread may call this; it raises no error.

        A packet that is too large is logged. Other errors are ignored, because then the main
        process has ended.
        """
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
            # Damage was sent in events of its own.
            event = {key: value for key, value in event.items() if key != "damaged"}
            event["sequences"] = _by_epoch(changed)
            self._told = last
        yield json.dumps(event).encode()


def _by_epoch(sequences: list[tuple[tuple[str, str], int]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (epoch, queue), sequence in sequences:
        found.setdefault(epoch, {})[queue] = sequence
    return found
