"""A whole archive, unpacked: as the version left it in its own place, or as a copy; and the peers that it left behind."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import whole_world as world
from live_kit import Client as ReliableClient
from scripted_service import ScriptedService, Sequence
from wsrm_kit import VERSIONS

from srmp_spark.store.directory import birth_of
from srmp_spark.testing.foreign.destination_server import Destination
from srmp_spark.testing.queue_manager import RunningQueueManager
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import SoapMessage
from tests.kit.remote.queue import ForeignQueue
from tests.kit.remote.server import ForeignServer

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = {path.parent.name: path for path in sorted(Path(__file__).parent.glob("*/whole.tar.xz"))}
"""By version."""
SECONDS_LATER = 120.0
"""The update comes so long after the kill: leases of receivers that died with it are over, and nothing else is."""
CLOCK = """
import time
_time, _time_ns, _off = time.time, time.time_ns, {off!r}
time.time = lambda: _time() + _off
time.time_ns = lambda: _time_ns() + int(_off * 1e9)
"""
"""Gives every Python process of the service the time of then: what is kept for hours or days is still there, in any year."""


class Left:
    """What a version left behind, in a folder."""

    def __init__(self, version: str, folder: Path, *, in_place: bool) -> None:
        """``in_place``: it stands where the version had it, and is no copy; else it is one."""
        self.folder = folder
        with tarfile.open(ARCHIVES[version]) as tar:
            tar.extractall(folder, filter="data") if hasattr(
                tarfile, "data_filter"
            ) else tar.extractall(folder)
        for name in ("data", "remote"):  # tar keeps no mode of a folder
            (folder / name).chmod(0o700)
        self.first_status: dict[str, Any] = {}
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
        if in_place:
            _stand_in_place(folder / "data")
        _stand_in_place(folder / "remote")
        (folder / "clock").mkdir()
        self.off = self.expected["made_at"] + SECONDS_LATER - time.time()
        (folder / "clock" / "sitecustomize.py").write_text(CLOCK.format(off=self.off))
        self.clock = {"PYTHONPATH": f"{folder / 'clock'}:{ROOT}"}

    def serve(self, **options: object) -> RunningQueueManager:
        """Return the queue manager, by the configuration file of then; reliable sessions have a port of their own since."""
        given: dict[str, Any] = {
            "config": "serve.toml",
            "listen_wsrm": world.LISTEN_WSRM,
            **options,
        }
        return self._service("data", world.LISTEN, world.API, **given)

    def serve_remote(self) -> RunningQueueManager:
        """Return the queue manager that it reads from."""
        return self._service(
            "remote",
            world.REMOTE_LISTEN,
            world.REMOTE_API,
            rpc=world.REMOTE_RPC,
            rpc_accounts="remote.accounts",
        )

    def _service(self, name: str, listen: str, api: str, **options: Any) -> RunningQueueManager:
        running = RunningQueueManager(
            name, listen=listen, api_listen=api, prefix=["env", "-C", str(self.folder)], environment=self.clock, **options
        )  # fmt: skip
        running.log = self.folder / f"{name}.log"
        return running

    def run_spark(self, jvm: Mapping[str, str], *command: str) -> Any:  # JSON
        """Run a program with Spark, by a JVM that is there; return what its last line says."""
        paths = os.pathsep.join((str(ROOT), str(Path(__file__).parent)))
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, timeout=280, check=False, cwd=Path(__file__).parent,
            env={**os.environ, **jvm, "PYTHONPATH": paths},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    def rows(self) -> dict[str, pa.Table]:
        """Return all rows by queue, as the readers of that version got them."""
        tables = [
            pa.ipc.open_file(path).read_all()
            for path in sorted((self.folder / "rows").glob("*.arrow"))
        ]
        return {table["queue"][0].as_py(): table for table in tables}

    def peer(self) -> Destination:
        """Return the destination, which has taken what its record says."""
        return Destination(
            host=world.FAR, port=world.PEER_PORT, record=self.folder / "peer.jsonl", receipt_wait=0.2,
            allow=["stream-guid"],  # what is forwarded keeps its identifier, and goes in a stream of ours
            clock=lambda: time.time() + self.off,
        )  # fmt: skip

    @contextlib.contextmanager
    def service(self) -> Iterator[ScriptedService]:
        """Run the service, with the sequence that it has begun, and room again."""
        service = ScriptedService(room=100)
        service._port = world.SERVICE_PORT
        service.delivered = [each.encode() for each in self.expected["delivered"]]
        for each in self.expected["service"]:
            taken = {
                int(number): (name, body.encode()) for number, (name, body) in each["taken"].items()
            }
            sequence = service.sequences[each["identifier"]] = Sequence(each["identifier"], taken)
            sequence._done = len(taken)  # type: ignore[attr-defined]
            service.created |= dict.fromkeys(each["created"], each["identifier"])
        with service:
            yield service

    @contextlib.contextmanager
    def foreign(self) -> Iterator[ForeignServer]:
        """Run the machine that went away, with the messages that it still has."""
        server = ForeignServer(seed=12)
        server.port = world.FOREIGN_PORT
        queue: ForeignQueue = server.queue
        found = self.expected["foreign"]
        queue.sequence, queue.taken_by_us = found["sequence"], list(found["taken"])
        queue.messages = {
            lookup_id: (number, priority) for lookup_id, number, priority in found["messages"]
        }
        queue.rng = random.Random(12)
        with server:
            yield server

    @contextlib.contextmanager
    def callbacks(self) -> Iterator[list[tuple[bytes, SoapMessage]]]:
        """Listen for the client of reliable sessions that has an address: what comes to it, as bytes and decoded."""
        came: list[tuple[bytes, SoapMessage]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # http.server's name
                content = self.rfile.read(int(self.headers["Content-Length"]))
                came.append((content, decode(content)))
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Quiet."""

        with ThreadingHTTPServer((world.HERE, world.CALLBACKS_PORT), Handler) as server:
            Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            yield came
            server.shutdown()

    def session(self, name: str) -> ReliableClient:
        """Return a client that goes on with its sequence."""
        found = self.expected["sessions"][name]
        host, _, port = world.LISTEN_WSRM.partition(":")
        client = ReliableClient(
            SimpleNamespace(wsrm=(host, int(port))), world.SESSIONS, VERSIONS[found["version"]]
        )  # type: ignore[arg-type]
        client.identifier = found["identifier"]
        return client


def _stand_in_place(data: Path) -> None:
    """Write into both identity files what tar cannot keep, inodes and times of birth: then the folder is where it was."""
    path = data / "identity"
    noted = json.loads(path.read_text())
    places = {"directory": data, "identity": path, "database": data / "store.db"}
    noted |= {
        "inodes": {name: place.stat().st_ino for name, place in places.items()},
        "born": birth_of(data / "store.db"),
    }
    path.write_text(json.dumps(noted))
    if (outbox := data / "outbox.identity").exists():
        noted = json.loads(outbox.read_text())
        place = data / "outbox.db"
        outbox.write_text(
            json.dumps(noted | {"inode": place.stat().st_ino, "born": birth_of(place)})
        )
