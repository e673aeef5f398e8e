"""Define the commands, answers, events and settings between main process and sender process.

A *stage* is the file with the rows of one task of a batch. ``token`` is the name of the API token
for which a command is sent, or ``None``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from srmp_spark.names import LocalHosts
from srmp_spark.queue_manager.child.encoding import Encoding
from srmp_spark.queue_manager.multicast.settings import PgmSettings
from srmp_spark.srmp.forward.redirection import ReceiptUrls, Redirections


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderProcessSettings:
    """The settings of a sender process."""

    data_dir: str
    queue_manager: str
    epoch: str
    receipts_url: str
    """URL of this queue manager's order queue, without the secret of a destination."""
    receipts_key: str
    resend_table: tuple[float, ...]
    retransmission_timeout: float
    multicast: PgmSettings | None
    wsrm_poll_interval: float
    live: bool
    """Whether the send history is kept. Only the Delta state needs the send history."""
    redirect_in: Redirections
    redirect_out: Redirections
    receipt_urls: ReceiptUrls
    hosts: LocalHosts
    forward_end: int
    """Sequence of the last row of ``private$/forward$`` that was accepted before this start."""
    forward_waiting: int
    """Number of rows of ``private$/forward$`` that no consumer has received."""
    is_held: bool
    """Whether nothing is sent, because the data directory is a copy (store/tables/held_copy.py)."""
    tls: tuple[str | None, str | None, str | None]
    """Files of the trusted authorities, of the own certificate, and of its key."""


# --- batches of a sink ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddStage:
    """Requests to check the stage ``file``, and to keep the stage for its batch."""

    application: str
    batch: str
    partition: int
    attempt: str
    file: str


@dataclass(frozen=True, slots=True)
class StageAdded:
    """Answers :class:`AddStage`."""

    stage: str
    """Identifier of the stage, by which a commit names the stage."""
    rows: int
    """Number of rows that the client sent, with the bad ones."""
    warning: str | None
    """The problem of the queue that the stage names for dead letters, or ``None``."""
    bad: int = 0
    """Number of rows that can never be sent, and were taken out."""
    first_bad: str = ""
    """Text that names the first of these rows, and its problem."""


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Requests to commit ``stages`` as one batch."""

    application: str
    batch: str
    stages: list[str]
    on_conflict: str
    allow_loop: bool
    token: str | None


@dataclass(frozen=True, slots=True)
class FindBatchResult:
    """Requests the result of the last commit of a batch."""

    application: str
    batch: str


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Answers :class:`CommitBatch` and :class:`FindBatchResult` with numbers of rows.

    :class:`.prepared.CommitResult` describes the fields.
    """

    new: int
    known: int
    conflicts: int
    bad: int = 0
    first_bad: str = ""


@dataclass(frozen=True, slots=True)
class DeleteStages:
    """Requests to delete the stages of a batch that were not committed."""

    application: str
    batch: str


@dataclass(frozen=True, slots=True)
class StagesDeleted:
    """Answers :class:`DeleteStages` with the number of stages."""

    deleted: int


# --- messages and outgoing queues -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendMessages:
    """Requests to commit messages. The answer is a list of :class:`MessageState`.

    The main process passes the messages as :class:`.ItemTexts`, and does not parse the answer.
    """

    token: str | None
    messages: list[Any]


@dataclass(frozen=True, slots=True)
class MessageState:
    """The state of a message that was committed for one destination."""

    message_id: str
    destination: str
    stream_id: str | None
    stream_sequence: int | None
    state: str
    kind: str
    serial: int


@dataclass(frozen=True, slots=True)
class KnownMessageState:
    """The state of a message that was sent before under the same key.

    ``message_id`` is ``None``, because no new message was sent (INTERFACE.md section 7).
    """

    message_id: None
    known: bool
    known_message_id: str | None
    destination: str
    stream_id: None
    stream_sequence: None
    state: str
    kind: str
    serial: int | None


@dataclass(frozen=True, slots=True)
class FindStates:
    """Requests the states of the messages ``serials`` of one outgoing queue.

    The answer waits for at most ``wait`` seconds until all of these messages have ended.
    """

    destination: str
    kind: str
    serials: list[int]
    wait: float


@dataclass(frozen=True, slots=True)
class MessageStates:
    """Answers :class:`FindStates`, in the order of the serials."""

    states: list[str]


@dataclass(frozen=True, slots=True)
class Operate:
    """Requests an operator's decision about a destination (:data:`.operations.ACTIONS`)."""

    action: str
    destination: str
    stream: str | None = None
    """The only stream to which the decision applies, or ``None`` for all queues."""


@dataclass(frozen=True, slots=True)
class Operated:
    """Answers :class:`Operate`: the decision is stored. ``destination`` has its canonical form."""

    destination: str
    action: str


# --- status ---------------------------------------------------------------------------------------


class SessionEntries(TypedDict):
    """The fields of an :class:`OutgoingEntry` about a session, one for each such transport.

    The rules of a transport (:mod:`srmp_spark.transports`) name its field.
    """

    multicast: dict[str, Any] | None
    wsrm: dict[str, Any] | None


class OutgoingEntry(SessionEntries):
    """One entry of ``status.outgoing`` (INTERFACE.md section 3), with times in microseconds."""

    destination: str
    kind: str
    state: str
    stream_id: str | None
    send_receipts_to: str | None
    queued: int
    awaiting_stream_receipt: int
    awaiting_final_stream_receipt: int
    in_doubt: int
    last_acknowledged: int
    last_acknowledged_at: int | None
    last_error: str | None
    damaged: str | None
    same_queue: dict[str, object] | None
    next_attempt_at: int | None
    transfer_info: dict[str, Any] | None
    """:class:`.OutgoingTransferInfo`."""


