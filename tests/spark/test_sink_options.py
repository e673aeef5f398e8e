"""The sink's options and columns: everything that is wrong is refused before a row is read, with the next step in the text."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import types
from pyspark.sql.types import StructField, StructType

from srmp_spark import SrmpSink
from srmp_spark.client.outbox_batches import CommitAnswer
from srmp_spark.errors import ConfigurationError
from srmp_spark.rows.columns import NAMES, comment_of
from srmp_spark.spark import writer
from srmp_spark.spark.settings.misspelt_columns import misspelt
from srmp_spark.spark.settings.sink_columns import SINK_COLUMNS, StagePlan, plan
from srmp_spark.spark.settings.sink_options import (
    SINK_OPTIONS,
    Target,
    check_stream_sink,
    parse_sink,
)
from srmp_spark.spark.staging import StagedPartition
from srmp_spark.testing.queue_manager import RunningQueueManager

URL = "http://127.0.0.1:8081"
QUEUE = "DIRECT=http://host/msmq/private$/orders"


TYPES: dict[str, types.DataType] = {
    "string": types.StringType(), "binary": types.BinaryType(), "int": types.IntegerType(), "long": types.LongType(),
    "double": types.DoubleType(), "timestamp": types.TimestampType(), "timestamp_ntz": types.TimestampNTZType(),
    "array": types.ArrayType(types.StringType()), "decimal": types.DecimalType(20, 0), "date": types.DateType(),
    "struct": StructType([StructField("a", types.IntegerType())]),
}  # fmt: skip


def planned(ddl: str, **options: str) -> StagePlan:
    """``ddl``: names and types; Spark's own reader of it needs a JVM."""
    schema = StructType(
        [
            StructField(name, TYPES[kind])
            for name, kind in (part.split(" ") for part in ddl.split(", "))
        ]
    )
    return plan(parse_sink({"queueManager": URL, "destination": QUEUE, **options}), schema)


def refusal(ddl: str, **options: str) -> str:
    with pytest.raises(ConfigurationError) as error:
        planned(ddl, **options)
    return str(error.value)


