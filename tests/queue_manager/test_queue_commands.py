"""``srmp-spark queue …`` at a running queue manager: what each action does, refuses and keeps over a kill."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from api_kit import call, fresh, queue
from peer_kit import Peer

from srmp_spark.cli import run
from srmp_spark.client.api import QueueManagerClient, QueueRange
from srmp_spark.errors import ApiError, ApiUnreachableError
from srmp_spark.testing.queue_manager import RunningQueueManager
from srmp_spark.testing.sender import ForeignSender, PostRefusedError

Start = Callable[..., RunningQueueManager]


class Shell:
    """The command line at one queue manager."""

    def __init__(self, running: RunningQueueManager, capsys: pytest.CaptureFixture[str]) -> None:
        self.running = running
        self._capsys = capsys
        self.said = ""
        """Standard error of the last command."""

    def __call__(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Run ``srmp-spark queue WORDS``; return the JSON line, if it printed one."""
        self._capsys.readouterr()
        try:
            ended = run(["queue", *words, "--api", self.running.api])
        except SystemExit as error:
            ended = int(str(error.code))
        out, self.said = self._capsys.readouterr()
        assert ended == code, self.said
        lines = [json.loads(line) for line in out.splitlines()]
        assert len(lines) == (code == 0)
        return lines[0] if lines else {}


