"""Rows for ``wsrm:URL`` against a service that scripts what it does (scripted_service.py): once, in order, within its room."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from live_kit import wait_for
from out_kit import (
    ACTION,
    POLL,
    body,
    client,
    delivered,
    finished,
    kill_sender,
    send,
    send_keyed,
    status,
)
from scripted_service import RM, SOAP, WSA, Request, ScriptedService, lossy, once
from wsrm_kit import schema_faults

from srmp_spark.client.outbox_batches import OutboxClient
from srmp_spark.errors import ApiError
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.certificate import Authority

VERSIONS = [
    ("1.0", "1.1", "2004/08"), ("1.0", "1.2", "2004/08"), ("1.0", "1.1", "2005/08"), ("1.0", "1.2", "2005/08"),
    ("1.1", "1.1", "2005/08"), ("1.1", "1.2", "2005/08"),
]  # fmt: skip
COUNT = 30


@pytest.fixture(scope="module")
def sent(running: RunningQueueManager) -> Iterator[dict[tuple[str, str, str], ScriptedService]]:
    """A service for each version, which was sent to at the same time: a sequence is ended after ten idle seconds."""
    services = {versions: ScriptedService() for versions in VERSIONS}
    for (rm, soap, wsa), service in services.items():
        service.start()
        answers = send(
            running,
            service.destination,
            1,
            COUNT,
            wsrm_version=rm,
            soap_version=soap,
            wsa_version=wsa,
        )
        assert {answer["kind"] for answer in answers} == {"plain"}
    yield services
    for service in services.values():
        service.stop()


@pytest.mark.parametrize("versions", VERSIONS, ids=str)
def test_every_version_once_in_order_and_to_the_end(
    running: RunningQueueManager,
    sent: dict[tuple[str, str, str], ScriptedService],
    versions: tuple[str, str, str],
) -> None:
    rm, soap, wsa = versions
    service = sent[versions]
    delivered(service, 1, COUNT)
    finished(running, service.destination)
    wait_for(lambda: all(each.is_terminated for each in service.sequences.values()))
    with service.lock:
        assert len(service.sequences) == 1
        requests = [request for _, request in service.requests]
        assert {(each.rm, each.soap, each.wsa) for each in requests} == {
            (RM[rm], SOAP[soap], WSA[wsa])
        }
        assert [each.number for each in requests if each.action == ACTION] == list(
            range(1, COUNT + 1)
        )
        assert [fault for each in requests for fault in schema_faults(each.raw)] == []
        assert len({each.message_id for each in requests if each.number}) == len(
            [each for each in requests if each.number]
        )
        ends = [each.action.rpartition("/")[2] for each in requests[-2:]]
        assert ends == (
            ["LastMessage", "TerminateSequence"]
            if rm == "1.0"
            else ["CloseSequence", "TerminateSequence"]
        )
        assert service.wrong == []


def test_what_comes_later_goes_in_another_sequence(
    running: RunningQueueManager, service: ScriptedService
) -> None:
    send(running, service.destination, 1, 3)
    delivered(service, 1, 3)
    wait_for(lambda: all(each.is_terminated for each in service.sequences.values()))
    send(running, service.destination, 4, 6)
    delivered(service, 1, 6)
    assert len(service.sequences) == 2


def test_rows_of_two_versions_go_in_two_sequences_in_their_order(
    running: RunningQueueManager, service: ScriptedService
) -> None:
    send(running, service.destination, 1, 5, wsrm_version="1.0")
    send(running, service.destination, 6, 9, wsrm_version="1.2")
    delivered(service, 1, 9)
    assert [len(each.taken) for each in service.sequences.values()] == [
        6,
        4,
    ]  # with the LastMessage of 1.0


# --- flow control -------------------------------------------------------------------------------------------------------


def test_never_more_on_the_way_than_there_is_room_for(running: RunningQueueManager) -> None:
    with ScriptedService(room=5, seed=1) as service:
        stopped = threading.Event()

        def application() -> None:
            while not stopped.wait(0.03):
                service.drain(service.dice.choice([0, 0, 1, 2, 5]))

        thread = threading.Thread(target=application)
        thread.start()
        try:
            send(running, service.destination, 1, 120)
            delivered(service, 1, 120)
        finally:
            stopped.set()
            thread.join()
        assert service.wrong == []


def test_at_0_it_polls_and_sends_nothing_new_until_room_returns(
    running: RunningQueueManager,
) -> None:
    with ScriptedService(room=3) as service:
        send(running, service.destination, 1, 10)
        wait_for(lambda: len(service.delivered) == 3)
        wait_for(lambda: service.seen["AckRequested"] >= 3)
        with service.lock:
            assert service.delivered == [body(number) for number in (1, 2, 3)]
            asked = [
                at for at, request in service.requests if request.action.endswith("/AckRequested")
            ]
            assert len(asked) <= (asked[-1] - asked[0]) / POLL + 3
        found = status(running, service.destination)
        assert found["wsrm"]["polling"] is True
        assert found["wsrm"]["buffer_remaining"] == 0
        assert found["queued"] == 7
        service.drain(2)
        wait_for(lambda: len(service.delivered) == 5)
        wait_for(lambda: service.drain(1) or len(service.delivered) == 10)
        delivered(service, 1, 10)


def test_a_restart_while_polling_asks_first(start: Callable[..., RunningQueueManager]) -> None:
    running = start(wsrm_poll_interval=3600)
    with ScriptedService(room=3) as service:
        send(running, service.destination, 1, 8)
        wait_for(lambda: len(service.delivered) == 3)
        wait_for(lambda: (status(running, service.destination).get("wsrm") or {}).get("polling"))
        send(
            running, service.destination, 9, 9
        )  # a write behind it: that room is 0 is on the disk with it
        before = len(service.requests)
        service.drain(8)
        running.kill9()
        running.start()
        wait_for(lambda: len(service.delivered) == 6)  # an hour has not passed: it asked at once
        delivered(service, 1, 6)
        assert service.requests[before][1].action.endswith("/AckRequested")
        assert len(service.sequences) == 1


# --- loss ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rm", ["1.0", "1.1"])
def test_requests_and_answers_that_are_lost_cost_nothing_and_double_nothing(
    running: RunningQueueManager, rm: str
) -> None:
    with ScriptedService(room=16, script=lossy(0.1, 0.1), seed=5) as service:
        service.judges_room = False  # it counts what it told in answers that were lost as untold
        stopped = threading.Event()

        def application() -> None:
            while not stopped.wait(0.02):
                service.drain(4)

        thread = threading.Thread(target=application)
        thread.start()
        try:
            send(running, service.destination, 1, 40, wsrm_version=rm)
            delivered(service, 1, 40)
        finally:
            stopped.set()
            thread.join()
        assert (
            len({request.number for _, request in service.requests if request.action == ACTION})
            == 40
        )


def test_a_service_that_is_away_and_refuses_and_answers_404_gets_everything_when_it_is_back(
    running: RunningQueueManager,
) -> None:
    service = ScriptedService(script=once("CreateSequence", "CreateSequenceRefused"))
    service.start()
    destination = service.destination
    service.stop()
    send(running, destination, 1, 4)
    away = wait_for(
        lambda: (found := status(running, destination)) and found["last_error"] and found
    )
    assert away["queued"] == 4
    service.start()
    delivered(service, 1, 4)
    assert service.seen["CreateSequence"] == 2
    service.script = once("order", "404", 2)
    send(running, destination, 5, 6)
    wait_for(lambda: "404" in (status(running, destination)["last_error"] or ""))
    delivered(service, 1, 6)
    wait_for(lambda: status(running, destination)["last_error"] is None)
    service.stop()


# --- kills --------------------------------------------------------------------------------------------------------------


def enough(service: ScriptedService, count: int) -> bool:
    return len(service.delivered) > count


@pytest.mark.timeout(600)
def test_kill_9_again_and_again_loses_nothing_and_doubles_nothing(
    start: Callable[..., RunningQueueManager],
) -> None:
    running = start()
    with ScriptedService(room=64, script=lossy(0.03, 0.05), seed=11) as service:
        service.judges_room = (
            False  # after a kill what has a number goes again, whatever room there is
        )
        stopped = threading.Event()

        def application() -> None:
            while not stopped.wait(0.02):
                service.drain(3)

        thread = threading.Thread(target=application)
        thread.start()
        try:
            total, kills = 0, 0
            while kills < 8:
                send_keyed(running, service.destination, total + 1, total + 20)
                total += 20
                wait_for(partial(enough, service, total - 30))
                time.sleep(service.dice.uniform(0.0, 0.3))
                if kills % 3 == 2:
                    running.kill9()
                    running.start()
                    kills += 1
                else:
                    kills += kill_sender(running)
            delivered(service, 1, total, 240.0)
        finally:
            stopped.set()
            thread.join()
        finished(running, service.destination)


@pytest.mark.parametrize(
    ("action", "rm"),
    [
        ("CreateSequence", "1.1"),
        ("order", "1.1"),
        ("CloseSequence", "1.1"),
        ("TerminateSequence", "1.1"),
        ("LastMessage", "1.0"),
        ("TerminateSequence", "1.0"),
    ],
)
def test_a_kill_in_any_state_goes_on_where_it_was(
    start: Callable[..., RunningQueueManager], action: str, rm: str
) -> None:
    """The request was done, its answer is lost, and the sender process is killed."""
    running = start()
    killed: list[str] = []

    def script(service: ScriptedService, request: Request) -> str | None:
        if not killed and request.action.rpartition("/")[2] == action:
            killed.append(request.identifier)
            assert kill_sender(running)
            return "lose"
        return None

    with ScriptedService(script=script) as service:
        send(running, service.destination, 1, 6, wsrm_version=rm)
        delivered(service, 1, 6)
        wait_for(
            lambda: (
                service.sequences and all(each.is_terminated for each in service.sequences.values())
            )
        )
        finished(running, service.destination)
        assert killed
        assert len(service.sequences) == 1
        delivered(service, 1, 6)


# --- a sequence that is lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", VERSIONS, ids=str)
def test_a_service_that_forgot_everything_and_says_so_gets_the_rest_in_a_new_sequence(
    running: RunningQueueManager, service: ScriptedService, versions: tuple[str, str, str]
) -> None:
    rm, soap, wsa = versions
    send(running, service.destination, 1, 5, wsrm_version=rm, soap_version=soap, wsa_version=wsa)
    delivered(service, 1, 5)
    finished(running, service.destination)
    service.forget()
    send(running, service.destination, 6, 9, wsrm_version=rm, soap_version=soap, wsa_version=wsa)
    delivered(service, 1, 9)
    assert finished(running, service.destination)["state"] == "Connected"


def lost_with_one_in_doubt(
    running: RunningQueueManager, service: ScriptedService
) -> dict[str, Any]:
    """Message 3 was taken, its answer was lost, and then the service forgot the sequence; 4 and 5 wait."""

    def script(service: ScriptedService, request: Request) -> str | None:
        if request.number == 3:
            service.script = None
            service._do(request)
            service.forget()
            return "drop"
        return None

    service.script = script
    send(running, service.destination, 1, 5)
    found = wait_for(
        lambda: (
            (found := status(running, service.destination)) and found["state"] == "OnHold" and found
        )
    )
    assert found["in_doubt"] == 1
    assert found["wsrm"]["state"] == "lost"
    assert "resend" in found["last_error"]
    assert service.delivered == [body(number) for number in (1, 2, 3)]
    return found  # type: ignore[no-any-return]


def test_what_may_have_been_taken_of_a_lost_sequence_waits_for_an_operator_who_sends_it_again(
    running: RunningQueueManager, service: ScriptedService
) -> None:
    lost_with_one_in_doubt(running, service)
    client(running).decide("resend", service.destination)
    wait_for(lambda: len(service.delivered) == 6)
    assert service.delivered == [
        body(number) for number in (1, 2, 3, 3, 4, 5)
    ]  # twice by decision, never by a guess
    finished(running, service.destination)


def test_a_lost_sequence_is_still_held_after_a_kill(
    start: Callable[..., RunningQueueManager],
) -> None:
    running = start()
    with ScriptedService() as service:
        lost_with_one_in_doubt(running, service)
        before = len(service.requests)
        running.kill9()
        running.start()
        found = wait_for(
            lambda: (found := status(running, service.destination)) and found["wsrm"] and found
        )
        assert (found["state"], found["wsrm"]["state"], found["in_doubt"]) == ("OnHold", "lost", 1)
        assert len(service.requests) == before
        client(running).decide("resend", service.destination)
        wait_for(lambda: len(service.delivered) == 6)


def test_dropping_gives_up_what_waits_and_the_next_message_begins_anew(
    running: RunningQueueManager, service: ScriptedService
) -> None:
    lost_with_one_in_doubt(running, service)
    client(running).decide("drop", service.destination)
    assert status(running, service.destination) == {}
    send(running, service.destination, 6, 7)
    wait_for(lambda: len(service.delivered) == 5)
    assert service.delivered == [body(number) for number in (1, 2, 3, 6, 7)]


def test_a_service_that_answers_and_acknowledges_nothing_is_told_of_and_reset_goes_on(
    running: RunningQueueManager, service: ScriptedService
) -> None:
    """CXF, of a sequence that it does not know: 200 and nothing."""
    send(running, service.destination, 1, 2)
    delivered(service, 1, 2)
    finished(running, service.destination)
    service.script = lambda service, request: "empty" if request.action == ACTION else None
    send(running, service.destination, 3, 3)
    wait_for(
        lambda: (
            "without an acknowledgement"
            in (status(running, service.destination)["last_error"] or "")
        )
    )
    service.script = None
    service.forget()
    client(running).decide("reset", service.destination)
    wait_for(lambda: len(service.delivered) == 3)
    delivered(service, 1, 3)


# --- expiry, and what is refused ----------------------------------------------------------------------------------------


def test_a_row_whose_time_is_over_before_it_has_a_number_is_a_dead_letter_and_leaves_no_gap(
    running: RunningQueueManager,
) -> None:
    with ScriptedService(room=1) as service:
        send(running, service.destination, 1, 1)
        delivered(service, 1, 1)
        wait_for(lambda: service.seen["AckRequested"] > 0)
        until = datetime.now(timezone.utc) + timedelta(seconds=1)
        rows: list[dict[str, Any]] = [
            {
                "body": body(number),
                "destination": service.destination,
                "soap_action": ACTION,
                "time_to_reach_queue": late,
            }
            for number, late in ((2, None), (3, until), (4, None))
        ]
        staged = OutboxClient(running.api).stage(
            "late", "1", partition=0, attempt=0, content=lambda: iter([arrow(rows)])
        )  # fmt: skip
        OutboxClient(running.api).commit("late", "1", [staged.stage])
        wait_for(lambda: datetime.now(timezone.utc) > until + timedelta(seconds=1))
        wait_for(lambda: service.drain(1) or len(service.delivered) == 3)
        finished(running, service.destination)
        assert service.delivered == [body(number) for number in (1, 2, 4)]
        assert [number for each in service.sequences.values() for number in each.taken] == [1, 2, 3]
        assert "sender.dead" in running.stderr()
        assert service.wrong == []


def arrow(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_a_row_without_a_soap_action_or_with_a_body_that_is_none_is_refused(
    running: RunningQueueManager,
) -> None:
    destination = "wsrm:http://127.0.0.1:1/Orders.svc"
    good = {"destination": destination, "soap_action": ACTION, "body_base64": "PGEvPg=="}
    for change, said in (
        ({"soap_action": None}, "soap_action is missing"),
        ({"soap_action": "two words"}, "soap_action is no URI"),
        ({"body_base64": "PGE+"}, "not well-formed"),
        ({"body_base64": "PC9iPjxiPg=="}, "not well-formed"),  # </b><b>
        ({"body_base64": "PD94bWwgdmVyc2lvbj0iMS4wIj8+PGEvPg=="}, "XML declaration"),
        ({"body_base64": "aGVsbG8="}, "text outside of any element"),
        ({"wsrm_version": "2.0"}, "wsrm_version is '2.0'"),
        ({"wsa_version": "2004/08"}, "goes with wsrm_version 1.0"),
        ({"label": "x"}, "label has a value"),
        ({"delivery": "transactional"}, "is recoverable, not transactional"),
        (
            {"destination": f"{destination},http://127.0.0.1/msmq/private$/a"},
            "alongside other queues",
        ),
        ({"destination": "wsrm://127.0.0.1/x"}, "not an http or https URL"),
    ):
        message = {name: value for name, value in (good | change).items() if value is not None}
        with pytest.raises(ApiError, match=said):
            client(running).send_away([message])
    assert status(running, destination) == {}


def test_https_is_verified_by_our_authorities_and_nothing_is_said_to_anybody_else(
    start: Callable[..., RunningQueueManager], tmp_path: Path
) -> None:
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others", "Other")
    running = start(ca_file=ours.ca)
    with (
        ScriptedService(certificate=tuple(ours.issue("localhost"))) as good,
        ScriptedService(certificate=tuple(others.issue("localhost"))) as bad,
    ):
        send(running, bad.destination, 1, 1)
        send(running, good.destination, 1, 3)
        delivered(good, 1, 3)
        wait_for(
            lambda: (
                "certificate verify failed"
                in (status(running, bad.destination)["last_error"] or "")
            )
        )
        assert bad.requests == []
        assert status(running, bad.destination)["queued"] == 1


def test_send_waits_for_the_acknowledgement_and_says_what_became_of_a_lost_session(
    running: RunningQueueManager, service: ScriptedService
) -> None:
    line = [
        sys.executable,
        "-m",
        "srmp_spark.cli",
        "send",
        "--api",
        running.api,
        "--destination",
        service.destination,
    ]
    line += [
        "--soap-action",
        ACTION,
        "--wsrm-version",
        "1.0",
        "--body",
        body(1).decode(),
        "--wait",
        "60",
    ]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["state"] == "acknowledged"
    delivered(service, 1, 1)
    service.delivered.clear()
    lost_with_one_in_doubt(running, service)
    done = subprocess.run(
        [*line[:-1], "1"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 4
    assert "the service has lost the sequence" in done.stderr
    assert "srmp-spark streams resend" in done.stderr
