"""Hypothesis strategies: messages that SRMP can carry, as Windows' encoder leaves nothing out of them."""

from __future__ import annotations

from hypothesis import Phase, settings
from hypothesis import strategies as st

from srmp_spark.message import Message, Receipt, StreamId, StreamPosition
from srmp_spark.srmp.codec.values import SECOND, parse_date

quick = settings(
    max_examples=60,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
"""Without Hypothesis' explanation of a failure, which traces every line and takes minutes."""

XML_CHARACTERS = st.characters(
    codec="utf-8",
    exclude_categories=["Cs"],
    exclude_characters=[chr(n) for n in range(32) if n not in (9, 10, 13)] + ["\ufffe", "\uffff"],
)
labels = st.one_of(
    st.just(""),
    st.text(XML_CHARACTERS, max_size=30).map(lambda text: f"MSMQ:{text}"),
    st.text(XML_CHARACTERS, max_size=30),
)
guids = st.uuids().map(str)
numbers = st.one_of(st.integers(0, 5), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
positions = st.one_of(st.integers(1, 5), st.integers(1, 2**32 - 1))
dates = st.integers(
    parse_date("00010101T000000") // SECOND, parse_date("99991231T235959") // SECOND
).map(lambda second: second * SECOND)
urls = st.builds(
    "{}://{}/msmq/private$/{}".format,
    st.sampled_from(["http", "https", "HTTP"]),
    st.sampled_from(["machine2", "10.0.0.1:8080", "größe.example", "[::1]"]),
    st.text(XML_CHARACTERS, min_size=1, max_size=12)
    .map(lambda name: name.strip() or "q")
    .map(lambda name: f"a{name}b"),
)
names = (
    st.text(XML_CHARACTERS, min_size=1, max_size=12)
    .map(lambda name: "".join(name.split()) or "q")
    .map(lambda name: f"DIRECT={name}")
)
stream_ids = st.builds(StreamId, guids, numbers)
correlations = st.one_of(st.just(bytes(20)), st.binary(min_size=20, max_size=20))


@st.composite
def streams(draw):
    start = draw(st.booleans())
    current = draw(positions)
    previous = draw(st.one_of(st.just(current - 1), st.integers(0, 2**32 - 1)))
    return StreamPosition(draw(stream_ids), current, previous, start, draw(urls) if start else None)


@st.composite
def receipts(draw):
    kind = draw(st.sampled_from(["delivery", "commitment", "stream", "final_stream"]))
    in_stream = kind in ("stream", "final_stream")
    is_plain = kind == "stream"
    return Receipt(
        kind,
        None if is_plain else draw(guids),
        None if is_plain else draw(numbers),
        None if is_plain else draw(dates),
        draw(st.sampled_from(["positive", "negative"]))
        if kind in ("commitment", "final_stream")
        else None,
        draw(stream_ids) if in_stream else None,
        draw(st.integers(0, 2**32 - 1)) if in_stream else None,
    )


def _common(**more):
    return {
        "destination": st.one_of(urls, st.just("MSMQ:MULTICAST=234.1.1.1:8001")),
        "action": labels,
        "sent_at": st.none() | dates,
        "expires_at": dates,
        "response_queue": st.none() | urls | st.just("DIRECT=OS:machine1\\private$\\q"),
        "delivery_receipt_to": st.none() | urls,
        **more,
    }


def _messages(**fields):
    return st.fixed_dictionaries(fields).map(lambda values: Message(**values))


bare_messages = _messages(**_common(durable=st.booleans(), body=st.binary(max_size=40)))
"""Without ``<Msmq>``."""


@st.composite
def full_messages(draw):
    """With ``<Msmq>``: user messages and receipts."""
    guid = draw(guids)
    stream = draw(st.none() | streams())
    receipt = draw(st.none() | receipts())
    commitment = draw(st.none() | urls)
    return draw(
        _messages(
            **_common(
                lineage=st.just(guid),
                source_qm=st.just(guid),
                uniquifier=numbers,
                has_msmq=st.just(True),
                message_class=st.integers(0, 2**32 - 1),
                priority=st.integers(0, 7),
                durable=st.just(True) if stream else st.booleans(),
                stream=st.just(stream),
                receipt=st.just(receipt),
                time_to_reach_queue=dates,
                body=st.just(b"") if receipt else st.binary(max_size=40),
                extension=st.none() if receipt else st.none() | st.binary(max_size=40),
                body_type=numbers,
                correlation=correlations,
                app_specific=numbers,
                hash_algorithm=numbers,
                commitment_receipt_to=st.just(commitment),
                commitment_positive=st.booleans() if commitment else st.just(False),
                commitment_negative=st.booleans() if commitment else st.just(False),
                journal=st.booleans(),
                dead_letter=st.booleans(),
                trace=st.booleans(),
                first_in_transaction=st.booleans(),
                last_in_transaction=st.booleans(),
                connector_type=st.none() | guids,
                connector_qm=st.none() | guids,
                provider_type=st.none() | numbers,
                provider_name=st.none() | names,
                destination_list=st.lists(names, max_size=3).map(tuple),
                admin_list=st.lists(names, max_size=3).map(tuple),
                response_list=st.lists(names, max_size=3).map(tuple),
            ),
        )
    )


messages = st.one_of(full_messages(), bare_messages)
