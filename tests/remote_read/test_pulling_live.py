"""Two real queue managers: one reads the other's queue, and both are killed while messages come."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from remote_kit import Served, opened

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.client.walking import shown
from srmp_spark.errors import ApiError, ApiUnreachableError, RemoteLostError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.status import Status
from srmp_spark.testing.queue_manager import RunningQueueManager

KILLS = int(os.environ.get("SRMP_SPARK_PULL_KILLS", "2"))
BACKLOG_MAX = 500
"""Messages that wait to be read before no more are sent."""
QUEUE = "private$/orders"


def subscribe(
    path: Path, served: Served, mode: str = "move", queue: str = QUEUE, to: str = QUEUE
) -> Path:
    name = "DIRECT=OS:host1\\" + queue.replace("/", "\\")
    path.write_text(
        f"[[subscription]]\nhost = \"{served.ready['rpc']}\"\nqueue = '{name}'\nmode = "
        f'"{mode}"\nto = "{to}"\n'
    )
    return path


def rows(running: RunningQueueManager, queue: str = QUEUE) -> list[dict[str, object]]:
    client = QueueManagerClient(running.api, retry_seconds=60)
    span = client.range(queue)
    with client.rows(queue, epoch=span.epoch, after=span.first - 1, to=span.end) as stream:
        return pa.ipc.open_stream(stream).read_all().to_pylist()


SECONDS = 120.0
"""Longest wait for anything that takes a second on a machine with nothing else to do."""


def until(what, seconds: float = SECONDS, still=lambda: "") -> None:
    """``still``: what is still waited for, for who reads the failure."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, (
            f"it took longer than {seconds:g} s{f': {said}' if (said := still()) else ''}"
        )
        time.sleep(0.05)


def test_rows_say_what_the_messages_said(tmp_path: Path, served: Served):
    name = served.queue()
    served.send(name, 5, 3)
    with RunningQueueManager(
        tmp_path / "b", config=subscribe(tmp_path / "b.toml", served, queue=name)
    ) as running:
        until(lambda: len(rows(running)) == 2)
        first, second = rows(running)
    assert (first["body"], first["label"], first["priority"]) == (b"body 1", "message 1", 5)
    assert first["transport"] == "mqrr"
    assert first["peer"] == served.ready["rpc"]
    assert first["lookup_id"] == 2 << 56 | 1
    assert second["lookup_id"] == 4 << 56 | 2
    assert first["lineage"] == served.guid
    assert first["body_text"] == "body 1"
    assert first["expired"] is False
    assert served.waiting(name) == 0


@pytest.mark.timeout(900 + 20 * KILLS)
def test_nothing_is_lost_or_doubled_when_both_sides_are_killed_and_another_reader_helps_itself(
    tmp_path: Path, start
):
    """``SRMP_SPARK_PULL_KILLS=200`` takes ten minutes."""
    rng = random.Random(20261122)
    served = start("a", queues=[QUEUE])
    running = RunningQueueManager(tmp_path / "b", config=subscribe(tmp_path / "b.toml", served))
    running.start()
    stop = threading.Event()
    stolen: list[bytes] = []
    perhaps: list[bytes] = []
    sent = [0]
    failed: list[BaseException] = []
    threads = [
        threading.Thread(
            target=_watched,
            args=(failed, _send, served, rng.randrange(2**32), stop, sent),
            daemon=True,
        ),
        threading.Thread(
            target=_watched, args=(failed, _steal, served, stop, stolen, perhaps), daemon=True
        ),
    ]
    for thread in threads:
        thread.start()
    try:
        for kill in range(KILLS):
            time.sleep(rng.uniform(0.3, 0.9))
            victim = (running, served)[kill % 2] if KILLS < 10 else rng.choice((running, served))
            victim.kill9()
            victim.restart()
    finally:
        stop.set()
        for thread in threads:
            thread.join(2 * SECONDS)
    assert not failed, f"a sender or the other reader failed: {failed}"
    assert not any(thread.is_alive() for thread in threads), (
        f"the sender is not done after {sent[0]} messages"
    )
    until(
        lambda: served.waiting(QUEUE) == 0 and not _pending(running),
        still=lambda: f"{served.waiting(QUEUE)} messages wait there; {_subscription(running)}",
    )
    got = [each["body"] for each in rows(running)]
    running.stop()
    assert len(got) == len(set(got)), "doubled"
    assert len(stolen) == len(set(stolen))
    lost = {b"%d" % n for n in range(sent[0])} - set(got) - set(stolen)
    assert lost <= set(perhaps)
    assert len(perhaps) <= KILLS, "one End may be without an answer when its server is killed"
    both = set(got) & set(stolen)
    print(
        f"{sent[0]} sent, {len(got)} rows, {len(stolen)} taken by another reader, "
        f"{len(both)} by both"
    )
    assert len(both) <= 64 * KILLS, "more than what was in doubt at the kills"
    assert len(got) > 0


