"""A destination that does not answer is told: by `doctor`, and by the alert of conf/alerts.yml."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
import requests
import yaml
from kit import commit, outgoing, rows_to, until

from srmp_spark.cli import run
from srmp_spark.commands.checks.outgoing import DESTINATIONS_TOLD_MAX, outgoing_checks
from srmp_spark.interface import ExitCode
from srmp_spark.testing.queue_manager import RunningQueueManager

ALERTS = Path(__file__).resolve().parents[2] / "conf" / "alerts.yml"


def test_doctor_and_the_alert_tell_of_a_destination_that_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as bound:  # It is bound and does not listen: nobody else gets the port.
        bound.bind(("127.0.0.1", 0))
        check_dead(tmp_path, capsys, bound.getsockname()[1])


def check_dead(tmp_path: Path, capsys: pytest.CaptureFixture[str], refused_port: int) -> None:
    """The test above, at a port that refuses connections."""
    url = f"http://127.0.0.1:{refused_port}/msmq/private$/orders"
    with RunningQueueManager(tmp_path / "data", allow_url=["http://127.0.0.1:*"]) as running:
        commit(running.api, "1", rows_to(url, [b"one", b"two"]))
        until(lambda: outgoing(running, url)["state"] == "Inactive", "it was tried")
        assert run(["doctor", "--api", running.api, "--json"]) == ExitCode.CHECK_FAILED
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        (check,) = [each for each in told if each["check"] == "outgoing"]
        assert not check["ok"]
        assert check["detail"].startswith(f"2 messages wait for {url} (Inactive): ")
        assert check["hint"].startswith("the next attempt is at 20")

        metrics = requests.get(f"{running.api}/metrics", timeout=30).text
        (state,) = re.findall(
            rf'^srmp_outgoing{{destination="{re.escape(url)}",state="(\w+)"}} 2', metrics, re.M
        )
        rules = [
            rule
            for group in yaml.safe_load(ALERTS.read_text())["groups"]
            for rule in group["rules"]
        ]
        (alert,) = [rule for rule in rules if rule["alert"] == "SrmpDestinationNotAnswering"]
        (states,) = re.findall(r'state=~"([^"]+)"', alert["expr"])
        assert re.fullmatch(states, state)


def entry(number: int, **values: object) -> dict[str, object]:
    """One destination for which a message waits."""
    return {
        "destination": f"http://peer/{number}",
        "state": "Inactive",
        "queued": 1,
        "awaiting_stream_receipt": 0,
        "awaiting_final_stream_receipt": 0,
        "last_error": None,
        "next_attempt_at": None,
        **values,
    }


@pytest.mark.parametrize(
    "quiet",
    [{"state": "Connected"}, {"state": "Disconnected"}, {"queued": 0}],
    ids=["sends", "rests", "empty"],
)
def test_a_destination_without_trouble_is_not_told(quiet: dict[str, object]) -> None:
    assert list(outgoing_checks({"outgoing": [entry(1, **quiet)]})) == []


def test_a_destination_that_is_just_tried_again_is_told() -> None:
    found = entry(1, state="Waiting", last_error="connection refused")
    (check,) = outgoing_checks({"outgoing": [found]})
    assert check.detail == "1 messages wait for http://peer/1 (Waiting): connection refused"


def test_many_destinations_are_counted_and_not_listed() -> None:
    found = [entry(number, state="OnHold") for number in range(DESTINATIONS_TOLD_MAX + 5)]
    checks = list(outgoing_checks({"outgoing": found}))
    assert len(checks) == DESTINATIONS_TOLD_MAX + 1
    assert checks[0].hint == (
        "decide with srmp-spark streams resume, resend or drop --destination http://peer/0"
    )
    assert checks[-1].detail == "messages wait for 5 more destinations"
