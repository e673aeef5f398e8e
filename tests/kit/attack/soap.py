"""Writes messages of WS-ReliableMessaging for an attacker.

The messages use all combinations of versions, also combinations that no standard defines.
"""

from __future__ import annotations

from typing import Any

from srmp_spark.wsrm.codec.namespaces import (
    MAKE_CONNECTION,
    MAKE_CONNECTION_ANONYMOUS,
    AddressingVersion,
    RmVersion,
    SoapVersion,
)

VERSIONS = tuple(
    (soap, addressing, rm)
    for soap in SoapVersion
    for addressing in AddressingVersion
    for rm in RmVersion
)
"""All combinations of versions, also those that no standard defines.

Neighbours (``n ^ 1``) differ only in the version of WS-ReliableMessaging.
"""
OPERATIONS = (
    "CreateSequence",
    "Sequence",
    "Sequence",
    "Sequence",
    "LastMessage",
    "CloseSequence",
    "TerminateSequence",
    "AckRequested",
    "SequenceAcknowledgement",
    "MakeConnection",
    "Fault",
    "nothing",
)
MIME = {
    SoapVersion.V1_1: "text/xml; charset=utf-8",
    SoapVersion.V1_2: "application/soap+xml; charset=utf-8",
}
_LETTER = "ü"


def envelope_of(given: Any, identifier: str, sent: int) -> str:  # noqa: ANN401  # a mapping of JSON values
    """Return the SOAP envelope of one step as an attacker may write it.

    ``given`` has the values of the step, ``identifier`` is that of the sequence, and ``sent`` a
    number for the message identifier. The encoder of srmp-spark would refuse to write some of the
    envelopes.
    """
    soap, addressing, rm = VERSIONS[given["version"]]
    operation, number = given["op"], given["number"]
    named = f"<r:Identifier>{identifier}</r:Identifier>"
    header = body = ""
    if operation == "CreateSequence":
        body = (
            f"<r:CreateSequence><r:AcksTo>{_acks_to(given, addressing)}</r:AcksTo></r:C"
            "reateSequence>"
        )
    elif operation in ("CloseSequence", "TerminateSequence"):
        last = (
            f"<r:LastMsgNumber>{number}</r:LastMsgNumber>"
            if number % 2 and rm is RmVersion.V1_1
            else ""
        )
        body = f"<r:{operation}>{named}{last}</r:{operation}>"
    elif operation in ("Sequence", "LastMessage"):
        last = "<r:LastMessage/>" if operation == "LastMessage" else ""
        header = (
            f"<r:Sequence>{named}<r:MessageNumber>{number}</r:MessageNumber>{last}</r:Sequence>"
        )
        body = "<n/>"
    elif operation == "AckRequested":
        header = f"<r:AckRequested>{named}</r:AckRequested>"
    elif operation == "SequenceAcknowledgement":
        header = (
            f'<r:{operation}>{named}<r:AcknowledgementRange Lower="1" '
            f'Upper="{number}"/></r:{operation}>'
        )
    elif operation == "MakeConnection":
        polled = f"{MAKE_CONNECTION_ANONYMOUS}890cb1ba-0abc-4ca4-9ef2-039d28437414"
        body = (
            f'<m:MakeConnection xmlns:m="{MAKE_CONNECTION}"><m:Address>{polled}</m:Addr'
            "ess></m:MakeConnection>"
        )
    elif operation == "Fault":
        body = "<s:Fault><faultcode>s:Client</faultcode><faultstring>no</faultstring></s:Fault>"
    outer, inner, filling = _prefixes(given)
    if "size" in given:
        body += f"<f>{(filling * (given['size'] // len(filling) + 1))[: given['size']]}</f>"
    message_id = given["id"] or f"urn:uuid:{sent}"
    return (
        f'<s:Envelope xmlns:s="{soap.value}" xmlns:a="{addressing.value}" '
        f'xmlns:r="{rm.value}"{outer}><s:Header>'
        f"<a:Action>{rm.value}/{operation}</a:Action><a:MessageID>{message_id}</a:MessageID>{header}</s:Header>"
        f"<s:Body{inner}>{body}</s:Body></s:Envelope>"
    )


def _prefixes(given: Any) -> tuple[str, str, str]:  # noqa: ANN401  # a mapping of JSON values
    """Return the namespace declarations for Envelope and Body, and a filling for the body.

    The filling is expensive for a reader that searches it for the prefixes.
    """
    if "prefixes" not in given:
        return "", "", "x"
    count, length, is_foreign = given["prefixes"]
    letter = _LETTER if is_foreign else "p"
    outer = "".join(
        f' xmlns:{letter * length}o{n}="urn:o{n}"' for n in range(count if length < 100 else 0)
    )
    inner = "".join(f' xmlns:{letter * length}i{n}="urn:i{n}"' for n in range(min(count, 60)))
    return outer, inner, f"{letter * length} "


def _acks_to(given: Any, addressing: AddressingVersion) -> str:  # noqa: ANN401  # a mapping of JSON values
    polled = f"{MAKE_CONNECTION_ANONYMOUS}890cb1ba-0abc-4ca4-9ef2-039d28437414"
    addresses = {"anonymous": addressing.anonymous, "polled": polled, "none": addressing.none}
    address = f"<a:Address>{addresses.get(given['acks'], given['acks'])}</a:Address>"
    parameter = given.get("parameter")
    if parameter is None:
        return address
    text = {
        "text": "<q>po1:x</q>",
        "nested": "<q>" * 20 + "po2:y" + "</q>" * 20,
        "large": f"<q>{'z ' * 9_000}</q>",
    }[parameter]
    return f"{address}<a:ReferenceParameters>{text}</a:ReferenceParameters>"
