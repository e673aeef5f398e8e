"""[MC-MQSRM] 3.1.1.1.7 TransparentStoreAndForward and 3.1.1.1.10.2 InboundRedirectionCollection, by the steps of 3.1.5.1.3."""

from __future__ import annotations

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.message import Arrival, Message
from srmp_spark.names import FORWARD_QUEUE, NULL_GUID
from srmp_spark.queue_manager.posting.url_policy import UrlPattern, UrlPolicy
from srmp_spark.srmp.forward import forward_room
from srmp_spark.srmp.forward.forwarding import HOPS_MAX, NUMBER_MAX, forwarded
from srmp_spark.srmp.forward.redirection import Forwarding, Redirection, Redirections
from srmp_spark.srmp.receiving.effects import Accepted, Refused
from srmp_spark.srmp.receiving.receiver import ReceiverSettings
from tests.kit.playbook import (
    IDENTITY,
    SENDER,
    Playbook,
    ok,
    operator,
    post,
    refused,
    repeated,
    row,
    stream_message,
    stream_receipt,
    synced,
    tick,
    user_message,
)

FOREIGN = "http://machine3/msmq/private$/ledger"
HERE, LEDGER = "http://machine2/msmq/private$/front", "private$/ledger"


def settings(
    *inbound: tuple[str, str], allow: str = "http://machine3", on: bool = True
) -> ReceiverSettings:
    rules = Redirections(tuple(Redirection.parse(source, to) for source, to in inbound))
    allows = UrlPolicy([UrlPattern.parse(allow)]).names
    return ReceiverSettings(
        forwarding=Forwarding(store_and_forward=on, allows=allows, inbound=rules)
    )


def test_a_message_for_another_host_is_taken_if_the_operator_allows_that_host() -> None:
    assert (
        Playbook(settings())
        >> post(user_message(destination=FOREIGN))
        << row(FORWARD_QUEUE, 1)
        >> synced()
        << ok()
    )


@pytest.mark.parametrize(
    "to",
    ["http://machine4/msmq/private$/ledger", "http://machine3.evil.example/msmq/q", "http://machine3:8080/msmq/q",
     "https://machine3/msmq/q", "http://169.254.169.254/msmq/q"],
)  # fmt: skip
def test_we_are_no_open_relay(to: str) -> None:
    """That a message comes from a host is no reason to send to it."""
    playbook = Playbook(settings())
    assert (
        playbook
        >> post(user_message(destination=to), peer="169.254.169.254:1")
        << refused(400, "forward-not-allowed")
    )
    answer = playbook.receiver.receive(
        user_message(destination=to), Arrival(0, "http", "192.0.2.1:1"), 0.0
    )
    assert isinstance(answer, Refused)
    assert "--allow-url http" in answer.message


def test_an_allowed_host_is_refused_while_store_and_forward_is_off() -> None:
    off = settings((HERE, FOREIGN), on=False)
    assert Playbook(off) >> post(user_message(destination=FOREIGN)) << refused(400, "foreign-host")


def test_the_forwarder_is_the_receiver_of_the_stream_that_comes_in() -> None:
    """Its positions, its repeats, its receipts. Two destinations of one sender are two streams."""
    other = "http://machine3/msmq/private$/other"
    assert (
        Playbook(settings())
        >> post(stream_message(1, destination=FOREIGN))
        << row(FORWARD_QUEUE, 1)
        >> post(stream_message(1, destination=other, stream=7, uniquifier=201))
        << row(FORWARD_QUEUE, 2)
        >> post(stream_message(2, destination=FOREIGN))
        << row(FORWARD_QUEUE, 3)
        >> post(stream_message(2, destination=FOREIGN))
        << repeated("position")
        >> post(stream_message(4, destination=FOREIGN))
        << repeated("gap")
        >> synced()
        << ok(5)
    )


def test_what_comes_again_in_another_stream_is_forwarded_once() -> None:
    """3.1.5.1.11 goes before forwarding."""
    assert (
        Playbook(settings())
        >> post(user_message(7, destination=FOREIGN))
        << row(FORWARD_QUEUE, 1)
        >> post(user_message(7, destination=FOREIGN))
        << repeated("identifier")
    )


def test_an_inbound_redirection_to_a_queue_of_ours_stores_it_there() -> None:
    inbound = settings((HERE, "http://machine2/msmq/private$/orders"), on=False)
    assert (
        Playbook(inbound)
        >> post(user_message(destination=HERE))
        << row("private$/orders", 1)
        >> post(stream_message(1, destination=HERE))
        << refused(400, "not-transactional")
    )


