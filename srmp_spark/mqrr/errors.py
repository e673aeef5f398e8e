"""What can be wrong with the stub data of a call, apart from the packet inside it."""

from __future__ import annotations

from srmp_spark.errors import RemoteProtocolError


class BadStubError(RemoteProtocolError):
    """Stub data that cannot be unmarshalled, or that breaks a consistency check ([MS-RPCE] 3.1.1.5.3).

    A server answers with a fault of status RPC_X_BAD_STUB_DATA (0x6F7); a client treats the call as failed.
    """

    def __init__(self, message: str, *, section: str = "[MS-RPCE] 3.1.1.5.3") -> None:
        super().__init__(message, section=section)
