"""Clients of a served landing: SQL, streams, positions, log-in, and limits."""

import asyncio
import contextlib
import json
import re
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit import servedrows
from kit.postgres import make_certificates
from kit.served import Replication, Served, Session, unpack_landing

from gaussdecode.errors import ConfigError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.gaussdb import auth as gauss_auth
from gaussdecode.protocol.gaussdb.messages import (
    PROTOCOL_3_51,
    MessageReader,
)
from gaussdecode.protocol.gaussdb.session import Phase
from gaussdecode.protocol.gaussdb.session import Session as GaussClient
from gaussdecode.serve import statements
from gaussdecode.serve.block import TableRows
from gaussdecode.serve.catalog import is_for_catalog, with_slots
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.feed import Feed
from gaussdecode.serve.outputs.registry import make_output
from gaussdecode.serve.reader import ReadPosition
from gaussdecode.serve.sql import tokens_of
from gaussdecode.serve.stream import Sent, Stream
from gaussdecode.serve.users import write_user


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A landing that no test changes."""
    return unpack_landing(tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="module")
def served(kept: Path) -> Iterator[Served]:
    """A server without users."""
    with Served(kept) as running:
        yield running


@pytest.fixture
def session(served: Served) -> Iterator[Session]:
    """An ordinary connection."""
    with served.connect() as connection:
        yield connection


def _end(served: Served) -> int:
    return served.end_lsn()


# ---- snapshots -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plugin", "options", "insert"),
    [
        ("test_decoding", "", b"table public.audit: INSERT: what[text]:'begin' amount"),
        ("pgoutput", "'proto_version', '1', 'publication_names', 'p',", b"begin"),
        ("wal2json", "'format-version', '2',", b'"table":"audit","columns":[{"name":"what"'),
        ("parallel_binary_decoding", "", b"\5begin"),
    ],
)
def test_rows_of_snapshots(session: Session, plugin: str, options: str, insert: bytes) -> None:
    """Only for a client that asks for them, before the changes that follow; by each plug-in as inserts."""
    session.execute("SET gaussdecode.start_lsn = 'earliest'")
    session.execute(f"SELECT pg_create_logical_replication_slot('rows', '{plugin}', true)")
    found = []
    for include in ("off", "on"):
        sql = (
            "SELECT data FROM pg_logical_slot_peek_binary_changes('rows', NULL, NULL, "
            f"{options} 'include-snapshot', '{include}')"
        )
        found.append([data for (data,) in session.execute(sql)])
    session.execute("SELECT pg_drop_replication_slot('rows')")
    without, rows = found
    assert rows[-20:] == without[-20:]
    assert insert not in b"".join(without[:4])
    assert sum(insert in data for data in rows[:9]) > 1
    with pytest.raises(psycopg.Error, match='could not parse value "maybe"'):
        session.execute(
            "SELECT data FROM pg_logical_get_area_changes('0/1', NULL, 0, 'test_decoding', NULL, "
            "'include-snapshot', 'maybe')"
        )


# ---- SQL -----------------------------------------------------------------------------------


def test_what_drivers_ask(session: Session, served: Served) -> None:
    """Version, settings and parameters are there, and their changes are told."""
    assert "gaussdecode" in session.execute("SELECT version()").fetchone()[0]  # type: ignore[index]
    assert session.execute("SHOW server_encoding").fetchone() == ("UTF8",)
    assert session.info.parameter_status("integer_datetimes") == "on"
    session.execute("SET application_name = 'copies'")
    assert session.info.parameter_status("application_name") == "copies"
    found = session.execute("SELECT current_database(), 1 AS one")
    assert found.fetchone() == (served.database, 1)


@pytest.mark.parametrize(
    ("query", "state"),
    [
        ("SELECT * FROM pg_class", "0A000"),
        ("INSERT INTO t VALUES (1)", "0A000"),
        ("SELECT 1 +", "0A000"),
        ("SELECT nothing()", "0A000"),
        ("SELECT lsn FROM pg_replication_slots", "42703"),
        ("SHOW nothing", "42704"),
        ("SET client_encoding = latin1", "22023"),
        ("SELECT '", "42601"),
        ("SELECT pg_drop_replication_slot('none')", "42704"),
        ("SELECT * FROM pg_create_logical_replication_slot('x', 'wal2json_of_mine')", "42704"),
        ("SELECT * FROM pg_create_logical_replication_slot('X-Y', 'test_decoding')", "42602"),
        ("SELECT * FROM pg_logical_slot_peek_changes('none', NULL, NULL)", "42704"),
        ("START_REPLICATION SLOT x LOGICAL 0/0", "42601"),
        ("SELECT name FROM pg_settings LIMIT 'x'", "2201W"),
        ("SELECT name FROM pg_settings LIMIT -1", "2201W"),
        ('SELECT name FROM pg_settings ORDER BY "²"', "42703"),
        (f"SELECT name FROM pg_settings ORDER BY {'9' * 5000}", "42703"),
        ("SELECT 'x'::int", "22P02"),
        ("SELECT $12345", "42P02"),
        ("SELECT $0", "42P02"),
    ],
)
def test_refusals_have_a_code(session: Session, query: str, state: str) -> None:
    """What is not served says so, and the session goes on."""
    with pytest.raises(psycopg.Error) as caught:
        session.execute(query)
    assert caught.value.sqlstate == state
    assert session.execute("SELECT 1").fetchone() == (1,)


def test_slots_by_sql(session: Session) -> None:
    """Create, list, advance and drop."""
    session.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", ["by_sql"])
    query = "SELECT plugin, slot_type, active, confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s"
    plugin, kind, is_active, lsn = session.execute(query, ["by_sql"]).fetchone()  # type: ignore[misc]
    assert (plugin, kind, is_active) == ("test_decoding", "logical", False)
    with pytest.raises(psycopg.errors.DuplicateObject):
        session.execute("SELECT pg_create_logical_replication_slot('by_sql', 'test_decoding')")
    moved = session.execute("SELECT * FROM pg_replication_slot_advance('by_sql', %s)", ["FF/0"])
    assert moved.fetchone() == ("by_sql", lsn), "not beyond what has landed"
    session.execute("SELECT pg_drop_replication_slot('by_sql')")
    assert session.execute(query, ["by_sql"]).fetchall() == []


@pytest.mark.parametrize("order", ["0", "1"])
def test_the_order_of_a_new_slot_is_bound(session: Session, order: str) -> None:
    """As a constant or as a parameter: it is no sign of a temporary slot."""
    make = "SELECT * FROM pg_create_logical_replication_slot('bound', 'mppdb_decoding', {})"
    for text, parameters in ((order, None), ("%s", [order])):
        if order == "1":
            with pytest.raises(psycopg.Error, match="in the order of their commit records"):
                session.execute(make.format(text), parameters)
        else:
            session.execute(make.format(text), parameters)
            made = session.execute(
                "SELECT temporary FROM pg_replication_slots WHERE slot_name = 'bound'"
            )
            assert made.fetchall() == [(False,)]
            session.execute("SELECT pg_drop_replication_slot('bound')")


def test_where_a_slot_begins(session: Session) -> None:
    """At the end, before everything that is kept, or after any transaction, as the session has set."""
    found = []
    ends: list[str] = []
    for name, start in (("begins_a", "latest"), ("begins_b", "earliest"), ("begins_c", "")):
        wanted = start or ends[len(ends) // 2]
        session.execute(f"SET gaussdecode.start_lsn = '{wanted}'")
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [name])
        rows = session.execute(
            f"SELECT lsn, data FROM pg_logical_slot_peek_changes('{name}', NULL, NULL)"
        ).fetchall()
        ends = [lsn for lsn, data in rows if data.startswith("COMMIT")] or ends
        found.append(len(ends) if rows else 0)
        session.execute("SELECT pg_drop_replication_slot(%s)", [name])
    assert found[0] == 0
    assert found[1] > 5
    assert found[2] == found[1] - found[1] // 2 - 1
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="earliest"):
        session.execute("SET gaussdecode.start_lsn = 'soon'")


@pytest.mark.parametrize("is_binary", [False, True])
def test_changes_by_sql(served: Served, session: Session, is_binary: bool) -> None:
    """Peek shows what get takes; limits cut after whole transactions; get moves the slot."""
    name = f"sql_{int(is_binary)}"
    served.add_slot(name)
    kind = "binary_changes" if is_binary else "changes"
    peek = f"SELECT * FROM pg_logical_slot_peek_{kind}('{name}', %s, %s, 'include-xids', 'off')"
    get = peek.replace("peek", "get")
    whole = session.execute(peek, [None, None]).fetchall()
    assert len(whole) > 20
    assert session.execute(peek, [None, None]).fetchall() == whole, "peek takes nothing"
    if is_binary:
        whole = [(lsn, xid, bytes(data).decode()) for lsn, xid, data in whole]
    assert whole[0][2] == "BEGIN"
    assert whole[-1][2] == "COMMIT"
    part = session.execute(get, [None, 1]).fetchall()
    commit = next(at for at, row in enumerate(whole) if row[2] == "COMMIT")
    assert len(part) == commit + 1
    second = next(at for at in range(commit + 1, len(whole)) if whole[at][2] == "COMMIT")
    until = session.execute(get, [whole[second][0], None]).fetchall()
    assert len(until) == second - commit
    rest = session.execute(get, [None, None]).fetchall()
    assert len(part) + len(until) + len(rest) == len(whole)
    assert session.execute(get, [None, None]).fetchall() == []
    counted = session.execute(peek.replace("*", "count(*)"), [None, None]).fetchone()
    assert counted == (0,)


def test_wal2json_by_sql(served: Served, session: Session) -> None:
    """Every row that test_decoding shows is an object, with the same LSN."""
    found = []
    for plugin, options in (("test_decoding", ""), ("wal2json", ", 'format-version', '2'")):
        served.add_slot(f"objects_{plugin}", plugin=plugin)
        query = f"SELECT lsn, xid, data FROM pg_logical_slot_peek_changes('objects_{plugin}', NULL, NULL{options})"
        found.append(session.execute(query).fetchall())
    lines, objects = found
    assert [row[:2] for row in lines] == [row[:2] for row in objects]
    for (_, _, line), (_, _, text) in zip(lines, objects, strict=True):
        action = json.loads(text)["action"]
        words = {
            "B": "BEGIN",
            "C": "COMMIT",
            "I": "INSERT:",
            "U": "UPDATE:",
            "D": "DELETE:",
            "T": "TRUNCATE:",
            "M": "message: transactional: 1 prefix: ",
        }
        assert words[action] in line


def test_area_changes(served: Served, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch of the log without a slot: transactions that end in it, as a slot shows them."""
    served.add_slot("area")
    peek = "SELECT lsn, xid, data FROM pg_logical_slot_peek_changes('area', NULL, NULL, 'include-xids', '0')"
    whole = session.execute(peek).fetchall()
    ends = [lsn for lsn, _, data in whole if data.startswith("COMMIT")]
    query = "SELECT * FROM pg_logical_get_area_changes(%s, %s, %s, 'test_decoding', NULL, 'include-xids', '0')"
    assert session.execute(query, ["0/1", None, None]).fetchall() == whole
    found = session.execute(query, [ends[1], ends[3], 0])
    assert [column.name for column in found.description or ()] == ["location", "xid", "data"]
    shown = [lsn for lsn, _, data in found.fetchall() if data.startswith("COMMIT")]
    assert shown == ends[2:4]
    cut = session.execute(query, ["0/1", None, 1]).fetchall()
    assert cut[-1][0] == ends[0]
    warnings: list[str] = []
    session.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
    limited = query.replace(")", ", 'data-limit', '1')")
    assert session.execute(limited, ["0/1", None, None]).fetchall() == whole
    assert not warnings
    monkeypatch.setattr(statements, "_GB", 1)
    cut = session.execute(limited, ["0/1", None, None]).fetchall()
    assert cut == whole[: len(cut)]
    assert cut[-1][2] == "COMMIT"
    assert warnings == [f"decoding ended at data-limit, after {cut[-1][0]}; more has landed"]
    for arguments, state in (
        ("NULL, NULL, NULL, 'test_decoding', NULL", "22004"),
        ("'0/2', '0/1', NULL, 'test_decoding', NULL", "22023"),
        ("'0/1', NULL, NULL, 'test_decoding', '/x'", "0A000"),
        ("'0/1', NULL, NULL, 'nothing', NULL", "42704"),
        ("'0/1', NULL, NULL, 'pgoutput', NULL", "22023"),
        ("'0/1', NULL, NULL, 'parallel_binary_decoding', NULL", "0A000"),
        ("'0/1', NULL, NULL, 'mppdb_decoding', NULL, 'data-limit', '101'", "22023"),
        ("'0/1', NULL, NULL, 'mppdb_decoding'", "42883"),
    ):
        with pytest.raises(psycopg.Error) as caught:
            session.execute(f"SELECT data FROM pg_logical_get_area_changes({arguments})")
        assert caught.value.sqlstate == state


