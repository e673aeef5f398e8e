"""Foreign clients of remote read against ours: ``make interop-mqrr`` (tests/peers/mqrr/README.md).

They are programs of others, one of them in Go, and so no part of an ordinary run. Where they are asked for and cannot be had,
that is a failure.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from remote_kit import Served

from srmp_spark.testing.foreign.ports import kept_port

PEERS = Path(__file__).resolve().parents[1] / "peers" / "mqrr"
PRIORITIES = [3, 7, 0, 5, 3, 1, 7, 6, 2, 4]

pytestmark = pytest.mark.skipif(
    "SRMP_SPARK_INTEROP_MQRR" not in os.environ, reason="foreign programs: make interop-mqrr"
)


@pytest.fixture(scope="session")
def go_client() -> str:
    built = subprocess.run([PEERS / "build.sh"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, (
        f"mqrr-client cannot be built (Go 1.24.1 or newer is needed):\n{built.stderr}"
    )
    return built.stdout.strip()


class Peer:
    """One of the two, for one queue manager."""

    def __init__(self, served: Served, program: list[str], *, go: bool, flags: list[str]) -> None:
        self.served = served
        self._program = program
        self.go = go
        self._flags = flags
        self.code = 0

    def run(self, command: str, queue: str, *flags: str) -> list[dict[str, Any]]:
        rpc, name = self.served.ready["rpc"], "OS:host1\\" + queue.replace("/", "\\")
        words = [command, *self._flags, *flags]
        words += ["-queue", name, rpc] if self.go else []
        if not self.go:
            words[1:1] = [rpc, name]
        ran = subprocess.run(
            [*self._program, *words], capture_output=True, text=True, timeout=120, check=False
        )
        self.code = ran.returncode
        assert "Traceback" not in ran.stderr, ran.stderr
        return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture(params=["go ndr", "go ndr64", "go both", "impacket ndr", "impacket ndr64"])
def peer(request: pytest.FixtureRequest, served: Served) -> Peer:
    kind, syntax = request.param.split()
    if kind == "go":
        return Peer(served, [request.getfixturevalue("go_client")], go=True, flags=["-ndr", syntax])
    flags = ["--ndr64"] if syntax == "ndr64" else []
    return Peer(served, [sys.executable, str(PEERS / "impacket_client.py")], go=False, flags=flags)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A queue manager that demands privacy."""
    folder = tmp_path_factory.mktemp("strict")
    (folder / "accounts").write_text("EXAMPLE\\reader:a pass word\n")
    (folder / "accounts").chmod(0o600)
    with Served(
        folder / "data", rpc_accounts=folder / "accounts", rpc_min_auth="connect"
    ) as served:
        yield served


SIGNED = ["integrity", "privacy"]
KINDS = [("go", "connect"), *product(["go", "go without header signing", "impacket"], SIGNED)]


@pytest.mark.parametrize(("kind", "level"), KINDS)
@pytest.mark.parametrize("syntax", ["ndr", "ndr64"])
def test_who_signs_in_with_ntlm_reads(
    request: pytest.FixtureRequest, strict: Served, kind: str, syntax: str, level: str
):
    if kind == "impacket":
        flags = [
            "--user",
            "reader",
            "--password",
            "a pass word",
            "--domain",
            "EXAMPLE",
            "--level",
            level,
        ]
        flags += ["--ndr64"] if syntax == "ndr64" else []
        peer = Peer(
            strict, [sys.executable, str(PEERS / "impacket_client.py")], go=False, flags=flags
        )
    else:
        flags = [
            "-ndr",
            syntax,
            "-auth",
            "ntlm",
            "-level",
            level,
            "-user",
            "reader",
            "-password",
            "a pass word",
            "-domain",
            "EXAMPLE",
        ]
        flags += ["-no-header-sign"] if "without" in kind else []
        peer = Peer(strict, [request.getfixturevalue("go_client")], go=True, flags=flags)
    name, expected = filled(strict)
    assert digests(peer.run("peek-all", name)) == expected
    assert digests(peer.run("receive-all", name)) == expected
    assert strict.waiting(name) == 0


def test_who_does_not_sign_in_or_with_a_wrong_password_reads_nothing(
    go_client: str, strict: Served
):
    name, _ = filled(strict)
    for flags in (
        [],
        ["-auth", "ntlm", "-user", "reader", "-password", "wrong", "-domain", "EXAMPLE"],
    ):
        peer = Peer(strict, [go_client], go=True, flags=flags)
        assert digests(peer.run("peek-all", name)) == []
        assert peer.code != 0
    assert "a pass word" not in strict.stderr()


def filled(served: Served) -> tuple[str, list[str]]:
    """A queue, and the digests of its bodies in the order of MSMQ."""
    name = served.queue()
    served.send(name, *PRIORITIES)
    order = sorted(range(len(PRIORITIES)), key=lambda n: (-PRIORITIES[n], n))
    return name, [hashlib.sha256(b"body %d" % (n + 1)).hexdigest() for n in order]


def digests(lines: list[dict[str, Any]]) -> list[str]:
    return [line["body_sha256"] for line in lines if "body_sha256" in line]


