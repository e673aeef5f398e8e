r"""Make the whole archive of a version: everything that a queue manager of that version can leave behind, by its own code.

    git worktree add /tmp/checkout 4bbb1b7            # the version; a tag where there is one
    cd /tmp/checkout
    PYTHONPATH=$PWD:PATH/TO/tests/compat PYSPARK_PYTHON=$(which python) python PATH/TO/tests/compat/make_whole.py \
        PATH/TO/tests/compat/0.1/whole.tar.xz

It refuses to run with another ``srmp_spark`` than that of the working directory, and works through the version's interfaces
alone: the SRMP, API and RPC ports, WS-ReliableMessaging, multicast, Spark, the ingest job. Peers are those of its own test
kit. At the end both queue managers are killed (kill -9), so the databases have their WAL.

In the archive: ``serve.toml``, its token, accounts and password files, ``data``, ``state`` (Delta), ``remote`` (the data
directory of a second queue manager, of which the first one reads), ``peer.jsonl`` (what the destination took), ``spark``
(checkpoints; ``table`` and ``ingest`` are those of the ingest job), ``rows`` (of each queue, as its readers got them),
``expected.json`` (status, marks, streams, dead letters: what the version itself said) and ``provenance.json``. What stands
where, and why, is told by the functions below, one for each part. ``test_whole.py`` opens it.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow as pa

CHECKOUT = Path.cwd()
for _folder in ("wsrm", "remote_read", "pgm"):
    sys.path.insert(0, str(CHECKOUT / "tests" / _folder))

import whole_world as world  # noqa: E402  # the folders of the version's own kit stand before it
from foreign_server import Faults as RemoteFaults  # noqa: E402
from foreign_server import ForeignServer  # noqa: E402
from live_kit import Client as ReliableClient  # noqa: E402
from remote_kit import move, opened  # noqa: E402
from scripted_service import ScriptedService  # noqa: E402
from wsrm_kit import VERSIONS  # noqa: E402

import srmp_spark  # noqa: E402
from srmp_spark.client.remote_queue import RemoteMachine  # noqa: E402
from srmp_spark.client.subscriptions import SubscriptionsClient  # noqa: E402
from srmp_spark.message import Message  # noqa: E402
from srmp_spark.mqrr.actions import Action  # noqa: E402
from srmp_spark.mqrr.lookup_identifier import rebuilt  # noqa: E402
from srmp_spark.mqrr.ndr.methods import ACCESS_RECEIVE  # noqa: E402
from srmp_spark.mqrr.queue_format import queue_format_for  # noqa: E402
from srmp_spark.names import MulticastAddress  # noqa: E402
from srmp_spark.pgm.sending.source import PgmSource  # noqa: E402
from srmp_spark.pgm.settings import PgmSourceSettings  # noqa: E402
from srmp_spark.pgm.wire.addresses import Tsi, nla_of  # noqa: E402
from srmp_spark.queue_manager.multicast.interfaces import find_interface  # noqa: E402
from srmp_spark.queue_manager.multicast.settings import Encapsulation  # noqa: E402
from srmp_spark.queue_manager.multicast.sockets import Outlet  # noqa: E402
from srmp_spark.srmp.codec.apdu import apdu_of  # noqa: E402
from srmp_spark.testing.foreign.destination_server import Destination  # noqa: E402
from srmp_spark.testing.foreign.faults import Faults  # noqa: E402
from srmp_spark.testing.queue_manager import RunningQueueManager  # noqa: E402
from srmp_spark.wsrm.codec.elements import (  # noqa: E402
    CreateSequence,
    EndpointReference,
    Offer,
    TerminateSequence,
)
from srmp_spark.wsrm.codec.xml_tree import NamespaceScope, XmlElement  # noqa: E402

SEALED = 2_100
"""Rows that become a segment."""

SERVE = f"""# The configuration file of a queue manager of this version. Paths are relative to the working directory.
listen = "{world.LISTEN}"
api = "{world.API}"
token_file = "admin.token"
queue = [
  "{world.ORDERS}:journal", "{world.PAYMENTS}:transactional", "{world.ASKS}:transactional", "{world.REPORTS}",
  "{world.RETRY}", "{world.DEAD}:transactional", "{world.DEAD_LATER}:transactional", "{world.PRICES}:multicast={world.GROUP}",
  "{world.SESSIONS}", "{world.WRITERS}", "{world.LEDGER}:transactional",
  "{world.SPARK_A}", "{world.SPARK_B}", "{world.LATEST}", "{world.UNPLANNED}",
]
allow_url = ["http://127.0.0.1:*", "http://{world.FAR}:*"]
host_name = ["host1", "mq.example.com"]
public_url = "http://{world.LISTEN}"
state = "state"
state_interval = 1
expired = "refuse"
store_and_forward = true
resend_table = "1,2"
retransmission_timeout = 1
retention_hours = 100000
wsrm_buffer = 64
wsrm_poll_interval = 1
rpc = "{world.RPC}"
rpc_accounts = "rpc.accounts"
rpc_min_auth = "none"
pgm = "udp:{world.PGM}"

