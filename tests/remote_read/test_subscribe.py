"""Subscriptions that are added and removed while the queue manager runs: the API, the command, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from remote_kit import Served
from test_pulling_live import rows, until

from srmp_spark.cli import run
from srmp_spark.client.api import QueueManagerClient
from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.configuration.subscriptions import Subscription, parse_subscription
from srmp_spark.queue_manager.puller import pullers
from srmp_spark.queue_manager.puller.circles import Circles
from srmp_spark.queue_manager.puller.pullers import Pullers
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.remote.queue import GUID
from tests.kit.remote.server import Faults, ForeignServer


def direct(name: str) -> str:
    return "DIRECT=OS:host1\\" + name.replace("/", "\\")


def client(running: RunningQueueManager) -> SubscriptionsClient:
    return SubscriptionsClient(running.api, retry_seconds=60)


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_add_list_remove(tmp_path: Path, served: Served, capsys):
    """A new mode and another account may be given; what stands there twice, or goes to the same queue, may not."""
    name, other, configured = served.queue(), served.queue(), served.queue()
    served.send(name, 3, 5)
    config = tmp_path / "b.toml"
    config.write_text(
        f'[[subscription]]\nhost = "{served.ready["rpc"]}"\nqueue = '
        f"'{direct(configured)}'\nto = \"private$/file\"\n"
    )
    with RunningQueueManager(tmp_path / "b", config=config) as running:
        api, at = client(running), ["--api", running.api]
        host, queue = served.ready["rpc"], direct(name)
        here = ["--host", host, "--queue", queue]
        assert run(["subscribe", "add", *here, "--mode", "copy", "--to", "private$/in", *at]) == 0
        (added,) = told(capsys)
        assert (added["host"], added["queue"], added["mode"]) == (host, queue, "copy")
        assert (added["to"], added["configured"], added["removing"]) == (
            "private$/in",
            False,
            False,
        )
        until(lambda: len(rows(running, "private$/in")) == 2)
        assert served.waiting(name) == 2

        # What the configuration file says stays.
        entry = {"host": host, "queue": direct(configured)}
        assert api.subscribe(entry)["configured"] is True
        with pytest.raises(ApiError, match="in the configuration file"):
            api.subscribe({**entry, "mode": "copy"})
        with pytest.raises(ApiError, match="in the configuration file"):
            api.unsubscribe(**entry)

        # A password is a file that only its owner reads, and in no answer.
        secret = {
            "host": "127.0.0.1:9",
            "queue": "q",
            "username": "reader",
            "password": "a secret",
            "to": "private$/far",
        }
        assert "a secret" not in json.dumps(api.subscribe(secret))
        running.kill9()
        (file,) = (tmp_path / "b" / "subscriptions").glob("*.password")
        assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("a secret", 0o600)
        others = [each for each in (tmp_path / "b").rglob("*") if each.is_file() and each != file]
        assert others
        for each in others:
            with contextlib.suppress(
                FileNotFoundError
            ):  # the reader process may outlive the kill, and closes the database
                assert b"a secret" not in each.read_bytes()
        assert "a secret" not in running.stderr()
        running.restart()

        assert run(["subscribe", "list", "--host", host, *at]) == 0
        assert [(each["mode"], each["configured"]) for each in told(capsys)] == [
            ("move", True),
            ("copy", False),
        ]
        served.send(name, 3)
        until(
            lambda: len(rows(running, "private$/in")) == 3
        )  # and what was copied before does not come again
        assert served.waiting(name) == 3
        (far,) = (each for each in api.subscriptions() if each["host"] == "127.0.0.1:9")
        assert "give a user and a password" not in str(far["last_error"])
        api.unsubscribe("127.0.0.1:9", "q")
        assert not file.exists()

        assert run(["subscribe", "add", *here, "--mode", "move", *at]) == 0
        until(lambda: served.waiting(name) == 0)
        served.send(name, 7)
        until(lambda: len(rows(running, "private$/in")) == 4)  # what was copied is no second row
        assert sorted(each["priority"] for each in rows(running, "private$/in")) == [3, 3, 5, 7]
        capsys.readouterr()
        for wrong, code in (
            (["--host", host, "--queue", queue, "--to", "private$/else"], "into private"),
            (["--host", host, "--queue", direct(other), "--to", "private$/in"], "is filled from"),
        ):
            assert run(["subscribe", "add", *wrong, *at]) == 4
            assert code in capsys.readouterr().err
        metrics = api._call("GET", "/metrics").text
        assert 'srmp_messages_accepted_total{queue="private$/in",transport="mqrr"}' in metrics
        for what in ("pending", "lag_seconds", "taken_in_doubt"):
            assert f'srmp_subscription_{what}{{host="{host}",queue=' in metrics

        assert run(["subscribe", "remove", *here, *at]) == 0
        assert told(capsys)[0]["pending"] == 0
        assert [each["queue"] for each in api.subscriptions()] == [direct(configured)]
        served.send(name, 1)
        assert run(["subscribe", "remove", *here, *at]) == 4
        assert "nobody reads" in capsys.readouterr().err
        assert served.waiting(name) == 1


def test_add_says_what_came_of_the_first_attempt(tmp_path: Path, served: Served, capsys):
    """A subscription that cannot be read is kept, and who added it hears of it at once."""
    with RunningQueueManager(tmp_path / "b") as running:
        at = ["--api", running.api]
        assert run(["subscribe", "list", "--table", *at]) == 0
        shown = capsys.readouterr()
        assert shown.out.split()[:2] == ["host", "queue"]
        assert "no subscriptions" in shown.err

        nonsense = ["--host", served.ready["rpc"], "--queue", direct("private$/nonsense")]
        until(
            lambda: run(["subscribe", "add", *nonsense, *at]) == 4
        )  # a slow machine may not have asked after two seconds
        shown = capsys.readouterr()
        added = json.loads(shown.out.splitlines()[-1])
        assert (added["lag_seconds"], added["pulled"]) == (None, 0)
        assert added["failed_seconds"] >= 0
        back = (
            f"subscribe remove --host {served.ready['rpc']} --queue "
            f"'{direct('private$/nonsense')}' --api {running.api}"
        )
        for what in ("MQ_ERROR_QUEUE_NOT_FOUND", "write private$", back):
            assert what in shown.err
        assert (
            f'srmp_subscription_lag_seconds{{host="{served.ready["rpc"]}"'
            not in client(running)._call("GET", "/metrics").text
        )
        assert run(["subscribe", "remove", *nonsense, *at]) == 0

        assert run(["subscribe", "add", "--host", "windows.example", "--queue", "q", *at]) == 2
        assert "--username with --password-file" in capsys.readouterr().err


def test_an_unused_subscription_may_be_taken_back_and_a_used_one_stays(
    tmp_path: Path, served: Served
):
    name = served.queue()
    served.send(name, 3)
    with RunningQueueManager(tmp_path / "b") as running:
        api, host = client(running), served.ready["rpc"]
        api.subscribe({"host": "127.0.0.1:9", "queue": "q"})
        api.unsubscribe("127.0.0.1:9", "q", unused=True)
        to = api.subscribe({"host": host, "queue": direct(name)})["to"]
        until(lambda: len(rows(running, to)) == 1)
        with pytest.raises(ApiError, match="was read from"):
            api.unsubscribe(host, direct(name), unused=True)
        served.send(name, 3)
        until(lambda: len(rows(running, to)) == 2)


def test_one_that_failed_leaves_no_queue_behind(tmp_path: Path, served: Served):
    """Only a queue that it made itself, and that never had a row."""
    name = served.queue()
    served.send(name, 3)
    with RunningQueueManager(tmp_path / "b", queues=["private$/configured"]) as running:
        api, queues = client(running), QueueManagerClient(running.api)

        def names() -> list[str]:
            return [each["name"] for each in queues.queues()]

        queues.put_queue("private$/mine")
        bad = {"host": "127.0.0.1:9", "queue": "q"}
        made = api.subscribe(bad)["to"]
        assert names() == ["private$/configured", "private$/mine", made]
        with pytest.raises(ApiError, match=f"queue {re.escape(made)} is filled from q of"):
            queues.delete_queue(made, unused=True)
        running.kill9()
        running.restart()
        api.unsubscribe("127.0.0.1:9", "q", unused=True)
        assert names() == ["private$/configured", "private$/mine"]
        for to in ("private$/mine", "private$/configured"):
            api.subscribe({**bad, "to": to})
            api.unsubscribe("127.0.0.1:9", "q")
        api.subscribe(bad)
        queues.put_queue(made)  # An operator wants it, too.
        api.unsubscribe("127.0.0.1:9", "q")
        assert names() == ["private$/configured", "private$/mine", made]
        to = api.subscribe({"host": served.ready["rpc"], "queue": direct(name)})["to"]
        until(lambda: len(rows(running, to)) == 1)
        api.unsubscribe(served.ready["rpc"], direct(name))
        assert to in names(), "its rows stay"


class Late:
    """A puller that gets its first message while it is told to stop."""

    def __init__(
        self,
        manager: object,
        subscription: Subscription,
        left: object,
        *others: object,
        **options: bool,
    ) -> None:
        self.subscription, self.left = subscription, left
        self.configured = self.removing = False
        self.is_unused, self.runs = True, False
        self.cutover = None

    def start(self) -> None:
        self.runs = True

    async def stop(self) -> None:
        self.is_unused = self.runs = False


def test_one_that_gets_its_first_message_while_it_is_taken_back_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Added anew, a copy would have that message twice."""

    class Manager:
        directory = SimpleNamespace(path=tmp_path)
        journal = property(lambda self: self)

        async def transact(self, what: object) -> str:
            return "what is stored of it"

    async def run() -> None:
        monkeypatch.setattr(pullers, "Puller", Late)
        all_of_them = Pullers(Manager(), Circles(None))  # type: ignore[arg-type]
        subscription = parse_subscription(
            "here", {"host": "127.0.0.1:9", "queue": "q", "mode": "copy"}
        )
        all_of_them._put(first := Late(None, subscription, None))  # type: ignore[arg-type]
        with pytest.raises(ApiError, match="was read from"):
            await all_of_them.remove("127.0.0.1:9", "q", unused=True)
        (there,) = all_of_them
        assert there is not first
        assert (there.runs, there.left) == (True, "what is stored of it")  # type: ignore[attr-defined]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ({"host": "127.0.0.1"}, "host and queue are missing"),
        ({"host": "127.0.0.1", "queue": "q", "mode": "steal"}, "move or copy"),
        (
            {"host": "127.0.0.1", "queue": "q", "password_file": "/etc/shadow"},
            "unknown field 'password_file'",
        ),
        ({"host": "windows.example", "queue": "q"}, "give a user and a password"),
    ],
)
def test_what_cannot_be_one(served: Served, entry, match):
    with pytest.raises(ApiError, match=match) as error:
        client(served).subscribe(entry)
    assert error.value.status == 400


