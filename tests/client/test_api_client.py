"""The API client: refusals are final, silence is waited out, nothing of ours leaks to strangers."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fake_queue_manager import FakeQueueManager

from srmp_spark.client.api import QueueManagerClient, QueueRange
from srmp_spark.errors import ApiError, ApiUnreachableError, ConfigurationError


class Scripted:
    """A server that gives prepared answers (status, body) in turn, the last one for ever, and keeps what it was asked."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.heads: list[dict[str, str]] = []
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            wbufsize = 65536

            def log_message(self, *args: object) -> None: ...

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.heads.append(dict(self.headers))
                outer.paths.append(self.path)
                status, body = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  # names of the base class

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def scripted() -> Iterator[type]:
    made: list[Scripted] = []

    def make(*answers: tuple[int, bytes]) -> Scripted:
        made.append(Scripted(*answers))
        return made[-1]

    yield make  # type: ignore[misc]
    for each in made:
        each.server.shutdown()
        each.server.server_close()


def error(code: str) -> bytes:
    return json.dumps(
        {"error": {"code": code, "message": "no.", "hint": "Do that.", "section": "2.2"}}
    ).encode()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:1",
        "ftp://a:1",
        "http://a:1/v1",
        "http://a:1?x",
        "http://me:secret@a:1",
        "http://a:0",
    ],
)
def test_what_is_no_url_of_an_api(url: str) -> None:
    with pytest.raises(ConfigurationError):
        QueueManagerClient(url)


def test_nobody_there_is_said_after_the_time_for_it() -> None:
    client = QueueManagerClient("http://127.0.0.1:9", retry_seconds=0.3)
    begun = time.monotonic()
    with pytest.raises(ApiUnreachableError, match=r"127\.0\.0\.1:9 .*srmp-spark serve"):
        client.status()
    assert 0.1 < time.monotonic() - begun < 3


@pytest.mark.parametrize(("retry_seconds", "lines"), [(0.5, 1), (0.15, 0)])
def test_who_waits_long_says_so_once(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    retry_seconds: float,
    lines: int,
) -> None:
    """Spark waits for half a minute: a wrong port must not look like a hang. A command says its one line soon enough."""
    monkeypatch.setattr("srmp_spark.client.api.WAITING_TOLD_SECONDS", 0.1)
    with pytest.raises(ApiUnreachableError):
        QueueManagerClient("http://127.0.0.1:1", retry_seconds=retry_seconds).status()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == lines
    assert all("no queue manager answers at http://127.0.0.1:1" in text for text in told)


def test_a_restart_of_the_queue_manager_is_waited_out() -> None:
    qm = FakeQueueManager(orders=3)
    qm.close()
    client = QueueManagerClient(qm.url)
    threading.Timer(0.4, qm.open).start()
    assert client.range("private$/orders") == QueueRange(qm.epoch, 1, 3, 3)
    qm.close()


def test_503_is_tried_again_and_a_refusal_is_not(scripted: type) -> None:
    server = scripted((503, error("busy")), (503, b""), (409, error("past-the-end")))
    with pytest.raises(ApiError) as refusal:
        QueueManagerClient(server.url).status()
    assert (refusal.value.status, refusal.value.code, refusal.value.section) == (
        409,
        "past-the-end",
        "2.2",
    )
    assert "no; Do that [past-the-end]" in str(refusal.value)
    assert len(server.paths) == 3


def test_a_renewal_has_one_short_attempt() -> None:
    begun = time.monotonic()
    with pytest.raises(ApiUnreachableError):
        QueueManagerClient("http://127.0.0.1:9").register("q", "default", holder="A", timeout=1.0)
    assert time.monotonic() - begun < 5


def test_a_message_is_not_sent_twice_by_itself(scripted: type) -> None:
    server = scripted((503, error("busy")))
    with pytest.raises(ApiError):
        QueueManagerClient(server.url).send("private$/orders", [{"label": "once"}])
    assert len(server.paths) == 1


def test_something_else_answers(scripted: type) -> None:
    with pytest.raises(ApiError, match=r"not JSON.*API port"):
        QueueManagerClient(scripted((200, b"<html>")).url).status()
    with pytest.raises(ApiError, match=r"404.*nginx"):
        QueueManagerClient(scripted((404, b"nginx")).url).status()


def test_redirects_are_not_followed(scripted: type) -> None:
    server = scripted((302, b""))
    with pytest.raises(ApiError):
        QueueManagerClient(server.url, token="secret").status()
    assert server.paths == ["/v1/status"]


def test_the_token_goes_to_the_queue_manager_and_nowhere_else(
    scripted: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = scripted((200, b"{}"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    client = QueueManagerClient(server.url, token="secret")
    client.status()
    assert server.heads[0]["Authorization"] == "Bearer secret"
    assert "secret" not in repr(client)


def test_names_are_one_segment_of_the_path(scripted: type) -> None:
    server = scripted((200, b'{"received": 5}'))
    QueueManagerClient(server.url).received("private$/a b", "c%", epoch="e", to=5, holder="h")
    assert server.paths == ["/v1/queues/private%24%2Fa%20b/consumers/c%25/received"]


def test_a_client_can_be_sent_to_a_task() -> None:
    qm = FakeQueueManager(orders=3)
    client = QueueManagerClient(qm.url, "token")
    client.status()
    assert pickle.loads(pickle.dumps(client)).status()["queue_manager"] == qm.guid
    qm.close()
