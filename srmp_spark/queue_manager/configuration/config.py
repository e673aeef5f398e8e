"""Read the options of ``srmp-spark serve``.

The value of an option is that of the flag, else of the environment variable ``SRMP_SPARK_<KEY>``,
else of the TOML file, else the default. The table :data:`.options.OPTIONS` names every option once.
An unknown key is an error that names the nearest known key.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.configuration.contradictions import refuse_contradictions
from srmp_spark.queue_manager.configuration.options import (
    OPTIONS,
    TABLES,
    Option,
    nearest,
    seconds_table,
    switch,
)
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig
from srmp_spark.queue_manager.trust.tokens import check_token, read_token

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENVIRONMENT_PREFIX = "SRMP_SPARK_"
CLIENT_KEYS = frozenset({"api", "token"})
"""Keys that other commands use too: ``SRMP_SPARK_API`` is a URL, ``…_TOKEN`` the API token."""

_BY_KEY = {option.key: option for option in OPTIONS}
_FIELD_OF = {"token_file": "token", "token": "tokens"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add every option, and ``--config``, to the argument parser of ``serve``.

    The parsed values stay text, and :func:`load` converts them.
    """
    for option in OPTIONS:
        parser.add_argument(
            "--" + option.key.replace("_", "-"),
            dest=option.key,
            metavar=option.metavar,
            help=option.help.replace("%", "%%") + ("; may be repeated" if option.many else ""),
            action="append" if option.many else "store",
            nargs="?" if option.convert is switch else None,
            const="true" if option.convert is switch else None,
        )
    parser.add_argument(
        "--config",
        metavar="FILE.toml",
        help="a file with these options as keys, _ for - (every key: conf/serve.toml)",
    )


class Given(NamedTuple):
    """The options as they were given, and what is wrong with them.

    ``values`` are the fields of :class:`.ServeConfig`, without those that are wrong.
    """

    values: dict[str, Any]
    errors: tuple[ConfigurationError, ...]


def load(flags: Mapping[str, Any], environment: Mapping[str, str]) -> ServeConfig:
    """Merge flags (``None`` = not given), environment and file into the checked options.

    Raises :class:`ConfigurationError` for an unknown key, a wrong value, a file that cannot be
    read, a missing ``--data-dir``, or options that contradict each other.
    """
    given = read(flags, environment)
    if given.errors:
        raise given.errors[0]
    config = ServeConfig(**given.values)
    refuse_contradictions(config)
    return config


def read(flags: Mapping[str, Any], environment: Mapping[str, str]) -> Given:
    """Merge flags (``None`` = not given), environment and file, and collect every error.

    The file of ``--config`` that cannot be read is the only error then, because its keys are
    unknown. Options that contradict each other are no errors yet.
    """
    file_name = flags.get("config") or environment.get(ENVIRONMENT_PREFIX + "CONFIG")
    texts: dict[str, tuple[str, Any]] = {}
    errors: list[ConfigurationError] = []
    if file_name:
        try:
            in_file = _read_toml(Path(file_name))
        except ConfigurationError as error:
            return Given({}, (error,))
        for key, value in in_file.items():
            if key in _BY_KEY or key in TABLES:
                texts[key] = (f"{key} in {file_name}", value)
            else:
                hint = nearest(key, [*_BY_KEY, *TABLES])
                errors.append(ConfigurationError(f"unknown key {key!r} in {file_name}; {hint}"))
    in_environment, unknown = _read_environment(environment)
    texts.update(in_environment)
    errors += unknown
    texts.update(
        {
            key: ("--" + key.replace("_", "-"), value)
            for key, value in flags.items()
            if value is not None and key in _BY_KEY
        }
    )
    values: dict[str, Any] = {}
    for key, (where, value) in texts.items():
        converted = _value(key, where, value)
        if isinstance(converted, ConfigurationError):
            errors.append(converted)
        else:
            values[_FIELD_OF.get(key, key)] = converted
    if "token_file" not in texts and (token := environment.get(ENVIRONMENT_PREFIX + "TOKEN")):
        try:
            values["token"] = check_token(token)
        except ValueError as error:
            errors.append(ConfigurationError(f"{ENVIRONMENT_PREFIX}TOKEN: {error}"))
    if "data_dir" not in texts:
        errors.append(
            ConfigurationError("serve needs --data-dir DIR: the directory that holds the messages")
        )
    return Given(values, tuple(errors))


def _value(key: str, where: str, value: Any) -> Any:  # noqa: ANN401  # a TOML value may be anything
    """Return the value of a key as the option has it, or the error if it is wrong."""
    try:
        return TABLES[key](where, value) if key in TABLES else _convert(_BY_KEY[key], where, value)
    except ConfigurationError as error:
        return error


def _convert(option: Option, where: str, value: Any) -> Any:  # noqa: ANN401  # a TOML value may be anything
    def one(item: Any) -> Any:  # noqa: ANN401
        if (isinstance(item, bool) and option.convert is not switch) or not isinstance(
            item, str | int | float
        ):
            raise ConfigurationError(f"{where}: expected a text or a number, got {item!r}")
        try:
            return option.convert(str(item))
        except ValueError as error:
            # No message may show a token: the content of the file, or one in place of its name.
            is_path = "/" in str(item) or os.path.exists(str(item))  # noqa: PTH110  # Path.exists raises for long names
            name = f"the file {item}" if is_path else "it is no path of a file"
            got = name if option.convert is read_token else f"got {item!r}"
            raise ConfigurationError(f"{where}: {error} ({got})") from None

    if option.many:
        return tuple(one(item) for item in (value if isinstance(value, list | tuple) else [value]))
    if isinstance(value, list) and option.convert is seconds_table:
        value = ",".join(str(item) for item in value)
    return one(value)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"--config {path}: {error}") from None
    return values


def _read_environment(
    environment: Mapping[str, str],
) -> tuple[dict[str, tuple[str, Any]], list[ConfigurationError]]:
    """Return the variables of ``serve`` by key, and an error for each unknown one."""
    found: dict[str, tuple[str, Any]] = {}
    unknown: list[ConfigurationError] = []
    for name, value in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if key in ("config", "token") or (key in CLIENT_KEYS and "://" in value):
            continue  # With a URL, SRMP_SPARK_API is for the other commands.
        if key == "port" or key.startswith(("port_", "service_")):
            continue  # Kubernetes sets these in every pod if a Service is named srmp-spark.
        if key not in _BY_KEY:
            variables = [ENVIRONMENT_PREFIX + known.upper() for known in _BY_KEY]
            hint = nearest(name, variables)
            unknown.append(ConfigurationError(f"unknown variable {name}; {hint}"))
        elif _BY_KEY[key].many:
            found[key] = (
                name,
                [part for part in (piece.strip() for piece in value.split(",")) if part],
            )
        else:
            found[key] = (name, value)
    return found, unknown


assert {_FIELD_OF.get(option.key, option.key) for option in OPTIONS} | {
    _FIELD_OF.get(key, key) for key in TABLES
} == {f.name for f in fields(ServeConfig)}