def test_an_inbound_redirection_is_not_followed_twice() -> None:
    twice = settings(
        (HERE, "http://machine2/msmq/private$/orders"),
        ("http://machine2/msmq/private$/orders", FOREIGN),
    )
    assert Playbook(twice) >> post(user_message(destination=HERE)) << row("private$/orders", 1)


def test_two_streams_that_are_led_to_one_queue_stay_two() -> None:
    """And a redirection that begins or ends in the middle of a stream loses nothing: positions count by what ``<to>`` names."""
    both = settings((HERE, f"http://machine2/msmq/{LEDGER}"))
    assert (
        Playbook(both)
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(1, destination=HERE, stream=5, uniquifier=300))
        << row(LEDGER, 2)
        >> post(stream_message(2))
        << row(LEDGER, 3)
        >> post(stream_message(2, destination=HERE, stream=5, uniquifier=301))
        << row(LEDGER, 4)
    )


def test_an_inbound_redirection_to_another_host_needs_no_pattern() -> None:
    """Our own configuration is not restricted; the host of ``<to>`` must be ours."""
    inbound = settings((HERE, "http://machine9/msmq/private$/q"), on=False)
    assert Playbook(inbound) >> post(stream_message(1, destination=HERE)) << row(FORWARD_QUEUE, 1)


def test_a_redirection_to_a_queue_that_is_not_there_is_refused_like_any() -> None:
    inbound = settings((HERE, "http://machine2/msmq/private$/none"))
    assert (
        Playbook(inbound) >> post(user_message(destination=HERE)) << refused(400, "unknown-queue")
    )


def test_nobody_writes_into_the_queue_of_what_is_forwarded() -> None:
    to = f"http://machine2/msmq/{FORWARD_QUEUE}"
    assert (
        Playbook(settings()) >> post(user_message(destination=to)) << refused(400, "reserved-queue")
    )
    assert Playbook() >> post(user_message(destination=to)) << refused(400, "reserved-queue")
    with pytest.raises(ConfigurationError, match="purge"):
        Playbook(settings()).receiver.remove_queue(FORWARD_QUEUE)


def test_the_delivery_receipt_is_owed_by_the_last_on_the_way() -> None:
    receiver = Playbook(settings()).receiver
    message = user_message(
        destination=FOREIGN, delivery_receipt_to="http://machine1/msmq/private$/receipts"
    )
    taken = receiver.receive(message, Arrival(0, "http", "192.0.2.1:1"), 0.0)
    assert isinstance(taken, Accepted)
    assert taken.owed == ()
    assert forwarded(message, FOREIGN).delivery_receipt_to == message.delivery_receipt_to


def test_what_would_lose_something_on_the_way_is_refused_and_not_changed() -> None:
    for lost in ({"signature": "unverified"}, {"signature": "valid"}, {"soap_body": "<x/>"}, {"action": "<" * 30_000},
                 {"app_specific": NUMBER_MAX + 1}, {"body_type": 2**64 - 1}):  # fmt: skip
        assert (
            Playbook(settings())
            >> post(user_message(destination=FOREIGN, **lost))
            << refused(400, "unforwardable")
        )


def test_a_stream_message_that_waits_for_its_final_receipt_is_not_taken() -> None:
    """3.1.7.3.3: nobody could tell its sender, who would take what was delivered for a dead letter, and send it anew."""
    asks = {"dead_letter": True, "destination": FOREIGN}
    assert Playbook(settings()) >> post(stream_message(1, **asks)) << refused(400, "unforwardable")
    led = settings((HERE, FOREIGN))
    assert (
        Playbook(led)
        >> post(stream_message(1, destination=HERE, dead_letter=True))
        << refused(400, "unforwardable")
    )
    assert Playbook(settings()) >> post(user_message(1, **asks)) << row(FORWARD_QUEUE, 1), (
        "outside a stream nothing waits"
    )


def test_one_that_was_taken_before_is_a_repeat_and_no_refusal() -> None:
    """Its sender would take it for dead: it came while its queue was here, or to a version that forwarded it."""
    orders = f"http://machine2/msmq/{LEDGER}"
    playbook = Playbook(settings((orders, FOREIGN)))
    asking = stream_message(1, destination=orders, dead_letter=True)
    playbook.receiver.history.add(asking.lineage, asking.uniquifier, 0)
    assert (
        playbook >> post(asking) << repeated("identifier") >> post(asking) << repeated("position")
    )


def test_a_query_does_not_make_a_queue_of_another_host() -> None:
    """Each would be an outgoing queue here, and any sender could write ten thousand of them."""
    assert (
        Playbook(settings())
        >> post(user_message(destination=FOREIGN + "?x=1"))
        << refused(400, "unforwardable")
    )


