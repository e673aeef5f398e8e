"""Shares of places: threads of the reader process that one token's callers cannot hold from others."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from srmp_spark.interface import DENSE_STREAM
from srmp_spark.queue_manager.child import answer as answer_module
from srmp_spark.queue_manager.child.answer import STALL_SECONDS, AnswerWriter
from srmp_spark.queue_manager.child.link import ANSWER_SECONDS
from srmp_spark.queue_manager.reader import process, shared_pool
from srmp_spark.queue_manager.reader.crossing import (
    BatchEnd,
    FindBatchEnd,
    ReaderSettings,
    ReadRows,
)
from srmp_spark.queue_manager.reader.process import (
    READS_MAX,
    READS_OF_TOKEN_MAX,
    STALL_WAITED_SECONDS,
    ReaderProcess,
)
from srmp_spark.queue_manager.shares import Shares
from srmp_spark.testing.queue_manager import RunningQueueManager

WAIT_S = 60.0
TOKENS = {name: f"0123456789abcdef-{name}" for name in ("greedy", "modest")}


class TestShares:
    def test_one_caller_has_its_share_and_the_others_the_rest(self) -> None:
        shares: Shares[int] = Shares(4, 2)
        assert [shares.enter("a", number) for number in range(4)] == [[0], [1], [], []]
        assert not shares.others_wait("b"), (
            "what waits for a call of its own caller waits for nobody else"
        )
        assert [shares.enter("b", number) for number in (10, 11, 12)] == [[10], [11], []]
        assert shares.leave("a") == [2]
        assert shares.waiting == 2
        assert shares.leave("b") == [12]

    def test_who_waits_has_its_turn_after_one_call_of_each_other(self) -> None:
        shares: Shares[str] = Shares(1, 1)
        assert shares.enter("a", "a0") == ["a0"]
        for name in ("a1", "a2", "b0", "b1", "c0"):
            assert shares.enter(name[0], name) == []
        order, holder = [], "a"
        while admitted := shares.leave(holder):
            (name,) = admitted
            order.append(name)
            holder = name[0]
        assert order == ["a1", "b0", "c0", "a2", "b1"]

    def test_the_own_user_has_no_share_and_is_an_other_to_all(self) -> None:
        shares: Shares[int] = Shares(4, 2)
        assert [shares.enter(None, number) for number in range(5)] == [[0], [1], [2], [3], []]
        assert shares.others_wait("a")
        assert not shares.others_wait(None)

    def test_one_that_waits_no_longer_gets_no_place(self) -> None:
        shares: Shares[int] = Shares(1, 1)
        shares.enter("a", 0)
        shares.enter("b", 1)
        assert shares.others_wait("a")
        assert shares.withdraw("b", 1)
        assert not shares.withdraw("b", 1)
        assert not shares.others_wait("a")
        assert shares.leave("a") == []


class Call:
    """A command for a reader in this process."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.answer = AnswerWriter(theirs)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[tuple[ReaderProcess, threading.Semaphore, threading.Event]]:
    """A reader whose reads of rows last until the event; the semaphore counts those that run."""
    control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    settings = ReaderSettings(str(tmp_path), "q", None, 1.0)
    reader, running, end = (
        ReaderProcess(control, settings),
        threading.Semaphore(0),
        threading.Event(),
    )

    def rows(command: ReadRows, answer: AnswerWriter) -> None:
        running.release()
        end.wait(WAIT_S)

    reader._handlers[ReadRows] = rows
    reader._handlers[FindBatchEnd] = lambda command, answer: answer.whole(BatchEnd(1))
    yield reader, running, end
    end.set()
    control.close()
    other.close()


def submit(reader: ReaderProcess, what: str, caller: str | None) -> Call:
    call = Call()
    reader._submit(
        ReadRows(caller, "q", "q", "e", 0, 1, envelope=False, columns=(), dense=False, direct=False)
        if what == "rows"
        else FindBatchEnd(caller, "q", "e", 0, 1, 1),
        call.answer,
    )
    return call


def test_reads_of_one_token_hold_half_and_no_short_command(
    reader: tuple[ReaderProcess, threading.Semaphore, threading.Event],
) -> None:
    it, running, _ = reader
    calls = [submit(it, "rows", "a") for _ in range(READS_MAX + 8)]
    for _ in range(READS_OF_TOKEN_MAX):
        assert running.acquire(timeout=WAIT_S)
    assert not running.acquire(timeout=0.2), "the further ones wait"
    assert calls[0].answer.patience() == STALL_SECONDS, "they wait for calls of their own token"
    calls += [submit(it, "rows", "b") for _ in range(READS_MAX - READS_OF_TOKEN_MAX)]
    for _ in range(READS_MAX - READS_OF_TOKEN_MAX):
        assert running.acquire(timeout=WAIT_S)
    short = submit(it, "end", "a")
    short.ours.settimeout(WAIT_S)
    assert short.ours.recv(100) == b'H{"last":1}', "while every thread for rows is taken"
    calls.append(submit(it, "rows", "c"))
    assert calls[0].answer.patience() == STALL_WAITED_SECONDS
    for call in (*calls, short):
        call.ours.close()


def refusal_of(call: Call) -> dict[str, Any]:
    call.ours.settimeout(WAIT_S)
    packet = call.ours.recv(10_000)
    assert packet[:1] == b"X"
    found: dict[str, Any] = json.loads(packet[1:])
    call.ours.close()
    return found


