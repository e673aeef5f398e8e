"""Create the queues that the configuration names, when a queue manager starts."""

from __future__ import annotations

import logging

from srmp_spark.errors import ApiError, ConfigurationError, StoreError, with_hint
from srmp_spark.names import FORWARD_QUEUE, ORDER_QUEUE, canonical_queue_name
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.queue_manager.trust.writers import NO_HOST_ADVICE, open_forwarding

log = logging.getLogger(__name__)


async def ensure_queues(manager: QueueManager) -> None:
    """Create the queues that the configuration names and this queue manager's own queues.

    The own queues are the order queue and, if forwarding is on, the forward queue. A queue that
    exists keeps its messages. Empty subqueues that a kill left behind are removed, and doubtful
    settings of forwarding are logged. Raises :class:`ConfigurationError` if a queue exists with
    another kind or cannot be created.
    """
    wanted = [
        (ORDER_QUEUE, False),
        *((spec.name, spec.transactional) for spec in manager.config.queue),
    ]
    if manager.config.forwarding.is_on:
        wanted.insert(1, (FORWARD_QUEUE, False))
        if manager.config.store_and_forward and not manager.config.allow_url:
            log.warning("forward.no_host: %s", NO_HOST_ADVICE)
        if (overlooked := open_forwarding(manager.config.writer)) is not None:
            log.warning("forward.open: %s", overlooked)
    for name, transactional in wanted:
        await _ensure_queue(manager, name, transactional=transactional)
    for spec in manager.config.queue:
        if spec.journal:
            await _ensure_queue(manager, spec.name, transactional=spec.transactional, journal=True)
        if spec.multicast is not None:
            manager.receiver.queues[spec.name].multicast = str(spec.multicast)
    # Remove subqueues that are empty after a kill, because no client has them open.
    await manager.queues.subqueues.look()


async def _ensure_queue(
    manager: QueueManager, name: str, *, transactional: bool, journal: bool | None = None
) -> None:
    try:
        await manager.queues.create(
            canonical_queue_name(name), transactional=transactional, journal=journal
        )
    except (ApiError, StoreError) as error:
        message = (
            with_hint(error.message, error.hint) if isinstance(error, ApiError) else str(error)
        )
        if isinstance(error, ApiError) and error.code == "queue-kind":
            message += f" (start it without --queue {name} for that)"
        raise ConfigurationError(f"--queue {name}: {message}") from None
