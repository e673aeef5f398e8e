"""Manage all subscriptions: those of the configuration file, and those added at run time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError, ConfigurationError
from srmp_spark.interface import (
    DEFAULT_CONSUMER,
    CutoverEntry,
    ReceivedThere,
    SubscriptionEntry,
)
from srmp_spark.queue_manager.api.port_side.times import rfc3339
from srmp_spark.queue_manager.configuration.subscriptions import (
    SUBSCRIPTIONS_MAX,
    Subscription,
    parse_subscription,
    subscription_name,
)
from srmp_spark.queue_manager.puller.added import (
    Added,
    AddedRow,
    Passwords,
    forget_added,
    load_added,
    names_of_pulled,
    remove_added,
    store_added,
)
from srmp_spark.queue_manager.puller.circles import CircleError, Circles
from srmp_spark.queue_manager.puller.cutover.checking import check
from srmp_spark.queue_manager.puller.cutover.copied_rows import read_received_there
from srmp_spark.queue_manager.puller.cutover.holding import HeldElsewhereError
from srmp_spark.queue_manager.puller.gateway_side.pulled import PulledKey
from srmp_spark.queue_manager.puller.gateway_side.remotes import Remotes
from srmp_spark.queue_manager.puller.moving_and_copying.stored import StoredPullerState, load_left
from srmp_spark.queue_manager.puller.puller import Puller
from srmp_spark.queue_manager.queues.remote_queues import CutoverQuestion, Reading
from srmp_spark.store.database.set_aside import SetAside
from srmp_spark.store.tables import cutovers, held_subscriptions

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.store.database.transaction import Transaction

_SECTION = "INTERFACE.md section 7"

log = logging.getLogger(__name__)


class Pullers:
    """Starts, adds, removes and stops the subscriptions of one queue manager.

    "Idle" subscriptions are known and cannot run, such as one whose stored messages cannot be read.
    """

    def __init__(self, manager: QueueManager, circles: Circles) -> None:
        self._manager = manager
        self._circles = circles
        self._remotes = Remotes()
        self._passwords = Passwords(manager.directory.path)
        self._pullers: dict[str, Puller] = {}
        """The pullers of the subscriptions that are not idle, by name."""
        self._idle: dict[str, SubscriptionEntry] = {}
        """Status entry of each idle subscription, by name."""
        self._held: dict[str, str] = {}
        """Reason why a subscription is on hold, by its name."""
        self._unreadable: set[str] = set()
        """Names of the idle subscriptions with stored messages that cannot be read."""
        self._admin = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self.is_ready = False
        """Whether the subscriptions are started."""

    async def start(self, configured: Sequence[Subscription]) -> None:
        """Create the missing local queues, and start all subscriptions that can run.

        The others are logged, and shown in ``status`` as idle. Raises :class:`ApiError` if the
        local queue of a configured subscription has the wrong kind or cannot be created.
        """
        manager = self._manager
        added = await manager.journal.transact(lambda each: load_added(each.connection))
        await self._find_held(configured, added)
        for each in configured:
            await manager.queues.create(each.to, transactional=False)
            left = await self._left(each.name)
            if left.unreadable:
                self._set_aside_unreadable(each.name, left, configured=True)
            else:
                self._pullers[each.name] = self._puller(each, left)
        pending, nameless = await manager.journal.transact(
            lambda each: names_of_pulled(each.connection)
        )
        self._tell_set_aside([*added.unreadable, *nameless])
        for damaged in added.unreadable:
            self._set_aside(
                damaged.key,
                pending.get(damaged.key, 0),
                f"its row in the store cannot be read: {damaged.reason}",
            )
        for row in added.rows:
            if row.name in self._pullers or row.name in self._unreadable:
                log.warning(
                    "subscription.configured name=%s: the configuration file takes precedence "
                    "over the subscription that was added",
                    row.name,
                )
                continue
            try:
                subscription = self._parse(row.entry, self._passwords.read(row.name))
                self._check(subscription, None)
                await manager.queues.create(subscription.to, transactional=False, made_for=row.name)
            except (ApiError, OSError, UnicodeDecodeError) as error:
                # The other subscriptions start nevertheless.
                self._set_aside(
                    row.name, pending.get(row.name, 0), f"it cannot be started: {error}"
                )
                continue
            left = await self._left(row.name)
            if left.unreadable:
                self._set_aside_unreadable(row.name, left, configured=False)
                continue
            self._put(self._puller(subscription, left, configured=False, removing=row.removing))
        for name, count in pending.items():
            if name not in self._pullers and name not in self._idle:
                left = await self._left(name)
                if left.unreadable:
                    self._set_aside_unreadable(name, left, configured=False)
                else:
                    self._set_aside(name, count, _lost_of(count))
        self.is_ready = True
        for puller in self._pullers.values():
            puller.start()

    async def _find_held(self, configured: Sequence[Subscription], added: Added) -> None:
        """Read from the store which subscriptions are on hold, and record the reason for each.

        The first start of a copied data directory holds all subscriptions that move messages.
        """
        names = {each.name for each in configured if each.mode == "move"}
        names |= {row.name for row in added.rows if row.entry.get("mode") != "copy"} | {
            each.key for each in added.unreadable
        }
        held = await self._manager.journal.transact(
            lambda each: held_subscriptions.name_all(each.connection, frozenset(names))
        )
        if held is not None:
            self._held = dict.fromkeys(held.names or (), held.because)

    async def stop(self) -> None:
        """Stop all subscriptions concurrently, and end their gateway.

        Each stop takes at most :data:`.puller.STOP_SECONDS` or so. No subscription can be added
        afterwards.
        """
        self._stopped = True
        await asyncio.gather(*(puller.stop() for puller in self._pullers.values()))
        for task in tuple(self._tasks):
            await task
        await self._remotes.stop()

    def __iter__(self) -> Iterator[Puller]:
        """Iterate over the pullers of the subscriptions that are not idle."""
        return iter(tuple(self._pullers.values()))

    def status(self) -> list[SubscriptionEntry]:
        """Return the list ``status.subscriptions``, with an entry for each subscription."""
        return [*(each.status() for each in self._pullers.values()), *self._idle.values()]

    def readings(self) -> Iterator[Reading]:
        """Yield the progress of each subscription that is not idle, for the metrics."""
        for each in self:
            given = each.subscription
            yield Reading(
                given.host.text, given.queue, each.pending, each.lag_seconds, each.taken_in_doubt
            )

    def _tell_set_aside(self, rows: Sequence[SetAside]) -> None:
        for each in rows:
            log.error(
                "store.set_aside table=%s key=%s reason=%s",
                each.table,
                ascii(each.key),
                ascii(each.reason),
            )
        self._manager.set_aside += rows

    def _set_aside_unreadable(
        self, name: str, left: StoredPullerState, *, configured: bool
    ) -> None:
        """Make a subscription idle, because a stored message of it cannot be read, and log this.

        If it were read, it could take the same message from the remote queue a second time.
        """
        self._tell_set_aside(left.unreadable)
        self._unreadable.add(name)
        why = (
            f"{len(left.unreadable)} messages that were taken there cannot be read by "
            "this release, and stay stored: "
            "nothing is read until a release that can read them starts; the first one: "
            f"{left.unreadable[0].reason}"
        )
        self._set_aside(name, len(left.kept) + len(left.unreadable), why, configured=configured)

    def _set_aside(self, name: str, pending: int, why: str, *, configured: bool = False) -> None:
        host, _, queue = name.partition("\\")
        self._idle[name] = {
            "host": host,
            "queue": queue,
            "mode": None,
            "to": None,
            "pulled": 0,
            "pending": pending,
            "doubtful": pending,
            "taken_in_doubt": 0,
            "unreadable": 0,
            "lag_seconds": None,
            "last_error": why,
            "failed_seconds": None,
            "configured": configured,
            "removing": False,
            "held": False,
            "received_there": 0,
            "undecided": 0,
        }
        log.warning(
            'subscription.idle name=%s pending=%d reason="%s"', name, pending, ascii(why)[1:-1]
        )

    def _puller(
        self,
        subscription: Subscription,
        left: StoredPullerState,
        *,
        configured: bool = True,
        removing: bool = False,
    ) -> Puller:
        """Build a puller, which is not started.

        A subscription that only copies is never on hold, because it takes nothing from the original
        of a copied data directory.
        """
        held = self._held.get(subscription.name) if subscription.mode == "move" else None
        return Puller(
            self._manager,
            subscription,
            left,
            self._circles,
            self._remotes,
            configured=configured,
            removing=removing,
            held=held,
        )

    async def _left(self, name: str) -> StoredPullerState:
        """Read the stored state of a subscription, after all changes so far are committed."""
        return await self._manager.journal.transact(lambda each: load_left(each.connection, name))

    # --- while it runs ----------------------------------------------------------------------------

    async def add(
        self, entry: Mapping[str, str], password: str | None
    ) -> tuple[SubscriptionEntry, bool]:
        """Add and start a subscription, or change the mode or credentials of an existing one.

        Return its status entry, and whether it is new. A subscription that is equal already stays
        as it is. Raises :class:`ApiError` if ``entry`` is invalid, another subscription is in the
        way (circle, same local queue, limit), or the existing one cannot become this one. Raises
        :class:`OSError` if the password cannot be stored.
        """
        async with self._admin:
            name = self._name(entry.get("host"), entry.get("queue"))
            there = self._pullers.get(name)
            self._raise_if_unreadable(name)
            if there is not None and there.configured:
                self._same_as_configured(there, entry)
                return there.status(), False
            if there is not None and "to" not in entry:
                entry = {**entry, "to": there.subscription.to}
            if password is None and entry.get("username"):
                password = self._passwords.read(name)
            wanted = self._parse(entry, password)
            if there is not None and there.subscription == wanted and not there.removing:
                return there.status(), False
            self._check(wanted, there)
            if there is not None:
                self._check_cutover(wanted, there, (DEFAULT_CONSUMER,))
            try:
                await self._circles.check(wanted)
            except CircleError as error:
                raise ApiError(409, "circle", str(error), section=_SECTION) from None
            if self._stopped:
                raise ApiError(503, "stopping", "the queue manager stops")
            manager = self._manager
            await manager.queues.create(wanted.to, transactional=False, made_for=name)
            try:
                self._passwords.write(name, password)
                if there is not None:
                    await there.stop()
                row = AddedRow(name, dict(entry), removing=False)
                await manager.journal.transact(lambda each: store_added(each.connection, row))
            except BaseException:
                if there is None:
                    await manager.queues.take_back(wanted.to, name)
                raise
            puller = self._puller(wanted, await self._left(name), configured=False)
            self._put(puller)
            self._idle.pop(name, None)
            puller.start()
            log.info("subscription.added name=%s mode=%s to=%s", name, wanted.mode, wanted.to)
            return puller.status(), there is None

    async def remove(
        self,
        host: str | None,
        queue: str | None,
        *,
        unused: bool = False,
        unsettled: str | None = None,
    ) -> SubscriptionEntry:
        """Remove a subscription, and return its status entry.

        The subscription takes no more messages. It is forgotten when its pending messages are
        settled, which may be after this call. With ``unused``, it is removed only if it never read
        from its queue. ``unsettled`` (``here`` or ``there``) states where the messages are that a
        cut-over in progress has not decided. Raises :class:`ApiError` if the subscription is
        unknown, configured, unreadable, used, or being cut over without ``unsettled``.
        """
        async with self._admin:
            name = self._name(host, queue)
            there = self._pullers.get(name)
            self._raise_if_unreadable(name)
            if there is None and name in self._idle:
                return await self._remove_idle(name)
            if there is None:
                raise self._unknown(host, queue)
            if there.configured:
                raise _configured(
                    there, "take its [[subscription]] out when `pending` is 0, and restart"
                )
            if there.removing:
                return there.status()
            if unused and not there.is_unused:
                raise _in_use(there)
            if there.cutover is not None and unsettled is None:
                raise _being_cut_over(there)
            await there.stop()
            # It may have begun to read while it was being stopped.
            if unused and not there.is_unused:
                await self._start_again(there)
                raise _in_use(there)
            await self._give_up_cutover(there, rows_are_here=unsettled == "here")
            await self._manager.journal.transact(lambda each: _remove_row(each, name))
            self._held.pop(name, None)
            left = await self._left(name)
            puller = self._puller(there.subscription, left, configured=False, removing=True)
            if puller.pending:
                self._put(puller)
                puller.start()
            else:
                self._pullers[name] = puller
                await self._forget(puller)
            log.info("subscription.removed name=%s pending=%d", name, puller.pending)
            return puller.status()

    async def resume_all(self) -> None:
        """Take every subscription off hold durably, and begin to pull.

        A subscription that is idle begins when a later start finds it in order.
        """
        async with self._admin:
            await self._manager.journal.transact(
                lambda each: held_subscriptions.release_all(each.connection)
            )
            for name in self._held:
                log.info("subscription.resumed name=%s", name)
            self._held.clear()
            for each in self:
                if each.is_held:
                    each.resume()

    async def _start_again(self, there: Puller) -> None:
        """Build and start the puller of a subscription again that was stopped."""
        left = await self._left(there.subscription.name)
        again = self._puller(there.subscription, left, configured=there.configured)
        self._put(again)
        again.start()

    async def _give_up_cutover(self, there: Puller, *, rows_are_here: bool) -> None:
        """Decide the copies of a stopped subscription by the operator's word, if it is cut over.

        If that fails, the subscription is started again, and the error is raised: for a consumer
        that another receiver holds, :class:`ApiError` (409).
        """
        if there.cutover is None:
            return
        try:
            await there.cutover.give_up(rows_are_here=rows_are_here)
        except BaseException as error:
            await self._start_again(there)
            if isinstance(error, HeldElsewhereError):
                raise ApiError(409, "reader-here", str(error), section=_SECTION) from None
            raise

    # --- the cut-over from copy to move -----------------------------------------------------------

    async def check_cutover(
        self, host: str | None, queue: str | None, asked: CutoverQuestion
    ) -> CutoverEntry:
        """Compare a remote queue with its copy, and return the result. Change nothing.

        Raises :class:`ApiError` if there is no such subscription, and :class:`StoreError` if the
        store cannot be read.
        """
        return await check(self._manager, self._known(host, queue), asked)

    async def cut_over(
        self, host: str | None, queue: str | None, consumers: tuple[str, ...]
    ) -> SubscriptionEntry:
        """Let a subscription that copies move from now on, durably, and return its status entry.

        ``consumers`` are not given what was received there. A subscription that moves already does
        not change. Raises :class:`ApiError` if the subscription is unknown, configured, being
        removed, or one of the consumers is held by a receiver.
        """
        async with self._admin:
            there = self._known(host, queue)
            if there.copier is None and not there.removing:
                return there.status()
            if there.configured:
                raise _configured(there, 'set mode = "move" there, and restart')
            name, manager = there.subscription.name, self._manager
            added = await manager.journal.transact(lambda each: load_added(each.connection))
            row = next((each for each in added.rows if each.name == name), None)
            if row is None or row.removing:
                raise self._unknown(host, queue)
            row = row._replace(entry={**row.entry, "mode": "move"})
            wanted = self._parse(row.entry, self._passwords.read(name))
            self._check_cutover(wanted, there, consumers)
            now = manager.clock.utc()
            await there.stop()

            def store(transaction: Transaction) -> None:
                store_added(transaction.connection, row)
                cutovers.begin(transaction.connection, name, consumers, now)

            await manager.journal.transact(store)
            puller = self._puller(wanted, await self._left(name), configured=False)
            self._put(puller)
            puller.start()
            log.info("subscription.cut_over name=%s consumers=%s", name, ",".join(consumers))
            return puller.status()

    async def received_there(
        self, host: str | None, queue: str | None, after: tuple[int, str] | None
    ) -> list[ReceivedThere]:
        """Return the next copied messages that were received there, one page.

        ``after`` has both identifiers of the last message of the page before. Raises
        :class:`ApiError` if there is no such subscription, and :class:`StoreError` if the store
        cannot be read.
        """
        name = self._known(host, queue).subscription.name
        key = None if after is None else PulledKey(*after)
        return [
            {
                "sequence": each.sequence,
                "message_id": each.message_id,
                "lookup_id": each.lookup_id,
                "gone_at": rfc3339(each.gone_at) or "",
            }
            for each in await read_received_there(self._manager.directory.path, name, key)
        ]

    def _known(self, host: str | None, queue: str | None) -> Puller:
        """Return the puller of a subscription. Raise :class:`ApiError` if there is none."""
        name = self._name(host, queue)
        self._raise_if_unreadable(name)
        there = self._pullers.get(name)
        if there is None:
            raise self._unknown(host, queue)
        return there

    def _check_cutover(
        self, wanted: Subscription, there: Puller, consumers: tuple[str, ...]
    ) -> None:
        """Raise :class:`ApiError` (409) if the mode cannot become that of ``wanted`` now.

        A cut-over that is not settled must go on. One that begins needs the consumers, so no
        receiver may hold them.
        """
        if there.cutover is not None and wanted.mode == "copy":
            raise _being_cut_over(there)
        has_copies = there.copier is not None and (there.undecided or there.received_there)
        queue = self._manager.catalogue.get(wanted.to)
        if wanted.mode == "copy" or not has_copies or queue is None:
            return
        now = self._manager.clock.monotonic()
        for name in consumers:
            consumer = queue.consumer(name)
            if consumer.is_held(now):
                raise ApiError(
                    409,
                    "reader-here",
                    f"{consumer.refusal().message}, and {there.undecided} messages that were "
                    f"copied to {wanted.to} may still be received there",
                    "stop that receiver, cut over, and start it again when the cut-over is settled",
                    _SECTION,
                )

    async def resume(self, host: str | None, queue: str | None) -> SubscriptionEntry:
        """Take a subscription off hold durably, begin to pull, and return its status entry.

        A subscription that is not on hold does not change. Raises :class:`ApiError` if the
        subscription is unknown, idle or unreadable.
        """
        async with self._admin:
            name = self._name(host, queue)
            there = self._pullers.get(name)
            self._raise_if_unreadable(name)
            if there is None:
                raise self._unknown(host, queue)
            if name in self._held:
                await self._manager.journal.transact(
                    lambda each: held_subscriptions.release(each.connection, name)
                )
                del self._held[name]
                log.info("subscription.resumed name=%s", name)
            if there.is_held:
                there.resume()
            return there.status()

    def _unknown(self, host: str | None, queue: str | None) -> ApiError:
        known = (
            ", ".join(
                f"{each.subscription.queue} of {each.subscription.host.text}" for each in self
            )
            or "none"
        )
        return ApiError(
            404,
            "no-subscription",
            f"nobody reads {queue} of {host}",
            f"there are: {known}",
            _SECTION,
        )

    async def _remove_idle(self, name: str) -> SubscriptionEntry:
        status = self._idle[name]
        if status["pending"]:
            raise ApiError(
                409,
                "pending",
                f"{status['pending']} messages of it were taken there and are no rows yet",
                "add it again as it was, and remove it when `pending` is 0; "
                f"{status['last_error']}",
                _SECTION,
            )
        await self._manager.journal.transact(lambda each: _forget_row(each, name))
        self._held.pop(name, None)
        self._passwords.write(name, None)
        return self._idle.pop(name)

    def _put(self, puller: Puller) -> None:
        self._pullers[puller.subscription.name] = puller
        puller.settled = partial(self._settled, puller)

    def _settled(self, puller: Puller) -> None:
        async def forget() -> None:
            async with self._admin:
                await self._forget(puller)

        task = asyncio.get_running_loop().create_task(forget())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forget(self, puller: Puller) -> None:
        name = puller.subscription.name
        if self._pullers.get(name) is not puller:
            # The subscription was added again meanwhile.
            return
        del self._pullers[name]
        await puller.stop()
        await self._manager.journal.transact(lambda each: _forget_row(each, name))
        self._held.pop(name, None)
        self._passwords.write(name, None)
        await self._manager.queues.take_back(puller.subscription.to, name)

    # --- what may be added ------------------------------------------------------------------------

    def _raise_if_unreadable(self, name: str) -> None:
        if name in self._unreadable:
            raise ApiError(
                409,
                "set-aside",
                str(self._idle[name]["last_error"]),
                "start the release that stored them, or restore; status.set_aside names them",
                _SECTION,
            )

    @staticmethod
    def _name(host: object, queue: object) -> str:
        try:
            return subscription_name("subscription", host, queue)
        except ConfigurationError as error:
            raise ApiError(400, "usage", str(error), section=_SECTION) from None

    @staticmethod
    def _parse(entry: Mapping[str, str], password: str | None) -> Subscription:
        try:
            return parse_subscription("subscription", entry, password)
        except ConfigurationError as error:
            raise ApiError(400, "usage", str(error), section=_SECTION) from None

    @staticmethod
    def _same_as_configured(there: Puller, entry: Mapping[str, str]) -> None:
        """Raise :class:`ApiError` (409) if ``entry`` has another mode or ``to`` than configured.

        Credentials are not compared, because they are the operator's.
        """
        given = there.subscription
        for key, value in (("mode", given.mode), ("to", given.to)):
            if entry.get(key, value) != value:
                raise ApiError(
                    409,
                    "configured",
                    f"{given.queue} of {given.host.text} has {key} = {value!r} in the "
                    "configuration file",
                    f"change it there, and restart, or leave {key} out",
                    _SECTION,
                )

    def _check(self, wanted: Subscription, there: Puller | None) -> None:
        if there is None and len(self._pullers) >= SUBSCRIPTIONS_MAX:
            raise ApiError(
                409,
                "too-many",
                f"SUBSCRIPTIONS_MAX is {SUBSCRIPTIONS_MAX}",
                "remove one first",
                _SECTION,
            )
        if there is not None and there.subscription.to != wanted.to:
            raise ApiError(
                409,
                "subscription-differs",
                f"{wanted.queue} of {wanted.host.text} is read into "
                f"{there.subscription.to} already, not into {wanted.to}",
                "remove it first: `srmp-spark subscribe remove`; what is there then is read anew",
                _SECTION,
            )
        for each in self:
            other = each.subscription
            if each is not there and other.to == wanted.to:
                raise ApiError(
                    409,
                    "to-is-taken",
                    f"{wanted.to} is filled from {other.queue} of {other.host.text}",
                    "give another `to` (`--to`): each remote queue needs a local queue of its own",
                    _SECTION,
                )


def _forget_row(transaction: Transaction, name: str) -> None:
    forget_added(transaction.connection, name)
    held_subscriptions.release(transaction.connection, name)


def _remove_row(transaction: Transaction, name: str) -> None:
    """Mark a subscription in the database as being removed, and take it off hold.

    The subscription must run again, because the operator wants to know what happened to its pending
    messages.
    """
    remove_added(transaction.connection, name)
    held_subscriptions.release(transaction.connection, name)


def _configured(there: Puller, hint: str) -> ApiError:
    given = there.subscription
    said = f"{given.queue} of {given.host.text} stands in the configuration file"
    return ApiError(409, "configured", said, hint, _SECTION)


def _being_cut_over(there: Puller) -> ApiError:
    given = there.subscription
    return ApiError(
        409,
        "cutover",
        f"{given.queue} of {given.host.text} is being cut over: of {there.undecided} copied "
        "messages it is not decided who received them",
        "wait until `srmp-spark subscribe cutover --check` says moved. If the other machine does "
        "not come back: subscribe remove --unsettled here gives their rows to the readers here, "
        "--unsettled there marks them as received there",
        _SECTION,
    )


def _in_use(there: Puller) -> ApiError:
    given = there.subscription
    return ApiError(
        409,
        "subscription-in-use",
        f"{given.queue} of {given.host.text} was read from",
        "remove it without `unused`",
        _SECTION,
    )


def _lost_of(count: int) -> str:
    return (
        f"{count} messages that were taken there are no rows yet, and there is no "
        "subscription of this host and queue any "
        "more: put it back, with its host and queue as they were written, until `pending` is 0"
    )
