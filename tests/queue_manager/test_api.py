"""The API of a running queue manager (INTERFACE.md section 3)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.client
import io
import json
import threading
import time
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from api_kit import address, call, fresh, queue
from peer_kit import Peer

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError
from srmp_spark.holder import Holder
from srmp_spark.queue_manager.api.app import ApiApp
from srmp_spark.queue_manager.api.port_side.http import Response, usage
from srmp_spark.queue_manager.api.port_side.router import Router
from srmp_spark.queue_manager.queues.catalogue import Catalogue
from srmp_spark.rows import dense
from srmp_spark.rows.columns import arrow_schema
from srmp_spark.testing.foreign.messages import ForeignStream
from srmp_spark.testing.queue_manager import RunningQueueManager


class TestQueues:
    def test_put_is_idempotent_and_the_kind_is_fixed(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        path = "/v1/queues/private%24%2Fmade"
        assert call(running, "PUT", path, {"transactional": True})[0] == 201
        status, described = call(running, "PUT", path)
        assert (status, described["name"], described["transactional"]) == (
            200,
            "private$/made",
            True,
        )
        status, error = call(running, "PUT", path, {"transactional": False})
        assert (status, error["error"]["code"]) == (409, "queue-kind")
        assert set(error["error"]) == {"code", "message", "hint", "section"}
        assert call(running, "DELETE", path)[0] == 200
        assert call(running, "GET", path)[0] == 404

    def test_a_deleted_queue_that_comes_back_goes_on_counting(
        self, running: RunningQueueManager, client: QueueManagerClient, peer: Peer
    ) -> None:
        fresh(client, running, "again", 3)
        client.delete_queue("again")
        assert peer.send(peer.message("again")).status == 400
        client.put_queue("again")
        assert client.range("again").first == 4
        fresh(client, running, "again", 0)
        assert queue(client, "again")["last"] == 3

    @pytest.mark.parametrize(
        "spelling", ["private%24%2Forders", "PRIVATE$%5CORDERS", "private$/orders"]
    )
    def test_any_spelling_of_a_name_is_the_queue(
        self, running: RunningQueueManager, spelling: str
    ) -> None:
        status, found = call(running, "GET", f"/v1/queues/{spelling}")
        assert (status, found["name"]) == (200, "private$/orders")

    def test_pause_answers_503_and_resume_takes_it_back(
        self, running: RunningQueueManager, client: QueueManagerClient, peer: Peer
    ) -> None:
        client.put_queue("paused")
        client.pause("paused")
        assert queue(client, "paused")["paused"] is True
        refused = peer.send(peer.message("paused"))
        assert (refused.status, refused.reason[:6]) == (503, "paused")
        client.resume("paused")
        assert peer.send(peer.message("paused")).status == 200

    def test_give_up_leaves_counted_holes(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "given_up", 5)
        path = "/v1/queues/given_up/give-up"
        assert call(running, "POST", path + "?first=2&last=3&force=1") == (
            200,
            {"queue": "given_up", "given_up": 2},
        )
        assert call(running, "POST", path + "?first=4&last=4")[0] == 409, "it can be read"
        found = client.range("given_up", after=0)
        assert (found.first, found.end) == (1, 5), "they stay counted"
        assert client.holes("given_up", epoch=found.epoch, after=0, to=5) == 2
        with client.rows("given_up", epoch=found.epoch, after=0, to=5) as stream:
            assert pa.ipc.open_stream(stream.as_file()).read_all().column(
                "sequence"
            ).to_pylist() == [1, 4, 5]
        before = queue(client, "given_up")
        assert before["waiting"] == 3, "holes wait for nobody"
        assert call(running, "POST", path + "?first=2&last=4&force=1") == (
            200,
            {"queue": "given_up", "given_up": 1},
        )
        after = queue(client, "given_up")
        assert after["waiting"] == 2
        assert 0 < after["bytes"] < before["bytes"], "what was a hole does not count again"
        assert (
            'srmp_queue_waiting{consumer="default",queue="given_up"} 2'
            in call(running, "GET", "/metrics")[1]
        )
        for wrong, code in (
            ("?first=4&last=6&force=1", 409),
            ("?first=0&last=1", 400),
            ("?first=3&last=2", 400),
            ("?first=1", 400),
        ):
            assert call(running, "POST", path + wrong)[0] == code
        assert call(running, "POST", "/v1/queues/nobody/give-up?first=1&last=1")[0] == 404

    def test_purge_leaves_counted_holes(
        self, running: RunningQueueManager, client: QueueManagerClient, peer: Peer
    ) -> None:
        fresh(client, running, "purged", 5)
        assert client.purge("purged") == {"queue": "purged", "purged": 5}
        described = queue(client, "purged")
        assert (
            described["last"],
            described["received"],
            described["waiting"],
            described["bytes"],
        ) == (5, 5, 0, 0)
        assert peer.send(peer.message("purged")).status == 200
        found = client.range("purged", after=0)
        with (
            client.rows("purged", epoch=found.epoch, after=0, to=6) as stream,
            pa.ipc.open_stream(stream.as_file()) as reader,
        ):
            assert reader.read_all().column("sequence").to_pylist() == [6]

    def test_our_order_queue_shows_up_with_its_first_receipt(
        self, client: QueueManagerClient
    ) -> None:
        assert all(each["name"] != "private$/order_queue$" for each in client.queues())
        assert client.range("private$/order_queue$").end == 0


class TestRange:
    def test_limits_of_rows_and_bytes(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "ranged", 10)
        found = client.range("ranged", after=0)
        assert (found.first, found.last, found.end, found.next_epoch) == (1, 10, 10, None)
        assert client.range("ranged", after=3, max_rows=4).last == 7
        assert client.range("ranged", after=10).last == 10
        assert client.range("ranged", after=0, max_bytes=1).last == 1, (
            "at least one row, however large"
        )
        assert 2 <= client.range("ranged", after=0, max_bytes=4000).last < 10

    def test_errors_have_codes(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        for arguments, status, code in (
            ({"after": 99_999}, 409, "past-the-end"),
            ({"epoch": "0123456789abcdef"}, 409, "unknown-epoch"),
        ):
            with pytest.raises(ApiError) as refused:
                client.range("private$/orders", **arguments)
            assert (refused.value.status, refused.value.code) == (status, code)
        for query in (
            "after=-1",
            "after=x",
            "after=1&after=2",
            "max_rows=0",
            "wait=nan",
            "after=99999999999999999999",
        ):
            assert call(running, "GET", f"/v1/queues/private%24%2Forders/range?{query}")[0] == 400

    def test_a_long_poll_returns_with_the_next_row(
        self, running: RunningQueueManager, client: QueueManagerClient, peer: Peer
    ) -> None:
        client.put_queue("polled")
        answers: list[tuple[float, int]] = []

        def poll() -> None:
            begun = time.monotonic()
            last = client.range("polled", after=0, wait=8).last
            answers.append((time.monotonic() - begun, last))

        waiting = threading.Thread(target=poll)
        waiting.start()
        time.sleep(0.5)
        assert answers == []
        assert peer.send(peer.message("polled")).status == 200
        waiting.join(5)
        assert answers[0][1] == 1
        assert answers[0][0] < 4
        begun = time.monotonic()
        assert client.range("polled", after=1, wait=0.3).last == 1
        assert 0.25 < time.monotonic() - begun < 3


class TestRows:
    def test_as_arrow_and_dense_they_are_the_same(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "rows", 7)
        epoch = client.range("rows").epoch
        with client.rows("rows", epoch=epoch, after=2, to=6, envelope=True) as stream:
            assert stream.content_type == "application/vnd.apache.arrow.stream"
            plain = pa.ipc.open_stream(stream.as_file()).read_all()
        assert plain.schema == arrow_schema()
        assert plain.column("sequence").to_pylist() == [3, 4, 5, 6]
        assert plain.column("envelope")[0].as_py().startswith("<se:Envelope")
        with client.rows("rows", epoch=epoch, after=2, to=6, envelope=True, dense=True) as stream:
            assert stream.content_type == "application/vnd.srmp-spark.log"
            batches = list(
                dense.batches(
                    dense.frames(stream.as_file()), running.guid, "rows", 2, 6, envelope=True
                )
            )
        assert pa.Table.from_batches(batches) == plain

    def test_no_rows_are_an_empty_stream(self, client: QueueManagerClient) -> None:
        client.put_queue("empty")
        with client.rows("empty", epoch=client.range("empty").epoch, after=0, to=0) as stream:
            assert pa.ipc.open_stream(io.BytesIO(stream.read())).read_all().num_rows == 0

    def test_what_cannot_be_read_is_refused_before_the_stream(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        epoch = client.range("private$/orders").epoch
        path = "/v1/queues/private%24%2Forders/rows"
        for query, status in (
            (f"epoch={epoch}&after=0&to=999999", 409),
            (f"epoch={epoch}&after=5&to=3", 400),
            (f"epoch={epoch}&after=0", 400),
            ("epoch=nope&after=0&to=0", 409),
        ):
            assert call(running, "GET", f"{path}?{query}")[0] == status

    def test_a_reader_that_hangs_up_hurts_nobody(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "left", 3)
        epoch = client.range("left").epoch
        for _ in range(50):
            connection = http.client.HTTPConnection(*address(running), timeout=5)
            connection.request("GET", f"/v1/queues/left/rows?epoch={epoch}&after=0&to=3")
            connection.close()
        with client.rows("left", epoch=epoch, after=0, to=3) as stream:
            assert pa.ipc.open_stream(stream.as_file()).read_all().num_rows == 3


class TestConsumers:
    def test_register_mark_and_release(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "consumed", 10)
        given = client.register("consumed", "default", holder="A", first=1)
        assert (given.received, given.ahead, given.queue_manager) == (0, (), running.guid)
        assert client.received("consumed", "default", epoch=given.epoch, to=4, holder="A") == 4
        assert client.received("consumed", "default", epoch=given.epoch, to=2, holder="A") == 4, (
            "marks never go back"
        )
        described = queue(client, "consumed")
        assert (described["received"], described["waiting"]) == (4, 6)
        assert described["consumers"][0]["holder"] == "A"
        assert described["consumers"][0]["lease_until"].endswith("Z")
        with pytest.raises(ApiError) as refused:
            client.received("consumed", "default", epoch=given.epoch, to=11, holder="A")
        assert (refused.value.status, refused.value.code) == (409, "past-the-end")
        client.release("consumed", "default", holder="A")
        assert queue(client, "consumed")["consumers"][0]["holder"] is None
        assert client.register("consumed", "default", holder="B").received == 4, (
            "at once: nobody holds it"
        )

    def test_a_second_receiver_hears_the_name_of_the_first_as_soon_as_it_renews(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        client.put_queue("shared")
        first = Holder.here("query one").as_dict()
        client.register("shared", "default", holder=first)
        refused: list[ApiError] = []

        def second() -> None:
            try:
                client.register("shared", "default", holder="query two")
            except ApiError as error:
                refused.append(error)

        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(0.7)
        assert refused == [], "it waits"
        client.register("shared", "default", holder=first)
        waiting.join(5)
        assert (refused[0].status, refused[0].code) == (409, "C00E0009")
        assert "query one" in refused[0].message
        with pytest.raises(ApiError, match="C00E0009"):
            client.received(
                "shared", "default", epoch=client.range("shared").epoch, to=0, holder="query two"
            )

    def test_a_killed_receiver_on_this_host_is_replaced_at_once(
        self, client: QueueManagerClient
    ) -> None:
        client.put_queue("taken")
        killed = dataclasses.replace(Holder.here("killed"), started="1").as_dict()
        client.register("taken", "default", holder=killed)
        begun = time.monotonic()
        client.register("taken", "default", holder="next")
        assert time.monotonic() - begun < 20, "a lease lasts a minute"

    def test_other_consumers_have_marks_of_their_own_and_decide_nothing(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "twice", 3)
        epoch = client.range("twice").epoch
        client.register("twice", "default", holder="A")
        client.register("twice", "audit", holder="B")
        client.received("twice", "audit", epoch=epoch, to=3, holder="B")
        described = queue(client, "twice")
        assert (described["received"], described["waiting"]) == (0, 3)
        assert {each["name"]: each["received"] for each in described["consumers"]} == {
            "audit": 3,
            "default": 0,
        }

    def test_sequences_are_received_ahead(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "ahead", 5)
        given = client.register("ahead", "default", holder="A")
        assert (
            client.received(
                "ahead", "default", epoch=given.epoch, to=4, holder="A", sequences=[4, 2]
            )
            == 0
        )
        assert client.register("ahead", "default", holder="A").ahead == ((2, 2), (4, 4))
        assert (
            client.received("ahead", "default", epoch=given.epoch, to=1, holder="A", sequences=[1])
            == 2
        )

    def test_rows_that_were_planned_with_another_queue_manager_are_refused(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "whose", 2)
        epoch, ours = client.range("whose").epoch, running.guid
        with client.rows("whose", epoch=epoch, after=0, to=2, queue_manager=ours) as stream:
            assert stream.headers["srmp-queue-manager"] == ours
        with pytest.raises(ApiError, match=f"this one is {ours}") as refused:
            client.rows("whose", epoch=epoch, after=0, to=2, queue_manager="0" * 8)
        assert (refused.value.status, refused.value.code) == (409, "another-queue-manager")

    def test_a_mark_may_say_where_it_begins(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        """Whatever was registered as planned, and by whom."""
        fresh(client, running, "began", 9)
        given = client.register("began", "default", holder="A", first=8)
        assert (
            client.received("began", "default", epoch=given.epoch, first=4, to=6, holder="A") == 0
        )
        assert list(client.ahead_of("began", "default")) == [(4, 6)]
        assert list(client.ahead_of("began", "default", 4)) == [(5, 6)]
        assert (
            client.received("began", "default", epoch=given.epoch, first=1, to=3, holder="A") == 6
        )
        assert (
            client.received("began", "default", epoch=given.epoch, first=9, to=8, holder="A") == 6
        ), "nothing lies there"
        assert list(client.ahead_of("began", "nobody")) == []
        with pytest.raises(ApiError, match="from is a whole number"):
            client._json(
                "POST", "/v1/queues/began/consumers/default/received",
                body={"epoch": given.epoch, "from": 0, "to": 3, "holder": "A"},
            )  # fmt: skip

    def test_more_runs_than_one_answer_tells_are_asked_for(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        """An answer with all of them would hold up the loop by as many as a stranger likes."""
        fresh(client, running, "scattered", 4_500)
        given = client.register("scattered", "default", holder="A")
        each = [*range(2, 4_400, 2), 4_401]
        client.received("scattered", "default", epoch=given.epoch, to=0, holder="A", sequences=each)
        again = client.register("scattered", "default", holder="A")
        assert (len(again.ahead), again.ahead_after) == (1_000, 2_000)
        runs = list(client.all_ahead("scattered", "default", again))
        assert runs == [(n, n) for n in each]
        assert given.ahead_after is None
        with pytest.raises(ApiError) as unknown:
            client._json("GET", "/v1/queues/scattered/consumers/nobody")
        assert (unknown.value.status, unknown.value.code) == (404, "unknown-consumer")

    def test_a_caller_that_hangs_up_while_it_waits_is_granted_nothing(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        client.put_queue("hung")
        client.register("hung", "default", holder="A")
        connection = http.client.HTTPConnection(*address(running), timeout=20)
        connection.request(
            "POST", "/v1/queues/hung/consumers/default/register", json.dumps({"holder": "ghost"})
        )
        time.sleep(0.3)
        connection.close()
        time.sleep(0.8)
        client.release("hung", "default", holder="A")
        time.sleep(0.8)
        assert queue(client, "hung")["consumers"][0]["holder"] is None


class TestMessages:
    def test_a_local_message_is_a_row_like_any_other(self, client: QueueManagerClient) -> None:
        client.put_queue("sent")
        (answer,) = client.send(
            "sent", [{"label": "Größe <&>", "body_base64": "aGVsbG8=", "priority": 7}]
        )
        assert answer["state"] == "acknowledged"
        assert answer["destination"] == "sent"
        with client.rows("sent", epoch=client.range("sent").epoch, after=0, to=1) as stream:
            (row,) = pa.ipc.open_stream(stream.as_file()).read_all().to_pylist()
        assert (row["label"], row["body"], row["priority"], row["transport"]) == (
            "Größe <&>",
            b"hello",
            7,
            "api",
        )
        assert row["message_id"] == answer["message_id"]

    def test_transactional_ones_continue_our_stream(self, client: QueueManagerClient) -> None:
        client.put_queue("stream", transactional=True)
        answers = client.send("stream", [{"body_base64": ""}] * 3) + client.send("stream", [{}])
        assert [each["stream_sequence"] for each in answers] == [1, 2, 3, 4]
        assert len({each["stream_id"] for each in answers}) == 1
        with pytest.raises(ApiError) as refused:
            client.send("stream", [{"delivery": "express"}])
        assert refused.value.code == "queue-kind"

    def test_our_stream_goes_on_and_can_be_dropped_whatever_strangers_write_in_our_name(
        self, running: RunningQueueManager, client: QueueManagerClient, peer: Peer
    ) -> None:
        name, ours = "private$/house", running.ready["queue_manager"]
        client.put_queue(name, transactional=True)
        (first,) = client.send(name, [{}])
        for current, previous in ((1, 0), (2**32 - 1, 1)):
            to = "http://127.0.0.1:9/msmq/private$/order_queue$" if current == 1 else None
            stolen = ForeignStream(
                guid=ours, ordinal=2**64 - 1, current=current, previous=previous, receipts_to=to
            )
            assert peer.send(peer.message(name, stream=stolen, priority=0)).status == 200
        (second,) = client.send(name, [{}])
        assert (second["stream_id"], second["stream_sequence"]) == (first["stream_id"], 2)
        listed = {
            each["stream_id"]
            for each in client.status()["incoming_streams"]
            if each["queue"] == name
        }
        assert listed == {first["stream_id"], f"uid:{ours}\\{2**64 - 1}"}
        path = f"/v1/streams/{quote(name, safe='')}/drop?stream="
        for each in (first["stream_id"], f"uid:{ours}\\{2**64 - 1}"):
            assert call(running, "POST", path + quote(each, safe=""))[0] == 200
        assert all(each["queue"] != name for each in client.status()["incoming_streams"])
        assert client.send(name, [{}])[0]["stream_sequence"] == 1

    @pytest.mark.parametrize(
        "body",
        [
            [],
            [1],
            {"priority": 8},
            {"body_base64": "?"},
            {"nonsense": 1},
            {"key": "k"},
            {"correlation_id_base64": "AA=="},
        ],
    )
    def test_what_is_no_message_is_a_usage_error(
        self, running: RunningQueueManager, body: Any
    ) -> None:
        assert call(running, "POST", "/v1/queues/private%24%2Forders/messages", body)[0] == 400

    @pytest.mark.parametrize(
        "body",
        [
            {"label": "x" * 300_000},
            {"label": "&" * 8_193},
            {"label": "\x01"},
            {"body_type": 2**40},
            {"app_specific": 2**32},
            {"app_specific": "4294967296"},
        ],
    )
    def test_what_could_not_be_read_is_not_stored(
        self, running: RunningQueueManager, client: QueueManagerClient, body: Any
    ) -> None:
        client.put_queue("checked")
        before = client.range("checked").end
        status, error = call(
            running, "POST", "/v1/queues/checked/messages", [{"label": "good"}, body]
        )
        assert (status, error["error"]["code"]) == (400, "usage")
        assert client.range("checked").end == before, "the good one before it is not stored either"

    @pytest.mark.parametrize("transactional", [False, True])
    def test_the_largest_label_and_numbers_come_back(
        self, client: QueueManagerClient, transactional: bool
    ) -> None:
        name = f"largest-{transactional}".lower()
        client.put_queue(name, transactional=transactional)
        message = {"label": "&" * 8_192, "body_type": 2**32 - 1, "app_specific": 2**32 - 1}
        client.send(name, [message, message])
        with client.rows(name, epoch=client.range(name).epoch, after=0, to=2) as stream:
            rows = pa.ipc.open_stream(stream.as_file()).read_all().to_pylist()
        assert [(row["label"], row["app_specific"], row["body_type"]) for row in rows] == [
            tuple(message.values())
        ] * 2

    def test_all_of_a_list_are_checked_with_the_codec_before_one_is_stored(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        client.put_queue("listed", transactional=True)
        bad = {"label": "\ufffe"}  # found only when the envelope is written
        status, error = call(running, "POST", "/v1/queues/listed/messages", [{}, {}, bad])
        assert (status, error["error"]["code"]) == (400, "usage")
        assert "message 3 of 3" in error["error"]["message"]
        assert client.range("listed").end == 0
        assert [each["stream_sequence"] for each in client.send("listed", [{}, {}])] == [1, 2]

    def test_a_queue_with_a_blank_and_an_umlaut(self, client: QueueManagerClient) -> None:
        client.put_queue("größe 1")
        assert client.send("größe 1", [{"label": "x"}])[0]["destination"] == "größe 1"
        assert client.range("größe 1").end == 1


class TestText:
    """Half of a surrogate pair is no text: it can be neither stored nor told."""

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("consumers/c/register", b'{"holder":"\\ud800"}'),
            ("consumers/c/register", b'{"epoch":"\\uD800"}'),
            ("consumers/c/register", b'{"holder":{"\\udfff":1}}'),
            ("consumers/c/register", b'{"holder":"\xed\xa0\x80"}'),
            ("consumers/c/register", b'{"holder":{"a":NaN}}'),
            ("messages", b'{"label":"\\ud800"}'),
            ("messages", b'{"\\ud800":1}'),
        ],
    )
    def test_it_is_a_usage_error_and_status_stays_well(
        self, running: RunningQueueManager, path: str, body: bytes
    ) -> None:
        connection = http.client.HTTPConnection(*address(running), timeout=20)
        connection.request("POST", f"/v1/queues/private%24%2Forders/{path}", body)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["error"]["code"]) == (400, "usage")
        connection.close()
        assert call(running, "GET", "/v1/status")[0] == 200

    def test_a_whole_pair_is_text(
        self, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        assert (
            client.send("private$/orders", [{"label": "\U0001f600"}])[0]["state"] == "acknowledged"
        )

    def test_errors_are_written_in_ascii(self) -> None:
        assert (
            json.loads(Response.error(usage("no \ud800 ü")).body)["error"]["message"]
            == "no \ud800 ü"
        )
        assert Response.error(usage("ü")).body.isascii()

    def test_an_error_that_cannot_be_written_is_a_503(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        error = ApiError(418, b"no text", "x")  # type: ignore[arg-type]
        scope = {"type": "http", "path": "/", "method": "GET", "headers": []}

        class Refusing:
            def check(self, path: str, headers: object) -> None:
                raise error

        app = ApiApp(Router([]), Refusing(), Catalogue())  # type: ignore[arg-type]
        response = asyncio.run(app._respond(scope, lambda: None, contextlib.ExitStack()))  # type: ignore[arg-type]
        assert response.status == 503
