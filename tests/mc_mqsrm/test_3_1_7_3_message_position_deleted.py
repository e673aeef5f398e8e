"""[MC-MQSRM] 3.1.7.3 Message Position Deleted: which receipts follow when a message leaves its queue, and their bytes."""

from __future__ import annotations

import itertools

import pytest

from srmp_spark.message import (
    CLASS_ACK_RECEIVE,
    CLASS_NACK_DELETED,
    CLASS_NACK_Q_DELETED,
    CLASS_NACK_Q_PURGED,
    CLASS_NACK_RECEIVE_REJECTED,
    CLASS_NACK_RECEIVE_TIMEOUT,
    CLASS_REPORT,
    Arrival,
    Message,
    Receipt,
    StreamId,
)
from srmp_spark.names import NULL_GUID, ORDER_QUEUE
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.encoder import encode, encode_envelope
from srmp_spark.srmp.codec.message_types import MessageType, message_type
from srmp_spark.srmp.codec.values import parse_date
from srmp_spark.srmp.receiving.decisions import (
    DecisionReceipt,
    Reason,
    Undecided,
    receipts_for,
    undecided_of,
)
from srmp_spark.srmp.receiving.effects import Accepted, Repeated
from srmp_spark.srmp.receiving.receipts import decision_receipt
from tests.kit.playbook import (
    RECEIPTS_URL,
    SENDER,
    STREAM,
    Playbook,
    commit_begins,
    commit_ends,
    delivered,
    leaves,
    ok,
    post,
    repeated,
    restart,
    row,
    stream_message,
    stream_receipt,
    synced,
    tick,
    told,
    user_message,
)

ADMIN = "http://machine1/MSMQ/private$/receipts"
ARRIVAL = Arrival(5, "http", "192.0.2.1:1801")
BOTH = {"commitment_receipt_to": ADMIN, "commitment_positive": True, "commitment_negative": True}
NEGATIVE = [reason for reason in Reason if reason is not Reason.RECEIVED]


def asked(message: Message, queue: str = "private$/ledger") -> Undecided:
    found = undecided_of(message, queue, 7, ARRIVAL, RECEIPTS_URL)
    assert found is not None
    return found


def taken(*messages: Message) -> list[Accepted | Repeated]:
    playbook = Playbook()
    outcomes = [playbook.receiver.receive(message, ARRIVAL, 0.0) for message in messages]
    assert all(isinstance(outcome, Accepted | Repeated) for outcome in outcomes)
    return outcomes  # type: ignore[return-value]  # just asserted


class TestReasons:
    def test_each_reason_has_its_class_and_decision(self) -> None:
        """3.1.7.3.1: AckReceive is positive, five others negative; [MS-MQDMPR] 3.1.7.1 maps them to classes."""
        assert {reason: (reason.value, reason.decision) for reason in Reason} == {
            Reason.RECEIVED: (CLASS_ACK_RECEIVE, "positive"),
            Reason.PURGED: (CLASS_NACK_DELETED, "negative"),
            Reason.QUEUE_DELETED: (CLASS_NACK_Q_DELETED, "negative"),
            Reason.QUEUE_PURGED: (CLASS_NACK_Q_PURGED, "negative"),
            Reason.EXPIRED: (CLASS_NACK_RECEIVE_TIMEOUT, "negative"),
            Reason.REJECTED: (CLASS_NACK_RECEIVE_REJECTED, "negative"),
        }

    @pytest.mark.parametrize("reason", Reason)
    @pytest.mark.parametrize("kind", ["commitment", "final_stream"])
    def test_a_peer_recognises_every_receipt_that_we_write(self, reason: Reason, kind: str) -> None:
        """3.1.5.1.5, by the bytes."""
        message = stream_message(3, dead_letter=True, **BOTH)
        (owed,) = (
            each for each in receipts_for(asked(message), reason, 10**15) if each.kind == kind
        )
        written = encode(
            decision_receipt(owed, identity=SENDER, uniquifier=9, via="http://machine2/msmq/q"),
            boundary="b",
        )
        expected = (
            MessageType.COMMITMENT_RECEIPT
            if kind == "commitment"
            else MessageType.FINAL_STREAM_RECEIPT
        )
        assert message_type(decode(*written)) is expected


