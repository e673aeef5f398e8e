"""Sign in with NTLM version 2 as a security provider of DCE/RPC: client and server.

    client                         server
    NEGOTIATE    ──────────▶
                 ◀──────────       CHALLENGE      eight random bytes
    AUTHENTICATE ──────────▶                      proof of the password over all three messages;
                                                  a session key; a MIC over all three messages

The specification is [MS-NLMP] 3.1.5 and 3.2.5. NTLM version 1, and session security without its
extension, are refused. The signature covers the whole PDU, whether or not both sides stated that
they sign headers, because implementations agree on that. Time and random bytes are arguments.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from typing import Protocol

from cryptography.hazmat.primitives.ciphers import CipherContext

from srmp_spark.mqrr.rpc.pdu import AuthLevel
from srmp_spark.mqrr.rpc.security import SecurityError
from srmp_spark.signing_in.accounts import Account
from srmp_spark.signing_in.ntlm_crypto import (
    hmac_md5,
    nt_hash,
    ntowfv2,
    rc4,
    rc4k,
    seal_key,
    sign_key,
)
from srmp_spark.signing_in.ntlm_messages import (
    MIC_AT,
    MIC_IS_THERE,
    MIC_SIZE,
    Authenticate,
    Challenge,
    Flags,
    Pair,
    encode_negotiate,
    encode_pairs,
    parse_authenticate,
    parse_challenge,
    parse_negotiate,
    parse_pairs,
)

AUTH_TYPE = 10
"""Authentication type of NTLM: RPC_C_AUTHN_WINNT."""
SIGNATURE_SIZE = 16
PROOF_SIZE = 16
_TEMP_FIXED = 28
"""Bytes before the pairs in the second part of an NTLMv2 response.

The bytes hold versions, reserved bytes, the time, the client challenge, and reserved bytes.
"""
_NEEDED = Flags.UNICODE | Flags.NTLM | Flags.EXTENDED_SESSIONSECURITY | Flags.KEY_128
_OFFERED = (
    _NEEDED
    | Flags.REQUEST_TARGET
    | Flags.SIGN
    | Flags.SEAL
    | Flags.ALWAYS_SIGN
    | Flags.TARGET_INFO
    | Flags.VERSION
    | Flags.KEY_EXCH
    | Flags.KEY_56
)
_TICKS_1970 = 116_444_736_000_000_000
"""FILETIME of 1970-01-01: tenths of microseconds since 1601."""

AccountsOf = Callable[[str, str], tuple[Account, ...]]
"""Function from (domain, user) to the accounts that the name may mean.

