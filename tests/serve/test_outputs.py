"""The bytes of output plug-ins: values, rows, messages, options."""

import dataclasses
import datetime as dt
import json
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import servedrows

from gaussdecode.serve.block import MESSAGES, Output, TableRows
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.outputs.gauss import GaussOutput
from gaussdecode.serve.outputs.registry import PLUGINS, make_output
from gaussdecode.source.gaussdb.capture import RecordedCatalog
from gaussdecode.source.gaussdb.relations import GaussRelations
from gaussdecode.source.gaussdb.translate._translator import Translator
from gaussdecode.source.relations import WhiteList

INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("micros", pa.int64())])
PG: dict[str, str | None] = {"proto_version": "1", "publication_names": "p"}
W2J: dict[str, str | None] = {"format-version": "2"}
OPTIONS = {"pgoutput": PG, "wal2json": W2J}
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


def printed(array: pa.Array, spelled: str = "text", oid: int = 25, plugin: str = "pgoutput") -> Any:
    """The texts of a column's values, None for NULL."""
    table = TableRows(
        servedrows.schema([servedrows.column("v", spelled, oid)]),
        servedrows.rows("I" * len(array), {"v": array}),
    )
    of = servedrows.block([table], [len(array)])
    if plugin == "pgoutput":
        messages = servedrows.split(make_output("pgoutput", PG).write(of))
        inserts = [message for message in messages if message[:1] == b"I"]
        return [m[13:].decode() if m[8:9] == b"t" else None for m in inserts]
    texts: list[str | None] = []
    for message in servedrows.split(make_output(plugin, {}).write(of))[1:-1]:
        size = int.from_bytes(message[34:38], "big")
        texts.append(None if size == 0xFFFFFFFF else message[38:-1].decode())
    return texts


def exact(value: float) -> str:
    """The server's spelling of the shortest digits, which are Python's too."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    point = Decimal(repr(value)).adjusted()
    text = "".join(map(str, digits))
    if value == 0:
        shown = "0"
    elif point < -4 or point >= 15:
        tail = f".{text[1:]}" if len(text) > 1 else ""
        shown = f"{text[0]}{tail}e{point:+03}"
    else:
        shown = f"{abs(Decimal(repr(value)).normalize()):f}"
    return ("-" if sign or math.copysign(1, value) < 0 else "") + shown


@given(st.lists(st.floats(), min_size=1))
def test_doubles_are_the_shortest(values: list[float]) -> None:
    """Of every double, in the server's form."""
    assert printed(pa.array(values, pa.float64())) == list(map(exact, values))


def test_floats_have_an_exponent_from_six_digits_on() -> None:
    """As float4out has, whose digits are those of 32 bits."""
    values = pa.array([1e5, 1e6, 0.1, 16777216, 1.5e-5, -0.0], pa.float32())
    assert printed(values) == ["100000", "1e+06", "0.1", "1.6777216e+07", "1.5e-05", "-0"]


@given(st.lists(st.decimals(-(10**9), 10**9, places=4), min_size=1))
def test_decimals_keep_their_scale(values: list[Decimal]) -> None:
    """For GaussDB without the zero before the point, but that of zero."""
    texts = [f"{value:.4f}" if value else "0.0000" for value in values]
    assert printed(pa.array(values, pa.decimal128(20, 4))) == texts
    short = [
        t if not v else t.replace("0.", ".", 1) if abs(v) < 1 else t
        for t, v in zip(texts, values, strict=True)
    ]
    assert (
        printed(pa.array(values, pa.decimal128(20, 4)), "numeric", 1700, "parallel_binary_decoding")
        == short
    )


@given(st.lists(st.datetimes(), min_size=1))
def test_times_are_iso(values: list[dt.datetime]) -> None:
    """With the fraction as far as it goes, and dates alike."""

    def text(value: dt.datetime) -> str:
        shown = value.isoformat(" ")
        return shown.rstrip("0") if "." in shown else shown

    assert printed(pa.array(values, pa.timestamp("us"))) == list(map(text, values))
    zoned = [value.replace(tzinfo=dt.UTC) for value in values]
    assert printed(pa.array(zoned, pa.timestamp("us", "UTC"))) == [f"{text(v)}+00" for v in values]
    assert printed(pa.array([v.date() for v in values])) == [v.date().isoformat() for v in values]


