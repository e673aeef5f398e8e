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

from srmp_spark.client import remote_queue
from srmp_spark.client.remote_queue import RemoteMachine
from srmp_spark.errors import RemoteLostError
from srmp_spark.mqrr.rpc.client_connection import ClientSettings

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: close sends RST."""
WAIT_S = 20.0


class Relay:
    """Between a reader and the queue manager. Takes so many bytes of answers through; then something happens."""

    def __init__(self, target: tuple[str, int], answer_bytes: int, then: Callable[[socket.socket], object]) -> None:
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


def told(walk: Iterator[object]) -> tuple[list[object], BaseException | None]:
    """What a walk gives and what it ends with, in a thread: one that never ends is seen."""
    found: list[object] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            found.extend(walk)
        except BaseException as raised:
            error.append(raised)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive(), "it waits for ever"
    return found, error[0] if error else None


@pytest.mark.parametrize("then", [reset, end, silence])
@pytest.mark.parametrize("answer_bytes", [2_000, 9_000, 30_000])
def test_a_walk_ends_with_the_loss_of_its_connection(
    served: Served, full: str, monkeypatch: pytest.MonkeyPatch, then: Callable[[socket.socket], object], answer_bytes: int
):
    """Up to 31 more calls wait then: none of them for its own answer."""
    monkeypatch.setattr(remote_queue, "ANSWER_SECONDS", 1.5)
    relay = Relay(served.rpc, answer_bytes, then)
    with contextlib.closing(relay), RemoteMachine.connect("127.0.0.1", relay.port, ClientSettings()) as machine:
        queue = opened(machine, full)
        began = time.monotonic()
        _, error = told(queue.walk())
        assert isinstance(error, RemoteLostError)
        assert time.monotonic() - began < 12.0
        with pytest.raises(RemoteLostError) as again:
            queue.purge()
        assert str(again.value) == str(error), "whoever asks later hears the same"
    assert served.waiting(full) == 200


def test_what_came_before_the_loss_is_told(served: Served, full: str):
    """An answer that was received whole is no victim of what came behind it."""
    with served.machine() as machine:
        queue = opened(machine, full)
        walk = queue.walk()
        first = next(walk)
        machine.interrupt()
        found, error = told(walk)
    assert isinstance(error, RemoteLostError)
    places = [first.sequence_id, *(each.sequence_id for each in found)]
    assert places == list(range(places[0], places[0] + len(places))), "in order, and none missing in between"
