"""The pages of ``docs/reference``, made of the tables of the code.

``make docs-reference`` writes them, and ``tests/docs/test_reference.py`` compares them. Each module
here has one page, and reads one kind of table: options, columns, parsers, routes, metrics, log
calls, errors. No sentence about a thing stands here: it stands in the code, beside the thing.
"""

from __future__ import annotations

from pathlib import Path

from reference_pages import (
    api,
    columns,
    command_line,
    errors,
    log_events,
    metrics,
    options,
    serve_toml,
)

FOLDER = Path(__file__).resolve().parents[2] / "reference"


def pages() -> dict[str, str]:
    """Return the text of each page, by the name of its file."""
    return {
        "options.md": options.page(),
        "columns.md": columns.page(),
        "command-line.md": command_line.page(),
        "serve-toml.md": serve_toml.page(),
        "api.md": api.page(),
        "metrics.md": metrics.page(),
        "log-events.md": log_events.page(),
        "errors.md": errors.page(),
    }