def test_options_as_an_array(served: Served, session: Session) -> None:
    """VARIADIC of a parameter, as drivers of arrays send it; a wrong option is refused by name."""
    served.add_slot("arrays")
    query = "SELECT data FROM pg_logical_slot_peek_changes('arrays', NULL, 1, VARIADIC %s::text[])"
    assert session.execute(query, [["include-xids", "0"]]).fetchone() == ("BEGIN",)
    for binary in (False, True):
        cursor = session.cursor(binary=binary)
        form = query.replace("%s", "%b") if binary else query
        assert cursor.execute(form, [["include-xids", "0"]]).fetchone() == ("BEGIN",)
    with pytest.raises(psycopg.Error, match="include-nothing"):
        session.execute(query, [["include-nothing", "0"]])


def test_numbers(session: Session) -> None:
    """Each has a type that holds it; the binary form too."""
    for binary in (False, True):
        found = session.execute("SELECT 7, 99999999999, -2147483648", binary=binary).fetchone()
        assert found == (7, 99999999999, -2147483648)
    assert str(session.execute("SELECT 1.5").fetchone()[0]) == "1.5"  # type: ignore[index]
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="numeric"):
        session.execute("SELECT 1.5", binary=True)


# ---- streams -------------------------------------------------------------------------------


def test_identify_and_slots_by_commands(served: Served) -> None:
    """The commands of replication that pg_recvlogical and others send."""
    with served.connect(replication="database") as session:
        cursor = psycopg.ClientCursor(session)
        system, timeline, lsn, name = cursor.execute("IDENTIFY_SYSTEM").fetchone()  # type: ignore[misc]
        assert (system, timeline, name) == (
            served.server.facts(served.database).system_identifier,
            1,
            served.database,
        )
        assert lsn == str(Lsn(_end(served)))
        made = cursor.execute(
            "CREATE_REPLICATION_SLOT made LOGICAL test_decoding (SNAPSHOT 'nothing')"
        )
        assert made.fetchone() == ("made", lsn, None, "test_decoding")
        assert cursor.execute("READ_REPLICATION_SLOT made").fetchone() == ("logical", lsn, 1)
        cursor.execute(
            "CREATE_REPLICATION_SLOT gone TEMPORARY LOGICAL test_decoding NOEXPORT_SNAPSHOT"
        )
        cursor.execute('DROP_REPLICATION_SLOT "made"')
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            cursor.execute("BASE_BACKUP")
    with served.connect() as session:
        query = "SELECT slot_name FROM pg_replication_slots WHERE slot_name IN ('made')"
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            session.execute(query)
        for name in ("made", "gone"):
            query = "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s"
            assert session.execute(query, [name]).fetchall() == []


