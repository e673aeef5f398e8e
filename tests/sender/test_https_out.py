"""HTTPS out: who is believed, what we show, and receipts on the way back (T20 of the acceptance tests, the other direction).

What comes in: tests/queue_manager/test_https.py.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
import requests
from cryptography.x509.oid import ExtendedKeyUsageOID
from kit import acknowledged, bodies, commit, outgoing, rows_to, until

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.configuration.config import load
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.certificate import Authority, Identity, issued_by_a_leaf

QUEUE = "private$/in"


class Server:
    """A peer that takes every POST, with whatever certificate and version it is given; counts what it was sent."""

    def __init__(
        self,
        identity: Identity | None,
        *,
        version: ssl.TLSVersion | None = None,
        client_ca: Path | None = None,
    ) -> None:
        self._context = None
        if identity is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.set_ciphers("ALL:@SECLEVEL=0")
            self._context.load_cert_chain(*identity)
            if version is not None:
                self._context.minimum_version = self._context.maximum_version = version
            if client_ca is not None:
                self._context.load_verify_locations(client_ca)
                self._context.verify_mode = ssl.CERT_REQUIRED
        self.posts = 0
        self.names: list[object] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def url(self, host: str = "localhost") -> str:
        return f"https://{host}:{self.port}/msmq/{QUEUE}"

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._socket.accept()[0]
            except OSError:
                return
            with contextlib.suppress(OSError, ValueError):
                self._talk(connection)
            connection.close()

    def _talk(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        stream = (
            self._context.wrap_socket(connection, server_side=True) if self._context else connection
        )
        if isinstance(stream, ssl.SSLSocket):
            self.names.append((stream.getpeercert() or {}).get("subject"))
        file = stream.makefile("rb")
        while (line := file.readline()) != b"":
            if not line.startswith(b"POST"):
                return
            self.posts += 1
            length = 0
            while (header := file.readline()) not in (b"\r\n", b""):
                if header.lower().startswith(b"content-length:"):
                    length = int(header.partition(b":")[2])
            file.read(length)
            stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


class Files:
    """Where certificates come from."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory / "files")
        self.other = Authority(directory / "other", "Other")
        self.impostor = Authority(directory / "impostor")
        self.revoked = self.authority.issue("localhost", file="revoked")


BAD: dict[str, Callable[[Files], Server]] = {
    "expired": lambda f: Server(
        f.authority.issue("localhost", file="expired", ends=timedelta(minutes=-1))
    ),
    "not yet valid": lambda f: Server(
        f.authority.issue("localhost", file="early", begins=timedelta(minutes=30))
    ),
    "for another host": lambda f: Server(
        f.authority.issue("other.example", hosts=["other.example"])
    ),
    "for the host in its subject, but for another by name": lambda f: Server(
        f.authority.issue("localhost", file="subject", hosts=["other.example"])
    ),
    "for an address, called by name": lambda f: Server(
        f.authority.issue("localhost", file="address", hosts=())
    ),
    "for names below the host": lambda f: Server(
        f.authority.issue("x", file="wildcard", hosts=["*.localhost"])
    ),
    "of another authority": lambda f: Server(f.other.issue("localhost")),
    "of an authority of the same name": lambda f: Server(f.impostor.issue("localhost")),
    "self-signed": lambda f: Server(f.authority.issue("localhost", file="self", self_signed=True)),
    "revoked": lambda f: Server(f.revoked),
    "weak key": lambda f: Server(f.authority.issue("localhost", file="weak", rsa_bits=1024)),
    "for clients only": lambda f: Server(
        f.authority.issue("localhost", file="client", purposes=[ExtendedKeyUsageOID.CLIENT_AUTH])
    ),
    "issued by a leaf": lambda f: Server(issued_by_a_leaf(f.authority, f.directory)),
    "TLS 1.1": lambda f: Server(
        f.authority.issue("localhost", file="old"), version=ssl.TLSVersion.TLSv1_1
    ),
    "plain HTTP": lambda f: Server(None),
}


def last_error(running: RunningQueueManager, url: str) -> str | None:
    found: str | None = outgoing(running, url, "plain").get("last_error")
    return found


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_15_bad_servers_are_sent_nothing_and_a_good_one_is(tmp_path: Path) -> None:
    files = Files(tmp_path)
    servers = {kind: make(files) for kind, make in BAD.items()}
    assert len(servers) == 15
    good = Server(files.authority.issue("localhost", file="good"))
    with RunningQueueManager(
        tmp_path / "qm", ca_file=files.authority.revoke(files.revoked)
    ) as running:
        rows = [
            row
            for server in (*servers.values(), good)
            for row in rows_to(server.url(), [b"x"], delivery="recoverable")
        ]
        commit(running.api, "1", rows)
        until(
            lambda: outgoing(running, good.url(), "plain").get("last_acknowledged") == 1,
            "the good one has it",
        )
        for kind, server in servers.items():
            error = until(partial(last_error, running, server.url()), f"{kind} is refused")
            assert "localhost" in error, (kind, error)
            assert outgoing(running, server.url(), "plain")["queued"] == 1, kind
            assert server.posts == 0, kind
        assert good.posts == 1
        assert "Traceback" not in running.stderr()
    for server in (*servers.values(), good):
        server.close()


