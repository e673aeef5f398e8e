"""docker-compose.yml without Docker: each service's command runs as it stands, and a message goes through all three.

Ports become free ones, volumes folders, names of machines loopback; nothing else of the file is changed. Spark takes a JVM that
is there (one_jvm.py).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {"srmp-spark": [sys.executable, "-m", "srmp_spark.cli"], "python": [sys.executable]}
LANDING_SECONDS = 240


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_what_it_names_is_there(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"queue-manager", "spark", "windows"}
    mounted = {
        volume.partition(":")[0] for service in services.values() for volume in service["volumes"]
    }
    assert mounted == set(compose["volumes"])
    assert all(service["build"]["context"] == "." for service in services.values())
    assert services["spark"]["network_mode"] == "service:queue-manager", (
        "the API is on loopback there"
    )
    for service in services.values():
        places = [volume.partition(":")[2] for volume in service["volumes"]]
        for argument in service["command"]:
            value = argument.partition("=")[2]
            assert not value.startswith("/") or any(
                value == place or value.startswith(place + "/") for place in places
            )
    ours = [
        argument
        for argument in services["queue-manager"]["command"]
        if argument.startswith("--listen")
    ]
    assert ours == [f"--listen=0.0.0.0:{services['queue-manager']['ports'][0].partition(':')[2]}"]


def command(service: dict[str, Any], volumes: Path, api: str = "") -> list[str]:
    """What the container would run, here."""
    program, *arguments = (argument.replace("$$", "$") for argument in service["command"])
    for volume in service["volumes"]:
        name, _, place = volume.partition(":")
        (volumes / name).mkdir(exist_ok=True)
        arguments = [re.sub(rf"={place}(?=/|$)", f"={volumes / name}", each) for each in arguments]
    arguments = [
        re.sub(r"^(--listen|--api)=[\d.]+:\d+$", r"\1=127.0.0.1:0", each) for each in arguments
    ]
    arguments = [each.replace("http://127.0.0.1:8081", api) for each in arguments]
    arguments = [
        re.sub(r"^--host-name=.*", "--host-name=127.0.0.1", each) for each in arguments
    ]  # receipts come to this name
    # Receipts go to the machine that a message came from, but to loopback by pattern only.
    loopback = ["--allow-url=http://127.0.0.1:*"] if program == "srmp-spark" else []
    return [*PROGRAMS[program], *arguments, *loopback]


@contextmanager
def started(line: list[str], log: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    """SIGTERM ends it with 0, as ``docker compose stop`` expects."""
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SRMP_SPARK_", "PYSPARK_"))
    }
    with log.open("w") as errors:
        process = subprocess.Popen(
            line,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=env | more,
            start_new_session=True,
        )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=90)
        assert process.returncode == 0, log.read_text()[-2000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.spark
def test_a_message_goes_from_windows_into_the_table(
    compose: dict[str, Any], tmp_path: Path, jvm: dict[str, str]
) -> None:
    services = compose["services"]
    with ExitStack() as stack:
        ready = {}
        for name in ("queue-manager", "windows"):
            process = stack.enter_context(
                started(command(services[name], tmp_path), tmp_path / f"{name}.log")
            )
            line = process.stdout.readline()
            assert line, (tmp_path / f"{name}.log").read_text()
            ready[name] = json.loads(line)
        spark_log = tmp_path / "spark.log"
        spark_line = command(services["spark"], tmp_path, ready["queue-manager"]["api"])
        spark = stack.enter_context(started(spark_line, spark_log, **jvm))
        program, *send = shown("docker compose exec windows ")
        send = [
            each.replace("http://queue-manager", ready["queue-manager"]["listening"])
            for each in send
        ]
        sent = subprocess.run(
            [*PROGRAMS[program], *send, "--api", ready["windows"]["api"]],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=60,
        )
        assert sent.returncode == 0, sent.stderr
        assert json.loads(sent.stdout)["state"] == "acknowledged"
        assert rows(tmp_path / "lake" / "messages", spark, spark_log) == [b"hello"]


def shown(beginning: str) -> list[str]:
    """The command that the comment at the top shows, behind ``beginning``."""
    lines = (
        line.lstrip("# ")
        for line in (ROOT / "docker-compose.yml").read_text().splitlines()
        if line.startswith("#")
    )
    return next(
        shlex.split(line.removeprefix(beginning)) for line in lines if line.startswith(beginning)
    )


def rows(table: Path, job: subprocess.Popen[str], log: Path) -> list[bytes]:
    """The bodies in the table as soon as there are any."""
    deadline = time.monotonic() + LANDING_SECONDS
    while time.monotonic() < deadline:
        assert job.poll() is None, log.read_text()[-2000:]
        if deltalake.DeltaTable.is_deltatable(str(table)):
            found = (
                deltalake.DeltaTable(str(table))
                .to_pyarrow_table(columns=["body"])
                .column("body")
                .to_pylist()
            )
            if found:
                return found
        time.sleep(0.3)
    raise AssertionError(f"nothing landed in {LANDING_SECONDS} s: {log.read_text()[-2000:]}")
