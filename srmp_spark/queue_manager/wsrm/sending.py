"""Send messages to an address that a client named: acknowledgements, responses, faults.

The allow-list (:mod:`.url_policy`) decides each time whether the address may be called, with the IP
addresses that the host has at that time. The receipts sender (:mod:`.receipts_sender`) limits the
rate, because it makes all calls to addresses that a message named. No message is sent again. A
source whose acknowledgement was lost repeats its message or asks, and gets a newer acknowledgement.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from srmp_spark.names import UrlParts
from srmp_spark.queue_manager.posting.http_client import PostFailedError, post
from srmp_spark.queue_manager.srmp_port.replies import SERVER
from srmp_spark.wsrm.codec.encoder import encode, http_fields

if TYPE_CHECKING:
    from srmp_spark.queue_manager.receipts.receipts_sender import Outcome, ReceiptsSender
    from srmp_spark.queue_manager.trust.tls import ClientTls
    from srmp_spark.store.tables.wsrm_sequences import SequenceClient
    from srmp_spark.wsrm.receiving.destination_effects import SendSeparately

log = logging.getLogger(__name__)

SENDS_MAX = 1_000
"""Most messages in flight at one time.

A further message is dropped, as the network may drop a message. The source then asks again.
"""


class WsrmSender:
    """Sends messages of WS-ReliableMessaging to clients that have an address."""

    def __init__(self, receipts: ReceiptsSender, tls: ClientTls) -> None:
        self._receipts = receipts
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, send: SendSeparately, origin: SequenceClient) -> None:
        """Schedule one attempt to deliver a message, if the allow-list permits its address.

        Beyond SENDS_MAX messages in flight the message is dropped. A failure is only logged.
        """
        if len(self._tasks) >= SENDS_MAX:
            return
        task = asyncio.ensure_future(self._send(send, origin))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def may_call(self, url: str, origin: SequenceClient) -> bool:
        """Look up the host of ``url``, which a client named; return whether it may be called now.

        The allow-list must permit the URL, and the look-up must succeed. A blocked URL is logged
        and counted.
        """
        found = await self._receipts.judged(url, peer=origin.peer, sender_name=origin.sender_name)
        return not isinstance(found, str)

    async def _send(self, send: SendSeparately, origin: SequenceClient) -> None:
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
        except Exception:
            # A bug that concerns one message must not end the others.
            log.exception("wsrm.send_failed")

    async def close(self) -> None:
        """Cancel all sending; messages in flight are dropped."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