@dataclass(frozen=True, slots=True)
class GetStatus:
    """Requests the status of all outgoing queues."""


@dataclass(frozen=True, slots=True)
class SenderStatus:
    """Answers :class:`GetStatus`."""

    outgoing: list[Any]
    """Entries of the type :class:`OutgoingEntry`.

    They are not checked one by one, which for 10,000 queues would hold the loop for 14 ms.
    """
    set_aside: list[dict[str, str]]
    """Rows of the outbox that cannot be read."""
    dead_letters: dict[str, int]
    """Number of dead letters by reason, since the outbox was created."""


# --- dead letters for queues of applications ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindLetterQueues:
    """Requests names of local queues for which dead letters wait.

    The names are in order, and begin after ``after``.
    """

    after: str


@dataclass(frozen=True, slots=True)
class LetterQueues:
    """Answers :class:`FindLetterQueues`. The list is empty if there are no further queues."""

    queues: list[str]


@dataclass(frozen=True, slots=True)
class NextLetters:
    """Requests the next group of dead letters for ``queue``."""

    queue: str
    handed: int
    """``id`` of the group that the main process stored last, or 0 for none."""


@dataclass(frozen=True, slots=True)
class ApplicationLetter:
    """A dead letter, as the POST request that would have sent the message."""

    post: bytes
    head_length: int
    """Length of the request's head in bytes."""


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Answers :class:`NextLetters`."""

    id: int | None
    """Number of the group, or ``None`` if there is no group."""
    letters: list[ApplicationLetter]


# --- forwarding and notices -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HoldForwarding:
    """Requests to hold forwarding, because rows of ``private$/forward$`` will be purged."""


@dataclass(frozen=True, slots=True)
class ForwardingHeld:
    """Answers :class:`HoldForwarding`."""

    forwarded: tuple[str, int] | None
    """Epoch and sequence up to which rows are outgoing, or ``None`` if no row ever was."""


@dataclass(frozen=True, slots=True)
class ReleaseForwarding:
    """Notifies the child that the purge is over. There is no answer."""


@dataclass(frozen=True, slots=True)
class SendingAllowed:
    """Notifies the child that the data directory was activated: everything may be sent."""


@dataclass(frozen=True, slots=True)
class ReceiptsArrived:
    """Notifies the child of new rows in the order queue. There is no answer."""


@dataclass(frozen=True, slots=True)
class ForwardArrived:
    """Notifies the child of new rows in ``private$/forward$``. There is no answer."""


@dataclass(frozen=True, slots=True)
class IdentifiersReserved:
    """Answers the event :class:`ReserveIdentifiers` of the same ``number``.

    ``first`` is the first of the consecutive identifiers.
    """

    number: int
    first: int


@dataclass(frozen=True, slots=True)
class IdentifiersRefused:
    """Answers the event :class:`ReserveIdentifiers` of the same ``number`` with an error."""

    number: int
    status: int
    code: str
    error: str
    hint: str


SenderNotice = ReleaseForwarding | ReceiptsArrived | ForwardArrived | SendingAllowed
SenderQuestion = (
    AddStage
    | CommitBatch
    | FindBatchResult
    | DeleteStages
    | SendMessages
    | FindStates
    | Operate
    | GetStatus
    | FindLetterQueues
    | NextLetters
    | HoldForwarding
)
SenderCommand = SenderQuestion | SenderNotice | IdentifiersReserved | IdentifiersRefused

SENDER_COMMANDS: Encoding[SenderCommand] = Encoding(
    {
        "stage": AddStage,
        "commit": CommitBatch,
        "result": FindBatchResult,
        "delete": DeleteStages,
        "send": SendMessages,
        "state": FindStates,
        "operate": Operate,
        "status": GetStatus,
        "dead-letter-queues": FindLetterQueues,
        "dead-letters": NextLetters,
        "hold-forwarding": HoldForwarding,
        "release-forwarding": ReleaseForwarding,
        "receipts": ReceiptsArrived,
        "forward": ForwardArrived,
        "send-allowed": SendingAllowed,
        "reserved": IdentifiersReserved,
        "not-reserved": IdentifiersRefused,
    }
)


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReserveIdentifiers:
    """Asks the main process to reserve ``count`` message identifiers.

    The main process answers with :class:`IdentifiersReserved` or :class:`IdentifiersRefused`.
    """

    number: int
    count: int


@dataclass(frozen=True, slots=True)
class DeadLettersWait:
    """Reports that there are new dead letters, which may be for a local queue."""


@dataclass(frozen=True, slots=True)
class ReceiptsNoted:
    """Reports that the rows of the order queue up to sequence ``to`` are no longer needed."""

    to: int


@dataclass(frozen=True, slots=True)
class ForwardHolding:
    """Reports changes of the destinations that hold forwarded messages."""

    holding: dict[str, str]
    """The sender of the messages, by destinations that hold messages now."""
    empty: list[str]
    """Destinations that no longer hold messages."""
    begins: bool
    """Whether the child has just begun to report."""


@dataclass(frozen=True, slots=True)
class RowsForwarded:
    """Reports that rows of ``private$/forward$`` are outgoing, up to ``to`` of ``epoch``."""

    epoch: str
    to: int


SenderEvent = ReserveIdentifiers | DeadLettersWait | ReceiptsNoted | ForwardHolding | RowsForwarded

SENDER_EVENTS: Encoding[SenderEvent] = Encoding(
    {
        "reserve": ReserveIdentifiers,
        "dead": DeadLettersWait,
        "receipts-noted": ReceiptsNoted,
        "forward-holding": ForwardHolding,
        "forwarded": RowsForwarded,
    }
)
