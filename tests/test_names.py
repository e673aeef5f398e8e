"""Tests of names and URLs by section 1 of INTERFACE.md."""

from __future__ import annotations

import random
import time

import pytest

from srmp_spark.canonical_url import canonical_outgoing
from srmp_spark.errors import RemoteProtocolError
from srmp_spark.names import (
    LocalHosts,
    canonical_host,
    canonical_queue_name,
    message_id,
    nearest_queue_name,
    parse_guid,
    parse_queue_url,
    queue_matches,
    queue_of_path,
    quote_queue_name,
    split_url,
)
from srmp_spark.srmp.codec.http_head import check_target


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("private$/orders", "private$/orders"),
        ("PRIVATE$\\Orders", "private$/orders"),
        (".\\private$\\Orders", "private$/orders"),
        ("Orders", "orders"),
        (".\\ orders ", "orders"),
        ("private$/order queue (old) – ü", "private$/order queue (old) – ü"),
    ],
)
def test_queue_names_are_stored_in_one_form(written: str, canonical: str) -> None:
    assert canonical_queue_name(written) == canonical


@pytest.mark.parametrize(
    "bad",
    ["", "private$/", "a/b/c", "private$/a/b", "..", "private$/..", "a\x00b", "a\nb", "x" * 125],
)
def test_what_is_no_queue_name(bad: str) -> None:
    with pytest.raises(ValueError, match="queue name"):
        canonical_queue_name(bad)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("Machine2.", "machine2"),
        ("machine2", "machine2"),
        ("qm.example.", "qm.example"),
        ("a..", "a."),
        (".", "."),
    ],
)
def test_a_host_ends_with_or_without_the_dot_of_an_absolute_name(
    written: str, canonical: str
) -> None:
    """RFC 1034 3.1 allows one dot at the end, and no more."""
    assert canonical_host(written) == canonical


@pytest.mark.parametrize(
    "path", ["/msmq/private$/orders", "/msmq/private$\\orders", "/msmq\\private%24/%6frders"]
)
def test_separators_of_a_queue_url_stand_as_they_are_in_targets_and_in_to(path: str) -> None:
    """The rule for both is in the docstring of srmp_spark.names."""
    assert (
        check_target(path.encode())
        == parse_queue_url("http://machine2" + path).queue
        == "private$/orders"
    )


@pytest.mark.parametrize("encoded", ["%2f", "%2F", "%5c", "%5C"])
@pytest.mark.parametrize(
    "path", ["/msmq{}private$/orders", "/msmq/private${}orders", "/msmq/{}orders"]
)
def test_encoded_separators_are_refused_in_targets_and_in_to(encoded: str, path: str) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        check_target(path.format(encoded).encode())
    assert refused.value.status_hint == 400
    with pytest.raises(ValueError, match="encoded slash"):
        parse_queue_url("http://machine2" + path.format(encoded))


def test_an_encoded_separator_in_the_query_is_kept_as_sent() -> None:
    assert parse_queue_url("http://m/msmq/orders?x=%2f").query == "?x=%2f"
    assert check_target(b"/msmq/orders?x=%2f%5c") == "orders"


@pytest.mark.parametrize(
    "url",
    [
        "http://machine2/msmq/private$/simpleq",
        "http://MACHINE2/MSMQ/PRIVATE$/SimpleQ",
        "http://machine2:8080/msmq/private$\\simpleq",
        "http://machine2/msmq/private%24/simple%71",
        "https://machine2/msmq/private$/simpleq?SenderStream=XRntV",
        "http://machine2./msmq/private$/simpleq",
        "http://Machine2.:80/msmq/private$/simpleq",
    ],
)
def test_every_spelling_of_a_queue_url_names_the_same_queue(url: str) -> None:
    address = parse_queue_url(url)
    assert (address.host, address.queue) == ("machine2", "private$/simpleq")


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("http://[2001:DB8:0:0::01]:80/msmq/q", "http://[2001:db8::1]/msmq/q"),
        ("https://[::1]:443/msmq/q", "https://[::1]/msmq/q"),
        ("http://[::FFFF:192.0.2.7]:8080/msmq/q", "http://192.0.2.7:8080/msmq/q"),
        ("http://[::ffff:c000:207]/msmq/q", "http://192.0.2.7/msmq/q"),
        ("wsrm:http://[0:0::1]/service", "wsrm:http://[::1]/service"),
    ],
)
def test_an_ipv6_address_has_one_spelling(written: str, canonical: str) -> None:
    assert canonical_outgoing(written) == canonical_outgoing(canonical) == canonical


