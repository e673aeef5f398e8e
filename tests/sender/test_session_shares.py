"""Services of one host hold a part of the reliable sessions, and no more."""

from __future__ import annotations

import asyncio

from session_kit import send_of

from srmp_spark.queue_manager.sender.reliable.reliable_sessions import (
    HOST_SHARE,
    SESSIONS_MAX,
    ReliableSessions,
)
from srmp_spark.queue_manager.trust.tls import ClientTls
from srmp_spark.srmp.sending.outgoing_effects import QueueKey, Send


def to(send: Send, url: str) -> Send:
    send.key = QueueKey(f"wsrm:{url}", "plain")
    return send


def test_one_host_has_a_share_of_the_sessions() -> None:
    async def run() -> None:
        refused: list[tuple[str, str]] = []
        sessions = ReliableSessions(
            {}, tls=ClientTls(), endpoint_of=str, poll_interval=1.0, late_at=lambda: 0, on_answer=lambda send, answer: None,
            on_failure=lambda send, why, left: refused.append((send.key.destination, why)), on_expired=lambda send: None,
            on_left=lambda send: None, on_trouble=lambda key, why: None, on_lost=lambda key, why: None, on_change=lambda: None,
        )  # fmt: skip
        share = SESSIONS_MAX // HOST_SHARE
        for n in range(share + 5):
            sessions.post(to(send_of(n + 1), f"http://127.0.0.1:1/{n}.svc"))
        sessions.post(to(send_of(500), "http://127.0.0.2:1/other.svc"))
        await asyncio.sleep(0.05)
        over = [destination for destination, why in refused if "its share" in why]
        assert over == [f"wsrm:http://127.0.0.1:1/{n}.svc" for n in range(share, share + 5)]
        assert len(sessions._wires) == share + 1
        await sessions.stop()

    asyncio.run(run())