def test_a_read_that_got_no_thread_is_refused_with_the_limit_it_waited_for(
    reader: tuple[ReaderProcess, threading.Semaphore, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_pool, "WAIT_SECONDS", 0.3)
    it, running, end = reader
    calls = [submit(it, "rows", "a") for _ in range(READS_OF_TOKEN_MAX + 2)]
    for call in calls[READS_OF_TOKEN_MAX:]:
        refusal = refusal_of(call)
        assert (refusal["status"], refusal["code"]) == (503, "too-many-reads")
        assert (
            f"the token a has {READS_OF_TOKEN_MAX} reads of rows in progress" in refusal["message"]
        )
        assert "read with fewer tasks" in refusal["hint"]
    calls += [submit(it, "rows", "b") for _ in range(READS_MAX - READS_OF_TOKEN_MAX)]
    refusal = refusal_of(submit(it, "rows", "c"))
    assert f"{READS_MAX} reads of rows are in progress" in refusal["message"]
    for _ in range(READS_MAX):
        assert running.acquire(timeout=WAIT_S)
    waits = submit(it, "rows", "a")
    end.set()
    assert running.acquire(timeout=WAIT_S), "one that gets a thread in time is not refused"
    time.sleep(0.5)
    waits.ours.setblocking(False)
    assert waits.ours.recv(100) == b"", "it has ended, and nothing else was said"
    for call in calls:
        call.ours.close()
    waits.ours.close()


def test_a_read_that_could_not_be_served_in_time_is_refused_at_once(
    reader: tuple[ReaderProcess, threading.Semaphore, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_pool, "WAITING_OF_TOKEN_MAX", 3)
    it, _, _ = reader
    calls = [submit(it, "rows", "a") for _ in range(READS_OF_TOKEN_MAX + 3)]
    began = time.monotonic()
    assert refusal_of(submit(it, "rows", "a"))["code"] == "too-many-reads"
    assert time.monotonic() - began < shared_pool.WAIT_SECONDS / 2
    calls.append(submit(it, "rows", "b"))
    for call in calls:
        call.ours.close()


def test_a_caller_that_takes_nothing_is_given_up_when_patience_ends_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_module, "STALL_LOOK_SECONDS", 0.01)
    for direct in (False, True):
        call, patience = Call(), [STALL_SECONDS]
        call.answer.patience = lambda patience=patience: patience[0]
        caller, lent = socket.socketpair()
        if direct:
            call.ours.setblocking(True)
            socket.send_fds(call.ours, [b"S"], [lent.fileno()])
            call.answer.take_caller()
        ended: list[BaseException] = []

        def write(answer: AnswerWriter = call.answer, ended: list[BaseException] = ended) -> None:
            try:
                for _ in range(100):
                    answer.write(bytes(1 << 20))
            except TimeoutError as error:
                ended.append(error)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        patience[0] = 0.0
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert len(ended) == 1
        for each in (caller, lent, call.ours):
            each.close()


def connected_readers(
    running: RunningQueueManager, path: str, token: str, count: int
) -> Iterator[socket.socket]:
    """Callers that ask for rows and take nothing."""
    host, _, port = running.api.partition("://")[2].rpartition(":")
    for number in range(count):
        silent = socket.socket()
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect((host, int(port)))
        accept = DENSE_STREAM if number % 2 else "*/*"
        head = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer "
            f"{token}\r\nAccept: {accept}\r\n\r\n"
        )
        silent.sendall(head.encode())
        yield silent


def test_a_token_whose_callers_take_nothing_stops_no_other(
    start: Callable[..., RunningQueueManager], tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("".join(
        f'[[token]]\nname = "{name}"\nsha256 = "'
f'{hashlib.sha256(token.encode()).hexdigest()}"\nqueues = ["private$/{name}"]\n'
        'verbs = ["read", "enqueue"]\n' for name, token in TOKENS.items()
    ))  # fmt: skip
    running = start(queues=[f"private$/{name}" for name in TOKENS], config=config)

    def call(name: str, method: str, path: str, **more: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {TOKENS[name]}"}
        url = f"{running.api}/v1/queues/private$%2F{name}/{path}"
        answer = requests.request(
            method, url, headers=headers, timeout=STALL_WAITED_SECONDS - 2, **more
        )
        assert answer.status_code == 200, answer.text
        return answer

    def rows_of(name: str) -> str:
        found = call(name, "GET", "range").json()
        return f"rows?epoch={found['epoch']}&after=0&to={found['end']}"

    large = base64.b64encode(bytes(3_000_000)).decode()
    for name, body, count in (("greedy", large, 4), ("modest", "eA==", 4)):
        call(name, "POST", "messages", json=[{"body_base64": body}] * count)
    with contextlib.ExitStack() as stack:
        path = f"/v1/queues/private$%2Fgreedy/{rows_of('greedy')}"
        silent = [
            stack.enter_context(each)
            for each in connected_readers(running, path, TOKENS["greedy"], READS_MAX + 8)
        ]
        answered: list[socket.socket] = []
        end = time.monotonic() + WAIT_S
        while len(answered) < READS_OF_TOKEN_MAX and time.monotonic() < end:
            answered = select.select(silent, [], [], 0.1)[0]
        assert len(answered) >= READS_OF_TOKEN_MAX
        assert call("modest", "GET", "range?after=0&max_bytes=1000").json()["last"] >= 1
        assert len(call("modest", "GET", rows_of("modest")).content) > 100
        assert len(select.select(silent, [], [], 0)[0]) <= READS_OF_TOKEN_MAX


def test_the_limits_leave_half_to_others() -> None:
    assert READS_OF_TOKEN_MAX * 2 <= READS_MAX
    assert process.SHORT_READS_OF_TOKEN_MAX * 2 <= process.SHORT_READS_MAX
    assert STALL_WAITED_SECONDS < STALL_SECONDS
    assert 2 * shared_pool.WAIT_SECONDS < ANSWER_SECONDS, (
        "the refusal comes before the main process gives up"
    )
