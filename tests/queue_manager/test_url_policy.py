"""Which URLs from messages are called (INTERFACE.md section 2, ``--allow-url``)."""

from __future__ import annotations

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import split_url
from srmp_spark.queue_manager.posting.url_policy import (
    Allowed,
    Blocked,
    UrlPattern,
    UrlPolicy,
    address_of,
    split_receipt_url,
)
from srmp_spark.queue_manager.trust.tls import host_of_sender

SENDER = "192.0.2.7"
NOTHING_ALLOWED = UrlPolicy([])


def decide(
    url: str,
    resolved: list[str],
    *,
    patterns: list[str] | None = None,
    peer: str = SENDER,
    tls: str | None = None,
) -> Allowed | Blocked:
    policy = UrlPolicy([UrlPattern.parse(each) for each in patterns or []])
    return policy.decide(split_receipt_url(url), resolved, peer=peer, tls_name=tls)


def test_the_sender_s_own_address_is_called_and_pinned() -> None:
    assert decide("http://machine1/msmq/private$/order_queue$", [SENDER]) == Allowed(SENDER)
    assert decide("http://machine1/q", ["198.51.100.1", SENDER]) == Allowed(SENDER), (
        "the address that was judged, not the first"
    )
    assert decide(f"http://{SENDER}:8080/q", [SENDER]) == Allowed(SENDER)
    assert decide("http://machine1/q", ["::ffff:192.0.2.7"]) == Allowed("::ffff:192.0.2.7"), (
        "IPv6-mapped is the same address"
    )


@pytest.mark.parametrize(
    ("pattern", "url"), [("http://peer./*", "http://peer/q"), ("http://peer/*", "http://PEER./q")]
)
def test_a_host_with_the_dot_of_an_absolute_name_is_the_same_host(pattern: str, url: str) -> None:
    """RFC 1034 3.1."""
    assert decide(url, ["198.51.100.1"], patterns=[pattern]) == Allowed("198.51.100.1")


def test_another_address_is_blocked_and_the_flag_is_named() -> None:
    blocked = decide("http://victim:8080/q", ["198.51.100.1"])
    assert isinstance(blocked, Blocked)
    assert (blocked.host, blocked.pattern) == ("victim", "http://victim:8080")
    assert decide("http://victim:8080/q", ["198.51.100.1"], patterns=[blocked.pattern]) == Allowed(
        "198.51.100.1"
    )


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "169.254.169.254",
        "fe80::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::ffff:169.254.169.254",
    ],
)
def test_loopback_and_link_local_need_a_pattern_even_for_the_sender_itself(address: str) -> None:
    blocked = decide("http://inside/q", [address], peer=address)
    assert isinstance(blocked, Blocked)
    assert "only by pattern" in blocked.reason
    assert decide(
        "http://inside/q", [address], peer=address, patterns=["http://inside"]
    ) == Allowed(address)


