"""Messages of our own to an address that a client named: acknowledgements, responses, faults.

Whether it may be called is the allow-list's word, each time and on the address that the host has then, and how often, the
receipts sender's: it is the one place from which anything that a message named is called. Nothing is sent again: a source
whose acknowledgement was lost repeats its message or asks, and is answered with a newer one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from srmp_spark.names import UrlParts
from srmp_spark.queue_manager.http_client import PostFailedError, post
from srmp_spark.queue_manager.replies import SERVER
from srmp_spark.wsrm.encoder import encode, http_fields

if TYPE_CHECKING:
    from srmp_spark.queue_manager.receipts_sender import Outcome, ReceiptsSender
    from srmp_spark.queue_manager.tls import ClientTls
    from srmp_spark.store.wsrm_sequences import Origin
    from srmp_spark.wsrm.destination_effects import Send

log = logging.getLogger(__name__)

SENDS_MAX = 1_000
"""Messages under way at once; a further one is dropped, as the network may drop it: its source asks again."""


class WsrmSender:
    """What goes to clients that have an address."""

    def __init__(self, receipts: ReceiptsSender, tls: ClientTls) -> None:
        self._receipts = receipts
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, send: Send, origin: Origin) -> None:
        """Once, soon, if it is allowed."""
        if len(self._tasks) >= SENDS_MAX:
            return
        task = asyncio.ensure_future(self._send(send, origin))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def may_call(self, url: str, origin: Origin) -> bool:
        """Is ``url`` of a client one that the allow-list has? What is blocked is told and counted."""
        found = await self._receipts.judged(url, peer=origin.peer, sender_name=origin.sender_name)
        return not isinstance(found, str)

    async def _send(self, send: Send, origin: Origin) -> None:
        message = send.message

        async def call(parts: UrlParts, addresses: tuple[str, ...]) -> Outcome:
            content = encode(message)
            fields = "".join(f"{name}: {value}\r\n" for name, value in http_fields(message).items())
            head = (
                f"POST {parts.request_target} HTTP/1.1\r\nHost: "
                f"{parts.authority}\r\n{fields}User-Agent: {SERVER}\r\n"
                f"Content-Length: {len(content)}\r\n\r\n"
            ).encode("latin-1")
            tls = self._tls.context() if parts.scheme == "https" else None
            try:
                answer = await post(
                    addresses, parts.port, head, content, tls=tls, server_hostname=parts.host
                )
            except PostFailedError as error:
                log.info("wsrm.not_delivered url=%s reason=%s", send.endpoint.address[:200], error)
                return "failed"
            return "delivered" if answer.status in (200, 202) else "failed"

        try:
            await self._receipts.call(
                send.endpoint.address, call, peer=origin.peer, sender_name=origin.sender_name
            )
        except Exception:  # one message's bug must not end the others
            log.exception("wsrm.send_failed")

    async def close(self) -> None:
        """Stop; what is under way is dropped."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
