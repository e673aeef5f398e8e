"""The pictures of the pages, as data. ``make docs-pictures`` writes them to ``docs/pictures``.

The numbers in the two paths are those of the stories in ``docs/ARCHITECTURE.md``. The states are
those of the transition tables. ``tests/docs/test_pictures.py`` compares both, and the files with
this module.
"""

from __future__ import annotations

import sys
from pathlib import Path

from svg import Arrow, Box, Note, Say, drawing, sequence

FOLDER = Path(__file__).resolve().parents[1] / "pictures"

WAY_IN = (
    Box("main", 206, 14, 628, "queue manager: main process", "group", 306),
    Box("windows", 14, 53, 138, "Windows\n1 POST", "outside"),
    Box("port", 226, 53, 170, "SRMP port\n5 Answer 200"),
    Box("decode", 446, 53, 170, "codec\n2 Decode"),
    Box("decide", 446, 147, 170, "receiving engine\n3 Decide"),
    Box("journal", 446, 241, 170, "journal\n4 Commit, one sync"),
    Box("receipts", 226, 241, 118, "receipts\n6 Receipt"),
    Box("api", 666, 241, 160, "API port\n8 Mark"),
    Box("store", 446, 350, 170, "store.db, segments\nlogs of the queues", "store"),
    Box("reader", 206, 434, 628, "reader process", "group", 108),
    Box("sealing", 226, 470, 170, "sealing\n10 Seal"),
    Box("publisher", 446, 470, 170, "publisher\n9 State"),
    Box("rows", 666, 470, 160, "rows for readers\n7 Read"),
    Box("inbox", 446, 576, 170, "Delta inbox\nwithin 5 s", "store"),
    Box("spark", 666, 576, 160, "Spark query\nexecutors", "outside"),
    Box("table", 666, 676, 160, "your Delta table\neach row once", "store"),
)
WAY_IN_ARROWS = (
    Arrow("windows:right@0.25", "port:left@0.25"),
    Arrow("port:left@0.75", "windows:right@0.75"),
    Arrow("port:right", "decode:left"),
    Arrow("decode:bottom", "decide:top"),
    Arrow("decide:bottom", "journal:top"),
    Arrow("journal:left@0.25", "port:bottom@0.8", "proof of\nthe sync", "left", dashed=True),
    Arrow("journal:left@0.75", "receipts:right@0.75"),
    Arrow("receipts:left", "windows:bottom", "stream\nreceipt", "right"),
    Arrow("journal:bottom", "store:top"),
    Arrow("store:bottom@0.9", "publisher:top@0.9"),
    Arrow("store:left", "sealing:top@0.9"),
    Arrow("store:right", "rows:top"),
    Arrow("publisher:bottom", "inbox:top"),
    Arrow("rows:bottom", "spark:top"),
    Arrow("spark:right", "api:right"),
    Arrow("spark:bottom", "table:top"),
)

WAY_OUT = (
    Box("tasks", 14, 63, 178, "Spark tasks\n1 Stage rows", "outside"),
    Box("driver", 14, 143, 178, "Spark driver\n3 Commit the batch", "outside"),
    Box("main", 234, 14, 600, "queue manager: main process", "group", 212),
    Box("api", 254, 50, 170, "API port\nreads no row", "part", 160),
    Box("stages", 486, 63, 150, "stages/\nArrow of a task", "store"),
    Box("port", 676, 63, 150, "SRMP port\n8 Stream receipt"),
    Box("log", 676, 150, 150, "store.db\norder queue", "store"),
    Box("sender", 234, 246, 600, "sender process", "group", 312),
    Box("prepare", 254, 284, 170, "prepare\n4 Identity, order"),
    Box("judge", 486, 284, 150, "stage reader\n2 Judge"),
    Box("read", 676, 284, 150, "receipts\n9 Read"),
    Box("outbox", 254, 384, 170, "outbox.db\n5 One transaction", "store"),
    Box("engine", 486, 384, 150, "sending engine\n6 Queue"),
    Box("done", 254, 484, 170, "10 Finished\nor a dead letter", "store"),
    Box("wire", 486, 484, 150, "connections\n7 Send"),
    Box("peer", 486, 610, 150, "MSMQ queue\nof a peer", "outside"),
)
WAY_OUT_ARROWS = (
    Arrow("tasks:right", "api:left@0.25"),
    Arrow("driver:right", "api:left@0.75"),
    Arrow("api:right@0.25", "stages:left"),
    Arrow("stages:bottom", "judge:top"),
    Arrow("api:bottom@0.9", "prepare:top@0.9"),
    Arrow("judge:left", "prepare:right"),
    Arrow("prepare:bottom", "outbox:top"),
    Arrow("outbox:right", "engine:left"),
    Arrow("engine:bottom", "wire:top"),
    Arrow("wire:bottom@0.3", "peer:top@0.3", "POST", "left"),
    Arrow("peer:top@0.7", "wire:bottom@0.7", "200", "right"),
    Arrow("peer:right", "port:right"),
    Arrow("port:bottom", "log:top"),
    Arrow("log:bottom", "read:top"),
    Arrow("read:bottom", "engine:right"),
    Arrow("outbox:bottom", "done:top"),
)

