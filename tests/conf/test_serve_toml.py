"""conf/serve.toml names every key that ``serve`` reads, and ``serve`` starts with all of its commented examples at once.

The keys come from the reader: its table of options, and what the parser of each table names when a key is unknown.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.pgm.settings import PgmReceiverSettings, PgmSourceSettings
from srmp_spark.queue_manager.configuration.config import load, tomllib
from srmp_spark.queue_manager.configuration.options import OPTIONS, TABLES
from srmp_spark.testing.foreign.ports import kept_port
from tests.kit.certificate import Authority

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "conf" / "serve.toml").read_text()
SECRETS = {
    "api.token": "0123456789abcdef0123",
    "partner.token": "fedcba9876543210fedc",
    "rpc.accounts": r"EXAMPLE\operator:a password",
    "reader.password": "another password",
    "auditor.nthash": "8846f7eaee8fb117ad06bdd830b7586c",
}
"""Files that the examples name in /etc/srmp-spark, besides certificates."""
WIDEST = 132
"""Characters of a line: the page is read in terminals."""


def uncommented(text: str) -> str:
    """Every commented example as a line that counts."""
    return re.sub(r'^( *)# (?=[a-z_0-9]+ = |\[|"[^"]+",)', r"\1", text, flags=re.MULTILINE)


def keys_of_table(name: str) -> set[str]:
    """What the parser of a table says that it knows."""
    entry: Any = {"#": "no key of anything"}
    with pytest.raises(ConfigurationError, match="known: ") as error:
        TABLES[name](name, entry if name == "pgm_constants" else [entry])
    return set(str(error.value).rpartition("known: ")[2].split(", "))


def keys_in(table: object) -> set[str]:
    """Every key of a table, or of all tables of that name."""
    entries = table if isinstance(table, list) else [table]
    return {key for entry in entries for key in entry}


EXAMPLE = tomllib.loads(uncommented(TEXT))


def test_every_key_of_serve_is_there() -> None:
    assert {option.key for option in OPTIONS} | set(TABLES) == set(EXAMPLE)


@pytest.mark.parametrize("name", TABLES)
def test_every_key_of_a_table_is_there(name: str) -> None:
    known = keys_of_table(name)
    assert len(known) > 1, "the parser has named its keys"
    assert keys_in(EXAMPLE[name]) == known


def test_every_key_has_a_comment() -> None:
    """Before it, in its line, or before the line of the pair that it belongs to (a certificate and its key)."""
    lines = uncommented(TEXT).splitlines()
    for place, line in enumerate(lines):
        match = re.match(r"([a-z_0-9]+) = ", line)
        if match is None or line.startswith(" ") or place > lines.index("[[token]]"):
            continue
        before = lines[place - 1]
        is_comment = before.startswith("# ") and not before.startswith("# ---")
        assert is_comment or re.match(r"[a-z_]+(_cert|_bytes) = ", before), line


@pytest.mark.parametrize("name", TABLES)
def test_every_key_of_a_table_has_its_reason(name: str) -> None:
    """In its line, or by its name in the comment before the table."""
    text = uncommented(TEXT).partition("# --- Tables ---")[2]
    blocks = [block for block in text.split("\n\n") if re.search(rf"^\[+{name}\]+$", block, re.M)]
    said = " ".join(line for block in blocks for line in block.splitlines() if line[:1] == "#")
    for key in keys_of_table(name):
        lines = re.findall(rf"^{key} = .*$", "\n".join(blocks), re.M)
        told = [line for line in lines if re.search(r"[\]\"'\w] +# [\"\w]", line)]
        assert lines, f"[{name}] {key}"
        assert told or re.search(rf"\b{key.rstrip('s')}s?\b", said, re.I), (
            f"[{name}] {key} has no reason"
        )


def test_the_constants_of_multicast_are_their_defaults() -> None:
    defaults = {
        each.name: getattr(kind(), each.name)
        for kind in (PgmSourceSettings, PgmReceiverSettings)
        for each in fields(kind)
    }
    assert {
        **EXAMPLE["pgm_constants"],
        "nak_rb_ivl": tuple(EXAMPLE["pgm_constants"]["nak_rb_ivl"]),
    } == defaults


def test_other_defaults_that_an_example_repeats_are_right() -> None:
    config = load({"data_dir": "d"}, {})
    assert tuple(map(float, EXAMPLE["resend_table"])) == config.resend_table
    scalars = (
        "retransmission_timeout",
        "wsrm_poll_interval",
        "state_interval",
        "retention_hours",
        "unknown_queue",
        "pgm_ttl",
    )
    for key in scalars:
        assert EXAMPLE[key] == getattr(config, key), key
    assert (str(config.listen.port), str(config.api.port), config.wsrm_buffer) == (
        "8080",
        "8081",
        8,
    )
    for said in ("Default 127.0.0.1:8080.", "Default 127.0.0.1:8081.", "Default 8;"):
        assert said in TEXT


def test_no_line_is_too_wide() -> None:
    assert [line for line in TEXT.splitlines() if len(line) > WIDEST] == []


# --- all examples at once ------------------------------------------------------------------------------------------------


def files_in(folder: Path) -> None:
    """What the examples name in /etc/srmp-spark."""
    folder.mkdir(mode=0o700)
    for name, text in SECRETS.items():
        (folder / name).touch(0o600)
        (folder / name).write_text(text + "\n")
    authority = Authority(folder / "authority")
    own = authority.issue("qm", hosts=["mq.example.com"])
    (folder / "qm.pem").write_bytes(own.certificate.read_bytes())
    (folder / "qm.key").touch(0o600)
    (folder / "qm.key").write_bytes(own.key.read_bytes())
    for name in ("clients.pem", "peers.pem"):
        (folder / name).write_bytes(authority.ca.read_bytes())


def everything(directory: Path) -> Path:
    """conf/serve.toml with every example, free ports, and places of ours."""
    files_in(directory / "etc")
    signer = Authority(directory / "signers").issue("orders", rsa_bits=2048)
    (directory / "etc" / "orders.pem").write_bytes(signer.certificate.read_bytes())
    text = uncommented(TEXT).replace("/etc/srmp-spark/", f"{directory / 'etc'}/")
    text = text.replace('"/var/lib/srmp-spark"', f'"{directory / "data"}"')
    text = text.replace("s3://lake/srmp-state", f"{directory / 'state'}")
    text = re.sub(r'"(0\.0\.0\.0|127\.0\.0\.1):\d+"', lambda _: f'"127.0.0.1:{kept_port()}"', text)
    text = text.replace(
        'pgm = "raw"', f'pgm = "udp:{kept_port()}"'
    )  # raw needs a right that a test may not have
    path = directory / "serve.toml"
    path.write_text(text)
    return path


def test_every_example_is_valid(tmp_path: Path) -> None:
    config = load({"config": str(everything(tmp_path))}, {})
    assert [signer.source_qm for signer in config.signer] == [
        "f6a3323c-7c7b-4a5f-b0ed-b3f63a200893"
    ]
    assert [token.name for token in config.tokens] == ["orders-ingest", "partner"]
    assert len(config.all_rpc_accounts().accounts) == 3


def test_serve_starts_with_every_example(tmp_path: Path) -> None:
    """All ports, files and tables at once. SIGTERM ends it with 0."""
    command = [
        sys.executable,
        "-m",
        "srmp_spark.cli",
        "serve",
        "--config",
        str(everything(tmp_path)),
    ]
    env = {key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env
    )
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        assert {"listening", "api", "https", "rpc", "wsrm"} <= set(json.loads(line))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.communicate()