It returns no account for an unknown name.
"""


class SignInGate(Protocol):
    """Delays the sign-ins of one connection after other sign-ins failed (:mod:`.delays`)."""

    def seconds_to_wait(self, accounts: Sequence[str]) -> float:
        """Return the seconds that an attempt at one of these accounts must still wait.

        0 means that the attempt may be judged now.
        """
        ...

    def failed(self, accounts: Sequence[str]) -> None:
        """Count an attempt at these accounts that was judged and failed."""
        ...

    def succeeded(self, account: str) -> None:
        """Count a successful attempt at the account."""
        ...


class _Direction:
    """Signs and encrypts the messages of one side.

    It holds the side's keys and the count of signed messages.
    """

    def __init__(self, session_key: bytes, *, client: bool, key_exchange: bool) -> None:
        self._signing = sign_key(session_key, client=client)
        self._stream: CipherContext = rc4(seal_key(session_key, client=client))
        self._key_exchange = key_exchange
        self._count = 0

    def crypt(self, data: bytes) -> bytes:
        """Encrypt or decrypt ``data``, the next bytes of the RC4 stream."""
        return self._stream.update(data)

    def signature(self, message: bytes) -> bytes:
        """Return the MAC of ``message`` with extended session security (3.4.4.2).

        If the message is encrypted too, call :meth:`crypt` first, because both use the same RC4
        stream.
        """
        number = self._count.to_bytes(4, "little")
        self._count = (self._count + 1) & 0xFFFFFFFF
        code = hmac_md5(self._signing, number + message)[:8]
        if self._key_exchange:
            code = self._stream.update(code)
        return b"\x01\0\0\0" + code + number


class _Session:
    """Protects the PDUs of one connection after the sign-in: the part that client and server share.

    The class implements :class:`srmp_spark.mqrr.rpc.security.SecurityContext` with its subclasses.
    """

    auth_type = AUTH_TYPE
    supports_header_signing = True
    odd_legs = True
    token_size = SIGNATURE_SIZE

    def __init__(self, level: int, *, client: bool) -> None:
        self._level = level
        self._client = client
        self._ours: _Direction | None = None
        self._theirs: _Direction | None = None
        self.complete = False
        self.identity: str | None = None

    def _begin(self, session_key: bytes, flags: Flags) -> None:
        exchanged = bool(flags & Flags.KEY_EXCH)
        self._ours = _Direction(session_key, client=self._client, key_exchange=exchanged)
        self._theirs = _Direction(session_key, client=not self._client, key_exchange=exchanged)
        self.complete = True

    def protect(
        self, header: bytes, body: bytes, trailer: bytes, *, sign_header: bool
    ) -> tuple[bytes, bytes]:
        """Return (body of a PDU as it is sent, token that signs the PDU).

        The body is encrypted at the level of privacy only. Each call advances the keys, so call it
        once for each PDU, in the order of sending.
        """
        # NTLM signs the whole PDU in either case.
        del sign_header
        assert self._ours is not None, "complete"
        sent = self._ours.crypt(body) if self._level == AuthLevel.PKT_PRIVACY else body
        return sent, self._ours.signature(header + body + trailer)

    def unprotect(
        self, header: bytes, body: bytes, trailer: bytes, token: bytes, *, sign_header: bool
    ) -> bytes:
        """Return the body of a received PDU in plain text, after a check of its ``token``.

        Each call advances the keys, so call it once for each PDU, in the order of receipt. Raises
        :class:`SecurityError` if the token does not match the PDU.
        """
        del sign_header
        assert self._theirs is not None, "complete"
        plain = self._theirs.crypt(body) if self._level == AuthLevel.PKT_PRIVACY else body
        if not hmac.compare_digest(self._theirs.signature(header + plain + trailer), token):
            raise SecurityError("the signature of a PDU is wrong")
        return plain


class NtlmAcceptor(_Session):
    """Lets a client sign in on one connection: the server's side of NTLM."""

    def __init__(
        self,
        level: int,
        accounts_of: AccountsOf,
        *,
        challenge: bytes,
        name: str,
        utc: int,
        told: Callable[[str], None] = lambda _: None,
        gate: SignInGate | None = None,
    ) -> None:
        """Prepare the sign-in of one client.

        ``challenge`` are eight random bytes. ``name`` is the name of this machine. ``utc`` is in
        microseconds since 1970. ``accounts_of`` returns the accounts that a name may mean. ``told``
        is called with the text for the log when a client is refused. ``gate`` delays attempts after
        failures.
        """
        super().__init__(level, client=False)
        self._accounts_of = accounts_of
        self._gate = gate
        self._challenge = challenge
        self._name = name
        self._utc = utc
        self._told = told
        self._said: list[bytes] = []
        self._pairs: dict[int, bytes] = {}

    def step(self, token: bytes) -> bytes:
        """Return the next token for the client, given the client's ``token``.

        After the client's last token the result is ``b""``. Raises :class:`SecurityError` if the
        client cannot do NTLM version 2, proves no known account, or must wait after failures.
        """
        if self.complete:
            raise SecurityError("an NTLM message after the last one")
        if not self._said:
            return self._challenge_for(token)
        self._accept(token)
        return b""

    def _challenge_for(self, token: bytes) -> bytes:
        offered = parse_negotiate(token)
        if _NEEDED & ~offered:
            raise SecurityError(
                f"the client cannot do {_NEEDED & ~offered!r}: NTLM version 2 with 128 "
                "bits is needed"
            )
        name = self._name.encode("utf-16-le")
        pairs: dict[int, bytes] = {
            Pair.NB_DOMAIN_NAME: name,
            Pair.NB_COMPUTER_NAME: name,
            Pair.DNS_DOMAIN_NAME: name,
            Pair.DNS_COMPUTER_NAME: name,
            Pair.TIMESTAMP: (self._utc * 10 + _TICKS_1970).to_bytes(8, "little"),
        }
        flags = (
            (offered & _OFFERED)
            | Flags.TARGET_INFO
            | Flags.TARGET_TYPE_SERVER
            | Flags.REQUEST_TARGET
            | Flags.VERSION
        )
        challenge = Challenge(flags, self._challenge, encode_pairs(pairs), self._name).encode()
        self._said = [token, challenge]
        self._pairs = pairs
        return challenge

    def _accept(self, token: bytes) -> None:
        message = parse_authenticate(token)
        who = f"{message.domain}\\{message.user}"
        accounts = self._accounts_of(message.domain, message.user)
        names = [account.name for account in accounts]
        if self._gate is not None and (wait := self._gate.seconds_to_wait(names)) > 0:
            raise SecurityError(f"sign-ins failed before: the next one is judged in {wait:.0f} s")
        try:
            account, session_key = self._session_key(message, token, accounts)
        except SecurityError as error:
            if self._gate is not None:
                self._gate.failed(names)
            self._told(f"{ascii(who)[1:-1]} was not let in: {error}")
            raise
        if self._gate is not None:
            self._gate.succeeded(account.name)
        self.identity = account.name
        self._begin(session_key, message.flags)

    def _session_key(
        self, message: Authenticate, token: bytes, accounts: Sequence[Account]
    ) -> tuple[Account, bytes]:
        proof, temp = message.nt_response[:PROOF_SIZE], message.nt_response[PROOF_SIZE:]
        if len(temp) < _TEMP_FIXED or temp[:2] != b"\x01\x01":
            raise SecurityError("the response is not of NTLM version 2")
        if _NEEDED & ~message.flags:
            raise SecurityError(
                f"the client left out {_NEEDED & ~message.flags!r}, which it had offered"
            )
        pairs = parse_pairs(temp[_TEMP_FIXED:])
        for account in accounts:
            key = ntowfv2(message.user, account.nt_hash, message.domain)
            if not hmac.compare_digest(hmac_md5(key, self._challenge + temp), proof):
                continue
            base_key = hmac_md5(key, proof)
            session_key = base_key
            if message.flags & Flags.KEY_EXCH:
                if len(message.session_key) != len(base_key):
                    raise SecurityError("the session key does not have 16 bytes")
                session_key = rc4k(base_key, message.session_key)
            # A client that received a challenge without a time sends no MIC over the messages.
            # So the client must return all pairs of the challenge unchanged.
            if any(pairs.get(kind) != value for kind, value in self._pairs.items()):
                raise SecurityError(
                    "the response is to another challenge: ours was changed in transit"
                )
            if int.from_bytes(pairs.get(Pair.FLAGS, b""), "little") & MIC_IS_THERE:
                self._check_code(session_key, message, token)
            return account, session_key
        raise SecurityError("no account with this name and password")

    def _check_code(self, session_key: bytes, message: Authenticate, token: bytes) -> None:
        without = token[:MIC_AT] + bytes(MIC_SIZE) + token[MIC_AT + MIC_SIZE :]
        if not hmac.compare_digest(
            hmac_md5(session_key, b"".join((*self._said, without))), message.mic
        ):
            raise SecurityError(
                "the MIC over the three NTLM messages is wrong: a message was changed in transit"
            )


