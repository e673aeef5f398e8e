"""Pages and the summary of ``status``, and that no answer about many queues holds the loop."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import generate_latest
from test_api_status import NO_TRANSPORTS, no_outgoing, stream_of
from test_receipts_sender import Rig, rig

from srmp_spark.errors import ApiError
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.queue_manager.api import status_summary
from srmp_spark.queue_manager.api.gauges import readings
from srmp_spark.queue_manager.api.health import HealthApi
from srmp_spark.queue_manager.api.port_side import sliced_json
from srmp_spark.queue_manager.api.port_side.http import Bodies, Request, Response
from srmp_spark.queue_manager.api.queues import QueuesApi
from srmp_spark.queue_manager.api.status_summary import SUMMARY_SHOWN
from srmp_spark.queue_manager.metrics import SAMPLES_AT_ONCE, _Labelled, _Only
from srmp_spark.queue_manager.slices import Slices
from srmp_spark.queue_manager.trust.tokens import Token

NAMES = [f"private$/many-{number:03d}" for number in range(250)]


def asking(token: Token | None = None, **query: str) -> Request:
    """A call with a query."""
    read = {name: [value] for name, value in query.items()}
    return Request(
        "GET", "/v1/status", {}, {}, read, cast("Any", None), token=token, bodies=Bodies()
    )


def many(tmp_path: Path, test: Callable[[Rig, HealthApi], Any]) -> None:
    """A queue manager with 250 queues besides those of the rig."""

    async def run(it: Rig) -> None:
        for name in reversed(NAMES):
            await it.manager.queues.create(name, transactional=False)
        outgoing = SimpleNamespace(
            status=no_outgoing, seen_at=0, set_aside=[], last_seen=[], dead_letters={"refused": 1}
        )
        it.manager.outgoing = cast("Any", outgoing)
        await test(it, HealthApi(it.manager, NO_TRANSPORTS, listening=[], api=""))

    rig(tmp_path / "d", run, "http://other.example")


async def asked(health: HealthApi, **query: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(cast("bytes", (await health.status(asking(**query))).body))
    return answer


def test_pages_are_every_queue_once_whatever_is_made_in_between(tmp_path: Path) -> None:
    async def test(it: Rig, health: HealthApi) -> None:
        whole = await asked(health)
        assert "queues_after" not in whole, "who asked for everything is told nothing of pages"
        for read in (lambda **query: asked(health, **query), lambda **query: listed(it, **query)):
            found: list[str] = []
            after: str | None = ""
            while after is not None:
                page = await read(limit="90", after=after)
                found += [each["name"] for each in page["queues"]]
                after = page["queues_after"]
                if len(found) == 90:
                    await it.manager.queues.create("private$/a-new-one", transactional=False)
                    await it.manager.queues.create("private$/zz-new-one", transactional=False)
            assert sorted(found) == found
            assert set(found) - {each["name"] for each in whole["queues"]} <= {
                "private$/a-new-one",
                "private$/zz-new-one",
            }
            assert set(found) >= {each["name"] for each in whole["queues"]}
            assert len(set(found)) == len(found)

    async def listed(it: Rig, **query: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            cast("bytes", (await QueuesApi(it.manager, None).list(asking(**query))).body)
        )
        return answer

    many(tmp_path, test)


def test_a_name_or_a_glob_shows_its_queues_and_their_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(it: Rig, health: HealthApi) -> None:
        streams = [
            stream_of(NAMES[7], 1),
            stream_of(NAMES[8], 2),
            stream_of("elsewhere", 3, gap_at=4),
        ]
        monkeypatch.setattr(it.manager.receiver.streams, "_streams", dict(enumerate(streams)))
        one = await asked(health, queues=NAMES[7].upper().replace("/", "\\"))
        assert [each["name"] for each in one["queues"]] == [NAMES[7]]
        assert (
            [each["queue"] for each in one["incoming_streams"]],
            one["incoming_streams_count"],
        ) == ([NAMES[7]], 1)
        some = await asked(health, queues="private$/many-00?", limit="3")
        assert ([each["name"] for each in some["queues"]], some["queues_after"]) == (
            NAMES[:3],
            NAMES[2],
        )
        assert [each["queue"] for each in some["incoming_streams"]] == NAMES[7:9], (
            "of all that the glob stands for"
        )
        last = await asked(health, queues="private$/many-00?", limit="3", after=NAMES[6])
        assert ([each["name"] for each in last["queues"]], last["queues_after"]) == (
            NAMES[7:10],
            None,
        )
        assert (await asked(health, queues="nobody"))["queues"] == []
        for query in (
            {"limit": "0"},
            {"limit": "x"},
            {"limit": "10001"},
            {"queues": ""},
            {"queues": "a/b/c"},
        ):
            with pytest.raises(ApiError, match=next(iter(query))):
                await asked(health, **query)
        with pytest.raises(ApiError, match="summary"):
            await asked(health, summary="1", limit="3")
        monkeypatch.undo()

    many(tmp_path, test)


def test_the_summary_has_totals_and_what_needs_a_look_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(it: Rig, health: HealthApi) -> None:
        manager, now = it.manager, it.manager.clock.utc()
        quota = 1_000
        manager.config = dataclasses.replace(manager.config, queue_quota_bytes=quota)
        for number, name in enumerate(NAMES[:100]):
            manager.catalogue.find(name).stored(1, 2, 10, now - number * 1_000_000)
        manager.catalogue.find(NAMES[200]).damage["seal"] = "rows cannot be read"
        await manager.queues.pause(NAMES[201], paused=True)
        manager.catalogue.find(NAMES[202]).stored(1, 1, quota, now)
        streams = [
            stream_of(NAMES[number % 9], number, gap_at=3 if number % 50 == 0 else None)
            for number in range(3_000)
        ]
        monkeypatch.setattr(manager.receiver.streams, "_streams", dict(enumerate(streams)))
        sent = {
            "last_error": None,
            "awaiting_stream_receipt": 1,
            "awaiting_final_stream_receipt": 0,
            "in_doubt": 0,
        }
        sent |= {"last_acknowledged_at": None, "next_attempt_at": None}
        outgoing = [
            {**sent, "destination": f"d{n}", "state": "Connected", "queued": n} for n in range(50)
        ]
        outgoing += [
            {**sent, "destination": f"w{n}", "state": "Waiting", "queued": n, "last_error": "down"}
            for n in range(30)
        ]

        async def status() -> list[dict[str, Any]]:
            return outgoing

        manager.outgoing.status = status  # type: ignore[method-assign]
        found = await asked(health, summary="1")
        totals = found["totals"]
        whole = await asked(health)
        assert totals["queues"] == {
            "count": len(whole["queues"]), "waiting": sum(each["waiting"] for each in whole["queues"]),
            "bytes": sum(each["bytes"] for each in whole["queues"]), "damaged": 1, "paused": 1, "full": 1,
            "oldest_waiting_seconds": pytest.approx(99.0, abs=0.5),
        }  # fmt: skip
        assert [each["name"] for each in found["queues"][:5]] == [
            NAMES[200],
            NAMES[202],
            NAMES[201],
            NAMES[99],
            NAMES[98],
        ]
        assert (
            len(found["queues"])
            == len(found["incoming_streams"])
            == len(found["outgoing"])
            == SUMMARY_SHOWN
        )
        assert found["queues"][3] == next(
            each for each in whole["queues"] if each["name"] == NAMES[99]
        ) | {"oldest_waiting_seconds": pytest.approx(99.0, abs=0.5)}
        assert totals["incoming_streams"] == {"count": 3_000, "gaps": 60}
        assert all(each["gap_at"] == 3 for each in found["incoming_streams"])
        assert [each["destination"] for each in found["outgoing"][:2]] == ["w29", "w28"]
        assert totals["outgoing"] == {
            "count": 80, "queued": sum(range(50)) + sum(range(30)), "awaiting_stream_receipt": 80,
            "awaiting_final_stream_receipt": 0, "in_doubt": 0, "states": {"Connected": 50, "Waiting": 30},
        }  # fmt: skip
        assert set(whole) - set(found) == {"incoming_sequences"}, (
            "what reads status finds its keys, with fewer entries"
        )
        monkeypatch.undo()

    many(tmp_path, test)


def test_the_summary_tells_a_token_of_its_own_queues_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(it: Rig, health: HealthApi) -> None:
        token = Token(name="reader", digest=b"", queues=(NAMES[3],), verbs=frozenset({"read"}))
        it.manager.catalogue.find(NAMES[3]).stored(1, 2, 10, it.manager.clock.utc())
        it.manager.catalogue.find(NAMES[4]).stored(1, 5, 10, it.manager.clock.utc())
        streams = [stream_of(NAMES[3], 1, gap_at=2), stream_of(NAMES[4], 2, gap_at=2)]
        monkeypatch.setattr(it.manager.receiver.streams, "_streams", dict(enumerate(streams)))
        found = json.loads(cast("bytes", (await health.status(asking(token, summary="1"))).body))
        assert (found["totals"]["queues"]["count"], found["totals"]["queues"]["waiting"]) == (1, 2)
        assert found["totals"]["incoming_streams"] == {"count": 1, "gaps": 1}
        assert (
            [each["name"] for each in found["queues"]]
            == [each["queue"] for each in found["incoming_streams"]]
            == [NAMES[3]]
        )
        assert (found["outgoing"], found["set_aside"], found["quota"]["machine_bytes_waiting"]) == (
            [],
            [],
            None,
        )
        assert found["dead_letters"] == {}, "those of all destinations"
        assert ORDER_QUEUE not in json.dumps(found)
        monkeypatch.undo()

    many(tmp_path, test)


def test_no_answer_about_many_queues_holds_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a turn of the loop at least for each hundred queues: a slice that is over is noticed."""
    turns: list[str] = []

    class Turns:
        async def turn(self) -> None:
            turns.append("")

        async def __aenter__(self) -> Turns:
            return self

        async def __aexit__(self, *_: object) -> None:
            return

    async def test(it: Rig, health: HealthApi) -> None:
        monkeypatch.setattr(it.manager, "slices", SimpleNamespace(work=Turns))
        monkeypatch.setattr(sliced_json, "ENTRIES_AT_ONCE", 50)
        for call in (
            lambda: health.status(asking()), lambda: health.status(asking(summary="1")), lambda: health.metrics(asking()),
            lambda: health.status(asking(limit="3")), lambda: QueuesApi(it.manager, None).list(asking()),
        ):  # fmt: skip
            turns.clear()
            await call()
            assert len(turns) >= 2
        turns.clear()
        await health.status(asking())
        assert len(turns) >= 2 * len(NAMES)
        turns.clear()
        await health.metrics(asking())
        assert len(turns) >= 3 * len(NAMES) // SAMPLES_AT_ONCE
        monkeypatch.undo()

    many(tmp_path, test)


