"""Tokens with a name, queues and verbs (INTERFACE.md section 7): what an entry may say, a route asks, a caller hears."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests

from srmp_spark.errors import ApiError, ConfigurationError
from srmp_spark.names import OWN_QUEUES
from srmp_spark.queue_manager.api.app import routes
from srmp_spark.queue_manager.api.health import HealthApi
from srmp_spark.queue_manager.api.port_side.guard import OPEN_PATHS, authorize
from srmp_spark.queue_manager.api.port_side.router import ApiRoute, Extent
from srmp_spark.queue_manager.api.status import Transports
from srmp_spark.queue_manager.configuration.config import load
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig
from srmp_spark.queue_manager.metrics import SAMPLES_AT_ONCE, Gauge, Metrics, Readings
from srmp_spark.queue_manager.srmp_port.port_limits import API_CONNECTIONS_MAX
from srmp_spark.queue_manager.trust.tokens import BROAD_READ, VERBS, Token, Tokens, admin_token
from srmp_spark.testing.queue_manager import RunningQueueManager

SECRET = "0123456789abcdef-reader"
OTHER = "0123456789abcdef-writer"
NUMBERS = "0123456789abcdef-numbers"
NUMBERS_OF_ORDERS = "0123456789abcdef-numbers-of-orders"
QUERY = "0123456789abcdef-query"


def sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def config_of(directory: Path, text: str, **flags: Any) -> ServeConfig:
    file = directory / "config.toml"
    file.write_text(text)
    return load({"data_dir": "d", "config": str(file), **flags}, {})


def token(*verbs: Any, queues: tuple[str, ...] = ("*",)) -> Token:
    return Token(
        name="t",
        digest=hashlib.sha256(SECRET.encode()).digest(),
        queues=queues,
        verbs=frozenset(verbs),
    )


class TestConfiguration:
    def test_an_entry_by_file_or_by_digest(self, tmp_path: Path) -> None:
        file = tmp_path / "reader.token"
        file.touch(0o600)
        file.write_text(SECRET + "\n")
        text = f"""
