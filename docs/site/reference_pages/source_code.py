"""Read the source of the package: calls, and the texts that they are given.

A text is a constant, an f-string or a name with such a value. A part that is known only at run time
is shown as ``…``; a constant of the module is shown with its value.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import srmp_spark

PACKAGE = Path(srmp_spark.__file__).resolve().parent
UNKNOWN = "…"


class Call(NamedTuple):
    """One call in the source, with the function in which it stands."""

    path: Path
    node: ast.Call
    function: ast.FunctionDef | ast.AsyncFunctionDef | None

    @property
    def module(self) -> ModuleType:
        """Return the module with the call."""
        return importlib.import_module(module_name(self.path))

    def text(self, node: ast.expr) -> str | None:
        """Return the text that ``node`` stands for, or ``None`` if it is no text in the source."""
        return _text(self, node)

    def number(self, node: ast.expr) -> int | None:
        """Return the number that ``node`` stands for, or ``None`` if it is none in the source."""
        found = _constant(self, node)
        return found if isinstance(found, int) else None


def module_name(path: Path) -> str:
    """Return the name of the module in ``path``."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@cache
def calls() -> tuple[Call, ...]:
    """Return every call of the package, in the order of files and lines."""
    return tuple(
        call
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in sorted(_calls_of(path), key=lambda each: each.node.lineno)
    )


def _calls_of(path: Path) -> Iterator[Call]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    stack: list[tuple[ast.AST, ast.FunctionDef | ast.AsyncFunctionDef | None]] = [(tree, None)]
    while stack:
        node, function = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node
        if isinstance(node, ast.Call):
            yield Call(path, node, function)
        stack += ((child, function) for child in ast.iter_child_nodes(node))


def _constant(call: Call, node: ast.expr) -> object:
    """Return the value of a constant, or of a name in capitals; ``None`` for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id.lstrip("_").isupper():
        return getattr(call.module, node.id, None)
    if isinstance(node, ast.Attribute) and node.attr.isupper() and isinstance(node.value, ast.Name):
        return getattr(getattr(call.module, node.value.id, None), node.attr, None)
    return None


def _text(call: Call, node: ast.expr) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(_piece(call, each) for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(call, node.left), _text(call, node.right)
        return None if left is None and right is None else (left or UNKNOWN) + (right or UNKNOWN)
    if isinstance(node, ast.IfExp):
        return _text(call, node.body) or _text(call, node.orelse)
    found = _constant(call, node)
    if isinstance(found, str | int | float) and not isinstance(found, bool):
        return str(found)
    if isinstance(node, ast.Name) and call.function is not None:
        return _assigned(call, node.id)
    return None


def _piece(call: Call, node: ast.expr) -> str:
    if isinstance(node, ast.FormattedValue):
        found = _constant(call, node.value)
        return str(found) if isinstance(found, str | int | float) else UNKNOWN
    assert isinstance(node, ast.Constant)
    return str(node.value)


def _assigned(call: Call, name: str) -> str | None:
    """Return the text that the function gave to the name last before the call."""
    values = [
        (node.lineno, node.value)
        for node in ast.walk(call.function or call.node)
        if isinstance(node, ast.Assign)
        and node.lineno < call.node.lineno
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    return _text(call, max(values, key=lambda each: each[0])[1]) if values else None
