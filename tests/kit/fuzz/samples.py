"""Valid inputs for the fuzzer.

The inputs are the saved samples of the documents, and messages of an independent sender.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from srmp_spark.testing.foreign.messages import Dialect, ForeignMessage, ForeignStream, post

GUID = "0a0b0c0d-1111-2222-3333-444455556666"
TO = "http://127.0.0.1/msmq/private$/orders"
_ENVELOPE = re.compile(rb"<se:Envelope.*</se:Envelope>", re.DOTALL)


def saved(directory: Path) -> list[bytes]:
    """Return the content of every file of ``directory`` that holds an envelope, in name order.

    ``directory`` is ``tests/data/srmp``.
    """
    return [
        data
        for path in sorted(directory.iterdir())
        if b"</se:Envelope>" in (data := path.read_bytes())
    ]


def messages() -> Iterator[ForeignMessage]:
    """Yield one message of each kind that is parsed differently."""
    stream = ForeignStream(
        guid=GUID,
        ordinal=4_839_986_701_558_349_830,
        current=1,
        previous=0,
        receipts_to="http://127.0.0.1/msmq/r",
    )
    common: dict[str, Any] = {"to": TO, "lineage": GUID, "sent_at": 1_790_000_000}
    kinds: tuple[dict[str, Any], ...] = (
        {"body": b"hello", "label": "a label"},
        {
            "body": b"x" * 40,
            "durable": True,
            "delivery_receipt_to": "http://127.0.0.1/msmq/admin",
            "extension": b"ext",
        },
        {
            "body": b"",
            "commitment_receipt_to": "http://127.0.0.1/a",
            "positive_only": True,
            "negative_only": True,
        },
        {
            "body": b"1",
            "durable": True,
            "stream": stream,
            "response_queue": "http://127.0.0.1/msmq/private$/answers",
        },
        {"body": b"no msmq", "msmq": False},
        {
            "body": b"all",
            "journal": True,
            "dead_letter": True,
            "trace": True,
            "app": 7,
            "connector_type": GUID,
            "first_in_transaction": True,
            "last_in_transaction": True,
            "connector_qm": GUID,
            "provider_type": 1,
            "provider_name": "p",
            "destination_list": ("DIRECT=http://a/b", "c"),
            "admin_list": ("d",),
            "response_list": ("e",),
        },
    )
    for number, more in enumerate(kinds, start=1):
        yield ForeignMessage(**{**common, "uniquifier": number, **more})


def posts() -> list[bytes]:
    """Return complete HTTP requests for all messages in all three dialects of the document."""
    return [post(message, dialect).raw for message in messages() for dialect in Dialect]


def envelopes(directory: Path) -> list[bytes]:
    """Return the XML envelopes of all samples, the saved ones first, without duplicates."""
    found = [
        match[0]
        for data in (*saved(directory), *posts())
        if (match := _ENVELOPE.search(data)) is not None
    ]
    return list(dict.fromkeys(found))
