"""A name becomes addresses, and they are remembered for a while."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from srmp_spark.queue_manager.posting.lookups import Remembered, resolve, resolve_blocking

ENTRIES = [
    (socket.AF_INET, kind, 6, "", (host, 80))
    for host in ("192.0.2.2", "192.0.2.1", "192.0.2.2")
    for kind in (1, 2)
]


def both(host: str) -> tuple[Any, Any]:
    """What either way of waiting finds."""
    return resolve_blocking(host, 80), asyncio.run(resolve(host, 80))


def test_each_address_once_in_the_resolvers_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: ENTRIES)
    assert both("orders.example") == (("192.0.2.2", "192.0.2.1"),) * 2


@pytest.mark.parametrize(
    "error", [socket.gaierror(-2, "Name or service not known"), OSError(24, "Too many open files")]
)
def test_a_host_without_an_address_is_no_error(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert both("none.example") == ((), ())


def test_nor_is_a_name_that_cannot_be_one() -> None:
    assert both("a" * 64 + ".\u4e00") == ((), ())


def test_what_was_found_is_remembered_for_its_time_and_the_oldest_is_forgotten_first() -> None:
    now = 0.0
    known = Remembered(2, lambda: now)
    known.put("a", ("192.0.2.1",), 10.0)
    known.put("none", (), 1.0)
    assert (known.get("a"), known.get("none"), known.get("other")) == (("192.0.2.1",), (), None)
    now = 1.0
    assert (known.get("a"), known.get("none")) == (("192.0.2.1",), None)
    known.put("a", ("192.0.2.1",), 10.0)
    known.put("b", ("192.0.2.2",), 10.0)
    assert len(known) == 2
    assert known.get("a") == ("192.0.2.1",), "asked for later than none"
