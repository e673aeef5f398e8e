"""[MC-MQSRM] 3.1.5.1.8 Stream Receipt Message Processing: for another stream, beyond what was sent, repeated."""

from __future__ import annotations

import re

import pytest

from srmp_spark.message import Message, Receipt
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from srmp_spark.srmp.sending.receipts_address import ReceiptAddresses
from srmp_spark.srmp.sending.transfer_info import OutgoingTransferInfo, SequenceInfo, transfer_info
from tests.kit.dialogue import Input
from tests.kit.sending_playbook import (
    DESTINATION,
    RECEIPTS_URL,
    Output,
    SendingPlaybook,
    answer,
    committed,
    delivered,
    enqueue,
    final_receipt,
    hold_commits,
    no_answer,
    once_more,
    operator,
    restart,
    sends,
    stream_receipt,
    tick,
    verdict,
)


def two_sent() -> SendingPlaybook:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(3)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
        << sends(3)
    )
    return playbook


def test_everything_up_to_last_ordinal_is_freed() -> None:
    assert two_sent() >> stream_receipt(2) << delivered(1, 2) >> stream_receipt(3) << delivered(3)


def test_200_alone_frees_nothing() -> None:
    """3.1.7.2.5: "the sending QM MUST retain the message in the OutgoingQueue"."""
    playbook = two_sent()
    assert playbook >> answer(200) >> tick(29)
    assert (
        len(
            playbook.disk.messages[
                playbook.under_way[0].key if playbook.under_way else _key(playbook)
            ]
        )
        == 3
    )


def _key(playbook: SendingPlaybook) -> tuple[str, str]:
    (key,) = playbook.disk.messages
    return key


def test_after_a_clean_stop_none_is_believed_about_what_never_left() -> None:
    """``released_to`` runs ahead of what leaves. After a crash nobody knows the difference, after a stop everybody does."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(9)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
        << sends(3)
    )
    assert (
        playbook
        >> operator("stop", lambda sender: sender.stop())
        >> restart()
        << sends(1, start=True, again=True)
    )
    assert (
        playbook >> stream_receipt(4) << verdict("beyond") >> stream_receipt(3) << delivered(1, 3)
    )
    assert playbook >> answer(200) << sends(4)


@pytest.mark.parametrize("last_ordinal", [4, 2**32 - 1, 2**64 - 1])
def test_a_receipt_beyond_what_was_sent_changes_nothing(last_ordinal: int) -> None:
    playbook = two_sent()
    assert playbook >> stream_receipt(last_ordinal) << verdict("beyond") >> tick(1)
    assert playbook.sender.receipts["beyond"] == 1


def test_also_when_the_messages_are_stored_but_have_not_left() -> None:
    playbook = SendingPlaybook()
    assert playbook >> enqueue(5) << sends(1, start=True) >> stream_receipt(2) << verdict("beyond")


def test_also_after_a_restart() -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(5)
        << sends(1, start=True)
        >> restart()
        << sends(1, start=True, again=True)
    )
    assert playbook >> stream_receipt(2) << verdict("beyond") >> stream_receipt(1) << delivered(1)


def test_a_receipt_for_what_left_before_a_restart_counts() -> None:
    """A peer that ignores repeats, as printed, sends it only this once."""
    playbook = SendingPlaybook()
    assert playbook >> enqueue(2) << sends(1, start=True) >> answer(200) << sends(2) >> answer(200)
    assert (
        playbook
        >> restart()
        << sends(1, start=True, again=True)
        >> stream_receipt(2)
        << delivered(1, 2)
    )


def test_an_old_receipt_changes_nothing() -> None:
    assert two_sent() >> stream_receipt(2) << delivered(1, 2) >> stream_receipt(2) << verdict("old") >> stream_receipt(1) << verdict("old")  # fmt: skip # one line, one story


def test_last_ordinal_0_acknowledges_nothing() -> None:
    assert two_sent() >> stream_receipt(0) << verdict("old")


def test_a_receipt_for_the_stream_before_changes_nothing() -> None:
    """Its numbers mean other messages now."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(1)
        << sends(1, start=True)
        >> answer(200)
        >> stream_receipt(1)
        << delivered(1)
    )
    assert playbook >> enqueue(1) << sends(2, position=1, start=True) >> answer(200)
    assert (
        playbook
        >> stream_receipt(1, stream=-1)
        << verdict("another-stream")
        >> stream_receipt(1)
        << delivered(2)
    )


def test_the_guid_counts_as_much_as_the_ordinal() -> None:
    other = "99999999-0000-4000-8000-000000000000"
    assert two_sent() >> stream_receipt(2, guid=other) << verdict("another-stream")


