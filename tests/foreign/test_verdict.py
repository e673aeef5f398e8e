"""The judgement finds each kind of fault, and nothing where there is none."""

from __future__ import annotations

import pytest

from tests.kit.foreign.ledger import Entry, Landed, Ledger
from tests.kit.foreign.verdict import judge

QM = "caf195ea-615c-4264-ae08-11a4e60194c0"
STREAM = f"uid:{QM}\\7"


def entry(
    number: int, *, position: int = 0, sent: float = 0.0, acknowledged: float | None = None
) -> Entry:
    return Entry(
        key=(QM, number),
        queue="private$/q",
        kind="stream" if position else "regular",
        body=f"body {number}",
        stream_id=STREAM if position else None,
        position=position,
        first_sent_at=sent,
        acknowledged_at=acknowledged,
    )


def row(
    sequence: int, number: int, *, position: int | None = None, body: str | None = None
) -> Landed:
    stream = STREAM if position else None
    return Landed(
        "private$/q", "e", sequence, QM, number, body or f"body {number}", stream, position
    )


def ledger(*entries: Entry) -> Ledger:
    return Ledger(entries={each.key: each for each in entries})


def test_all_is_well_when_everything_acknowledged_landed_once_and_the_rest_at_most_once() -> None:
    verdict = judge(ledger(entry(1, acknowledged=1), entry(2), entry(3)), [row(1, 1), row(2, 3)])
    assert verdict.ok
    assert (verdict.sent, verdict.acknowledged, verdict.landed) == (3, 1, 2)
    assert verdict.complaint() == ""


@pytest.mark.parametrize(
    ("kind", "entries", "rows"),
    [
        ("lost", [entry(1, acknowledged=1)], []),
        ("unexpected", [], [row(1, 1)]),
        ("doubled", [entry(1)], [row(1, 1), row(2, 1)]),
        (
            "disordered",
            [entry(1, position=1), entry(2, position=2)],
            [row(1, 2, position=2), row(2, 1, position=1)],
        ),
        ("disordered", [entry(1, acknowledged=5.0), entry(2, sent=6.0)], [row(1, 2), row(2, 1)]),
        ("gaps", [entry(1, position=1), entry(2, position=2)], [row(1, 2, position=2)]),
        ("altered", [entry(1)], [row(1, 1, body="another")]),
        ("reused", [entry(1), entry(2)], [row(1, 1), row(1, 2)]),
    ],
)
def test_each_fault_is_found(kind: str, entries: list[Entry], rows: list[Landed]) -> None:
    verdict = judge(ledger(*entries), rows)
    assert getattr(verdict, kind)
    assert not verdict.ok
    assert verdict.complaint().startswith(kind)


def test_a_second_stream_of_the_same_sender_comes_after_the_first() -> None:
    entries = [entry(1, position=1), entry(2, position=2)]
    entries[1].stream_id, entries[1].position = f"uid:{QM}\\8", 1
    rows = [row(1, 2, position=1)._replace(stream_id=f"uid:{QM}\\8"), row(2, 1, position=1)]
    assert judge(ledger(*entries), rows).disordered


def test_messages_under_way_at_the_same_time_may_land_in_any_order() -> None:
    assert judge(
        ledger(entry(1, sent=1.0, acknowledged=3.0), entry(2, sent=2.0, acknowledged=4.0)),
        [row(1, 2), row(2, 1)],
    ).ok