class NtlmInitiator(_Session):
    """Signs in on one connection with a user and a password: the client's side of NTLM."""

    def __init__(
        self,
        level: int,
        user: str,
        password: str,
        domain: str,
        *,
        random: Callable[[int], bytes],
        utc: int,
        service: str = "",
    ) -> None:
        """Prepare the sign-in with these credentials.

        ``random`` returns the given number of random bytes. ``utc`` is in microseconds since 1970.
        ``service`` is ``host/NAME`` of the server, or empty.
        """
        super().__init__(level, client=True)
        self._user, self._password, self._domain = user, password, domain
        self._random = random
        self._utc = utc
        self._service = service
        self._negotiate = b""

    def step(self, token: bytes) -> bytes:
        """Return the next token for the server: NEGOTIATE first, then the answer to its CHALLENGE.

        Raises :class:`SecurityError` if ``token`` is invalid, or the server cannot do NTLM version
        2 with 128 bits.
        """
        if not self._negotiate:
            self._negotiate = encode_negotiate(_OFFERED)
            return self._negotiate
        if self.complete:
            raise SecurityError("an NTLM message after the last one")
        return self._answer(token)

    def _answer(self, token: bytes) -> bytes:
        challenge = parse_challenge(token)
        if _NEEDED & ~challenge.flags:
            raise SecurityError(
                f"the server cannot do {_NEEDED & ~challenge.flags!r}: NTLM version 2 "
                "with 128 bits is needed"
            )
        pairs = parse_pairs(challenge.target_info)
        time = pairs.get(Pair.TIMESTAMP) or (self._utc * 10 + _TICKS_1970).to_bytes(8, "little")
        with_code = Pair.TIMESTAMP in pairs
        if with_code:
            pairs[Pair.FLAGS] = (
                int.from_bytes(pairs.get(Pair.FLAGS, b""), "little") | MIC_IS_THERE
            ).to_bytes(4, "little")
        if self._service:
            pairs[Pair.TARGET_NAME] = self._service.encode("utf-16-le")
        key = ntowfv2(self._user, nt_hash(self._password), self._domain)
        temp = (
            b"\x01\x01"
            + bytes(6)
            + time
            + self._random(8)
            + bytes(4)
            + encode_pairs(pairs)
            + bytes(4)
        )
        proof = hmac_md5(key, challenge.challenge + temp)
        session_key = base_key = hmac_md5(key, proof)
        encrypted = b""
        flags = challenge.flags & _OFFERED
        if flags & Flags.KEY_EXCH:
            session_key = self._random(16)
            encrypted = rc4k(base_key, session_key)
        message = Authenticate(
            bytes(24), proof + temp, self._domain, self._user, "", encrypted, flags
        )
        if with_code:
            code = hmac_md5(session_key, self._negotiate + token + message.encode())
            message = message._replace(mic=code)
        self._begin(session_key, flags)
        return message.encode()