SENDING = (
    Box(
        "sending",
        14,
        14,
        832,
        "The outgoing queue of a stream (state in status.outgoing)",
        "group",
        276,
    ),
    Box("DISCONNECTED", 44, 100, 150, "Disconnected", "state"),
    Box("WAITING", 354, 100, 150, "Waiting", "state"),
    Box("CONNECTED", 664, 100, 150, "Connected", "state"),
    Box("INACTIVE", 354, 200, 150, "Inactive", "state"),
    Box("ON_HOLD", 704, 200, 100, "OnHold", "state"),
)
SENDING_ARROWS = (
    Arrow("DISCONNECTED:right", "WAITING:left", "message to send"),
    Arrow("WAITING:right", "CONNECTED:left", "200 or 400"),
    Arrow("CONNECTED:top", "DISCONNECTED:top", "closed while idle"),
    Arrow("WAITING:bottom", "INACTIVE:top", "no answer,\n5xx", "left"),
    Arrow("CONNECTED:bottom@0.15", "INACTIVE:right@0.3", "no answer, 5xx", "below"),
    Arrow("INACTIVE:left", "DISCONNECTED:bottom@0.7", "timer, or resend", "below"),
    Arrow("CONNECTED:bottom@0.6", "ON_HOLD:top", "pause", "right"),
    Arrow("ON_HOLD:bottom", "DISCONNECTED:bottom@0.2", "resume"),
)
RECEIPT = (
    Box("receiving", 14, 310, 832, "The receipt of a stream that arrives", "group", 296),
    Box("NOTHING_OWED", 44, 396, 150, "nothing owed", "state"),
    Box("COALESCING", 354, 396, 150, "coalescing", "state"),
    Box("SENDING", 664, 396, 150, "sending", "state"),
    Box("WAITING_TO_RETRY", 214, 510, 160, "waiting to retry", "state"),
    Box("SENDING_AND_OWED", 690, 510, 145, "sending, owed", "state"),
)
RECEIPT_ARROWS = (
    Arrow("NOTHING_OWED:right@0.3", "COALESCING:left@0.3", "message stored"),
    Arrow("COALESCING:right", "SENDING:left", "0.5 to 10 s"),
    Arrow("SENDING:top", "NOTHING_OWED:top", "200 or 400"),
    Arrow("SENDING:bottom@0.6", "SENDING_AND_OWED:top@0.44137931", "message\nstored", "right"),
    Arrow("SENDING_AND_OWED:left@0.3", "COALESCING:bottom@0.6", "200 or 400"),
    Arrow(
        "SENDING_AND_OWED:bottom",
        "WAITING_TO_RETRY:bottom",
        "no answer, 5xx (from sending, too)",
        "below",
    ),
    Arrow("WAITING_TO_RETRY:right@0.8", "SENDING:bottom@0.1", "timer", "below"),
    Arrow("WAITING_TO_RETRY:top@0.3", "COALESCING:left@0.8", "message\nstored", "left"),
)

