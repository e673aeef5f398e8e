"""What stands in conf/ is run: the unit's command line, the pod's command line, its probes, the example of a configuration.

Ports become free ones and places a temporary directory; everything else is taken from the files as it stands.
"""

from __future__ import annotations

import configparser
import http.client
import json
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.certificate import make_certificate

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
PROGRAM = [sys.executable, "-m", "srmp_spark.cli"]
START_SECONDS = 60
TOKEN = "0123456789abcdef0123"


@contextmanager
def started(command: list[str], stop_within: float, **environment: str) -> Iterator[dict[str, Any]]:
    """Run it until its ready line; afterwards SIGTERM must end it with 0 in time."""
    env = {
        key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")
    } | environment
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env
    )
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield {**json.loads(line), "process": process}
        process.send_signal(signal.SIGTERM)
        assert process.wait(stop_within) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()


# --- serve.toml (its examples: test_serve_toml.py) -----------------------------------------------------------------------


def example(directory: Path) -> Path:
    """conf/serve.toml with free ports and a data directory of ours."""
    text = (CONF / "serve.toml").read_text()
    for old, new in (
        ('data_dir = "/var/lib/srmp-spark"', f'data_dir = "{directory / "state"}"'),
        ('listen = "0.0.0.0:80"', 'listen = "127.0.0.1:0"'),
        ('api = "127.0.0.1:8081"', 'api = "127.0.0.1:0"'),
    ):
        assert old in text
        text = text.replace(old, new)
    path = directory / "serve.toml"
    path.write_text(text)
    return path


# --- the systemd unit ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(
        interpolation=None, delimiters=("=",), comment_prefixes=("#", ";")
    )
    parser.optionxform = str
    parser.read(CONF / "srmp-spark.service")
    return parser


def test_the_units_command_runs_without_privileges_and_ends_in_time(
    unit: configparser.ConfigParser, tmp_path: Path
) -> None:
    """With the unit's limit of files, and no capability but the one that it grants."""
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "srmp-spark"
    arguments = [
        str(example(tmp_path)) if each == "/etc/srmp-spark/serve.toml" else each
        for each in arguments
    ]
    assert str(tmp_path / "serve.toml") in arguments
    granted = service["CapabilityBoundingSet"].removeprefix("CAP_").lower()
    hardened = [shutil.which("setpriv"), "--no-new-privs"]
    if os.geteuid() == 0:
        hardened += ["--inh-caps", "-all", "--bounding-set", f"-all,+{granted}"]
    limit = ["prlimit", f"--nofile={service['LimitNOFILE']}"]
    assert int(service["LimitNOFILE"]) <= resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with started(
        [*limit, *hardened, *PROGRAM, *arguments], float(service["TimeoutStopSec"])
    ) as ready:
        status = Path(f"/proc/{ready['pid']}/status").read_text()
        assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
        mask = int(re.search(r"^CapEff:\s+(\w+)$", status, re.MULTILINE)[1], 16)
        assert mask & ~(1 << 10) == 0, "nothing but CAP_NET_BIND_SERVICE"
        assert (tmp_path / "state").is_dir()


def test_the_unit_checks_before_it_starts_and_starts_anyway(
    unit: configparser.ConfigParser, tmp_path: Path
) -> None:
    """What the check finds is for the journal: serve itself refuses what it cannot run with."""
    service = unit["Service"]
    assert service["ExecStartPre"] == f"-{service['ExecStart']} --check"
    arguments = shlex.split(service["ExecStartPre"])[1:]
    given = [
        str(example(tmp_path)) if each == "/etc/srmp-spark/serve.toml" else each
        for each in arguments
    ]
    done = subprocess.run(
        [*PROGRAM, *given], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, ""), found
    assert {each["check"] for each in found} >= {"configuration", "data-dir", "disk", "port"}
    assert not (tmp_path / "state").exists()


def test_the_units_state_directory_is_the_examples_data_directory(
    unit: configparser.ConfigParser,
) -> None:
    service = unit["Service"]
    assert f'data_dir = "/var/lib/{service["StateDirectory"]}"' in (CONF / "serve.toml").read_text()
    assert service["ProtectSystem"] == "strict", "so nothing but the state directory can be written"


def test_exit_codes_that_a_restart_cannot_cure_are_those_of_serve(
    unit: configparser.ConfigParser, tmp_path: Path
) -> None:
    final = {int(code) for code in unit["Service"]["RestartPreventExitStatus"].split()}
    assert final == {2, 5, 6}
    usage = subprocess.run(
        [*PROGRAM, "serve", "--no-such-flag"], capture_output=True, cwd=ROOT, timeout=60
    )
    assert usage.returncode in final
    data = tmp_path / "data"
    with RunningQueueManager(data):
        second = subprocess.run(
            [*PROGRAM, "serve", "--data-dir", data, "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"],
            capture_output=True, cwd=ROOT, timeout=60,
        )  # fmt: skip
        assert second.returncode in final


