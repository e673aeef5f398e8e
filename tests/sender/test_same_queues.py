"""Two names of one queue: told when the second stream begins, and when a stream's receipts never come because of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from kit import acknowledged, commit, outgoing, post, rows_to, until

from srmp_spark.interface import ExitCode
from srmp_spark.queue_manager.sender.reporting import same_queues
from srmp_spark.queue_manager.sender.reporting.same_queues import REPEATS_MIN, SameQueue, SameQueues
from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from srmp_spark.srmp.sending.sender import Sender
from srmp_spark.testing.queue_manager import RunningQueueManager

IDENTITY = "caf195ea-615c-4264-ae08-11a4e60194c0"
ADDRESS, OTHER_ADDRESS = "192.0.2.7", "2001:db8::7"
NOW = 1_800_000_000_000_000


class Desk:
    """An engine with streams, and what is found in them."""

    def __init__(self, *redirected: str) -> None:
        self.sender = Sender(IDENTITY)
        self.found = SameQueues(
            self.sender, lambda url: "http://proxy/x" if url in redirected else url
        )

    def begins(self, url: str, *addresses: str) -> OutgoingStream:
        """A stream begins, whose host has these addresses."""
        key = QueueKey(url, "stream")
        self.sender.enqueue(
            url, "stream", 5, NOW, receipts_url="http://here/msmq/private$/order_queue$"
        )
        self.found.learnt(key, addresses)
        stream = self.sender.get(*key)
        assert isinstance(stream, OutgoingStream)
        return stream

    def of(self, url: str) -> SameQueue | None:
        return self.found.of(QueueKey(url, "stream"))


def is_repeated(stream: OutgoingStream, times: int = REPEATS_MIN) -> None:
    """All of it was answered 200, this often, and there is no receipt."""
    stream.repeats, stream.last_status = times, 200
    stream.cursor = stream.last_live = stream.end


def is_acknowledged(stream: OutgoingStream, at: int = NOW + 1) -> None:
    stream.acknowledged_to, stream.last_acknowledged_at = stream.base + 1, at


@pytest.mark.parametrize(
    ("one", "two", "is_told"),
    [
        ("http://m/msmq/private$/q", "http://m.example.com/msmq/private$/q", True),
        ("http://m/msmq/private$/q", "https://m/msmq/private$/q", True),
        ("http://m:8080/msmq/private$/q", "https://m.example.com/msmq/private$/q", True),
        ("http://m/msmq/private$/q", "http://m.example.com/msmq/private$/r", False),
        ("http://m:8080/msmq/private$/q", "http://m:8081/msmq/private$/q", False),
        ("http://m:8080/msmq/private$/q", "http://m.example.com:8081/msmq/private$/q", False),
        (
            "http://[2001:db8::7]/msmq/private$/q",
            "http://[2001:DB8:0::7]/msmq/private$/q",
            True,
        ),  # as version 0.1 stored it
        ("http://m/msmq/private$/q", "http://m/msmq/private$/q?x=1", False),
    ],
)
def test_one_address_for_two_names_is_told_when_the_second_stream_begins(
    one: str, two: str, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    first = desk.begins(one, OTHER_ADDRESS, ADDRESS)
    assert (desk.of(one), caplog.text) == (None, "")
    desk.begins(two, ADDRESS)
    desk.found.look()
    for url, other in ((one, two), (two, one)):
        found = desk.of(url)
        assert (found is not None) == is_told
        if found is not None:
            assert (found.other, found.receipts_missing) == (other, False)
            assert ADDRESS in found.text
    for addresses in (
        (ADDRESS, OTHER_ADDRESS),
        (OTHER_ADDRESS, ADDRESS),
    ):  # it connects again, and again
        desk.found.learnt(QueueKey(one, "stream"), addresses)
        desk.begins(two, ADDRESS)
    assert caplog.text.count("sender.same_queue destination") == is_told, "told once"

    first.drop(NOW)
    desk.found.look()
    assert desk.of(two) is None, "there is one stream now"


def test_a_stream_that_begins_on_a_connection_that_is_open_is_told_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both connections were made while the other stream held nothing."""
    one, two = "http://m/msmq/private$/q", "http://m.example.com/msmq/private$/q"
    desk = Desk()
    desk.begins(one, ADDRESS).drop(NOW)
    desk.begins(two, ADDRESS).drop(NOW)
    desk.found.look()
    assert caplog.text == ""
    for url in (two, one):
        desk.sender.enqueue(
            url, "stream", 1, NOW, receipts_url="http://here/msmq/private$/order_queue$"
        )
        desk.found.leaves(QueueKey(url, "stream"))
    assert [found.other for url in (one, two) if (found := desk.of(url)) is not None] == [two, one]
    assert caplog.text.count("sender.same_queue destination") == 1


def test_another_address_or_a_proxy_is_no_second_name(caplog: pytest.LogCaptureFixture) -> None:
    urls = [f"http://{host}/msmq/private$/q" for host in ("a", "b", "c", "d")]
    desk = Desk(*urls[2:])
    desk.begins(urls[0], ADDRESS)
    desk.begins(urls[1], OTHER_ADDRESS)
    desk.begins(urls[2], ADDRESS)
    desk.begins(urls[3], ADDRESS)
    assert [desk.of(url) for url in urls] == [None] * 4
    assert caplog.text == ""