# --- options ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"destinaton": QUEUE}, "unknown option 'destinaton'; did you mean 'destination'?"),
        ({"queue": "orders"}, "did you mean 'destination'?"),
        ({"consumer": "x"}, "did you mean 'application'?"),
        ({"startingOffsets": "earliest"}, "belongs to the source"),
        ({"dataDir": "/data"}, "give the sink queueManager"),
        ({"listen": "127.0.0.1:0"}, "give the sink queueManager"),
        (
            {"zzz": "1"},
            "deadLetter, deadLetterQueue, destination, onBadRow, onKeyConflict, orderBy",
        ),
        ({"onBadRow": "skp"}, "option onBadRow: 'skp'"),
        ({"onBadRow": "dead-letter"}, "option deadLetterQueue is missing: onBadRow=dead-letter"),
        ({"deadLetterQueue": "DIRECT=http://h/msmq/q"}, "option deadLetterQueue: not a queue name"),
        ({"deadLetterQueue": "private$/order_queue$"}, "accepts no dead letters"),
        ({"path": "/x"}, ".option('destination', …)"),
        ({"queueManager": f"{URL},{URL}1"}, "the sink takes one URL"),
        ({"queueManager": "127.0.0.1:8081"}, "expected http://HOST:PORT"),
        ({"queueManager": f"{URL}/v1"}, "has a path"),
        ({"queueManager": ""}, "option queueManager is missing"),
        ({"destination": ""}, "option destination is empty"),
        (
            {"destination": "private$/orders"},
            "option destination: not a destination: not an http or https URL",
        ),
        ({"destination": "http://host/"}, "the URL has no path, so it names no queue"),
        ({"destination": f"{QUEUE},DIRECT=http://h:0/msmq/q"}, "not a port: 0"),
        ({"destination": "MULTICAST=1.2.3.4:1"}, "option destination: not a destination"),
        (
            {"destination": "wsrm://h/q"},
            "option destination: not a destination: not an http or https URL",
        ),
        ({"destination": "wsrm:http://h/q", "soapAction": "urn:a"}, "did you mean 'soap_action'?"),
        ({"destination": "wsrm:http://h/q", "soap_action": ""}, "option soap_action is empty"),
        ({"destination": "wsrm:http://h/q", "wsrm_version": "2.0"}, "option wsrm_version: '2.0'"),
        (
            {"destination": "http://h/msmq/q", "soap_action": "urn:a"},
            "option soap_action has no effect",
        ),
        ({"bodyFormat": "activx"}, "did you mean 'activex'?"),
        ({"deadLetter": "yes"}, "expected true or false"),
        ({"orderBy": "a,,b"}, "an empty name"),
        ({"orderBy": "a, A"}, "one column twice"),
        ({"orderBy": "sent_at DESC"}, "orders them ascending"),
        ({"orderBy": "[1]"}, "expected names of columns"),
        ({"orderBy": '["a"'}, "no JSON"),
        ({"application": ""}, "is no name"),
        ({"application": "x" * 201}, "is no name"),
    ],
)
def test_a_wrong_option_is_told(options: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_sink({"queueManager": URL, **options})
    assert told in str(error.value)


def test_options_come_in_any_case_and_with_a_checkpoint() -> None:
    """Spark writes the names of a sink's options in lower case and hands over those of the query."""
    found = parse_sink(
        {
            "queuemanager": URL + "/",
            "ORDERBY": "a, `b`",
            "deadletter": "TRUE",
            "bodyformat": "Xml",
            "checkpointlocation": "/c",
        }
    )
    assert (found.queue_manager, found.order_by, found.dead_letter) == (URL, ("a", "b"), True)
    assert (found.body_format, found.checkpoint, found.application) == ("xml", "/c", None)
    assert parse_sink({"queueManager": URL, "orderBy": '["a, b", "c"]'}).order_by == ("a, b", "c")


def test_the_token_is_in_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "secret" not in repr(parse_sink({"queueManager": URL, "token": "secret"}))
    assert "secret" not in repr(SrmpSink(queueManager=URL, token="secret"))
    monkeypatch.setenv("SRMP_SPARK_TOKEN", "from the environment")
    assert parse_sink({"queueManager": URL}).token == "from the environment"


def test_a_stream_names_its_batches_itself() -> None:
    with pytest.raises(ConfigurationError, match="option batch has no effect"):
        check_stream_sink(parse_sink({"queueManager": URL, "batch": "1"}))


def test_srmp_sink_takes_the_options_by_name() -> None:
    taken = {spec.name for spec in SINK_OPTIONS} - {"batch"}
    code = SrmpSink.__init__.__code__
    assert set(code.co_varnames[1 : 1 + code.co_kwonlyargcount]) == taken
    assert (
        pickle.loads(pickle.dumps(SrmpSink(queueManager=URL, orderBy=["a", "b"])))._options[
            "orderBy"
        ]
        == '["a", "b"]'
    )
    with pytest.raises(ConfigurationError, match="did you mean 'xml'"):
        SrmpSink(queueManager=URL, bodyFormat="xm")  # type: ignore[arg-type]  # as a user might


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ({"queueMangaer": URL}, "unknown option 'queueMangaer'; did you mean 'queueManager'?"),
        (
            {"queueManager": URL, "queue": "private$/orders"},
            "belongs to the source; did you mean 'destination'?",
        ),
        ({"queueManager": URL, "batch": "1"}, "option batch has no effect"),
        ({"destination": QUEUE}, "option queueManager is missing"),
    ],
)
def test_srmp_sink_names_the_nearest_option_for_a_misspelt_keyword(
    keywords: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        SrmpSink(**keywords)  # type: ignore[arg-type]  # as a user might
    assert told in str(error.value)


def test_srmp_sink_takes_keywords_in_any_case_as_the_source_does() -> None:
    """Also those that are no strings."""
    found = SrmpSink(queuemanager=URL, ORDERBY=["a", "b"], deadletter=True)  # type: ignore[arg-type]  # of another case
    meant = SrmpSink(queueManager=URL, orderBy=["a", "b"], deadLetter=True)
    assert found._options == meant._options
    assert found._options["deadLetter"] == "true"


# --- columns ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("body double",
         ("body is double, the sink wants string or binary: write .withColumn('body', "
"col('body').cast('string'))")),
        ("body struct", ".withColumn('body', to_json('body'))"),
        ("body array", ".withColumn('body', to_json('body'))"),
        ("body string, label int",
         ("column label is int, the sink wants string: write .withColumn('label', "
"col('label').cast('string'))")),
        ("body string, priority string",
         ("column priority is string, the sink wants int: write .withColumn('priority', "
"col('priority').cast('int'))")),
        ("body string, app_specific decimal",
         ("is decimal(20,0), the sink wants long: write .withColumn('app_specific', "
"col('app_specific').cast('long'))")),
        ("body string, Correlation_Id string",
         ("is string, the sink wants binary: write .withColumn('Correlation_Id', "
"col('Correlation_Id').cast('binary'))")),
        ("body string, extension int", "col('extension').cast('string').cast('binary')"),
        ("body string, time_to_reach_queue timestamp_ntz", "col('time_to_reach_queue').cast('timestamp')"),
        ("body string, time_to_reach_queue string", "col('time_to_reach_queue').cast('timestamp')"),
        ("body string, key double",
         ("is double, the sink wants string, binary or an integer: write "
".withColumn('key', col('key').cast('string'))")),
        ("body string, delivery int", "column delivery is int, the sink wants string"),
        ("body string, queue_manager string, epoch string, queue string, sequence string",
         "column sequence is string, the sink wants long"),
        ("body string, Body string", "columns 'body' and 'Body' differ in case only"),
        ("value string", "is it 'value'? Then .withColumnRenamed('value', 'body')"),
        ("boddy string", "is it 'boddy'?"),
        ("n int", "column body is missing (found n): add it"),
    ],
)  # fmt: skip
def test_a_column_that_does_not_fit_is_told(ddl: str, told: str) -> None:
    assert told in refusal(ddl)


