"""The log has one line for each record, whatever strangers have put into it."""

from __future__ import annotations

import logging

from srmp_spark.logs.text_lines import OneLineFormatter


def line(text: str, *values: object) -> str:
    return OneLineFormatter("%(levelname)s %(message)s").format(
        logging.LogRecord("n", logging.WARNING, "f", 1, text, values, None)
    )


def test_a_stranger_writes_no_line_of_his_own() -> None:
    url = "http://a\n2026-11-25 18:00:00,000 WARNING token=stolen\r\x1b[2J\x7f\x85\u2028"
    assert line("receipt.refused url=%s", url) == (
        "WARNING receipt.refused url=http://a\\x0a2026-11-25 18:00:00,000 WARNING "
        "token=stolen\\x0d\\x1b[2J\\x7f\\x85\\u2028"
    )


def test_words_of_any_language_stay_as_they_are() -> None:
    assert line("queue=%s", "private$/Größe-注文") == "WARNING queue=private$/Größe-注文"