@pytest.fixture
def shell(running: RunningQueueManager, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(running, capsys)


def receive(client: QueueManagerClient, name: str, to: int, consumer: str = "default") -> None:
    """Mark the rows up to ``to`` as received, and let the consumer go."""
    held = client.register(name, consumer, holder="a test", first=1)
    client.received(name, consumer, epoch=held.epoch, to=to, holder="a test")
    client.release(name, consumer, holder="a test")


class TestCreate:
    def test_the_same_again_is_done_and_another_is_refused(self, shell: Shell) -> None:
        made = shell("create", "private$/twice", "--journal")
        assert (made["name"], made["transactional"]) == ("private$/twice", False)
        assert made["journal"]["name"] == "private$/twice;journal"
        assert shell("create", "PRIVATE$\\Twice", "--journal")["epochs"] == made["epochs"]
        shell("create", "private$/twice", "--journal", "--transactional", code=4)
        assert "exists and is not transactional" in shell.said
        assert "srmp-spark queue delete 'private$/twice' --api http://" in shell.said
        shell("create", "private$/twice", code=4)
        assert "exists and keeps a journal" in shell.said
        assert "srmp-spark queue set 'private$/twice' journal=off" in shell.said
        assert shell("set", "private$/twice", "journal=off")["journal"] is None

    @pytest.mark.parametrize(
        ("name", "code", "said"),
        [
            ("a/b", 2, "not a queue name"),
            ("x" * 200, 2, "a queue name has 1 to"),
            ("orders:transactional", 2, "write orders --transactional"),
            ("orders:multicast=239.0.0.1:7", 2, "serve --queue NAME:multicast=IP:PORT"),
            ("http://peer/msmq/q", 2, "srmp-spark streams pause --destination http://peer/msmq/q"),
            ("orders;journal", 4, "is the name of a journal"),
        ],
    )
    def test_a_name_that_cannot_be(self, shell: Shell, name: str, code: int, said: str) -> None:
        shell("create", name, code=code)
        assert said in shell.said

    def test_only_says_what_may_happen(self, running: RunningQueueManager) -> None:
        path = "/v1/queues/only-this"
        assert call(running, "PUT", path + "?only=change")[0] == 404
        assert call(running, "GET", path)[0] == 404
        assert call(running, "PUT", path + "?only=create", {"journal": False})[0] == 201
        status, refused = call(running, "PUT", path + "?only=create", {"journal": True})
        assert (status, refused["error"]["code"]) == (409, "queue-differs")
        assert call(running, "GET", path)[1]["journal"] is None
        assert call(running, "PUT", path + "?only=create", {})[0] == 200, "nothing is named"
        assert call(running, "PUT", path + "?only=maybe", {})[0] == 400

    def test_it_survives_a_kill(self, start: Start, capsys: pytest.CaptureFixture[str]) -> None:
        running = start(queues=["configured"])
        shell = Shell(running, capsys)
        shell("create", "made", "--transactional", "--journal")
        shell("delete", "configured")
        assert "the next start creates it again, empty" in shell.said
        shell("create", "gone")
        shell("delete", "gone")
        assert shell.said == ""
        running.kill9()
        running.restart()
        client = QueueManagerClient(running.api)
        assert [each["name"] for each in client.queues()] == ["configured", "made"]
        made = shell("create", "made", "--transactional", "--journal")
        assert made["journal"] is not None


class TestDelete:
    def test_rows_that_wait_keep_it(
        self, shell: Shell, running: RunningQueueManager, client: QueueManagerClient, peer: Peer
    ) -> None:
        fresh(client, running, "kept", 3)
        shell("delete", "kept", code=4)
        assert "3 rows of kept are not received by consumer default" in shell.said
        assert "srmp-spark queue delete kept --force" in shell.said
        receive(client, "kept", 3)
        receive(client, "kept", 1, "bronze")
        shell("delete", "kept", code=4)
        assert "2 rows of kept are not received by consumer bronze" in shell.said
        receive(client, "kept", 3, "bronze")
        assert shell("delete", "kept") == {"queue": "kept", "rows": 0, "configured": False}
        shell("delete", "kept", code=4)
        assert "there is no queue kept" in shell.said
        assert peer.send(peer.message("kept")).status == 400

    def test_force_tells_what_is_lost(
        self, shell: Shell, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "forced", 2)
        assert shell("delete", "forced", "--force")["rows"] == 2
        assert "2 rows of forced that consumer default had not received" in shell.said

    def test_a_holder_keeps_it(self, shell: Shell, client: QueueManagerClient) -> None:
        shell("create", "held")
        client.register("held", "gold", holder="a query", first=1)
        shell("delete", "held", code=4)
        assert "consumer gold of held is held by a query" in shell.said
        client.release("held", "gold", holder="a query")
        shell("delete", "held")

    def test_a_stream_outlives_it_and_its_receipt_is_sent(
        self, start: Start, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Its sender would wait for ever: it is in the middle of a stream, and begins no other one."""
        running = start(allow_url=["http://127.0.0.1:*"])
        shell, client = Shell(running, capsys), QueueManagerClient(running.api)
        shell("create", "private$/due", "--transactional")
        with ForeignSender(running.listening) as sender:
            sender.post("private$/due", b"one", transactional=True)
            receive(client, "private$/due", 1)
            shell("delete", "private$/due")
            (receipt,) = sender.wait_for_receipts(1)
            assert receipt.last_ordinal == 1, "it was due when the queue was deleted"
            with pytest.raises(PostRefusedError) as refused:
                sender.post("private$/due", b"nobody's", transactional=True)
            assert refused.value.status == 400
            running.kill9()
            running.restart()
            shell("create", "private$/due", "--transactional")
            sender.post("private$/due", b"two", transactional=True)
            assert _bodies(client, "private$/due") == {2: b"two"}

    def test_a_reader_of_the_queue_before_is_told(
        self, shell: Shell, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        """A checkpoint that had read everything goes on; one that had not, hears of its loss."""
        fresh(client, running, "again-2", 5)
        epoch = client.range("again-2").epoch
        shell("delete", "again-2", "--force")
        with pytest.raises(ApiError) as gone:
            client.range("again-2", epoch=epoch, after=5)
        assert gone.value.status == 404
        shell("create", "again-2")
        fresh(client, running, "again-2", 2)
        whole = client.range("again-2", epoch=epoch, after=5)
        assert (whole.first, whole.last, whole.end) == (6, 7, 7)
        with pytest.raises(ApiError) as lost:
            client.range("again-2", epoch=epoch, after=3)
        assert (lost.value.status, lost.value.code) == (410, "trimmed")
        assert queue(client, "again-2")["waiting"] == 2, "no mark of the queue before is left"

    def test_senders_and_a_reader_while_it_is_deleted_and_killed(
        self, start: Start, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """No sequence comes back with another message, and no acknowledged message after the last creation is lost."""
        running = start()
        shell, client = Shell(running, capsys), QueueManagerClient(running.api)
        seen: dict[int, bytes] = {}
        for turn in range(3):
            shell("create", "busy")
            stop, sent = threading.Event(), list[bytes]()
            sender = threading.Thread(target=_send, args=(running, stop, sent, turn))
            sender.start()
            while len(sent) < 20:
                time.sleep(0.01)
            if turn == 1:
                running.kill9()
                stop.set()
                sender.join()
                running.restart()
            else:
                stop.set()
                sender.join()
            rows = _bodies(client, "busy")
            assert not seen.keys() & rows.keys(), "a sequence belongs to one message for ever"
            assert set(sent) <= set(rows.values())
            seen |= rows
            assert shell("delete", "busy", "--force")["rows"] == len(rows)


def _send(
    running: RunningQueueManager, stop: threading.Event, sent: list[bytes], turn: int
) -> None:
    peer = Peer(running)
    for number in range(10_000):
        if stop.is_set():
            return
        body = b"%d of turn %d" % (number, turn)
        try:
            if peer.send(peer.message("busy", body=body)).status == 200:
                sent.append(body)
        except OSError:
            return


def _bodies(client: QueueManagerClient, name: str) -> dict[int, bytes]:
    import pyarrow as pa

    found = client.range(name)
    with client.rows(name, epoch=found.epoch, after=found.first - 1, to=found.end) as stream:
        rows = pa.ipc.open_stream(stream.as_file()).read_all().to_pylist()
    return {row["sequence"]: row["body"] for row in rows}


class TestPause:
    def test_in_keeps_senders_out_over_a_kill(
        self, start: Start, capsys: pytest.CaptureFixture[str]
    ) -> None:
        running = start()
        shell = Shell(running, capsys)
        shell("create", "busy")
        assert shell("pause", "busy") == {"queue": "busy", "paused": True, "paused_out": False}
        running.kill9()
        running.restart()
        peer, client = Peer(running), QueueManagerClient(running.api)
        message = peer.message("busy")
        refused = peer.send(message)
        assert (refused.status, (refused.reason or "")[:6]) == (503, "paused")
        shell("resume", "busy")
        assert [peer.send(message).status for _ in range(2)] == [200, 200]
        assert queue(client, "busy")["last"] == 1, "the sender's message arrived, once"
        peer.close()

    def test_out_lets_readers_wait_until_it_is_resumed(
        self, shell: Shell, running: RunningQueueManager, client: QueueManagerClient, peer: Peer
    ) -> None:
        fresh(client, running, "waiting", 2)
        epoch = client.range("waiting").epoch
        paused = shell("pause", "waiting", "--out")
        assert paused == {"queue": "waiting", "paused": False, "paused_out": True}
        assert peer.send(peer.message("waiting")).status == 200, "messages are accepted"
        held = client.range("waiting", epoch=epoch, after=0, max_rows=1)
        assert (held.last, held.end, held.paused) == (0, 0, True)
        assert client.range("waiting").end == 3, "who names no position plans nothing"
        assert client.range("waiting", epoch=epoch, after=0, peek=True).last == 3
        with client.rows("waiting", epoch=epoch, after=0, to=2) as stream:
            assert stream.read(), "what was planned before is finished"
        assert run(["receive", "--queue", "waiting", "--api", running.api]) == 4
        assert run(["peek", "--queue", "waiting", "--api", running.api]) == 0
        assert queue(client, "waiting")["waiting"] == 3, "receive marked nothing"
        answered: list[QueueRange] = []
        waiter = threading.Thread(
            target=lambda: answered.append(client.range("waiting", epoch=epoch, after=0, wait=10))
        )
        begun = time.monotonic()
        waiter.start()
        time.sleep(0.3)
        assert peer.send(peer.message("waiting")).status == 200
        time.sleep(0.2)
        assert not answered, "a new row does not end the wait"
        assert shell("resume", "waiting", "--out")["paused_out"] is False
        waiter.join()
        assert answered[0].last == 4
        assert time.monotonic() - begun < 5

    def test_out_survives_a_kill_and_ends_with_the_queue(
        self, start: Start, capsys: pytest.CaptureFixture[str]
    ) -> None:
        running = start(queues=["busy"])
        shell, client = Shell(running, capsys), QueueManagerClient(running.api)
        shell("pause", "busy", "--out")
        running.kill9()
        running.restart()
        assert queue(client, "busy")["paused_out"] is True
        assert client.status_summary()["totals"]["queues"]["paused"] == 1
        shell("delete", "busy")
        assert shell("create", "busy")["paused_out"] is False
        shell("pause", "busy", "--in")
        shell("pause", "busy", "--out")
        both = shell("resume", "busy")
        assert (both["paused"], both["paused_out"]) == (False, False)

    def test_nobody_receives_from_our_own_queues(self, shell: Shell) -> None:
        shell("pause", "private$/order_queue$", "--out", code=4)
        assert "streams pause --destination" in shell.said

    def test_a_direction_is_in_or_out(self, running: RunningQueueManager) -> None:
        for action in ("pause", "resume"):
            path = f"/v1/queues/private$/orders/{action}?direction=up"
            assert call(running, "POST", path)[0] == 400


class TestTrim:
    def test_received_rows_go_and_others_stay(
        self, shell: Shell, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "long", 6)
        nothing = shell("trim", "long", "--received")
        assert (nothing["trimmed"], nothing["first"], nothing["last"]) == (0, 1, 6)
        assert nothing["kept_for"] == {"name": "consumer default", "received": 0}
        receive(client, "long", 5)
        receive(client, "long", 2, "bronze")
        kept = shell("trim", "long", "--received")
        assert (kept["trimmed"], kept["first"]) == (2, 3)
        assert kept["kept_for"] == {"name": "consumer bronze", "received": 2}
        assert "srmp-spark consumers long --delete bronze" in shell.said
        client.delete_consumer("long", "bronze")
        assert shell("trim", "long", "--before", "5")["first"] == 5
        assert shell.said == "", "nobody needed these rows"
        last = shell("trim", "long", "--received")
        assert (last["trimmed"], last["first"]) == (1, 6)
        assert "srmp-spark purge --queue long" in shell.said
        assert shell("trim", "long", "--received")["trimmed"] == 0, "twice does no more"
        with pytest.raises(ApiError) as gone:
            client.range("long", after=1)
        assert gone.value.code == "trimmed"
        assert list(_bodies(client, "long")) == [6]

    def test_force_deletes_and_tells_who_had_not_received(
        self, shell: Shell, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "forced-trim", 6)
        receive(client, "forced-trim", 2)
        receive(client, "forced-trim", 1, "bronze")
        done = shell("trim", "forced-trim", "--before", "5", "--force")
        assert (done["trimmed"], done["first"]) == (4, 5)
        assert done["lost"] == {"consumer default": 2, "consumer bronze": 3}
        assert "2 of consumer default, 3 of consumer bronze" in shell.said
        found = queue(client, "forced-trim")
        assert (found["first"], found["received"], found["waiting"]) == (5, 4, 2)
        with pytest.raises(ApiError) as gone:
            client.range("forced-trim", after=2)
        assert gone.value.code == "trimmed", "a reader never skips silently"

    def test_before_a_time(
        self, shell: Shell, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        fresh(client, running, "timed", 2)
        receive(client, "timed", 2)
        assert shell("trim", "timed", "--before", "2020-01-01T00:00:00Z")["trimmed"] == 0
        assert shell("trim", "timed", "--before", "2999-01-01")["trimmed"] == 2

    def test_a_journal_keeps_rows_until_they_are_received_from_it(
        self, shell: Shell, running: RunningQueueManager, client: QueueManagerClient
    ) -> None:
        shell("create", "journalled", "--journal")
        fresh(client, running, "journalled", 3)
        receive(client, "journalled", 3)
        kept = shell("trim", "journalled", "--received")
        assert kept["trimmed"] == 0
        assert kept["kept_for"] == {
            "name": "consumer default of journalled;journal",
            "received": 0,
        }
        receive(client, "journalled;journal", 2)
        assert shell("trim", "journalled", "--received")["first"] == 3
        shell("set", "journalled", "journal=off")
        assert shell("trim", "journalled", "--received")["first"] == 4

    def test_what_is_no_trim(self, shell: Shell, running: RunningQueueManager) -> None:
        shell("trim", "private$/orders", code=2)
        shell("trim", "private$/orders", "--received", "--force", code=2)
        assert "--force is for --before" in shell.said
        shell("trim", "private$/orders", "--before", "yesterday", code=2)
        assert "not a time: 'yesterday'" in shell.said
        shell("trim", "nobody", "--received", code=4)
        shell("trim", "private$/order_queue$", "--received", code=4)
        assert "retention alone empties it" in shell.said
        for query in ("", "?received=1&before=3", "?received=1&force=1", "?before=-1"):
            assert call(running, "POST", f"/v1/queues/private$/orders/trim{query}")[0] == 400

    def test_a_kill_in_the_middle_keeps_every_row_that_stayed(
        self, start: Start, capsys: pytest.CaptureFixture[str]
    ) -> None:
        running = start(queues=["busy"])
        shell, client = Shell(running, capsys), QueueManagerClient(running.api)
        fresh(client, running, "busy", 30)
        receive(client, "busy", 20)
        hasty = QueueManagerClient(running.api, retry_seconds=0)
        trim = threading.Thread(target=lambda: _quietly(hasty, "busy"))
        trim.start()
        running.kill9()
        trim.join()
        running.restart()
        assert shell("trim", "busy", "--received")["first"] == 21
        found = queue(client, "busy")
        assert (found["first"], found["last"], found["waiting"]) == (21, 30, 10)


def _quietly(client: QueueManagerClient, name: str) -> None:
    """Trim, whatever becomes of the call: the process is killed meanwhile."""
    with contextlib.suppress(ApiError, ApiUnreachableError):
        client.trim(name, received=True)


class TestSet:
    def test_what_may_change_and_what_may_not(self, shell: Shell) -> None:
        shell("create", "settable")
        assert shell("set", "settable", "journal=on")["journal"]["name"] == "settable;journal"
        assert shell("set", "settable", "journal=on")["journal"] is not None
        assert shell("set", "settable", "journal=off")["journal"] is None
        for words, said in (
            ("transactional=on", "the kind of a queue is fixed"),
            ("multicast=239.0.0.1:7", "serve --queue NAME:multicast=IP:PORT"),
            ("paused=on", "srmp-spark queue pause NAME"),
            ("jurnal=on", "did you mean journal?"),
            ("journal=maybe", "journal is on or off"),
            ("journal", "journal is on or off"),
        ):
            shell("set", "settable", words, code=2)
            assert said in shell.said
        shell("set", "nobody", "journal=on", code=4)
        assert "there is no queue nobody" in shell.said

    def test_an_action_that_is_misspelt(self, shell: Shell) -> None:
        shell("crate", "x", code=2)
        assert "unknown action crate; did you mean create?" in shell.said


class TestTokens:
    @pytest.fixture(scope="class")
    @classmethod
    def guarded(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
        folder = tmp_path_factory.mktemp("guarded")
        verbs = ("metrics", "browse", "read", "decide", "enqueue", "admin")
        entries = []
        for verb in verbs:
            for where, queues in (("mine", "mine*"), ("other", "other")):
                file = folder / f"{verb}-{where}"
                file.write_text(f"0123456789-{verb}-{where}")
                file.chmod(0o600)
                entries.append(
                    f'[[token]]\nname = "{verb}-{where}"\nfile = "{file}"\n'
                    f'queues = ["{queues}"]\nverbs = ["{verb}"]\n'
                )
        config = folder / "serve.toml"
        config.write_text("".join(entries))
        with RunningQueueManager(folder / "data", queues=["mine", "other"], config=config) as qm:
            yield qm

    CALLS = (
        ("PUT", "?only=create"),
        ("DELETE", "?unused=1"),
        ("DELETE", ""),
        ("POST", "/pause?direction=out"),
        ("POST", "/resume"),
        ("POST", "/trim?received=1"),
        ("POST", "/trim?before=9&force=1"),
    )

    @pytest.mark.parametrize("verb", ["metrics", "browse", "read", "decide", "enqueue", "admin"])
    @pytest.mark.parametrize("where", ["mine", "other"])
    def test_only_admin_of_the_queue_may(
        self, guarded: RunningQueueManager, verb: str, where: str
    ) -> None:
        header = {"Authorization": f"Bearer 0123456789-{verb}-{where}"}
        for method, rest in self.CALLS:
            status, answer = call(guarded, method, "/v1/queues/mine" + rest, {}, **header)
            if (verb, where) == ("admin", "mine"):
                assert status in (200, 201, 404), answer
                call(guarded, "PUT", "/v1/queues/mine", {}, **header)
            else:
                assert (status, answer["error"]["code"]) == (403, "forbidden"), (method, rest)

    def test_nobody_without_a_token(self, guarded: RunningQueueManager) -> None:
        for method, rest in self.CALLS:
            assert call(guarded, method, "/v1/queues/mine" + rest, {})[0] == 401
