"""What is stored is for its owner alone, and secrets that others can read are refused."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from srmp_spark.client.outgoing_messages import OutgoingClient
from srmp_spark.errors import ConfigurationError
from srmp_spark.private_files import refuse_open_secret
from srmp_spark.spark import embedded
from srmp_spark.store.restore.target import new_directory
from srmp_spark.testing.queue_manager import RunningQueueManager, ServeFailedError
from tests.kit.certificate import make_certificate

ORDERS = "private$/orders"
CARELESS = ("sh", "-c", 'umask 000; exec "$@"', "sh")
"""Starts a program whose umask takes no right from anybody."""


def open_to_others(folder: Path) -> dict[str, str]:
    """The entries at and below ``folder`` to which other users have a right, with their modes."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
        except FileNotFoundError:  # a WAL, a temporary file
            continue
        if mode & 0o077:
            found[str(path.relative_to(folder))] = oct(mode)
    return found


def wait_for(what: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def refusal(served: RunningQueueManager) -> str:
    try:
        with pytest.raises(ServeFailedError) as caught:
            served.start()
    finally:
        served.stop()
    assert caught.value.code == 2
    return str(caught.value)


def test_whatever_the_umask_is_nobody_else_can_read_a_data_directory_that_is_in_use(
    tmp_path: Path,
) -> None:
    data = tmp_path / "new" / "data"
    with RunningQueueManager(
        data, queues=[f"{ORDERS}:transactional"], prefix=CARELESS, state=tmp_path / "state", state_interval=0.2, allow_url=["http://127.0.0.1:*"],
    ) as running:  # fmt: skip
        client = OutgoingClient(running.api)
        url = f"{running.ready['listening']}/msmq/{ORDERS}"
        client.send_away(
            [
                {"destination": url, "label": f"order {n}", "body_base64": "aGVsbG8="}
                for n in range(10)
            ]
        )
        queue_of = lambda: next(  # noqa: E731
            each for each in client.status()["queues"] if each["name"] == ORDERS
        )
        wait_for(lambda: queue_of()["last"] == 10)
        wait_for(lambda: client.status()["state"]["lag_seconds"] == 0)
        assert open_to_others(data) == {}
        made = {path.name for path in data.iterdir()}
        assert {
            "store.db",
            "outbox.db",
            "identity",
            "lock",
            "endpoint.json",
            "delta",
            "stages",
            "segments",
        } <= made
        # The Delta state is outside: there the umask decides, because others may be meant to read the tables.
        assert (tmp_path / "state" / "inbox").stat().st_mode & 0o055
    assert open_to_others(data) == {}


def test_a_folder_that_others_can_enter_is_refused_with_the_command_that_repairs_it(
    tmp_path: Path,
) -> None:
    data = tmp_path / "what 0.1 was given"
    served = RunningQueueManager(data, queues=[ORDERS])
    served.start()
    served.stop()
    for path in data.iterdir():
        path.chmod(0o755 if path.is_dir() else 0o644)
    data.chmod(0o755)

    said = refusal(served)
    assert f"{data} is open to other users of this machine (mode 0755)" in said
    command = said.partition("run ")[2].partition(" and start again")[0]
    subprocess.run(shlex.split(command), check=True)
    assert open_to_others(data) == {}
    served.start()
    served.stop()


def test_an_empty_folder_that_others_can_enter_is_refused_and_left_empty(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o750)
    assert "mode 0750" in refusal(RunningQueueManager(data, queues=[ORDERS]))
    assert list(data.iterdir()) == []


def test_wide_files_of_version_0_1_in_a_private_folder_are_narrowed_and_a_foreign_folder_in_it_stays(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    served = RunningQueueManager(data, queues=[ORDERS])
    served.start()
    served.stop()
    (data / "embedded.log").write_text("of an earlier version\n")
    checkpoint = data / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "offsets").touch()
    for path in data.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with served:
        assert set(open_to_others(data)) == {"checkpoint", "checkpoint/offsets"}
        assert "data_dir.narrowed" in served.stderr()


def test_restore_makes_a_private_folder_and_refuses_a_wide_one(tmp_path: Path) -> None:
    with new_directory(tmp_path / "restored") as path:
        assert open_to_others(path) == {}
    (tmp_path / "wide").mkdir(mode=0o755)
    with (
        pytest.raises(ConfigurationError, match="chmod -R go-rwx"),
        new_directory(tmp_path / "wide"),
    ):
        pass


def test_the_embedded_queue_manager_gets_a_private_folder_and_a_private_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "UNUSED_SECONDS", 1)
    before = os.umask(0)
    try:
        data = tmp_path / "above" / "embedded"
        embedded.start_or_join(data, (("listen", "127.0.0.1:0"), ("queue", ORDERS)))
    finally:
        os.umask(before)
    assert open_to_others(data) == {}
    assert (data / "embedded.log").exists()
    wait_for(lambda: not (data / "endpoint.json").exists())  # it ends by itself

    (tmp_path / "wide").mkdir(mode=0o755)
    with pytest.raises(ConfigurationError, match="chmod -R go-rwx"):
        embedded.start_or_join(tmp_path / "wide", (("listen", "127.0.0.1:0"), ("queue", ORDERS)))
    assert list((tmp_path / "wide").iterdir()) == []


@pytest.mark.parametrize(
    "flag", ["token_file", "api_key", "listen_key", "client_key", "rpc_accounts"]
)
def test_a_file_with_a_secret_that_others_can_read_is_refused(tmp_path: Path, flag: str) -> None:
    certificate, key = make_certificate(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text(
        {"token_file": "0123456789abcdef", "rpc_accounts": ".\\reader:secret"}.get(
            flag, key.read_text()
        )
    )
    options = {
        "api_key": {"api_cert": certificate},
        "listen_key": {"listen_cert": certificate, "listen_https": "127.0.0.1:0"},
        "client_key": {"client_cert": certificate},
        "rpc_accounts": {"rpc": "127.0.0.1:0"},
    }.get(flag, {})
    served = RunningQueueManager(tmp_path / "data", queues=[ORDERS], **options, **{flag: secret})
    secret.chmod(0o640)
    said = refusal(served)
    assert f"{secret} is open to other users of this machine (mode 0640)" in said
    assert f"chmod 600 {secret}" in said
    secret.chmod(0o600)
    with served:
        pass


def test_commands_refuse_a_token_that_others_can_read(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o604)
    command = [
        sys.executable,
        "-m",
        "srmp_spark.cli",
        "status",
        "--api",
        "http://127.0.0.1:1",
        "--token-file",
        str(token),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"chmod 600 {token}" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_secret_of_another_owner_is_used_as_openssh_uses_one(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch()
    secret.chmod(0o644)
    os.chown(secret, 65534, 65534)
    refuse_open_secret("--token-file", secret)
    os.chown(secret, os.geteuid(), 0)
    with pytest.raises(ConfigurationError, match="mode 0644"):
        refuse_open_secret("--token-file", secret)


def test_a_secret_from_a_pipe_is_not_judged() -> None:
    reading, writing = os.pipe()
    try:
        refuse_open_secret("--token-file", f"/dev/fd/{reading}")
        refuse_open_secret("--token-file", "/dev/null")
    finally:
        os.close(reading)
        os.close(writing)