def test_senders_cannot_make_outgoing_queues_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_room, "FORWARD_DESTINATIONS_MAX", 2)
    monkeypatch.setattr(forward_room, "FORWARD_SHARE", 1)
    assert (
        Playbook(settings((HERE, "http://machine9/msmq/private$/q")))
        >> post(user_message(1, destination=FOREIGN))
        << row(FORWARD_QUEUE, 1)
        >> post(user_message(2, destination=FOREIGN + "2"))
        << row(FORWARD_QUEUE, 2)
        >> post(user_message(3, destination=FOREIGN + "3"))
        << refused(503, "too-many-destinations")
        >> post(user_message(4, destination=FOREIGN.upper().replace("HTTP", "http")))
        << row(FORWARD_QUEUE, 3)
        >> post(user_message(5, destination=HERE))
        << row(FORWARD_QUEUE, 4)
    )


def test_a_destination_counts_only_while_something_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many there ever were. It waits in the log until the sender process has read it, then in an outgoing queue."""
    monkeypatch.setattr(forward_room, "FORWARD_DESTINATIONS_MAX", 2)
    monkeypatch.setattr(forward_room, "FORWARD_SHARE", 1)
    playbook = Playbook(settings())
    room = playbook.receiver.forward_room
    for n in range(1, 50):
        one = f"{FOREIGN}{n}"
        assert playbook >> post(user_message(n, destination=one)) << row(FORWARD_QUEUE, n)
        room.update({one: "192.0.2.1"}, [], begins=n == 1)
        room.forwarded(n)
        assert len(room) == 1, "it has left the log, and is outgoing"
        room.update({}, [one], begins=False)
        assert len(room) == 0


def test_what_an_operator_purged_or_could_not_be_read_counts_no_more() -> None:
    playbook = Playbook(settings())
    assert playbook >> post(user_message(destination=FOREIGN)) << row(FORWARD_QUEUE, 1)
    playbook.receiver.forward_room.forwarded(1)
    assert len(playbook.receiver.forward_room) == 0


def test_a_repeat_or_a_refusal_counts_nothing() -> None:
    playbook = Playbook(settings())
    assert playbook >> post(user_message(7, destination=FOREIGN)) << row(FORWARD_QUEUE, 1)
    assert playbook >> post(user_message(7, destination=FOREIGN + "2")) << repeated("identifier")
    assert len(playbook.receiver.forward_room) == 1


def test_one_sender_has_a_share_of_the_destinations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_room, "FORWARD_DESTINATIONS_MAX", 8)
    playbook = Playbook(settings())
    greedy, other = "192.0.2.66:1", "192.0.2.7:1"
    for n in (1, 2):
        assert (
            playbook
            >> post(user_message(n, destination=f"{FOREIGN}{n}"), peer=greedy)
            << row(FORWARD_QUEUE, n)
        )
    third = user_message(3, destination=f"{FOREIGN}3")
    assert playbook >> post(third, peer=greedy) << refused(503, "too-many-destinations")
    assert (
        playbook
        >> post(user_message(4, destination=f"{FOREIGN}1"), peer=greedy)
        << row(FORWARD_QUEUE, 3)
    )
    assert playbook >> post(third, peer=other) << row(FORWARD_QUEUE, 4)
    playbook.receiver.forward_room.update(
        {f"{FOREIGN}{n}": "192.0.2.66" for n in (1, 2)}, [], begins=True
    )
    playbook.receiver.forward_room.forwarded(4)
    fifth = user_message(5, destination=f"{FOREIGN}5")
    assert playbook >> post(fifth, peer=greedy) << refused(503, "too-many-destinations"), (
        "it still counts"
    )
    playbook.receiver.forward_room.update({}, [], begins=True)
    assert playbook >> post(fifth, peer=greedy) << refused(503, "too-many-destinations"), (
        "a new process has not told all yet"
    )
    playbook.receiver.forward_room.forwarded(4)
    assert playbook >> post(fifth, peer=greedy) << row(FORWARD_QUEUE, 5)


def test_after_a_start_new_destinations_wait_until_what_waits_is_counted() -> None:
    """Else each start admitted as many again, and nothing bounded them while the sender process cannot run."""
    playbook = Playbook(settings())
    room = playbook.receiver.forward_room
    room.starts(7)
    new = user_message(1, destination=f"{FOREIGN}1")
    assert playbook >> post(new) << refused(503, "too-many-destinations")
    room.update({}, [], begins=True)
    room.update({f"{FOREIGN}2": "192.0.2.7"}, [], begins=False)
    assert playbook >> post(user_message(2, destination=f"{FOREIGN}2")) << row(FORWARD_QUEUE, 1), (
        "it is counted"
    )
    room.forwarded(6)
    assert playbook >> post(new) << refused(503, "too-many-destinations"), (
        "row 7 may be for any destination"
    )
    room.forwarded(7)
    assert playbook >> post(new) << row(FORWARD_QUEUE, 2)


def test_a_destination_counts_for_whom_messages_wait_there_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forward_room, "FORWARD_DESTINATIONS_MAX", 4)
    room = Playbook(settings()).receiver.forward_room
    room.update({FOREIGN: "192.0.2.1"}, [], begins=True)
    room.update({FOREIGN: "192.0.2.2"}, [], begins=False)
    assert room.refuses(FOREIGN + "2", "192.0.2.1") is None
    assert "its share" in str(room.refuses(FOREIGN + "2", "192.0.2.2"))


def test_who_only_asks_or_may_not_write_uses_none_of_them_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``doctor``, and the access check that comes before the engine: they judge, and nothing moves."""
    monkeypatch.setattr(forward_room, "FORWARD_DESTINATIONS_MAX", 1)
    playbook = Playbook(settings())
    for n in range(5):
        assert not isinstance(
            playbook.receiver.judge(user_message(n + 1, destination=f"{FOREIGN}{n}")), Refused
        )
    assert playbook >> post(user_message(9, destination=FOREIGN)) << row(FORWARD_QUEUE, 1)


