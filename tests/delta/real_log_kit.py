"""A real data directory, driven by hand, and a publisher that only sees the directory."""

from __future__ import annotations

from pathlib import Path

from store_kit import NOW, QUEUE, Store

from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.rows.group import Record
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.store.delta.publisher import Publisher

ORDER_URL = "http://peer/msmq/private$/order_queue$"
SENDER = "32221eda-9376-46df-b6ed-783091123831"


def posted(n: int) -> Record:
    message = Message(
        destination="http://qm.example/msmq/private$/orders", action="MSMQ:order", lineage=SENDER, uniquifier=n, has_msmq=True,
        source_qm=SENDER, body=b"order %d" % n,
        stream=StreamPosition(StreamId(SENDER, 7), n, n - 1, n == 1, ORDER_URL if n == 1 else None),
    )  # fmt: skip
    content_type, content = encode(message, boundary="MSMQ - SOAP boundary, 1")
    head = http_head("/msmq/private$/orders", "qm.example", content_type, len(content))
    return Record(Arrival(NOW + n, "http", "192.0.2.1:4711", None), head + content, len(head))


class RealLog:
    """A store driven by hand, and a publisher that only sees its directory."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "data"
        self.store = Store(self.path)
        self.guid = self.store.directory.queue_manager
        self.state = tmp_path / "state"

    def put(self, rows: int) -> None:
        for _ in range(rows):
            self.store.sequence += 1
            done: list[object] = []
            self.store.journal.submit(
                (QUEUE, self.store.sequence, posted(self.store.sequence)), done.append
            )
            self.store.loop.until(lambda done=done: done)
        self.store.settle()

    def publisher(self) -> Publisher:
        return Publisher(self.path, str(self.state), self.guid, 0.05)

    def landed(self, name: str = "inbox") -> list[dict[str, object]]:
        from deltalake import DeltaTable

        rows: list[dict[str, object]] = (
            DeltaTable(str(self.state / name)).to_pyarrow_table().to_pylist()
        )
        return sorted(rows, key=lambda row: row.get("sequence") or 0)  # type: ignore[arg-type, return-value]  # ints
