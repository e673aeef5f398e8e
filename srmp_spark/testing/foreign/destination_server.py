"""A foreign destination: a receiving queue manager written from [MC-MQSRM] alone.

The destination also watches its sender. Each connection has a thread (``wire``). A POST is read,
parsed (``incoming``) and checked against the document (``form``, ``sender_rules``). Only then does
the schedule of faults decide the answer (``faults``), so the watcher sees the POST whatever the
answer is. An accepted message is in the journal before anything is answered (``record``), and its
receipt is sent half a second later (``receipts_sender``). One lock guards all state. A restart
discards the state and builds it again from the journal. A loss of memory does not build it again.
The watcher's knowledge stays in both cases.

Use it in a test::

    with Destination(faults=Faults.parse("503=0.1,drop-after=0.1", seed=7)) as peer:
        ...  # send to peer.url("private$/orders")
        assert peer.verdict({"private$/orders": bodies}).ok

The folder imports nothing from outside it but the standard library.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from srmp_spark.testing.foreign.destination_verdict import DestinationVerdict, judge_record
from srmp_spark.testing.foreign.faults import Fate, Faults
from srmp_spark.testing.foreign.form import FIELDS, ReceivedHead, Remark, remarks
from srmp_spark.testing.foreign.incoming import Incoming, MalformedError, read_message
from srmp_spark.testing.foreign.ports import KeptPort
from srmp_spark.testing.foreign.receipts_sender import DestinationReceipts
from srmp_spark.testing.foreign.receiving import (
    CLASS_ORDER_ACK,
    RECEIPT_WAIT,
    RECEIPT_WAIT_MAX,
    AcceptedMessage,
    Outcome,
    Owed,
    ReceivingManager,
    delivery_receipt,
    final_receipt,
    queue_of,
)
from srmp_spark.testing.foreign.record import EventRecord
from srmp_spark.testing.foreign.sender_rules import SenderRules, Sight
from srmp_spark.testing.foreign.wire import Listener, Reply, WireRequest

IIS_TEXT = {
    503: "Service Unavailable",
    500: "Internal Server Error",
    502: "Bad Gateway",
    400: "Bad Request",
    200: "OK",
}
STRANGE = {
    "drop-middle": b"HTTP/1.1 200 OK\r\nContent-Le",
    "garbage": b"220 smtp.example ESMTP\r\n\r\n",
    "continue": b"HTTP/1.1 100 Continue\r\n\r\n" * 1000
    + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "huge": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 4_194_304,
}
"""Name of a fault → the bytes that are written as the answer; then the connection is closed.

After such an answer a sender does not know, or hardly knows, the fate of its message.
"""
FINALS = ("none", "positive", "negative")
"""What happens at once to an accepted message that asks for a final receipt.

