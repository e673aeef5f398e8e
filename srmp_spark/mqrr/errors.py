"""The error for the stub data of a call, apart from errors of the packet inside the stub."""

from __future__ import annotations

from srmp_spark.errors import RemoteProtocolError


class BadStubError(RemoteProtocolError):
    """Reports stub data that cannot be unmarshalled or that breaks a consistency check.

    The checks are those of [MS-RPCE] 3.1.1.5.3. A server answers with a fault of status
    RPC_X_BAD_STUB_DATA (0x6F7). A client treats the call as failed.
    """

    def __init__(self, message: str, *, section: str = "[MS-RPCE] 3.1.1.5.3") -> None:
        super().__init__(message, section=section)