def test_stream_is_what_sql_shows(served: Served, session: Session) -> None:
    """The same messages; a slot that streams is in use; its end gives it back."""
    served.add_slot("stream")
    query = "SELECT lsn, data FROM pg_logical_slot_peek_changes('stream', NULL, NULL)"
    shown = [(int(Lsn.parse(lsn)), data.encode()) for lsn, data in session.execute(query)]
    client = Replication(served, "stream")
    with pytest.raises(psycopg.errors.ObjectInUse):
        session.execute(query)
    assert client.until(_end(served)) == shown
    streams = session.execute("SELECT slot_name, state FROM pg_stat_replication").fetchall()
    assert ("stream", "streaming") in streams
    client.close()
    assert len(session.execute(query).fetchall()) == len(shown), "nothing was confirmed"


def test_decode_status(served: Served, session: Session) -> None:
    """A row for each stream, in the form of openGauss; none without a stream."""
    query = "SELECT * FROM gs_get_parallel_decode_status() WHERE slot_name = 'status'"
    found = session.execute(query)
    assert [(column.name, column.type_code) for column in found.description or ()] == [
        ("slot_name", 25), ("parallel_decode_num", 23), ("read_change_queue_length", 25),
        ("decode_change_queue_length", 25), ("reader_lsn", 25), ("working_txn_cnt", 20),
        ("working_txn_memory", 20),
    ]  # fmt: skip
    assert found.fetchall() == []
    served.add_slot("status")
    end = str(Lsn(_end(served)))
    with contextlib.closing(Replication(served, "status").session):
        rows: list[tuple[object, ...]] = []
        expected = [("status", 1, "queue0: 0", "queue0: 0", end, 0, 0)]
        for _ in range(20_000):
            rows = session.execute(query).fetchall()
            if rows == expected:
                break
    assert rows == expected