[pgm_constants]
nak_rpt_ivl = 0.2
nak_rdata_ivl = 0.3
nak_data_retries = 1

[[token]]
name = "reader"
file = "reader.token"
queues = ["private$/*"]
verbs = ["read", "enqueue"]

[[writer]]
queue = "{world.WRITERS}"
token = "reader"

[[redirect]]
direction = "in"
from = "http://{world.LISTEN}/msmq/private$/old-orders"
to = "http://{world.LISTEN}/msmq/{world.REPORTS}"

[[subscription]]
host = "{world.REMOTE_RPC}"
queue = 'private$\\stock'
mode = "copy"
to = "{world.STOCK}"
username = "reader"
password_file = "remote.password"
"""


def main() -> None:
    """Make the archive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("--keep", type=Path, help="also leave the folder here")
    given = parser.parse_args()
    assert Path(srmp_spark.__file__).is_relative_to(CHECKOUT), (
        f"{srmp_spark.__file__} is not of {CHECKOUT}"
    )
    with tempfile.TemporaryDirectory() as name, world.addresses():
        folder = Path(name)
        Maker(folder).make()
        provenance = {
            "commit": _git("rev-parse", "HEAD"), "is_clean": not _git("status", "--porcelain"),
            "version": srmp_spark.__version__, "python": sys.version.split()[0],
            "command": f"python tests/compat/{Path(__file__).name} "
f"tests/compat/VERSION/{given.archive.name}",
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }  # fmt: skip
        (folder / "provenance.json").write_text(world.as_json(provenance))
        given.archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(given.archive, "w:xz") as tar:
            for part in sorted(each for each in folder.iterdir() if each.suffix != ".log"):
                tar.add(part, arcname=part.name)
        if given.keep:
            shutil.copytree(folder, given.keep)


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True, cwd=CHECKOUT
    ).stdout.strip()