``none``: nothing. ``positive``: the message is received. ``negative``: its queue is purged.
"""


class Destination:
    """A receiving queue manager that watches its sender.

    The default of every argument is that of a well-behaved peer. Port 0 means a free port.
    ``queues`` maps each name to whether the queue is transactional; with ``None`` every queue
    exists and accepts both kinds. ``record`` is the path of the journal; an existing journal is
    continued, and ``None`` means a temporary file. ``refuse`` returns whether a message is answered
    400. ``allow`` names rules whose violations are not counted. ``finals`` is one of
    :data:`FINALS`. ``receipt_wait`` and ``receipt_wait_max`` are as in
    :class:`.receiving.ReceivingManager`. With ``repeat_receipts`` a repeated stream message lets
    its receipt be sent again. ``clock`` returns the time that dates of messages are compared with.
    A destination that was stopped cannot be started again.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        queues: Mapping[str, bool] | None = None,
        faults: Faults | None = None,
        record: Path | None = None,
        refuse: Callable[[Incoming], bool] | None = None,
        allow: Collection[str] = (),
        finals: str = "none",
        receipt_wait: float = RECEIPT_WAIT,
        receipt_wait_max: float = RECEIPT_WAIT_MAX,
        repeat_receipts: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if finals not in FINALS:
            raise ValueError(f"finals is one of {FINALS}: {finals!r}")
        self.faults = faults or Faults()
        self.guid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"foreign destination {self.faults.seed}"))
        self.record = EventRecord(record)
        self.rules = SenderRules()
        self.violations: list[Remark] = []
        self.struck: dict[str, int] = {}
        """Number of times that each fault struck a POST."""
        self._lock = threading.RLock()
        self._arrived = threading.Condition(self._lock)
        """Notified when the fate of a POST is decided."""
        self._decided = 0
        """Number of POSTs whose fate is decided and recorded."""
        self._life = threading.Lock()
        """Held while the port is closed and opened again by :meth:`down` or :meth:`restart`."""
        self._allow, self._refuse, self._finals, self._clock = (
            frozenset(allow),
            refuse,
            finals,
            clock,
        )
        self._kinds = (
            None if queues is None else {name.lower(): kind for name, kind in queues.items()}
        )
        self._waits = receipt_wait, receipt_wait_max
        self._repeat_receipts = repeat_receipts
        self._posts = 0
        self._host = host
        self._state = self._new_state()
        self._kept = KeptPort(host)
        """Reserves the port while the destination is down, if argument ``port`` is 0."""
        self._listener = Listener(host, port or self._kept.number, self._serve)
        self._recall()
        self.receipts = DestinationReceipts(
            guid=self.guid,
            faults=self.faults,
            record=self.record,
            rules=self.rules,
            lock=self._lock,
            due=lambda now: list(self._state.due(now)),
            url_of=self.url,
            refused=lambda remark: self._violate(self._posts, [remark]),
        )
        self._background: list[threading.Thread] = []

    # -- life

    def start(self) -> Destination:
        """Open the port, start the thread that sends receipts, and return this object.

        Stream receipts that an earlier process with the same journal did not send are sent now.
        """
        self._listener.open()
        self.record.write("started", port=self.port)
        self.receipts.start()
        return self

    def stop(self) -> None:
        """Close the port and the journal, and end the threads. The journal can still be read.

        The call waits up to 30 s for each :meth:`down` and :meth:`restart` that a fault has begun.
        """
        for thread in self._background:
            thread.join(timeout=30)
        self._listener.close()
        self.receipts.stop()
        self.record.close()

    def __enter__(self) -> Destination:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """Return the port on which the destination listens."""
        return self._listener.port

    def url(self, queue: str) -> str:
        """Return the URL of a queue, which is the ``<to>`` of a message to this queue."""
        return f"http://{self._host}:{self.port}/msmq/{queue}"

    def down(self, seconds: float) -> None:
        """Close the port for ``seconds``, and then open it again with the same state.

        The call returns when the port is open again.
        """
        with self._life:
            self.record.write("down", seconds=seconds)
            self._listener.close()
            time.sleep(seconds)
            self._listener.open()

    def restart(self, *, memory_lost: bool = False, down: float = 0.0) -> None:
        """Close the port, build the state again from the journal, and listen again.

        The port stays closed for ``down`` seconds, and the call returns when it is open. With
        ``memory_lost`` the new state is empty. Waiting delivery and final receipts are lost.
        """
        with self._life:
            self._listener.close()
            with self._lock:
                self.record.write("memory-lost" if memory_lost else "restarted", down=down)
                self.receipts.forget()
                self._state = self._new_state()
                if not memory_lost:
                    self._recall_state()
            time.sleep(down)
            self._listener.open()

    # -- acts of an application and an administrator

    @property
    def queues(self) -> dict[str, list[AcceptedMessage]]:
        """Return a copy of the accepted messages of each queue, by queue name in lower case.

        Messages stay there also after :meth:`decide`. A loss of memory removes all messages.
        """
        with self._lock:
            return {name: list(messages) for name, messages in self._state.queues.items()}

    def wait(self, count: int, seconds: float, queue: str | None = None) -> bool:
        """Wait until at least ``count`` messages are in all queues together, or in ``queue``.

        Return ``True`` then, or ``False`` after ``seconds``.
        """

        def are_there() -> bool:
            queues = self._state.queues
            if queue is not None:
                return len(queues.get(queue.lower(), ())) >= count
            return sum(map(len, queues.values())) >= count

        with self._arrived:
            return self._arrived.wait_for(are_there, seconds)

    def wait_for_posts(self, count: int, seconds: float) -> bool:
        """Wait until the fate of at least ``count`` POSTs is decided, accepted or not.

        Return ``True`` then, or ``False`` after ``seconds``.
        """
        with self._arrived:
            return self._arrived.wait_for(lambda: self._decided >= count, seconds)

    def decide(self, queue: str, decision: str) -> int:
        """Send the final receipts of all messages of a queue, as if it had been emptied.

        ``decision`` is ``positive`` (received) or ``negative`` (purged). The messages stay in
        :attr:`queues`, so a second call sends the receipts again. Return the number of receipts;
        messages that ask for none are not counted.
        """
        with self._lock:
            messages = self._state.queues.get(queue.lower(), [])
            owed = [
                receipt
                for receipt in (final_receipt(message, decision) for message in messages)
                if receipt
            ]
        for receipt in owed:
            self.receipts.add(receipt)
        return len(owed)

    def withhold_receipts(self, seconds: float) -> None:
        """Send no stream receipt for ``seconds`` from now on.

        Receipts that are due are sent afterwards.
        """
        self.receipts.withhold(seconds)

    def send_receipt(self, owed: Owed) -> None:
        """Send a receipt that the caller made, soon and in another thread."""
        self.receipts.add(owed)

    def verdict(
        self,
        expected: Mapping[str, Sequence[bytes]],
        *,
        ordered: bool | None = None,
        partly: bool = False,
    ) -> DestinationVerdict:
        """Compare the journal with the bodies that an application handed to the sender.

        ``expected`` maps each queue to its bodies. The verdict says whether each body was accepted
        once and in order, and whether the sender kept the rules. :func:`.judge_record` describes
        the arguments and errors.
        """
        return judge_record(self.record.path, expected, ordered=ordered, partly=partly)

    @property
    def journal(self) -> list[dict[str, Any]]:
        """Return the journal's entry of every POST, in the order in which their fates were decided.

        An entry has at least ``n``, ``at``, ``outcome`` and ``status``. Refused, repeated and
        malformed POSTs have entries, and POSTs that a fault left unread. A POST whose connection
        the sender closed too early has none.
        """
        return [event for event in self.record.events() if event["event"] == "post"]

    # -- one POST

    def _serve(self, request: WireRequest) -> Reply:
        with self._lock:
            self._posts += 1
            n = self._posts
        fate = self.faults.of_post(n)
        if fate.name == "drop-before":
            with self._lock:
                self.rules.unread()
            self._strike(n, fate)
            self._note(n, "unread", None, None)
            return Reply(drop=True)
        try:
            head_text, content = request.read()
            head = ReceivedHead(head_text)
            # All fields are read, because a field that appears twice is malformed.
            fields = {name: head.field(name) for name in FIELDS}
            message = read_message(fields["Content-Type"] or "", content)
        except MalformedError as error:
            self._violate(n, [Remark("malformed", error.section, error.text)])
            self._note(n, "malformed", None, 400)
            return _answer(400, close=True)
        sight = _sight(n, message, time.time())
        with self._lock:
            self.record.write("sight", **sight._asdict())
            found = [*remarks(head, content, message, self._clock()), *self.rules.arrived(sight)]
        if not message.is_user_message:
            found.append(
                Remark(
                    "class",
                    "3.1.5.1.5",
                    f"POST {n} is not a user message: class {message.message_class}",
                )
            )
        self._violate(n, found)
        if fate.name:
            self._strike(n, fate)
        return self._decide(n, message, sight, fate)

    def _decide(self, n: int, message: Incoming, sight: Sight, fate: Fate) -> Reply:
        if fate.name.isdigit() and fate.name != "400":
            return self._reply(sight, "failed", int(fate.name))
        if fate.name == "down":
            self._later(lambda: self.down(fate.seconds))
            self._note(n, "dropped", sight, None)
            return Reply(drop=True)
        if fate.name == "slow":
            time.sleep(fate.seconds)
        outcome = self._take(n, message, sight, fate)
        if fate.name in ("restart", "memory-lost"):
            self._later(
                lambda: self.restart(memory_lost=fate.name == "memory-lost", down=fate.seconds)
            )
        if fate.name in ("drop-after", "restart", "memory-lost"):
            self._note(n, outcome.value, sight, None)
            return Reply(drop=True)
        if fate.name in STRANGE:
            self._note(n, outcome.value, sight, None)
            return Reply(STRANGE[fate.name], drop=True)
        return self._reply(sight, outcome.value, 400 if outcome is Outcome.REFUSED else 200)

    def _take(self, n: int, message: Incoming, sight: Sight, fate: Fate) -> Outcome:
        refused = fate.name == "400" or self.faults.refuses(message.lineage, message.uniquifier)
        with self._lock:
            if refused or (self._refuse is not None and self._refuse(message)):
                return Outcome.REFUSED
            outcome, accepted = self._state.receive(message, n, time.time())
            if accepted is not None:
                self.record.write("accepted", message=accepted.as_json())
                self.rules.accepted(sight)
            elif (
                outcome is Outcome.REPEATED and self._repeat_receipts and message.stream is not None
            ):
                self._state.owe_again(sight.queue, message.stream.guid, time.time())
        if accepted is not None:
            decision = final_receipt(accepted, self._finals) if self._finals != "none" else None
            for owed in (delivery_receipt(accepted), decision):
                if owed is not None:
                    self.receipts.add(owed)
        return outcome

    def _reply(self, sight: Sight, outcome: str, status: int) -> Reply:
        def written() -> None:
            now = time.time()
            with self._lock:
                self.rules.answered(sight, status, now)
                self.record.write("answered", n=sight.n, status=status)

        with self._lock:
            self.rules.answering(sight, status)
        self._note(sight.n, outcome, sight, status)
        return _answer(status, written=written)

    def _note(self, n: int, outcome: str, sight: Sight | None, status: int | None) -> None:
        place = (
            {} if sight is None else {"queue": sight.queue, "id": sight.key, "stream": sight.stream}
        )
        more = (
            {}
            if sight is None
            else {
                "current": sight.current,
                "previous": sight.written_previous,
                "digest": sight.digest,
            }
        )
        self.record.write("post", n=n, outcome=outcome, status=status, **place, **more)
        with self._arrived:
            self._decided += 1
            self._arrived.notify_all()

    def _strike(self, n: int, fate: Fate) -> None:
        with self._lock:
            self.struck[fate.name] = self.struck.get(fate.name, 0) + 1
        self.record.write("fault", n=n, name=fate.name)

    def _violate(self, n: int, found: Sequence[Remark]) -> None:
        with self._lock:
            for remark in found:
                if remark.rule not in self._allow:
                    self.violations.append(remark)
                    self.record.write(
                        "violation", n=n, rule=remark.rule, section=remark.section, text=remark.text
                    )

    def _later(self, action: Callable[[], None]) -> None:
        """Start ``action`` in another thread and return at once.

        The thread of a connection cannot close the connection that it waits for.
        """
        thread = threading.Thread(target=action, daemon=True)
        self._background.append(thread)
        thread.start()

    # -- memory

    def _new_state(self) -> ReceivingManager:
        return ReceivingManager(kinds=self._kinds, wait=self._waits[0], wait_max=self._waits[1])

    def _recall_state(self) -> None:
        """Build the state from the messages that were accepted since the last loss of memory.

        A stream owes a receipt if its sender lacks a receipt for the last message.
        """
        delivered: dict[tuple[str, int], int] = {}
        for event in self.record.events():
            if event["event"] == "memory-lost":
                self._state = self._new_state()
            elif event["event"] == "accepted":
                self._state.restore(AcceptedMessage.from_json(event["message"]))
            elif (
                event["event"] == "receipt"
                and event["status"] == 200
                and event["number"] == CLASS_ORDER_ACK
                and event["honest"]
            ):
                stream = event["stream"][0], event["stream"][1]
                delivered[stream] = max(event["last"], delivered.get(stream, 0))
        self._state.owe_all(delivered, time.time())

    def _recall(self) -> None:
        """Build the state and the watcher's knowledge from the journal of an earlier process."""
        self._recall_state()
        sights: dict[int, Sight] = {}
        self._replay(sights)
        self.rules.restarted()

    def _replay(self, sights: dict[int, Sight]) -> None:
        for event in self.record.events():
            kind = event.pop("event")
            if kind == "sight":
                sight = Sight(**event)._replace(
                    key=tuple(event["key"]), stream=event["stream"] and tuple(event["stream"])
                )
                sights[sight.n] = sight
                self._posts = max(self._posts, sight.n)
                # The violations are in the journal already, so they are not recorded again.
                for _ in self.rules.arrived(sight):
                    pass
            elif kind == "post":
                self._posts = max(self._posts, event["n"])
            elif kind == "accepted":
                self.rules.accepted(sights[event["message"]["n"]])
            elif kind == "answered":
                self.rules.answered(sights[event["n"]], event["status"], event["at"])
            elif kind == "violation":
                self.violations.append(Remark(event["rule"], event["section"], event["text"]))
            elif (
                kind in ("receipting", "receipt")
                and event["number"] == CLASS_ORDER_ACK
                and event["honest"]
            ):
                stream = event["stream"][0], event["stream"][1]
                self.rules.receipting(stream, event["last"])
                if event.get("status") == 200:
                    self.rules.receipted(stream, event["last"], event["at"])


