"""RabbitMQ on loopback: persistent messages with publisher confirms into a quorum queue."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from benchmarks.common import (
    CACHE,
    CLIENT_CORE,
    NotHere,
    cpu_seconds,
    free_port,
    need,
    need_file,
    start,
    stop,
    wait_port,
)


class RabbitMQ:
    """A fresh broker with its own data folder, epmd and cookie."""

    def __init__(self, folder: Path, core: str | None) -> None:
        self.client = need_file(CACHE / "brokers", "the load client")
        servers = sorted(
            Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server")
        )
        if not servers:
            raise NotHere("RabbitMQ is missing: run benchmarks/peers/setup.sh as root")
        self.version = servers[-1].parts[-3].removeprefix("rabbitmq_server-")
        self.port, epmd, distribution = free_port(), free_port(), free_port()
        (folder / "rabbit.conf").write_text(
            f"loopback_users = none\nlisteners.tcp.1 = 127.0.0.1:{self.port}\n"
        )
        (folder / "plugins").write_text("[].\n")
        env = {
            **os.environ,
            "HOME": str(folder),
            "RABBITMQ_NODENAME": "peer@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_LOGS": str(folder / "rabbit.log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbit.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        self.epmd = start([need("epmd"), "-address", "127.0.0.1", "-port", str(epmd)], env=env)
        self.process = start([str(servers[-1])], core, folder / "out", env=env)
        try:
            wait_port(self.port, self.process, 90)
        except RuntimeError:
            self.close()
            raise
        # The port opens before the queues are ready.
        time.sleep(3)

    def send(self, connections: int, seconds: int, queue: str = "quorum") -> dict[str, float]:
        """One message in flight on each connection; rate of confirms."""
        command = [
            "taskset",
            "-c",
            CLIENT_CORE,
            str(self.client),
            "amqp",
            f"127.0.0.1:{self.port}",
            f"q{time.monotonic_ns()}",
            queue,
            str(connections),
            "1",
            str(seconds),
        ]
        cpu, began = cpu_seconds(self.process.pid), time.monotonic()
        out = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + 60, check=True
        ).stdout
        used = (cpu_seconds(self.process.pid) - cpu) / (time.monotonic() - began)
        got: dict[str, float] = json.loads(out)
        return got | {"cpu_us": used / max(1.0, got["rate"]) * 1e6}

    def close(self) -> None:
        stop(self.process)
        stop(self.epmd)