@pytest.mark.parametrize(
    ("months", "days", "micros", "text"),
    [
        (0, 0, 0, "00:00:00"),
        (14, -3, 14706789000, "1 year 2 mons -3 days +04:05:06.789"),
        (-1, 0, -1, "-1 mons -00:00:00.000001"),
        (1, 1, 0, "1 mon 1 day"),
        (0, 0, -(2**63), "-2562047788:00:54.775808"),
    ],
)
def test_intervals(months: int, days: int, micros: int, text: str) -> None:
    """In the style postgres: a sign is written where the part before was negative."""
    value = {"months": months, "days": days, "micros": micros}
    assert printed(pa.array([value], INTERVAL)) == [text]


@given(st.lists(st.none() | TEXTS, max_size=6))
def test_lists_are_array_literals(values: list[str | None]) -> None:
    """Elements are quoted where array_out quotes them."""

    def element(text: str | None) -> str:
        if text is None:
            return "NULL"
        if text and text.lower() != "null" and not set(text) & set('"\\{}, \t\n\r\v\f'):
            return text
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    literal = "{" + ",".join(map(element, values)) + "}"
    of = pa.array([None, values, []], pa.list_(pa.string()))
    assert printed(of) == [None, literal, "{}"]
    assert printed(of.slice(1, 1)) == [literal]


def test_bytes() -> None:
    """Hexadecimal; raw and blob of GaussDB in capitals, without a head."""
    values = pa.array([b"\x01\xff", b""])
    assert printed(values, "bytea", 17) == ["\\x01ff", "\\x"]
    assert printed(values, "raw", 86, "parallel_binary_decoding") == ["01FF", ""]


def _mixed(strings: list[str | None]) -> TableRows:
    """Inserts, an update whose key changes, and a delete."""
    count = len(strings)
    ops = "I" * count + "UD"
    columns = [
        servedrows.column("id", "integer", 23, is_key=True),
        servedrows.column("Note", "text", 25),
    ]
    return TableRows(
        servedrows.schema(columns),
        servedrows.rows(
            ops,
            {
                "id": pa.array([*range(count), 77, None], pa.int32()),
                "Note": pa.array([*strings, "new", None], pa.string()),
            },
            old=pa.array([None] * count + [{"id": 1}, {"id": 77}], pa.struct([("id", pa.int32())])),
        ),
    )


def _translated(output: Output, style: str, *, is_batched: bool, of: Any) -> list[bytes]:
    """What the daemon's own translator makes of the output."""
    catalog = RecordedCatalog()
    columns = [
        {"name": name, "number": number, "type_text": spelled, "type_oid": oid, "type_modifier": -1,
         "is_toastable": False, "is_not_null": False, "is_generated": False, "key_position": key}
        for number, (name, spelled, oid, key) in enumerate([("id", "integer", 23, 0), ("Note", "text", 25, None)], 1)
    ]  # fmt: skip
    table = {"oid": servedrows.OID, "schema": "public", "name": "t", "kind": "r", "identity": "d",
             "columns": columns, "identity_index": []}  # fmt: skip
    catalog.take(json.dumps({"schema": "public", "name": "t", "table": table}).encode())
    relations = GaussRelations(WhiteList(), catalog)
    translator = Translator(style.encode(), is_batched, "UTF8")
    written = output.write(of)
    return [
        message
        for payload, lsn in zip(servedrows.split(written), written.start_lsn.tolist(), strict=True)
        for message in translator.feed_bytes(payload, lsn, relations.define)
    ]


@pytest.mark.parametrize("batch", ["0", "1"])
@pytest.mark.parametrize(
    ("plugin", "style"),
    [
        ("parallel_binary_decoding", "b"), ("parallel_json_decoding", "j"),
        ("parallel_text_decoding", "t"), ("mppdb_decoding", "s"), ("sql_decoding", "q"),
    ],
)  # fmt: skip
@given(strings=st.lists(st.none() | TEXTS, max_size=5))
def test_the_translator_reads_what_is_written(
    plugin: str, style: str, batch: str, strings: list[str | None]
) -> None:
    """Each style gives the rows of pgoutput, and the transactions, back."""
    is_batched = batch == "1" and style in "bjt"
    options: dict[str, str | None] = {"sending-batch": batch} if style in "bjt" else {}
    of = servedrows.block([_mixed(strings)], [len(strings), len(strings) + 2])
    found = _translated(make_output(plugin, options), style, is_batched=is_batched, of=of)
    own = servedrows.split(make_output("pgoutput", PG).write(of))

    def changes(messages: list[bytes]) -> list[bytes]:
        return [message[:1] + message[5:] for message in messages if message[:1] in b"IUD"]

    assert changes(found) == changes(own)
    commits = [message for message in found if message[:1] == b"f"]
    assert len(commits) == 2
    if style != "q":
        xids = [struct.unpack_from(">QQ", message, 1) for message in commits]
        assert [xid for _, xid in xids] == [1, 2]


