"""Finds the message that a key stands for, to answer a repeated ``send`` while the message is here.

An identity names the batch that stored it. A message that ``srmp-spark send`` sent with a key is a
batch of its own. So the part of that batch, or its row in ``moved``, is the message. If the message
was delivered and left no journal copy, only the identity is kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.store.outbox.identity.hashing import key_hashes

SEND_APPLICATION = "srmp-spark send"
"""The application of ``srmp-spark send``.

Only in the batches of this application does each key stand for one message.
"""


class Known(NamedTuple):
    """A message that has a key and was committed alone, and is still in the outbox.

    ``fate`` is ``waiting``, ``dead`` (a dead letter) or ``journal`` (a journal copy).
    """

    fate: Literal["waiting", "dead", "journal"]
    serial: int
    number: int
    """Number of its message identifier."""


def find_known(
    connection: sqlite3.Connection, application: str, wanted: Sequence[tuple[QueueKey, str]]
) -> list[Known | None]:
    """Return the message of each (queue, key) in ``wanted``, in the same order.

    The batches of ``application`` must have one row each. An element of the result is ``None`` if
    the message was delivered without a journal copy, or if the key is unknown. The function reads
    the parts that wait in these queues, and the moved rows of the application, once for all keys.
    """
    batches = [_batch_of(connection, application, queue.destination, key) for queue, key in wanted]
    found: dict[int, Known] = {}
    for number, queue in {
        (batch[0], queue)
        for (queue, _), batch in zip(wanted, batches, strict=True)
        if batch is not None
    }:
        row = connection.execute(
            "SELECT first, ids_first FROM parts WHERE queue_id = (SELECT id FROM queues "
            "WHERE destination = ? AND kind = ?) "
            "AND batch_no = ? AND application = ?",
            (*queue, number, application),
        ).fetchone()
        if row is not None:
            found[number] = Known("waiting", *row)
    names = {batch[1]: batch[0] for batch in batches if batch is not None and batch[0] not in found}
    if names:
        for fate, name, serials, base in connection.execute(
            "SELECT fate, batch, serials, ids_base FROM moved WHERE application = ?", (application,)
        ):
            if name in names:
                serial = int(np.frombuffer(serials, "<i8")[0])
                found[names[name]] = Known(fate, serial, base + serial)
    return [None if batch is None else found.get(batch[0]) for batch in batches]


def _batch_of(
    connection: sqlite3.Connection, application: str, destination: str, key: str
) -> tuple[int, str] | None:
    """Return the number and the name of the batch that stored a key, or ``None``."""
    hashed = key_hashes(pa.array([key.encode()], pa.binary())).astype(">u8").tobytes()
    row: tuple[int, str] | None = connection.execute(
        "SELECT batches.no, batches.batch FROM scopes JOIN identities ON scope_id = "
        "scopes.id AND hash = ? "
        "JOIN batches ON batches.no = identities.batch_no "
        "WHERE scopes.application = ? AND scopes.destination = ? AND scopes.batch = ''",
        (hashed, application, destination),
    ).fetchone()
    return row
