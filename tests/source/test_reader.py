"""The reader's process against a real server, seen from the main process's side."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from kit.decoded import Entry, EventKind, read_entry
from kit.install import PSYCOPG_C
from kit.postgres import Database, Postgres
from kit.proxy import Fault, Proxy
from twins.canonical import Commit, Insert, LogicalMessage, parse

from gaussdecode.errors import IdentityError, LoginRefusedError, SourceError, SourceRefusedError
from gaussdecode.ipc.control import Word
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.types import ColumnType, Kind
from gaussdecode.protocol.described import RelationMessage
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.connection import connect
from gaussdecode.source.postgresql.slot import read_server, start_stream, stream_options
from gaussdecode.source.postgresql.stream import Stream

pytestmark = pytest.mark.integration

MIB = 1 << 20
Main = Any  # Any: the class is in conftest.py, which cannot be imported
MakeMain = Any  # Any: as above


def fill(database: Database, first: int, last: int, width: int = 10) -> None:
    """One transaction with rows numbered from first to last."""
    database.execute(
        f"INSERT INTO t SELECT i, repeat('x', {width}) FROM generate_series({first}, {last}) i"
    )


@pytest.fixture
def table(database: Database) -> Database:
    """A database with a table t."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    return database


def plain_frames(database: Database, commits: int) -> list[bytes]:
    """The same stream up to so many commits of changes, read message by message, not confirmed."""
    payloads: list[bytes] = []
    with connect(SourceAddress(database.dsn + " sslmode=disable", None, True)) as connection:
        server = read_server(connection, database.slot, [database.publication])
        options = stream_options(
            server.version, [database.publication], messages=True, only_local=True
        )
        start_stream(connection, database.slot, Lsn(0), options)
        stream = Stream(connection, Lsn(0), server.sender_timeout_ms)
        while _commits_of_changes(payloads) < commits:
            payloads += [f[25:] for f in stream.frames(1.0) if f[:1] == b"w"]
        stream.close()
    return payloads


def _commits_of_changes(payloads: list[bytes]) -> int:
    """Count the commits; before 15 the server sends those of empty transactions as well."""
    kinds = [payload[:1] for payload in payloads]
    return sum(pair[1] == b"C" and pair[0] != b"B" for pair in itertools.pairwise(kinds))


