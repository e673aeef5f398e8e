"""The page of the keys of ``serve``: flags, variables, keys of the file, tables of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

from reference_pages.markdown import code, marked, paragraphs, table, whole_page
from srmp_spark.queue_manager.configuration.config import ENVIRONMENT_PREFIX
from srmp_spark.queue_manager.configuration.options import OPTIONS, TABLES, Option
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig

FILE = Path(__file__).resolve().parents[3] / "conf" / "serve.toml"
_INTRO = """\
Each option of `srmp-spark serve` is a flag, a variable of the environment, and a key of the file of
`--config`. A flag beats the variable, which beats the file, which beats the default. Unknown keys
are errors. [conf/serve.toml](../../conf/serve.toml) has every key with its reason and an example;
[running](../running.md) explains them by task."""
_COMMENTED = re.compile(r"^# (?=[a-z_0-9]+ = |\[)", re.MULTILINE)
_DEFAULTS = {
    each.name: each.default
    for each in fields(ServeConfig)
    if each.default is not MISSING and isinstance(each.default, bool | int | float | str)
}


def _default(option: Option) -> str:
    if "default" in option.help:
        return ""
    value = _DEFAULTS.get(option.key)
    return "" if value is None else code(str(value))


def _keys() -> Iterator[tuple[str, ...]]:
    for option in OPTIONS:
        value = f"a list of `{option.metavar}`" if option.many else code(option.metavar)
        default = _default(option)
        words = marked(option.help) + (f" (default {default})" if default else "")
        flag = f"`--{option.key.replace('_', '-')}`"
        yield code(option.key), flag, value, words


def _tables() -> Iterator[str]:
    """Yield each table with the lines of conf/serve.toml that explain it."""
    _, _, text = FILE.read_text(encoding="utf-8").partition("# --- Tables ---")
    blocks = text.partition("\n")[2].strip().split("\n\n")
    for name in TABLES:
        found = [block for block in blocks if re.search(rf"^# \[+{name}\]+$", block, re.MULTILINE)]
        lines = _COMMENTED.sub("", "\n\n".join(found))
        yield f"### {name}"
        yield f"```toml\n{lines}\n```"


def _parts() -> Iterator[str]:
    yield "## Keys, flags and variables"
    yield paragraphs(
        f"The variable of a key is `{ENVIRONMENT_PREFIX}` and the key in capitals: "
        f"`{ENVIRONMENT_PREFIX}DATA_DIR`. A list in a variable is separated by commas."
    )
    yield table(("key", "flag", "value", "meaning"), _keys())
    yield "## Tables of the file"
    yield "These have no flag. In TOML a table takes every key below it: tables stand at the end."
    yield from _tables()


def page() -> str:
    """Return the page."""
    return whole_page("Keys of serve", _INTRO, _parts())
