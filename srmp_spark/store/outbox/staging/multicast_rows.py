"""Additional rules for a row to a multicast group.

A row to a multicast group must be express, and its message must fit into one APDU of 64 KB.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.errors import LocalProtocolError
from srmp_spark.names import NULL_GUID, multicast_address
from srmp_spark.pgm.wire.limits import APDU_SENT_MAX
from srmp_spark.store.outbox.columns import body_sizes
from srmp_spark.store.outbox.staging.chosen_rows import ChosenRows
from srmp_spark.store.outbox.staging.refusals import (
    BAD_DELIVERY,
    NO_MULTICAST,
    NOT_ENCODABLE,
    TOO_LARGE,
)

ESCAPED = 6
"""Largest number of octets that one octet of a text can become in XML."""
ENVELOPE_OCTETS = 4_096
"""Upper limit for the octets of head, delimiters and envelope without the texts of the row."""
_TEXTS = ("label", "response_queue", "admin_queue")
_COPIES = 3
"""How often one address can occur in an envelope."""


def check_multicast_rows(rows: ChosenRows) -> None:
    """Refuse each of ``rows``, which are to multicast groups, that cannot be sent.

    A row is refused if this queue manager does not send multicast, if its ``delivery`` is not
    ``express`` or null, or if its message would exceed :data:`.APDU_SENT_MAX` bytes, or cannot be
    encoded.
    """
    columns, chosen = rows.columns, rows.numbers
    if not rows.multicast:
        for row in chosen:
            rows.refuse(
                int(row),
                NO_MULTICAST,
                "destination is a multicast address, and this queue manager does not send PGM",
                "start serve with --pgm raw (what Windows speaks) or --pgm udp:PORT",
            )
        return
    if "delivery" in columns:
        express = pc.fill_null(pc.equal(columns["delivery"], "express"), True).to_numpy(
            zero_copy_only=False
        )
        for row in chosen[~express[chosen]]:
            rows.refuse(
                int(row),
                BAD_DELIVERY,
                "a multicast message is express",
                "leave delivery null for it, or write express",
            )
    sizes = body_sizes(columns, rows.rows) + ENVELOPE_OCTETS
    for name in _TEXTS:
        if name in columns:
            lengths = pc.fill_null(pc.binary_length(columns[name]), 0).to_numpy(
                zero_copy_only=False
            )
            sizes = sizes + lengths * ESCAPED * _COPIES
    # Nearly all messages are far below the limit. The others are encoded to get their length.
    for row in chosen[sizes[chosen] > APDU_SENT_MAX]:
        octets = _octets(rows, int(row))
        if octets is not None and octets > APDU_SENT_MAX:
            rows.refuse(
                int(row),
                TOO_LARGE,
                f"the message has {octets} bytes as it is sent, a multicast one at most "
                f"{APDU_SENT_MAX}",
                "the limit of PGM ([MC-MQSRM] 2.1.3.1): send it by HTTP, or in parts",
            )


def _octets(rows: ChosenRows, row: int) -> int | None:
    """Return the length that the APDU of a row can have at most, in bytes.

    The message identifier is not assigned yet, so the longest one is used. A row that cannot be
    encoded is refused, and the result is ``None``.
    """
    # These imports are a third of what the process that checks stages would load, and few
    # stages need them.
    from srmp_spark.srmp.codec.apdu import apdu_of
    from srmp_spark.store.outbox.messages.packed_group import STORED, Shared, messages_of
    from srmp_spark.store.tables.state import IDENTIFIER_MAX

    columns = rows.columns
    address = multicast_address(columns["destination"][row].as_py())
    assert address is not None, "it is one of the groups"
    names = [name for name in STORED if name in columns and name != "destination"]
    batch = pa.RecordBatch.from_arrays([columns[name].slice(row, 1) for name in names], names=names)
    shared = Shared(address.format_name, "plain", NULL_GUID, IDENTIFIER_MAX - 1, 0, False)
    (stored,) = messages_of(batch, [0], [1], shared)
    try:
        return len(apdu_of(stored.message, address))
    except LocalProtocolError as error:
        rows.refuse(row, NOT_ENCODABLE, f"it cannot be written: {error}", "change the row")
        return None
