"""Name the optional parts of an installation, and the error for a part that is missing.

The base installation has the commands, the client and the decoding of rows. ``pip install
"srmp-spark[NAME]"`` adds an extra.
"""

from __future__ import annotations

import importlib.util
from typing import Literal

from srmp_spark.errors import ConfigurationError

Extra = Literal["serve", "spark", "kerberos"]

MODULES: dict[Extra, tuple[str, ...]] = {
    "serve": ("deltalake", "httptools", "msgspec", "prometheus_client", "uvicorn", "uvloop"),
    "spark": ("pyspark", "delta", "pandas"),
    "kerberos": ("spnego",),
}
"""The modules of each extra that the package imports, by the name of the extra."""
PURPOSE: dict[Extra, str] = {
    "serve": "a queue manager",
    "spark": "Spark",
    "kerberos": "Kerberos or Negotiate",
}


class MissingExtraError(ConfigurationError, ImportError):
    """Raised when a part of the package is used whose extra is not installed."""


def missing(extra: Extra, module: str) -> MissingExtraError:
    """Return the error that says that ``module`` of ``extra`` is missing, and how to install it."""
    return MissingExtraError(
        f"{PURPOSE[extra]} needs the package {module}, which is not installed here: "
        f'pip install "srmp-spark[{extra}]"'
    )


def needs(extra: Extra) -> None:
    """Raise :class:`MissingExtraError` if a module of ``extra`` is not installed.

    The function imports none of the modules.
    """
    for module in MODULES[extra]:
        if importlib.util.find_spec(module) is None:
            raise missing(extra, module)


def missing_module(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return the :class:`MissingExtraError` for a module that was not found, or ``None``.

    ``None`` means that the module belongs to no extra.
    """
    name = (error.name or "").partition(".")[0]
    for extra, modules in MODULES.items():
        if name in modules:
            return missing(extra, name)
    return None
