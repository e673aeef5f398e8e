"""What a reader hears when its connection goes in the middle of a walk: once, at once, and no wait for what cannot come."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from remote_kit import Served, opened

from srmp_spark.client.remote_queue import RemoteMachine
from srmp_spark.client.walking import Shown
from srmp_spark.errors import RemoteLostError
from srmp_spark.mqrr.client import remote_reader
from srmp_spark.mqrr.rpc.client_connection import ClientSettings

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: close sends RST."""
WAIT_S = 20.0


class Relay:
    """Between a reader and the queue manager. Takes so many bytes of answers through; then something happens."""

    def __init__(
        self, target: tuple[str, int], answer_bytes: int, then: Callable[[socket.socket], object]
    ) -> None:
        self._target, self._left, self._then = target, answer_bytes, then
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            server = socket.create_connection(self._target)
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            with server:
                while self._left > 0 and (data := server.recv(4096)):
                    client.sendall(data[: self._left])
                    self._left -= len(data)
                self._then(client)

    @staticmethod
    def _forward(client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                server.sendall(data)

    def close(self) -> None:
        self._listener.close()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.shutdown(socket.SHUT_RD)  # wakes the other thread, which holds it open
    client.close()


def end(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_RDWR)


def silence(client: socket.socket) -> None:
    threading.Event().wait(WAIT_S)


@pytest.fixture
def full(served: Served) -> str:
    name = served.queue()
    served.send(name, *[3] * 200)
    return name


def told(walk: Iterator[Shown]) -> tuple[list[int], BaseException | None]:
    """The sequence numbers that a walk gives and what it ends with, in a thread: one that never ends is seen."""
    found: list[int] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            found.extend(each.sequence_id for each in walk)
        except BaseException as raised:
            error.append(raised)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive(), "it waits for ever"
    return found, error[0] if error else None


@pytest.mark.parametrize("then", [reset, end, silence])
@pytest.mark.parametrize(("answer_bytes", "least"), [(2_000, 0), (9_000, 0), (60_000, 17)])
def test_a_walk_ends_with_the_loss_of_its_connection(
    served: Served,
    full: str,
    monkeypatch: pytest.MonkeyPatch,
    then: Callable[[socket.socket], object],
    answer_bytes: int,
    least: int,
):
    """Up to 31 more calls wait then: none of them for its own answer."""
    monkeypatch.setattr(remote_reader, "ANSWER_SECONDS", 1.5)
    relay = Relay(served.rpc, answer_bytes, then)
    with (
        contextlib.closing(relay),
        RemoteMachine.connect("127.0.0.1", relay.port, ClientSettings()) as machine,
    ):
        queue = opened(machine, full)
        began = time.monotonic()
        found, error = told(queue.walk())
        assert isinstance(error, RemoteLostError)
        assert found == list(range(1, len(found) + 1)), "what was told is the head of the queue"
        assert least <= len(found) < 200, (
            "of a round that came whole, what no later one can be before"
        )
        assert time.monotonic() - began < 12.0
        with pytest.raises(RemoteLostError) as again:
            queue.purge()
        assert str(again.value) == str(error), "whoever asks later hears the same"
    assert served.waiting(full) == 200
