"""The page of the columns of a row."""

from __future__ import annotations

from collections.abc import Iterator

from reference_pages.markdown import code, marked, paragraphs, table, whole_page
from srmp_spark.rows.columns import COLUMNS, NOT_FOR_A_SINK, WIDE

_INTRO = """\
A row of `format("srmp")` and `format("mqrr")` has {count} columns. The option `columns` chooses
some of them. [INTERFACE](../INTERFACE.md) section 4 keeps their names and types. A type is that of
Spark SQL; timestamps are UTC with microseconds."""


def _parts() -> Iterator[str]:
    for section in dict.fromkeys(each.section for each in COLUMNS):
        yield f"## {section.capitalize()}"
        yield table(
            ("column", "type", "meaning", "specification"),
            (
                (code(each.name), code(each.kind), marked(each.meaning), each.origin)
                for each in COLUMNS
                if each.section == section
            ),
        )
    yield "## Columns with rules of their own"
    wide, ignored = (", ".join(map(code, sorted(each))) for each in (WIDE, NOT_FOR_A_SINK))
    yield paragraphs(f"A reader that chooses none of {wide} moves no bodies.")
    yield paragraphs(
        f"A sink ignores {ignored} as they come from the source, where they say how the message "
        "arrived. A column of such a name that the query computes counts: `response_queue AS "
        "destination` counts, the `destination` of the source does not."
    )


def page() -> str:
    """Return the page."""
    return whole_page("Columns of a row", _INTRO.format(count=len(COLUMNS)), _parts())
