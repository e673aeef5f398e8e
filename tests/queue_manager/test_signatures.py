"""Signed messages through a real queue manager: what their rows say, and go on saying."""

from __future__ import annotations

import http.client
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.foreign.messages import ForeignMessage, Post, post
from srmp_spark.testing.queue_manager import RunningQueueManager, ServeFailedError
from tests.kit.foreign.signature import dsa_signer, rsa_signer, signed_post

ORDERS = "private$/orders"
KNOWN, STRANGER = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
KEY, OTHER_KEY = dsa_signer(), rsa_signer()
_numbers = itertools.count(1)

Start = Callable[..., RunningQueueManager]


def message(lineage: str = KNOWN, **values: Any) -> ForeignMessage:
    given: dict[str, Any] = {
        "uniquifier": next(_numbers),
        "sent_at": 1_790_000_000,
        "body": b"pay 100",
        "durable": True,
    }
    return ForeignMessage(
        to="http://localhost/msmq/private$/orders", lineage=lineage, **(given | values)
    )


def forged(written: Post) -> Post:
    """Another body of the same length."""
    changed = written.content.replace(b"pay 100", b"pay 999")
    assert changed != written.content
    return Post(written.target, written.content_type, changed, b"")


def send(running: RunningQueueManager, written: Post) -> tuple[int, str | None]:
    connection = http.client.HTTPConnection(*running.endpoint, timeout=20)
    connection.request(
        "POST", written.target, written.content, {"Content-Type": written.content_type}
    )
    answer = connection.getresponse()
    answer.read()
    connection.close()
    reason = answer.headers.get("Srmp-Reason")
    return answer.status, reason and reason.partition(";")[0]


def statuses(running: RunningQueueManager) -> list[str]:
    client = QueueManagerClient(running.api)
    last = client.queue(ORDERS)["last"]
    if not last:
        return []
    with client.rows(ORDERS, epoch=running.epoch, after=0, to=last) as stream:
        rows = pa.ipc.open_stream(stream.as_file()).read_all().to_pylist()
    assert [row["sequence"] for row in rows] == list(range(1, last + 1))
    return [row["signature_status"] for row in rows]


def metrics(running: RunningQueueManager) -> dict[tuple[str, str], int]:
    with urlopen(running.api + "/metrics") as answer:  # our own URL
        text = answer.read().decode()
    found = re.findall(r'srmp_signatures_total\{how="([^"]+)",status="([^"]+)"\} ([0-9.]+)', text)
    return {(status, how): int(float(count)) for how, status, count in found}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file that trusts KNOWN's key."""
    (tmp_path / "known.pem").write_bytes(KEY.public_pem)
    file = tmp_path / "serve.toml"
    file.write_text(f'[[signer]]\nsource_qm = "{KNOWN}"\ncertificate = "{tmp_path}/known.pem"\n')
    return file


@pytest.fixture
def begin(start: Start) -> Start:
    return lambda **options: start(queues=[ORDERS], **options)


def test_each_message_has_its_status(begin: Start, config: Path) -> None:
    running = begin(config=config)
    sent = {
        "none": post(message()),
        "valid": signed_post(message(), KEY.sign),
        "invalid": forged(signed_post(message(), KEY.sign)),
        "unverified": signed_post(message(STRANGER), OTHER_KEY.sign),
    }
    for written in sent.values():
        assert send(running, written) == (200, None)
    assert send(running, forged(signed_post(message(STRANGER), OTHER_KEY.sign)))[0] == 200
    assert send(running, signed_post(message(), OTHER_KEY.sign))[0] == 200
    assert send(running, signed_post(message(msmq=False), KEY.sign))[0] == 200
    assert statuses(running) == [*sent, "invalid", "invalid", "unverified"], (
        "the last one names no sender"
    )
    assert metrics(running) == {
        ("valid", "literal/dsa-raw"): 1,
        ("invalid", "digest"): 2,
        ("invalid", "signature"): 1,
        ("unverified", "no-signer"): 2,
    }
    log = running.stderr()
    assert log.count("signature.invalid") == 3, "a line for each sender and verdict"
    assert send(running, forged(signed_post(message(), KEY.sign)))[0] == 200
    assert running.stderr().count("signature.invalid") == 3, "and no second one"
    assert log.count("signature.valid") == 1
    assert "pay 100" not in log


def test_a_malformed_signature_is_refused_and_leaves_no_row(begin: Start, config: Path) -> None:
    running = begin(config=config)
    broken = signed_post(
        message(),
        KEY.sign,
        after=lambda text: text.replace("<SignatureValue>", "<SignatureValue>!"),
    )
    uncovered = signed_post(message(body=b"", extension=b"e"), KEY.sign)
    uncovered = Post(
        uncovered.target,
        uncovered.content_type,
        uncovered.content.replace(b"cid:ext", b"cid:bod"),
        b"",
    )
    for written in (broken, uncovered):
        assert send(running, written) == (400, "malformed")
    assert statuses(running) == []
    assert metrics(running) == {}


def test_an_operator_may_have_invalid_ones_refused(begin: Start, config: Path) -> None:
    running = begin(config=config, invalid_signature="refuse")
    assert send(running, forged(signed_post(message(), KEY.sign))) == (400, "invalid-signature")
    assert send(running, signed_post(message(), OTHER_KEY.sign)) == (400, "invalid-signature")
    assert send(running, signed_post(message(), KEY.sign)) == (200, None)
    assert send(running, signed_post(message(STRANGER), OTHER_KEY.sign)) == (200, None)
    assert statuses(running) == ["valid", "unverified"]


def test_what_a_row_says_outlives_the_keys(begin: Start, config: Path) -> None:
    """Also a kill -9; a repeat of what was accepted before is a repeat, however the keys judge it now."""
    running = begin(config=config)
    known, wrong = signed_post(message(), KEY.sign), signed_post(message(), OTHER_KEY.sign)
    stranger = signed_post(message(STRANGER), OTHER_KEY.sign)
    for written in (known, wrong, stranger):
        assert send(running, written)[0] == 200
    running.kill9()
    (config.parent / "known.pem").write_bytes(OTHER_KEY.public_pem)
    config.write_text(config.read_text() + config.read_text().replace(KNOWN, STRANGER))
    running.restart()
    assert statuses(running) == ["valid", "invalid", "unverified"]
    for written in (known, wrong, stranger):
        assert send(running, written)[0] == 200
    assert statuses(running) == ["valid", "invalid", "unverified"]
    assert send(running, signed_post(message(STRANGER), OTHER_KEY.sign))[0] == 200
    assert statuses(running)[3:] == ["valid"]


def test_a_key_that_cannot_be_read_ends_the_start(begin: Start, config: Path) -> None:
    (config.parent / "known.pem").unlink()
    with pytest.raises(ServeFailedError) as failed:
        begin(config=config)
    assert failed.value.code == 2
    assert f"known.pem of signer {KNOWN}: cannot be read" in failed.value.stderr
