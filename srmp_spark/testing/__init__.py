"""Test your own pipelines with a real queue manager, a sender and a destination.

- :class:`RunningQueueManager` runs ``srmp-spark serve`` as a child process, on free ports of the
  loopback.
- :class:`ForeignSender` posts SRMP messages to a queue manager, as a Windows machine would.
- :class:`ForeignDestination` receives and acknowledges SRMP messages, as a Windows machine would,
  and keeps them.

*Foreign* means: written from the specification [MC-MQSRM] alone, in :mod:`.foreign`, without the
code of srmp-spark. :mod:`srmp_spark.testing.pytest_plugin` provides each of the three as a fixture:
``queue_manager``, ``sender`` and ``destination``. pytest finds the plugin wherever the package is
installed. The classes are imported when they are used, so that a run of pytest without these
fixtures loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srmp_spark.testing.destination import ForeignDestination, ReceivedMessage
    from srmp_spark.testing.queue_handle import QueueHandle
    from srmp_spark.testing.queue_manager import RunningQueueManager, ServeFailedError
    from srmp_spark.testing.sender import ForeignSender, PostRefusedError

__all__ = [
    "ForeignDestination",
    "ForeignSender",
    "PostRefusedError",
    "QueueHandle",
    "ReceivedMessage",
    "RunningQueueManager",
    "ServeFailedError",
]

_MODULES = {
    "ForeignDestination": "destination",
    "ReceivedMessage": "destination",
    "QueueHandle": "queue_handle",
    "RunningQueueManager": "queue_manager",
    "ServeFailedError": "queue_manager",
    "ForeignSender": "sender",
    "PostRefusedError": "sender",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
