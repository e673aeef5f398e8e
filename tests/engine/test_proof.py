"""A 200 is only born from the store's proof: in the types, in the order of calls, and in the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from srmp_spark.errors import LocalProtocolError
from srmp_spark.message import Arrival
from srmp_spark.srmp.receiving.effects import (
    Accepted,
    Changes,
    Committed,
    Ok,
    OwedReceipt,
    Repeated,
)
from srmp_spark.srmp.receiving.history import HistoryChanges
from tests.kit.playbook import Playbook, stream_message, user_message

ARRIVAL = Arrival(0, "http", "192.0.2.1:1801")


def test_ok_needs_the_proof_of_a_commit() -> None:
    pending = Accepted("private$/orders", 1, (), None, 1)
    assert Ok(pending, Committed(1)).status == 200
    for no_proof in (None, 1, True, "Committed(1)"):
        with pytest.raises(LocalProtocolError, match="needs the store's proof"):
            Ok(pending, no_proof)  # type: ignore[arg-type]  # that is the test


def test_committed_refuses_what_is_no_proof_or_an_older_one() -> None:
    receiver = Playbook().receiver
    receiver.committed([], Committed(5), 0.0)
    receiver.committed([], Committed(5), 0.0)
    with pytest.raises(LocalProtocolError, match="proves no commit after 5"):
        receiver.committed([], Committed(4), 0.0)
    with pytest.raises(LocalProtocolError, match="proves no commit"):
        receiver.committed([], 6, 0.0)  # type: ignore[arg-type]  # that is the test


def test_a_message_whose_changes_were_not_taken_cannot_be_in_the_commit() -> None:
    receiver = Playbook().receiver
    pending = receiver.receive(user_message(1), ARRIVAL, 0.0)
    assert isinstance(pending, Accepted)
    with pytest.raises(LocalProtocolError, match="newer than the changes that were committed"):
        receiver.committed([pending], Committed(1), 0.0)
    receiver.changes()
    later = receiver.receive(user_message(2), ARRIVAL, 0.0)
    assert isinstance(later, Accepted)
    (ok,) = receiver.committed([pending], Committed(1), 0.0)
    assert ok.pending is pending
    with pytest.raises(LocalProtocolError, match="newer than the changes"):
        receiver.committed([later], Committed(2), 0.0)


def test_a_repeat_waits_for_whatever_is_not_taken_yet() -> None:
    receiver = Playbook().receiver
    receiver.receive(user_message(1), ARRIVAL, 0.0)
    repeat = receiver.receive(user_message(1), ARRIVAL, 0.0)
    assert isinstance(repeat, Repeated)
    assert not repeat.needs_commit
    with pytest.raises(LocalProtocolError, match="newer than the changes"):
        receiver.committed([repeat], Committed(1), 0.0)
    receiver.changes()
    again = receiver.receive(user_message(1), ARRIVAL, 0.0)
    assert isinstance(again, Repeated)
    assert len(receiver.committed([repeat, again], Committed(1), 0.0)) == 2


def test_a_position_that_moves_without_a_row_needs_a_commit() -> None:
    receiver = Playbook().receiver
    receiver.receive(stream_message(1, uniquifier=7), ARRIVAL, 0.0)
    receiver.changes()
    moved = receiver.receive(stream_message(2, uniquifier=7), ARRIVAL, 0.0)
    assert isinstance(moved, Repeated)
    assert moved.needs_commit
    assert [row.sequence_number for row in receiver.changes().streams] == [2]


def test_changes_know_whether_there_is_anything_to_write() -> None:
    receiver = Playbook().receiver
    assert not receiver.changes()
    receiver.receive(user_message(1), ARRIVAL, 0.0)
    assert receiver.changes()
    assert not receiver.changes()
    assert Changes([], HistoryChanges([], []), [("q", "guid")], 1)


def test_nobody_but_the_store_makes_a_proof() -> None:
    """Read from the source: journal and outbox after their COMMIT, and the simulated disk after its sync."""
    root = Path(__file__).resolve().parents[2]
    makers = {
        str(path.relative_to(root))
        for folder in ("srmp_spark", "tests/kit")
        for path in (root / folder).rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"(?<![\w\"'])Committed\(", line.split("#")[0])
        and not re.match(r'\s*(class |return f"|"""|→|.*→)', line)
    }
    assert makers == {
        "srmp_spark/store/journal.py",
        "srmp_spark/store/outbox/tables/database.py",
        "tests/kit/sim_disk.py",
    }


def test_the_receivers_repr_says_where_it_stands() -> None:
    receiver = Playbook().receiver
    assert (
        repr(receiver)
        == "<Receiver 32221eda-9376-46df-b6ed-783091123831 queues=3 streams=0 history=0 "
        "changes=0 timer=None>"
    )


def test_an_owed_receipt_is_written_as_version_0_1_wrote_it_unless_its_sender_has_a_name() -> None:
    plain = OwedReceipt(
        "delivery", "http://a/b", "private$/orders", "guid", 7, 1, "MSMQ:", "192.0.2.1:9"
    )
    assert "sender_name" not in plain.payload()
    named = plain._replace(sender_name="CN=machine1")
    for receipt in (plain, named):
        assert OwedReceipt.from_payload(receipt.payload()) == receipt
