"""``send`` to other queue managers and ``streams``, as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from kit import acknowledged, arrow, bodies, commit, outgoing, rows_to, until

from srmp_spark.client.outbox_batches import OutboxClient
from srmp_spark.errors import ApiError, ConfigurationError
from srmp_spark.interface import ExitCode, exit_code_of
from srmp_spark.spark.settings.sink_options import parse_sink
from srmp_spark.testing.foreign.faults import Faults
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

QUEUE = "private$/in"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    folder = tmp_path_factory.mktemp("commands")
    with RunningQueueManager(
        folder / "qm", resend_table="1,1,2", retransmission_timeout=0.2
    ) as queue_manager:
        yield queue_manager


@pytest.fixture(scope="module")
def peer() -> Iterator[Destination]:
    refuse = lambda message: message.body == b"refuse me"  # noqa: E731  # short
    with Destination(
        queues={QUEUE: True, "private$/plain": False}, receipt_wait=0.1, refuse=refuse
    ) as found:
        yield found


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    """Of this package, too, and not told that it may call loopback."""
    folder = tmp_path_factory.mktemp("other")
    with RunningQueueManager(
        folder / "qm", queues=["private$/plain", "private$/t:transactional"]
    ) as found:
        yield found


def command(running: RunningQueueManager, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "srmp_spark.cli", *arguments, "--api", running.api]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def lines(running: RunningQueueManager, *arguments: str) -> list[dict[str, Any]]:
    done = command(running, *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_send_waits_until_it_is_acknowledged(
    running: RunningQueueManager, peer: Destination
) -> None:
    url = peer.url(QUEUE)
    (sent,) = lines(
        running,
        "send",
        "--destination",
        f"DIRECT={url}",
        "--label",
        "hello",
        "--body",
        "x",
        "--wait",
        "20",
    )
    assert sent.keys() == {"message_id", "destination", "stream_id", "stream_sequence", "state"}
    assert (sent["destination"], sent["state"]) == (url, "acknowledged")
    assert sent["message_id"].startswith(f"{{{running.guid}}}\\")
    assert sent["stream_id"].startswith(f"uid:{running.guid}\\")
    assert sent["stream_sequence"] == 1
    assert [(message.label, message.body) for message in peer.queues[QUEUE]] == [("hello", b"x")]


def test_the_same_key_is_sent_once_and_other_content_is_an_error(
    running: RunningQueueManager, peer: Destination
) -> None:
    url = peer.url(QUEUE)
    count = len(peer.queues.get(QUEUE, []))
    for repeat in (False, True):
        done = command(
            running, "send", "--destination", url, "--body", "once", "--key", "k1", "--wait", "20"
        )
        assert done.returncode == 0, done.stderr
        sent = json.loads(done.stdout)
        assert sent["state"] == "acknowledged"
        assert (sent["message_id"] is None) is repeat, "it is delivered: only its key is kept"
        told = (
            "--key k1 was given before: nothing new is sent. State of the earlier "
            "message: acknowledged (its"
        )
        assert (told in done.stderr) is repeat
    assert len(peer.queues[QUEUE]) == count + 1
    done = command(running, "send", "--destination", url, "--body", "other", "--key", "k1")
    assert done.returncode == 4
    assert "key 'k1' was sent before" in done.stderr
    assert "partition" not in done.stderr, "who sends one message knows none"


def test_a_repeat_says_which_message_it_was_and_how_it_stands(
    running: RunningQueueManager, peer: Destination
) -> None:
    nobody = "http://127.0.0.1:9/msmq/private$/nobody"
    line = ("send", "--destination", nobody, "--body", "waits", "--key", "k2")
    (first,) = lines(running, *line)
    lines(running, "send", "--destination", nobody, "--body", "another")
    repeated = command(running, *line)
    again = json.loads(repeated.stdout)
    assert (again["message_id"], again["destination"]) == (first["message_id"], nobody)
    assert first["message_id"].startswith(f"{{{running.guid}}}\\")
    assert again["state"] in ("queued", "sent")
    assert again.keys() == first.keys()
    assert (
        f"State of the earlier message: {again['state']} (message {first['message_id']})"
        in repeated.stderr
    )
    lines(running, "streams", "drop", "--destination", nobody)
    dead = command(running, *line, "--wait", "20")
    assert (dead.returncode, json.loads(dead.stdout)) == (4, {**again, "state": "dead"})
    assert (
        "srmp-spark: dead: a dead letter: refused by the peer, expired, or given up by an "
        "operator; the log" in dead.stderr
    )
    item = {"destination": nobody, "key": "k2", "body_base64": "d2FpdHM="}
    (answer,) = requests.post(f"{running.api}/v1/outgoing/messages", json=item, timeout=30).json()
    assert (answer["message_id"], answer["known"], answer["known_message_id"]) == (
        None,
        True,
        first["message_id"],
    )
    kept = {"destination": peer.url(QUEUE), "key": "k3", "body_base64": "", "journal": True}
    sent, other = requests.post(
        f"{running.api}/v1/outgoing/messages", json=[kept, {**kept, "key": "k4"}], timeout=30
    ).json()
    acknowledged(running, peer.url(QUEUE))
    (journal,) = requests.post(
        f"{running.api}/v1/outgoing/messages", json=[kept], timeout=30
    ).json()
    assert (journal["known_message_id"], journal["state"]) == (
        sent["message_id"],
        "acknowledged",
    ), "the journal has it"
    assert other["message_id"] != sent["message_id"]


def test_what_the_peer_refuses_is_dead(running: RunningQueueManager, peer: Destination) -> None:
    done = command(
        running, "send", "--destination", peer.url(QUEUE), "--body", "refuse me", "--wait", "20"
    )
    assert done.returncode == 4
    assert json.loads(done.stdout)["state"] == "dead"
    assert "dead: a dead letter: the peer refused it for good (400 " in done.stderr
    entry = outgoing(running, peer.url(QUEUE))
    assert (entry["queued"], entry["awaiting_stream_receipt"], entry["next_attempt_at"]) == (
        0,
        0,
        None,
    ), "nothing waits"


@pytest.mark.parametrize(
    ("path", "delivery", "state", "says"),
    [
        (
            "/msmq/private$/plain",
            "transactional",
            "dead",
            "it for good (400 not-transactional; [MC-MQSRM] 3.1.5",
        ),
        (
            "/msmq/private$/plain",
            "transactional",
            "dead",
            "that queue is not transactional: send with --delivery recoverable",
        ),
        (
            "/msmq/private$/t",
            "express",
            "dead",
            "that queue is transactional: send without --delivery",
        ),
        (
            "/msmq/private$/other",
            "express",
            "dead",
            "there is no queue of that name: create it there, or correct the URL",
        ),
        ("/private$/t", "transactional", "dead", "is the URL right? Its path begins with /msmq/"),
        (
            "/msmq/private$/t",
            "transactional",
            "sent",
            "sent, but no stream receipt came back: look at the receiver's status",
        ),
    ],
)
def test_a_wait_without_acknowledgement_says_what_to_do(
    running: RunningQueueManager,
    other: RunningQueueManager,
    path: str,
    delivery: str,
    state: str,
    says: str,
) -> None:
    host, port = other.endpoint
    url = f"http://{host}:{port}{path}"
    for seconds in (
        ("20",) if state == "dead" else ("1", "5", "25")
    ):  # on a busy machine it is not sent in a second
        done = command(
            running,
            "send",
            "--destination",
            url,
            "--body",
            "x",
            "--delivery",
            delivery,
            "--wait",
            seconds,
        )
        if json.loads(done.stdout)["state"] == state:
            break
    assert (done.returncode, json.loads(done.stdout)["state"]) == (4, state)
    assert done.stderr.startswith(f"srmp-spark: {state}: ")
    assert says in done.stderr
    if state == "sent":
        assert (
            f"there --allow-url http://127.0.0.1:{running.endpoint[1]} may be missing"
            in done.stderr
        )


def test_regular_messages(running: RunningQueueManager, peer: Destination) -> None:
    url = peer.url("private$/plain")
    (sent,) = lines(
        running,
        "send",
        "--destination",
        url,
        "--body",
        "x",
        "--delivery",
        "express",
        "--wait",
        "20",
    )
    assert sent["stream_id"] is None
    assert sent["state"] == "acknowledged"


def test_a_wait_that_is_over_is_exit_code_4(running: RunningQueueManager) -> None:
    done = command(
        running,
        "send",
        "--destination",
        "http://127.0.0.1:9/msmq/private$/q",
        "--body",
        "x",
        "--wait",
        "0.3",
    )
    assert done.returncode == 4
    state = json.loads(done.stdout)["state"]
    assert state in ("queued", "sent")
    assert done.stderr.startswith(f"srmp-spark: {state}: not acknowledged: ")
    assert "refused" in done.stderr
    assert "it is kept and tried again" in done.stderr


def test_an_operator_sees_and_decides(running: RunningQueueManager) -> None:
    with Destination(queues={QUEUE: True}, faults=Faults(seed=9), receipt_wait=0.1) as late:
        url = late.url(QUEUE)
    commit(running.api, "for-nobody", rows_to(url, bodies(0, 3)))
    until(lambda: outgoing(running, url).get("state") == "Inactive", "it is Inactive")
    (entry,) = lines(running, "streams", "--destination", url)
    assert (entry["direction"], entry["queued"]) == ("out", 3)
    wrong = command(
        running,
        "streams",
        "drop",
        "--destination",
        url,
        "--stream",
        "uid:00000000-0000-0000-0000-000000000000\\1",
    )
    assert wrong.returncode == 4
    lines(running, "streams", "pause", "--destination", url)
    assert lines(running, "streams", "--destination", url)[0]["state"] == "OnHold"
    lines(running, "streams", "drop", "--destination", url, "--stream", entry["stream_id"])
    assert lines(running, "streams", "--destination", url) == []


def test_resend_does_not_wait_for_the_timer(tmp_path: Path) -> None:
    with RunningQueueManager(tmp_path / "qm") as running:  # Windows' own times: 20 s
        with Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer:
            port, url = peer.port, peer.url(QUEUE)
        commit(running.api, "1", rows_to(url, bodies(0, 3)))
        until(lambda: outgoing(running, url).get("state") == "Inactive", "it is Inactive")
        with Destination(port=port, queues={QUEUE: True}, receipt_wait=0.1) as peer:
            lines(running, "streams", "resend", "--destination", url)
            acknowledged(running, url, 10)
            assert peer.verdict({QUEUE: bodies(0, 3)}).ok


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["streams", "accept-gap", "--destination", "http://x/msmq/q"], 2, "needs --queue"),
        (
            ["streams", "reset", "--queue", "q", "--stream", "s", "--gap-at", "2"],
            2,
            "--gap-at can be given only with accept-gap",
        ),
        (["streams", "resend", "--queue", "private$/q", "--stream", "x"], 2, "needs --destination"),
        (["streams", "drop"], 2, "needs --queue Q"),
        (["streams", "drop", "--destination", "http://x.example/msmq/q"], 4, "nothing waits for"),
        (
            ["streams", "reset", "--queue", "private$/order_queue$", "--stream", "uid:a\\1"],
            4,
            "no stream uid:a\\1 comes into",
        ),
        (["send", "--destination", "private$/q", "--key", "k"], 2, "--key works only for the URL"),
    ],
)
def test_what_makes_no_sense_says_what_to_do(
    running: RunningQueueManager, arguments: list[str], code: int, says: str
) -> None:  # fmt: skip
    done = command(running, *arguments)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr


def test_a_service_without_a_url_is_refused_alike_wherever_it_is_named(
    running: RunningQueueManager,
) -> None:
    destination = "WSRM://h.example/queue"
    sentence = "not a destination: not an http or https URL: '//h.example/queue'; write wsrm:http://HOST/PATH"
    done = command(
        running, "send", "--destination", destination, "--soap-action", "urn:a", "--body", "<a/>"
    )
    assert (done.returncode, done.stderr) == (ExitCode.USAGE, f"srmp-spark: {sentence}\n")
    with pytest.raises(ConfigurationError) as option:
        parse_sink({"queueManager": running.api, "destination": destination})
    assert (str(option.value), exit_code_of(ConfigurationError)) == (
        f"option destination: {sentence}",
        ExitCode.USAGE,
    )
    with pytest.raises(
        ApiError
    ) as column:  # the column destination: rows are judged by the queue manager
        OutboxClient(running.api).stage(
            "app",
            "1",
            partition=4,
            attempt=0,
            content=lambda: iter([arrow(rows_to(destination, [b"x"]))]),
        )
    assert column.value.status == 400
    assert f"partition 4: row 0: {sentence}" in str(column.value)


def test_calls_that_name_what_is_not_there_are_refused(
    running: RunningQueueManager, peer: Destination
) -> None:
    url = peer.url(QUEUE)
    done = command(running, "send", "--destination", url, "--body", "x", "--wait", "-1")
    assert done.returncode == 2
    lines(running, "send", "--destination", url, "--body", "x", "--wait", "20")
    for serial in (0, -1, 10**9):
        asked = {"destination": url, "kind": "stream", "serials": [serial]}
        answer = requests.post(f"{running.api}/v1/outgoing/states", json=asked, timeout=30)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown-serial")
    for without in ({"destination": url}, {"destination": url, "body_base64": None}):
        answer = requests.post(f"{running.api}/v1/outgoing/messages", json=[without], timeout=30)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "usage")
        assert "body_base64 is missing or null" in answer.text
    answer = requests.post(
        f"{running.api}/v1/outbox/a/b/commit", json={"stages": [], "order_by": ["x"]}, timeout=30
    )
    assert answer.status_code == 400
    assert "order_by" in answer.text