def _sight(n: int, message: Incoming, now: float) -> Sight:
    place = message.stream
    sight = Sight(
        n=n,
        at=now,
        queue=queue_of(message.to),
        key=(message.lineage, message.uniquifier),
        has_identifier=message.has_identifier,
        digest=message.digest,
        sent_at=message.sent_at,
        gone_after=message.gone_after,
    )
    if place is None:
        return sight
    return sight._replace(
        stream=(place.guid, place.ordinal),
        current=place.current,
        written_previous=place.written_previous,
        start=place.start,
        receipts_to=place.receipts_to,
    )


def _answer(
    status: int, *, close: bool = False, written: Callable[[], None] | None = None
) -> Reply:
    """Return an answer as IIS writes it in 4.3.

    An answer other than 200 has an HTML page, which a sender has to skip; a redirect has a
    ``Location``. With ``close`` the connection ends after the answer. ``written`` is called when
    the answer is in the socket.
    """
    text = IIS_TEXT.get(status, "Because")
    page = b"" if status == 200 else f"<html><body>{status} {text}</body></html>".encode()
    head = f"HTTP/1.1 {status} {text}\r\nContent-Length: {len(page)}\r\n"
    if page:
        head += "Content-Type: text/html\r\n"
    if status < 400 and page:
        head += "Location: /msmq/private$/astray\r\n"
    head += (
        "Server: Microsoft-IIS/7.0\r\nDate: "
        f"{time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime())}\r\n"
    )
    return Reply(
        (head + ("Connection: close\r\n" if close else "") + "\r\n").encode() + page,
        drop=close,
        written=written,
    )
