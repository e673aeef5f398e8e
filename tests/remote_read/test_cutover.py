"""``srmp-spark subscribe cutover`` on real processes: nothing counts twice, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from remote_kit import Served, opened
from test_pulling_foreign import BAD, KILLS
from test_pulling_live import rows, until

from srmp_spark.cli import run
from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.errors import ApiError
from srmp_spark.interface import CutoverEntry, SubscriptionEntry
from srmp_spark.mqrr.actions import Action
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.remote.queue import GUID, ForeignQueue
from tests.kit.remote.server import Faults, ForeignServer

QUEUE = "private$/orders"
OTHER_READER = -7
"""Owner of a lock that no round of the foreign server ends."""


class Site:
    """A foreign queue manager, a queue manager here that copies its queue, and the commands."""

    def __init__(
        self,
        here: RunningQueueManager,
        server: ForeignServer,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.here, self.server, self._capsys = here, server, capsys
        self.host = f"127.0.0.1:{server.port}"
        self.to = f"{QUEUE}{server.port}"
        self.that = ["--host", self.host, "--queue", "q"]

    @property
    def api(self) -> SubscriptionsClient:
        return SubscriptionsClient(self.here.api, retry_seconds=60)

    def command(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        """The exit code of a command, and the JSON lines that it printed."""
        self._capsys.readouterr()
        code = run([*arguments, "--api", self.here.api])
        return code, [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]

    def cutover(self, *flags: str) -> tuple[int, dict[str, Any]]:
        code, (found,) = self.command("subscribe", "cutover", *self.that, *flags)
        return code, found

    def entries(self) -> list[SubscriptionEntry]:
        return [each for each in self.api.subscriptions() if each["host"] == self.host]

    def check(self) -> CutoverEntry:
        return self.api.check_cutover(self.host, "q")

    def copy(self, count: int) -> None:
        """A copied queue of ``count`` messages."""
        self.server.look(lambda queue: [queue.put() for _ in range(count)])
        code, _ = self.command("subscribe", "add", *self.that, "--mode", "copy", "--to", self.to)
        assert code == 0
        until(lambda: len(rows(self.here, self.to)) == count)

    def received(self) -> list[int]:
        """The numbers of the messages that ``default`` is given."""
        code, lines = self.command(
            "receive", "--queue", self.to, "--max", "10000", "--body", "text"
        )
        assert code == 0
        return [int(str(each["body"]).removeprefix("body ")) for each in lines]

    def stolen(self) -> list[int]:
        return self.server.look(lambda queue: list(queue.stolen))

    def taken(self) -> list[int]:
        return self.server.look(lambda queue: list(queue.taken_by_us))


def codes(found: Mapping[str, Any]) -> dict[str, int]:
    return {each["code"]: each["count"] for each in found["findings"]}


def blocking(found: Mapping[str, Any]) -> list[str]:
    return [each["code"] for each in found["findings"] if each["blocks"]]


def steal(count: int) -> Callable[[ForeignQueue], None]:
    def act(queue: ForeignQueue) -> None:
        for _ in range(count):
            queue.steal()

    return act


def lock_first(queue: ForeignQueue) -> int:
    """Another reader receives the first message, and its transaction does not end."""
    first = min(queue.messages)
    queue.locks[first] = OTHER_READER, 0
    return first


def commit(lookup_id: int) -> Callable[[ForeignQueue], None]:
    """The transaction of the other reader ends: the message is its own."""

    def act(queue: ForeignQueue) -> None:
        del queue.locks[lookup_id]
        queue.stolen.append(queue.messages.pop(lookup_id)[0])

    return act


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    """One queue manager for all tests that need none of their own; each takes a queue of its own."""
    with RunningQueueManager(tmp_path_factory.mktemp("here") / "qm") as running:
        yield running


@pytest.fixture
def site(here: RunningQueueManager, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    with ForeignServer(seed=11) as server:
        made = Site(here, server, capsys)
        yield made
        made.here = here
        with contextlib.suppress(ApiError):
            made.api.unsubscribe(made.host, "q", unsettled="there")


def test_ten_messages_of_which_four_were_received_there(site: Site):
    """Copy, readers there go on and stop, check, cut over: ``default`` gets exactly the six."""
    site.copy(10)
    site.server.look(steal(3))
    code, found = site.cutover("--check")
    assert (code, found["phase"], found["safe"]) == (0, "copying", True)
    assert (found["still_there"], found["received_there"]) == (7, 3)
    assert codes(found) == {"received-there": 3}

    held = site.server.look(lock_first)
    code, found = site.cutover("--check")
    assert (code, blocking(found), found["locked_there"]) == (1, ["locked-there"], 1)
    code, found = site.cutover()
    assert (code, found["phase"]) == (1, "copying"), "nothing was changed"
    assert site.taken() == []
    site.server.look(commit(held))

    site.here.kill9()
    site.here.restart()
    code, found = site.cutover("--check")
    assert (code, found["still_there"], found["received_there"]) == (0, 6, 4)
    code, found = site.cutover()
    assert (code, found["phase"], found["safe"]) == (0, "moved", True)
    assert (found["moved"], found["received_there"], found["still_there"]) == (6, 4, 0)

    stolen = set(site.stolen())
    assert sorted(site.received()) == sorted(set(range(1, 11)) - stolen)
    assert sorted(site.taken()) == sorted(set(range(1, 11)) - stolen)
    assert len(rows(site.here, site.to)) == 10, "no row was deleted"
    code, lines = site.command("subscribe", "cutover", *site.that, "--received-there")
    assert code == 0
    assert {each["message_id"] for each in lines} == {f"{{{GUID}}}\\{n}" for n in stolen}
    shown = {each["sequence"]: each["message_id"] for each in rows(site.here, site.to)}
    assert all(shown[each["sequence"]] == each["message_id"] for each in lines)

    # It moves on, a second cut-over changes nothing, and a restart forgets nothing.
    site.server.look(lambda queue: queue.put())
    until(lambda: site.received() == [11])
    assert site.cutover()[0] == 0
    site.here.stop()
    site.here.restart()
    code, found = site.cutover("--check")
    assert (code, found["phase"], found["moved"], found["received_there"]) == (0, "moved", 6, 4)
    assert found["settled_at"] is not None
    assert site.received() == []
    (entry,) = site.entries()
    assert (entry["received_there"], entry["undecided"]) == (4, 0)


def test_what_a_reader_there_takes_after_the_check_is_decided_too_and_over_a_kill(site: Site):
    """One message is locked by a reader there while it settles; readers here wait for it."""
    site.copy(6)
    held = site.server.look(lock_first)
    site.api.cut_over(site.host, "q")
    until(lambda: site.check()["moved"] == 5)
    code, found = site.cutover("--check")
    assert (code, found["phase"], codes(found)["settling"]) == (1, "settling", 1)
    with pytest.raises(ApiError, match="is being cut over"):
        site.api.subscribe({"host": site.host, "queue": "q", "mode": "copy"})
    with pytest.raises(ApiError, match="is being cut over"):
        site.api.unsubscribe(site.host, "q")
    for _ in range(2):
        site.here.kill9()
        site.here.restart()
        assert site.check()["phase"] == "settling"
    with pytest.raises(ApiError, match="consumer default is held by the cut-over of q"):
        site.api.received(
            site.to, "default", epoch=site.api.range(site.to).epoch, to=1, holder="a reader here"
        )
    site.server.look(commit(held))
    code, found = site.cutover("--wait", "60")
    assert (code, found["phase"], found["received_there"]) == (0, "moved", 1)
    assert sorted([*site.received(), *site.stolen()]) == [1, 2, 3, 4, 5, 6]


def test_a_reader_there_that_rolls_back_gives_the_message_to_the_readers_here(site: Site):
    site.copy(3)
    held = site.server.look(lock_first)
    site.api.cut_over(site.host, "q")
    until(lambda: site.check()["moved"] == 2)
    site.server.look(lambda queue: queue.locks.pop(held))
    code, found = site.cutover()
    assert (code, found["moved"], found["received_there"]) == (0, 3, 0)
    assert sorted(site.received()) == [1, 2, 3]


def test_the_mode_may_be_changed_as_before_and_doubles_nothing(site: Site):
    """``subscribe add --mode move`` is a cut-over without a check."""
    site.copy(5)
    site.server.look(steal(2))
    code, _ = site.command("subscribe", "add", *site.that, "--mode", "move")
    assert code == 0
    until(lambda: site.check()["phase"] == "moved")
    assert sorted([*site.received(), *site.stolen()]) == [1, 2, 3, 4, 5]


def test_consumers_of_any_name_and_rows_that_were_received_here_before(site: Site):
    """A trial received a row here; another was purged, and its message comes as a new row."""
    site.copy(4)
    client = site.api
    span = client.range(site.to)
    for name, holder in (("audit", "a"), ("etl", "b")):
        client.register(site.to, name, epoch=span.epoch, first=1, holder=holder)
    client.received(site.to, "etl", epoch=span.epoch, to=1, holder="b")
    code, found = site.cutover("--check", "--consumer", "audit", "--consumer", "etl")
    assert (code, blocking(found)) == (1, ["reader-here", "received-here"])
    with pytest.raises(ApiError, match="consumer audit is held by a"):
        client.cut_over(site.host, "q", ["audit", "etl"])
    for name, holder in (("audit", "a"), ("etl", "b")):
        client.release(site.to, name, holder=holder)
    site.server.look(steal(1))
    flags = ["--consumer", "audit", "--consumer", "etl"]
    code, found = site.cutover(*flags)
    assert code == 1, found
    code, found = site.cutover(*flags, "--accept-received")
    assert (code, found["phase"]) == (0, "moved")
    (gone,) = client.received_there(site.host, "q")
    left = {1, 2, 3, 4} - {gone["sequence"]}
    for name, given in (("audit", left), ("etl", left - {1}), ("default", {1, 2, 3, 4})):
        code, lines = site.command("receive", "--queue", site.to, "--max", "9", "--consumer", name)
        assert {each["sequence"] for each in lines} == given, name


def test_a_row_that_was_purged_here_is_moved_as_a_new_one(site: Site):
    site.copy(3)
    code, (found,) = site.command("purge", "--queue", site.to)
    assert (code, found["purged"]) == (0, 3)
    code, found = site.cutover("--check")
    assert (code, codes(found)) == (0, {"no-row": 3})
    assert site.cutover()[0] == 0
    until(lambda: len(site.taken()) == 3)
    until(lambda: len(rows(site.here, site.to)) == 3)
    assert sorted(site.received()) == [1, 2, 3]


def test_a_machine_that_does_not_come_back(site: Site):
    """The operator says whose the undecided messages are; what is known stays known."""
    site.copy(4)
    held = site.server.look(lock_first)
    site.server.look(steal(1))
    site.api.cut_over(site.host, "q")
    until(lambda: (found := site.check())["moved"] == 2 and found["received_there"] == 1)
    number = site.server.look(lambda queue: queue.messages[held][0])
    site.server.switch_off()
    until(lambda: "not read now" in site.check()["findings"][0]["text"])
    code, _ = site.command("subscribe", "remove", *site.that, "--unsettled", "here")
    assert code == 0
    assert sorted(site.received()) == sorted([*site.taken(), number])
    assert site.entries() == []
    with contextlib.closing(sqlite3.connect(site.here.data_dir / DATABASE_FILE)) as database:
        for table in ("copied", "copied_rows", "cutovers"):
            counted = f"SELECT COUNT(*) FROM {table} WHERE subscription = ?"
            assert database.execute(counted, (f"{site.host}\\q",)).fetchone() == (0,)


def test_a_machine_that_cannot_be_read_is_not_safe(site: Site):
    site.copy(2)
    site.server.switch_off()
    until(
        lambda: (
            (code := site.cutover("--check", "--wait", "1"))[0] == 1
            and "not-read" in blocking(code[1])
        )
    )
    code, (answer,) = site.command("subscribe", "list", "--host", site.host)
    assert (code, answer["mode"]) == (0, "copy")
    assert (
        run(
            [
                "subscribe",
                "cutover",
                *site.that,
                "--check",
                "--table",
                "--wait",
                "1",
                "--api",
                site.here.api,
            ]
        )
        == 1
    )


@pytest.mark.parametrize("kind", ["plain", "transactional", "journal"])
def test_a_reader_there_that_has_the_queue_open(
    tmp_path: Path, served: Served, capsys: pytest.CaptureFixture[str], kind: str
):
    """MQ_DENY_SHARE shows it: the remote queue manager is a real one here."""
    name = served.queue(transactional=kind == "transactional", journal=kind == "journal")
    served.send(name, 3, 3)
    if kind == "journal":
        assert run(["receive", "--queue", name, "--max", "9", "--api", served.api]) == 0
        name += ";journal"
    there = {"host": served.ready["rpc"], "queue": "DIRECT=OS:host1\\" + name.replace("/", "\\")}
    with RunningQueueManager(tmp_path / "b") as here:
        api = SubscriptionsClient(here.api, retry_seconds=60)
        api.subscribe({**there, "mode": "copy", "to": QUEUE})
        until(lambda: len(rows(here)) == 2)
        with served.machine() as machine, opened(machine, name, receive=True) as queue:
            found = api.check_cutover(**there)
            assert blocking(found) == ["reader-there"]
            request, _ = queue.start(Action.RECEIVE)
            queue.end(request)
        until(lambda: api.check_cutover(**there)["safe"])
        api.cut_over(**there)
        until(lambda: api.check_cutover(**there)["phase"] == "moved")
        found = api.check_cutover(**there)
        assert (found["moved"], found["received_there"]) == (1, 1)
        capsys.readouterr()
        assert run(["receive", "--queue", QUEUE, "--max", "9", "--api", here.api]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1
        with served.machine() as machine, opened(machine, name) as queue:
            assert list(queue.walk()) == []


def test_a_started_copy_of_the_data_directory_lets_nobody_read_what_is_not_decided(
    site: Site, tmp_path: Path
):
    """The subscription is on hold there, and so are its consumers, until an operator resumes it."""
    site.copy(2)
    held = site.server.look(lock_first)
    site.api.cut_over(site.host, "q")
    until(lambda: site.check()["moved"] == 1)
    original = site.here
    original.stop()
    shutil.copytree(original.data_dir, tmp_path / "copy")
    original.restart()
    with RunningQueueManager(tmp_path / "copy") as copy:
        site.here = copy
        (entry,) = site.entries()
        assert (entry["held"], entry["undecided"]) == (True, 1)
        holder = site.api.queue(site.to)["consumers"][0]["holder"]
        assert "the cut-over of q" in str(holder)
        site.server.look(commit(held))
        assert site.command("subscribe", "resume", *site.that)[0] == 0
        until(lambda: site.check()["phase"] == "moved")
        found = site.check()
        assert (found["in_doubt"], found["received_there"]) == (1, 0), "the original may have it"
        assert sorted(site.received()) == [1, 2], "nothing is lost"


def test_a_configured_subscription_is_checked_and_cut_over_by_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with ForeignServer(seed=5) as server:
        config = tmp_path / "qm.toml"
        text = f'[[subscription]]\nhost = "127.0.0.1:{server.port}"\nqueue = "q"\nto = "{QUEUE}"\n'
        config.write_text(text + 'mode = "copy"\n')
        server.look(lambda queue: [queue.put() for _ in range(4)])
        there = (f"127.0.0.1:{server.port}", "q")
        with RunningQueueManager(tmp_path / "qm", config=config) as here:
            api = SubscriptionsClient(here.api, retry_seconds=60)
            until(lambda: len(rows(here)) == 4)
            server.look(steal(1))
            assert api.check_cutover(*there)["received_there"] == 1
            with pytest.raises(ApiError, match="stands in the configuration file"):
                api.cut_over(*there)
            here.stop()
            config.write_text(text + 'mode = "move"\n')
            here.restart()
            api = SubscriptionsClient(here.api, retry_seconds=60)
            until(lambda: api.check_cutover(*there)["phase"] == "moved")
            capsys.readouterr()
            assert run(["receive", "--queue", QUEUE, "--max", "9", "--api", here.api]) == 0
            assert len(capsys.readouterr().out.splitlines()) == 3


def test_senders_that_never_pause_do_not_delay_the_decision(site: Site):
    """What is gone is looked up although the remote queue is never empty."""
    site.copy(3)
    held = site.server.look(lock_first)

    def endless(queue: ForeignQueue) -> None:
        """A message is there whenever one is asked for."""
        first = queue.first

        def refilled() -> int | None:
            queue.put()
            return first()

        queue.first = refilled  # type: ignore[method-assign]

    site.server.look(endless)
    site.api.cut_over(site.host, "q")
    until(lambda: site.check()["moved"] == 2)
    site.server.look(commit(held))
    until(lambda: site.check()["phase"] == "moved")
    site.server.look(lambda queue: setattr(queue, "first", lambda: None))


def test_a_queue_that_is_deleted_here_while_it_settles(site: Site):
    site.copy(2)
    site.server.look(lock_first)
    site.api.cut_over(site.host, "q")
    until(lambda: site.check()["moved"] == 1)
    site.api.delete_queue(site.to)
    assert site.command("subscribe", "remove", *site.that, "--unsettled", "there")[0] == 0
    assert site.entries() == []


def test_calls_in_the_wrong_order_change_nothing(site: Site):
    with pytest.raises(ApiError, match="nobody reads q"):
        site.check()
    with pytest.raises(ApiError, match="nobody reads q"):
        site.api.cut_over(site.host, "q")
    assert site.command("subscribe", "add", *site.that, "--to", site.to)[0] == 0
    for wrong in (["remove", "--check"], ["add", "--unsettled", "here"]):
        assert site.command("subscribe", *wrong, *site.that)[0] == 2
    assert len(site.entries()) == 1
    site.server.look(lambda queue: queue.put())
    until(lambda: len(rows(site.here, site.to)) == 1)
    code, found = site.cutover()
    assert (code, found["phase"], codes(found)) == (0, "moving", {"nothing-copied": 0})
    with pytest.raises(ApiError, match="1 to 20 names"):
        site.api.cut_over(site.host, "q", [])
    assert site.received() == [1]


@pytest.mark.timeout(300 + 20 * KILLS)
def test_a_cut_over_through_kills_lost_answers_and_a_thief(site: Site):
    """``SRMP_SPARK_PULL_KILLS=200``: ten minutes. Readers there never stop, and answers are lost."""
    server, in_doubt = site.server, set[int]()
    server.faults, server.arriving = BAD, 80
    site.api.subscribe({"host": site.host, "queue": "q", "mode": "copy", "to": site.to})
    until(lambda: site.check()["received_there"] >= 10)
    site.api.cut_over(site.host, "q")
    for kill in range(KILLS):
        goal = len(site.taken()) + 3 + kill % 5
        until(lambda goal=goal: len(site.taken()) >= goal or _more(server))
        site.here.kill9()
        in_doubt |= _in_doubt(site)
        site.here.restart()
    server.faults, server.arriving = Faults(), 0
    until(lambda: site.check()["phase"] == "moved" and not server.look(lambda each: each.messages))
    until(lambda: site.entries()[0]["pending"] == 0)
    given, theirs = site.received(), set(site.stolen())
    assert len(given) == len(set(given)), "doubled"
    assert set(given) | theirs == set(range(1, server.look(lambda each: each.sequence) + 1)), "lost"
    unanswered = server.look(lambda each: set(each.unanswered_ends))
    assert set(given) & theirs <= unanswered | in_doubt, "given to both, and no End was in doubt"
    assert site.check()["received_there"] >= 10


def _more(server: ForeignServer) -> bool:
    server.arriving = max(server.arriving, 10)
    return False


def _in_doubt(site: Site) -> set[int]:
    """Messages whose End may have been on its way when the queue manager was killed."""
    with contextlib.closing(sqlite3.connect(site.here.data_dir / DATABASE_FILE)) as database:
        found = [
            *database.execute("SELECT message_id FROM copied_ends"),
            *database.execute("SELECT message_id FROM pulled"),
        ]
    return {int(str(each[0]).rpartition("\\")[2]) for each in found}