def test_style_b_warns(served: Served, session: Session) -> None:
    """Over a landing of PostgreSQL, of columns that may be missing; the other styles have a sign."""
    told: list[str | None] = []
    session.add_notice_handler(lambda notice: told.append(notice.message_primary))
    served.add_slot("unchanged", plugin="mppdb_decoding")
    query = (
        "SELECT * FROM pg_logical_slot_peek_binary_changes('unchanged', NULL, 1, %s, '2', %s, %s)"
    )
    session.execute(query, ["parallel-decode-num", "decode-style", "t"])
    assert not told
    session.execute(query, ["parallel-decode-num", "decode-style", "b"])
    client = Replication(served, "unchanged", 0, "(\"parallel-decode-num\" '2')")
    client.close()
    assert [text and text[:60] for text in told] == [
        "style b has no sign for a large value that an update did not"[:60]
    ]


def test_what_a_stream_holds() -> None:
    """Rows that wait for the plug-in, then messages that wait for the client, by transactions."""
    seen: list[tuple[int, tuple[int, int, int], int]] = []

    def look(*_: object) -> None:
        stream = streams[0]
        seen.append((stream.read_changes, stream.held, stream.read_lsn))

    async def call(work: Callable[[], object]) -> object:
        look()
        return work()

    async def send() -> None:
        connection = Mock(send=AsyncMock(side_effect=look))
        feed = Feed(Mock(), Mock(), 0, Mock())
        feed.call = call  # type: ignore[assignment,method-assign]  # without a thread
        start = ReadPosition(0, 0, 5)
        streams.append(Stream(connection, feed, Mock(), output, "kind", start, Sent(), 0))
        await streams[0]._send_block(of, None)
        look()

    streams: list[Stream] = []
    output = make_output("test_decoding", {"include-xids": "0"})
    texts = pa.array(["x" * 800_000] * 3)
    columns = [servedrows.column("x", "text", 25)]
    table = TableRows(servedrows.schema(columns), servedrows.rows("III", {"x": texts}))
    of = servedrows.block([table], [1, 3])
    asyncio.run(send())
    size = len(output.write(of).content)
    row = len("table public.t: INSERT: x[text]:''") + 800_000
    assert seen == [
        (3, (0, 0, 0), 200_016),
        (0, (7, 2, size), 200_016),
        (0, (3, 1, 2 * row + 6), 200_016),
        (0, (2, 1, row + 6), 200_016),
        (0, (0, 0, 0), 200_016),
    ]


