"""The way out, judged from its two ends: what an application handed over, and what lies in the peer's queue.

Both ends are read, none is remembered: the first is rows of a table, the second the peer's log over its API. A message is
known by its body here; of equal bodies the n-th that was handed over is the n-th that arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256

import pyarrow as pa

from srmp_spark.client.api import QueueManagerClient
from tests.kit.oracle import Oracle, Verdict


def judge(handed_over: Iterable[tuple[str, bytes]], arrived: Iterable[bytes]) -> Verdict:
    """``handed_over``: (what must stay in order among itself, body) in the order of handing over; ``arrived`` in the peer's."""
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
        # A copy too many is the last one once more: doubled. Of a body that nobody sent, each is unexpected.
        oracle.landed(_key(body, min(landed[body], sent[body]) or landed[body]))
    return oracle.verdict()


def _key(body: bytes, copy: int) -> str:
    return f"{body[:40]!r} {sha256(body).hexdigest()[:16]} {copy}"


def bodies_in(api: str, queue: str) -> Iterator[bytes]:
    """The bodies in a queue, in the order of its log."""
    client = QueueManagerClient(api)
    found = client.range(queue)
    if found.end < found.first:
        return
    rows = client.rows(queue, epoch=found.epoch, after=found.first - 1, to=found.end)
    with rows, pa.ipc.open_stream(rows.as_file()) as reader:
        for batch in reader:
            yield from batch.column("body").to_pylist()
