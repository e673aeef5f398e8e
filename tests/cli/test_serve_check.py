"""``serve --check``: what it finds, what it tells to do, and that it changes nothing beside a queue manager that runs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.commands.checks import data_directory, host_names, tickets
from srmp_spark.commands.checks.before_start import checks_before_start
from srmp_spark.commands.checks.report import Check
from srmp_spark.store.database.disk_room import Volume
from srmp_spark.store.database.lock import owner_of, take_lock
from srmp_spark.store.directory import RESTORING_FILE
from srmp_spark.testing.foreign.ports import kept_port
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.certificate import Authority

TOKEN = "a-token-that-nobody-may-see-0123456789"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty data directory."""
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    return made


def found(
    data_dir: Path, environment: Mapping[str, str] | None = None, **flags: object
) -> list[Check]:
    """The checks of these flags, on free ports."""
    given = {"listen": "127.0.0.1:0", "api": "127.0.0.1:0", **flags}
    return list(checks_before_start({"data_dir": str(data_dir), **given}, environment or {}))


def in_file(folder: Path, text: str) -> str:
    path = folder.parent / "serve.toml"
    path.write_text(text)
    return str(path)


def failed(checks: list[Check]) -> list[tuple[str, str]]:
    """Name and detail of each check that failed. Each says what to do."""
    assert all(check.hint for check in checks if not check.ok)
    return [(check.check, check.detail) for check in checks if not check.ok]


def of(checks: list[Check], name: str) -> list[Check]:
    return [check for check in checks if check.check == name]


# --- options -------------------------------------------------------------------------------------


def test_a_configuration_that_works_passes_and_leaves_nothing(tmp_path: Path) -> None:
    data = tmp_path / "not" / "there"
    checks = found(data, queue=["private$/orders"])
    assert failed(checks) == []
    assert [check.check for check in checks] == [
        "configuration",
        "data-dir",
        "disk",
        "port",
        "port",
    ]
    assert list(tmp_path.iterdir()) == []


def test_all_wrong_options_are_told_at_once(folder: Path) -> None:
    config = in_file(
        folder, 'retention_huors = 1\nstate_interval = "soon"\n[[token]]\nname = "x"\n'
    )
    environment = {"SRMP_SPARK_QUEUES": "a", "SRMP_SPARK_TOKEN": "short"}
    checks = found(folder, environment, config=config, pgm_ttl="900", unknown_queue="rject")
    details = [detail for _, detail in failed(checks)]
    assert len(details) == len(checks) == 7
    for words in (
        "unknown key 'retention_huors'",
        "did you mean 'retention_hours'?",
        "unknown variable SRMP_SPARK_QUEUES",
        "state_interval in",
        "token x: verbs is a list",
        "--pgm-ttl",
        "did you mean 'reject'?",
        "SRMP_SPARK_TOKEN: the token must be",
    ):
        assert sum(words in detail for detail in details) == 1, words


def test_options_that_contradict_each_other_are_told_at_once(folder: Path) -> None:
    checks = found(
        folder,
        api="0.0.0.0:0",
        listen_https="127.0.0.1:0",
        rpc_min_auth="privacy",
        queue=["a", "a"],
    )
    assert len(failed(checks)) == 4
    assert {check.check for check in checks} == {"configuration"}


def test_a_file_that_cannot_be_read_is_the_only_finding(folder: Path) -> None:
    ((name, detail),) = failed(found(folder, config=in_file(folder, "a = [")))
    assert name == "configuration"
    assert "serve.toml" in detail


def test_old_and_doubtful_rights_are_advice(folder: Path) -> None:
    digest = "0" * 64
    config = in_file(folder, f'[[token]]\nname = "old"\nsha256 = "{digest}"\nverbs = ["read"]\n')
    accounts = folder.parent / "accounts"
    accounts.touch(mode=0o600)
    accounts.write_text("D\\u:password-of-u\n")
    checks = found(
        folder, config=config, rpc="127.0.0.1:0", rpc_accounts=str(accounts), rpc_min_auth="connect",
        store_and_forward="true",
    )  # fmt: skip
    assert failed(checks) == []
    advice = {check.detail: check.hint for check in of(checks, "advice")}
    assert advice[
        "token old: verbs has read without browse, which means what it meant before the six verbs"
    ] == (
        "write verbs = ['metrics', 'browse', 'read', 'decide'] to keep that; readers need browse, read"
    )
    assert len(advice) == 4
    assert all(advice.values())