def test_a_sender_stream_in_the_address_must_come_back() -> None:
    """Windows' own ``?SenderStream=XRntV`` (4.4): whoever cannot read our messages cannot make receipts for them."""
    playbook = two_sent()
    (stream,) = playbook.sender
    stream.receipts_url = f"{RECEIPTS_URL}?SenderStream=XRntV"  # type: ignore[attr-defined]  # it is a stream
    assert playbook >> stream_receipt(2) << verdict("another-address")
    assert (
        playbook
        >> stream_receipt(2, to="http://machine1/msmq/private$/order_queue$?senderstream=xrntv")
        << delivered(1, 2)
    )


def told(playbook: SendingPlaybook) -> str:
    """``<sendReceiptsTo>`` of the stream that is under way."""
    place = playbook.under_way[-1].message.stream
    assert place is not None
    assert place.send_receipts_to is not None
    return place.send_receipts_to


def test_what_another_destination_was_told_frees_nothing() -> None:
    """The ordinals of our streams follow each other: what one peer was told must not do for the stream to another."""
    addresses, another = ReceiptAddresses("key"), "http://machine3/msmq/private$/ledger"
    playbook = SendingPlaybook()
    playbook.sender.receipts_go_to(RECEIPTS_URL, addresses.replacement)
    assert playbook >> enqueue(1) << sends(1, start=True)
    address = told(playbook)
    assert re.fullmatch(r"\?SenderStream=[0-9a-f]{32}", address.removeprefix(RECEIPTS_URL)), address
    for forged in (another, DESTINATION + "2", ""):
        to = addresses.replacement(forged, RECEIPTS_URL)
        assert playbook >> stream_receipt(1, to=to) << verdict("another-address")
    assert playbook >> stream_receipt(1, to=ReceiptAddresses("other").replacement(DESTINATION, RECEIPTS_URL)) << verdict("another-address")  # fmt: skip # one line, one story
    assert playbook >> stream_receipt(1, to=address) << delivered(1)


def test_a_stream_keeps_the_secret_that_it_told_also_when_the_next_version_makes_another() -> None:
    playbook = SendingPlaybook()
    playbook.sender.receipts_go_to(RECEIPTS_URL, lambda _, url: f"{url}?SenderStream=XRntV")
    assert (
        playbook
        >> enqueue(1)
        << sends(1, start=True)
        >> answer(200)
        >> restart()
        << sends(1, start=True, again=True)
    )
    assert (
        playbook.sender.receipts_go_to(RECEIPTS_URL, ReceiptAddresses("key").replacement) == []
    ), "it leads here as well"
    assert told(playbook) == f"{RECEIPTS_URL}?SenderStream=XRntV"
    other = ReceiptAddresses("key").replacement(DESTINATION, RECEIPTS_URL)
    assert playbook >> answer(200) >> stream_receipt(1, to=other) << verdict("another-address")
    assert playbook >> stream_receipt(1, to=f"{RECEIPTS_URL}?SenderStream=XRntV") << delivered(1)
    assert playbook >> enqueue(1) << sends(2, position=1, start=True)
    assert told(playbook) == other


def test_nothing_is_told_as_delivered_before_it_is_stored() -> None:
    assert (
        two_sent()
        >> hold_commits()
        >> stream_receipt(2)
        >> tick(1)
        >> committed()
        << delivered(1, 2)
    )


def test_a_receipt_that_was_not_stored_is_as_if_it_had_not_come() -> None:
    assert (
        two_sent()
        >> hold_commits()
        >> stream_receipt(2)
        >> restart()
        << sends(1, start=True, again=True)
        >> answer(200)
        << sends(2, again=True)
    )


def test_a_receipt_that_overtakes_the_answer() -> None:
    playbook = SendingPlaybook()
    expected: list[Output] = [delivered(1)]
    assert playbook >> enqueue(2) << sends(1, start=True)
    assert playbook.step(stream_receipt(1)) == expected
    assert playbook >> answer(200) << sends(2, previous=1)


def test_what_is_no_receipt_about_a_stream_is_not_ours_to_judge() -> None:
    playbook = two_sent()
    delivery = Message(
        "http://machine1/msmq/q", receipt=Receipt("delivery", lineage="x", uniquifier=1)
    )
    assert playbook.sender.receipt(Message("http://machine1/msmq/q"), 0.0, 0) is None
    assert playbook.sender.receipt(delivery, 0.0, 0) is None
    assert playbook.sender.get(DESTINATION, "stream") is not None


