"""Questions to a raw request head: [MC-MQSRM] chapter 4. Bad targets are in test_bad_inputs.py."""

from __future__ import annotations

import pytest
from codec_kit import sample

from srmp_spark.srmp.codec.http_head import check_target, content_type_of, soap_action_of


@pytest.mark.parametrize(
    ("target", "queue"),
    [
        (b"/msmq/private$/simpleq", "private$/simpleq"),
        (b"/MSMQ/Private$/SimpleQ", "private$/simpleq"),
        (b"/msmq/private$\\simpleq", "private$/simpleq"),
        (b"\\msmq\\private$\\simpleq", None),
        (b"/msmq/private$/receipts?senderstream=xrntv", "private$/receipts"),
        (b"/msmq/orders", "orders"),
        (b"/msmq/private%24/my%20queue", "private$/my queue"),
        (b"/msmq/private$/a.b-c_d;e", "private$/a.b-c_d;e"),
        ("/msmq/private$/größe".encode(), "private$/größe"),
        (b"/msmq/private$/gr%C3%B6%C3%9Fe", "private$/größe"),
        (b"http://machine2/msmq/private$/simpleq?x", "private$/simpleq"),
        (b"HTTPS://machine2:443/MSMQ/orders", "orders"),
        (b"/msmq/private$/order_queue$", "private$/order_queue$"),
    ],
)
def test_which_queue(target, queue):
    if queue is None:
        with pytest.raises(Exception, match="names no queue"):
            check_target(target)
    else:
        assert check_target(target) == queue


def test_the_documents_heads():
    head = sample("mqsrm_4.1_simple_as_printed.txt").head
    assert (
        content_type_of(head)
        == b'multipart/related; boundary="MSMQ - SOAP boundary, 53287"; type=text/xml'
    )
    assert soap_action_of(head) == "MSMQMessage"
    assert content_type_of(sample("mqsrm_4.3_delivery_receipt_flat.txt").head) == b"text/xml"


@pytest.mark.parametrize(
    ("head", "content_type"),
    [
        (b"POST / HTTP/1.1\r\ncontent-type:text/xml \t\r\n\r\n", b"text/xml"),
        (
            b"POST / HTTP/1.1\r\nCONTENT-TYPE: a/b;\r\n\tc=d\r\n e=f\r\nX: y\r\n\r\n",
            b"a/b; c=d e=f",
        ),
        (b'POST / HTTP/1.1\r\nContent-Type: a/b; c="d\r\n  e"\r\n\r\n', b'a/b; c="d e"'),
        (b"POST / HTTP/1.1\r\nContent-Type:\r\n a/b\r\n\r\n", b"a/b"),
        (b"POST / HTTP/1.1\r\nX-Content-Type: a/b\r\n\r\n", b""),
        (b"POST / HTTP/1.1\r\n\r\n", b""),
        (b"", b""),
    ],
)
def test_content_type(head, content_type):
    assert content_type_of(head) == content_type


@pytest.mark.parametrize(
    ("field", "action"),
    [
        (b'SOAPAction: "MSMQMessage"', "MSMQMessage"),
        (b"soapaction:urn:x ", "urn:x"),
        (b'SOAPAction: ""', ""),
        (b"SOAPAction:", ""),
        (b'SOAPAction: "', '"'),
        (b"X: y", None),
    ],
)
def test_soap_action(field, action):
    assert soap_action_of(b"POST / HTTP/1.1\r\n" + field + b"\r\n\r\n") == action