EOIO = (
    Note("sender", "commits a transaction:\npositions 1, 2 and 3"),
    Say("sender", "queue manager", "POST 1 with <start>"),
    Note("queue manager", "row 1, synced"),
    Say("queue manager", "sender", "200"),
    Say("sender", "queue manager", "POST 2, <previous> is 1"),
    Note("queue manager", "row 2, synced"),
    Say("queue manager", "sender", "200", lost=True),
    Note("sender", "no answer:\nsends 2 again"),
    Say("sender", "queue manager", "POST 2, <previous> is 1"),
    Note("queue manager", "position 2 is known:\nno second row"),
    Say("queue manager", "sender", "200"),
    Say("sender", "queue manager", "POST 3, <previous> is 2"),
    Note("queue manager", "row 3, synced"),
    Say("queue manager", "sender", "200"),
    Note("sender", "200 frees nothing:\n1 to 3 wait for a receipt"),
    Note("queue manager", "0.5 s after the last message,\nat most 10 s after the first"),
    Say("queue manager", "sender", "POST stream receipt: 1 to 3"),
    Say("sender", "queue manager", "200"),
    Note("sender", "deletes 1 to 3"),
)

SHAPES = (
    Box("A", 14, 14, 405, "One host, to try it", "group", 240),
    Box("a-send", 34, 60, 160, "srmp-spark send\nor Windows", "outside"),
    Box("a-qm", 240, 60, 160, "queue manager\nembedded: dataDir"),
    Box("a-spark", 240, 170, 160, "Spark session\nof the same user", "outside"),
    Box("B", 439, 14, 405, "A queue manager and a cluster", "group", 240),
    Box("b-send", 459, 60, 160, "Windows\nHTTPS, certificate", "outside"),
    Box("b-qm", 665, 60, 160, "srmp-spark serve\nown disk"),
    Box("b-spark", 665, 170, 160, "Spark cluster\ntoken over TLS", "outside"),
    Box("b-delta", 459, 170, 160, "Delta tables\n--state, your own", "store"),
    Box("C", 14, 274, 405, "Several queue managers, one query", "group", 260),
    Box("c-send1", 34, 320, 130, "Windows 1", "outside"),
    Box("c-send2", 34, 390, 130, "Windows 2", "outside"),
    Box("c-qm1", 210, 320, 170, "queue manager 1"),
    Box("c-qm2", 210, 390, 170, "queue manager 2"),
    Box("c-spark", 210, 460, 170, "one Spark query\nreads both", "outside"),
    Box("D", 439, 274, 405, "Through a zone between two nets", "group", 260),
    Box("d-send", 459, 320, 160, "Windows\noutside", "outside"),
    Box("d-front", 665, 320, 160, "serve\n--store-and-forward"),
    Box("d-qm", 665, 440, 160, "srmp-spark serve\ninside"),
    Box("d-spark", 459, 440, 160, "Spark\ninside", "outside"),
)
SHAPES_ARROWS = (
    Arrow("a-send:right", "a-qm:left"),
    Arrow("a-qm:bottom", "a-spark:top", "loopback", "right"),
    Arrow("b-send:right", "b-qm:left"),
    Arrow("b-qm:bottom", "b-spark:top", "API", "right"),
    Arrow("b-spark:left", "b-delta:right"),
    Arrow("b-qm:bottom@0.2", "b-delta:top", bend=0.5),
    Arrow("c-send1:right", "c-qm1:left"),
    Arrow("c-send2:right", "c-qm2:left"),
    Arrow("c-qm1:right", "c-spark:right"),
    Arrow("c-qm2:bottom", "c-spark:top"),
    Arrow("d-send:right", "d-front:left"),
    Arrow("d-front:bottom", "d-qm:top", "firewall", "left"),
    Arrow("d-qm:left", "d-spark:right"),
)


def pictures() -> dict[str, str]:
    """Return each picture by the name of its file."""
    return {
        "way-in.svg": drawing("A message from POST to Delta row", WAY_IN, WAY_IN_ARROWS),
        "way-out.svg": drawing("A row from a sink to a peer", WAY_OUT, WAY_OUT_ARROWS),
        "stream-states.svg": drawing(
            "The states of a stream", (*SENDING, *RECEIPT), (*SENDING_ARROWS, *RECEIPT_ARROWS)
        ),
        "eoio.svg": sequence(
            "Exactly once, in order: a stream of three messages",
            ("sender", "queue manager"), EOIO, 330,
        ),
        "deployments.svg": drawing("Shapes of a deployment", SHAPES, SHAPES_ARROWS),
    }  # fmt: skip


def main() -> int:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"docs/pictures: {len(pictures())} pictures\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
