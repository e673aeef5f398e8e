"""[MC-MQSRM] 3.1.5.1.6.4 Processing IncomingTransactionalTransferInfo: what is known of each stream that comes in."""

from __future__ import annotations

from srmp_spark.message import StreamId
from tests.kit.playbook import (
    SENDER,
    STREAM,
    Playbook,
    ok,
    post,
    repeated,
    row,
    stream_message,
    synced,
    tick,
)

LEDGER = "private$/ledger"
OTHER_MACHINE = "b7a3f1de-0b5e-4c4e-9a43-6a2c1f0e7d11"
MACHINE = "6a74a825-57b2-43e5-9d34-f1d8b2b8950a"


def test_an_object_for_each_stream_with_its_queue_sender_identifier_and_number() -> None:
    playbook = Playbook(queues={LEDGER: True, "invoices": True})
    assert (
        playbook
        >> post(stream_message(1, source_qm=MACHINE))
        << row(LEDGER, 1)
        >> post(stream_message(1, queue="invoices", stream=STREAM + 1, uniquifier=7))
        << row("invoices", 1)
        >> post(stream_message(2, source_qm=MACHINE))
        << row(LEDGER, 2)
    )
    ledger, invoices = sorted(
        playbook.receiver.streams, key=lambda stream: stream.sequence_number, reverse=True
    )
    assert (ledger.queue, ledger.source_qm, ledger.id, ledger.sequence_number) == (
        LEDGER,
        MACHINE,
        StreamId(SENDER, STREAM),
        2,
    )
    assert (invoices.queue, invoices.id, invoices.sequence_number) == (
        "invoices",
        StreamId(SENDER, STREAM + 1),
        1,
    )


def test_the_sender_identifier_is_that_of_the_last_message_it_took() -> None:
    """SenderIdentifier "MUST be set to SRMPMessage.SourceMachineIdentifier", of each message and not of the first alone."""
    playbook = Playbook()
    assert playbook >> post(stream_message(1, source_qm=MACHINE)) << row(LEDGER, 1)
    (stream,) = playbook.receiver.streams
    assert stream.source_qm == MACHINE
    assert (
        playbook
        >> post(stream_message(2, source_qm=OTHER_MACHINE))
        << row(LEDGER, 2)
        >> synced()
        << ok(2)
    )
    assert stream.source_qm == playbook.disk.streams[LEDGER, SENDER].source_qm == OTHER_MACHINE
    assert playbook >> post(stream_message(4, source_qm=MACHINE)) << repeated("gap")
    assert stream.source_qm == OTHER_MACHINE


def test_last_access_time_is_that_of_the_last_message_it_took() -> None:
    playbook = Playbook()
    assert playbook >> post(stream_message(1)) << row(LEDGER, 1)
    (stream,) = playbook.receiver.streams
    assert (stream.started_at, stream.last_access_at) == (
        playbook.clock.utc(),
        playbook.clock.utc(),
    )
    assert playbook >> tick(5) >> post(stream_message(2)) << row(LEDGER, 2) >> synced() << ok(2)
    assert stream.last_access_at == playbook.clock.utc() == stream.started_at + 5_000_000
    assert playbook.disk.streams[LEDGER, SENDER].last_access_at == stream.last_access_at


def test_rejected_messages_are_counted_until_one_is_accepted() -> None:
    playbook = Playbook()
    assert playbook >> post(stream_message(1)) << row(LEDGER, 1)
    (stream,) = playbook.receiver.streams
    assert (
        playbook
        >> post(stream_message(3))
        << repeated("gap")
        >> post(stream_message(1))
        << repeated("position")
    )
    assert stream.reject_count == 2
    assert playbook >> post(stream_message(1, stream=STREAM - 1, uniquifier=9)) << repeated("stale")
    assert stream.reject_count == 2, "a late copy of an earlier stream was not rejected by this one"
    assert playbook >> post(stream_message(2)) << row(LEDGER, 2)
    assert stream.reject_count == 0