def test_a_pattern_is_compared_with_the_one_spelling_of_a_queue() -> None:
    """What is judged is what is called: ``%64`` is ``d``, and a queue that no pattern names has no other spelling either."""
    one = settings(allow="http://machine3/msmq/private$/ledger")
    for same in (
        "http://machine3/msmq/private$/le%64ger",
        "http://machine3/MSMQ\\private$\\LEDGER",
        FOREIGN,
    ):
        assert Playbook(one) >> post(user_message(destination=same)) << row(FORWARD_QUEUE, 1)
    below = settings(allow="http://machine3/msmq/private$/a%62c*")
    assert (
        Playbook(below)
        >> post(user_message(destination="http://machine3/msmq/private$/a%62cd"))
        << refused(400, "forward-not-allowed")
    )


def test_a_paused_forward_queue_answers_503() -> None:
    playbook = Playbook(settings())

    def pause() -> None:
        playbook.receiver.queues[FORWARD_QUEUE].paused = True

    assert (
        playbook
        >> operator("pause", lambda r: pause())
        >> post(user_message(destination=FOREIGN))
        << refused(503, "paused")
    )


def test_a_message_passes_a_queue_manager_once() -> None:
    """We know its identifier: the second time it would be answered 200 and lost."""
    receiver = Playbook(settings()).receiver
    message = user_message(destination=FOREIGN)
    assert receiver.refuses_hops(message, [SENDER]) is None
    answer = receiver.refuses_hops(message, [SENDER, IDENTITY])
    assert answer is not None
    assert (answer.status, answer.reason) == (400, "loop")
    many = [f"{number:08x}-0000-0000-0000-000000000000" for number in range(HOPS_MAX)]
    assert receiver.refuses_hops(message, many[1:]) is None
    answer = receiver.refuses_hops(message, many)
    assert answer is not None
    assert (answer.status, answer.reason) == (400, "too-many-hops")
    assert receiver.refuses_hops(user_message(), many) is None, "it has arrived"
    assert (
        Playbook(settings())
        >> post(user_message(5, destination=FOREIGN, lineage=IDENTITY))
        << refused(400, "loop")
    )


def test_all_but_stream_body_and_destination_stays() -> None:
    message = stream_message(3, destination=HERE, correlation=bytes(range(20)), app_specific=7, body=b"x", extension=b"y",
                             time_to_reach_queue=5_000_000, sent_at=1_000_000, commitment_receipt_to="http://a/msmq/q",
                             commitment_negative=True, dead_letter=True, trace=True, body_type=8, source_qm=SENDER)  # fmt: skip
    sent = forwarded(message, FOREIGN)
    changed = {name for name in Message._fields if getattr(sent, name) != getattr(message, name)}
    assert changed == {"destination", "stream", "body", "extension"}
    assert sent.id == message.id
    assert not forwarded(Message(HERE, lineage=NULL_GUID, uniquifier=1), FOREIGN).has_identity, (
        "it gets ours when it is sent"
    )


def test_the_receipts_of_a_stream_that_is_forwarded_are_ours_to_send() -> None:
    assert (
        Playbook(settings())
        >> post(stream_message(1, destination=FOREIGN))
        << row(FORWARD_QUEUE, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
    )
