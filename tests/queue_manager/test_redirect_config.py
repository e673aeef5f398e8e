"""``--store-and-forward``, ``[[redirect]]`` and ``[[receipt_url]]`` (INTERFACE.md section 2)."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import split_url
from srmp_spark.queue_manager.configuration.config import add_flags, load
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig


def loaded(tmp_path: Path, text: str, **flags: object) -> ServeConfig:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    return load({"data_dir": "d", "config": str(file), **flags}, {})


def test_the_flag_stands_alone_or_has_a_value(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    assert load(
        vars(parser.parse_args(["--data-dir", "d", "--store-and-forward"])), {}
    ).store_and_forward
    assert not load(
        vars(parser.parse_args(["--data-dir", "d", "--store-and-forward", "false"])), {}
    ).store_and_forward
    assert not load(vars(parser.parse_args(["--data-dir", "d"])), {}).store_and_forward
    assert load({"data_dir": "d"}, {"SRMP_SPARK_STORE_AND_FORWARD": "1"}).store_and_forward
    assert loaded(tmp_path, "store_and_forward = true").store_and_forward
    assert not loaded(
        tmp_path, "store_and_forward = true", store_and_forward="false"
    ).store_and_forward
    with pytest.raises(ConfigurationError, match="true or false"):
        load({"data_dir": "d", "store_and_forward": "maybe"}, {})
    with pytest.raises(ConfigurationError, match="text or a number"):
        loaded(tmp_path, "listen = true")


def test_the_tables(tmp_path: Path) -> None:
    config = loaded(tmp_path, """
        allow_url = ["http://orders.example"]

        [[redirect]]
        direction = "out"
        from = "http://orders.example/msmq/*"
        to = "http://gateway.example:8080"
        except = ["http://orders.example/msmq/private$/direct"]

        [[redirect]]
        direction = "in"
        from = "http://front.example/msmq/orders"
        to = "http://127.0.0.1/msmq/private$/orders"

        [[receipt_url]]
        from = "http://orders.example/*"
        to = "http://nat.example/msmq/private$/order_queue$"

        [[receipt_url]]
        to = "http://default.example/msmq/private$/order_queue$"
    """)  # fmt: skip
    redirects = config.redirect
    assert (
        redirects.outbound.target("http://orders.example/msmq/private$/x")
        == "http://gateway.example:8080"
    )
    assert redirects.outbound.target("http://orders.example/msmq/private$/Direct") is None
    assert redirects.outbound.target("http://front.example/msmq/orders") is None
    assert (
        redirects.inbound.target("http://front.example/msmq/orders")
        == "http://127.0.0.1/msmq/private$/orders"
    )
    own = "http://qm/msmq/private$/order_queue$?SenderStream=s"
    urls = config.receipt_url
    assert urls.replacement("http://orders.example/msmq/x", own).startswith("http://nat.example/")
    assert urls.replacement("http://other.example/msmq/x", own).startswith(
        "http://default.example/"
    )
    assert config.forwarding.is_on
    assert config.forwarding.allows(split_url("http://orders.example/msmq/x"))
    assert not config.forwarding.allows(split_url("http://other.example/msmq/x"))
    assert not loaded(tmp_path, "").forwarding.is_on


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '[[redirect]]\nfrom = "http://a/*"\nto = "http://b/"',
            "redirect in .*, number 1: direction is missing",
        ),
        ('[[redirect]]\ndirection = "up"\nfrom = "http://a/*"\nto = "http://b/"', "in.*out"),
        (
            '[[redirect]]\ndirection = "out"\nfrom = "http://a*"\nto = "http://b/"',
            r"write http://a/\*",
        ),
        (
            '[[redirect]]\ndirection = "out"\nfrom = "http://a/*"\nto = "gateway"',
            "not an http or https URL",
        ),
        (
            '[[redirect]]\ndirection = "in"\nfrom = "http://a/*"\nto = "http://b/"',
            "not /msmq/QUEUE",
        ),
        (
            (
                '[[redirect]]\ndirection = "out"\nfrom = "http://a/*"\nto = '
                '"http://b/"\nexcept = ["x"]'
            ),
            "not a URL to match",
        ),
        (
            '[[redirect]]\ndirection = "out"\nfrom = "http://a/*"\nto = "http://b/"\nexpect = []',
            "unknown key 'expect'",
        ),
        ('[[redirect]]\ndirection = "out"\nfrom = 3\nto = "http://b/"', "from is a URL"),
        ('[redirect]\ndirection = "out"', r"write \[\[redirect\]\]"),
        ('[[receipt_url]]\nto = "http://b/"', "not /msmq/QUEUE"),
        (
            '[[receipt_url]]\nto = "http://b/msmq/x"\n[[receipt_url]]\nto = "http://c/msmq/x"',
            "one default",
        ),
        ('[[receipt_urls]]\nto = "http://b/msmq/x"', "did you mean 'receipt_url'"),
    ],
)
def test_an_error_names_table_and_entry(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        loaded(tmp_path, text)