def test_what_is_no_ipv6_address_stays_as_it_is() -> None:
    assert [
        canonical_host(text) for text in ("1::2::3", "FE80::1%Eth0", ":::", "f" * 5 + "::1")
    ] == ["1::2::3", "fe80::1%eth0", ":::", "fffff::1"]


def test_the_query_string_is_kept_verbatim() -> None:
    """Receipts are sent to ``…?SenderStream=XRntV`` ([MC-MQSRM] 4.4)."""
    assert (
        parse_queue_url("http://m/MSMQ/private$/receipts?SenderStream=XRntV").query
        == "?SenderStream=XRntV"
    )


@pytest.mark.parametrize(
    "path",
    [
        "/msmq/../private$/x",
        "/msmq/%2e%2e/x",
        "/msmq/private$%5cx",
        "/msmq/private$%2fx",
        "/msmq/private$/x%00",
        "/other/private$/x",
        "/msmq/",
        "/msmq//x",
        "/msmq/private$/a/b",
        "/msmq/%ff",
        "msmq/private$/x",
    ],
)
def test_a_queue_path_never_climbs(path: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        queue_of_path(path)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9@evil/msmq/x",
        "ftp://h/msmq/x",
        "http:///msmq/x",
        "http://h:0/x",
        "http://h:99999/x",
        "//h/x",
        "http://a b/x",
    ],
)
def test_urls_are_taken_apart_by_their_grammar(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        split_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@host/msmq/q",
        "ftp://user:secret@host/q",
        "http://user:sec@ret@host/msmq/q",
    ],
)
def test_no_password_is_repeated_in_an_error(url: str) -> None:
    with pytest.raises(ValueError, match="…@host") as raised:
        split_url(url)
    assert "sec" not in str(raised.value)


def test_a_queue_name_with_a_blank_may_stand_in_a_url_as_it_is() -> None:
    """A wrong 400 makes the sender delete the message. URLs that we send are encoded."""
    url = "http://machine2/msmq/private$/my queue ü?SenderStream=a b"
    assert parse_queue_url(url).queue == "private$/my queue ü"
    assert split_url(url).request_target == "/msmq/private$/my%20queue%20%C3%BC?SenderStream=a%20b"
    assert split_url("http://machine2").request_target == "/"


def test_ports_follow_the_scheme() -> None:
    assert split_url("HTTPS://Host/x").port == 443
    assert split_url("http://[::1]:81/x")[:3] == ("http", "::1", 81)


@pytest.mark.parametrize(
    ("url", "authority"),
    [("http://Machine2:80/x", "machine2"), ("https://machine2:443/x", "machine2"),
     ("http://machine2:443/x", "machine2:443"), ("http://[::1]:81/x", "[::1]:81"),
     ("https://[::1]/x", "[::1]")],
)  # fmt: skip
def test_an_authority_names_a_port_only_if_it_is_not_the_schemes_own(
    url: str, authority: str
) -> None:
    assert split_url(url).authority == authority


def test_a_message_identifier_prints_as_msmq_prints_it() -> None:
    guid = parse_guid("AC678228-2DD6-418B-B31F-0539FFEEA853")
    assert message_id(guid, 123) == "{ac678228-2dd6-418b-b31f-0539ffeea853}\\123"
    with pytest.raises(RemoteProtocolError):
        parse_guid("{ac678228-2dd6-418b-b31f-0539ffeea853}")


