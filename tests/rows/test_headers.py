"""Framework headers in the extension: NServiceBus and Rebus (reference/srmp_users_peers.md, need 12)."""

from __future__ import annotations

import json

import pytest

from srmp_spark.rows.headers import HEADERS_BYTES_MAX, nservicebus_headers, rebus_headers

NSERVICEBUS = (
    b'<?xml version="1.0"?>\r\n<ArrayOfHeaderInfo '
    b'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    b'xmlns:xsd="http://www.w3.org/2001/XMLSchema">\r\n'
    b"  <HeaderInfo>\r\n    <Key>NServiceBus.EnclosedMessageTypes</Key>\r\n"
    b"    <Value>Shop.OrderPlaced, Shop &amp; Co</Value>\r\n"
    b"  </HeaderInfo>\r\n  <HeaderInfo><Key>NServiceBus.ConversationId</Key><Value "
    b'xsi:nil="true" /></HeaderInfo>\r\n'
    b"</ArrayOfHeaderInfo>"
)
HEADERS = {"rbs2-msg-id": "9f1d", "rbs2-msg-type": "Shop.Bestellung+Größe, Shop"}


def utf7_of_dotnet(text: str) -> bytes:
    """.NET's UTF7Encoding without optional characters: all but letters, digits and '(),-./:? goes into base64."""
    import base64

    out, run = bytearray(), ""
    for character in text + "\0":
        if character.isascii() and (character.isalnum() or character in "'(),-./:? \t\r\n\0"):
            if run:
                out += b"+" + base64.b64encode(run.encode("utf-16-be")).rstrip(b"=") + b"-"
                run = ""
            out += character.encode()
        else:
            run += character
    return bytes(out[:-1])


def test_nservicebus() -> None:
    assert nservicebus_headers(NSERVICEBUS) == {
        "NServiceBus.EnclosedMessageTypes": "Shop.OrderPlaced, Shop & Co",
        "NServiceBus.ConversationId": "",
    }


def test_nservicebus_version_3_left_nuls_behind() -> None:
    assert nservicebus_headers(NSERVICEBUS + b"\0\0\0") == nservicebus_headers(NSERVICEBUS)


def test_rebus_in_utf_7_as_dotnet_writes_it() -> None:
    extension = utf7_of_dotnet(json.dumps(HEADERS, ensure_ascii=False))
    assert extension.startswith(b"+AHsAIg-rbs2-msg-id")
    assert rebus_headers(extension) == HEADERS


def test_rebus_in_utf_8() -> None:
    assert rebus_headers(json.dumps(HEADERS, ensure_ascii=False).encode()) == HEADERS


def test_an_empty_extension_has_no_headers() -> None:
    assert nservicebus_headers(b"") == rebus_headers(b"") == {}


@pytest.mark.parametrize(
    "extension",
    [b"\x00\x01\x02", b"<a/>", NSERVICEBUS[:-10], b"x" * (HEADERS_BYTES_MAX + 1),
     b'<!DOCTYPE a [<!ENTITY e "x">]><ArrayOfHeaderInfo>&e;</ArrayOfHeaderInfo>'],
)  # fmt: skip
def test_what_is_no_nservicebus_extension_is_said(extension: bytes) -> None:
    with pytest.raises(ValueError, match="extension"):
        nservicebus_headers(extension)


@pytest.mark.parametrize(
    "extension", [b"\xff\xfe", b"[1]", b"{", b"+AHs-", NSERVICEBUS, b"[" * 100_000]
)
def test_what_is_no_rebus_extension_is_said(extension: bytes) -> None:
    with pytest.raises(ValueError, match="extension"):
        rebus_headers(extension)