def test_the_destination_must_come_from_somewhere() -> None:
    schema = StructType().add("body", "string")
    with pytest.raises(ConfigurationError, match="destination is missing: give option destination"):
        plan(parse_sink({"queueManager": URL}), schema)
    assert plan(
        parse_sink({"queueManager": URL}),
        StructType().add("body", "string").add("destination", "string"),
    ).columns


def received(*made: str) -> StructType:
    """A frame of format("srmp"), but for columns that were computed."""
    schema = StructType()
    for name, kind in (("body", "binary"), ("label", "string"), ("destination", "string"), ("delivery", "string"),
                       ("time_to_reach_queue", "timestamp"), ("admin_queue", "string")):  # fmt: skip
        schema.add(
            StructField(
                name, TYPES[kind], metadata={} if name in made else {"comment": comment_of(name)}
            )
        )
    return schema


def test_rows_of_the_source_do_not_go_back_to_where_they_came_from() -> None:
    """They went round for ever: 3 rows became 171 in 20 seconds."""
    with pytest.raises(
        ConfigurationError, match=r"destination is missing: .* is that of the received message"
    ):
        plan(parse_sink({"queueManager": URL}), received())


def test_what_describes_the_message_that_came_says_nothing_of_the_one_that_goes() -> None:
    found = plan(parse_sink({"queueManager": URL, "destination": QUEUE}), received())
    assert [each.name for each in found.columns] == ["body", "label", "destination"]
    made = plan(parse_sink({"queueManager": URL}), received("destination", "delivery"))
    assert [each.name for each in made.columns] == ["body", "destination", "label", "delivery"]


def test_an_answer_may_go_to_the_administration_queue_of_the_message_that_came() -> None:
    """``withColumn("destination", col("admin_queue"))``: the comment tells that it is another column."""
    schema = StructType().add("body", "string")
    schema.add(
        StructField("destination", TYPES["string"], metadata={"comment": comment_of("admin_queue")})
    )
    assert [each.name for each in plan(parse_sink({"queueManager": URL}), schema).columns] == [
        "body",
        "destination",
    ]


