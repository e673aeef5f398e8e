"""Subscriptions of a real queue manager that lead back to itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from remote_kit import Served
from test_pulling_live import rows, until

from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.errors import ApiError
from srmp_spark.mqrr.remote_host import RemoteHost
from srmp_spark.queue_manager.configuration.endpoint import Endpoint
from srmp_spark.queue_manager.configuration.subscriptions import Subscription, parse_subscription
from srmp_spark.queue_manager.puller.circles import CircleError, Circles

PORT = 2103
HERE = ("127.0.0.1", PORT)


def reads(queue: str, to: str, host: str = "127.0.0.1") -> Subscription:
    return parse_subscription(
        "here", {"host": f"{host}:{PORT}", "queue": queue, "to": to, "auth_level": "none"}
    )


def entry(
    served: Served, queue: str, to: str, mode: str = "copy", host: str = "127.0.0.1"
) -> dict[str, str | None]:
    name = "DIRECT=OS:host1\\" + queue.replace("/", "\\")
    return {"host": f"{host}:{served.rpc[1]}", "queue": name, "to": to, "mode": mode}


@pytest.mark.parametrize("mode", ["copy", "move"])
@pytest.mark.parametrize("journal", ["", ";journal"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_queue_is_not_read_into_itself(served: Served, mode: str, journal: str, host: str):
    queue = served.queue(journal=True)
    with pytest.raises(ApiError, match="without end") as refused:
        SubscriptionsClient(served.api).subscribe(entry(served, queue + journal, queue, mode, host))
    assert (refused.value.status, refused.value.code) == (409, "circle")


def test_subscriptions_of_one_queue_manager_may_be_a_chain_and_no_circle(served: Served):
    one, two, three = (served.queue() for _ in range(3))
    client = SubscriptionsClient(served.api)
    added = [(one, two), (two, three)]
    try:
        for queue, to in added:
            client.subscribe(entry(served, queue, to))
        served.send(one, 1)
        until(lambda: len(rows(served, three)) == 1)
        with pytest.raises(
            ApiError,
            match=f"{one} is read into {two} is read into {three} is read into {one}|without end",
        ):
            client.subscribe(entry(served, three, one))
    finally:
        for queue, to in added:
            client.unsubscribe(
                str(entry(served, queue, to)["host"]), str(entry(served, queue, to)["queue"])
            )
    until(lambda: not client.subscriptions())
    client.subscribe(entry(served, three, one))  # there is no circle any more
    client.unsubscribe(
        str(entry(served, three, one)["host"]), str(entry(served, three, one)["queue"])
    )


@pytest.mark.parametrize("mode", ["copy", "move"])
def test_a_configured_circle_is_told_and_multiplies_nothing(
    tmp_path: Path, start: Callable[..., Served], mode: str
):
    """The configuration file says what the port is only when it is known; the connection shows where it leads."""
    one, two = "private$/one", "private$/two"
    config = tmp_path / "qm.toml"
    config.write_text("")
    served = start("a", queues=[one, two], config=config)
    served.stop()
    port = served.rpc[1]

    def table(queue: str, to: str) -> str:
        name = "DIRECT=OS:host1\\" + queue.replace("/", "\\")
        return (
            f"[[subscription]]\nhost = \"127.0.0.1:{port}\"\nqueue = '{name}'\nmode = "
            f'"{mode}"\nto = "{to}"\n'
        )

    config.write_text(table(one, two) + table(two, one))
    served.start()

    def refused() -> list[dict[str, Any]]:
        return [
            each
            for each in served.client.status()["subscriptions"]
            if "without end" in str(each["last_error"])
        ]

    until(lambda: len(refused()) == 1)
    served.send(one, 1)
    time.sleep(5.0)  # two walks of a copy
    assert len(refused()) == 1
    assert len(rows(served, one)) <= 2
    assert len(rows(served, two)) <= 1


def test_where_a_connection_leads_counts_and_not_its_name():
    circles = Circles(Endpoint("0.0.0.0", PORT))
    circles.enter(reads("private$\\a", "private$/b", "elsewhere.example"), HERE)
    with pytest.raises(
        CircleError, match=r"private\$/b is read into private\$/a is read into private\$/b"
    ):
        circles.enter(
            reads("private$\\b", "private$/a", "another.example"), ("::ffff:127.0.0.1", PORT)
        )
    circles.enter(
        reads("private$\\b", "private$/a"), ("192.0.2.1", PORT)
    )  # no address of this machine
    circles.enter(
        reads("private$\\b", "private$/a"), ("127.0.0.1", PORT + 1)
    )  # another queue manager of this machine


def test_one_that_ended_or_changed_its_way_is_no_part_of_a_circle():
    circles = Circles(Endpoint("127.0.0.1", PORT))
    first = reads("private$\\a", "private$/b")
    back = reads("private$\\b", "private$/a")
    circles.enter(first, HERE)
    circles.enter(first, HERE)
    circles.leave(first)
    circles.enter(back, HERE)
    with pytest.raises(CircleError):
        circles.enter(first, HERE)
    circles.enter(
        reads("private$\\b", "private$/c"), HERE
    )  # the same subscription, with another queue to fill
    circles.enter(first, HERE)


@pytest.mark.parametrize(
    ("endpoint", "host", "leads_here"),
    [
        (Endpoint("127.0.0.1", PORT), RemoteHost("localhost", PORT), True),
        (Endpoint("::", PORT), RemoteHost("::1", PORT), True),
        (Endpoint("127.0.0.1", PORT), RemoteHost("127.0.0.1", PORT + 1), False),
        (Endpoint("127.0.0.1", PORT), RemoteHost("127.0.0.1", None), False),
        (Endpoint("127.0.0.1", PORT), RemoteHost("no.such.host.invalid", PORT), False),
        (None, RemoteHost("127.0.0.1", PORT), False),
    ],
)
def test_which_hosts_are_this_queue_manager(
    endpoint: Endpoint | None, host: RemoteHost, leads_here: bool
):
    import asyncio

    async def judge() -> bool:
        return await Circles(endpoint).leads_here(host)

    assert asyncio.run(judge()) is leads_here