def test_the_time_of_the_last_receipt_is_kept() -> None:
    """3.1.5.1.8.2, EodLastAckTime: of one that acknowledges something."""
    playbook = two_sent()
    (stream,) = playbook.sender
    assert stream.last_acknowledged_at == 0
    assert playbook >> tick(3) >> stream_receipt(2) << delivered(1, 2)
    at = playbook.clock.utc()
    assert stream.last_acknowledged_at == at
    assert playbook >> tick(3) >> stream_receipt(2) << verdict("old")
    assert stream.last_acknowledged_at == at


def _info(playbook: SendingPlaybook) -> OutgoingTransferInfo:
    (stream,) = playbook.sender
    assert isinstance(stream, OutgoingStream)
    found = transfer_info(stream)
    assert found is not None
    return found


def test_transfer_info_of_what_was_sent() -> None:
    """3.1.7.2.3: the sequence information of the first and last message without a receipt, and of the next."""
    playbook = two_sent()
    (stream,) = playbook.sender
    assert isinstance(stream, OutgoingStream)
    ordinal, info = stream.ordinal, _info(playbook)
    assert info.eod_last_ack == SequenceInfo(ordinal, 0, 0)
    assert (info.eod_no_ack_count, info.eod_no_read_count, info.eod_last_ack_count) == (3, 0, 0)
    assert info.eod_first_non_ack == SequenceInfo(ordinal, 1, 0)
    assert info.eod_last_non_ack == SequenceInfo(ordinal, 3, 2)
    assert info.eod_next_seq == SequenceInfo(ordinal, 4, 3)
    assert (info.eod_resend_interval, info.eod_resend_time) == (30.0, stream.receipt_wait_at)
    assert info.eod_last_ack_time is None


def test_transfer_info_after_receipts() -> None:
    playbook = two_sent()
    (stream,) = playbook.sender
    assert isinstance(stream, OutgoingStream)
    ordinal = stream.ordinal
    assert playbook >> tick(3) >> stream_receipt(2) << delivered(1, 2)
    info = _info(playbook)
    assert (info.eod_last_ack, info.eod_last_ack_count) == (SequenceInfo(ordinal, 2, 0), 1)
    assert (info.eod_no_ack_count, info.eod_first_non_ack) == (1, SequenceInfo(ordinal, 3, 2))
    assert info.eod_last_ack_time == playbook.clock.utc()
    assert playbook >> tick(3) >> stream_receipt(1) << verdict("old")
    info = _info(playbook)
    assert (info.eod_last_ack, info.eod_last_ack_count) == (SequenceInfo(ordinal, 2, 0), 2), (
        "a repeat counts"
    )
    assert info.eod_last_ack_time == playbook.clock.utc()
    assert playbook >> stream_receipt(3) << delivered(3)
    info = _info(playbook)
    assert (info.eod_no_ack_count, info.eod_first_non_ack, info.eod_last_non_ack) == (0, None, None)


def test_transfer_info_of_the_next_stream_begins_anew() -> None:
    playbook = two_sent()
    assert playbook >> answer(200) >> stream_receipt(3) << delivered(1, 3)
    before = _info(playbook).eod_last_ack.seq_id
    assert playbook >> enqueue(1) << sends(4, position=1, start=True)
    info = _info(playbook)
    assert info.eod_last_ack.seq_id > before
    assert (info.eod_last_ack.seq_no, info.eod_last_ack_count, info.eod_no_ack_count) == (0, 0, 1)
    assert (
        info.eod_first_non_ack
        == info.eod_last_non_ack
        == SequenceInfo(info.eod_last_ack.seq_id, 1, 0)
    )


def test_transfer_info_counts_what_waits_for_a_final_receipt() -> None:
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(2, final=True)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
    )
    assert playbook >> stream_receipt(2)
    assert (_info(playbook).eod_no_ack_count, _info(playbook).eod_no_read_count) == (0, 2)
    assert playbook >> final_receipt(1) << delivered(1)
    assert _info(playbook).eod_no_read_count == 1


@pytest.mark.parametrize("end", [answer(503), no_answer(left=False)], ids=["503", "refused"])
def test_a_receipt_for_a_first_attempt_counts_though_the_second_one_failed_and_all_was_forgotten(
    end: Input,
) -> None:
    """Taken for one of a message that never left it would be passed over, and the peer sends no receipt twice."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(2)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> once_more()
        >> end
    )
    assert (
        playbook
        >> operator("pause", lambda sender: sender.pause(DESTINATION, "stream"))
        >> restart()
    )
    assert playbook >> stream_receipt(2) << delivered(1, 2)
