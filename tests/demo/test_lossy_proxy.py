"""The bad network of the demo: what it says it lost is what was lost, the same for each seed."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.kit.demo.lossy_proxy import LossyProxy, read_message


class Peer:
    """Answers 200 with the body that came, and keeps it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            while request := read_message(file):
                body = request.partition(b"\r\n\r\n")[2]
                self.bodies.append(body)
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
                )


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.listener.close()


def run(peer: Peer, seed: int) -> tuple[list[bool], dict[str, int]]:
    """Whether each of 60 requests was answered, and what the proxy says that it did."""
    answered = []
    with LossyProxy(
        peer.listener.getsockname(), lose_reply=0.2, lose_request=0.1, seed=seed
    ) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
        for number in range(60):
            try:
                connection.request("POST", "/msmq/q", body=b"%d" % number)
                answered.append(connection.getresponse().read() == b"%d" % number)
            except (OSError, http.client.HTTPException):
                connection.close()
                answered.append(False)
        return answered, dict(proxy.faults)


def test_what_it_loses_is_told_and_repeats_with_the_seed(peer: Peer) -> None:
    answered, faults = run(peer, 3)
    assert answered.count(False) == faults["lost reply"] + faults["lost request"]
    assert len(peer.bodies) == 60 - faults["lost request"], (
        "a lost reply belongs to a request that arrived"
    )
    assert faults["lost reply"] > faults["lost request"] > 0
    assert run(peer, 3)[0] == answered
    assert run(peer, 4)[0] != answered
