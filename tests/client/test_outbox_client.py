"""The outbox calls: what is repeated, with which bytes, and what is final. Against the model of an outbox."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from srmp_spark.client import outbox_batches
from srmp_spark.client.outbox_batches import CommitAnswer, OutboxClient
from srmp_spark.errors import ApiError, ApiUnreachableError
from tests.kit.outbox_server import OutboxServer

QUEUE = "DIRECT=http://host/msmq/private$/orders"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_batches, "PAUSES_SECONDS", (0.01, 0.01, 0.01))


@pytest.fixture
def qm() -> Iterator[OutboxServer]:
    with OutboxServer() as server:
        yield server


def pieces(*bodies: bytes, size: int = 100) -> list[bytes]:
    sink = pa.BufferOutputStream()
    table = pa.table({"body": pa.array(bodies, pa.binary()), "destination": [QUEUE] * len(bodies)})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream = sink.getvalue().to_pybytes()
    return [stream[at : at + size] for at in range(0, len(stream), size)]


def client(qm: OutboxServer, token: str | None = None) -> OutboxClient:
    return OutboxClient(qm.url, token, retry_seconds=0.5)


def stage(qm: OutboxServer, *bodies: bytes, token: str | None = None) -> str:
    content = pieces(*bodies)
    return (
        client(qm, token)
        .stage("an app/100%", "a batch", partition=0, attempt=7, content=lambda: iter(content))
        .stage
    )


def test_stage_commit_and_commit_again(qm: OutboxServer) -> None:
    name = stage(qm, b"a", b"b")
    assert client(qm).commit("an app/100%", "a batch", [name]) == CommitAnswer(2, 0)
    assert client(qm).commit("an app/100%", "a batch", [name]) == CommitAnswer(2, 0)
    assert qm.model.bodies(QUEUE) == [b"a", b"b"]


def test_a_stage_that_breaks_off_is_sent_from_its_first_byte(qm: OutboxServer) -> None:
    qm.cut_stages_after = [1, 250]
    qm.lose_replies = ["stage"]
    stage(qm, b"a", b"b")
    assert [status for _, _, status in qm.named("stage")] == [0, 0, 0, 200]
    assert [[row["body"] for row in each.rows] for each in qm.model.stages.values()] == [
        [b"a", b"b"]
    ]


def test_a_sender_that_is_down_is_waited_for_and_not_for_ever(qm: OutboxServer) -> None:
    qm.refuse = [("stage", 503)] * 3
    stage(qm, b"a")
    qm.refuse = [("stage", 503)] * 9
    with pytest.raises(ApiError) as error:
        stage(qm, b"a")
    assert error.value.status == 503
    assert len(qm.refuse) == 5, "four attempts: one more than there are pauses"


def test_a_refusal_is_final(qm: OutboxServer) -> None:
    qm.refuse = [("stage", 400), ("commit", 409)]
    for call in (lambda: stage(qm, b"a"), lambda: client(qm).commit("a", "b", [])):
        with pytest.raises(ApiError, match="refused on request"):
            call()
    assert len(qm.calls) == 2


def test_a_refusal_that_a_broken_body_hides() -> None:
    """A queue manager may close while the body is still being sent; the short call in between tells why."""
    with OutboxServer(token="t0p") as qm:
        qm.cut_stages_after = [1]
        with pytest.raises(ApiError, match="needs a token"):
            stage(qm, b"a", token="wrong")


def test_nobody_there(qm: OutboxServer) -> None:
    qm.stop()
    with pytest.raises(ApiUnreachableError, match="no queue manager answers"):
        stage(qm, b"a")


def test_delete_takes_what_no_commit_has_named(qm: OutboxServer) -> None:
    stage(qm, b"a")
    client(qm).delete("an app/100%", "a batch")
    assert qm.model.stages == {}
