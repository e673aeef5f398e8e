"""Which presentation contexts a server accepts, and the features of bind time ([MS-RPCE] 3.3.1.5.3, 3.3.1.5.6).

A client offers each transfer syntax in a context of its own, or several in one. The server accepts at most one for an
interface: the one it prefers if that was offered, else the first that it knows. One more context carries no syntax but a bit
mask, in a UUID with a known beginning: features that both sides may have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from srmp_spark.mqrr.guids import guid_bytes, guid_text
from srmp_spark.mqrr.ndr.transfer_syntax import NDR64, TransferSyntax
from srmp_spark.mqrr.rpc.binding import Context, RejectReason, Result, ResultCode, SyntaxId

FEATURES_PREFIX = bytes.fromhex("2c1cb76c12984045")
"""6CB71C2C-9812-4540, as it lies on the wire; the eight bytes behind it are the mask."""
FEATURES_VERSION = 1
SECURITY_CONTEXT_MULTIPLEXING = 0x01
KEEP_CONNECTION_ON_ORPHAN = 0x02
PREFERRED = NDR64
"""What a server accepts where it is offered: Windows of 64 bits prefers it too."""

_SYNTAXES = {SyntaxId(syntax.uuid, syntax.version): syntax for syntax in TransferSyntax}


def transfer_syntax_of(syntax: SyntaxId) -> TransferSyntax | None:
    """The transfer syntax that an identifier names, if it is one that we know."""
    return _SYNTAXES.get(syntax)


def syntax_id(syntax: TransferSyntax) -> SyntaxId:
    """The identifier of a transfer syntax."""
    return SyntaxId(syntax.uuid, syntax.version)


def features_of(syntax: SyntaxId) -> int | None:
    """The mask of features in a transfer syntax that is none; ``None`` in one that is."""
    raw = guid_bytes(syntax.uuid)
    if raw[:8] != FEATURES_PREFIX or syntax.version != FEATURES_VERSION:
        return None
    return int.from_bytes(raw[8:], "little")


def features_syntax(features: int) -> SyntaxId:
    """How a client writes its mask."""
    return SyntaxId(guid_text(FEATURES_PREFIX + features.to_bytes(8, "little")), FEATURES_VERSION)


def offers(
    interface: SyntaxId, syntaxes: Sequence[TransferSyntax], features: int | None
) -> tuple[Context, ...]:
    """The contexts of a client's bind: one for each transfer syntax, as Windows does, and one for features."""
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
    """A server's results, one for each context in their order; what was accepted, by p_cont_id; and the features agreed on.

    ``syntaxes``: those that its interfaces are served in.
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
    """The transfer syntax for an interface: the preferred one if it is offered, else the first that is known."""
    offered = [
        syntax
        for context in contexts
        if context.interface == interface
        for identifier in context.transfer_syntaxes
        if (syntax := transfer_syntax_of(identifier)) is not None and syntax in served
    ]
    return PREFERRED if PREFERRED in offered else next(iter(offered), None)