U63 = st.integers(1, (1 << 63) - 1)
TIMES = st.integers(-(10**15), 10**17)  # microseconds since 1970: years that ISO dates have


@pytest.mark.parametrize("batch", ["0", "1"])
@pytest.mark.parametrize("style", ["b", "j", "t"])
@settings(max_examples=40)
@given(of=st.tuples(U63, U63, U63, U63, TIMES), user=TEXTS, begin_has_xid=st.booleans())
def test_the_translator_reads_the_boundaries_that_are_written(
    style: str, batch: str, of: tuple[int, ...], user: str, *, begin_has_xid: bool
) -> None:
    """Every number, time and name of BEGIN and COMMIT, in each way in which they are framed."""
    xid, first_lsn, end_lsn, csn, time_us = of
    options: dict[str, str | None] = {
        "parallel-decode-num": "2", "decode-style": style, "sending-batch": batch,
        "include-timestamp": "true", "include-user": "true", "skip-empty-xacts": "false",
    }  # fmt: skip
    name = "".join(user.split()).replace(":", "")  # a blank and a colon can begin the next key
    made = servedrows.block([], [0], user=(name,))
    numbers: dict[str, Any] = {
        "xid": np.array([xid]), "csn": np.array([csn]), "time_us": np.array([time_us]),
        "first_lsn": np.array([first_lsn], np.uint64), "end_lsn": np.array([end_lsn], np.uint64),
        "commit_lsn": np.array([end_lsn], np.uint64),
    }  # fmt: skip
    made = dataclasses.replace(made, transactions=dataclasses.replace(made.transactions, **numbers))
    output = GaussOutput("mppdb_decoding", options, begin_has_xid=begin_has_xid)
    begin, commit = _translated(output, style, is_batched=batch == "1", of=made)
    since_2000 = time_us - 946_684_800_000_000
    begun = (first_lsn, csn, xid if begin_has_xid else 0, since_2000, 0)
    assert struct.unpack_from(">QQQqI", begin, 1) == begun
    assert begin[37:] == name.encode() + b"\0"
    is_framed = style == "b" or batch == "1"  # else the LSN is in the header of the message
    ended = struct.unpack_from(">QQqQ", commit, 1)
    assert ended[1:] == (xid, since_2000, 0)
    assert ended[0] == end_lsn or not is_framed


def test_a_batch_ends_above_one_mebibyte() -> None:
    """Counted with the header of 25 bytes; what follows goes out at the end of the block."""
    texts: list[str | None] = ["x" * 300_000] * 5
    for plugin in ("parallel_binary_decoding", "parallel_text_decoding"):
        output = make_output(plugin, {"sending-batch": "1"})
        written = output.write(servedrows.block([_mixed(texts)], [7]))
        first, last = servedrows.split(written)
        assert 1_048_576 < len(first) + 25 < 1_048_576 + 300_100
        assert first[-1:] == (b"F" if "binary" in plugin else b"\0")
        assert last[-4:] == bytes(4)
        assert written.end_lsn.tolist() == [1003, 100_016]
        assert written.start_lsn.tolist() == [1003, 100_000]


def test_a_transaction_over_two_blocks_begins_and_ends_once() -> None:
    """BEGIN stands in the first, COMMIT in the last; without rows there is none where that was asked for."""
    table = _mixed(["a"])
    for plugin in sorted(PLUGINS):
        output = make_output(plugin, OPTIONS.get(plugin, {"skip-empty-xacts": "1"}))
        first = servedrows.split(output.write(servedrows.block([table], [3], is_open=True)))
        last = servedrows.split(output.write(servedrows.block([table], [3], is_continued=True)))
        whole = [message.upper() for message in first + last]
        if plugin == "wal2json":
            assert b"".join(message[11:12] for message in whole) == b"BIUDIUDC"
            continue
        if plugin not in {"pgoutput", "parallel_binary_decoding"}:
            assert [m[:5] for m in whole].count(b"BEGIN") == 1
            assert [m[:6] for m in whole].count(b"COMMIT") == 1
        assert servedrows.split(output.write(servedrows.block([], [0]))) == []


