"""The sender process: a child of the queue manager that owns the outbox and all sending.

See :mod:`.link` for the other side. The process waits for the lock of the outbox until the previous
sender process has ended. :mod:`srmp_spark.queue_manager.child.process` describes how the process
starts and ends.

    python -m srmp_spark.queue_manager.sender.process FD < SETTINGS

SETTINGS are :class:`.crossing.SenderProcessSettings`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop

from srmp_spark.clock import SystemClock
from srmp_spark.errors import StoreError
from srmp_spark.interface import exit_code_of
from srmp_spark.queue_manager.child.packets import Start
from srmp_spark.queue_manager.child.process import run_child
from srmp_spark.queue_manager.sender.application_letters import (
    LetterQueueWarnings,
    takes_dead_letters,
)
from srmp_spark.queue_manager.sender.commands import SenderCommands
from srmp_spark.queue_manager.sender.crossing import SenderProcessSettings
from srmp_spark.queue_manager.sender.dispatcher import Dispatcher
from srmp_spark.queue_manager.sender.forward_rules import Rules, load_rules
from srmp_spark.queue_manager.sender.forwarder import Forwarder, ForwardLog
from srmp_spark.queue_manager.sender.receipts import ReceiptLog, read_mark, read_to
from srmp_spark.queue_manager.sender.reporting.sendings import tell_live
from srmp_spark.queue_manager.sender.reporting.snapshot import told
from srmp_spark.queue_manager.sender.sending_transports import TransportSettings
from srmp_spark.queue_manager.sender.store_thread import StoreThread
from srmp_spark.queue_manager.trust.tls import ClientTls
from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from srmp_spark.srmp.sending.receipts_address import ReceiptAddresses
from srmp_spark.srmp.sending.sender import Sender
from srmp_spark.store.outbox.outbox import Outbox
from srmp_spark.store.outbox.staging.loops import OwnQueues
from srmp_spark.store.outbox.tables import forward_place
from srmp_spark.store.outbox.tables.forward_place import ForwardPlace

IN_FLIGHT = 2
"""Messages of one outgoing queue that the engine hands out at one time.

One is on the network, and the next one is already encoded (:mod:`.connections`).
"""
GARBAGE_THRESHOLD = 50_000
"""Allocated objects after which Python searches for reference cycles.

Sending creates no cycles, and each search costs a pause.
"""
SWITCH_SECONDS = 0.001
"""Longest time that a thread keeps Python's global lock while others wait, in seconds.

Threads that hash or pack rows keep the lock. Threads that have written rows or read an answer wait
for it.
"""
SWEEP_SECONDS = 60.0
"""Interval at which expired data of the outbox is deleted, in seconds.

