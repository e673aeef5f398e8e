"""Finds out whether tests of PGM may use raw IP."""

from __future__ import annotations

import socket

from srmp_spark.queue_manager.multicast.sockets import PROTOCOL_PGM


def may_be_raw() -> bool:
    """Return whether this process may open a raw IP socket of PGM, which needs CAP_NET_RAW."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, PROTOCOL_PGM).close()
    except PermissionError:
        return False
    return True