def test_systemd_itself_finds_nothing_wrong(tmp_path: Path) -> None:
    """Where there is a systemd (5.4 of its security score at 252: what is open is the net, which is the point)."""
    text = (CONF / "srmp-spark.service").read_text()
    copy = tmp_path / "srmp-spark.service"
    copy.write_text(text.replace("/opt/srmp-spark/bin/srmp-spark", "/bin/true"))
    assert copy.read_text() != text
    if analyze := shutil.which("systemd-analyze"):
        done = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


# --- the StatefulSet -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    return {
        each["kind"]: each for each in yaml.safe_load_all((CONF / "kubernetes.yaml").read_text())
    }


@pytest.fixture(scope="module")
def pod(objects: dict[str, Any]) -> dict[str, Any]:
    return objects["StatefulSet"]["spec"]["template"]["spec"]


def test_names_of_ports_and_volumes_fit_each_other(
    objects: dict[str, Any], pod: dict[str, Any]
) -> None:
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    arguments = dict(each.removeprefix("--").split("=", 1) for each in container["args"][1:])
    assert ports == {
        "srmp": int(arguments["listen"].rpartition(":")[2]),
        "api": int(arguments["api"].rpartition(":")[2]),
    }
    assert {port["targetPort"] for port in objects["Service"]["spec"]["ports"]} == set(ports)
    assert {
        container[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")
    } == {"api"}
    claims = {
        claim["metadata"]["name"]
        for claim in objects["StatefulSet"]["spec"]["volumeClaimTemplates"]
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    } | claims
    labels = objects["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["StatefulSet"]["spec"]["replicas"] == 1


def probe(port: int, path: str) -> int:
    """As the kubelet asks: over TLS, without looking at the certificate, without a token."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    connection.request("GET", path)
    return connection.getresponse().status


def in_the_pod(container: dict[str, Any], directory: Path) -> Callable[[str], str]:
    """Gives each path below a mount its place in ``directory``, and each port a free one."""
    mounts = {mount["mountPath"]: directory / mount["name"] for mount in container["volumeMounts"]}
    for place in mounts.values():
        place.mkdir(exist_ok=True)

    def moved(argument: str) -> str:
        flag, _, value = argument.partition("=")
        if value.startswith("/"):
            mount = next(mount for mount in mounts if value.startswith(mount + "/"))
            return f"{flag}={mounts[mount]}{value.removeprefix(mount)}"
        return re.sub(r"^(--(?:listen|api)=0\.0\.0\.0):\d+$", r"\1:0", argument)

    return moved


def test_the_pods_command_runs_and_its_probes_are_answered(
    pod: dict[str, Any], tmp_path: Path
) -> None:
    """The environment is that of a pod whose service is called srmp-spark, should somebody drop enableServiceLinks."""
    (container,) = pod["containers"]
    moved = in_the_pod(container, tmp_path)
    certificate, key = make_certificate(tmp_path)
    certificate.rename(tmp_path / "tls" / "tls.crt")
    key.rename(tmp_path / "tls" / "tls.key")
    (tmp_path / "token" / "token").touch(0o600)
    (tmp_path / "token" / "token").write_text(TOKEN + "\n")
    links = {
        "SRMP_SPARK_SERVICE_HOST": "10.0.0.1",
        "SRMP_SPARK_SERVICE_PORT": "80",
        "SRMP_SPARK_SERVICE_PORT_API": "8081",
        "SRMP_SPARK_PORT": "tcp://10.0.0.1:80",
        "SRMP_SPARK_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    command = [*PROGRAM, *(moved(each) for each in container["args"])]
    with started(command, pod["terminationGracePeriodSeconds"], **links) as ready:
        port = int(ready["api"].rpartition(":")[2])
        for name in ("readinessProbe", "livenessProbe"):
            asked = container[name]["httpGet"]
            assert asked["scheme"] == "HTTPS"
            assert probe(port, asked["path"]) == 200
        assert probe(port, "/v1/status") == 401, "only the probes are open"
        srmp = int(ready["listening"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", srmp), timeout=10) as sender:
            sender.sendall(
                b"POST /msmq/private$/none HTTP/1.1\r\nHost: "
                b"srmp-spark\r\nContent-Length: 0\r\n\r\n"
            )
            assert sender.recv(100).startswith(b"HTTP/1.1 415 ")
    assert (tmp_path / "data" / "queue-manager").is_dir()