# --- data directory ------------------------------------------------------------------------------


def test_a_directory_that_others_can_enter_fails(folder: Path) -> None:
    folder.chmod(0o750)
    (check,) = of(found(folder), "data-dir")
    assert (check.ok, "mode 0750" in check.detail, "chmod -R go-rwx" in check.hint) == (
        False,
        True,
        True,
    )


def test_a_file_in_the_place_of_the_directory_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert failed(found(tmp_path / "file" / "data"))[0] == (
        "data-dir",
        f"{tmp_path / 'file'} is no folder",
    )


def test_a_directory_that_cannot_be_written_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_directory, "_may", lambda path, rights: path != folder)
    (check,) = of(found(folder), "data-dir")
    assert not check.ok
    assert "cannot be written" in check.detail
    monkeypatch.setattr(data_directory, "_may", lambda path, rights: path == folder)
    (folder / "lock").touch()
    (check,) = of(found(folder), "data-dir")
    assert "chown -R" in check.hint


def test_a_network_file_system_and_an_unfinished_restore_fail(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / RESTORING_FILE).touch()
    assert "did not come to its end" in failed(found(folder))[0][1]
    mounts = folder.parent / "mounts"
    mounts.write_text(f"1 2 0:3 / {folder} rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(data_directory, "MOUNTS", mounts)
    assert "lies on nfs4" in failed(found(folder))[0][1]


def test_a_disk_below_its_gate_fails_and_a_state_on_it_needs_twice_as_much(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gib = 2**30
    monkeypatch.setattr(Volume, "look", lambda path: Volume(free=gib // 3, size=100 * gib))
    assert failed(found(folder)) == []
    state = folder.parent / "state"
    assert failed(found(folder, state=str(state))) == [
        ("disk", "341 MiB are free, 512 MiB must stay free")
    ]
    assert not state.exists()


def test_a_process_that_holds_the_directory_and_is_not_ready_is_named(folder: Path) -> None:
    with take_lock(folder / "lock"):
        assert owner_of(folder / "lock") == (os.getpid(), socket.gethostname())
        ((name, detail),) = failed(found(folder))
        assert (name, f"process {os.getpid()}" in detail) == ("running", True)
    assert owner_of(folder / "lock") is None
    assert failed(found(folder)) == []


def test_the_state_folder_and_a_store_that_is_not_asked(folder: Path) -> None:
    (check,) = of(found(folder, state="s3://key:secret@lake/x?token=secret"), "state")
    assert check.ok
    assert "secret" not in check.detail
    (folder.parent / "file").touch()
    assert "is a file" in failed(found(folder, state=str(folder.parent / "file")))[0][1]


# --- ports and names -----------------------------------------------------------------------------


def test_a_port_of_another_program_fails_and_the_program_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        threading.Thread(
            target=lambda: other.accept()[0].sendall(b"SSH-2.0\r\n"), daemon=True
        ).start()
        (check,) = [
            check for check in of(found(folder, listen=f"127.0.0.1:{port}"), "port") if not check.ok
        ]
    assert f"127.0.0.1:{port}" in check.detail
    assert "in use" in check.detail
    assert "SSH-2.0" in check.detail
    assert "stop it or choose another port" in check.hint


def test_a_port_is_free_again_after_the_check(folder: Path) -> None:
    port = kept_port()
    for _ in range(2):
        assert failed(found(folder, listen=f"127.0.0.1:{port}")) == []
    socket.create_server(("127.0.0.1", port)).close()


def test_an_address_of_another_machine_fails(folder: Path) -> None:
    ((name, detail),) = failed(
        found(folder, listen="192.0.2.1:0") + found(folder, listen="192.0.2.1:18080")
    )
    assert (name, "192.0.2.1" in detail) == ("port", True)


def test_names_without_an_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is called fails; a name by which others call is advice. A silent server delays nothing."""
    never = threading.Event()

    def look(host: str, *_: object, **__: object) -> list[object]:
        if host == "silent.example":
            never.wait(30)
        if host != "known.example":
            raise socket.gaierror(-2, "Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look)
    monkeypatch.setattr(host_names, "SECONDS_MAX", 0.2)
    config = in_file(
        folder,
        'host_name = ["known.example", "old.example"]\n[[subscription]]\nhost = "silent.example"\n'
        "queue = 'private$\\orders'\nauth_level = \"none\"\n",
    )
    checks = of(found(folder, config=config), "host-name")
    never.set()
    assert failed(checks) == [
        ("host-name", "[[subscription]] silent.example has no address here within 0.2 s")
    ]
    assert [check.detail for check in checks if check.ok] == [
        "--host-name old.example has no address here",
        "1 host names have addresses",
    ]


@pytest.mark.parametrize(
    ("limit", "code", "words"), [(200, 1, "at least 320"), (1000, 0, "wanted are")]
)
def test_the_limit_of_open_files(tmp_path: Path, limit: int, code: int, words: str) -> None:
    command = [
        sys.executable,
        "-m",
        "srmp_spark.cli",
        "serve",
        "--data-dir",
        str(tmp_path / "d"),
        "--check",
    ]
    flags = ["--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"]
    done = subprocess.run(
        ["prlimit", f"--nofile={limit}", *command, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (found,) = [
        line for line in map(json.loads, done.stdout.splitlines()) if line["check"] == "open-files"
    ]
    assert (done.returncode, done.stderr, words in found["detail"]) == (code, "", True)
    assert "LimitNOFILE" in found["hint"]


# --- certificates, tickets -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begins", "ends", "ok", "words"),
    [
        (timedelta(hours=-1), timedelta(days=400), True, "is valid for 399 days"),
        (timedelta(hours=-1), timedelta(days=9), True, "is valid for 8 days"),
        (timedelta(days=-9), timedelta(days=-1), False, "expired at"),
        (timedelta(days=1), timedelta(days=9), False, "is valid from"),
    ],
)
def test_the_time_of_a_certificate(
    folder: Path, begins: timedelta, ends: timedelta, ok: bool, words: str
) -> None:
    own = Authority(folder.parent / "ca").issue("qm", begins=begins, ends=ends)
    (check,) = of(found(folder, api_cert=str(own.certificate), api_key=str(own.key)), "certificate")
    assert (check.ok, words in check.detail) == (ok, True)
    assert ("renew" in check.hint or "clock" in check.hint) is (not ok or "8 days" in check.detail)


def test_a_key_of_another_certificate_or_open_to_others_fails(folder: Path) -> None:
    authority = Authority(folder.parent / "ca")
    one, other = authority.issue("one"), authority.issue("other")
    for key in (other.key, one.key):
        one.key.chmod(0o644 if key is one.key else 0o600)
        (check,) = of(found(folder, api_cert=str(one.certificate), api_key=str(key)), "certificate")
        assert not check.ok
        assert check.detail.startswith("--api-cert/--api-key: ")
        assert ("chmod 600" if key is one.key else "mismatch") in check.detail + check.hint


def test_a_certificate_without_the_name_that_senders_use_fails(folder: Path) -> None:
    own = Authority(folder.parent / "ca").issue("qm", hosts=["qm.example", "*.other.example"])
    flags = {
        "listen_https": "127.0.0.1:0",
        "listen_cert": str(own.certificate),
        "listen_key": str(own.key),
        "host_name": ["qm.example", "a.other.example", "alias.example"],
    }
    ((name, detail),) = failed(found(folder, **flags))
    assert (name, "has no name alias.example" in detail) == ("certificate", True)


def test_an_authority_that_expired_fails(folder: Path) -> None:
    authority = Authority(folder.parent / "ca")
    old = authority.issue("old", ends=timedelta(minutes=-1), is_authority=True)
    ((name, detail),) = failed(found(folder, ca_file=str(old.certificate)))
    assert (name, "CN=old expired at" in detail) == ("certificate", True)


KERBEROS = (
    "[[subscription]]\nhost = 'localhost'\nqueue = 'private$\\a'\nauth_protocol = 'kerberos'\n"
)


@pytest.mark.parametrize(
    ("variables", "ok", "words"),
    [
        ({"KRB5CCNAME": "FILE:{}/missing"}, False, "no ticket for localhost"),
        ({"KRB5CCNAME": "FILE:{}/cache"}, True, "come from {}/cache"),
        ({"KRB5CCNAME": "KEYRING:persistent:0"}, True, "is not looked at"),
        ({"KRB5_CLIENT_KTNAME": "FILE:{}/keytab"}, True, "from the keytab {}/keytab"),
        ({"KRB5_CLIENT_KTNAME": "{}/cache"}, False, "is no keytab"),
        ({"KRB5_CLIENT_KTNAME": "{}/open"}, False, "is open to other users"),
        ({"KRB5_CLIENT_KTNAME": "{}/missing"}, False, "No such file"),
    ],
)
def test_tickets_for_kerberos(
    folder: Path, variables: dict[str, str], ok: bool, words: str
) -> None:
    pytest.importorskip("spnego")
    for name, content in (("cache", b"\x05\x04"), ("keytab", b"\x05\x02x"), ("open", b"\x05\x02x")):
        (folder / name).touch(mode=0o600)
        (folder / name).write_bytes(content)
    (folder / "open").chmod(0o644)
    from srmp_spark.queue_manager.configuration.config import load

    config = load({"data_dir": str(folder), "config": in_file(folder, KERBEROS)}, {})
    environment = {key: value.format(folder) for key, value in variables.items()}
    (check,) = tickets.ticket_checks(config, environment)
    assert (check.ok, words.format(folder) in check.detail) == (ok, True), check


# --- secrets -------------------------------------------------------------------------------------


def test_no_secret_is_printed(folder: Path) -> None:
    """Whether the options are right, or a secret stands where a name of a file belongs."""
    secrets = folder.parent / "secrets"
    secrets.mkdir()
    for name, text in (
        ("token", TOKEN),
        ("accounts", f"D\\u:{TOKEN}"),
        ("password", TOKEN),
        ("bad", f"D\\{TOKEN}"),
    ):
        (secrets / name).touch(mode=0o600)
        (secrets / name).write_text(text)
    right = in_file(
        folder,
        f'token_file = "{secrets}/token"\nrpc = "127.0.0.1:0"\nrpc_accounts = "{secrets}/accounts"\n'
        f"[[subscription]]\nhost = 'localhost'\nqueue = 'private$\\a'\nusername = 'u'\n"
        f'password_file = "{secrets}/password"\n',
    )
    printed = [*found(folder, config=right)]
    assert failed(printed) == []
    for wrong in (
        f'token_file = "{TOKEN}"',
        f'rpc_accounts = "{secrets}/bad"',
        f'[[token]]\nname = "x"\nsha256 = "{TOKEN}"\nverbs = ["read"]',
        f'[[token]]\nname = "x"\ntoken = "{TOKEN}"\nverbs = ["read"]',
        f"[[subscription]]\nhost = 'h'\nqueue = 'q'\npassword = '{TOKEN}'",
        f'password = "{TOKEN}"',
    ):
        checks = found(folder, config=in_file(folder, wrong))
        assert failed(checks) != [], wrong
        printed += checks
    assert TOKEN not in repr(printed)
    assert TOKEN not in repr(found(folder, {"SRMP_SPARK_TOKEN": TOKEN + " "}))


# --- beside a queue manager that runs --------------------------------------------------------------


def check(running: RunningQueueManager, *flags: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """``serve --check`` with the flags of a queue manager."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")}
    done = subprocess.run(
        [*running.command(), *flags, "--check"],
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    checks: dict[str, list[dict[str, Any]]] = {}
    for line in done.stdout.splitlines():
        read = json.loads(line)
        checks.setdefault(read["check"], []).append(read)
    return done.returncode, checks


def tree(folder: Path) -> dict[str, tuple[int, ...]]:
    """Inode, size, mode and times of each entry below a folder, and of the folder."""
    return {
        str(path): (s.st_ino, s.st_size, s.st_mode, s.st_mtime_ns, s.st_ctime_ns)
        for path in (folder, *sorted(folder.rglob("*")))
        for s in [path.stat()]
    }


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(
        tmp_path_factory.mktemp("checked") / "qm",
        queues=["private$/orders"],
        listen_wsrm="127.0.0.1:0",
        rpc="127.0.0.1:0",
        rpc_endpoint_mapper="127.0.0.1:0",
    ) as served:
        yield served


def test_beside_a_queue_manager_that_runs(running: RunningQueueManager) -> None:
    """Its ports are its own, and it goes on: the lock and the files of the directory are not touched."""
    client = QueueManagerClient(running.api)
    names = ("lock", "endpoint.json")
    before = {
        name: tree(running.data_dir / name) for name in names if (running.data_dir / name).exists()
    }
    sent: list[int] = []
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            client.send("private$/orders", [{"body_base64": "eA=="}])
            sent.append(1)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        code, checks = check(running)
    finally:
        stop.set()
        sender.join(60)
    assert code == 0, checks
    assert len(sent) > 10, "it accepted messages meanwhile"
    assert requests.get(f"{running.api}/readyz", timeout=10).status_code == 200
    (told,) = checks["running"]
    assert f"(process {running.pid})" in told["detail"]
    ports = [each["detail"] for each in checks["port"]]
    assert len(ports) == 5
    assert all(
        f"is held by the queue manager of this data directory (process {running.pid})" in each
        for each in ports
    )
    assert before == {name: tree(running.data_dir / name) for name in before}
    srmp, api = (url.partition("://")[2] for url in (running.listening, running.api))
    code, checks = check(running, "--listen", api, "--api", srmp)
    assert code == 0, "both are free when it ends"


def test_another_directory_meets_its_ports(running: RunningQueueManager, tmp_path: Path) -> None:
    """Also a copy, whose endpoint file names the process that has the ports."""
    copy = tmp_path / "copy"
    shutil.copytree(running.data_dir, copy)
    code, checks = check(running, "--data-dir", str(copy))
    assert code == 1
    assert "running" not in checks
    assert "srmp-spark answers at" in checks["port"][0]["detail"]
    assert not any(each["ok"] for each in checks["port"])


def test_a_directory_at_rest_is_not_changed_and_a_start_beside_checks_succeeds(
    tmp_path: Path,
) -> None:
    served = RunningQueueManager(tmp_path / "qm", queues=["private$/orders"])
    with served:
        served.kill9()
        before = tree(served.data_dir)
        code, checks = check(served)
        assert (code, tree(served.data_dir)) == (0, before), checks
        assert "running" not in checks, "the endpoint file is that of a process that is gone"
        stop = threading.Event()
        codes: list[int] = []

        def look() -> None:
            while not stop.is_set():
                codes.append(check(served)[0])

        looking = [threading.Thread(target=look) for _ in range(2)]
        for each in looking:
            each.start()
        try:
            served.restart()
        finally:
            time.sleep(0.1)
            stop.set()
            for each in looking:
                each.join(60)
        assert codes
        assert requests.get(f"{served.api}/readyz", timeout=10).status_code == 200


def test_wrong_options_end_with_1_and_a_terminal_gets_a_table(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "srmp_spark.cli",
        "serve",
        "--data-dir",
        str(tmp_path / "d"),
        "--check",
    ]
    done = subprocess.run(
        [*command, "--pgm-ttl", "900"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr, (tmp_path / "d").exists()) == (1, "", False)
    assert json.loads(done.stdout)["check"] == "configuration"