def test_it_may_order_them_all_the_same() -> None:
    found = plan(
        parse_sink({"queueManager": URL, "destination": QUEUE, "orderBy": "delivery"}), received()
    )
    assert found.order_by == ("delivery (orderBy)",)
    assert "delivery" not in [each.name for each in found.columns]


def test_a_format_for_strings_and_a_binary_body() -> None:
    assert "col('body').cast('string')" in refusal("body binary", bodyFormat="xml")
    assert planned("body binary").text_body is False


@pytest.mark.parametrize(
    ("ddl", "order_by", "told"),
    [
        (
            "body string, sent_at timestamp",
            "send_at",
            "there is no column 'send_at'; did you mean 'sent_at'?",
        ),
        ("body string, n int", "zzz", "there is no column 'zzz'; found body, n"),
        (
            "body string, tags array",
            "tags",
            "column tags is array<string>, which the queue manager cannot order",
        ),
        ("body string", "body", "order by a copy of it under another name"),
        (
            "body string, destination string",
            "destination",
            "order by a copy of it under another name",
        ),
    ],
)
def test_an_order_that_cannot_be_is_told(ddl: str, order_by: str, told: str) -> None:
    assert told in refusal(ddl, orderBy=order_by)


def test_what_is_staged() -> None:
    """Known columns by their own names, the columns of the order, a position only as a whole; nothing else."""

    def names(ddl: str, **options: str) -> list[str]:
        return [column.name for column in planned(ddl, **options).columns]

    assert names("n int, Body string, LABEL string, other double") == [
        "body",
        "label",
        "destination",
    ]
    assert names("body string, N int", orderBy="n") == ["body", "destination", "N"]
    assert planned("body string, N int", orderBy="n").order_by == ("N",)
    assert names("body string, label string", orderBy="Label") == ["body", "label", "destination"]
    assert names("body string, queue string, sequence long") == ["body", "destination"]
    position = ["queue_manager", "epoch", "queue", "sequence"]
    ddl = "body string, queue_manager string, epoch string, queue string, sequence long"
    assert names(ddl, orderBy="sequence") == ["body", "destination", *position]
    assert names("body string, sequence string", orderBy="sequence") == [
        "body",
        "destination",
        "sequence (orderBy)",
    ]
    assert names("body string", bodyFormat="activex") == ["body", "destination", "body_type"]
    assert names("body string, body_type int", bodyFormat="activex") == [
        "body",
        "body_type",
        "destination",
    ]


def test_what_the_stage_says_about_itself() -> None:
    found = planned("body string, a int, b date", orderBy="b,a", deadLetter="true").metadata
    assert found == {b"srmp.order_by": b'["b", "a"]', b"srmp.dead_letter": b"true"}
    assert planned("body string").metadata == {b"srmp.dead_letter": b"false"}
    named = planned("body string", deadLetterQueue="Private$\\Failed").metadata
    assert named == {b"srmp.dead_letter": b"false", b"srmp.dead_letter_queue": b"private$/failed"}


def test_what_the_stage_says_about_bad_rows() -> None:
    named = planned("body string", deadLetterQueue="private$/failed", onBadRow="dead-letter")
    assert named.metadata == {
        b"srmp.dead_letter": b"false",
        b"srmp.dead_letter_queue": b"private$/failed",
        b"srmp.on_bad_row": b"dead-letter",
    }
    skips = planned("body string", onBadRow="skip").metadata
    assert skips == {b"srmp.dead_letter": b"false", b"srmp.on_bad_row": b"skip"}
    assert b"srmp.on_bad_row" not in planned("body string", onBadRow="fail").metadata


@pytest.mark.parametrize(
    ("options", "conflicts"),
    [
        ({}, None),
        ({"onBadRow": "fail"}, None),
        ({"onBadRow": "Skip"}, "ignore"),
        ({"onBadRow": "dead-letter", "deadLetterQueue": "private$/f"}, "dead-letter"),
        ({"onBadRow": "skip", "onKeyConflict": "fail"}, "fail"),
    ],
)
def test_a_conflict_has_the_fate_of_bad_rows_unless_it_has_its_own(
    options: dict[str, str], conflicts: str | None
) -> None:
    assert parse_sink({"queueManager": URL, **options}).on_key_conflict == conflicts


