"""Presentation contexts that a server accepts, and features of bind time ([MS-RPCE] 3.3.1.5.3).

A client offers each transfer syntax in a context of its own, or several syntaxes in one context.
The server accepts at most one syntax for an interface: its preferred syntax if that was offered,
else the first syntax that it knows. One more context carries a bit mask instead of a syntax, in a
UUID with a known beginning. The bits are features that both sides may have ([MS-RPCE] 3.3.1.5.6).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from srmp_spark.mqrr.guids import guid_bytes, guid_text
from srmp_spark.mqrr.ndr.transfer_syntax import NDR64, TransferSyntax
from srmp_spark.mqrr.rpc.binding import Context, RejectReason, Result, ResultCode, SyntaxId

FEATURES_PREFIX = bytes.fromhex("2c1cb76c12984045")
"""The bytes of 6CB71C2C-9812-4540 on the wire. The eight bytes after them are the bit mask."""
FEATURES_VERSION = 1
KEEP_CONNECTION_ON_ORPHAN = 0x02
PREFERRED = NDR64
"""Transfer syntax that a server accepts if it is offered. Windows of 64 bits prefers it too."""

_SYNTAXES = {SyntaxId(syntax.uuid, syntax.version): syntax for syntax in TransferSyntax}


def transfer_syntax_of(syntax: SyntaxId) -> TransferSyntax | None:
    """Return the transfer syntax that ``syntax`` identifies, or ``None`` if it is unknown."""
    return _SYNTAXES.get(syntax)


def syntax_id(syntax: TransferSyntax) -> SyntaxId:
    """Return the identifier of a transfer syntax."""
    return SyntaxId(syntax.uuid, syntax.version)


def features_of(syntax: SyntaxId) -> int | None:
    """Return the bit mask of features that ``syntax`` carries, or ``None`` if it carries none.

    ``syntax`` then identifies a transfer syntax instead.
    """
    raw = guid_bytes(syntax.uuid)
    if raw[:8] != FEATURES_PREFIX or syntax.version != FEATURES_VERSION:
        return None
    return int.from_bytes(raw[8:], "little")


def features_syntax(features: int) -> SyntaxId:
    """Encode a client's bit mask of features as a syntax identifier."""
    return SyntaxId(guid_text(FEATURES_PREFIX + features.to_bytes(8, "little")), FEATURES_VERSION)


def offers(
    interface: SyntaxId, syntaxes: Sequence[TransferSyntax], features: int | None
) -> tuple[Context, ...]:
    """Return the contexts of a client's bind.

    There is one context for each transfer syntax, as in Windows, and one for ``features`` unless
    that is ``None``.
    """
    contexts = [
        Context(number, interface, (syntax_id(syntax),)) for number, syntax in enumerate(syntaxes)
    ]
    if features is not None:
        contexts.append(Context(len(contexts), interface, (features_syntax(features),)))
    return tuple(contexts)


def answer(
    contexts: Iterable[Context],
    interfaces: Iterable[SyntaxId],
    *,
    features: int,
    syntaxes: Collection[TransferSyntax] = tuple(TransferSyntax),
) -> tuple[tuple[Result, ...], Mapping[int, tuple[SyntaxId, TransferSyntax]], int]:
    """Return a server's results, the accepted contexts and the agreed features.

    There is one result for each context, in the same order. The accepted contexts are a mapping
    from p_cont_id to interface and transfer syntax. ``syntaxes`` are the transfer syntaxes in which
    the interfaces are served. ``features`` is the bit mask of the server.
    """
    contexts, known = tuple(contexts), frozenset(interfaces)
    chosen = {interface: _choose(interface, contexts, syntaxes) for interface in known}
    accepted: dict[int, tuple[SyntaxId, TransferSyntax]] = {}
    taken: set[SyntaxId] = set()
    agreed = 0
    results = []
    for context in contexts:
        offered = (
            features_of(context.transfer_syntaxes[0])
            if len(context.transfer_syntaxes) == 1
            else None
        )
        if offered is not None:
            agreed = offered & features
            results.append(Result(ResultCode.NEGOTIATE_ACK, agreed))
            continue
        if context.interface not in known:
            results.append(
                Result(ResultCode.PROVIDER_REJECTION, RejectReason.ABSTRACT_SYNTAX_NOT_SUPPORTED)
            )
            continue
        syntax = chosen[context.interface]
        if (
            syntax is None
            or context.interface in taken
            or syntax_id(syntax) not in context.transfer_syntaxes
        ):
            results.append(
                Result(
                    ResultCode.PROVIDER_REJECTION,
                    RejectReason.PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED,
                )
            )
            continue
        taken.add(context.interface)
        accepted[context.id] = (context.interface, syntax)
        results.append(Result(ResultCode.ACCEPTANCE, 0, syntax_id(syntax)))
    return tuple(results), accepted, agreed


def _choose(
    interface: SyntaxId, contexts: Iterable[Context], served: Collection[TransferSyntax]
) -> TransferSyntax | None:
    """Return the transfer syntax for an interface, or ``None`` if none of ``served`` is offered.

    ``served`` are the syntaxes in which the server can answer. The preferred syntax is chosen if it
    is offered, else the first of ``served`` in the order of the offers.
    """
    offered = [
        syntax
        for context in contexts
        if context.interface == interface
        for identifier in context.transfer_syntaxes
        if (syntax := transfer_syntax_of(identifier)) is not None and syntax in served
    ]
    return PREFERRED if PREFERRED in offered else next(iter(offered), None)
