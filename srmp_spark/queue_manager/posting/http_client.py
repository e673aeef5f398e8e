"""Send one POST to one host, and read its answer ([MC-MQSRM] 3.1.7.2.5).

Each POST has a connection of its own (:mod:`.http_exchange`). The caller has judged the URL and
chosen the addresses (:mod:`.url_policy`): this module looks no name up, and redirects are never
followed. A long body is dropped at the limit, and the status is valid nevertheless.
"""

from __future__ import annotations

import asyncio
import ssl

from srmp_spark.errors import SrmpSparkError
from srmp_spark.queue_manager.posting.address_race import Overlap
from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.posting.http_exchange import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    AwaitedExchange,
    LostError,
    connect,
)

OVERLAP_MAX = 32
"""Most connection attempts at once beyond the first one of each host.

Their descriptors belong to the reserve of this process. At the limit the next attempt ends the one
before it.
"""
_overlap = Overlap(OVERLAP_MAX)


class PostFailedError(SrmpSparkError):
    """Raised when there is no complete answer: not connected, cut off, malformed, or too slow.

    The peer may or may not have the message.
    """


class StatusExchange(AwaitedExchange):
    """A connection whose user needs the status alone, which counts without the end of the body."""

    def passed_a_limit(self) -> None:
        """Take the answer if its head is complete."""
        if self._parser.head_has_no_end:
            self.end("the head of the answer has no end")
        else:
            self._answer()


async def post(
    addresses: tuple[str, ...],
    port: int,
    head: bytes,
    content: bytes,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
) -> PeerAnswer:
    """Send one request to the first of ``addresses`` that connects, and return its answer.

    ``addresses`` are IP addresses and never names. ``head`` is the whole HTTP head with its blank
    line (:func:`srmp_spark.srmp.codec.encoder.http_head`). With ``tls`` the certificate must be for
    ``server_hostname``. Raises :class:`PostFailedError` if there is no connection after
    CONNECT_SECONDS, or no complete answer ANSWER_SECONDS later.
    """
    exchange: StatusExchange | None = None
    where = f"{' or '.join(addresses)}:{port}"
    try:
        opening = connect(
            addresses, port, StatusExchange, tls=tls, host=server_hostname, overlap=_overlap
        )
        _, opened = await asyncio.wait_for(opening, CONNECT_SECONDS)
        exchange = opened
        return await opened.ask(head + content, ANSWER_SECONDS)
    except LostError as error:
        raise PostFailedError(str(error)) from None
    except asyncio.TimeoutError:
        raise PostFailedError(f"no answer from {where} in time") from None
    except (OSError, ValueError) as error:  # ValueError means that it is no address.
        raise PostFailedError(f"{where}: {error}") from None
    finally:
        if exchange is not None:
            exchange.leave()