def test_bad_rows_are_one_warning_with_their_number_and_the_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer = CommitAnswer(3, 0, 0, 2, "partition 0: key 'k' (row 1): label … (bad-label)")
    assert answer == (3, 0, 0), "a tuple of three, as it was"
    client = SimpleNamespace(commit=lambda *names, **how: answer)
    monkeypatch.setattr(writer, "client_of", lambda options: client)
    for fate, words in (
        ({"onBadRow": "skip"}, "they are skipped (onBadRow=skip)"),
        (
            {"onBadRow": "dead-letter", "deadLetterQueue": "private$/f"},
            "a letter about each is in private$/f (onBadRow=dead-letter)",
        ),
    ):
        caplog.clear()
        options = parse_sink({"queueManager": URL, "destination": "http://a.example/msmq/b"} | fate)
        writer._commit(options, Target("app", "1"), [StagedPartition(Target("app", "1"), "a", 5)])
        (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert warning == (
            f"sink.bad_rows application=app batch=1 rows=2: they can never be sent, and {words}. "
            "The first: partition 0: key 'k' (row 1): label … (bad-label)"
        )


def test_what_the_queue_manager_warns_of_is_told_in_the_driver_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A ``deadLetterQueue`` that is not there: each task hears of it, and each micro-batch."""
    monkeypatch.setattr(writer, "_WARNED", set[str]())
    client = cast("Any", SimpleNamespace(commit=lambda *names, **how: CommitAnswer(1, 0)))
    monkeypatch.setattr(writer, "client_of", lambda options: client)
    options = parse_sink(
        {"queueManager": "http://127.0.0.1:1", "destination": "http://a.example/msmq/b"}
    )
    target = Target("app", "1")
    staged = [
        StagedPartition(target, name, 1, warning)
        for name, warning in (("a", "no queue"), ("b", None), ("c", "no queue"))
    ]
    for _ in range(2):
        writer._commit(options, target, staged)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "no queue"
    ]


@pytest.mark.parametrize(
    ("answer", "mode", "told"),
    [
        (CommitAnswer(5, 0), None, []),
        (
            CommitAnswer(3, 2),
            None,
            ["sink.known application=app batch=1 rows=2: they were sent before"],
        ),
        (
            CommitAnswer(3, 0, 2),
            "ignore",
            ["sink.conflicts application=app batch=1 rows=2: their key or source position"],
        ),
        (
            CommitAnswer(0, 1, 2),
            "dead-letter",
            ["sink.known", "they became dead letters (onKeyConflict=dead-letter)"],
        ),
    ],
)
def test_rows_that_are_no_new_messages_are_warned_of_with_their_number(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: CommitAnswer,
    mode: str | None,
    told: list[str],
) -> None:
    asked: list[str | None] = []

    def commit(*names: object, on_key_conflict: str | None, allow_loop: bool) -> CommitAnswer:
        asked.append(on_key_conflict)
        assert not allow_loop
        return answer

    monkeypatch.setattr(writer, "client_of", lambda options: SimpleNamespace(commit=commit))
    given = {"queueManager": "http://127.0.0.1:1", "destination": "http://a.example/msmq/b"}
    options = parse_sink(given | ({} if mode is None else {"onKeyConflict": mode}))
    assert (
        writer._commit(options, Target("app", "1"), [StagedPartition(Target("app", "1"), "a", 5)])
        == answer
    )
    assert asked == [mode], "a queue manager that knows no such option is asked nothing new"
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == len(told)
    assert all(words in warning for words, warning in zip(told, warnings, strict=True))


def test_a_wrong_way_with_conflicts_is_told() -> None:
    with pytest.raises(ConfigurationError, match=r"onKeyConflict.*fail"):
        parse_sink({"queueManager": "http://127.0.0.1:1", "onKeyConflict": "drop"})


# --- columns written by a slip ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("lable", "label"), ("prioriy", "priority"), ("corelation_id", "correlation_id"), ("correlationId", "correlation_id"),
        ("labels", "label"), ("LABEL_", "label"), ("time-to-reach-queue", "time_to_reach_queue"), ("kye", "key"),
        ("transactions", "transaction"), ("responseQueue", "response_queue"), ("delivry", "delivery"),
    ],
)  # fmt: skip
def test_a_column_that_is_written_by_a_slip_is_refused_with_the_remedies(
    written: str, meant: str
) -> None:
    told = refusal(f"body string, {written} string")
    assert told == (
        f"column {written!r} would not be sent: the sink knows no such column; if it is "
        f"{meant!r}, write "
        f".withColumnRenamed('{written}', '{meant}'), if not, .drop('{written}')"
    )


@pytest.mark.parametrize(
    "ddl",
    [
        "body string, body_ string", "body string, label string, labels array", "body string, transaction_id string",
        "body string, sent_at timestamp", "body string, customer string, amount double, day date, net double",
        "body string, destinations string", "body string, soap_actoin string", "body string, sequence long, quee string",
    ],
)  # fmt: skip
def test_another_column_is_ignored(ddl: str) -> None:
    """What is there already, two slips, a column of the source, what means nothing to these rows."""
    assert [
        each.name
        for each in planned(ddl).columns
        if each.source is not None and each.name not in ("body", "label")
    ] == []


def test_a_column_that_the_order_names_is_used() -> None:
    assert planned("body string, keys string", orderBy="keys").order_by == ("keys",)


def test_a_slip_counts_where_the_column_would_mean_something() -> None:
    position = "body string, queue_manager string, epoch string, queue string, sequense long"
    assert "if it is 'sequence'" in refusal(position)
    with pytest.raises(ConfigurationError, match="if it is 'soap_action'"):
        plan(
            parse_sink({"queueManager": URL, "destination": "wsrm:http://h/q"}),
            StructType(
                [
                    StructField("body", types.StringType()),
                    StructField("soap_actoin", types.StringType()),
                ]
            ),
        )
    assert planned(
        "body string, soap_actoin string", destination="wsrm:http://h/q", soap_action="urn:a"
    ).columns


def test_every_column_of_the_source_goes_through_the_sink() -> None:
    frame = StructType([StructField(name, types.StringType()) for name in ("body", *NAMES)][1:])
    names = {each.lower() for each in frame.fieldNames()}
    assert (
        misspelt(
            names - {spec.name for spec in SINK_COLUMNS},
            [s.name for s in SINK_COLUMNS if s.name not in names],
        )
        is None
    )


# --- destinations that name no machine ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "orders",
            (
                "the name of a queue does not name a machine: write DIRECT=http://HOST/msmq/orders, with "
                "the host that has it"
            ),
        ),
        (r".\private$\Orders", "write DIRECT=http://HOST/msmq/private$/orders, with the host"),
        (
            r"windows\private$\orders",
            "the path name of a queue of another machine is written DIRECT=http://windows/msmq/private$/orders",
        ),
    ],
)
def test_a_destination_that_names_no_machine_says_what_to_write(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_sink({"queueManager": "http://127.0.0.1:9", "destination": text})
    assert str(error.value).startswith(
        "option destination: not a destination: not an http or https URL"
    )
    assert told in str(error.value)


def test_a_queue_of_the_queue_manager_that_sends_is_named_as_it_is_written(tmp_path: Path) -> None:
    options = {"queues": ["private$/orders", "public"], "host_name": ["qm.example"]}
    with RunningQueueManager(tmp_path / "qm", **options) as running:
        _, port = running.endpoint

        def told(text: str) -> str:
            with pytest.raises(ConfigurationError) as error:
                parse_sink({"queueManager": running.api, "destination": text})
            return str(error.value)

        for text in ("orders", "private$/orders", r".\private$\Orders"):
            assert told(text).endswith(
                f"for private$/orders of the queue manager at {running.api} write "
                f"DIRECT=http://qm.example:{port}/msmq/private$/orders"
            )
        assert told("public").endswith(f"DIRECT=http://qm.example:{port}/msmq/public")
        assert (
            f"the queue manager at {running.api} has no queue nowhere: write DIRECT=http://HOST/msmq/"
            in told("nowhere")
        )
        assert parse_sink(
            {"queueManager": running.api, "destination": told("orders").rpartition(" ")[2]}
        ).destination
