"""[MC-MQSRM] 3.1.1.1.9 and .10 Redirection: which URLs a rule means, and 3.1.7.2.4, 3.1.7.9: what they become."""

from __future__ import annotations

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.child.encoding import decode, encode
from srmp_spark.srmp.forward.forwarding import hops_in_head, hops_of, via_of
from srmp_spark.srmp.forward.redirection import ReceiptUrls, Redirection, Redirections, UrlRule

GATEWAY = "http://gateway:8080/"
OWN = "http://qm/msmq/private$/order_queue$?SenderStream=secret"
GUID, OTHER = "32221eda-9376-46df-b6ed-783091123831", "2744e4e1-2b48-43e8-b441-42745f280d53"


def redirected(source: str, url: str, *exceptions: str) -> bool:
    return Redirections((Redirection.parse(source, GATEWAY, exceptions),)).target(url) is not None


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ("http://machine2/msmq/private$/orders", "http://machine2/msmq/private$/orders"),
        ("HTTP://MACHINE2:80/MSMQ/PRIVATE$/ORDERS", "http://machine2/msmq/private$/orders"),
        ("http://machine2/msmq/private$/orders", "http://Machine2.:80\\msmq\\private%24\\Orders"),
        ("http://machine2/msmq/private$/orders", "DIRECT=http://machine2/msmq/private$/orders"),
        (
            "http://machine2/msmq/private$/orders",
            "http://machine2/msmq/private$/orders?SenderStream=x",
        ),
        ("http://machine2/msmq/private$/Gr%C3%B6%C3%9Fe", "http://machine2/msmq/private$/größe"),
        ("http://machine2/msmq/private$/o*", "http://machine2/msmq/private$/Orders"),
        ("http://machine2/msmq/private$/orders*", "http://machine2/msmq/private$/orders"),
        ("http://machine2/msmq/100%25*", "http://machine2/msmq/100%2525"),
        ("http://machine2/MS*", "http://machine2/msmq/orders"),
        ("http://machine2/*", "http://machine2/msmq/orders"),
        ("http://machine2", "http://machine2/msmq/orders"),
        ("http://machine2:*/msmq/*", "http://machine2:8080/msmq/orders"),
        ("http://[::1]:8080/*", "http://[::1]:8080/msmq/orders"),
        ("http://*", "http://anything.example:99/msmq/orders"),
        ("http://machine2/Services/*", "http://machine2/Services/queue"),
    ],
)
def test_a_rule_means_a_url_in_any_spelling_and_a_trailing_asterisk_whatever_follows(
    source: str, url: str
) -> None:
    assert redirected(source, url)
    assert redirected(str(UrlRule.parse(source)), url), "and so does the rule as it is handed on"


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ("http://machine2/msmq/private$/orders", "http://machine2/msmq/private$/orders2"),
        ("http://machine2/msmq/private$/orders", "https://machine2/msmq/private$/orders"),
        ("http://machine2/msmq/private$/orders", "http://machine2:8080/msmq/private$/orders"),
        ("http://machine2/*", "http://machine2.evil.example/msmq/orders"),
        ("http://machine2/*", "http://machine2@evil.example/msmq/orders"),
        ("http://machine2:8080/*", "http://machine2:80801/msmq/orders"),
        ("http://machine2/msmq/private$/*", "http://machine2/msmq/public"),
        ("http://machine2/open/*", "http://machine2/open/../secret/queue"),
        ("http://machine2/msmq/a*", "http://machine2/msmq/a/../../b"),
        ("http://machine2/msmq/private$/*", "http://machine2/msmq%2fprivate$/orders"),
        ("http://machine2/Services/*", "http://machine2/services/queue"),
        ("http://*", "https://machine2/msmq/orders"),
        ("http://*", "MSMQ:MULTICAST=234.1.1.1:8001"),
    ],
)
def test_nothing_is_matched_as_text(source: str, url: str) -> None:
    assert not redirected(source, url)


@pytest.mark.parametrize(
    "source",
    ["", "*", "machine2", "http://machine2*", "http://machine2:80*", "http://mach*ine/", "http://machine2/m*q/x", "ftp://machine2/*",
     "http://user@machine2/*", "http://machine2/a?b=*", "http://machine2:0/*", "http://machine2:99999/*",
     "http://machine2/msmq/../*", "http://machine2/msmq%2f*", "http:///msmq/x"],
)  # fmt: skip
def test_what_could_mean_more_than_it_says_is_no_rule(source: str) -> None:
    with pytest.raises(ConfigurationError):
        UrlRule.parse(source)


def test_an_asterisk_after_a_host_name_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"http://machine2/\*"):
        UrlRule.parse("http://machine2*")


def test_the_first_rule_decides_and_its_exception_leaves_the_url_alone() -> None:
    rules = Redirections((
        Redirection.parse("http://machine2/msmq/private$/*", "http://first/", ["http://machine2/msmq/private$/direct*"]),
        Redirection.parse("http://machine2/*", "http://second/"),
    ))  # fmt: skip
    assert rules.target("http://machine2/msmq/private$/orders") == "http://first/"
    assert rules.target("http://machine2/msmq/orders") == "http://second/"
    assert rules.target("http://machine2/msmq/private$/direct2") is None
    assert rules.target("http://machine3/msmq/orders") is None
    assert rules.endpoint_of("http://machine3/msmq/orders") == "http://machine3/msmq/orders"
    assert Redirections.load(rules.dump()) == rules
    assert decode(encode(rules), Redirections) == rules


def test_where_receipts_go_is_replaced_by_destination_else_by_the_default() -> None:
    """3.1.7.2.4. Our secret goes with it: else a stranger's receipt would count."""
    urls = ReceiptUrls((
        (UrlRule.parse("http://machine2/msmq/*"), "http://nat.example:81/msmq/private$/order_queue$"),
        (None, "http://default/msmq/private$/order_queue$?x=1"),
    ))  # fmt: skip
    told = "http://nat.example:81/msmq/private$/order_queue$?SenderStream=secret"
    assert urls.replacement("http://machine2/msmq/private$/orders", OWN) == told
    assert (
        urls.replacement("http://machine3/msmq/private$/orders", OWN)
        == "http://default/msmq/private$/order_queue$?x=1"
    )
    assert ReceiptUrls(urls.rules[:1]).replacement("http://machine3/msmq/orders", OWN) == OWN
    assert ReceiptUrls().replacement("http://machine3/msmq/orders", OWN) == OWN
    assert decode(encode(urls), ReceiptUrls) == urls


def test_the_marks_of_who_forwarded_a_message() -> None:
    """RFC 9110 7.6.3; proxies leave theirs too, on lines of their own or with comments."""
    assert via_of([OTHER, GUID]) == f"1.1 srmp-{OTHER}, 1.1 srmp-{GUID}"
    assert hops_of(via_of([OTHER, GUID]).encode()) == (OTHER, GUID)
    assert hops_of(f"1.1 proxy.example (squid), 1.1 SRMP-{GUID.upper()}, HTTP/1.1 x".encode()) == (
        GUID,
    )
    head = (
        f"POST / HTTP/1.1\r\nVia: 1.1 srmp-{OTHER},\r\n 1.1 a\r\nHost: b\r\nvia: 1.1 "
        f"srmp-{GUID}\r\n\r\n"
    ).encode()
    assert hops_in_head(head) == (OTHER, GUID)
    assert hops_in_head(b"POST / HTTP/1.1\r\nHost: via: 1.1 x\r\n\r\n") == ()
