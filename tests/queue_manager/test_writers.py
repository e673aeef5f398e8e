"""Who may write to a queue at the SRMP port, in place of the access check of [MC-MQSRM] 3.1.5.1.12 (INTERFACE.md section 7)."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from peer_kit import Peer, Reply

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import FORWARD_QUEUE, ORDER_QUEUE
from srmp_spark.queue_manager.configuration.config import load
from srmp_spark.queue_manager.srmp_port.request_head import without_credentials
from srmp_spark.queue_manager.trust.tokens import Token, Tokens
from srmp_spark.queue_manager.trust.writers import Caller, Writers, open_forwarding, parse_writers
from srmp_spark.testing.queue_manager import RunningQueueManager

SECRET = "0123456789abcdef-partner"
PARTNER = Token(
    name="partner",
    digest=hashlib.sha256(SECRET.encode()).digest(),
    queues=("private$/orders",),
    verbs=frozenset(("enqueue",)),
)
READER = Token(
    name="reader",
    digest=hashlib.sha256(b"0123456789abcdef-reader").digest(),
    verbs=frozenset(("read",)),
)
ORDERS = "private$/orders"


def writers(*entries: dict[str, Any]) -> Writers:
    return Writers(parse_writers("writer", list(entries)), Tokens((PARTNER, READER)))


def caller(
    peer: str = "192.0.2.7:1801", name: str | None = None, authorization: str = ""
) -> Caller:
    return Caller(peer, name, authorization.encode())


@pytest.mark.parametrize(
    ("entry", "caller", "status"),
    [
        ({"address": "192.0.2.0/24"}, caller(), None),
        ({"address": "192.0.2.7"}, caller(), None),
        ({"address": "192.0.2.0/24"}, caller("[::ffff:192.0.2.7]:9"), None),
        ({"address": ["198.51.100.0/24", "2001:db8::/32"]}, caller("[2001:db8::1]:9"), None),
        ({"address": "198.51.100.0/24"}, caller(), 403),
        ({"address": "192.0.2.0/24"}, caller(""), 403),
        ({"certificate": "CN=machine1"}, caller(name="CN=machine1"), None),
        ({"certificate": "CN=machine1"}, caller(name="CN=machine1,O=Other"), 403),
        ({"certificate": "CN=machine1"}, caller(name="cn=machine1"), 403),
        ({"certificate": "CN=machine1"}, caller(), 403),
        ({"token": "partner"}, caller(authorization=f"Bearer {SECRET}"), None),
        ({"token": "partner"}, caller(authorization=f"Bearer {SECRET}x"), 401),
        ({"token": "partner"}, caller(authorization="Bearer 0123456789abcdef-reader"), 403),
        ({"token": "partner"}, caller(authorization=f"Basic {SECRET}"), 403),
        ({"token": "partner"}, caller(), 403),
        (
            {"token": "partner", "address": "192.0.2.0/24"},
            caller(authorization=f"Bearer {SECRET}"),
            None,
        ),
        (
            {"token": "partner", "address": "198.51.100.0/24"},
            caller(authorization=f"Bearer {SECRET}"),
            403,
        ),
    ],
)
def test_what_an_entry_names_must_all_be_true(
    entry: dict[str, Any], caller: Caller, status: int | None
) -> None:
    refused = writers({"queue": ORDERS, **entry}).refuses(ORDERS, caller)
    assert (refused.status if refused else None) == status


def test_one_of_several_entries_is_enough_and_other_queues_are_open() -> None:
    rule = writers(
        {"queue": "Private$\\Orders", "certificate": "CN=a"},
        {"queue": "private$/o*", "certificate": "CN=b"},
        {"queue": "private$/order_queue$", "address": "203.0.113.1"},
    )
    assert rule.refuses(ORDERS, caller(name="CN=a")) is None
    assert rule.refuses(ORDERS, caller(name="CN=b")) is None
    assert rule.refuses(ORDERS, caller(name="CN=c")) is not None
    assert rule.refuses("private$/other", caller(name="CN=a")) is not None, "the glob is about it"
    assert rule.refuses("private$/payments", caller()) is None


@pytest.mark.parametrize("glob", ["*", "private$/*", "private$/order*", "private$/forward[$]"])
def test_our_own_queues_are_in_no_glob(glob: str) -> None:
    """Or our peers' stream receipts would be refused, and nothing that we send ever acknowledged."""
    rule = writers({"queue": glob, "address": "203.0.113.1"})
    assert rule.refuses(ORDER_QUEUE, caller()) is None
    assert rule.refuses(FORWARD_QUEUE, caller()) is None
    named = writers(
        {"queue": ORDER_QUEUE, "address": "203.0.113.1"},
        {"queue": FORWARD_QUEUE, "address": "203.0.113.1"},
    )
    assert named.refuses(ORDER_QUEUE, caller()) is not None
    assert named.refuses(FORWARD_QUEUE, caller()) is not None