def test_our_own_hosts() -> None:
    hosts = LocalHosts(frozenset({"machine2"}))
    assert "machine2" in hosts
    assert "localhost" in hosts
    assert "machine3" not in hosts


def test_another_port_of_our_host_is_another_service() -> None:
    """This decides where a redirection may lead.

    A URL without a port is the queue manager of that host, whatever its port is.
    """
    hosts = LocalHosts(frozenset({"machine2", "2001:db8::1"}), frozenset({8080, 443}))
    for url in (
        "http://machine2:8080/msmq/q",
        "http://MACHINE2/msmq/q",
        "https://machine2:443/msmq/q",
        "http://localhost:8080",
    ):
        assert hosts.is_target_here(url), url
    for url in (
        "http://machine2:8090/msmq/q",
        "http://machine2:80/q",
        "http://[2001:db8::1]:8090/q",
        "http://machine3/msmq/q",
    ):
        assert not hosts.is_target_here(url), url
    assert hosts.is_target_here("http://[2001:db8::1]/q"), "the end of an address is no port"
    assert LocalHosts(frozenset({"machine2"})).is_target_here("http://machine2:8090/q"), (
        "whose ports nobody knows"
    )


@pytest.mark.parametrize(
    ("queue", "pattern", "matches"),
    [("private$/orders", "private$/orders", True), ("private$/orders", "private$/*", True),
     ("private$/orders", "*", True), ("orders", "private$/*", False),
     ("private$/a[1]", "private$/a[1]", True), ("private$/a1", "private$/a[1]", True),
     ("private$/cash$", "private$/*", True),
     ("private$/order_queue$", "private$/order_queue$", True),
     ("private$/order_queue$", "*", False), ("private$/forward$", "private$/*", False),
     ("private$/forward$", "private$/forward[$]", False)],
)  # fmt: skip
def test_one_rule_for_names_and_globs(queue: str, pattern: str, matches: bool) -> None:
    """A glob matches no internal queue of ours (section 7)."""
    assert queue_matches(queue, [pattern]) is matches
    assert queue_matches(queue, ["other", pattern]) is matches
    assert not queue_matches(queue, [])


def test_a_queue_name_is_one_path_segment_of_the_api() -> None:
    assert quote_queue_name("private$/orders") == "private%24%2Forders"


@pytest.mark.parametrize(
    "written", ["private$/ordrs", "ordrs", "orders", "private$/ordres", "private$/order"]
)
def test_the_queue_that_was_meant_is_found(written: str) -> None:
    others = [f"private$/department-{n}" for n in range(300)]
    assert nearest_queue_name(written, [*others, "private$/orders"]) == "private$/orders"
    assert nearest_queue_name("private$/department-2999", others) is not None
    assert nearest_queue_name("private$/payments", [*others, "private$/orders"]) is None


def test_a_hint_names_no_queue_that_the_caller_may_not_see() -> None:
    known = ["private$/orders-secret", "private$/orders-public"]
    assert nearest_queue_name("private$/orders-secre", known) == "private$/orders-secret"
    assert (
        nearest_queue_name("private$/orders-secre", known, lambda queue: "secret" not in queue)
        != "private$/orders-secret"
    )
    assert nearest_queue_name("private$/orders-secre", known, lambda _: False) is None


@pytest.mark.parametrize("length", [12, 62, 115])
def test_names_that_are_not_there_cost_little_however_many_queues_there_are(length: int) -> None:
    """Names of few letters in common places make each comparison as expensive as it can be."""
    draw = random.Random(5)
    names = [f"private$/x{''.join(draw.choices('ab', k=length))}z" for _ in range(3_001)]
    began = time.process_time()
    for _ in range(20):
        nearest_queue_name(names[0], names[1:])
    assert time.process_time() - began < 20 * 0.05, (
        "50 ms each, on a slow machine; difflib alone took seconds"
    )