def test_without_ca_file_the_systems_authorities_count_and_ours_is_unknown(tmp_path: Path) -> None:
    server = Server(Authority(tmp_path / "files").issue("localhost"))
    with RunningQueueManager(tmp_path / "qm") as running:
        commit(running.api, "1", rows_to(server.url(), [b"x"], delivery="recoverable"))
        error = until(
            lambda: outgoing(running, server.url(), "plain").get("last_error"), "it is refused"
        )
        assert "certificate verify failed" in error
        assert server.posts == 0
    server.close()


def test_a_client_certificate_is_shown_and_renewed(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "files")
    server = Server(authority.issue("localhost"), client_ca=authority.ca)
    identity = authority.issue("sender")
    with RunningQueueManager(
        tmp_path / "qm", ca_file=authority.ca, client_cert=identity.certificate, client_key=identity.key
    ) as running:  # fmt: skip
        commit(running.api, "1", rows_to(server.url(), [b"x"], delivery="recoverable"))
        until(
            lambda: outgoing(running, server.url(), "plain").get("last_acknowledged") == 1,
            "it is sent",
        )
        assert server.names == [((("commonName", "sender"),),)]
        renewed = authority.issue("sender2")
        renewed.key.replace(identity.key)
        renewed.certificate.replace(identity.certificate)
        time.sleep(1.1)
        other = Server(authority.issue("localhost", file="other"), client_ca=authority.ca)
        commit(running.api, "2", rows_to(other.url(), [b"x"], delivery="recoverable"))
        until(
            lambda: outgoing(running, other.url(), "plain").get("last_acknowledged") == 1,
            "it is sent",
        )
        assert other.names == [((("commonName", "sender2"),),)]
        other.close()
    server.close()


@pytest.fixture
def ports() -> tuple[int, int]:
    """Two that were free a moment ago: each of two queue managers must know the other's."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        return one.getsockname()[1], two.getsockname()[1]


def test_two_of_ours_over_tls_with_receipts_over_tls(
    tmp_path: Path, ports: tuple[int, int]
) -> None:
    """Each asks the other for its certificate; each queue, the order queue too, takes messages of the other alone."""
    authority = Authority(tmp_path / "files")
    running: dict[str, RunningQueueManager] = {}
    with contextlib.ExitStack() as stack:
        for name, other, port in (("here", "there", ports[0]), ("there", "here", ports[1])):
            identity = authority.issue(name)
            config = tmp_path / f"{name}.toml"
            config.write_text(f'[[writer]]\nqueue = "*"\ncertificate = "CN={other}"\n')
            running[name] = stack.enter_context(RunningQueueManager(
                tmp_path / name, queues=[f"{QUEUE}:transactional"], config=config, allow_url=["https://localhost:*"],
                listen_https=f"127.0.0.1:{port}", public_url=f"https://localhost:{port}", client_ca=authority.ca,
                require_client_cert="true", listen_cert=identity.certificate, listen_key=identity.key, ca_file=authority.ca,
                client_cert=identity.certificate, client_key=identity.key, retransmission_timeout=1,
            ))  # fmt: skip
        here, there = running["here"], running["there"]
        url = f"https://localhost:{ports[1]}/msmq/{QUEUE}"
        commit(here.api, "1", rows_to(url, bodies(0, 200)))
        entry = acknowledged(here, url)
        assert entry["last_acknowledged"] == 200
        assert entry["send_receipts_to"].startswith(
            f"https://localhost:{ports[0]}/msmq/private$/order_queue$"
        )
        address = f"{there.api}/v1/queues/{quote(QUEUE, safe='')}/rows?after=0&to=200"
        with pa.ipc.open_stream(requests.get(address, timeout=30).content) as reader:
            table = reader.read_all()
        assert table["body"].to_pylist() == bodies(0, 200)
        assert set(table["transport"].to_pylist()) == {"https"}
        assert set(table["sender_name"].to_pylist()) == {"CN=here"}
        # The receipts were rows of `there`; nobody else's count, whatever they name.
        metrics = requests.get(f"{here.api}/metrics", timeout=20).text
        assert (
            'srmp_messages_accepted_total{queue="private$/order_queue$",transport="https"}'
            in metrics
        )
        assert "receipt.blocked" not in there.stderr()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            {"listen_https": "127.0.0.1:0"},
            "--listen-https and .* need --listen-cert and --listen-key",
        ),
        ({"listen_cert": "a", "listen_key": "b"}, "they need one of the two"),
        ({"listen_https": "127.0.0.1:0", "listen_cert": "a"}, "belong together"),
        ({"client_ca": "a"}, "--client-ca is for --listen-https"),
        (
            {
                "listen_https": "127.0.0.1:0",
                "listen_cert": "a",
                "listen_key": "b",
                "require_client_cert": "true",
            },
            "--require-client-cert needs --client-ca",
        ),
        ({"require_client_cert": "perhaps"}, "expected true or false"),
        ({"client_cert": "a"}, "--client-cert and --client-key belong together"),
    ],
)
def test_flags_that_do_not_fit_together(flags: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load({"data_dir": "d", **flags}, {})
