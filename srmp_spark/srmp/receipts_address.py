"""Where a peer sends the receipts of our streams: ``http://US/msmq/private$/order_queue$?SenderStream=X`` ([MC-MQSRM] 4.4).

Theory of operation. A stream receipt frees the messages that it covers, and a final one says which of them are dead. What it
names is no secret: our GUID is in each message and receipt of ours, and the ordinals of our streams follow each other, so that
whoever was told one of them knows those of all other peers. What proves a receipt is that it comes to the address that the peer
alone was told, in the first ``<start>``; a peer calls it verbatim.

So the secret is one for each destination, a MAC over its URL with a key that nobody is told. It is not one for
each stream: the same peer would be told both. A stream keeps what it has told for as long as anything of it is awaited,
whatever the key or this rule are by then: its address is stored with it.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

from srmp_spark.srmp.redirection import NO_RECEIPT_URLS, ReceiptUrls

SENDER_STREAM = "SenderStream"
SECRET_DIGITS = 32
"""128 bits of the MAC in hexadecimal, lower case: nobody guesses them, and Windows changes the case of what it calls."""


class ReceiptAddresses(NamedTuple):
    """What each destination is told in ``<sendReceiptsTo>``."""

    key: str
    """Of the MAC; random, made once per data directory."""
    rules: ReceiptUrls = NO_RECEIPT_URLS
    """What is told instead of our own URL ([MC-MQSRM] 3.1.7.2.4)."""

    def replacement(self, destination: str, own: str) -> str:
        """For streams to ``destination``; ``own`` is our order queue as peers reach it, without a query."""
        return self.rules.replacement(
            destination, f"{own}?{SENDER_STREAM}={self.secret_of(destination)}"
        )

    def secret_of(self, destination: str) -> str:
        """What receipts of streams to ``destination`` must know."""
        return hmac.new(self.key.encode(), destination.encode(), "sha256").hexdigest()[
            :SECRET_DIGITS
        ]

    def __repr__(self) -> str:
        return f"<ReceiptAddresses {self.rules!r}>"


def query_of(url: str) -> str:
    """``SenderStream=…``, in lower case: Windows changes the case of what it calls (sample 4.4)."""
    return url.partition("?")[2].lower()


def same_secret(told: str, called: str) -> bool:
    """Whether a receipt that came to ``called`` knows what ``told`` says; where nothing was told anybody may send it."""
    expected = query_of(told)
    return not expected or hmac.compare_digest(expected.encode(), query_of(called).encode())


def without_secret(url: str) -> str:
    """``url`` as far as it says where it leads; a query that an operator wrote is part of that."""
    return url.partition("?")[0] if query_of(url).startswith(f"{SENDER_STREAM.lower()}=") else url
