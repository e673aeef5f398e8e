"""The page of the options of source and sink, and of the columns that a sink takes."""

from __future__ import annotations

from collections.abc import Iterable

from reference_pages.markdown import code, marked, table, whole_page
from srmp_spark.queue_manager.configuration.options import OPTIONS
from srmp_spark.spark.settings.mqrr_options import MQRR_OPTIONS
from srmp_spark.spark.settings.option_values import OptionSpec
from srmp_spark.spark.settings.options import REPEATED_FLAGS, SERVE_OPTIONS, SOURCE_OPTIONS
from srmp_spark.spark.settings.sink_columns import (
    POSITION_COLUMNS,
    RELIABLE_COLUMNS,
    SINK_COLUMNS,
    SinkColumn,
)
from srmp_spark.spark.settings.sink_options import SINK_OPTIONS

_INTRO = """\
Names of options have no case. An unknown option is an error that names the nearest known one, and
so is an option without effect. [Reading](../reading.md), [sending](../sending.md) and [remote
queues](../remote-queues.md) show the options in use."""
_ONLY = {"both": "", "stream": "Streams only. ", "batch": "Batches only. "}


def _options(specs: Iterable[OptionSpec]) -> str:
    return table(
        ("option", "values", "default", "meaning", "limits"),
        (
            (
                code(each.name),
                each.kind,
                marked(each.default),
                marked(each.meaning),
                marked((_ONLY[each.applies_to] + each.limits).strip()),
            )
            for each in specs
        ),
    )


def _columns(specs: Iterable[SinkColumn]) -> str:
    return table(
        ("column", "type", "meaning"),
        ((code(each.name), each.wanted, marked(each.meaning)) for each in specs),
    )


def _embedded() -> str:
    helps = {option.key: option.help for option in OPTIONS}
    rows = []
    for name, flag in SERVE_OPTIONS.items():
        words = helps.get(flag.replace("-", "_"), "a file with the options of `serve`")
        several = "; several are separated by commas" if name in REPEATED_FLAGS else ""
        rows.append((code(name), code(f"--{flag}"), marked(words) + several))
    return table(("option", "flag of `serve`", "meaning"), rows)


def _parts() -> Iterable[str]:
    """Yield the parts of the page."""
    yield '## Source: format("srmp")'
    yield _options(SOURCE_OPTIONS)
    yield "### An embedded queue manager"
    yield (
        "With `dataDir` the source starts a queue manager with these options, or joins the one "
        "that runs.\nEach option is a flag of `srmp-spark serve`."
    )
    yield _embedded()
    yield '## Source: format("mqrr")'
    yield _options(MQRR_OPTIONS)
    yield (
        'A stream of `format("mqrr")` has all stream options of `format("srmp")` too, because it '
        "reads the log\nof the subscription."
    )
    yield '## Sink: format("srmp") and SrmpSink'
    yield (
        '`SrmpSink(…)` for `foreachBatch` takes the options of `format("srmp")` as keyword '
        "arguments."
    )
    yield _options(SINK_OPTIONS)
    yield "### Columns of a sink"
    yield _columns(SINK_COLUMNS)
    yield "For a destination `wsrm:URL`:"
    yield _columns(RELIABLE_COLUMNS)
    yield "The source position, by which a row without `key` is known (all four, or none):"
    yield _columns(POSITION_COLUMNS)


def page() -> str:
    """Return the page."""
    return whole_page("Options", _INTRO, _parts())