:meth:`.Outbox.sweep` does this in slices.
"""
SWEEP_PAUSE_SECONDS = 0.05
"""Pause between two slices of the deletion of expired data, in seconds."""

log = logging.getLogger(__name__)


def _die(error: StoreError) -> None:
    """Log ``error`` and end the process at once, with the exit code of the error.

    Called after a write or sync failed. An orderly end would write and sync again, on top of data
    that may be missing.
    """
    log.critical("sender.fatal %s", error)
    logging.shutdown()
    os._exit(exit_code_of(type(error)))


async def _sweep(outbox: Outbox, store: StoreThread, clock: SystemClock) -> None:
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        while await store.run(lambda: outbox.sweep(clock.utc()), later=True):
            await asyncio.sleep(SWEEP_PAUSE_SECONDS)


def _forwarder(
    outbox: Outbox,
    dispatcher: Dispatcher,
    settings: SenderProcessSettings,
    on_forwarded: Callable[[ForwardPlace], object],
    at: int,
) -> Forwarder:
    present = Rules(settings.redirect_in, settings.hosts)
    accepted_to = ForwardPlace(settings.epoch, settings.forward_end)
    rules = load_rules(
        outbox.database, present, accepted_to, forward_place.read_to(outbox.database), at
    )
    held = forward_place.held_because(outbox.database, accepted_to, settings.forward_waiting)
    if held is not None:
        log.error('forward.held because="%s"', held)
        outbox.look_for_set_aside()
    log_of_queue = ForwardLog(Path(settings.data_dir), settings.queue_manager, rules)
    read_to = forward_place.read_to(outbox.database)
    return Forwarder(
        dispatcher, outbox, log_of_queue, read_to, on_forwarded, is_held=held is not None
    )


async def run(control: socket.socket, settings: SenderProcessSettings) -> None:
    """Serve the main process until it closes its end of the socket, then store all changes.

    ``settings`` are those that :class:`.link.Outgoing` prepares. Raises :class:`StoreError` if the
    outbox cannot be opened.
    """
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    data_dir = Path(settings.data_dir)
    identity = settings.queue_manager
    outbox = Outbox.open(data_dir, queue_manager=identity, epoch=settings.epoch, at=clock.utc())
    outbox.waiting.takes_dead_letters = partial(takes_dead_letters, data_dir)
    outbox.stages.multicast = settings.multicast is not None
    if outbox.held:
        log.warning(
            "sender.held queues=%d: the data directory is a copy, so waiting messages may "
            "have been sent already; see `srmp-spark streams`",
            len(outbox.held),
        )
    sender = Sender.load(
        identity,
        SenderSettings(
            resend_table=settings.resend_table,
            retransmission_timeout=settings.retransmission_timeout,
            in_flight_max=IN_FLIGHT,
        ),
        outbox.queue_rows(),
        outbox.proof(),
        finals=outbox.finals(),
        last_stream_ordinal=outbox.last_stream_ordinal,
        serials_after=outbox.serials_after,
    )
    if settings.is_held:
        sender.hold_all(outbox.released())
    addresses = ReceiptAddresses(settings.receipts_key, settings.receipt_urls)
    for stream in sender.receipts_go_to(settings.receipts_url, addresses.replacement):
        log.warning(
            "sender.receipts_elsewhere destination=%s send_receipts_to=%s now=%s: the "
            "peer received the old address when the stream began; if the old address no "
            "longer leads here, run `srmp-spark streams reset --destination %s`",
            stream.key.destination,
            told(stream.receipts_url),
            told(addresses.replacement(stream.key.destination, settings.receipts_url)),
            stream.key.destination,
        )
    store = StoreThread(loop, _die)
    commands: SenderCommands
    dispatcher = Dispatcher(
        outbox,
        sender,
        store,
        ReceiptLog(data_dir, read_mark(outbox.database)),
        clock,
        receipts_url=settings.receipts_url,
        receipts_read_to=read_to(outbox.database),
        reserve=lambda count: commands.reserve(count),
        settings=TransportSettings(
            endpoint_of=settings.redirect_out.endpoint_of,
            tls=ClientTls(*(None if name is None else Path(name) for name in settings.tls)),
            multicast=settings.multicast,
            sessions=outbox.sessions(),
            poll_interval=settings.wsrm_poll_interval,
        ),
    )
    commands = SenderCommands(control, outbox, store, dispatcher, clock)
    forwarder = _forwarder(outbox, dispatcher, settings, commands.forwarded, clock.utc())
    commands.on_forward, commands.hold_forwarding = forwarder.note_new_rows, forwarder.hold
    commands.release_forwarding = forwarder.release
    commands.own_queues = OwnQueues(settings.queue_manager, settings.hosts)
    commands.letter_warning = LetterQueueWarnings(data_dir).warning
    dispatcher.on_dead = commands.dead_soon
    dispatcher.on_receipts_noted = commands.receipts_noted
    tasks = [
        loop.create_task(each)
        for each in (
            _sweep(outbox, store, clock),
            forwarder.run(),
            commands.forward_report.run(),
            dispatcher.same_queues.run(),
        )
    ]
    if settings.live:
        live = tell_live(data_dir, outbox.database.fence, sender, dispatcher.sendings, clock)
        tasks.append(loop.create_task(live))
    # Some receipts may have been answered 200 before this start. Sending begins when they are read.
    dispatcher.receipts_came()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)
    log.info("sender.ready queues=%d", len(sender))
    await commands.serve()
    for task in tasks:
        task.cancel()
    await dispatcher.stop()
    await store.run(outbox.close)
    log.info("sender.stopped position=%d", outbox.database.position)


def _serve(control: socket.socket, start: Start[SenderProcessSettings]) -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        uvloop.run(run(control, start.settings))
    except StoreError as error:
        _die(error)


if __name__ == "__main__":
    run_child(SenderProcessSettings, _serve)
