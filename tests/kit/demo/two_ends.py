"""Judges a transfer by its ends: an application's messages, and those in the peer's queue.

Both ends are read afterwards; the demo remembers neither. The first end is rows of a table, the
second end is the peer's log, read over its API. Messages are compared by their bodies. Of equal
bodies, the n-th that was handed over is the n-th that arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256

import pyarrow as pa

from srmp_spark.client.api import QueueManagerClient
from tests.kit.oracle import Oracle, Verdict


def judge(handed_over: Iterable[tuple[str, bytes]], arrived: Iterable[bytes]) -> Verdict:
    """Compare the messages that were handed over with those that arrived.

    ``handed_over`` holds pairs (name of an order, body) in the order in which they were handed
    over. Messages with one name must stay in order. ``arrived`` holds bodies in the peer's order.
    The verdict lists lost, unexpected, doubled and disordered messages.
    """
    oracle = Oracle()
    sent: Counter[bytes] = Counter()
    for order, body in handed_over:
        sent[body] += 1
        key = _key(body, sent[body])
        oracle.sent(key, stream=order)
        oracle.acknowledged(key)
    landed: Counter[bytes] = Counter()
    for body in arrived:
        landed[body] += 1
        # A surplus copy gets the key of the last copy, so it is doubled. Each copy of a body that
        # was never sent is unexpected.
        oracle.landed(_key(body, min(landed[body], sent[body]) or landed[body]))
    return oracle.verdict()


def _key(body: bytes, copy: int) -> str:
    return f"{body[:40]!r} {sha256(body).hexdigest()[:16]} {copy}"


def bodies_in(api: str, queue: str) -> Iterator[bytes]:
    """Yield the bodies of all messages in a queue, in the order of its log."""
    client = QueueManagerClient(api)
    found = client.range(queue)
    if found.end < found.first:
        return
    rows = client.rows(queue, epoch=found.epoch, after=found.first - 1, to=found.end)
    with rows, pa.ipc.open_stream(rows.as_file()) as reader:
        for batch in reader:
            yield from batch.column("body").to_pylist()