def _subscription(running: RunningQueueManager) -> dict[str, object]:
    (status,) = QueueManagerClient(running.api, retry_seconds=60).status()["subscriptions"]
    return status


def _pending(running: RunningQueueManager) -> int:
    return int(str(_subscription(running)["pending"]))


def _watched(failed: list[BaseException], what: Callable[..., None], *arguments: object) -> None:
    """A thread whose failure is one of the test."""
    try:
        what(*arguments)
    except BaseException as error:
        failed.append(error)
        raise


def _send(served: Served, seed: int, stop: threading.Event, sent: list[int]) -> None:
    import base64

    rng = random.Random(seed)
    while not stop.is_set():
        if not _has_room(
            served
        ):  # on a slow machine the reader would never be done with what is sent meanwhile
            stop.wait(0.1)
            continue
        batch = [
            {
                "body_base64": base64.b64encode(b"%d" % (sent[0] + n)).decode(),
                "priority": rng.randrange(8),
            }
            for n in range(5)
        ]
        try:
            served.client.send(QUEUE, batch)
        except (ApiError, ApiUnreachableError):
            # It may be stored all the same: the next numbers are others.
            pass
        else:
            sent[0] += 5
            continue
        sent[0] += 0
        _resend(served, batch)
        sent[0] += 5


def _resend(served: Served, batch: list[dict[str, object]]) -> None:
    """A batch whose answer did not come: what of it is stored is looked for in the queue's log, the rest is sent again."""
    import base64

    deadline = time.monotonic() + SECONDS
    while True:
        assert time.monotonic() < deadline, f"{len(batch)} messages cannot be sent"
        until(
            lambda: _is_up(served),
            still=lambda: "the queue manager that is read does not come back",
        )
        try:
            there = {each["body"] for each in rows(served)}
            missing = [
                message
                for message in batch
                if base64.b64decode(str(message["body_base64"])) not in there
            ]
            if not missing:
                return
            served.client.send(QUEUE, missing)
        except (ApiError, ApiUnreachableError):
            continue  # killed once more


def _has_room(served: Served) -> bool:
    try:
        return QueueManagerClient(served.api, retry_seconds=0).queue(QUEUE)["waiting"] < BACKLOG_MAX
    except (ApiError, ApiUnreachableError):
        return False


def _is_up(served: Served) -> bool:
    try:
        return served.client.is_ready()
    except (ApiError, ApiUnreachableError):
        return False


def _steal(
    served: Served, stop: threading.Event, stolen: list[bytes], perhaps: list[bytes]
) -> None:
    """Another reader: takes a message now and then. It has those whose End was answered, and ``perhaps`` the others."""
    while not stop.is_set():
        time.sleep(0.05)
        try:
            with served.machine() as machine:
                queue = opened(machine, QUEUE, receive=True)
                request, answer = queue.start(Action.RECEIVE)
                if answer.status == Status.MQ_OK:
                    body = shown(answer).packet.body
                    try:
                        queue.end(request)
                    except (RemoteLostError, RemoteReadError):
                        perhaps.append(body)
                    else:
                        stolen.append(body)
        except (RemoteLostError, RemoteReadError):
            continue


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[[subscription]]\nqueue = 'q'", "host is missing"),
        ("[[subscription]]\nhost = '127.0.0.1'\nqueue = 'q'\nmod = 'copy'", "did you mean 'mode'"),
        (
            "[[subscription]]\nhost = '127.0.0.1'\nqueue = 'q'\nmode = 'steal'",
            "mode is move or copy",
        ),
        ("[[subscription]]\nhost = 'windows.example'\nqueue = 'q'", "give a user and a password"),
        ("[[subscription]]\nhost = '127.0.0.1:x'\nqueue = 'q'", "HOST:PORT"),
        (
            (
                "[[subscription]]\nhost = '127.0.0.1'\nqueue = 'q'\n[[subscription]]\nhost = "
                "'127.0.0.1'\nqueue = 'q'"
            ),
            "twice",
        ),
    ],
)
def test_what_is_no_subscription(tmp_path: Path, text, match):
    from srmp_spark.errors import ConfigurationError
    from srmp_spark.queue_manager.configuration.config import load

    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=match):
        load({"data_dir": str(tmp_path), "config": str(tmp_path / "c.toml")}, {})


def test_a_subscription_has_a_queue_of_its_own_by_default(tmp_path: Path):
    from srmp_spark.queue_manager.configuration.config import load

    (tmp_path / "c.toml").write_text(
        "[[subscription]]\nhost = 'Windows.example'\nqueue = "
        "'private$/Orders;JOURNAL'\nauth_level = 'none'"
    )
    (found,) = load(
        {"data_dir": str(tmp_path), "config": str(tmp_path / "c.toml")}, {}
    ).subscription
    assert (found.host.text, found.to) == (
        "windows.example",
        "private$/orders.journal@windows.example",
    )