def test_confirmed_never_comes_again(tmp_path: Path) -> None:
    """From the confirmed position, or a later one that is asked for; also in the next server."""
    root = unpack_landing(tmp_path)
    with Served(root) as served:
        served.add_slot("copy")
        client = Replication(served, "copy")
        whole = client.until(_end(served))
        ends = [lsn for lsn, data in whole if data.startswith(b"COMMIT")]
        assert len(ends) > 4
        client.confirm(ends[1])
        client.until(0)
        client.close()
        client = Replication(served, "copy", ends[0])
        rest = client.until(_end(served))
        assert rest == [message for message in whole if message in rest]
        assert len([1 for _, data in rest if data.startswith(b"COMMIT")]) == len(ends) - 2
        client.close()
        client = Replication(served, "copy", ends[3])
        later = client.until(_end(served))
        assert len([1 for _, data in later if data.startswith(b"COMMIT")]) == len(ends) - 4
        client.session.close()
    with Served(root) as served:
        assert served.server.slots.get("copy").lsn == ends[1]
        client = Replication(served, "copy")
        assert client.until(_end(served)) == rest
        client.close()


def test_confirming_the_future_is_refused(served: Served) -> None:
    """A position that was never sent would lose changes."""
    served.add_slot("future")
    client = Replication(served, "future")
    client.until(_end(served))
    client.confirm(_end(served) + 1)
    with pytest.raises(psycopg.Error, match="was sent nothing after"):
        client.rest()
    assert served.server.slots.get("future").lsn == 0
    client.session.close()


def test_silent_client_is_cut_off(served: Served) -> None:
    """`sender-timeout` is the client's own; first it is asked for a reply."""
    served.add_slot("silent")
    client = Replication(served, "silent", options="(\"sender-timeout\" '600ms')")
    with pytest.raises(psycopg.OperationalError):
        client.rest()
    client.session.close()
    again = Replication(served, "silent")
    again.close()


def test_wrong_option_of_a_stream(served: Served) -> None:
    """An option that the plug-in does not have is refused before the stream."""
    served.add_slot("options")
    with pytest.raises(ServeError, match="unknown") as caught:
        Replication(served, "options", options="(nothing '1')")
    assert caught.value.sqlstate == "22023"


