"""The address to which a peer sends the receipts of outgoing streams, and the secret in it.

The address is ``http://HOST/msmq/private$/order_queue$?SenderStream=X``, where HOST is this queue
manager ([MC-MQSRM] 4.4). Theory of operation. A stream receipt finishes the messages that it
covers, and a final stream receipt states which of them are dead. The names in a receipt are no
secret. The GUID of this queue manager is in each of its messages and receipts, and the ordinals of
its streams are consecutive, so a peer that knows one of them can guess those of all other peers. A
receipt is proved by the address at which it arrives: only the peer got this address, in the first
``<start>``, and the peer uses it unchanged.

The secret is therefore one for each destination: a MAC over the URL of the destination, with a key
that no peer gets. One secret for each stream would add nothing, because the same peer would get all
of them. While any receipt of a stream is awaited, the stream keeps the address that the peer got,
even if the key or this rule changes meanwhile. The address is stored with the stream.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

from srmp_spark.srmp.forward.redirection import NO_RECEIPT_URLS, ReceiptUrls

SENDER_STREAM = "SenderStream"
SECRET_DIGITS = 32
"""Length of the secret: 128 bits of the MAC in lower-case hexadecimal digits.

These digits cannot be guessed. Lower case is used because Windows changes the case of the URLs that
it calls.
"""


class ReceiptAddresses(NamedTuple):
    """Computes the address that each destination gets in ``<sendReceiptsTo>``."""

    key: str
    """Key of the MAC: random, created once for each data directory."""
    rules: ReceiptUrls = NO_RECEIPT_URLS
    """URLs that peers get instead of the URL of this queue manager ([MC-MQSRM] 3.1.7.2.4)."""

    def replacement(self, destination: str, own: str) -> str:
        """Return the address for receipts of streams to ``destination``, with its secret.

        ``own`` is the URL of this queue manager's order queue as peers reach it, without a query.
        """
        return self.rules.replacement(
            destination, f"{own}?{SENDER_STREAM}={self.secret_of(destination)}"
        )

    def secret_of(self, destination: str) -> str:
        """Return the secret that receipts of streams to ``destination`` must carry.

        The secret has SECRET_DIGITS hexadecimal digits. ``destination`` is in canonical form.
        """
        return hmac.new(self.key.encode(), destination.encode(), "sha256").hexdigest()[
            :SECRET_DIGITS
        ]

    def __repr__(self) -> str:
        return f"<ReceiptAddresses {self.rules!r}>"


def query_of(url: str) -> str:
    """Return the query of a URL, such as ``SenderStream=…``, in lower case and without ``?``.

    The text is empty if the URL has no query.

    Windows changes the case of the URLs that it calls (sample 4.4).
    """
    return url.partition("?")[2].lower()


def same_secret(told: str, called: str) -> bool:
    """Return whether the URL ``called`` has the query, with its secret, of the URL ``told``.

    ``told`` is the address that the peer got in ``<start>``, and ``called`` the address at which a
    receipt arrived. If ``told`` has no query, the result is True: any client may send the receipt.
    """
    expected = query_of(told)
    return not expected or hmac.compare_digest(expected.encode(), query_of(called).encode())


def without_secret(url: str) -> str:
    """Return ``url`` without the query ``SenderStream=…`` that holds its secret.

    A query that an operator wrote is part of the address and stays.
    """
    return url.partition("?")[0] if query_of(url).startswith(f"{SENDER_STREAM.lower()}=") else url
