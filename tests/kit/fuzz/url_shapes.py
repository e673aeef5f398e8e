"""A hundred URLs for receipts that a queue manager must never contact (test T19).

The sender is 192.0.2.7, and the queue manager 192.0.2.1. Host names end in ``.test`` and are
resolved by the test's own name server.
"""

from __future__ import annotations

SENDER = "192.0.2.7"
QUEUE_MANAGER = "192.0.2.1"
VICTIM = "198.51.100.9"
PORT = 8_080
NAMES: dict[str, list[list[str]]] = {
    "victim.test": [[VICTIM]],
    "metadata.test": [["169.254.169.254"]],
    "loopback.test": [["127.0.0.1"]],
    "private.test": [["10.0.0.5"]],
    "own-then-private.test": [[SENDER], ["10.0.0.6"]],
    "private-and-own.test": [["10.0.0.7", SENDER]],
    "own.test": [[SENDER]],
    "none.test": [[]],
    f"{SENDER}%1.evil.test": [[VICTIM]],
}
"""Host name → the answers of the name server, one after another."""

_LOOPBACK = (
    "http://127.0.0.1/q",
    "http://127.0.0.1:8080/q",
    "http://127.1/q",
    "http://127.0.1/q",
    "http://2130706433/q",
    "http://0x7f000001/q",
    "http://0x7f.1/q",
    "http://0177.0.0.1/q",
    "http://017700000001/q",
    "http://127.0.0.1./q",
    "http://localhost/q",
    "http://LOCALHOST:8080/q",
    "http://localhost./q",
    "http://[::1]/q",
    "http://[::1]:8080/q",
    "http://[0:0:0:0:0:0:0:1]/q",
    "http://[::ffff:127.0.0.1]/q",
    "http://[::ffff:7f00:1]/q",
    "http://[::127.0.0.1]/q",
    "http://0/q",
    "http://0.0.0.0:8080/q",
    "http://[::]:8080/q",
    "http://127.255.255.254/q",
    "http://loopback.test:8080/q",
    "http://ip6-localhost/q",
)
_LINK_LOCAL = (
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.169.254:80/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25lo]/q",
    "http://[fe80::1%lo]/q",
    "http://metadata.test/latest/",
    "http://metadata.test:8080/",
    "http://[fd00:ec2::254]/",
    "http://100.100.100.200/",
)
_PRIVATE = (
    "http://10.0.0.1/q",
    "http://10.0.0.1:8080/q",
    "http://172.16.0.1/q",
    "http://192.168.0.1:8080/q",
    "http://100.64.0.1/q",
    "http://[fc00::1]/q",
    "http://[fd12::1]:8080/q",
    "http://private.test:8080/q",
    "http://224.0.0.1/q",
    "http://255.255.255.255/q",
    "http://[ff02::1]/q",
    "http://240.0.0.1/q",
    f"http://{QUEUE_MANAGER}:8080/q",
    f"http://{QUEUE_MANAGER}/msmq/private$/orders",
    "http://192.0.2.8:8080/q",
)
_PUBLIC = (
    f"http://{VICTIM}/q",
    f"http://{VICTIM}:8080/q",
    f"https://{VICTIM}/q",
    "https://victim.test/q",
    "http://victim.test:8080/q",
    "http://victim.test.:8080/q",
    "HTTP://VICTIM.TEST:8080/q",
    "http://none.test/q",
    "http://unknown.test/q",
    "http://[2001:db8::1]:8080/q",
)
_ODD_PORTS = (
    *(
        f"http://{VICTIM}:{port}/q"
        for port in (1, 9, 22, 25, 53, 135, 445, 1801, 3389, 6379, 65_535)
    ),
    f"http://{VICTIM}:0/q",
    f"http://{VICTIM}:65536/q",
    f"http://{VICTIM}:99999/q",
    f"http://{VICTIM}:8080:80/q",
    f"http://{VICTIM}:/q",
)
_MISLEADING = (
    f"http://{SENDER}@{VICTIM}:8080/q",
    f"http://{SENDER}:80@{VICTIM}:8080/q",
    f"http://{SENDER}:8080#@{VICTIM}:8080/q",
    f"http://{SENDER}%40{VICTIM}:8080/q",
    f"http://{SENDER}%1.evil.test:8080/q",
    f"http://{VICTIM}:8080\\@{SENDER}:8080/q",
    f"http://user:password@{SENDER}:8080/q",
    f"http://{SENDER}:8080/a\r\nX-A: b",
    f"http://{SENDER}:8080/a%0d%0aX-A:%20b/../c",
    f"http://{SENDER}:8080/../q",
    f"http://{SENDER}:8080/%2e%2e/q",
    f"http://{SENDER}.{VICTIM}:8080/q",
    f"http://{SENDER} {VICTIM}:8080/q",
    "http:///q",
    "http://:8080/q",
    f"//{VICTIM}:8080/q",
    f"http:/{VICTIM}:8080/q",
    f"http:{VICTIM}:8080/q",
)
_SCHEMES = (
    "file:///etc/passwd",
    f"gopher://{VICTIM}:8080/_x",
    f"ftp://{VICTIM}:8080/q",
    f"dict://{VICTIM}:8080/x",
    f"ldap://{VICTIM}:8080/x",
    "javascript:alert(1)",
    f"jar:http://{VICTIM}:8080!/",
    "unix:///var/run/docker.sock",
    f"TCP:{VICTIM}",
    f"OS:{VICTIM}\\private$\\q",
    f"MSMQ:DIRECT=http://{VICTIM}:8080/msmq/q",
    f"DIRECT=http://{VICTIM}:8080/msmq/q",
)

FORBIDDEN = (*_LOOPBACK, *_LINK_LOCAL, *_PRIVATE, *_PUBLIC, *_ODD_PORTS, *_MISLEADING, *_SCHEMES)
"""URLs none of which may cause a connection."""

ALLOWED_PATTERN = f"http://203.0.113.5:{PORT}/msmq/*"
"""URL pattern that the operator allows in the test."""
ALLOWED = (
    f"http://{SENDER}:{PORT}/msmq/own",
    f"http://{SENDER}:{PORT}/redirect",
    f"http://own.test:{PORT}/msmq/own",
    f"http://own-then-private.test:{PORT}/redirect",
    f"http://private-and-own.test:{PORT}/msmq/own",
    f"http://203.0.113.5:{PORT}/msmq/pattern",
)
"""URLs that may be contacted: the sender's own address, also by a name, and the pattern.

They show that the test can see a connection.
"""
MAY_BE_CALLED = frozenset(((SENDER, PORT), ("203.0.113.5", PORT)))
"""Addresses and ports to which :data:`ALLOWED` may lead."""
