"""Run one Kafka node (KRaft) on loopback, and fill its topics."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from benchmarks.common import (
    CACHE,
    PEERS_PYTHON,
    free_port,
    need,
    need_file,
    start,
    stop,
    wait_port,
)

CREATE = """
import sys
from confluent_kafka.admin import AdminClient, NewTopic
admin = AdminClient({"bootstrap.servers": sys.argv[1]})
[future.result(30) for future in \
admin.create_topics([NewTopic(sys.argv[2], int(sys.argv[3]), 1)]).values()]
"""
FILL = """
import sys
from confluent_kafka import Producer
address, topic, rows, partitions = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
limits = {"linger.ms": 20, "batch.size": 1000000, "queue.buffering.max.messages": 500000}
producer = Producer({"bootstrap.servers": address, **limits})
body = b"0123456789abcdef" * 64
for i in range(rows):
    while True:
        try:
            producer.produce(topic, body, partition=i % partitions)
            break
        except BufferError:
            producer.poll(0.1)
    if i % 1000 == 0:
        producer.poll(0)
producer.flush(60)
"""
TRICKLE = """
import sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 0})
rate, count = float(sys.argv[3]), int(sys.argv[4])
began = time.time()
for i in range(count):
    time.sleep(max(0, began + i / rate - time.time()))
    producer.produce(sys.argv[2], b"%020d" % int(time.time() * 1e6) + b"x" * 1004)
    producer.poll(0)
producer.flush(10)
"""
COUNT = """
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "count"})
ends = [consumer.get_watermark_offsets(TopicPartition(sys.argv[2], p), 30) \
for p in range(int(sys.argv[3]))]
print(sum(last - first for first, last in ends))
consumer.close()
"""


def spark_jars() -> str:
    """Return the jars of Spark's Kafka source, for ``spark.jars``. Raises :class:`NotHere`."""
    need_file(CACHE / "spark-kafka", "Spark's Kafka source")
    return ",".join(str(path) for path in sorted((CACHE / "spark-kafka").glob("*.jar")))


class Kafka:
    """A broker that acknowledges from the page cache, as Kafka does by default."""

    def __init__(self, folder: Path, heap: str = "1g") -> None:
        need("java")
        need_file(CACHE / "kafka" / ".complete", "Kafka")
        need_file(PEERS_PYTHON, "confluent-kafka")
        spark_jars()
        folder.mkdir()
        self.port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        configuration = folder / "server.properties"
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
            "controller.listener.names=CONTROLLER",
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners=PLAINTEXT://{self.address}",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"log.dirs={folder}/data",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            "log.segment.bytes=1073741824",
        ]
        configuration.write_text("\n".join(lines) + "\n")
        (folder / "log4j2.properties").write_text(
            "status=error\nrootLogger.level=warn\nrootLogger.appenderRef.a.ref=A\nappender.a.type=Console\n"
            "appender.a.name=A\nappender.a.layout.type=PatternLayout\n"
        )
        java = [
            "java",
            "-cp",
            str(CACHE / "kafka" / "*"),
            f"-Dlog4j2.configurationFile={folder}/log4j2.properties",
        ]
        tool = [
            *java,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            "MkU3OEVBNTcwNTJENDM2Qg",
            "-c",
            str(configuration),
        ]
        subprocess.run(tool, check=True, capture_output=True)
        self.process = start(
            [
                *java,
                f"-Xmx{heap}",
                f"-Xms{heap}",
                "-XX:+UseG1GC",
                "kafka.Kafka",
                str(configuration),
            ],
            None,
            folder / "out",
        )
        try:
            wait_port(self.port, self.process, 60)
        except RuntimeError:
            self.close()
            raise

    def topic(self, partitions: int) -> str:
        """Make a new topic and return its name."""
        name = f"t{time.monotonic_ns()}"
        self._client(CREATE, name, str(partitions))
        return name

    def fill(self, topic: str, rows: int, partitions: int) -> None:
        """Write rows of 1 KB, pipelined."""
        self._client(FILL, topic, str(rows), str(partitions))

    def trickle(self, topic: str, rate: float, count: int) -> subprocess.Popen[bytes]:
        """Start a sender of ``rate`` rows a second.

        The first twenty bytes of a row are the time of its birth.
        """
        return subprocess.Popen(
            [str(PEERS_PYTHON), "-c", TRICKLE, self.address, topic, str(rate), str(count)]
        )

    def rows(self, topic: str, partitions: int) -> int:
        """Return how many rows a topic has."""
        command = [str(PEERS_PYTHON), "-c", COUNT, self.address, topic, str(partitions)]
        return int(subprocess.run(command, check=True, capture_output=True).stdout)

    def _client(self, code: str, *arguments: str) -> None:
        subprocess.run(
            [str(PEERS_PYTHON), "-c", code, self.address, *arguments],
            check=True,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        stop(self.process)
