"""Rows for ``wsrm:URL`` in the outbox: their columns, their identity, the sequences, and what a copy makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from outbox_kit import A, Desk

from srmp_spark.interface import RELIABLE_VERSIONS
from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.tables.schema import FORMAT_OF_NEW, FORMAT_RELIABLE
from srmp_spark.store.outbox.tables.sessions import NumberRun, SessionRow, runs_of, serials_of
from srmp_spark.wsrm.codec.body import check_body
from srmp_spark.wsrm.codec.versions import ADDRESSING_VERSIONS, RM_VERSIONS, SOAP_VERSIONS, Versions

SERVICE = "wsrm:http://h.example/Orders.svc"
KEY = QueueKey(SERVICE, "plain")
ROW = {"body": b"<a/>", "destination": SERVICE, "soap_action": "urn:a"}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path / "qm")
    yield found
    found.close()


def version(desk: Desk) -> int:
    (found,) = desk.outbox.database.connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def test_a_row_keeps_its_action_and_its_versions(desk: Desk) -> None:
    desk.send(
        [
            ROW,
            ROW
            | {
                "body": b"<b/>",
                "wsrm_version": "1.0",
                "soap_version": "1.1",
                "wsa_version": "2004/08",
            },
        ]
    )
    first, second = desk.read(SERVICE, "plain")
    assert (first.message.action, first.reliable, first.message.body) == (
        "urn:a",
        "1.1,1.2,2005/08",
        b"<a/>",
    )
    assert second.reliable == "1.0,1.1,2004/08"
    assert Versions.load(second.reliable).dump() == second.reliable


def test_all_versions_that_the_interface_names_are_known() -> None:
    known = {
        "wsrm_version": RM_VERSIONS,
        "soap_version": SOAP_VERSIONS,
        "wsa_version": ADDRESSING_VERSIONS,
    }
    assert {name: tuple(found) for name, found in known.items()} == RELIABLE_VERSIONS


def test_another_action_is_another_message_and_for_other_destinations_it_is_not_looked_at(
    desk: Desk,
) -> None:
    result = desk.send([ROW, ROW, ROW | {"soap_action": "urn:b"}], batch="1")
    assert (result.new, result.known) == (3, 0)
    again = desk.send([ROW, ROW, ROW | {"soap_action": "urn:b"}], batch="1")
    assert (again.new, again.known) == (0, 3)
    plain = {"body": b"x", "destination": A, "key": "k"}
    assert desk.send([plain], batch="2").new == 1
    assert (
        desk.send(
            [plain | {"soap_action": "MSMQ:x", "wsrm_version": "no version"}], batch="3"
        ).known
        == 1
    )
    assert desk.send([plain | {"soap_action": "urn:z"}, ROW | {"key": "k2"}], batch="4").known == 1
    (stored,) = desk.read(A)
    assert (stored.message.action, stored.reliable) == ("MSMQ:", "")


def test_an_older_version_opens_the_outbox_until_a_row_for_a_service_is_committed(
    desk: Desk,
) -> None:
    desk.send([{"body": b"x", "destination": A}])
    assert version(desk) == FORMAT_OF_NEW
    desk.send([ROW], batch="2")
    assert version(desk) == FORMAT_RELIABLE


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"soap_action": None}, "row 1: soap_action is missing"),
        ({"soap_action": ""}, "row 1: soap_action is empty"),
        ({"wsrm_version": "1.3"}, "row 1: wsrm_version is '1.3'; known: 1.0, 1.1, 1.2"),
        ({"wsa_version": "2004/08"}, "row 1: wsa_version 2004/08 goes with wsrm_version 1.0 alone"),
        ({"extension": b"x"}, "row 1: extension has a value"),
        (
            {"delivery": "express"},
            "row 1: a message of a reliable session is recoverable, not express",
        ),
        ({"body": b"<a>"}, "row 1: body is no content of a SOAP Body"),
    ],
)
def test_what_no_service_could_take_is_refused_with_its_row(
    desk: Desk, change: dict[str, object], told: str
) -> None:
    with pytest.raises(BatchError, match=told):
        desk.send([ROW, ROW | change, ROW])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"<a/><b/>", None),
        (b"", None),
        (b"<a xmlns='urn:x'>\xc3\xa4 &amp; <!-- c --><![CDATA[<]]></a>", None),
        (b"<s:a/>", "not well-formed"),
        (b"</b><b>", "not well-formed"),
        (b"<!DOCTYPE a><a/>", "not well-formed"),
        (b"<a>\xe4</a>", "not well-formed"),
        (b"<a>&undeclared;</a>", "not well-formed"),
        (b"<?p x?><a/>", "processing instruction"),
        (b"\n<?xml version='1.0'?><a/>", "XML declaration"),
        (b"text", "text outside"),
        (b"<e:Envelope xmlns:e='urn:x'/>", "whole SOAP envelope"),
        (b"<a>" * 80 + b"</a>" * 80, "nested elements"),
    ],
)
def test_a_body_stands_alone(body: bytes, told: str | None) -> None:
    if told is None:
        check_body(body)
        return
    with pytest.raises(Exception, match=told):
        check_body(body)


def test_numbers_are_runs_of_serials() -> None:
    serials = {1: 10, 2: 11, 3: 20, 4: 21, 7: 24}
    runs = runs_of(serials)
    assert runs == (NumberRun(1, 10, 2), NumberRun(3, 20, 2), NumberRun(7, 24, 1))
    assert serials_of(runs) == serials


def test_a_sequence_is_stored_with_what_is_not_finished_and_tells_what_never_left(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path / "qm")
    desk.send([ROW | {"key": str(number)} for number in range(6)])
    serials = [stored.serial for stored in desk.read(SERVICE, "plain")]
    row = SessionRow(
        "urn:c",
        "urn:s",
        Versions().dump(),
        4,
        (NumberRun(1, serials[0], 4),),
        buffer_remaining=3,
        begun_at=desk.at,
    )
    desk.outbox.write(None, desk.at, sessions={KEY: row})
    desk.sender.poll(0.0, desk.at)
    assert desk.outbox.sessions() == {KEY: row}
    assert desk.outbox.queue_rows()[0].released_to == serials[3], "what has no number never left"
    desk.close()
    again = Desk(tmp_path / "qm")
    assert again.outbox.sessions() == {KEY: row}
    again.outbox.write(None, again.at, sessions={KEY: None})
    assert again.outbox.sessions() == {}
    assert again.outbox.queue_rows()[0].released_to == again.outbox.queue_rows()[0].acknowledged_to
    again.close()


def test_a_copy_goes_on_with_no_sequence_and_holds_what_waits(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "qm")
    desk.send([ROW])
    row = SessionRow(
        "urn:c",
        "urn:s",
        Versions().dump(),
        1,
        (NumberRun(1, desk.read(SERVICE, "plain")[0].serial, 1),),
    )
    desk.outbox.write(None, desk.at, sessions={KEY: row})
    desk.close()
    copy = Desk(tmp_path / "qm", epoch="e2")
    assert copy.outbox.sessions() == {}
    (found,) = copy.outbox.queue_rows()
    assert (found.paused, found.released_to) == (True, found.end), "all of it may have left"
    copy.close()