class Maker:
    """The order of things: what must be received early comes first, what must stay in the air last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.expected: dict[str, Any] = {}
        self.peer = Destination(host=world.FAR, port=world.PEER_PORT, record=folder / "peer.jsonl")
        self.service = ScriptedService(room=3)
        self.service._port = world.SERVICE_PORT
        self.foreign = ForeignServer(seed=11)
        self.foreign.port = world.FOREIGN_PORT

    def make(self) -> None:
        """Make everything; then kill both queue managers."""
        self._write_files()
        at = ["env", "-C", str(self.folder)]
        remote = RunningQueueManager(
            "remote", listen=world.REMOTE_LISTEN, api_listen=world.REMOTE_API, prefix=at, rpc=world.REMOTE_RPC,
            rpc_accounts="remote.accounts", queues=["private$/stock", "private$/tasks"],
        )  # fmt: skip
        self.main = RunningQueueManager(
            "data", listen=world.LISTEN, api_listen=world.API, prefix=at, config="serve.toml"
        )
        for each in (
            remote,
            self.main,
        ):  # its log stands beside it, not beside the working directory of this script
            each.log = self.folder / f"{each.data_dir}.log"
        with remote, self.main:
            self._orders()
            self._streams()
            self._asks()
            self._holes()
            self._own_queues()
            self._sessions()
            self._multicast()
            self._subscriptions()
            self._spark()
            with self.foreign:
                self._a_subscription_in_doubt()
            self._sent()
            self._waiting()
            self._locked()
            self._tell()
            self.main.kill9()
            there = world.remote_client()
            there.send("private$/stock", [{"label": "stock after"}])
            there.send("private$/tasks", [{"label": f"task after {n}"} for n in range(2)])
            remote.kill9()
        (self.folder / "expected.json").write_text(world.as_json(self.expected))

    def _write_files(self) -> None:
        for name, text in {
            "serve.toml": SERVE, "admin.token": world.TOKEN, "reader.token": world.READER, "remote.password": world.PASSWORD,
            "rpc.accounts": f".\\clerk:{world.PASSWORD}\n", "remote.accounts": f".\\reader:{world.PASSWORD}\n",
        }.items():  # fmt: skip
            path = self.folder / name
            path.touch(0o600)
            path.write_text(text)

    # --- what came ---------------------------------------------------------------------------------------------------------

    def _orders(self) -> None:
        """Leave a sealed segment, groups, a journal, consumers with every kind of mark, a moved row, regular messages."""
        there = world.client()
        for first in range(0, SEALED, 700):
            there.send(world.ORDERS, [{"label": f"order {n}"} for n in range(first, first + 700)])
        world.until(
            lambda: list((self.folder / "data" / "segments").rglob("*.columns.arrow")), "a segment"
        )
        there.send(world.ORDERS, [{"label": f"late {n}", "priority": n % 8} for n in range(20)])
        for number in range(
            1, 6
        ):  # by HTTP, of a sender without a stream; the first one comes again
            assert world.send(self._rich(number)).status == 200
        assert world.send(self._rich(1)).status == 200
        late = world.message(
            world.ORDERS, 20, 9, expires_at=1_000_000_000, time_to_reach_queue=1_000_000_000
        )
        assert world.send(late).status == 400
        epoch = there.register(world.ORDERS, "default", holder="a receiver", first=1).epoch
        there.received(world.ORDERS, "default", epoch=epoch, to=SEALED - 5, holder="a receiver")
        for first, last in ((SEALED + 1, SEALED + 3), (SEALED + 8, SEALED + 8)):
            there.received(
                world.ORDERS,
                "default",
                epoch=epoch,
                to=last,
                holder="a receiver",
                sequences=list(range(first, last + 1)),
            )
        there.release(world.ORDERS, "default", holder="a receiver")
        there.register(world.ORDERS, "from-latest", holder="somebody", first=SEALED + 1)
        there.release(world.ORDERS, "from-latest", holder="somebody")
        there.register(world.ORDERS, "audit", holder="an auditor", first=1)
        there.received(
            world.ORDERS, "audit", epoch=epoch, to=40, holder="an auditor"
        )  # who has its lease to the end
        there.register(f"{world.ORDERS};journal", "default", holder="a reader", first=1)
        there.received(f"{world.ORDERS};journal", "default", epoch=epoch, to=10, holder="a reader")
        there.release(f"{world.ORDERS};journal", "default", holder="a reader")
        with self._rpc() as machine, opened(machine, world.ORDERS, receive=True) as queue:
            assert move(queue, world.RETRY, lookup_id=rebuilt(SEALED + 5, priority=4)) == 0
        assert world.send(world.message(world.WRITERS, 21, 1)).status == 403
        token = {"Authorization": f"Bearer {world.READER}"}
        assert world.send(world.message(world.WRITERS, 21, 1), token).status == 200
        # A redirection leads it elsewhere
        assert world.send(world.message("private$/old-orders", 22, 1)).status == 200

    def _rich(self, number: int) -> Any:
        return world.message(
            world.ORDERS, 20, number, label=f"größer & <{number}>", extension=b"\x00ext%d" % number, priority=number,
            correlation=bytes(range(20)), app=number, body="ü".encode() * number, response_queue=world.RECEIPTS,
            durable=number != 3, **(world.ASKED if number == 2 else {}),
        )  # fmt: skip

    def _rpc(self) -> RemoteMachine:
        host, _, port = world.RPC.partition(":")
        return RemoteMachine.connect(host, int(port))

    def _streams(self) -> None:
        """Leave streams: finished, begun anew, with a gap, an accepted gap, <previous>, an expired position, receipts owed."""

        def sent(source: int, *currents: int, **values: Any) -> None:
            for current in currents:
                assert world.send(world.in_stream(source, current, **values)).status == 200

        with world.Receipts() as receipts:
            sent(1, 1, 2, 3, 2, 3, 4, 5, 5)
            sent(2, 1, 2, 3)
            sent(2, 1, 2, ordinal=2)
            sent(3, 1, 2, 3, 5)
            sent(4, 1, 3)
            sent(5, 1)
            sent(5, 4, previous=1)
            sent(6, 1)
            expired = world.in_stream(
                6, 2, expires_at=1_000_000_000, time_to_reach_queue=1_000_000_000
            )
            assert world.send(expired).status == 200
            sent(6, 3)
            for source, last in ((1, 5), (3, 3), (5, 4), (6, 3)):
                world.until(
                    lambda source=source, last=last: receipts.last_ordinal(source) == last,
                    f"a receipt of stream {source}",
                )
            world.until(lambda: receipts.last_ordinal(2, 2) == 2, "a receipt of the second stream")
        there = world.client()
        there.decide_incoming("accept-gap", world.PAYMENTS, f"uid:{world.sender(4)}\\1")
        sent(7, 1, 2, 3)  # its receipt is owed: nobody listens
        there.send(world.LEDGER, [{"label": f"entry {n}"} for n in range(3)])  # our own stream
        sent(8, 1, 2, queue=world.LEDGER)

    def _asks(self) -> None:
        """Leave messages whose senders ask to be told of their end: received, rejected, undecided; a queue that goes."""
        there = world.client()
        for current in range(1, 7):
            asked = world.in_stream(9, current, queue=world.ASKS, dead_letter=True, **world.ASKED)
            assert world.send(asked).status == 200
        epoch = there.register(world.ASKS, "default", holder="a receiver", first=1).epoch
        there.received(world.ASKS, "default", epoch=epoch, to=2, holder="a receiver")
        there.received(
            world.ASKS,
            "default",
            epoch=epoch,
            to=3,
            holder="a receiver",
            rejected=True,
            sequences=[3],
        )
        there.release(world.ASKS, "default", holder="a receiver")
        there.put_queue("private$/gone")
        assert world.send(world.message("private$/gone", 23, 1, **world.ASKED)).status == 200
        there.delete_queue("private$/gone")
        there.put_queue("private$/again")
        there.send("private$/again", [{"label": "before"}, {"label": "before"}])
        there.delete_queue("private$/again")
        there.put_queue("private$/again")

    def _holes(self) -> None:
        """Purge a queue, give a part up, and leave a message that asks."""
        there = world.client()
        there.send(world.REPORTS, [{"label": f"report {n}"} for n in range(10)])
        there.purge(world.REPORTS)
        there.send(world.REPORTS, [{"label": f"report {n}"} for n in range(10, 20)])
        last = there.queue(world.REPORTS)["last"]
        there.give_up(world.REPORTS, last - 6, last - 4, force=True)
        assert world.send(world.message(world.REPORTS, 24, 1, **world.ASKED)).status == 200

    def _own_queues(self) -> None:
        """Pause queues."""
        there = world.client()
        there.pause(world.DEAD_LATER)
        there.put_queue("private$/paused")
        there.send("private$/paused", [{"label": "before the pause"}])
        there.pause("private$/paused")

    def _sessions(self) -> None:
        """Leave sequences: open, with a gap, of an address with reference parameters, with an offer, terminated."""
        found = {}
        at = SimpleNamespace(endpoint=(world.HERE, int(world.LISTEN.partition(":")[2])))

        def begin(name: str, version: int, **more: Any) -> ReliableClient:
            client = ReliableClient(at, world.SESSIONS, VERSIONS[version])
            client.open(message_id=f"urn:uuid:create-{name}", **more)
            found[name] = {"identifier": client.identifier, "version": version}
            return client

        open_ = begin("open", 5)
        for number in (1, 2, 2, 3):
            open_.say(open_.number(number))
        gap = begin("gap", 4)
        for number in (1, 3):
            gap.say(gap.number(number))
        parameters = (
            XmlElement(
                "{urn:shop}Customer", content=("4711",), scope=NamespaceScope({"s": "urn:shop"})
            ),
        )
        address = EndpointReference(f"http://{world.HERE}:{world.CALLBACKS_PORT}/acks", parameters)
        with_address = begin("address", 0, acks_to=address)
        for number in (1, 2):
            with_address.say(with_address.number(number))
        offers = ReliableClient(at, world.SESSIONS, VERSIONS[5])
        created = offers.create(message_id="urn:uuid:create-offer")
        anonymous = EndpointReference(VERSIONS[5][1].anonymous)
        offer = Offer("urn:uuid:offered-by-us", endpoint=anonymous)
        answer = offers.answer(
            dataclasses.replace(created, content=CreateSequence(anonymous, offer=offer))
        )
        offers.identifier = answer.content.identifier
        offers.say(offers.number(1))
        found["offer"] = {"identifier": offers.identifier, "version": 5}
        over = begin("over", 5)
        over.say(over.number(1))
        over.say(over.of_rm("TerminateSequence", TerminateSequence(over.identifier, 1)))
        self.expected["sessions"] = found
        for each in (open_, gap, with_address, offers, over):
            each.close()

    def _multicast(self) -> None:
        """Leave rows that came by multicast, and a message that is lost for good and told."""
        host, _, port = world.GROUP.partition(":")
        group = MulticastAddress(host, int(port))
        udp = Encapsulation.parse(f"udp:{world.PGM}")
        outlet = Outlet(udp, find_interface(world.HERE), group.group, 1, is_source=True)
        source = PgmSource(
            Tsi(bytes(range(6)), 4711), group.port, source=nla_of(world.HERE), group=nla_of(group.group), now=time.monotonic(),
            settings=PgmSourceSettings(txw_max_rte=1e6),
        )  # fmt: skip
        for number in range(1, 5):
            price = Message(
                f"MSMQ:{group.format_name}", action="MSMQ:price", has_msmq=True, lineage=world.sender(30),
                source_qm=world.sender(30), uniquifier=number, body=b"price %d" % number,
            )  # fmt: skip
            source.send(apdu_of(price, group))
            while source.waiting:
                for each in source.poll(time.monotonic()):
                    if number != 3:
                        outlet.multicast([each.packet])
                time.sleep(0.01)
        world.until(
            lambda: self._last(world.PRICES) >= 3, "the loss was given up, and what follows came"
        )
        outlet.close()

    def _subscriptions(self) -> None:
        """Let a copy of the configuration file and a move that was added at run time read what there is."""
        there = world.remote_client()
        there.send("private$/stock", [{"label": f"stock {n}", "priority": n} for n in range(4)])
        there.send("private$/tasks", [{"label": f"task {n}", "priority": n} for n in range(3)])
        SubscriptionsClient(f"http://{world.API}", world.TOKEN).subscribe(
            {"host": world.REMOTE_RPC, "queue": "private$\\tasks", "mode": "move", "to": world.TASKS, "username": "reader",
             "password": world.PASSWORD}
        )  # fmt: skip
        here = world.client()
        world.until(lambda: self._last(world.STOCK) == 4, "the copy")
        world.until(lambda: self._last(world.TASKS) == 3, "the move")
        world.until(
            lambda: all(each["pending"] == 0 for each in here.status()["subscriptions"]),
            "nothing of a subscription is pending",
        )
        world.until(lambda: there.queue("private$/tasks")["waiting"] == 0, "they are removed there")

    def _last(self, queue: str) -> int:
        return next(
            (int(each["last"]) for each in world.client().queues() if each["name"] == queue), 0
        )

    def _a_subscription_in_doubt(self) -> None:
        """Let the other machine remove a message and go away before it says so."""
        subscriptions = SubscriptionsClient(f"http://{world.API}", world.TOKEN)
        for _ in range(2):
            self.foreign.look(lambda queue: queue.put())
        subscriptions.subscribe(
            {
                "host": f"{world.HERE}:{world.FOREIGN_PORT}",
                "queue": "private$\\missing",
                "mode": "move",
                "to": world.MISSING,
            }
        )
        world.until(lambda: self._last(world.MISSING) == 2, "the first two")
        self.foreign.faults, self.foreign.away_after_end = RemoteFaults(end_lost=1.0), True
        for _ in range(3):
            self.foreign.look(lambda queue: queue.put())
        world.until(lambda: self.foreign._is_away, "it is away")
        self.foreign.switch_off()

        def doubtful() -> int:
            found = world.client().status()["subscriptions"]
            return sum(each["doubtful"] or 0 for each in found if each["to"] == world.MISSING)

        world.until(doubtful, "a message in doubt")
        self.expected["foreign"] = self.foreign.look(
            lambda queue: {
                "messages": [[lookup_id, *place] for lookup_id, place in queue.messages.items()], "sequence": queue.sequence,
                "taken": queue.taken_by_us,
            }
        )  # fmt: skip
        assert self.expected["foreign"]["taken"]

    # --- Spark -------------------------------------------------------------------------------------------------------------

    def _spark(self) -> None:
        """Leave checkpoints of every kind of query (``spark_queries.py``) and a table of the ingest job; send more rows."""
        here = world.client()
        for queue, count in (
            (world.SPARK_A, 12),
            (world.SPARK_B, 5),
            (world.LATEST, 6),
            (world.UNPLANNED, 4),
        ):
            here.send(queue, [{"label": f"{queue} {n}"} for n in range(count)])
        program = [
            sys.executable,
            str(Path(__file__).with_name("spark_queries.py")),
            str(self.folder / "spark"),
            "made",
        ]
        done = subprocess.run(
            program, capture_output=True, text=True, timeout=400, check=False, cwd=self.folder
        )
        assert done.returncode == 0, done.stderr[-4000:]
        self.expected["spark"] = json.loads(done.stdout.splitlines()[-1])
        for queue in (world.SPARK_A, world.SPARK_B, world.LATEST, world.UNPLANNED):
            here.send(queue, [{"label": f"{queue} unread {n}"} for n in range(3)])

    # --- what leaves -------------------------------------------------------------------------------------------------------

    def _sent(self) -> None:
        """Send to peers that are there: what left, was journalled, refused, or waits for a final receipt; dead letters."""
        here = world.client()
        self.peer._refuse = lambda message: message.body.startswith(b"refuse")
        with self.peer, self.service:
            assert world.commit("app", "1", world.first_batch()) == (9, 0)
            assert world.commit("positions", "1", world.placed()) == (3, 0)
            finals = world.rows_to("finals", ["final 0", "final 1", "final 2"])
            assert (
                world.commit(
                    "finals", "1", finals, dead_letter="true", dead_letter_queue=world.DEAD
                )[0]
                == 3
            )
            for batch, queue in (("1", world.DEAD), ("2", world.DEAD_LATER)):
                refused = world.rows_to(f"refused-{batch}", ["refuse 1", "refuse 2"])
                assert world.commit("refused", batch, refused, dead_letter_queue=queue)[0] == 2
            assert world.commit("refused", "3", world.rows_to("refused-3", ["refuse 3"]))[0] == 1
            here.send_away([{"destination": f"MULTICAST={world.GROUP}", "body_base64": "cHJpY2U="}])
            self._to_service(1, 5)
            for queue in ("stream-a", "stream-p"):
                world.until(
                    lambda queue=queue: self._is_done(queue), f"all of {queue} is acknowledged"
                )
            world.until(
                lambda: (
                    world.outgoing(world.PEER + "finals").get("awaiting_final_stream_receipt") == 3
                ),
                "three wait for a final",
            )
            world.until(lambda: self._last(world.DEAD) == 2, "rows of the queue of dead letters")
            world.until(lambda: len(self.service.delivered) == 3, "the service has no more room")
            world.until(
                lambda: world.outgoing(world.SERVICE, "plain").get("queued") == 2,
                "two wait for room",
            )
            # From now on nothing is receipted, and the answers of what arrives are lost.
            self.peer.withhold_receipts(3600)
            before = len(self.peer.queues["private$/stream-a"])
            self.peer.faults = Faults.parse("drop-after=1.0")
            assert world.commit("app", "2", world.rows_to("stream-a", ["a 5", "a 6"])) == (2, 0)
            world.until(lambda: len(self.peer.queues["private$/stream-a"]) > before, "one arrived")
            with self.service.lock:
                self.expected["service"] = [
                    {"identifier": each.identifier, "taken": {n: [m, b.decode()] for n, (m, b) in each.taken.items()},
                     "told": each.told, "created": [k for k, v in self.service.created.items() if v == each.identifier]}
                    for each in self.service.sequences.values()
                ]  # fmt: skip
                self.expected["delivered"] = [each.decode() for each in self.service.delivered]

    def _to_service(self, first: int, last: int) -> None:
        world.client().send_away(
            [
                {
                    "destination": world.SERVICE,
                    "soap_action": "urn:shop/order",
                    "body_base64": _base64(f"<n>{n}</n>"),
                }
                for n in range(first, last + 1)
            ]
        )

    def _is_done(self, queue: str) -> bool:
        entry = world.outgoing(world.PEER + queue)
        return bool(entry) and entry["queued"] == entry["awaiting_stream_receipt"] == 0

    def _waiting(self) -> None:
        """Send to peers that are away: what waits for streams in the middle, new ones, on hold, forwarded, staged."""
        here = world.client()
        rows = world.rows_to("stream-a", ["a 7", "a 8"]) + world.rows_to(
            "stream-b", [f"b {n}" for n in range(4)]
        )
        rows += world.rows_to("plain", ["plain 3", "plain 4"], delivery="recoverable")
        rows += world.rows_to("stream-b", ["b key"], key="b 1", label="größer")
        rows += world.rows_to(f"{world.PEER}many-1,{world.PEER}many-2", ["many"])
        rows += world.rows_to("stream-t", ["t 0", "t 1"], transaction="one")
        assert world.commit("app", "3", rows)[0] == len(rows) + 1
        late = datetime.fromtimestamp(1_000_000_000, timezone.utc)
        expired = world.rows_to("late", ["too late"], time_to_reach_queue=late)
        assert world.commit("late", "1", expired, dead_letter_queue=world.DEAD)[0] == 1
        # Its row of the queue of dead letters is still owed: the ones of the paused queue stand before it.
        world.until(
            lambda: world.outgoing(world.PEER + "late").get("state") == "Disconnected",
            "it is a dead letter",
        )
        assert world.commit("held", "1", world.rows_to("held", ["held 0", "held 1"]))[0] == 2
        here.decide("pause", world.PEER + "held")
        self._to_service(6, 7)
        for number in range(1, 4):  # of another host: forwarded
            place = world.in_stream(40, number, to=f"{world.PEER}far-stream")
            assert world.send(place).status == 200
        for number in (201, 202):
            assert world.send(world.message("", 40, number, to=f"{world.PEER}far")).status == 200
        world.until(
            lambda: world.outgoing(world.PEER + "far-stream").get("queued") == 3,
            "the forwarded stream is outgoing",
        )
        world.until(
            lambda: world.outgoing(world.PEER + "far", "plain").get("queued") == 2,
            "the forwarded messages are",
        )
        self.expected["staged"] = world.stage_rows(
            "staged", "1", world.rows_to("stream-s", ["s 0", "s 1"])
        )

    def _locked(self) -> None:
        """Let a remote reader lock a row and never say what became of it."""
        self._machine = self._rpc()
        queue = self._machine.open(queue_format_for(world.HERE, world.RETRY), ACCESS_RECEIVE)
        _, answer = queue.start(Action.RECEIVE)
        assert answer.status == 0, hex(answer.status)

    # --- what the version says of it ----------------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Write down the status, all rows as readers get them, and the Delta state, when that has everything."""
        here = world.client()
        until = world.until
        until(lambda: here.status()["state"]["lag_seconds"] == 0, "the Delta state has everything")
        time.sleep(3)  # three intervals of the publisher: what only its next look finds
        status = here.status()
        self.expected["epoch"], self.expected["queue_manager"] = self.main.epoch, self.main.guid
        self.expected["status"] = status
        self.expected["made_at"] = time.time()
        queues = [each["name"] for each in here.queues()] + [
            "private$/order_queue$",
            "private$/forward$",
        ]
        (self.folder / "rows").mkdir()
        for number, queue in enumerate(sorted(set(queues))):
            rows = world.rows_of(queue, self.main.epoch)
            if rows is not None:
                with pa.ipc.new_file(
                    self.folder / "rows" / f"{number}.arrow", rows.schema
                ) as writer:
                    writer.write_table(rows)
        self.expected["journal"] = here.queue(f"{world.ORDERS};journal")
        self.expected["delta"] = {
            each.name: deltalake.DeltaTable(each).to_pyarrow_table().num_rows
            for each in sorted((self.folder / "state").iterdir()) if (each / "_delta_log").is_dir()
        }  # fmt: skip
        for table, columns in (
            ("dead_letter_queue", ["destination", "reason", "target", "body", "application"]),
            ("journal_queue", ["destination", "body"]),
            ("outgoing_queue", ["destination", "state", "body", "serial", "message_id"]),
        ):
            found = deltalake.DeltaTable(self.folder / "state" / table).to_pyarrow_table(
                columns=columns
            )
            self.expected[table] = [
                {
                    name: value.decode("latin-1") if isinstance(value, bytes) else value
                    for name, value in row.items()
                }
                for row in found.to_pylist()
            ]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


if __name__ == "__main__":
    main()
