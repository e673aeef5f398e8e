"""Who may call the API, its paths without ``/v1``, and ``status`` (INTERFACE.md section 3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from api_kit import call, fresh, queue
from peer_kit import Peer
from test_receipts_sender import Rig, rig

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.queue_manager.api import status as status_module
from srmp_spark.queue_manager.api.health import HealthApi
from srmp_spark.queue_manager.api.status import INCOMING_STREAMS_SHOWN_MAX, Transports
from srmp_spark.testing.queue_manager import RunningQueueManager

NO_TRANSPORTS = Transports(lambda sees: [], None)


async def no_outgoing() -> list[dict[str, Any]]:
    return []


def stream_of(queue: str, number: int, gap_at: int | None = None) -> SimpleNamespace:
    """An incoming stream as ``status`` reads it."""
    return SimpleNamespace(
        queue=queue, id=f"uid:{number}\\1", guid=str(number), sequence_number=1, last_acknowledged=1, gap_at=gap_at,
        gap_next=None, reject_count=0, source_qm=None, last_access_at=number,
    )  # fmt: skip


class TestGuard:
    def test_foreign_host_and_origin_are_refused_on_loopback(
        self, running: RunningQueueManager
    ) -> None:
        assert call(running, "GET", "/v1/status", Host="evil.example")[0] == 403
        assert call(running, "GET", "/v1/status", Host="127.0.0.1.evil.example")[0] == 403
        assert call(running, "GET", "/v1/status", Origin="http://evil.example")[0] == 403
        assert call(running, "GET", "/v1/status", Origin="null")[0] == 403
        assert call(running, "GET", "/v1/status", Host="localhost")[0] == 200

    def test_paths_and_methods_that_do_not_exist(self, running: RunningQueueManager) -> None:
        assert call(running, "GET", "/v1/nothing")[0] == 404
        assert (
            call(running, "POST", "/v1/outgoing/http%3A%2F%2Fnobody.example%2Fmsmq%2Fq/pause")[0]
            == 404
        )
        assert call(running, "DELETE", "/v1/status")[0] == 405
        assert call(running, "GET", "/v1/queues/" + "a/" * 50)[0] == 400
        assert call(running, "GET", "/v1/queues/%ff")[0] == 400
        assert call(running, "GET", "/v1/queues/a%00b")[0] == 400
        assert (
            call(running, "POST", "/v1/queues/private%24%2Forders/consumers/c/register", [1])[0]
            == 400
        )

    def test_a_token_is_compared_where_one_is_set(
        self, start: Callable[..., RunningQueueManager]
    ) -> None:
        running = start(environment={"SRMP_SPARK_TOKEN": "0123456789abcdef-secret"})
        assert call(running, "GET", "/v1/status")[0] == 401
        assert call(running, "GET", "/metrics")[0] == 401
        assert call(running, "GET", "/v1/status", Authorization="Bearer wrong")[0] == 401
        assert (
            call(running, "GET", "/v1/status", Authorization="Bearer 0123456789abcdef-secret")[0]
            == 200
        )
        assert call(running, "GET", "/healthz")[0] == 200, "an orchestrator's probes carry none"
        assert "secret" not in running.stderr()


def asking(**what: Any) -> Any:
    """A call of ``status`` without a query."""
    none = {
        "text": lambda name, default=None: default,
        "integer": lambda name, low=0: None,
        "allows": lambda *_: True,
    }
    return SimpleNamespace(**none, **what)


class TestStatus:
    def test_every_key_of_the_interface_is_there(
        self, running: RunningQueueManager, client: QueueManagerClient, peer: Peer
    ) -> None:
        assert peer.send(peer.stream(1, ordinal=77)).status == 200
        status = client.status()
        assert set(status) >= {
            "queue_manager", "epoch", "version", "ready", "listening", "api", "disk_free_bytes", "state", "queues",
            "incoming_streams", "incoming_streams_count",
            "outgoing", "outgoing_seen_at", "dead_letters", "blocked_urls", "subscriptions",
        }  # fmt: skip
        assert set(status["state"]) == {
            "uri",
            "position",
            "lag_seconds",
            "receipts_left_out",
            "failed",
            "rows_gone",
        }
        assert set(queue(client, "private$/orders")) >= {
            "name", "transactional", "multicast", "first", "last", "received", "waiting",
            "bytes", "oldest_waiting_seconds", "paused",
            "consumers",
        }  # fmt: skip
        (stream,) = [
            each for each in status["incoming_streams"] if each["stream_id"].endswith("\\77")
        ]
        assert set(stream) == {
            "queue",
            "stream_id",
            "source_qm",
            "sequence_number",
            "last_acknowledged",
            "gap_at",
            "gap_to",
            "reject_count",
            "sender_identifier",
            "last_access_at",
        }
        ours = (running.guid, running.epoch, [running.listening])
        assert (status["queue_manager"], status["epoch"], status["listening"]) == ours

    def test_what_becomes_outgoing_meanwhile_is_not_in_neither_place(self, tmp_path: Path) -> None:
        """Queues first, then what goes out: whoever waits for a drain believes two zeros."""

        class Sender:
            seen_at = 0
            set_aside: tuple[dict[str, Any], ...] = ()
            dead_letters: Mapping[str, int] = {}  # nothing changes it

            def __init__(self, it: Rig) -> None:
                self.it = it

            async def status(self) -> list[dict[str, Any]]:
                await self.it.manager.leases.forwarded(self.it.manager.epoch, 1)
                return [{"queued": 0, "last_acknowledged_at": None, "next_attempt_at": None}]

        async def test(it: Rig) -> None:
            await it.take(queue="private$/elsewhere", to="http://other.example")
            it.manager.outgoing = cast("Any", Sender(it))
            health = HealthApi(it.manager, NO_TRANSPORTS, listening=[], api="")
            waiting = []
            for _ in range(2):
                answer = json.loads(
                    cast("bytes", (await health.status(asking(sees_all=True))).body)
                )
                waiting.append(
                    next(
                        each["waiting"]
                        for each in answer["queues"]
                        if each["name"] == "private$/forward$"
                    )
                )
                assert answer["outgoing_seen_at"] == "1970-01-01T00:00:00.000000Z"
            assert waiting == [1, 0]

        rig(tmp_path / "d", test, "http://other.example", store_and_forward=True)

    def test_a_token_is_told_of_its_own_queues_alone_and_others_are_not_built(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A stranger's 3,000 streams into a queue that the token is not for cost one look at the queue's name."""
        built: list[str] = []
        stream_status = status_module.stream_status
        monkeypatch.setattr(
            status_module,
            "stream_status",
            lambda each: built.append(each.queue) or stream_status(each),
        )

        async def test(it: Rig) -> None:
            streams = [
                stream_of("strangers", number) for number in range(INCOMING_STREAMS_SHOWN_MAX * 3)
            ]
            streams += [stream_of("own", 1, gap_at=None), stream_of("own", 2, gap_at=5)]
            streams.insert(0, stream_of("strangers", 9_999, gap_at=7))
            table = it.manager.receiver.streams
            monkeypatch.setattr(table, "_streams", dict(enumerate(streams)))
            multicast = {
                "deaf": [{"queue": "own"}, {"queue": "strangers"}], "sources": [{"queue": "own"}, {"queue": "strangers"}],
            }  # fmt: skip
            it.manager.multicast = cast("Any", SimpleNamespace(status=lambda: multicast))
            (it.manager.directory.path / "last-backup.json").write_text(
                '{"made_at":"2026-01-02T03:04:05Z","to":"/srv/backups"}'
            )
            health = HealthApi(it.manager, NO_TRANSPORTS, listening=[], api="")
            asked: list[str] = []

            def sees(queue: str) -> bool:
                asked.append(queue)
                return queue == "own"

            request = asking(sees_all=False, sees=sees)
            answer = json.loads(cast("bytes", (await health.status(request)).body))
            assert answer["last_backup"] == {"made_at": "2026-01-02T03:04:05Z", "to": None}
            assert {each["queue"] for each in answer["incoming_streams"]} == {"own"}
            assert (answer["incoming_streams_count"], built, asked.count("strangers")) == (
                2,
                ["own", "own"],
                3,
            )
            assert answer["multicast"] == {
                "deaf": [{"queue": "own"}],
                "sources": [{"queue": "own"}],
            }
            built.clear()
            it.manager.multicast = None
            outgoing = SimpleNamespace(status=no_outgoing, seen_at=0, set_aside=[], dead_letters={})
            it.manager.outgoing = cast("Any", outgoing)
            answer = json.loads(cast("bytes", (await health.status(asking(sees_all=True))).body))
            assert answer["incoming_streams_count"] == len(streams)
            assert len(answer["incoming_streams"]) == len(built) == INCOMING_STREAMS_SHOWN_MAX
            assert {each["gap_at"] for each in answer["incoming_streams"][:2]} == {5, 7}, (
                "gaps are for the operator: first"
            )
            monkeypatch.undo()

        rig(tmp_path / "d", test, "http://other.example")

    def test_health_and_metrics(
        self, running: RunningQueueManager, client: QueueManagerClient, peer: Peer
    ) -> None:
        fresh(client, running, "measured", 1)
        assert peer.send(peer.message("nobody")).status == 400
        assert call(running, "GET", "/healthz") == (200, "ok\n")
        assert call(running, "GET", "/readyz") == (200, "ok\n")
        status, text = call(running, "GET", "/metrics")
        assert status == 200
        for name in (
            'srmp_messages_accepted_total{queue="measured",transport="http"} 1.0',
            'srmp_messages_refused_total{reason="unknown-queue",status="400"}',
            "srmp_queue_waiting{", "srmp_queue_oldest_waiting_seconds{", "srmp_receipts_blocked_total",
            "srmp_accept_seconds_bucket{", "srmp_sync_seconds_count", "srmp_history_evicted_total 0",
            "srmp_state_lag_seconds", "srmp_disk_free_bytes",
        ):  # fmt: skip
            assert name in text, name
        for own in ("order_queue$", "forward$"):
            assert f'srmp_queue_waiting{{consumer="default",queue="private$/{own}"}}' not in text, (
                "nobody receives from it"
            )
            assert f'srmp_queue_oldest_waiting_seconds{{queue="private$/{own}"}}' not in text
