"""Write Markdown: pages, tables, paragraphs, and docstrings as paragraphs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 100
"""Characters of a line of text, as in the pages that are written by hand."""
NOTE = "<!-- Made by `make docs-reference` from the tables of the code. Change them there. -->"

_NAMES = re.compile(
    r"\$[A-Z_]+(?:/[\w-]+)*|\w+\[\]\.\w+"
    r"|--[a-z]+(?:-[a-z]+)*(?: (?:[A-Z]{2,}\b(?::[\w=:]*\w)?|(?:keep|refuse|retry)\b"
    r"|https?://[^\s,;)]+))?"
    r"|</?[A-Za-z][^<>]*>|\[\[\w+\]\]|\[\w+\](?=[ .,])|(?:DIRECT=)?https?://[^\s,;)]+"
    r"|wsrm:URL|/msmq\S*[^\s.:,]|\b[a-z]+[A-Z]\w*|\b[a-z]+(?:_[a-z]+)+\b|\b[A-Z]+(?:_[A-Z0-9]+)+\b"
)
_ROLE = re.compile(r":(?:class|meth|mod|func|data|attr|exc):`([^`]+)`")


def whole_page(title: str, intro: str, parts: Iterable[str]) -> str:
    """Return a page: title, note, introduction, and the parts with an empty line between them."""
    return "\n\n".join([f"# {title}", NOTE, paragraphs(intro), *parts]) + "\n"


def paragraphs(text: str) -> str:
    """Return ``text`` with lines of WIDTH characters; an empty line separates paragraphs."""
    return "\n\n".join(_wrapped(each) for each in text.strip().split("\n\n"))


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def item(text: str) -> str:
    """Return one item of a list."""
    return _wrapped(f"- {text}", "  ")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Cells may be empty."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def code(text: str) -> str:
    """Return ``text`` as code, or nothing if it is empty."""
    return f"`{text}`" if text else ""


def of_docstring(text: str) -> str:
    """Return a docstring as Markdown: roles and double backticks become code."""
    text = _ROLE.sub(lambda match: f"`{match[1].lstrip('~.').rpartition('.')[2]}`", text)
    return text.replace("``", "`")


def marked(text: str) -> str:
    """Return a text of the code with its names as code: flags, keys, constants, tags, tables.

    A text that has code already stays as it is.
    """
    return text if "`" in text else _NAMES.sub(lambda match: code(match[0]), text)


def sentence(text: str) -> str:
    """Return ``text`` with a capital at its beginning and a full stop at its end."""
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