class TestCommitmentReceipts:
    """3.1.7.3.1."""

    @pytest.mark.parametrize(
        ("positive", "negative"), list(itertools.product((False, True), repeat=2))
    )
    @pytest.mark.parametrize("reason", Reason)
    def test_only_what_was_asked_for(self, positive: bool, negative: bool, reason: Reason) -> None:
        message = user_message(
            commitment_receipt_to=ADMIN, commitment_positive=positive, commitment_negative=negative
        )
        row = undecided_of(message, "private$/orders", 7, ARRIVAL)
        wanted = positive if reason is Reason.RECEIVED else negative
        receipts = () if row is None else receipts_for(row, reason, 99)
        assert (row is None) == (not positive and not negative), "neither: MUST NOT be sent"
        if not wanted:
            assert receipts == ()
            return
        assert receipts == (
            DecisionReceipt(
                "commitment",
                ADMIN,
                "private$/orders",
                SENDER,
                1,
                "MSMQ:",
                "192.0.2.1",
                None,
                reason,
                99,
                None,
                0,
            ),
        )

    def test_a_stream_message_without_dead_letter_may_ask_for_one(self) -> None:
        assert [
            each.kind for each in receipts_for(asked(stream_message(1, **BOTH)), Reason.RECEIVED, 0)
        ] == ["commitment"]

    @pytest.mark.parametrize(
        "fields", [{"receipt": Receipt("stream")}, {"message_class": CLASS_REPORT}]
    )
    def test_a_receipt_never_asks_for_a_receipt(self, fields: dict[str, object]) -> None:
        assert undecided_of(user_message(**BOTH, **fields), "q", 1, ARRIVAL) is None

    def test_nobody_receives_from_our_order_queue(self) -> None:
        assert undecided_of(user_message(**BOTH), ORDER_QUEUE, 1, ARRIVAL) is None


class TestFinalStreamReceipts:
    """3.1.7.3.3."""

    def test_it_names_stream_and_position_and_goes_to_the_order_queue(self) -> None:
        first, second = taken(
            stream_message(1, dead_letter=True), stream_message(2, dead_letter=True)
        )
        assert isinstance(second, Accepted)
        assert first.generation == second.generation
        assert second.undecided is not None
        (owed,) = receipts_for(second.undecided, Reason.QUEUE_PURGED, 42)
        assert (owed.kind, owed.url, owed.stream_id, owed.position) == (
            "final_stream", RECEIPTS_URL, StreamId(SENDER, STREAM), 2,
        )  # fmt: skip
        message = decision_receipt(owed, identity=SENDER, uniquifier=9, via="v")
        assert message.receipt == Receipt(
            "final_stream", SENDER, 102, 42, "negative", StreamId(SENDER, STREAM), 2
        )
        assert (message.action, message.message_class) == (
            "MSMQ:QM Ordering Ack",
            CLASS_NACK_Q_PURGED,
        )

    @pytest.mark.parametrize("reason", Reason)
    def test_it_is_sent_whatever_the_decision_is(self, reason: Reason) -> None:
        (owed,) = receipts_for(asked(stream_message(1, dead_letter=True)), reason, 0)
        assert (owed.kind, owed.reason.decision) == ("final_stream", reason.decision)

    def test_beside_a_commitment_receipt_never_one_against_the_other(self) -> None:
        row = asked(stream_message(1, dead_letter=True, **BOTH))
        for reason in Reason:
            assert {each.reason.decision for each in receipts_for(row, reason, 0)} == {
                reason.decision
            }
            assert [each.kind for each in receipts_for(row, reason, 0)] == [
                "commitment",
                "final_stream",
            ]

    def test_not_without_dead_letter_and_not_outside_a_stream(self) -> None:
        assert undecided_of(stream_message(1), "private$/ledger", 1, ARRIVAL, RECEIPTS_URL) is None
        assert undecided_of(user_message(dead_letter=True), "private$/orders", 1, ARRIVAL) is None

    def test_the_address_is_that_of_its_own_stream_whatever_stream_comes_later(self) -> None:
        begun = stream_message(1, stream=STREAM + 1, uniquifier=500, dead_letter=True)
        assert begun.stream is not None
        begun = begun._replace(
            stream=begun.stream._replace(send_receipts_to="http://machine1/MSMQ/other")
        )
        old, new = taken(stream_message(1, dead_letter=True), begun)
        assert isinstance(old, Accepted)
        assert isinstance(new, Accepted)
        assert old.undecided is not None
        assert new.undecided is not None
        assert (old.undecided.final_to, new.undecided.final_to) == (
            RECEIPTS_URL,
            "http://machine1/MSMQ/other",
        )

    def test_a_message_that_comes_again_in_another_stream_tells_its_new_place(self) -> None:
        """The sender gave the first stream up: a receipt that names it would be discarded (3.1.5.1.9.1)."""
        again = stream_message(1, stream=STREAM + 1, uniquifier=101, dead_letter=True)
        _, repeat = taken(stream_message(1, dead_letter=True), again)
        assert isinstance(repeat, Repeated)
        assert repeat.moved is not None
        assert (repeat.moved.stream_id, repeat.moved.position) == (StreamId(SENDER, STREAM + 1), 1)
        assert (repeat.moved.lineage, repeat.moved.uniquifier) == (SENDER, 101)


