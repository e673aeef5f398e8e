"""Peers that lose replies, answer trouble, refuse, restart, and send receipts late, twice, for others or not at all.

The peer is the foreign destination, which also watches that resends carry the same identifiers and numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest
from kit import acknowledged, bodies, commit, outgoing, post, rows_to, until

from srmp_spark.testing.foreign.faults import Faults
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

QUEUE = "private$/in"
ROWS = 150


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    folder = tmp_path_factory.mktemp("sender")
    with RunningQueueManager(
        folder / "qm", resend_table="1,1,2", retransmission_timeout=0.2
    ) as queue_manager:
        yield queue_manager


@pytest.mark.parametrize(
    "faults",
    [
        "drop-before=0.05,drop-after=0.05,drop-middle=0.05",
        "503=0.05,500=0.05,502=0.05,404=0.02,301=0.02",
        "garbage=0.04,continue=0.04,huge=0.02",
        "receipt-late=0.5:0.3,receipt-twice=0.5,receipt-old=0.5,receipt-foreign=0.5,receipt-beyond=0.5",
        "receipt-none=0.5:1.5",
        "@20=restart:0.3,@90=down:0.3,@120=restart:0.1",
    ],
)
def test_every_row_is_accepted_exactly_once_and_in_order(
    running: RunningQueueManager, faults: str
) -> None:
    schedule = Faults.parse(
        faults, seed=zlib.crc32(faults.encode())
    )  # the peer's GUID comes from it too
    with Destination(
        queues={QUEUE: True}, faults=schedule, receipt_wait=0.1, repeat_receipts=True
    ) as peer:
        url = peer.url(QUEUE)
        sent = bodies(0, ROWS)
        for start in range(0, ROWS, 50):
            commit(
                running.api,
                f"{faults}/{start}".replace("/", "-"),
                rows_to(url, sent[start : start + 50]),
            )
        assert acknowledged(running, url, 60)["last_acknowledged"] >= 1
        verdict = peer.verdict({QUEUE: sent})
        assert verdict.ok, verdict.complaint()
        assert verdict.faults, "nothing struck"


def test_a_400_is_a_dead_letter_and_the_stream_goes_on_behind_it(
    running: RunningQueueManager,
) -> None:
    refuse, faults = (lambda message: message.body == b"row 3"), Faults(seed=2)
    with Destination(queues={QUEUE: True}, refuse=refuse, faults=faults, receipt_wait=0.1) as peer:
        url = peer.url(QUEUE)
        answers = post(
            f"{running.api}/v1/outgoing/messages",
            json=[{"destination": url, "body_base64": _base64(body)} for body in bodies(0, 10)],
        )
        acknowledged(running, url)
        assert [message.body for message in peer.queues[QUEUE]] == [
            body for body in bodies(0, 10) if body != b"row 3"
        ]
        assert peer.violations == []
        asked = {
            "destination": url,
            "kind": "stream",
            "serials": [each["serial"] for each in answers],
            "wait": 5,
        }
        states = post(f"{running.api}/v1/outgoing/states", json=asked)["states"]
        assert states == ["dead" if n == 3 else "acknowledged" for n in range(10)]


def test_the_state_says_what_is_going_on(running: RunningQueueManager) -> None:
    with Destination(queues={QUEUE: True}, faults=Faults(seed=3)) as peer:
        url = peer.url(QUEUE)
    commit(running.api, "nobody-listens", rows_to(url, [b"x"]))
    entry = until(
        lambda: (e := outgoing(running, url)) and e["state"] == "Inactive" and e, "it is Inactive"
    )
    assert entry["queued"] == 1
    assert entry["last_error"]
    assert entry["next_attempt_at"]
    post(f"{running.api}/v1/outgoing/{_quoted(url)}/pause")
    assert outgoing(running, url)["state"] == "OnHold"
    post(f"{running.api}/v1/outgoing/{_quoted(url)}/drop")
    assert outgoing(running, url) == {}


def test_on_hold_nothing_leaves_until_it_is_resumed(running: RunningQueueManager) -> None:
    with Destination(queues={QUEUE: True}, faults=Faults(seed=4), receipt_wait=0.1) as peer:
        url = peer.url(QUEUE)
        commit(running.api, "before-the-pause", rows_to(url, bodies(0, 5)))
        acknowledged(running, url)
        post(f"{running.api}/v1/outgoing/{_quoted(url)}/pause")
        commit(running.api, "in-the-pause", rows_to(url, bodies(5, 10)))
        assert outgoing(running, url)["state"] == "OnHold"
        assert len(peer.queues[QUEUE]) == 5
        post(f"{running.api}/v1/outgoing/{_quoted(url)}/resume")
        acknowledged(running, url)
        verdict = peer.verdict({QUEUE: bodies(0, 10)})
        assert verdict.ok, verdict.complaint()


def _base64(body: bytes) -> str:
    import base64

    return base64.b64encode(body).decode()


def _quoted(url: str) -> str:
    from urllib.parse import quote

    return quote(url, safe="")
