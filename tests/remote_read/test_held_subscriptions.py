"""A started copy of a data directory moves no messages until an operator says so: its original may go on."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from remote_kit import Served
from test_pulling_live import rows, until

from srmp_spark.cli import run
from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.errors import ApiError
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.store.tables import held_subscriptions
from srmp_spark.testing.queue_manager import RunningQueueManager


def direct(name: str) -> str:
    return "DIRECT=OS:host1\\" + name.replace("/", "\\")


def client(running: RunningQueueManager) -> SubscriptionsClient:
    return SubscriptionsClient(running.api, retry_seconds=60)


class Pair:
    """An original with two subscriptions that move, one of them of the configuration file, and one that copies."""

    def __init__(self, tmp_path: Path, served: Served) -> None:
        self.served = served
        self.added, self.configured, self.copied = served.queue(), served.queue(), served.queue()
        self.host = served.ready["rpc"]
        config = tmp_path / "b.toml"
        config.write_text(
            f'[[subscription]]\nhost = "{self.host}"\nqueue = '
            f"'{direct(self.configured)}'\nto = \"private$/configured\"\n"
        )
        self.original = RunningQueueManager(tmp_path / "b", config=config).start()
        api = client(self.original)
        api.subscribe({"host": self.host, "queue": direct(self.added), "to": "private$/added"})
        api.subscribe(
            {
                "host": self.host,
                "queue": direct(self.copied),
                "to": "private$/copied",
                "mode": "copy",
            }
        )
        until(
            lambda: (
                len([each for each in api.subscriptions() if each["lag_seconds"] is not None]) == 3
            )
        )
        self.original.stop()
        shutil.copytree(tmp_path / "b", tmp_path / "copy")
        self.copy = RunningQueueManager(tmp_path / "copy", config=config)

    def here(self, queue: str) -> list[str]:
        return ["--host", self.host, "--queue", direct(queue), "--api", self.copy.api]

    def held(self) -> dict[str, bool]:
        return {str(each["to"]): bool(each["held"]) for each in client(self.copy).subscriptions()}


@pytest.fixture
def pair(tmp_path: Path, served: Served) -> Iterator[Pair]:
    made = Pair(tmp_path, served)
    yield made
    made.copy.stop()
    made.original.stop()


def test_a_copy_moves_nothing_until_it_is_told_to(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    """The original gets all messages, over restarts of the copy; what only copies goes on in both."""
    pair.copy.start()
    assert pair.held() == {
        "private$/configured": True,
        "private$/added": True,
        "private$/copied": False,
    }
    for queue in (pair.added, pair.configured, pair.copied):
        pair.served.send(queue, *([3] * 20))
    until(lambda: len(rows(pair.copy, "private$/copied")) == 20)
    pair.copy.kill9()
    pair.copy.restart()
    assert pair.held() == {
        "private$/configured": True,
        "private$/added": True,
        "private$/copied": False,
    }
    assert pair.served.waiting(pair.added) == pair.served.waiting(pair.configured) == 20
    pair.original.restart()
    until(lambda: pair.served.waiting(pair.added) == pair.served.waiting(pair.configured) == 0)
    names = ("added", "configured", "copied")
    until(lambda: [len(rows(pair.original, f"private$/{name}")) for name in names] == [20, 20, 20])
    assert [len(rows(pair.copy, f"private$/{name}")) for name in ("added", "configured")] == [0, 0]

    # it is told, with the command that ends it
    command = f"srmp-spark subscribe resume --host {pair.host} --queue '{direct(pair.added)}'"
    (added,) = (
        each for each in client(pair.copy).subscriptions() if each["to"] == "private$/added"
    )
    assert "on hold, because this data directory is a copy (" in str(added["last_error"])
    assert str(added["last_error"]).endswith(command)
    assert pair.copy.stderr().count("subscription.held") == 4, "two of them, at two starts"
    run(["doctor", "--api", pair.copy.api])
    told = [json.loads(line)["detail"] for line in capsys.readouterr().out.splitlines()]
    assert any(each.endswith(command) for each in told)
    assert run(["subscribe", "add", *pair.here(pair.added)]) == 4
    assert command in capsys.readouterr().err

    # the original is no more: one subscription after the other goes on, for good
    pair.original.stop()
    assert run(["subscribe", "resume", *pair.here(pair.added)]) == 0
    assert json.loads(capsys.readouterr().out)["held"] is False
    assert pair.held() == {
        "private$/configured": True,
        "private$/added": False,
        "private$/copied": False,
    }
    pair.served.send(pair.added, 3, 3)
    until(lambda: len(rows(pair.copy, "private$/added")) == 2)
    pair.copy.stop()
    pair.copy.restart()
    assert pair.held() == {
        "private$/configured": True,
        "private$/added": False,
        "private$/copied": False,
    }
    assert run(["subscribe", "resume", *pair.here(pair.configured)]) == 0
    pair.served.send(pair.configured, 3)
    until(lambda: len(rows(pair.copy, "private$/configured")) == 1)


def test_what_an_operator_removes_and_adds_in_a_copy_is_on_hold_no_more(pair: Pair) -> None:
    pair.copy.start()
    api = client(pair.copy)
    entry = {"host": pair.host, "queue": direct(pair.added)}
    api.unsubscribe(**entry)
    assert api.subscribe({**entry, "to": "private$/added"})["held"] is False
    with pytest.raises(ApiError, match="nobody reads"):
        api.resume_subscription(pair.host, "private$\\nowhere")
    assert api.resume_subscription(pair.host, direct(pair.copied))["held"] is False, "it never was"


def test_the_original_goes_on(pair: Pair) -> None:
    pair.original.restart()
    assert not any(each["held"] for each in client(pair.original).subscriptions())
    assert "subscription.held" not in pair.original.stderr()


def test_a_kill_between_the_new_epoch_and_the_names_forgets_nothing(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID")
        assert held_subscriptions.name_all(connection, frozenset({"a"})) is None
        held_subscriptions.hold_all(connection, "a copy")
        assert held_subscriptions.load(connection) == ("a copy", None)
        assert held_subscriptions.name_all(connection, frozenset({"a", "b"})) == (
            "a copy",
            {"a", "b"},
        )
        assert held_subscriptions.name_all(connection, frozenset({"a", "b", "new"})) == (
            "a copy",
            {"a", "b"},
        )
        held_subscriptions.release(connection, "a")
        assert held_subscriptions.load(connection) == ("a copy", {"b"})
        held_subscriptions.release(connection, "b")
        assert held_subscriptions.load(connection) is None
        for nonsense in ("{", "[]", '{"names": 1, "because": ""}', b"\xff", 7):
            connection.execute(
                "INSERT OR REPLACE INTO meta VALUES ('held_subscriptions', ?)", (nonsense,)
            )
            found = held_subscriptions.load(connection)
            assert found is not None
            assert found.names is None, "all are held"