class TestDialogue:
    """What leaves, and when."""

    ASKING = user_message(7, **BOTH)

    def test_nothing_is_told_before_the_mark_is_stored(self) -> None:
        playbook = Playbook() >> post(self.ASKING) << row("private$/orders", 1) >> synced() << ok()
        assert (
            playbook
            >> leaves("private$/orders", 1)
            >> commit_begins()
            >> commit_ends()
            << told("commitment", "positive", "7", to=ADMIN)
        )

    def test_a_mark_that_the_crash_took_is_told_as_it_is_made_again(self) -> None:
        playbook = Playbook() >> post(self.ASKING) << row("private$/orders", 1) >> synced() << ok()
        playbook = playbook >> leaves("private$/orders", 1) >> commit_begins() >> restart()
        assert (
            playbook
            >> leaves("private$/orders", 1, Reason.QUEUE_PURGED)
            >> synced()
            << told("commitment", "negative", "7", to=ADMIN)
        )

    def test_a_mark_that_the_crash_kept_is_told_after_it(self) -> None:
        playbook = Playbook() >> post(self.ASKING) << row("private$/orders", 1) >> synced() << ok()
        playbook = playbook >> leaves("private$/orders", 1) >> commit_begins()
        assert (
            playbook
            >> restart(commit_survives=True)
            << told("commitment", "positive", "7", to=ADMIN)
            >> synced()
        )

    def test_a_final_receipt_waits_for_the_stream_receipt(self) -> None:
        """Figure 11."""
        assert (
            Playbook()
            >> post(stream_message(1, dead_letter=True))
            << row("private$/ledger", 1)
            >> synced()
            << ok()
            >> leaves("private$/ledger", 1)
            >> synced()
            >> tick(0.5)
            << stream_receipt(last_ordinal=1)
            >> delivered()
            << told("final_stream", "positive", f"{STREAM}@1", to=RECEIPTS_URL)
        )

    def test_what_was_told_of_a_stream_that_was_given_up_is_told_again_of_the_next(self) -> None:
        playbook = (
            Playbook()
            >> post(stream_message(1, dead_letter=True))
            << row("private$/ledger", 1)
            >> synced()
            << ok()
        )
        playbook = playbook >> tick(0.5) << stream_receipt(last_ordinal=1) >> delivered()
        playbook = playbook >> leaves("private$/ledger", 1) >> synced()
        playbook = playbook << told("final_stream", "positive", f"{STREAM}@1", to=RECEIPTS_URL)
        again = stream_message(1, stream=STREAM + 1, uniquifier=101, dead_letter=True)
        playbook = playbook >> post(again) << repeated("identifier") >> synced() << ok()
        assert (
            playbook
            >> tick(0.5)
            << stream_receipt(last_ordinal=1, stream=STREAM + 1)
            >> delivered()
            << told("final_stream", "positive", f"{STREAM + 1}@1", to=RECEIPTS_URL)
        )


# The receipt of 4.3, as the document prints it but on one line, as its length demands.
COMMITMENT_RECEIPT_4_3 = (
    b'<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
    b'<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1"><action>MSMQ:</action>'
    b"<to>http://machine1/MSMQ/private$/receipts</to>"
    b"<rev><via>http://machine2/msmq/private$/simpleq</via></rev><id>uuid:34827@ac678228-2dd6-418b-b31f-0539ffeea853</id></path>"
    b'<properties se:mustUnderstand="1"><expiresAt>20380119T031407</expiresAt><sentAt>2007'
    b"0719T032721</sentAt></properties>"
    b"<commitmentReceipt><decidedAt>20070719T032721</decidedAt><decision>positive</decision>"
    b"<id>uuid:1@00000000-0000-0000-0000-000000000000</id></commitmentReceipt>"
    b'<Msmq xmlns="msmq.namespace.xml"><Class>16384</Class><Priority>3</Priority>'
    b"<Correlation>AAAAAAAAAAAAAAAAAAAAAAEAAAA=</Correlation><App>0</App><BodyType>0</BodyType><HashAlgorithm>0</HashAlgorithm>"
    b"<SourceQmGuid>ac678228-2dd6-418b-b31f-0539ffeea853</SourceQmGuid><TTrq>20070723T032721</TTrq></Msmq></se:Header>"
    b"<se:Body></se:Body></se:Envelope>"
)


def test_the_commitment_receipt_of_4_3_byte_for_byte() -> None:
    """Its message carries the label "Generic label" without "MSMQ:", which counts as empty (appendix A <6>)."""
    row = Undecided(
        "private$/simpleq",
        1,
        NULL_GUID,
        1,
        "Generic label",
        "192.0.2.1",
        None,
        ADMIN,
        True,
        True,
        None,
        None,
        0,
    )
    (owed,) = receipts_for(row, Reason.RECEIVED, parse_date("20070719T032721"))
    message = decision_receipt(
        owed,
        identity="ac678228-2dd6-418b-b31f-0539ffeea853",
        uniquifier=34827,
        via="http://machine2/msmq/private$/simpleq",
    )
    assert encode_envelope(message) == COMMITMENT_RECEIPT_4_3
    assert encode_envelope(message) == encode_envelope(message), "each sending has the same bytes"


@pytest.mark.parametrize("reason", NEGATIVE)
def test_a_label_is_repeated_in_a_commitment_receipt(reason: Reason) -> None:
    (owed,) = receipts_for(asked(stream_message(1, action="MSMQ:order 7", **BOTH)), reason, 0)
    assert decision_receipt(owed, identity=SENDER, uniquifier=1, via="v").action == "MSMQ:order 7"