def test_values_that_a_column_cannot_hold() -> None:
    """Their text is written in place of NULL, of the old row too; a column that was not sent is unchanged."""
    columns = [
        servedrows.column("d", "date", 1082, is_key=True),
        servedrows.column("x", "text", 25),
    ]
    table = TableRows(
        servedrows.schema(columns),
        servedrows.rows(
            "U",
            {"d": pa.array([None], pa.date32()), "x": pa.array([None], pa.string())},
            old=pa.array([{"d": None}], pa.struct([("d", pa.date32())])),
            raw=[{"d": "infinity", "old.d": "-infinity"}],
            unchanged=[["x"]],
        ),
    )
    of = servedrows.block([table], [1])
    text = servedrows.split(make_output("test_decoding", {}).write(of))[1].decode()
    assert text == (
        "table public.t: UPDATE: old-key: d[date]:'-infinity' new-tuple: d[date]:'infinity' "
        "x[text]:unchanged-toast-datum"
    )
    binary = servedrows.split(make_output("parallel_binary_decoding", {}).write(of))[1]
    assert b"\0\x01d" in binary
    assert b"\0\x01x" not in binary


def test_origins_users_and_tables_are_left_out() -> None:
    """By only-local, exclude-users and white-table-list; GaussDB keeps BEGIN and COMMIT."""
    table = _mixed(["a"])
    of = servedrows.block([table], [1, 3], origin=(None, "there"), user=("amy", "bob"))
    plain = make_output("test_decoding", {"only-local": "on"})
    assert len(servedrows.split(plain.write(of))) == 3
    text = "parallel_text_decoding"
    for options in ({}, {"only-local": "f", "exclude-users": "bob"}):
        shown = servedrows.split(make_output(text, {**options, "include-user": "1"}).write(of))
        assert [line.split(b" ")[0] for line in shown] == [
            b"BEGIN", b"table", b"commit", b"BEGIN", b"commit",
        ]  # fmt: skip
        assert shown[3].endswith(b" user_name: bob")
    other = make_output(text, {"white-table-list": "*.u, s.*", "skip-empty-xacts": "true"})
    assert servedrows.split(other.write(of)) == []
    told = servedrows.split(make_output("pgoutput", PG).write(of))
    assert [m[:1] for m in told] == [b"B", b"R", b"I", b"C", b"B", b"O", b"U", b"D", b"C"]