[[token]]
name = "reader"
file = "{file}"
queues = ["PRIVATE$\\\\Orders", "private$/eu.*"]
verbs = ["read"]
[[token]]
name = "writer"
sha256 = "{sha256(OTHER)}"
verbs = ["enqueue", "admin"]
"""
        reader, writer = config_of(tmp_path, text).tokens
        assert reader.queues == ("private$/orders", "private$/eu.*")
        assert writer.queues == ("*",)
        assert sorted(writer.verbs) == ["admin", "enqueue"]
        assert (reader.verbs, reader.is_broad, writer.is_broad) == (BROAD_READ, True, False)
        tokens = Tokens((reader, writer))
        assert tokens.find(f"Bearer {SECRET}") is reader
        assert tokens.find(f"bearer  {OTHER} ".encode()) is writer
        for wrong in (
            SECRET,
            f"Basic {SECRET}",
            f"Bearer {SECRET}x",
            f"Bearer {sha256(SECRET)}",
            "Bearer",
            "",
            "Bearer ü",
        ):
            assert tokens.find(wrong) is None, wrong

    @pytest.mark.parametrize(
        ("entry", "text"),
        [
            ('sha256 = "{digest}"\nverbs = ["read"]', "name is"),
            ('name = "a b"\nsha256 = "{digest}"\nverbs = ["read"]', "name is"),
            ('name = "a"\nverbs = ["read"]', "give file or sha256"),
            (
                'name = "a"\nsha256 = "{digest}"\nfile = "f"\nverbs = ["read"]',
                "give file or sha256",
            ),
            ('name = "a"\nsha256 = "0123"\nverbs = ["read"]', "64 hexadecimal digits"),
            ('name = "a"\nfile = "/no/such"\nverbs = ["read"]', "cannot be read"),
            (
                'name = "a"\nsha256 = "{digest}"',
                "verbs is a list of metrics, browse, read, decide, enqueue, admin",
            ),
            ('name = "a"\nsha256 = "{digest}"\nverbs = []', "verbs is a list"),
            (
                'name = "a"\nsha256 = "{digest}"\nverbs = ["write"]',
                "unknown verb 'write'; known: metrics, browse, read, decide, enqueue, admin",
            ),
            ('name = "a"\nsha256 = "{digest}"\nverbs = ["read"]\nqueues = []', "queues is a list"),
            (
                'name = "a"\nsha256 = "{digest}"\nverbs = ["read"]\nqueues = ["a/b"]',
                "not a queue name",
            ),
            ('name = "a"\nsha256 = "{digest}"\nverb = ["read"]', "did you mean 'verbs'?"),
        ],
    )
    def test_what_is_wrong_is_said(self, entry: str, text: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=text.replace("?", r"\?")):
            config_of(tmp_path, "[[token]]\n" + entry.replace("{digest}", sha256(SECRET)))

    def test_names_and_secrets_are_unlike(self, tmp_path: Path) -> None:
        entry = '[[token]]\nname = "{}"\nsha256 = "{}"\nverbs = ["read"]\n'
        with pytest.raises(ConfigurationError, match="a is listed twice"):
            config_of(
                tmp_path, entry.format("a", sha256(SECRET)) + entry.format("a", sha256(OTHER))
            )
        with pytest.raises(ConfigurationError, match="a and b are the same token"):
            config_of(
                tmp_path, entry.format("a", sha256(SECRET)) + entry.format("b", sha256(SECRET))
            )
        (tmp_path / "token").touch(0o600)
        (tmp_path / "token").write_text(SECRET)
        with pytest.raises(ConfigurationError, match="are the same token"):
            config_of(
                tmp_path, entry.format("a", sha256(SECRET)), token_file=str(tmp_path / "token")
            )

    def test_no_repr_and_no_error_shows_a_secret(self, tmp_path: Path) -> None:
        (tmp_path / "token").touch(0o600)
        (tmp_path / "token").write_text(SECRET)
        config = config_of(
            tmp_path,
            f'[[token]]\nname = "a"\nsha256 = "{sha256(OTHER)}"\nverbs = ["read"]',
            token_file=str(tmp_path / "token"),
        )
        shown = repr(config) + repr(config.all_tokens()) + repr(admin_token(SECRET))
        for secret in (
            SECRET,
            OTHER,
            sha256(OTHER),
            sha256(SECRET),
            repr(bytes.fromhex(sha256(SECRET))),
        ):
            assert secret not in shown
        with pytest.raises(ConfigurationError) as error:
            config_of(tmp_path, f'[[token]]\nname = "a"\nsha256 = "{SECRET}"\nverbs = ["read"]')
        assert SECRET not in str(error.value)


def every_route() -> list[ApiRoute]:
    manager = cast("Any", object())
    health = HealthApi(manager, Transports(lambda sees: [], None), listening=[], api="")
    return routes(manager, health, None)


class TestRoutes:
    def test_every_route_says_what_it_takes(self) -> None:
        found = every_route()
        assert len(found) > 25
        for route in found:
            verb, extent, default_verb = route.access
            assert verb in (*VERBS, "any", "none"), route.path
            takes_rows = route.method == "POST" and "{consumer}" in route.path
            assert (default_verb == "decide") is takes_rows is (verb == "read"), route.path
            assert (verb == "none") is (extent is Extent.NOBODY) is (route.path in OPEN_PATHS), (
                route.path
            )
            assert (verb in ("any", "metrics")) is (extent is Extent.SEEN), route.path
            assert (extent is Extent.QUEUE) is ("{queue}" in route.path), route.path
            if route.method in ("PUT", "DELETE") and "{queue}" in route.path:
                assert verb == "admin", route.path
        assert {route.path for route in found if route.access.verb == "any"} == {
            "/v1/status",
            "/v1/queues",
        }

    @pytest.mark.parametrize(
        "route", every_route(), ids=lambda route: f"{route.method} {route.path}"
    )
    def test_it_takes_its_verb_and_its_queue(self, route: ApiRoute) -> None:
        """Whoever has everything else is refused, in words that name what is missing."""
        verb, extent, _ = route.access
        parameters = {"queue": "Private$\\Orders"} if extent is Extent.QUEUE else {}
        authorize(None, route.access, parameters)
        authorize(token(*VERBS), route.access, parameters)
        if verb in ("any", "none"):
            authorize(token("read", queues=("other",)), route.access, parameters)
            return
        authorize(token(verb), route.access, parameters)
        others = token(*(set(VERBS) - {verb}))
        elsewhere = token(*VERBS, queues=("private$/orders.archive", "private$/payments*"))
        for refused in (others,) if extent is Extent.SEEN else (others, elsewhere):
            with pytest.raises(ApiError) as error:
                authorize(refused, route.access, parameters)
            assert (error.value.status, error.value.code) == (403, "forbidden")
            assert verb in error.value.message
            if extent is Extent.QUEUE:
                assert "private$/orders" in error.value.message
                authorize(token(verb, queues=("private$/o*",)), route.access, parameters)
            assert f'verbs must hold "{verb}"' in error.value.hint


class TestTheConsumerDefault:
    """Its marks decide the receipts, so they have a verb of their own."""

    @pytest.mark.parametrize("action", ["register", "received", "release"])
    def test_read_takes_rows_as_any_consumer_but_this_one(self, action: str) -> None:
        path = f"/v1/queues/{{queue}}/consumers/{{consumer}}/{action}"
        (access,) = (each.access for each in every_route() if each.path == path)
        mine, default = (
            {"queue": "private$/orders", "consumer": each} for each in ("a", "default")
        )
        authorize(token("read"), access, mine)
        authorize(token("decide"), access, default)
        with pytest.raises(ApiError, match="has not the verb decide for queue") as error:
            authorize(token(*(set(VERBS) - {"decide"})), access, default)
        assert "read as another consumer" in error.value.hint
        with pytest.raises(ApiError, match="has not the verb read for queue"):
            authorize(token(*(set(VERBS) - {"read"})), access, mine)


@pytest.mark.parametrize(
    ("verbs", "allowed", "is_broad"),
    [
        (["read"], BROAD_READ, True),
        (["read", "enqueue"], BROAD_READ | {"enqueue"}, True),
        (["admin", "enqueue"], {"admin", "enqueue"}, False),
        (["browse", "read"], {"browse", "read"}, False),
        (["read", "metrics"], {"read", "metrics"}, False),
        (["metrics"], {"metrics"}, False),
    ],
)
def test_an_entry_of_0_1_keeps_its_meaning(
    tmp_path: Path, verbs: list[str], allowed: set[str], is_broad: bool
) -> None:
    entry = f'[[token]]\nname = "a"\nsha256 = "{sha256(SECRET)}"\nverbs = {verbs}\n'
    (found,) = config_of(tmp_path, entry).tokens
    assert (found.verbs, found.is_broad) == (allowed, is_broad)


def test_a_token_for_a_queue_is_one_for_its_journal_and_no_other() -> None:
    (route,) = (
        each
        for each in every_route()
        if (each.method, each.path) == ("GET", "/v1/queues/{queue}/rows")
    )
    reader = token("browse", queues=("private$/orders",))
    authorize(reader, route.access, {"queue": "private$/Orders;Journal"})
    with pytest.raises(ApiError, match="for queue private\\$/payments"):
        authorize(reader, route.access, {"queue": "private$/payments;journal"})


def test_our_own_queues_are_for_a_token_that_names_them_or_is_for_all() -> None:
    """Other people's mail stands in ``private$/forward$``: ``private$/*`` means what applications read."""
    for queue in OWN_QUEUES:
        assert not token("read", queues=("private$/*", "private$/*$", "?*")).allows("read", queue)
        assert token("read", queues=("private$/*", queue)).allows("read", queue)
        assert token("read", queues=("*",)).allows("read", queue)
    assert token("read", queues=("private$/*",)).allows("read", "private$/orders$")