def test_what_is_pending_is_settled_before_a_subscription_is_gone(tmp_path: Path):
    """End without an answer, and then the machine is away: what is stored is neither lost nor made a row on suspicion.

    The same for what a subscription left that is no more, because somebody changed its host in the configuration file.
    """
    with ForeignServer(seed=3) as server:
        server.away_after_end, server.faults, server.arriving = True, Faults(end_lost=1.0), 1
        with RunningQueueManager(tmp_path / "b") as running:
            api, host = client(running), f"127.0.0.1:{server.port}"
            to = api.subscribe({"host": host, "queue": "q"})["to"]
            until(lambda: [each["doubtful"] for each in api.subscriptions()] == [1])
            assert api.unsubscribe(host, "q")["removing"] is True
            running.kill9()
            packet = server.look(
                lambda queue: (
                    queue.messages.update({5: (5, 7)}),
                    queue.packet(5),
                    queue.messages.clear(),
                )[1]
            )
            with (
                contextlib.closing(sqlite3.connect(tmp_path / "b" / DATABASE_FILE)) as database,
                database,
            ):
                values = (f"{host}\\other", 5, f"{{{GUID}}}\\5", 0, packet)
                database.execute("INSERT INTO pulled VALUES (?, ?, ?, ?, ?)", values)
            running.restart()
            removed, idle = api.subscriptions()
            assert (removed["pending"], removed["removing"]) == (1, True)
            assert (idle["queue"], idle["pending"], idle["mode"]) == ("other", 1, None)
            assert "put it back" in idle["last_error"]
            assert "subscription.idle" in running.stderr()
            assert rows(running, to) == []
            with pytest.raises(ApiError, match="are no rows yet"):
                api.unsubscribe(host, "other")
            server.faults = Faults()
            server.switch_on()
            until(lambda: [each["queue"] for each in api.subscriptions()] == ["other"])
            assert [bytes(each["body"]) for each in rows(running, to)] == [b"body 1"]
            again = api.subscribe({"host": host, "queue": "other"})["to"]
            until(lambda: [bytes(each["body"]) for each in rows(running, again)] == [b"body 5"])