def test_the_tls_name_of_the_sender_may_be_called_where_it_resolves_to() -> None:
    assert decide("https://orders.example/q", ["198.51.100.1"], tls="Orders.Example") == Allowed(
        "198.51.100.1"
    )
    assert isinstance(
        decide("https://orders.example/q", ["127.0.0.1"], tls="orders.example"), Blocked
    )
    assert isinstance(
        decide("https://other.example/q", ["198.51.100.1"], tls="orders.example"), Blocked
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9@evil/q", "http://user:password@host/q", "file:///etc/passwd", "gopher://host/q", "ftp://host/q",
        "//host/q",
        "http:///q", "http://host:0/q", "http://host:99999/q", "http://ho st/q", "http://host/a\r\nX: y", "http://host/\x7f",
        "http://host/../q", "http://host/a/..", "http://host/%2e%2e/q", "http://host/a%2fb", "http://höst/q",
        "http://host/" + "a" * 3000, "javascript:alert(1)", "", "http://[::1/q", "http://host:80:80/q",
        "http://192.0.2.7%1.evil.example/q", "http://192.0.2.7%40evil.example/q", "http://host../q", "http://.host/q",
    ],
)  # fmt: skip
def test_urls_that_mislead_are_never_called(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        split_receipt_url(url)


@pytest.mark.parametrize(
    ("pattern", "url", "matches"),
    [
        ("http://h", "http://h/any/path", True),
        ("http://h", "http://h:80/", True),
        ("http://h", "http://h:81/", False),
        ("http://h", "https://h/", False),
        ("https://h", "https://h:443/x", True),
        ("http://h:*", "http://h:9999/x", True),
        ("http://h:8080", "http://h/x", False),
        ("http://H", "http://h/", True),
        ("http://h", "http://h.evil/", False),
        ("http://h", "http://xh/", False),
        ("http://h/msmq/*", "http://h/msmq/private$/a", True),
        ("http://h/msmq/*", "http://h/MSMQ/private$/a", True),
        ("http://h/msmq/*", "http://h/other", False),
        ("http://h/msmq", "http://h/msmq/a", False),
        ("http://h/msmq/a", "http://h/msmq/a?SenderStream=x", True),
        ("http://[::1]:*", "http://[::1]:5/q", True),
    ],
)
def test_a_pattern_is_matched_on_the_parsed_parts(pattern: str, url: str, matches: bool) -> None:
    assert UrlPattern.parse(pattern).matches(split_url(url)) is matches


@pytest.mark.parametrize(
    "text",
    [
        "h",
        "http://",
        "http://a*b",
        "http://*",
        "ftp://h",
        "http://h/a*b",
        "http://u@h",
        "http://h:0",
        "http://h/../x",
        "http://h?x",
    ],
)
def test_what_is_no_pattern_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError):
        UrlPattern.parse(text)


def test_a_backslash_ends_the_host() -> None:
    """Some parsers read ``evil`` as the host; what was judged is what is called."""
    assert split_receipt_url("http://host\\@evil/q").host == "host"


def test_a_host_without_an_address_is_blocked_without_a_hint() -> None:
    assert NOTHING_ALLOWED.decide(split_url("http://h/q"), [], peer=SENDER) == Blocked(
        "h", "the host has no address", ""
    )


def test_only_ipv6_has_zones() -> None:
    """``192.0.2.7%1.evil.example`` is a name, and its name server is somebody's: it must not pass for the sender's address."""
    assert address_of("192.0.2.7%1.evil.example") is None
    assert address_of("fe80::1%eth0") == address_of("fe80::1")


@pytest.mark.parametrize(
    ("sender_name", "called"),
    [
        ("CN=machine2.example,O=Example", True),
        ("DNS=Machine2.example", True),
        ("CN=machine3.example", False),
        ("O=machine2.example", False),
        ("CN=x,O=a\\,CN\\=machine2.example", False),
        ("O=a\\,CN=machine2.example", False),
        (None, False),
    ],
)
def test_the_tls_name_is_the_cn_of_the_subject(sender_name: str | None, called: bool) -> None:
    policy = UrlPolicy(())
    found = policy.decide(
        split_receipt_url("https://machine2.example/msmq/private$/order_queue$"), ["198.51.100.7"], peer="192.0.2.1",
        tls_name=host_of_sender(sender_name),
    )  # fmt: skip
    assert isinstance(found, Allowed) is called


def test_each_address_that_may_be_called_was_judged() -> None:
    """The second one is called when the first gives no connection: it must be allowed for a reason of its own."""
    url = split_receipt_url("http://peer.example/msmq/q")
    resolved = ["127.0.0.1", "203.0.113.5", "203.0.113.6", "169.254.169.254"]
    by_address = UrlPolicy([]).decide(url, resolved, peer="203.0.113.6")
    assert by_address == Allowed("203.0.113.6")
    by_name = UrlPolicy([]).decide(url, resolved, peer="198.51.100.1", tls_name="peer.example")
    assert by_name == Allowed("203.0.113.5", ("203.0.113.6",))
    by_pattern = UrlPolicy([UrlPattern.parse("http://peer.example")]).decide(
        url, resolved, peer="198.51.100.1"
    )
    assert isinstance(by_pattern, Allowed)
    assert by_pattern.addresses == tuple(resolved), (
        "the operator named the host, whatever it resolves to"
    )