def changes_of(told: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Leave out what says of a table what was said of it before: (name, number of columns)."""
    known: dict[str, int] = {}
    found = []
    for name, count in told:
        if known.get(name) != count:
            found.append((name, count))
        known[name] = count
    return found


def with_changes(messages: Sequence[bytes]) -> list[bytes]:
    """Leave out transactions without a change: autovacuum makes some, which 14 sends, at any time."""
    kept: list[bytes] = []
    for message in messages:
        if message[:1] == b"C" and kept and kept[-1][:1] == b"B":
            kept.pop()
        else:
            kept.append(message)
    return kept


@pytest.mark.parametrize("decoder_count", [2, 3])
def test_stream_is_what_the_server_sends(
    database_of_each: Database, make_main: MakeMain, decoder_count: int
) -> None:
    """Byte for byte the messages of the plain reader, relations told beside them."""
    table = database_of_each
    table.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    table.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    table.execute("CREATE TABLE u (id int PRIMARY KEY, m mood, n numeric(10,2))")
    fill(table, 1, 20_000, 100)
    table.execute("INSERT INTO u VALUES (1, 'sad', 1.5)")
    table.execute("SELECT pg_logical_emit_message(true, 'p', 'content')")
    table.execute("UPDATE t SET v = 'y' WHERE id < 100; ALTER TABLE t ADD w int")
    table.execute("UPDATE t SET v = 'z' WHERE id < 100; DELETE FROM t WHERE id > 19000; TRUNCATE u")
    expected = plain_frames(table, 5)

    main = make_main(table, decoder_count=decoder_count)
    main.go()
    main.wait_for_commits(sum(payload[:1] == b"C" for payload in expected))
    assert main.stop() == 0

    sent = [payload for payload in expected if payload[:1] not in (b"R", b"Y")]
    assert with_changes(main.messages()) == with_changes(sent)
    versions = {one.version: one for batch in main.batches for one in batch.relations}
    in_order = [(versions[n].name, len(versions[n].columns)) for n in sorted(versions)]
    # The server tells a table again whenever its cache was emptied, also without a reason in the WAL.
    told = [parse(payload) for payload in expected if payload[:1] == b"R"]
    assert changes_of(in_order) == changes_of(
        [(one.name, len(one.columns)) for one in told if isinstance(one, RelationMessage)]
    )
    assert changes_of(in_order)[:3] == [("t", 2), ("u", 3), ("t", 3)]
    assert table.slot_positions()[1] >= main.commits()[-1]


def test_every_decoder_is_told_every_version_before_it_matters(
    table: Database, make_main: MakeMain
) -> None:
    """A batch never holds a row of a version that its decoder does not know."""
    main = make_main(table, decoder_count=3)
    main.go()
    for number in range(6):
        table.execute(f"CREATE TABLE s{number} (id int PRIMARY KEY)")
        table.execute(f"INSERT INTO s{number} VALUES (1); INSERT INTO t VALUES ({number}, 'v')")
        main.wait_for_commits(number + 1)
    assert main.stop() == 0

    known: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
    seen: dict[int, int] = {}
    for batch in main.batches:
        mine = known[batch.dispatch_seq % 3]
        for relation in batch.relations:
            mine.add(relation.version)
            seen[relation.oid] = relation.version
        for message in batch.messages:
            if message[:1] == b"I":
                assert seen[int.from_bytes(message[1:5], "big")] in mine


def test_repeated_relations_are_versions(table: Database, make_main: MakeMain) -> None:
    """A column made anew gives the same bytes as ANALYZE: whoever can tell is asked each time."""
    main = make_main(table)
    main.go()
    for number in range(3):
        fill(table, number, number)
        main.wait_for_commits(number + 1)
        table.execute("ANALYZE t")
    assert main.control.get(Word.RELATIONS) == 3
    assert main.stop() == 0


def test_white_list_marks_relations(table: Database, make_main: MakeMain) -> None:
    """Rows of other tables are marked as not wanted, not left out of the stream."""
    table.execute("CREATE TABLE other (id int)")
    main = make_main(table, **{"white-table-list": "*.t"})
    main.go()
    table.execute("INSERT INTO other VALUES (1); INSERT INTO t VALUES (1, 'v')")
    main.wait_for_commits(1)
    filtered = {r.name: r.is_filtered for batch in main.batches for r in batch.relations}
    assert filtered == {"other": True, "t": False}
    assert main.stop() == 0


def test_serial_mode_decodes_here(table: Database, make_main: MakeMain) -> None:
    """With one decoder the ring holds decoded batches, and their end."""
    main = make_main(table, decoder_count=1)
    main.go()
    fill(table, 1, 1000)
    types = {1: [ColumnType(Kind.INT32), ColumnType(Kind.STRING)]}

    def entries() -> list[Entry]:
        return [read_entry(entry, types) for entry in main.entries]

    def kinds() -> list[EventKind]:
        return [event.kind for entry in entries() for event in entry.events]

    main.wait(lambda: EventKind.COMMIT in kinds(), "a commit")
    assert sum(entry.row_count for entry in entries()) == 1000
    main.control.set(Word.STOP_REQUESTED, 1)
    main.wait(lambda: entries()[-1].kind == 1, "the end entry")
    main.control.set(Word.FINISHED, 1)
    main.wait_blind(lambda: main.child.exit_status() == 0, "exit")


def test_logical_messages_come_when_wanted(table: Database, make_main: MakeMain) -> None:
    """Transactional or not, in their place."""
    main = make_main(table)
    main.go()
    table.execute("SELECT pg_logical_emit_message(false, 'p', 'alone')")
    table.execute("SELECT pg_logical_emit_message(true, 'p', 'inside')")
    main.wait_for_commits(1)
    parsed = [parse(m) for m in main.messages() if m[:1] == b"M"]
    assert [m.content for m in parsed if isinstance(m, LogicalMessage)] == [b"alone", b"inside"]
    assert main.stop() == 0


# ---- feedback ------------------------------------------------------------------------------


def reply_age(database: Database) -> float | None:
    """Seconds since the server heard from the reader; None while nobody streams."""
    rows = database.execute(
        "SELECT extract(epoch FROM clock_timestamp() - r.reply_time)::float8 "
        "FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid "
        f"WHERE s.slot_name = '{database.slot}'"
    )
    return rows[0][0] if rows else None


@pytest.fixture(scope="module")
def hasty() -> Iterator[Postgres]:
    """A server that gives a silent client up after two seconds."""
    with Postgres(15, {"wal_sender_timeout": "2s"}) as postgres:
        yield postgres


@pytest.fixture
def hasty_table(hasty: Postgres) -> Iterator[Database]:
    """A database with a table t on that server."""
    made = Database(hasty, f"h{time.monotonic_ns() % 10**9}")
    made.create_slot()
    made.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    yield made
    made.drop()


def test_full_rings_do_not_stop_the_status(hasty_table: Database, make_main: MakeMain) -> None:
    """With nobody reading the rings, the server still hears from us, and no byte is lost."""
    main = make_main(hasty_table, ring_bytes=128 * 1024)
    main.go()
    fill(hasty_table, 1, 40_000, 200)
    main.wait_blind(lambda: main.control.get(Word.STALLED_NS) > 4e9, "a long stall")
    received = main.control.get(Word.RECEIVED_BYTES)
    assert received < 4 * MIB
    age = reply_age(hasty_table)
    assert age is not None
    assert age < 2
    main.wait_for_commits(1)
    assert sum(message[:1] == b"I" for message in main.messages()) == 40_000
    assert main.stop() == 0


def test_huge_row_while_rings_are_full(hasty_table: Database, make_main: MakeMain) -> None:
    """A row of 50 MB goes through rings of 1 MiB, and the connection outlives the wait."""
    main = make_main(hasty_table)
    main.go()
    fill(hasty_table, 1, 1, 50 * MIB)
    main.wait_blind(lambda: main.control.get(Word.STALLED_NS) > 4e9, "a long stall")
    main.wait_for_commits(1)
    (insert,) = [parse(m) for m in main.messages() if m[:1] == b"I"]
    assert isinstance(insert, Insert)
    assert insert.new[1] == b"x" * (50 * MIB)
    assert main.stop() == 0


def test_confirms_what_main_says_and_no_more(table: Database, make_main: MakeMain) -> None:
    """The slot follows the durable word, not what was received."""
    main = make_main(table)
    main.go()
    before = table.slot_positions()[1]
    fill(table, 1, 1)
    fill(table, 2, 2)
    main.wait_for_commits(2)
    assert table.slot_positions()[1] == before
    main.control.set(Word.DURABLE_LSN, main.commits()[0])
    main.wait_blind(lambda: table.slot_positions()[1] == main.commits()[0], "the confirmation")
    assert main.stop() == 0


def test_idle_keepalives_come_in_band(table: Database, make_main: MakeMain) -> None:
    """WAL that is not published moves the position through the log, in order."""
    main = make_main(table)
    main.go()
    fill(table, 1, 1)
    main.wait_for_commits(1)
    end = main.commits()[0]
    table.execute("CREATE TABLE unpublished AS SELECT 1 AS x; DROP TABLE unpublished")
    target = table.wal_end()
    table.execute("SELECT pg_switch_wal()")
    main.wait(lambda: any(b.keepalive_lsn >= target for b in main.batches), "a keepalive")
    keepalives = [b.keepalive_lsn for b in main.batches if b.keepalive_lsn]
    assert keepalives == sorted(keepalives)
    assert keepalives[-1] > end
    assert main.finish_durable(keepalives[-1]) == 0
    assert table.slot_positions()[1] == keepalives[-1]


def test_server_shuts_down_without_waiting_for_a_timeout(make_main: MakeMain) -> None:
    """A fast shutdown asks for everything to be confirmed, and gets it."""
    with Postgres(15) as own:
        database = Database(own, "shutdown")
        database.create_slot()
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        main = make_main(database)
        main.go()
        fill(database, 1, 10)
        main.wait_for_commits(1)
        os.kill(own.pid, signal.SIGINT)

        def follow() -> bool:
            """Land at once, as a quick main would."""
            reached = [batch.keepalive_lsn for batch in main.batches]
            main.control.set(Word.DURABLE_LSN, max([*main.commits(), *reached]))
            return any(report["kind"] == "error" for report in main.reports)

        main.wait(follow, "the end of the stream")
        error = main.error()
        assert isinstance(error, SourceError)
        assert error.retryable
        assert main.finish() == error.exit_status
        own.stop()


# ---- ends ----------------------------------------------------------------------------------


def assert_broken_off(main: Main, retryable: bool = True) -> SourceError:
    """The reader reported an error of the source, put end entries, and left with its status."""
    error = main.error()
    assert type(error) is (SourceError if retryable else SourceRefusedError), error
    assert main.finish() == error.exit_status
    return error


def test_terminated_backend_is_tried_again(table: Database, make_main: MakeMain) -> None:
    """What was received is delivered before the end entries."""
    main = make_main(table)
    main.go()
    fill(table, 1, 1000)
    main.wait_blind(lambda: main.control.get(Word.RECEIVED_MESSAGES) >= 1002, "the rows")
    table.execute(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
        f"WHERE slot_name = '{table.slot}'"
    )
    error = assert_broken_off(main)
    assert error.sqlstate == "57P01"
    assert len(main.commits()) == 1


def test_immediate_stop_is_tried_again(make_main: MakeMain) -> None:
    """A crashed server leaves no SQLSTATE or 57P02; either may pass."""
    with Postgres(15) as own:
        database = Database(own, "crash")
        database.create_slot()
        main = make_main(database)
        main.go()
        main.wait_blind(lambda: main.control.get(Word.STATUS_SENT_COUNT) > 0, "the stream")
        own.stop("immediate")
        assert_broken_off(main)


@pytest.mark.parametrize("after_bytes", [0, 100_000, 777_777])
def test_cut_connection_loses_no_whole_message(
    table: Database, make_main: MakeMain, after_bytes: int
) -> None:
    """The stream ends at a message, wherever TCP was cut; the next session has the rest."""
    fill(table, 1, 20_000, 50)
    fill(table, 20_001, 20_002)
    proxy = Proxy(table.server.port)
    try:
        conninfo = f"host=127.0.0.1 port={proxy.port} dbname={table.name} user=postgres"
        main = make_main(table, conninfo=conninfo + " sslmode=disable")
        main.facts()
        proxy.plan(Fault.CUT, after_bytes)
        main.go()
        assert_broken_off(main)
    finally:
        proxy.close()
    for message in main.messages():
        parse(message)

    again = make_main(table)
    again.go()
    again.wait_for_commits(2)
    assert again.stop() == 0
    whole = again.messages()
    assert whole[: len(main.messages())] == main.messages()


def test_silent_network_is_given_up(table: Database, make_main: MakeMain) -> None:
    """Without a byte for the timeout, not even after a ping, the connection is dropped."""
    proxy = Proxy(table.server.port)
    try:
        conninfo = f"host=127.0.0.1 port={proxy.port} dbname={table.name} user=postgres"
        main = make_main(table, conninfo=conninfo + " sslmode=disable", receiver_timeout=1.5)
        main.go()
        fill(table, 1, 1)
        main.wait_for_commits(1)
        proxy.plan(Fault.BLACKHOLE, 0)
        error = assert_broken_off(main)
        assert "no byte" in str(error)
    finally:
        proxy.close()


def test_a_quiet_server_is_not_given_up(table: Database, make_main: MakeMain) -> None:
    """A server that has nothing to say answers the ping."""
    main = make_main(table, receiver_timeout=0.6)
    main.go()
    began = time.monotonic()
    main.wait(lambda: time.monotonic() - began > 3, "three quiet seconds")
    fill(table, 1, 1)
    main.wait_for_commits(1)
    assert main.stop() == 0


def test_stopped_process_goes_on(table: Database, make_main: MakeMain) -> None:
    """A reader that stood still for longer than its timeout looks before it gives up."""
    main = make_main(table, receiver_timeout=1.0)
    main.go()
    main.wait_blind(lambda: main.control.get(Word.STATUS_SENT_COUNT) > 0, "the stream")
    main.child.process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    main.child.process.send_signal(signal.SIGCONT)
    fill(table, 1, 1)
    main.wait_for_commits(1)
    assert main.stop() == 0


def test_stop_in_the_middle_of_a_transaction(table: Database, make_main: MakeMain) -> None:
    """The end entries come after whole messages; nothing of it is confirmed."""
    before = table.slot_positions()[1]
    fill(table, 1, 100_000, 100)
    main = make_main(table, ring_bytes=128 * 1024)
    main.go()
    main.wait_blind(lambda: main.control.get(Word.RECEIVED_MESSAGES) > 0, "rows")
    assert main.stop() == 0
    assert not main.commits()
    assert table.slot_positions()[1] == before


def test_lost_decoder_ends_the_reader(table: Database, make_main: MakeMain) -> None:
    """A ring without a reader is the end of the session, with the status of a bug."""
    main = make_main(table, ring_bytes=128 * 1024)
    main.go()
    for ring in main.rings:
        ring.close_consumer_side()
    fill(table, 1, 10_000, 100)
    main.wait_blind(lambda: main.child.exit_status() is not None, "exit")
    assert main.child.exit_status() == os.EX_SOFTWARE
    main.listen()
    assert "decoder" in main.reports[-1]["error"]["args"][0]


def test_leaves_when_it_is_not_needed(table: Database, make_main: MakeMain) -> None:
    """Told to leave before the stream starts, it leaves."""
    main = make_main(table)
    main.facts()
    main.control.set(Word.FINISHED, 1)
    main.wait_blind(lambda: main.child.exit_status() == 0, "exit")


def test_missing_publication_is_refused_before_the_stream(
    table: Database, make_main: MakeMain
) -> None:
    """A wrong name is a mistake of the configuration."""
    main = make_main(table, publications=("nowhere",))
    error = main.error()
    assert isinstance(error, IdentityError)
    assert "'nowhere'" in str(error)


def test_publication_younger_than_the_wal_is_refused(table: Database, make_main: MakeMain) -> None:
    """The server looks it up at the position of the change, where it is not yet."""
    fill(table, 1, 1)
    table.execute("CREATE PUBLICATION late FOR ALL TABLES")
    main = make_main(table, publications=("late",))
    main.go()
    error = assert_broken_off(main, retryable=False)
    assert error.sqlstate == "42704"
    assert "publication" in str(error)


def test_slot_in_use_is_tried_again(table: Database, make_main: MakeMain) -> None:
    """A second reader waits its turn; the first is not disturbed."""
    first = make_main(table)
    first.go()
    first.wait_blind(lambda: first.control.get(Word.STATUS_SENT_COUNT) > 0, "the stream")
    second = make_main(table)
    second.go()
    error = second.error()
    assert isinstance(error, SourceError)
    assert error.retryable
    assert error.sqlstate == "55006"
    assert "streaming" not in [report["kind"] for report in second.reports]
    first.report("streaming")
    fill(table, 1, 1)
    first.wait_for_commits(1)
    assert first.stop() == 0


def test_slot_read_by_another_is_refused(table: Database, make_main: MakeMain) -> None:
    """What the slot has confirmed and the log has not is gone."""
    system_identifier, timeline = table.execute(
        "SELECT system_identifier::text, (SELECT timeline_id FROM pg_control_checkpoint()) "
        "FROM pg_control_system()"
    )[0]
    log = {
        "system_identifier": system_identifier,
        "timeline": timeline,
        "database": table.name,
        "slot": table.slot,
        "plugin": "pgoutput",
        "lsn": int(table.slot_positions()[1]) - 1,
    }
    main = make_main(table, log=log)
    error = main.error()
    assert isinstance(error, IdentityError)
    assert "confirmed up to" in str(error)
    assert not error.retryable


def test_starts_at_the_logs_position(table: Database, make_main: MakeMain) -> None:
    """What the log has is not sent again."""
    main = make_main(table)
    main.go()
    fill(table, 1, 1)
    fill(table, 2, 2)
    main.wait_for_commits(2)
    facts = main.facts()
    assert main.finish_durable(main.commits()[0]) == 0
    log = {
        "system_identifier": facts["identity"]["system_identifier"],
        "timeline": facts["timeline"],
        "database": table.name,
        "slot": table.slot,
        "plugin": "pgoutput",
        "lsn": main.commits()[0],
    }
    again = make_main(table, log=log)
    again.go()
    again.wait_for_commits(1)
    assert again.commits() == main.commits()[1:]
    assert again.stop() == 0


# ---- psycopg's implementations and TLS ---------------------------------------------------


@pytest.mark.parametrize("implementation", ["binary", "python", "c"])
def test_implementations_of_psycopg(
    table: Database,
    make_main: MakeMain,
    implementation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop finds libpq after each of them."""
    monkeypatch.setenv("PSYCOPG_IMPL", implementation)
    if implementation == "c":
        monkeypatch.setenv("PYTHONPATH", str(PSYCOPG_C))
    main = make_main(table, env_allow=("PSYCOPG_IMPL",))
    main.go()
    fill(table, 1, 1000)
    main.wait_for_commits(1)
    assert isinstance(parse(main.messages()[-1]), Commit)
    assert main.stop() == 0


@pytest.fixture(scope="module")
def tls() -> Iterator[tuple[Postgres, str]]:
    """A server with TLS, and the file of its certificate authority."""
    with Postgres(15) as postgres:
        authority = postgres.use_tls()
        yield postgres, str(authority)


def tls_conninfo(server: Postgres, database: str, authority: str, host: str) -> str:
    """Connection string without a sslmode: verify-full is the default."""
    return (
        f"host={host} hostaddr=127.0.0.1 port={server.port} dbname={database} user=postgres "
        f"sslrootcert={authority}"
    )


def test_tls_verifies_and_streams(tls: tuple[Postgres, str], make_main: MakeMain) -> None:
    """Rows of many records arrive whole, though poll does not see what TLS holds back."""
    server, authority = tls
    database = Database(server, "secure")
    database.create_slot()
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    conninfo = tls_conninfo(server, "secure", authority, "localhost")
    main = make_main(database, conninfo=conninfo, is_insecure_allowed=False)
    main.go()
    for number in range(20):
        fill(database, number * 1000, number * 1000 + 999, 37)
        main.wait_for_commits(number + 1)
    with psycopg.connect(database.dsn) as session:
        row = session.execute(
            "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_replication USING (pid)"
        ).fetchone()
    assert row == (True,)
    fill(database, 100_000, 100_000, 3 * MIB)
    main.wait_for_commits(21)
    assert sum(message[:1] == b"I" for message in main.messages()) == 20_001
    assert main.stop() == 0


def test_tls_refuses_another_host(tls: tuple[Postgres, str], make_main: MakeMain) -> None:
    """A right certificate of a wrong host is refused, for good."""
    server, authority = tls
    database = Database(server, "wronghost")
    conninfo = tls_conninfo(server, "wronghost", authority, "db.example.org")
    main = make_main(database, conninfo=conninfo, is_insecure_allowed=False)
    error = main.error()
    assert type(error) is LoginRefusedError
    assert "another host" in str(error)


def test_tls_refuses_another_authority(
    tls: tuple[Postgres, str], make_main: MakeMain, tmp_path: Any
) -> None:
    """A certificate of somebody else's authority is refused, for good."""
    from kit.postgres import make_certificates

    server, _ = tls
    database = Database(server, "wrongca")
    conninfo = tls_conninfo(server, "wrongca", str(make_certificates(tmp_path)), "localhost")
    main = make_main(database, conninfo=conninfo, is_insecure_allowed=False)
    error = main.error()
    assert type(error) is LoginRefusedError
    assert "must have the authority that signed it" in str(error)


def test_process_is_light() -> None:
    """The reader's process imports nothing that costs memory or threads."""
    code = (
        "import sys, gaussdecode.source.reader; "
        "heavy = {'pyarrow', 'numpy', 'structlog', 'yaml'} & set(sys.modules); "
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