@pytest.mark.parametrize(
    ("plugin", "options", "message"),
    [
        ("test_decoding", {"include-xids": "x"}, 'could not parse value "x" for parameter "include-xids"'),
        ("test_decoding", {"nope": None}, 'option "nope" = "\\(null\\)" is unknown'),
        ("mppdb_decoding", {"decode-style": "b"}, 'option "decode-style" = "b" is unknown'),
        ("mppdb_decoding", {"parallel-decode-num": "21"}, 'could not parse value "21"'),
        ("mppdb_decoding", {"parallel-decode-num": "2", "force-binary": "t"}, "is unknown"),
        ("sql_decoding", {"white-table-list": "a.b"}, "is unknown"),
        ("parallel_json_decoding", {"sending-batch": "2"}, 'could not parse value "2"'),
        ("parallel_json_decoding", {"parallel-queue-size": "3"}, "should be a power of two"),
        ("parallel_json_decoding", {"decode-style": "x"}, 'could not parse value "x"'),
        ("parallel_json_decoding", {"white-table-list": "t"}, 'could not parse value "t"'),
        ("parallel_json_decoding", {"slice-id": "1"}, "cannot be set when output-order is 0"),
        ("parallel_json_decoding", {"enable-ddl-decoding": "on"}, "cannot be served"),
        ("pgoutput", {"proto_version": "1"}, 'option "publication_names" missing'),
        ("pgoutput", {"publication_names": "p"}, 'option "proto_version" missing'),
        ("pgoutput", {**PG, "proto_version": "9"}, "only supports protocol 4 or lower"),
        ("pgoutput", {**PG, "streaming": "on"}, "does not support streaming, need 2 or higher"),
        ("wal2json", {}, "format version 1 of wal2json, its default, is not served"),
        ("wal2json", {"format-version": "1"}, "format version 1"),
        ("wal2json", {"format-version": "3"}, "only support format 2 or lower"),
        ("wal2json", {"format-version": "x"}, 'could not parse value "x"'),
        ("wal2json", {**W2J, "include-not-null": None}, "a landing does not have what it shows"),
        ("wal2json", {**W2J, "filter-origins": "1"}, "a landing does not have what it shows"),
        ("wal2json", {**W2J, "actions": "insert, upsert"}, 'could not parse value "upsert"'),
        ("wal2json", {**W2J, "add-tables": "t"}, 'could not parse value "t"'),
        ("wal2json", {**W2J, "add-tables": "a.b,"}, 'could not parse value "a.b,"'),
        ("wal2json", {**W2J, "include-unchanged-toast": "0"}, "is unknown"),
        ("nope", {}, 'could not access file "nope"'),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(
    plugin: str, options: dict[str, str | None], message: str
) -> None:
    """With the server's words."""
    with pytest.raises(ServeError, match=message):
        make_output(plugin, options)


def _objects(of: Any, **options: str | None) -> list[dict[str, Any]]:
    """What wal2json makes of a block."""
    given = W2J | {name.replace("_", "-"): value for name, value in options.items()}
    return [json.loads(text) for text in servedrows.split(make_output("wal2json", given).write(of))]


def test_wal2json_objects() -> None:
    """BEGIN, rows with their old ones, and COMMIT, as format version 2 has them."""
    of = servedrows.block([_mixed(["a"])], [1, 3], origin=(None, "there"))
    texts = servedrows.split(make_output("wal2json", W2J).write(of))
    assert texts == [
        b'{"action":"B"}',
        (
            b'{"action":"I","schema":"public","table":"t","columns":['
            b'{"name":"id","type":"integer","value":0},{"name":"Note","type":"text","value":"a"}]}'
        ),
        b'{"action":"C"}',
        b'{"action":"B"}',
        (
            b'{"action":"U","schema":"public","table":"t","columns":['
            b'{"name":"id","type":"integer","value":77},{"name":"Note","type":"text","value":"new"}],'
            b'"identity":[{"name":"id","type":"integer","value":1}]}'
        ),
        (
            b'{"action":"D","schema":"public","table":"t",'
            b'"identity":[{"name":"id","type":"integer","value":77}]}'
        ),
        b'{"action":"C"}',
    ]
    first, row, commit, *_, last = _objects(
        of, include_xids="1", include_timestamp=None, include_lsn="on", include_origin="t",
        include_schemas="0", include_types="0", include_type_oids="1", include_pk="1",
    )  # fmt: skip
    stamps = {"xid": 1, "timestamp": "1970-01-01 00:00:01.5+00", "origin": 0, "lsn": "0/186A0"}
    assert first == {"action": "B", **stamps, "nextlsn": "0/186B0"}
    assert commit == {**first, "action": "C"}
    assert last["origin"] is None, "the landing has the name of an origin, and not its number"
    assert row == {
        "action": "I", **stamps, "lsn": "0/3E8", "table": "t",
        "columns": [
            {"name": "id", "typeoid": 23, "value": 0}, {"name": "Note", "typeoid": 25, "value": "a"},
        ],
        "pk": [{"name": "id", "typeoid": 23}],
    }  # fmt: skip


def test_wal2json_values() -> None:
    """Numbers and truth values are bare, what JSON has not is null, all else is a string."""
    values: list[tuple[pa.Array, str, int, Any, Any]] = [
        (pa.array([-5], pa.int64()), "bigint", 20, -5, "-5"),
        (pa.array([math.nan]), "double precision", 701, None, "NaN"),
        (pa.array([-math.inf]), "double precision", 701, None, "-Infinity"),
        (pa.array([0.25]), "double precision", 701, 0.25, "0.25"),
        (pa.array(["NaN"]), "numeric", 1700, None, "NaN"),
        (pa.array([Decimal("1.50")]), "numeric", 1700, 1.5, "1.50"),
        (pa.array([True]), "boolean", 16, True, True),
        (pa.array([b"\x01\xff"]), "bytea", 17, "01ff", "01ff"),
        (pa.array([[1, 2]]), "integer[]", 1007, "{1,2}", "{1,2}"),
        (pa.array(['"\\\n\x01é/']), "text", 25, '"\\\n\x01é/', '"\\\n\x01é/'),
        (pa.array(["{}"]), "jsonb", 3802, "{}", "{}"),
        (pa.array([5], pa.int32()), "integer", 99_999, "5", "5"),  # a domain
        (pa.array([None], pa.int32()), "integer", 23, None, None),
    ]
    columns = [servedrows.column(f"c{n}", of[1], of[2]) for n, of in enumerate(values)]
    arrays = {f"c{n}": of[0] for n, of in enumerate(values)}
    table = TableRows(servedrows.schema(columns), servedrows.rows("I", arrays))
    of = servedrows.block([table], [1])
    for at, options in ((3, {}), (4, {"numeric_data_types_as_string": "1"})):
        row = _objects(of, **options)[1]
        assert [column["value"] for column in row["columns"]] == [each[at] for each in values]


def test_wal2json_types() -> None:
    """With their modifier, from the catalogue or computed; of a domain the base where that is asked for."""
    spelled = [
        ("numeric", 1700, (10 << 16 | 2) + 4, None, "numeric(10,2)"),
        ("character varying[]", 1015, 24, None, "character varying(20)[]"),
        ("timestamp with time zone", 1184, 3, None, "timestamp(3) with time zone"),
        ("bit varying", 1562, 9, None, "bit varying(9)"),
        ("integer", 99_999, -1, "public.positive", "positive"),
        ('public."Mood"', 99_998, -1, 'public."Mood"', "Mood"),
        ('public."_Mood"', 99_997, -1, None, '"Mood"[]'),
    ]
    columns = [
        dataclasses.replace(
            servedrows.column(f"c{n}", name, oid), type_modifier=modifier, type_text=text
        )
        for n, (name, oid, modifier, text, _) in enumerate(spelled)
    ]
    arrays = {column.name: pa.array([None], pa.string()) for column in columns}
    of = servedrows.block(
        [TableRows(servedrows.schema(columns), servedrows.rows("I", arrays))], [1]
    )
    shown = [column["type"] for column in _objects(of)[1]["columns"]]
    assert shown == [expected for *_, expected in spelled]
    based = _objects(of, include_domain_data_type="1")[1]["columns"]
    assert [column["type"] for column in based[4:6]] == ["integer", "Mood"]


def test_wal2json_leaves_out_what_was_not_asked_for() -> None:
    """By action, by table, without BEGIN; and rows that nothing identifies, as wal2json does."""
    of = servedrows.block([_mixed(["a"])], [3])

    def actions(of: Any, **options: str | None) -> str:
        return "".join(each["action"] for each in _objects(of, **options))

    assert actions(of, include_transaction="0") == "IUD"
    assert actions(of, actions="delete , insert") == "BIDC"
    assert actions(of, actions=None) == "BIUDC"
    assert actions(of, actions="") == "BC"
    for listed, is_in in (
        ("public.t", True), ("*.t", True), ("public.*, a.b", True), ("x.y , *.*", True),
        (r"publ\ic.t", True), ("public.T", False), (r"\*.t", False), ("", False), (None, False),
    ):  # fmt: skip
        assert actions(of, add_tables=listed) == ("BIUDC" if is_in else "BC")
        assert actions(of, filter_tables=listed) == ("BC" if is_in else "BIUDC")
    columns = [servedrows.column("x", "text", 25)]
    arrays = {"x": pa.array(["a", "b", None])}
    table = TableRows(servedrows.schema(columns, identity="n"), servedrows.rows("IUD", arrays))
    plain = servedrows.block([table], [3])
    assert actions(plain) == "BIC"
    assert _objects(plain, include_pk="1")[1]["pk"] is None
    truncated = TableRows(
        servedrows.schema(columns), servedrows.rows("T", {"x": pa.array([None], pa.string())})
    )
    of = servedrows.block([truncated, truncated], [2])
    assert _objects(of)[1] == {"action": "T", "schema": "public", "table": "t"}
    assert actions(of) == "BTTC"
    assert actions(of, actions="insert") == "BC"


def _message(prefix: str, content: bytes) -> TableRows:
    return TableRows(
        MESSAGES,
        pa.RecordBatch.from_pydict({"gd_op": ["M"], "prefix": [prefix], "content": [content]}),
    )


def test_messages() -> None:
    """In their transaction, or outside of any: there nothing tells whose they are."""
    told = [_message("a", b"\xff\0b"), _message("b", b"x\0y"), _message("c", b"")]
    of = servedrows.block([_mixed(["r"]), *told], [4, 5, 6], outside=[False, True, False])
    lines = servedrows.split(make_output("test_decoding", {"include-xids": "0"}).write(of))
    assert [line.split(b":")[0] for line in lines[:1] + lines[4:]] == [
        b"BEGIN", b"message", b"COMMIT", b"message", b"BEGIN", b"message", b"COMMIT",
    ]  # fmt: skip
    assert lines[4] == b"message: transactional: 1 prefix: a, sz: 3 content:\xff\0b"
    assert lines[6] == b"message: transactional: 0 prefix: b, sz: 3 content:x\0y"
    binary = make_output("pgoutput", {**PG, "messages": "true"}).write(of)
    assert [message for message in servedrows.split(binary) if message[:1] == b"M"] == [
        b"M\1" + struct.pack(">Q", 1003) + b"a\0\0\0\0\3\xff\0b",
        b"M\0" + struct.pack(">Q", 1004) + b"b\0\0\0\0\3x\0y",
        b"M\1" + struct.pack(">Q", 1005) + b"c\0\0\0\0\0",
    ]
    plain = servedrows.split(make_output("pgoutput", PG).write(of))
    assert b"".join(message[:1] for message in plain) == b"BRIUDC"
    for plugin in sorted(PLUGINS.keys() - OPTIONS.keys() - {"test_decoding"}):
        output = make_output(plugin, {"skip-empty-xacts": "1"})
        assert servedrows.split(output.write(servedrows.block(told, [3]))) == []


def test_wal2json_messages() -> None:
    """With what their transaction has, and null outside of one; by their prefixes."""
    told = [_message("a", b"1"), _message('"', b"x\0y")]
    of = servedrows.block(told, [1, 2], outside=[False, True])
    assert _objects(of, include_xids="1", include_timestamp="1", include_origin="1", include_lsn="1")[1::2] == [
        {"action": "M", "xid": 1, "timestamp": "1970-01-01 00:00:01.5+00", "origin": 0, "lsn": "0/3E8",
         "transactional": True, "prefix": "a", "content": "1"},
        {"action": "M", "xid": None, "timestamp": None, "origin": None, "lsn": "0/3E9",
         "transactional": False, "prefix": '"', "content": "x"},
    ]  # fmt: skip
    for options, prefixes in (
        ({"add_msg_prefixes": "b, a"}, ["a"]), ({"filter_msg_prefixes": "a,c"}, ['"']),
        ({"filter_msg_prefixes": 'aa, "'}, ["a"]), ({"add_msg_prefixes": ""}, ["a", '"']),
        ({"add_msg_prefixes": "a", "filter_msg_prefixes": "a"}, []),
        ({"actions": "insert", "filter_msg_prefixes": None}, ["a", '"']),
    ):  # fmt: skip
        shown = [each.get("prefix") for each in _objects(of, include_transaction="0", **options)]
        assert shown == prefixes


def test_heartbeats() -> None:
    """Only where they are asked for: framed as a record, or a line."""
    assert make_output("parallel_binary_decoding", {}).heartbeat(1, 2, 3000) is None
    options: dict[str, str | None] = {"enable-heartbeat": "on"}
    assert make_output("parallel_binary_decoding", options).heartbeat(1, 2, 3000) == (
        struct.pack(">IQcQQqc", 33, 1, b"h", 1, 2, 3, b"F")
    )
    line = make_output("parallel_text_decoding", options).heartbeat(1 << 32, 2, 3000)
    assert line == b"HeartBeat: 1/0 0/2 3"


def test_a_row_outside_of_its_table_is_refused() -> None:
    """Numbers of tables and rows are checked before memory is read."""
    of = servedrows.block([_mixed(["a"])], [3])
    for field, value in (("row_index", 3), ("row_index", -1), ("row_table", 1), ("row_table", -1)):
        wrong = getattr(of, field).copy()
        wrong[2] = value
        with pytest.raises(IndexError, match="a block has no row"):
            make_output("test_decoding", {}).write(dataclasses.replace(of, **{field: wrong}))
    short = dataclasses.replace(of, change_lsn=np.zeros(1, np.uint64))
    with pytest.raises(ValueError, match="differ in length"):
        make_output("test_decoding", {}).write(short)