# ---- log-in --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with users and TLS."""
    directory = tmp_path_factory.mktemp("guarded")
    users = directory / "users"
    write_user(users, "reader", "s3cret wörd")
    write_user(users, "other", "another", ("nothing.*",))
    root = unpack_landing(directory)
    make_certificates(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    with Served(root, lambda: context, users_file=users) as running:
        yield running


@pytest.mark.parametrize("mode", ["disable", "require"])
def test_password(guarded: Served, mode: str) -> None:
    """SCRAM with and without TLS; nobody learns which names exist."""
    given = {"user": "reader", "sslmode": mode}
    with guarded.connect(password="s3cret wörd", **given) as session:
        assert session.pgconn.ssl_in_use == (mode == "require")
        assert session.execute("SELECT current_user").fetchone() == ("reader",)
    for user, password in (("reader", "wrong"), ("nobody", "wrong"), ("nobody", "s3cret wörd")):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            guarded.connect(user=user, password=password, sslmode=mode)


def test_slots_and_tables_of_a_user(guarded: Served) -> None:
    """A user reads its tables only, and uses no slot of another one."""
    with guarded.connect(user="reader", password="s3cret wörd") as session:
        session.execute("SELECT pg_create_logical_replication_slot('mine', 'test_decoding')")
    slot = guarded.add_slot("others")
    slot.owner = "other"
    with guarded.connect(user="other", password="another") as session:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SELECT * FROM pg_logical_slot_get_changes('mine', NULL, NULL)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SELECT pg_drop_replication_slot('mine')")
        found = session.execute(
            "SELECT data FROM pg_logical_slot_peek_changes('others', NULL, NULL)"
        )
        assert {re.split(r"[ :]", data)[0] for (data,) in found} == {"BEGIN", "COMMIT"}


@pytest.mark.parametrize("password", ["s3cret wörd", "wrong"])
def test_client_of_opengauss(guarded: Served, password: str) -> None:
    """Log-in by sha256, with the client of this package."""
    parameters = {"database": guarded.database, "replication": "database"}
    client = GaussClient(gauss_auth.Login("reader", password), parameters, PROTOCOL_3_51)
    reader = MessageReader()
    with socket.create_connection(("127.0.0.1", guarded.port)) as connection:
        connection.sendall(client.start())
        while client.phase not in {Phase.IDLE, Phase.FAILED}:
            data = connection.recv(4096)
            assert data
            reader.feed(data)
            while (message := reader.take()) is not None:
                connection.sendall(client.take(message))
    if password == "wrong":
        assert client.error is not None
        assert client.error["C"] == "28P01"
    else:
        assert client.phase is Phase.IDLE


def test_remote_needs_users(kept: Path) -> None:
    """A port that others can reach is refused without a log-in."""
    from gaussdecode.settings.types import Address

    with pytest.raises(ConfigError, match="users-file"):
        Served(kept, listen=Address("0.0.0.0", 0))


# ---- limits and hostile clients ------------------------------------------------------------


def test_one_server_of_a_landing(served: Served, kept: Path) -> None:
    """A second one would not know what the first one confirmed."""
    del served
    with pytest.raises(ConfigError, match="another gaussdecode serve"):
        Served(kept)


def test_too_many_and_not_allowed(tmp_path: Path) -> None:
    """Each refusal has its code."""
    root = unpack_landing(tmp_path)
    with Served(root, connections=1) as served, served.connect():
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            served.connect()
    with Served(root, allow=("10.0.0.0/8",)) as served:
        with pytest.raises(psycopg.OperationalError, match=r"serve\.allow"):
            served.connect()
    with Served(root) as served:
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            served.connect(dbname="another")


def test_large_message_is_refused(tmp_path: Path) -> None:
    """Before it is read."""
    root = unpack_landing(tmp_path)
    with Served(root, message_bytes=16 << 10) as served, served.connect() as session:
        with pytest.raises(psycopg.OperationalError, match="message-bytes"):
            session.execute(f"SELECT '{'x' * (17 << 10)}'")


def _answer(served: Served, data: bytes) -> bytes:
    """Everything that the server says to some bytes, up to its end."""
    found = b""
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                found += part
    return found


class _Raw:
    """A client that writes messages of the extended protocol itself."""

    def __init__(self, served: Served) -> None:
        self.socket = socket.create_connection(("127.0.0.1", served.port))
        body = b"\0\3\0\0user\0tester\0database\0" + served.database.encode() + b"\0\0"
        self.socket.sendall(struct.pack(">i", len(body) + 4) + body)
        self.file = self.socket.makefile("rb")
        self.answers()

    def send(self, *parts: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """Send messages and a Sync, and give all answers before ReadyForQuery."""
        frames = [tag + struct.pack(">i", len(body) + 4) + body for tag, body in parts]
        self.socket.sendall(b"".join(frames) + b"S\0\0\0\4")
        return self.answers()

    def answers(self) -> list[tuple[bytes, bytes]]:
        """Everything up to ReadyForQuery."""
        found: list[tuple[bytes, bytes]] = []
        while not found or found[-1][0] != b"Z":
            tag, size = struct.unpack(">cI", self.file.read(5))
            found.append((tag, self.file.read(size - 4)))
        return found[:-1]

    def bind(self, text: str) -> list[tuple[bytes, bytes]]:
        """Messages that parse a statement and bind it to the portal p."""
        return [(b"P", b"\0" + text.encode() + b"\0\0\0"), (b"B", b"p\0\0" + bytes(6))]


def _fetch(most: int) -> tuple[bytes, bytes]:
    return b"E", b"p\0" + struct.pack(">i", most)


def test_fetch_size(served: Served, session: Session) -> None:
    """Rows come in parts of the size that is asked for; what was not fetched is not confirmed."""
    slot = served.add_slot("fetched")

    def is_held() -> bool:
        """Whether the portal has the slot; nothing is confirmed before the last row."""
        assert slot.lsn in {0, _end(served)}
        return slot.process is not None

    query = "SELECT data FROM pg_logical_slot_{}_changes('fetched', NULL, NULL)"
    whole = [data.encode() for (data,) in session.execute(query.format("peek")).fetchall()]
    client = _Raw(served)
    with contextlib.closing(client.socket), client.file:
        client.send((b"P", b"\0BEGIN\0\0\0"), (b"B", bytes(8)), (b"E", bytes(5)))
        found = client.send(*client.bind(query.format("peek")), _fetch(7), _fetch(1))
        assert [tag for tag, _ in found] == [b"1", b"2", *[b"D"] * 7, b"s", b"D", b"s"]
        rest = client.send(_fetch(0))
        assert rest[-1] == (b"C", f"SELECT {len(whole) - 8}\0".encode())
        rows = [body[6:] for tag, body in found + rest if tag == b"D"]
        assert rows == whole
        assert client.send(_fetch(3)) == [(b"C", b"SELECT 0\0")]
        assert client.send(*client.bind(query.format("get")), _fetch(len(whole)))[-1][0] == b"s"
        assert is_held()
        assert client.send((b"C", b"Pp\0")) == [(b"3", b"")]
        assert not is_held()
        client.send(*client.bind(query.format("get")), _fetch(5))
        client.send((b"P", b"\0COMMIT\0\0\0"), (b"B", bytes(8)), (b"E", bytes(5)))
        assert not is_held()
        client.send(*client.bind(query.format("get")), _fetch(5))
        assert not is_held(), "outside of a transaction Sync ends it"
        assert slot.lsn == 0
        found = client.send(*client.bind(query.format("get")), _fetch(len(whole) + 1))
        assert found[-1] == (b"C", f"SELECT {len(whole)}\0".encode())
        assert not is_held()
        assert slot.lsn == _end(served)


def test_portals_end_with_their_transaction(served: Served) -> None:
    """A client that never closes a portal may bind as many names as it likes, one transaction after the other."""
    client = _Raw(served)
    with contextlib.closing(client.socket), client.file:
        client.send((b"P", b"s\0SELECT 1\0\0\0"))
        for number in range(1100):
            name = f"p{number}".encode()
            found = client.send((b"B", name + b"\0s\0" + bytes(6)), (b"E", name + bytes(5)))
            assert [tag for tag, _ in found] == [b"2", b"D", b"C"]
        (refused,) = client.send((b"E", b"p7" + bytes(5)))
        assert refused[0] == b"E"
        assert b"C34000\0" in refused[1]


_STARTUP = b"user\0x\0database\0"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=200), st.sampled_from(["raw", "startup", "messages"]))
def test_random_bytes_harm_nobody(served: Served, data: bytes, kind: str) -> None:
    """Whatever a client sends, it gets an error or an end; no word of Python, and others go on."""
    name = served.database.encode()
    hello = (3 << 16).to_bytes(4, "big") + _STARTUP + name + b"\0\0"
    if kind == "startup":
        data = (len(data) + 8).to_bytes(4, "big") + (3 << 16).to_bytes(4, "big") + data
    elif kind == "messages":
        data = (len(hello) + 4).to_bytes(4, "big") + hello + data
    found = _answer(served, data)
    assert b"XX000" not in found
    assert b"Traceback" not in found
    assert found[:1] in {b"", b"E", b"R", b"N", b"v"}


