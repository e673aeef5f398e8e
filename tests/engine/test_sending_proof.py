"""Nothing leaves, and nothing is told as final, without the store's proof: in the types and in the order of calls."""

from __future__ import annotations

import pytest

from srmp_spark.errors import LocalProtocolError
from srmp_spark.message import Message
from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey, Send, StoredMessage
from srmp_spark.srmp.sending.sender import Sender
from tests.kit.oracle import Oracle
from tests.kit.sending_playbook import (
    DESTINATION,
    IDENTITY,
    RECEIPTS_URL,
    SendingPlaybook,
    answer,
    dead,
    enqueue,
    operator,
    sends,
)
from tests.kit.sim_outbox import SimOutbox

KEY = QueueKey(DESTINATION, "stream")
MESSAGE = Message(DESTINATION, lineage=IDENTITY, uniquifier=1, has_msmq=True)
PROOF = SimOutbox(Oracle()).proof()


def enqueued() -> Sender:
    sender = Sender(IDENTITY)
    sender.enqueue(DESTINATION, "stream", 2, 0, receipts_url=RECEIPTS_URL)
    return sender


@pytest.mark.parametrize("no_proof", [None, 1, True, "Committed(1)"])
def test_a_send_needs_the_proof_of_a_commit(no_proof: object) -> None:
    with pytest.raises(LocalProtocolError, match="only what is stored may leave"):
        Send(KEY, StoredMessage(1, MESSAGE), MESSAGE, 1, 0, 0, False, no_proof)  # type: ignore[arg-type]  # that is the test


def test_committed_refuses_what_is_no_proof() -> None:
    sender = enqueued()
    with pytest.raises(LocalProtocolError, match="final only when it is stored"):
        sender.committed(sender.changes(), 1)  # type: ignore[arg-type]  # that is the test


def test_commits_come_in_the_order_of_the_changes_and_once() -> None:
    sender = enqueued()
    first = sender.changes()
    second = sender.changes()
    sender.committed(first, PROOF)
    sender.committed(second, PROOF)
    for again in (first, second, second._replace(generation=7)):
        with pytest.raises(LocalProtocolError, match="cannot be the next to be committed"):
            sender.committed(again, PROOF)


def test_a_proof_older_than_the_last_is_refused() -> None:
    disk = SendingPlaybook().disk
    old = disk.proof()
    disk.position += 1
    sender = enqueued()
    sender.committed(sender.changes(), disk.proof())
    with pytest.raises(LocalProtocolError, match="proves no commit after"):
        sender.committed(sender.changes(), old)


def test_nothing_is_even_read_before_the_commit() -> None:
    sender = enqueued()
    assert sender.poll(0.0, 0) == []
    assert sender.has_changes
    changes = sender.changes()
    assert sender.poll(0.0, 0) == []
    sender.committed(changes, PROOF)
    (load,) = sender.poll(0.0, 0)
    assert isinstance(load, Load)
    assert (load.after, load.last) == (0, 2)
    assert sender.poll(0.0, 0) == []
    sender.loaded(
        load, [StoredMessage(1, MESSAGE), StoredMessage(2, MESSAGE._replace(uniquifier=2))]
    )
    (send,) = sender.poll(0.0, 0)
    assert isinstance(send, Send)
    assert (send.serial, send.message.uniquifier) == (1, 1)


@pytest.mark.parametrize("serials", [[0], [3], [2, 1], [1, 1]])
def test_rows_that_were_not_asked_for_are_refused(serials: list[int]) -> None:
    sender = enqueued()
    sender.committed(sender.changes(), PROOF)
    (load,) = sender.poll(0.0, 0)
    assert isinstance(load, Load)
    with pytest.raises(LocalProtocolError, match="ascending serials of its range"):
        sender.loaded(load, [StoredMessage(serial, MESSAGE) for serial in serials])


def test_an_outdated_load_is_dropped() -> None:
    sender = enqueued()
    sender.committed(sender.changes(), PROOF)
    (load,) = sender.poll(0.0, 0)
    assert isinstance(load, Load)
    assert sender.retry(DESTINATION, "stream")
    (newer,) = sender.poll(0.0, 0)
    sender.loaded(load, [StoredMessage(1, MESSAGE)])
    assert sender.poll(0.0, 0) == []
    assert isinstance(newer, Load)
    sender.loaded(newer, [StoredMessage(1, MESSAGE)])
    assert len(sender.poll(0.0, 0)) >= 1


def test_while_a_commit_is_under_way_nothing_is_written_twice() -> None:
    """Who writes whatever there is in each group commit would otherwise never come to rest."""
    sender = enqueued()
    changes = sender.changes()
    sender.poll(0.0, 0)
    assert not sender.has_changes
    sender.committed(changes, PROOF)


def test_a_million_that_wait_cost_nothing() -> None:
    playbook = SendingPlaybook()
    sender = playbook.sender
    sender.enqueue(DESTINATION, "stream", 1_000_000, 0, receipts_url=RECEIPTS_URL)
    sender.committed(sender.changes(), PROOF)
    (load,) = sender.poll(0.0, 0)
    assert isinstance(load, Load)
    sender.loaded(load, [StoredMessage(serial, MESSAGE) for serial in range(1, load.rows_max + 1)])
    position = 0
    for _ in range(600):
        for effect in sender.poll(0.0, 0):
            if isinstance(effect, Load):
                first = effect.after + 1
                sender.loaded(
                    effect,
                    [
                        StoredMessage(serial, MESSAGE)
                        for serial in range(first, first + effect.rows_max)
                    ],
                )
            else:
                position += 1
                assert effect.message.stream is not None
                assert effect.message.stream.current == position
                sender.answered(effect, 200, 0.0, 0)
        if sender.has_changes:
            sender.committed(sender.changes(), PROOF)
    assert position > 500
    (queue,) = sender
    assert len(queue.buffer) <= 2 * load.rows_max


def test_a_reset_of_an_empty_stream_changes_nothing() -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1)
        << sends(1, start=True)
        >> answer(400)
        << dead(1, "refused", status=400)
    )
    assert (
        playbook
        >> operator("reset", lambda sender: sender.reset(DESTINATION))
        >> enqueue(1)
        << sends(2, position=1, start=True)
    )
