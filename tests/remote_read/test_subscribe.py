"""Subscriptions that are added and removed while the queue manager runs: the API, the command, restarts."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from foreign_server import Faults, ForeignServer
from remote_kit import Served
from test_pulling_live import rows, until

from srmp_spark.cli import run
from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.errors import ApiError
from srmp_spark.testing.service import RunningQueueManager


def direct(name: str) -> str:
    return "DIRECT=OS:host1\\" + name.replace("/", "\\")


def client(running: RunningQueueManager) -> SubscriptionsClient:
    return SubscriptionsClient(running.api, retry_seconds=5)


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_add_list_remove(tmp_path: Path, served: Served, capsys):
    """A new mode and another account may be given; what stands there twice, or goes to the same queue, may not."""
    name, other = served.queue(), served.queue()
    served.send(name, 3, 5)
    with RunningQueueManager(tmp_path / "b") as running:
        api = ["--api", running.api]
        here = ["--host", served.ready["rpc"], "--queue", direct(name)]
        assert run(["subscribe", "add", *here, "--mode", "copy", "--to", "private$/in", *api]) == 0
        (added,) = told(capsys)
        assert (added["host"], added["queue"], added["mode"]) == (served.ready["rpc"], direct(name), "copy")
        assert (added["to"], added["configured"], added["removing"]) == ("private$/in", False, False)
        until(lambda: len(rows(running, "private$/in")) == 2)
        assert served.waiting(name) == 2

        running.kill9()
        running.restart()
        assert run(["subscribe", "list", *api]) == 0
        (listed,) = told(capsys)
        assert listed["mode"] == "copy"
        assert run(["subscribe", "add", *here, "--mode", "move", "--to", "private$/in", *api]) == 0
        until(lambda: served.waiting(name) == 0)
        served.send(name, 7)
        until(lambda: len(rows(running, "private$/in")) == 3)  # what was copied is no second row

        for wrong, code in (
            (["--host", served.ready["rpc"], "--queue", direct(name), "--to", "private$/else"], "into private"),
            (["--host", served.ready["rpc"], "--queue", direct(other), "--to", "private$/in"], "is filled from"),
        ):
            assert run(["subscribe", "add", *wrong, *api]) == 4
            assert code in capsys.readouterr().err
        assert run(["subscribe", "remove", *here, *api]) == 0
        assert told(capsys)[0]["pending"] == 0
        assert client(running).subscriptions() == []
        served.send(name, 1)
        assert run(["subscribe", "remove", *here, *api]) == 4
        assert "nobody reads" in capsys.readouterr().err
        assert served.waiting(name) == 1
        metrics = client(running)._call("GET", "/metrics").text
        assert 'srmp_messages_accepted_total{queue="private$/in",transport="mqrr"}' in metrics


def test_what_the_configuration_file_says_stays(tmp_path: Path, served: Served):
    name = served.queue()
    config = tmp_path / "b.toml"
    config.write_text(f'[[subscription]]\nhost = "{served.ready["rpc"]}"\nqueue = \'{direct(name)}\'\nto = "private$/in"\n')
    with RunningQueueManager(tmp_path / "b", config=config) as running:
        api, entry = client(running), {"host": served.ready["rpc"], "queue": direct(name)}
        assert api.subscribe(entry)["configured"] is True
        with pytest.raises(ApiError, match="in the configuration file"):
            api.subscribe({**entry, "mode": "copy"})
        with pytest.raises(ApiError, match="in the configuration file"):
            api.unsubscribe(**entry)
        text = api._call("GET", "/metrics").text
        assert f'srmp_subscription_pending{{host="{served.ready["rpc"]}",queue=' in text
        assert "srmp_subscription_lag_seconds{" in text
        assert "srmp_subscription_taken_in_doubt{" in text


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ({"host": "127.0.0.1"}, "host and queue are missing"),
        ({"host": "127.0.0.1", "queue": "q", "mode": "steal"}, "move or copy"),
        ({"host": "127.0.0.1", "queue": "q", "password_file": "/etc/shadow"}, "unknown field 'password_file'"),
        ({"host": "windows.example", "queue": "q"}, "give a user and a password"),
    ],
)
def test_what_cannot_be_one(served: Served, entry, match):
    with pytest.raises(ApiError, match=match) as error:
        client(served).subscribe(entry)
    assert error.value.status == 400


def test_a_password_is_a_file_that_only_its_owner_reads(tmp_path: Path):
    """It is in no status and no row, and survives a restart."""
    with RunningQueueManager(tmp_path / "b") as running:
        entry = {"host": "127.0.0.1:9", "queue": "q", "username": "reader", "password": "a secret", "to": "private$/in"}
        api = client(running)
        assert "a secret" not in json.dumps(api.subscribe(entry))
        running.kill9()
        running.restart()
        (file,) = (tmp_path / "b" / "subscriptions").iterdir()
        assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("a secret", 0o600)
        (found,) = api.subscriptions()
        assert "give a user and a password" not in str(found["last_error"])
        others = [each for each in (tmp_path / "b").rglob("*") if each.is_file() and each != file]
        assert b"a secret" not in b"".join(each.read_bytes() for each in others)
        assert "a secret" not in running.stderr()
        api.unsubscribe("127.0.0.1:9", "q")
        assert not file.exists()


def test_one_with_something_pending_is_removed_when_that_is_settled(tmp_path: Path):
    """End without an answer, and then the machine is away: what is stored is neither lost nor made a row on suspicion."""
    with ForeignServer(seed=3) as server:
        server.away_after_end, server.faults, server.arriving = True, Faults(end_lost=1.0), 1
        with RunningQueueManager(tmp_path / "b") as running:
            api, entry = client(running), {"host": f"127.0.0.1:{server.port}", "queue": "q"}
            to = api.subscribe(entry)["to"]
            until(lambda: [each["doubtful"] for each in api.subscriptions()] == [1])
            assert api.unsubscribe(**entry)["removing"] is True
            running.kill9()
            running.restart()
            (status,) = api.subscriptions()
            assert (status["pending"], status["removing"]) == (1, True)
            assert rows(running, to) == []
            server.faults = Faults()
            server.switch_on()
            until(lambda: not api.subscriptions())
            assert [bytes(each["body"]) for each in rows(running, to)] == [b"body 1"]


def test_what_a_subscription_left_that_is_no_more_is_told(tmp_path: Path):
    """Somebody changed the host in the configuration file: nothing is lost in silence."""
    with ForeignServer(seed=3) as server:
        server.away_after_end, server.faults, server.arriving = True, Faults(end_lost=1.0), 1
        config = tmp_path / "b.toml"
        text = f'[[subscription]]\nhost = "127.0.0.1:{server.port}"\nqueue = \'q\'\nto = "private$/in"\n'
        config.write_text(text)
        with RunningQueueManager(tmp_path / "b", config=config) as running:
            api = client(running)
            until(lambda: [each["doubtful"] for each in api.subscriptions()] == [1])
            running.stop()
            config.write_text("")
            running.restart()
            (status,) = api.subscriptions()
            assert (status["pending"], status["mode"]) == (1, None)
            assert "put it back" in status["last_error"]
            assert "subscription.idle" in running.stderr()
            running.stop()
            config.write_text(text)
            server.faults = Faults()
            server.switch_on()
            running.restart()
            until(lambda: len(rows(running, "private$/in")) == 1)