def test_who_restricts_writers_is_told_that_forwarding_is_open() -> None:
    address = {"address": "203.0.113.1"}
    assert open_forwarding(parse_writers("writer", [])) is None
    assert "private$/forward$" in str(
        open_forwarding(parse_writers("writer", [{"queue": "*", **address}]))
    )
    assert (
        open_forwarding(
            parse_writers(
                "writer", [{"queue": "*", **address}, {"queue": FORWARD_QUEUE, **address}]
            )
        )
        is None
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('queue = "private$/a"', "give certificate, address or token"),
        ('address = "10.0.0.0/8"', "a queue is a name or a glob"),
        ('queue = "a"\naddress = "10.0.0.1/8"', "has host bits set"),
        ('queue = "a"\naddress = "qm.example"', "an address or a network"),
        ('queue = "a"\naddress = []', "would let no sender in"),
        ('queue = "a"\ncertificate = 7', "certificate is a text"),
        ('queue = "a"\ntoken = "nobody"', "there is no [[token]] named 'nobody'"),
        ('queue = "a"\ncertificate = "CN=a"', "only with --listen-https and --client-ca"),
        ('queue = "a"\nadress = "10.0.0.1"', "did you mean 'address'?"),
        ('queue = "a"\ntoken = "reader"', "needs the verb enqueue"),
        ('queue = "b"\ntoken = "elsewhere"', "needs the verb enqueue for that queue"),
    ],
)
def test_an_entry_that_lets_nobody_in_is_an_error(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    file.write_text(
        f'[[token]]\nname = "reader"\nsha256 = "{digest}"\nverbs = ["read"]\n'
        f'[[token]]\nname = "elsewhere"\nsha256 = "{digest[::-1]}"\nverbs = '
        '["enqueue"]\nqueues = ["a"]\n'
        f"[[writer]]\n{text}\n"
    )
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        load({"data_dir": "d", "config": str(file)}, {})


def test_no_secret_is_stored() -> None:
    head = (
        b"POST / HTTP/1.1\r\nAuthorization: Bearer s\r\nHost: h\r\nAUTHORIZATION : "
        b"x\r\nX-Authorization: kept\r\n"
        b"proxy-authorization: Basic s\r\nCookie: s=1\r\ncookie:s=2\r\nCookies: "
        b"kept\r\nCookie:\r\n\r\n"
    )
    post, length = without_credentials(head + b"\r\nCookie: in the body\r\n", len(head))
    assert (
        post[:length]
        == b"POST / HTTP/1.1\r\nHost: h\r\nX-Authorization: kept\r\nCookies: kept\r\n\r\n"
    )
    assert post[length:] == b"\r\nCookie: in the body\r\n"
    same = b"POST / HTTP/1.1\r\nHost: h\r\n\r\n"
    assert without_credentials(same + b"x", len(same)) == (same + b"x", len(same))


def test_at_a_real_queue_manager(start: Callable[..., RunningQueueManager], tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"""
[[token]]
name = "partner"
sha256 = "{hashlib.sha256(SECRET.encode()).hexdigest()}"
queues = ["private$/orders"]
verbs = ["enqueue", "read"]
[[writer]]
queue = "private$/orders"
token = "partner"
[[writer]]
queue = "private$/payments"
address = "192.0.2.1"
""")
    running = start(
        queues=[ORDERS, "private$/payments:transactional", "private$/open"], config=config
    )
    peer = Peer(running)
    bearer = {"Authorization": f"Bearer {SECRET}"}
    message = peer.message()
    assert peer.send(message) == Reply(403, "not-a-writer; [MC-MQSRM] 3.1.5.1.12")
    assert peer.send(message, {"Authorization": "Bearer 0123456789abcdef-nobody"}).status == 401
    assert peer.send(message, bearer).status == 200, "a refusal has left no trace of the identifier"
    assert peer.send(message).status == 403, "a repeat is no way in"
    assert peer.send(peer.stream(1)).status == 403
    assert peer.send(peer.message("private$/open")).status == 200
    assert peer.send(peer.message("private$/open"), bearer).status == 200
    for name in (
        "Proxy-Authorization",
        "cookie",
    ):  # a proxy's, or of something before us: never stored either
        assert (
            peer.send(
                peer.message("private$/open"), {name: f"Basic {SECRET}", "X-Kept": "by-name"}
            ).status
            == 200
        )
    assert peer.send(peer.message("private$/none")).status == 400, (
        "unknown is unknown, whoever asks"
    )
    peer.close()

    status = requests.get(f"{running.api}/v1/status", headers=bearer, timeout=20).json()
    assert [(each["name"], each["last"]) for each in status["queues"]] == [(ORDERS, 1)]
    assert running.stop() == 0
    with sqlite3.connect(f"file:{running.data_dir}/store.db?mode=ro", uri=True) as database:
        assert database.execute("SELECT count(*) FROM streams").fetchone() == (0,), (
            "no stream began"
        )
    stored = {file: file.read_bytes() for file in running.data_dir.rglob("*") if file.is_file()}
    assert any(b"X-Kept: by-name" in content for content in stored.values()), (
        "other headers are kept, where one can look"
    )
    assert [file for file, content in stored.items() if SECRET.encode() in content] == []
    log = running.stderr()
    assert SECRET not in log
    assert (
        "to let it in, a [[writer]] with queue = 'private$/payments' and address = '127.0.0.1'"
        in log
    )
    assert log.count("writer.refused queue=private$/orders") == 1, "each sender once"