def test_what_is_written_in_slices_is_what_is_written_at_once(tmp_path: Path) -> None:
    async def test(it: Rig, health: HealthApi) -> None:
        async with Slices().work() as work:
            for value in (
                {},
                {"a": []},
                {"a": [1], "b": None},
                {"n": list(range(333)), "t": "\u20ac", "d": {"x": [1, 2]}},
            ):
                assert (await sliced_json.sliced_json(value, work)).body == Response.json(
                    value
                ).body
        for name in NAMES:
            it.manager.metrics.accepted[name, 'ht"tp'] += 1
        at_once = b"".join(
            generate_latest(
                _Only(each.of(list(each.samples)) if isinstance(each, _Labelled) else each)
            )
            for each in it.manager.metrics._families(readings(it.manager, NO_TRANSPORTS))
        )
        found = cast("bytes", (await health.metrics(asking())).body)
        without_times = lambda text: [  # noqa: E731
            line for line in text.splitlines() if b"oldest" not in line and b"free" not in line
        ]
        assert without_times(found) == without_times(at_once)
        assert found.count(b"srmp_queue_bytes{") > len(NAMES)

    many(tmp_path, test)


def test_the_summary_is_cut_where_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(it: Rig, health: HealthApi) -> None:
        monkeypatch.setattr(status_summary, "SUMMARY_SHOWN", 3)
        it.manager.receipts.blocked.update({f"host-{number}": 1 for number in range(9)})
        found = await asked(health, summary="1")
        assert (
            len(found["blocked_urls"]),
            found["totals"]["blocked_urls"],
            len(found["queues"]),
        ) == (3, {"count": 9}, 3)
        monkeypatch.undo()

    many(tmp_path, test)