@pytest.mark.parametrize("address", [ADDRESS, None])
def test_missing_receipts_are_told_while_a_newer_stream_goes_on(
    address: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """To the same address, or to the same queue path where the host is another one as far as anybody can tell."""
    one, two = "http://m/msmq/private$/q", "http://m.example.com/msmq/private$/q"
    desk = Desk()
    older = desk.begins(one, ADDRESS)
    newer = desk.begins(two, address or OTHER_ADDRESS)
    is_repeated(older)
    is_repeated(newer)
    desk.found.look()
    assert not any(found.receipts_missing for url in (one, two) if (found := desk.of(url))), (
        "neither goes on"
    )
    is_acknowledged(newer)
    desk.found.look()
    desk.found.look()
    found = desk.of(one)
    assert found is not None
    assert (found.receipts_missing, found.other) == (True, two)
    assert found.text.startswith(f"5 messages to {one} were answered 200 again and again")
    assert (f"the same address ({ADDRESS})" if address else "the same queue path") in found.text
    assert f"srmp-spark streams reset --destination '{one}'" in found.hint
    assert ("two machines" in found.hint) == (address is None)
    assert ("either the peer takes both for one queue" in found.text) == (address is None), (
        "nobody knows"
    )
    assert caplog.text.count(f"sender.same_queue destination={one} other={two}: 5 messages") == 1, (
        "told once"
    )

    is_acknowledged(older, NOW + 2)
    desk.found.look()
    found = desk.of(one)
    assert found is None or not found.receipts_missing


@pytest.mark.parametrize("why", ["no repeats", "refused", "older", "before", "another path"])
def test_other_reasons_for_a_missing_receipt_are_not_told_as_this_one(why: str) -> None:
    one, two = (
        "http://m/msmq/private$/q",
        f"http://n/msmq/private$/{'r' if why == 'another path' else 'q'}",
    )
    desk = Desk()
    if why == "older":
        one, two = two, one
    streams = {
        url: desk.begins(url, ADDRESS)
        for url in (("http://n/msmq/private$/q", two) if why == "older" else (one, two))
    }
    stuck, other = (streams[one], streams[two]) if why != "older" else (streams[two], streams[one])
    is_repeated(stuck, 1 if why == "no repeats" else REPEATS_MIN)
    stuck.last_status = 503 if why == "refused" else 200
    is_acknowledged(other, NOW if why == "before" else NOW + 1)
    desk.found.look()
    found = desk.of(stuck.key.destination)
    assert found is None or not found.receipts_missing


def test_what_is_remembered_has_an_end() -> None:
    """Thousands of names of one address are compared with a few of them, and what is forgotten by the engine is here, too."""
    desk = Desk()
    urls = [f"http://n{number}/msmq/private$/q" for number in range(3 * same_queues.NAMES_MAX)]
    for url in urls:
        desk.begins(url, ADDRESS)
    assert [len(names) for names in desk.found._names.values()] == [same_queues.NAMES_MAX]
    for url in urls:
        desk.sender.drop(url, "stream", NOW)
        changes = desk.sender.changes()
        assert changes.dead_letters
        assert desk.sender.forget(url, "stream")
    desk.found.look()
    assert (desk.found._known, desk.found._names, desk.found._near, desk.found._logged._keys) == (
        {},
        {},
        {},
        set(),
    )


@pytest.mark.timeout(120)
def test_two_names_of_a_peer_that_keeps_one_stream(tmp_path: Path) -> None:
    """The older stream is never acknowledged; it is said where an operator looks, and what is said to do helps."""
    options = {
        "resend_table": "0.8",
        "retransmission_timeout": 0.2,
    }  # longer than the peer waits before a receipt
    with (
        RunningQueueManager(
            tmp_path / "peer",
            queues=["private$/in:transactional"],
            allow_url=["http://127.0.0.1:*"],
        ) as peer,
        RunningQueueManager(tmp_path / "qm", **options) as running,
    ):
        names = [
            f"http://{host}:{peer.endpoint[1]}/msmq/private$/in"
            for host in ("127.0.0.1", "localhost")
        ]
        for number, name in enumerate(names):  # from now on both have a connection
            commit(running.api, f"alone {number}", rows_to(name, [f"alone {number}".encode()]))
            acknowledged(running, name)
        assert "sender.same_queue" not in running.stderr()
        commit(running.api, "1", [row for name in names for row in rows_to(name, [b"1", b"2"])])
        until(
            lambda: "lead to one address (127.0.0.1)" in running.stderr(),
            "it is told when the second stream begins",
        )
        ordinal = lambda name: int(outgoing(running, name)["stream_id"].rpartition("\\")[2])  # noqa: E731  # one line is enough
        one, two = sorted(names, key=ordinal)
        acknowledged(running, two)
        found = until(
            lambda: (
                (same := outgoing(running, one)["same_queue"]) and same["receipts_missing"] and same
            ),
            "it is found out",
        )
        assert found["destination"] == two
        line = [sys.executable, "-m", "srmp_spark.cli", "doctor", "--api", running.api]
        doctor = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        check = next(
            each
            for text in doctor.stdout.splitlines()
            if (each := json.loads(text))["check"] == "same-queue"
        )
        assert (check["ok"], check["hint"], doctor.returncode) == (
            False,
            found["hint"],
            ExitCode.CHECK_FAILED,
        )
        assert (
            f"sender.same_queue destination={one} other={two}: 2 messages to {one} were "
            "answered 200" in running.stderr()
        )

        post(f"{running.api}/v1/outgoing/{quote(one, safe='')}/reset")
        acknowledged(running, one)
        assert until(lambda: outgoing(running, one)["same_queue"] is None, "it is over")


def test_a_name_that_leads_elsewhere_now_is_no_second_name_any_more() -> None:
    one, two = "http://m/msmq/private$/q", "http://m.example.com/msmq/private$/q"
    desk = Desk()
    desk.begins(one, ADDRESS)
    desk.begins(two, ADDRESS)
    assert desk.of(one) is not None
    desk.found.learnt(QueueKey(two, "stream"), [OTHER_ADDRESS])
    assert (desk.of(one), desk.of(two)) == (None, None)