_BODIES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [b"\0", b"\0SELECT 1\0\0\0", b"\0\0\0\0\0\0\0\0", b"S\0", b"P\0", b"\0\0\0\0\0"]
    ),
    st.text(alphabet="SELECT *FROM()'$1,;:/\"-", max_size=40).map(
        lambda text: text.encode() + b"\0"
    ),
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(b"QPBDECHSXFdcfp"), _BODIES), max_size=8))
def test_random_messages_harm_nobody(served: Served, messages: list[tuple[int, bytes]]) -> None:
    """The same of messages that are framed well."""
    hello = (3 << 16).to_bytes(4, "big") + _STARTUP + served.database.encode() + b"\0\0"
    data = (len(hello) + 4).to_bytes(4, "big") + hello
    for tag, body in messages:
        data += bytes([tag]) + (len(body) + 4).to_bytes(4, "big") + body
    found = _answer(served, data)
    assert b"XX000" not in found
    assert found.startswith(b"R")


# ---- the source's catalogue ----------------------------------------------------------------

_SLOTS = [{"slot_name": "it's", "restart_lsn": "0/10"}]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1 FROM pg_class c WHERE c.oid = $1", "{}"),
        ("SELECT 'pg_replication_slots' -- pg_replication_slots", "{}"),
        ("SELECT * FROM pg_catalog.pg_replication_slots s", "SELECT * FROM {s} s"),
        (
            "SELECT x FROM a JOIN PG_Replication_Slots ON pg_replication_slots.x = a.x",
            "SELECT x FROM a JOIN {s} AS pg_replication_slots ON pg_replication_slots.x = a.x",
        ),
        (
            "SELECT EXISTS (SELECT FROM pg_replication_slots)",
            "SELECT EXISTS (SELECT FROM {s} AS pg_replication_slots)",
        ),
    ],
)
def test_virtual_slots_for_the_catalogue(query: str, expected: str) -> None:
    """The view of slots is that of this server, wherever a statement names it, and nowhere else."""
    found = with_slots(query, _SLOTS)
    shown = re.sub(
        r"\(SELECT \* FROM pg_catalog\.json_to_recordset\(.*?\) AS v\(.*?\)\)", "{s}", found
    )
    assert shown == (query if expected == "{}" else expected)
    assert ("it''s" in found) == (expected != "{}")


