"""Finds out which hosts a queue manager contacts because a message names them (test T19).

    python -m tests.kit.fuzz.ssrf DIRECTORY            # prints one JSON line
    python -m tests.kit.fuzz.ssrf DIRECTORY PATTERN…   # also allows the URLs of each PATTERN

A real ``serve`` runs in a network where every address answers (:mod:`.any_address`). A sender
requests receipts to each of a hundred URLs, in each of the three *places* of a message: delivery
receipt, commitment receipt and stream receipt. The kernel counts the connections that are begun,
whatever host answers.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from srmp_spark.testing.foreign.messages import ForeignMessage, ForeignStream, post
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.fuzz.any_address import (
    Called,
    Everywhere,
    NameServer,
    connections_begun,
    enter,
)
from tests.kit.fuzz.url_shapes import (
    ALLOWED,
    ALLOWED_PATTERN,
    FORBIDDEN,
    MAY_BE_CALLED,
    NAMES,
    PORT,
    QUEUE_MANAGER,
    SENDER,
)

PORTS = (80, 443, PORT, 1, 9, 22, 25, 135, 445, 1801, 3389, 6379, 65_535)
"""Ports on which each connection is recorded with its address.

Connections to all other ports are only counted.
"""
PLACES = ("delivery", "commitment", "stream")
SETTLE_SECONDS = 4.0
"""Seconds in which all receipts of the URLs are sent.

The time covers two attempts of each receipt with the resend table below, and the half second before
a stream receipt.
"""
FLOOD = 500
"""Number of messages whose receipts go to one host.

They are sent in less time than the receipts need at the rate limit.
"""
FLOOD_SECONDS = 4.0


class Found(TypedDict):
    """The results of an attack."""

    begun: int
    """Connections that were begun in this network."""
    ours: int
    """Connections among ``begun`` that the sender of the test made."""
    seen: int
    """Connections among ``begun`` that a listener accepted."""
    outside: list[str]
    """Connections to addresses that no rule allows."""
    places: dict[str, int]
    """Place of the URL → number of accepted messages."""
    called: dict[str, int]
    """Address and request line → number of connections."""
    rebound: int
    """Number of look-ups of the name whose address changes after the first look-up."""
    per_message: int
    """Most receipts that one message of the flood caused."""
    flood: int
    """Receipts of the flood that arrived within :data:`FLOOD_SECONDS`."""


class _Sender:
    """One connection of a sender that has an address of its own.

    ``taken`` counts the accepted messages by place.
    """

    def __init__(self, endpoint: tuple[str, int]) -> None:
        self._connection = socket.create_connection(
            endpoint, timeout=10, source_address=(SENDER, 0)
        )
        self._number = 0
        self.taken: Counter[str] = Counter()

    def send(self, place: str, url: str) -> None:
        """Send a message that names ``url`` in ``place``, and count the message if it is accepted.

        A refusal is allowed, because then no host is contacted. Raises
        :class:`ConnectionResetError` if the connection ends without an answer.
        """
        self._number += 1
        lineage = f"0a0b0c0d-1111-2222-3333-{self._number:012x}"
        to = f"http://{QUEUE_MANAGER}/msmq/private$/{'streams' if place == 'stream' else 'orders'}"
        message = ForeignMessage(
            to=to,
            lineage=lineage,
            uniquifier=self._number,
            sent_at=int(time.time()),
            durable=True,
            delivery_receipt_to=url if place == "delivery" else None,
            commitment_receipt_to=url if place == "commitment" else None,
            positive_only=place == "commitment",
            stream=ForeignStream(guid=lineage, ordinal=1, current=1, previous=0, receipts_to=url)
            if place == "stream"
            else None,
        )
        self._connection.sendall(post(message).raw)
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = self._connection.recv(65_536)
            if not data:
                raise ConnectionResetError(f"no answer to {url!r} in {place}")
            answer += data
        if answer.startswith(b"HTTP/1.1 200 "):
            self.taken[place] += 1


def attack(directory: Path, more_allowed: Sequence[str] = ()) -> Found:
    """Run the whole attack in a network of its own and return the results.

    ``directory`` is for the data of ``serve``. With ``more_allowed`` patterns the attack checks
    that the test can fail; then the flood is left out. The process stays in the network. Raises
    :class:`OSError` if the system allows no such network.
    """
    enter()
    names, everywhere = NameServer(NAMES), Everywhere(PORTS)
    queues = ["private$/orders", "private$/streams:transactional"]
    with RunningQueueManager(
        directory / "data",
        queues=queues,
        allow_url=[ALLOWED_PATTERN, *more_allowed],
        listen=f"{QUEUE_MANAGER}:0",
        resend_table="1,1,1",
    ) as manager:
        sender = _Sender(manager.endpoint)
        before = connections_begun() - 1
        for url in (*FORBIDDEN, *ALLOWED):
            for place in PLACES:
                sender.send(place, url)
        time.sleep(SETTLE_SECONDS if not more_allowed else SETTLE_SECONDS / 2)
        shapes = list(everywhere.calls)
        places = dict(sender.taken)
        began = time.monotonic()
        if not more_allowed:
            for _ in range(FLOOD):
                sender.send("delivery", f"http://{SENDER}:{PORT}/msmq/flood")
            time.sleep(max(0.0, began + FLOOD_SECONDS - time.monotonic()))
        begun = connections_begun() - before
        calls = list(everywhere.calls)
    flood = [call for call in calls if b"/msmq/flood" in call.request]
    return {
        "begun": begun,
        "ours": 1,
        "seen": len(calls),
        "outside": sorted(
            {
                f"{c.address}:{c.port} {_target(c)}"
                for c in calls
                if (c.address, c.port) not in MAY_BE_CALLED
            }
        ),
        "places": places,
        "called": dict(Counter(f"{call.address} {_target(call)}" for call in shapes)),
        "rebound": names.asked["own-then-private.test"],
        "per_message": max(Counter(_receipt_for(call) for call in flood).values(), default=0),
        "flood": len(flood),
    }


def _target(call: Called) -> str:
    return call.request.partition(b"\r\n")[0].decode("latin-1")[:100]


def _receipt_for(call: Called) -> bytes:
    match = re.search(rb"<deliveryReceipt>.*<id>(.*?)</id>", call.request, re.DOTALL)
    return match[1] if match is not None else call.request


if __name__ == "__main__":
    sys.stdout.write(json.dumps(attack(Path(sys.argv[1]), sys.argv[2:])) + "\n")