def test_a_walk_sees_every_message_in_order_and_takes_none(peer: Peer):
    name, expected = filled(peer.served)
    for command in ("peek-all", "cursor-walk"):
        lines = peer.run(command, name)
        assert digests(lines) == expected
        assert not any(line.get("truncated") for line in lines)
    assert peer.served.waiting(name) == len(expected)


def test_receiving_takes_every_message_once_by_priority(peer: Peer):
    name, expected = filled(peer.served)
    assert digests(peer.run("receive", name)) == expected[:1]
    assert digests(peer.run("receive-all", name)) == expected[1:]
    assert peer.served.waiting(name) == 0
    assert digests(peer.run("receive-all", name)) == []


def test_what_a_message_says(peer: Peer):
    name, _ = filled(peer.served)
    first = peer.run("peek-all", name)[0]
    assert first["label"] == "message 2"
    assert first["priority"] == 7
    assert int(first["lookup_id"], 16) == 2


def test_a_part_of_a_body(peer: Peer):
    """Two sections, of which the first has three bytes of the body."""
    name, _ = filled(peer.served)
    first = peer.run("peek", name, "-maxbody" if peer.go else "--maxbody", "3")[0]
    if peer.go:
        assert first["body_sha256"] == hashlib.sha256(b"bod").hexdigest()
    (kind, alloc, size), (second, *both) = [
        list(each.values()) if peer.go else each for each in first["sections"]
    ]
    assert (str(kind), alloc - size) in (
        ("1", 3),
        ("stBinaryFirstSection", 3),
        ("binary-first", 3),
    ), first["sections"]
    assert len(set(both)) == 1, second


def test_purge(peer: Peer):
    name, _ = filled(peer.served)
    peer.run("purge", name)
    assert peer.code == 0
    assert peer.served.waiting(name) == 0


def test_a_nack_leaves_the_message(peer: Peer):
    name, expected = filled(peer.served)
    command, flags = ("receive", ["-nack"]) if peer.go else ("nack", [])
    peer.run(command, name, *flags)
    assert digests(peer.run("receive-all", name)) == expected


def test_a_message_is_moved_to_a_subqueue(peer: Peer):
    name, expected = filled(peer.served)
    peer.served.client.put_queue(f"{name};retry", transactional=False)
    there = "OS:host1\\" + name.replace("/", "\\") + ";retry"
    (moved, *_) = peer.run("move", name, "-to" if peer.go else "--to", there)
    assert (peer.code, int(moved["moved"], 16)) == (0, 2)
    assert digests(peer.run("receive-all", f"{name};retry")) == expected[:1]
    assert digests(peer.run("receive-all", name)) == expected[1:]


def test_small_fragments(go_client: str, served: Served):
    """A client that takes 1,432 bytes at a time."""
    name = served.queue()
    served.send(name, 3, body=bytes(range(256)) * 100)
    peer = Peer(served, [go_client], go=True, flags=["-fragment", "1500"])
    (line, _) = peer.run("peek-all", name)
    assert line["body_sha256"] == hashlib.sha256(bytes(range(256)) * 100).hexdigest()


def test_a_cancel_over_a_second_connection_of_the_group(go_client: str, served: Served):
    peer = Peer(served, [go_client], go=True, flags=[])
    (line,) = peer.run("cancel", served.queue())
    assert (line["name"], line["got_message"]) == ("MQ_ERROR_OPERATION_CANCELLED", False)


def test_an_unknown_queue_is_a_fault(go_client: str, served: Served):
    peer = Peer(served, [go_client], go=True, flags=[])
    (line,) = peer.run("open", "private$/none")
    assert (peer.code, line["kind"], line["name"]) == (3, "fault", "MQ_ERROR_QUEUE_NOT_FOUND")


def test_the_endpoint_mapper_is_asked_where_remote_read_is(go_client: str, tmp_path: Path):
    at = kept_port()
    with Served(
        tmp_path / "data", queues=["private$/orders"], rpc_endpoint_mapper=f"127.0.0.1:{at}"
    ) as served:
        command = [
            go_client,
            "peek-all",
            "-epm-port",
            str(at),
            "-queue",
            "OS:host1\\private$\\orders",
            "127.0.0.1",
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert json.loads(ran.stdout.splitlines()[-1])["done"] is True
        assert served.process is not None


def test_a_transaction_finds_no_coordinator(go_client: str, served: Served):
    peer = Peer(served, [go_client], go=True, flags=[])
    (line,) = peer.run("tx-receive", served.queue(transactional=True))
    assert line["status"] == "0xc00e0058"


def test_a_killed_client_frees_its_message(go_client: str, served: Served):
    name, expected = filled(served)
    command = [
        go_client,
        "receive",
        "-no-end",
        "-hold",
        "60000",
        "-queue",
        "OS:host1\\" + name.replace("/", "\\"),
    ]
    holder = subprocess.Popen([*command, served.ready["rpc"]], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert digests([json.loads(holder.stdout.readline())]) == expected[:1]
    peer = Peer(served, [go_client], go=True, flags=[])
    assert digests(peer.run("peek-all", name)) == expected[1:]
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert digests(peer.run("receive-all", name, "-timeout", "2000")) == expected