@pytest.mark.parametrize(
    ("query", "is_sent"),
    [
        ("SELECT relname FROM pg_class", True),
        ("WITH a AS (SELECT 1) SELECT * FROM a", True),
        ("DELETE FROM t", False),
        ("COPY t TO STDOUT", False),
        ("WITH a AS (SELECT pg_logical_slot_get_changes('x', NULL, NULL)) SELECT * FROM a", False),
        ('SELECT "pg_drop_replication_slot"(slot_name) FROM t', False),
    ],
)
def test_what_the_catalogue_is_sent(query: str, is_sent: bool) -> None:
    """Only what reads, and nothing that has to do with the source's own slots."""
    assert is_for_catalog(tokens_of(query)) == is_sent


def test_catalogue_of_another_product(tmp_path: Path) -> None:
    """Only PostgreSQL's can be asked; a start says so."""
    root = unpack_landing(tmp_path)
    layout = json.loads((root / "layout.json").read_bytes())
    for source in layout["sources"].values():
        source["kind"] = "gaussdb"
    (root / "layout.json").write_text(json.dumps(layout))
    with pytest.raises(ConfigError, match=r"serve\.catalog-dsn.*gaussdb"):
        Served(root, catalog_dsn="host=127.0.0.1 dbname=x user=y")


def test_settings_that_are_as_asked(served: Served) -> None:
    """A driver may ask for what is so; for what is not, it is refused."""
    same = "-c standard_conforming_strings=on -c default_transaction_isolation=read\\ committed -c DateStyle=ISO,YMD"
    with served.connect(options=same) as session:
        assert session.info.parameter_status("DateStyle") == "ISO, YMD"
    with pytest.raises(psycopg.OperationalError, match="cannot be changed"):
        served.connect(options="-c standard_conforming_strings=off")