def test_at_a_real_queue_manager(start: Callable[..., RunningQueueManager], tmp_path: Path) -> None:
    admin = tmp_path / "admin.token"
    admin.touch(0o600)
    admin.write_text("0123456789abcdef-admin")
    config = tmp_path / "config.toml"
    config.write_text(f"""
[[token]]
name = "orders-reader"
sha256 = "{sha256(SECRET)}"
queues = ["private$/orders"]
verbs = ["read"]
[[token]]
name = "orders-writer"
sha256 = "{sha256(OTHER)}"
queues = ["private$/o*"]
verbs = ["enqueue"]
[[token]]
name = "numbers"
sha256 = "{sha256(NUMBERS)}"
verbs = ["metrics"]
[[token]]
name = "numbers-of-orders"
sha256 = "{sha256(NUMBERS_OF_ORDERS)}"
queues = ["private$/orders"]
verbs = ["metrics"]
[[token]]
name = "query"
sha256 = "{sha256(QUERY)}"
verbs = ["browse", "read"]
""")
    running = start(
        queues=["private$/orders", "private$/payments"],
        token_file=admin,
        config=config,
        queue_quota_bytes=1_000_000,
        machine_quota_bytes=2_000_000,
    )
    base = f"{running.api}/v1"

    def call(method: str, path: str, token: str | None, **keywords: Any) -> requests.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return requests.request(method, f"{base}/{path}", headers=headers, timeout=20, **keywords)

    message = {"body_base64": "eA=="}
    assert call("POST", "queues/private$%2Forders/messages", OTHER, json=message).status_code == 200
    assert (
        call(
            "POST", "queues/private$%2Fpayments/messages", "0123456789abcdef-admin", json=message
        ).status_code
        == 200
    )

    unknown = call("GET", "status", "0123456789abcdef-nobody")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (401, "token")
    assert call("GET", "status", None).status_code == 401
    assert unknown.headers["WWW-Authenticate"] == "Bearer"

    for path, verb, queue in (
        ("queues/private$%2Forders/messages", "enqueue", "private$/orders"),
        ("queues/private$%2Forders/purge", "admin", "private$/orders"),
        ("queues/private$/payments/consumers/default/register", "decide", "private$/payments"),
        ("queues/private$/payments/consumers/mine/register", "read", "private$/payments"),
    ):
        refused = call("POST", path, SECRET, json=message)
        assert refused.status_code == 403, path
        said = refused.json()["error"]
        assert said["message"] == f"token orders-reader has not the verb {verb} for queue {queue}"
        assert f'"{verb}"' in said["hint"]
    assert call("GET", "queues/private$%2Forders/range?after=0", SECRET).json()["end"] == 1
    assert call("GET", "queues/private$%2Forders/range?after=0", OTHER).status_code == 403
    assert call("POST", "outgoing/messages", OTHER, json=[]).status_code == 403

    def metrics(token: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return requests.get(f"{running.api}/metrics", headers=headers, timeout=20)

    assert metrics(OTHER).status_code == 403
    assert 'srmp_messages_accepted_total{queue="private$/payments"' in metrics(NUMBERS).text
    for of_orders in (metrics(NUMBERS_OF_ORDERS).text, metrics(SECRET).text):
        assert 'srmp_messages_accepted_total{queue="private$/orders"' in of_orders
        assert "srmp_state_lag_seconds " in of_orders
        for hidden in ("payments", "srmp_disk_free_bytes", "srmp_accept_seconds", "srmp_outgoing"):
            assert hidden not in of_orders
    for path in ("queues/private$/orders", "queues/private$/orders/rows?after=0&to=1"):
        assert call("GET", path, NUMBERS).status_code == 403, path
        assert call("GET", path, QUERY).status_code == 200, path
    registering = {"from": 1, "holder": "a test"}
    for consumer, status in (("default", 403), ("mine", 200)):
        path = f"queues/private$/orders/consumers/{consumer}/register"
        body = registering | {"epoch": call("GET", "status", QUERY).json()["epoch"]}
        assert call("POST", path, QUERY, json=body).status_code == status, consumer
    assert requests.get(f"{running.api}/healthz", timeout=20).status_code == 200

    seen = call("GET", "status", SECRET).json()
    assert [each["name"] for each in seen["queues"]] == ["private$/orders"]
    assert [each["name"] for each in call("GET", "queues", OTHER).json()["queues"]] == [
        "private$/orders"
    ]
    unread = {"order_queue_bytes": 512 * 1_048_576}
    assert seen["quota"] == {
        "queue_bytes": 1_000_000,
        "machine_bytes": None,
        "machine_bytes_waiting": None,
        **unread,
    }
    everything = call("GET", "status", "0123456789abcdef-admin").json()
    assert everything["quota"]["machine_bytes"] == 2_000_000
    assert everything["quota"]["machine_bytes_waiting"] > 0, "what waits in queues of others too"
    assert {each["name"] for each in everything["queues"]} >= {
        "private$/orders",
        "private$/payments",
    }

    near = {
        token: call("POST", "queues/private$%2Forder/messages", token, json=message).json()["error"]
        for token in (OTHER, "0123456789abcdef-admin")
    }
    assert all("did you mean 'private$/orders'" in each["hint"] for each in near.values())
    # Of two that are near, the nearer one is not for this token.
    call("PUT", "queues/private$%2Fxorders1", "0123456789abcdef-admin", json={})
    said = call("POST", "queues/private$%2Forders1/messages", OTHER, json=message).json()["error"]
    assert "xorders1" not in said["hint"]

    log = running.stderr()
    assert "token.broad name=orders-reader" in log
    assert "token.broad name=query" not in log
    for secret in (SECRET, OTHER, "0123456789abcdef-admin", "0123456789abcdef-nobody"):
        assert secret not in log


def test_one_token_cannot_hold_all_connections(
    start: Callable[..., RunningQueueManager], tmp_path: Path
) -> None:
    """More long polls than the port has places, all of one token and over one proxy: another token is answered."""
    admin, config = tmp_path / "admin.token", tmp_path / "config.toml"
    admin.touch(0o600)
    admin.write_text("0123456789abcdef-admin")
    entry = (
        f'name = "poller"\nsha256 = "{sha256(SECRET)}"\nqueues = '
        '["private$/orders"]\nverbs = ["read"]\n'
    )
    config.write_text(f"[[token]]\n{entry}")
    running = start(queues=["private$/orders"], token_file=admin, config=config)
    host, _, port = running.api.partition("://")[2].rpartition(":")
    poll = (
        "GET /v1/queues/private$%2Forders/range?after=0&wait=10 HTTP/1.1\r\n"
        f"Host: {host}:{port}\r\nAuthorization: Bearer {SECRET}\r\n\r\n"
    ).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(API_CONNECTIONS_MAX + 50):
            connection = stack.enter_context(
                socket.create_connection((host, int(port)), timeout=20)
            )
            with contextlib.suppress(OSError):  # its place may be another's already
                connection.sendall(poll)
        began = time.monotonic()
        headers = {"Authorization": "Bearer 0123456789abcdef-admin"}
        assert (
            requests.get(f"{running.api}/v1/status", headers=headers, timeout=5).status_code == 200
        )
        assert time.monotonic() - began < 5, "half of a poll"
        refused = requests.get(
            f"{running.api}/v1/queues/private$%2Forders/range?after=0",
            headers={"Authorization": f"Bearer {SECRET}"},
            timeout=5,
        )
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too-many-calls")
        assert "tokens of their own" in refused.json()["error"]["hint"]


def test_the_numbers_of_a_token_for_one_queue_of_ten_thousand_take_turns() -> None:
    """A token that sees little must not hold the loop longer, and what it may not see is not even read."""
    turns: list[None] = []

    async def turn() -> None:
        turns.append(None)

    def waiting() -> Iterator[tuple[tuple[str, ...], float]]:
        for number in range(10_000):
            yield (f"private$/q{number}", "default"), 1.0
            yield (f"private$/q{number};journal", "default"), 1.0

    def hidden() -> list[tuple[tuple[str, ...], float]]:
        raise AssertionError("it is about other queues")

    readings = Readings(
        counters=[Gauge("srmp_dead_letters", "Dead.", ("reason",), hidden)],
        gauges=[
            Gauge("srmp_queue_waiting", "Rows.", ("queue", "consumer"), waiting, is_long=True),
            Gauge("srmp_disk_free_bytes", "Bytes.", (), hidden),
        ],
    )
    work = cast("Any", SimpleNamespace(turn=turn))
    text = asyncio.run(Metrics().text(readings, work, lambda queue: queue == "private$/q77"))
    seen = re.findall(r'^srmp_queue_waiting{.*queue="([^"]+)"', text.decode(), re.MULTILINE)
    assert seen == ["private$/q77", "private$/q77;journal"]
    assert len(turns) >= 20_000 // SAMPLES_AT_ONCE
