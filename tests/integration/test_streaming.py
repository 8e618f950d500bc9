"""Transactions that the server streams while they are open land as those that it sends whole."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from kit import landing, oracle
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Postgres, Session, run
from kit.values import ALL_TYPES, TYPE_DDL, nullable
from kit.workload import Workload

from gaussdecode.cli import main
from gaussdecode.errors import EX_OK, EX_PROTOCOL
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.capture import Capture

pytestmark = pytest.mark.integration

AT_ONCE = 160000  # from here on a server can be told to stream every change


def stream_early(database: Database) -> None:
    """Have new sessions of the database stream as soon as they may."""
    database.execute(f'ALTER DATABASE "{database.name}" SET logical_decoding_work_mem = 64')
    if int(database.execute("SHOW server_version_num")[0][0]) >= AT_ONCE:
        setting = "debug_logical_replication_streaming = immediate"
        database.execute(f'ALTER DATABASE "{database.name}" SET {setting}')


def beside(daemon: Daemon, directory: Path, streaming: str) -> Daemon:
    """A second daemon, of a slot of its own at the same position."""
    slot = f"{daemon.database.slot}_2"
    daemon.database.copy_slot(slot)
    directory.mkdir()
    other = Daemon(daemon.database, directory, config={"source": {"streaming": streaming}})
    other.write_config_value("slot", slot)
    return other


def rows_of(root: Path) -> list[tuple[object, ...]]:
    """What landed, in order: all that a reader sees but files and entries."""
    return [
        (
            *change.order, change.lsn, change.schema.table, change.op, change.xid, str(change.new), str(change.old),
            str(sorted(change.unchanged)), str(change.raw),
            [(field, str(kind)) for field, kind in change.types.items()],
        )
        for change in landing.read(root).changes
    ]  # fmt: skip


def streamed_counts(database: Database) -> dict[str, int]:
    """Transactions that the server streamed, by slot; it tells late."""
    rows = database.execute("SELECT slot_name, stream_txns FROM pg_stat_replication_slots")
    return {name: int(count) for name, count in rows}


@pytest.mark.parametrize(("streaming", "decoders"), [("parallel", 3)])  # older ones are asked "on"
def test_streamed_equals_whole(
    database: Database,
    make_daemon: Callable[..., Daemon],
    tmp_path: Path,
    streaming: str,
    decoders: int,
) -> None:
    """Savepoints, rollbacks, DDL, truncates, prepared transactions: row for row, with positions."""
    workload = Workload(database, 7 + decoders)
    workload.create()
    database.create_slot()
    stream_early(database)
    with make_daemon(database) as whole:
        streamed = beside(whole, tmp_path / "streamed", streaming)
        streamed.write_config(decoding={"parallel-decode-num": decoders})
        with streamed:
            workload.run(160)
            for daemon in (whole, streamed):
                daemon.catch_up()
            wait_until(
                lambda: streamed_counts(database)[f"{database.slot}_2"] > 0, "something is streamed"
            )
            assert streamed_counts(database)[database.slot] == 0
            assert streamed.stop() == 0
            assert whole.stop() == 0
    assert rows_of(streamed.root) == rows_of(whole.root)
    assert oracle.check(streamed.root, database).changes


@pytest.mark.parametrize("major", [14, 18])
def test_lsns_are_those_that_the_server_shows(
    servers: Callable[[int], Postgres], make_daemon: Callable[..., Daemon], major: int
) -> None:
    """Of changes, BEGINs and commit records; also of a transaction that is sent again."""
    database = Database(servers(major), f"lsns_{major}")
    database.execute("CREATE TABLE a (id int8 PRIMARY KEY, note text)")
    database.execute("CREATE TABLE b (id int8 PRIMARY KEY)")
    database.create_slot()
    with make_daemon(database) as daemon:
        database.copy_slot(f"{database.slot}_2")
        with database.connect() as session:
            for statement in (
                "BEGIN", "INSERT INTO a SELECT g, g FROM generate_series(1, 50) g",
                "INSERT INTO b VALUES (1)", "SAVEPOINT s", "UPDATE a SET id = -id WHERE id < 5",
                "ROLLBACK TO s", "DELETE FROM a WHERE id > 40",
                "SELECT pg_logical_emit_message(true, 'p', 'x')", "COMMIT", "TRUNCATE a, b",
            ):  # fmt: skip
                run(session, statement)
            with session.cursor().copy("COPY a (id) FROM STDIN") as copy:
                copy.write("".join(f"{number}\n" for number in range(100, 200)))
        daemon.catch_up()
        daemon.kill9()
        database.execute("INSERT INTO b VALUES (2)")
        daemon.start()
        daemon.catch_up()
        assert daemon.stop() == 0
    peeked = [
        (int(Lsn.parse(lsn)), data)
        for lsn, data in database.execute(
            f"SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes('{database.slot}_2', "
            f"NULL, NULL, 'proto_version', '1', 'publication_names', '{database.publication}', "
            "'messages', 'true')"
        )
    ]
    landed = landing.read(daemon.root)
    rows = [
        lsn
        for lsn, data in peeked
        for _ in range(int.from_bytes(data[1:5]) if data[:1] == b"T" else data[:1] in b"IUD")
    ]
    assert [change.lsn for change in landed.changes] == rows
    assert len(rows) > len(set(rows)) > 60, "rows of COPY share one"
    assert [row["gd_change_lsn"] for row in landed.messages] == [
        lsn for lsn, data in peeked if data[:1] == b"M"
    ]
    assert [
        (row["gd_first_lsn"], row["gd_commit_lsn"], row["gd_lsn"]) for row in landed.transactions
    ] == [
        (first, int.from_bytes(data[2:10]), lsn)
        for first, (lsn, data) in zip(
            [lsn for lsn, data in peeked if data[:1] == b"B"],
            [(lsn, data) for lsn, data in peeked if data[:1] == b"C"],
            strict=True,
        )
    ]
    database.execute(f"SELECT pg_drop_replication_slot('{database.slot}_2')")
    database.drop()


def open_transaction(database: Database, table: str) -> Session:
    """Begin one that is streamed while it is open, with a savepoint that is rolled back."""
    session = database.connect()
    run(session, "BEGIN")
    fill_open(session, table, 1, 3000)
    run(session, "SAVEPOINT s")
    run(session, f"ALTER TABLE {table} ADD COLUMN gone text DEFAULT 'x'")
    fill_open(session, table, 3001, 6000)
    run(session, "ROLLBACK TO SAVEPOINT s")
    run(session, f"ALTER TABLE {table} ADD COLUMN kept int4 DEFAULT 5")
    fill_open(session, table, 6001, 9000)
    return session


def fill_open(session: Session, table: str, first: int, last: int) -> None:
    """Insert these keys."""
    run(
        session,
        f"INSERT INTO {table} (id) SELECT generate_series(%s::int, %s::int)",
        (first, last),
    )


def test_nothing_of_an_open_transaction_outlives_the_daemon(
    database_15: Database, make_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    """Killed in the middle of two of them, and again after one was rolled back: as if whole."""
    database = database_15
    database.execute("CREATE SCHEMA kit")
    for table in ("a", "b", "small"):
        database.execute(f"CREATE TABLE kit.{table} (id int8 PRIMARY KEY)")
    database.create_slot()
    stream_early(database)
    config = {"decoding": {"max-txn-in-memory": 1, "parallel-decode-num": 2}}
    with make_daemon(database, config=config) as whole:
        streamed = beside(whole, tmp_path / "streamed", "parallel")
        with streamed:
            first = open_transaction(database, "kit.a")
            second = open_transaction(database, "kit.b")
            database.execute("INSERT INTO kit.small VALUES (1)")
            streamed.wait_while_running(lambda: is_open(streamed, 2), "both are streamed")
            streamed.kill9()
            streamed.start()
            # What was before the confirmed position is streamed only with what comes after it.
            fill_open(first, "kit.a", 9001, 12000)
            fill_open(second, "kit.b", 9001, 12000)
            streamed.wait_while_running(lambda: is_open(streamed, 2), "both are streamed again")
            run(second, "ROLLBACK")
            database.execute("INSERT INTO kit.small VALUES (2)")
            streamed.wait_while_running(lambda: is_open(streamed, 1), "one was rolled back")
            streamed.kill9()
            run(first, "COMMIT")
            streamed.start()
            for daemon in (whole, streamed):
                daemon.catch_up()
            assert streamed.stop() == 0
            assert whole.stop() == 0
        first.close()
        second.close()
    assert rows_of(streamed.root) == rows_of(whole.root)
    assert len(rows_of(streamed.root)) >= 6002
    assert not list((streamed.root / "spool").iterdir())


@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
def test_a_bad_row_of_an_open_transaction_stops_nothing(
    database_15: Database, make_daemon: Callable[..., Daemon], end: str
) -> None:
    """It may be rolled back: whole transactions are asked for, and if it comes again its table stops."""
    database = database_15
    database.execute("CREATE TABLE a (id int8 PRIMARY KEY, v text); CREATE TABLE b (LIKE a)")
    database.create_slot()
    stream_early(database)
    config = {"source": {"streaming": "on", "max-row-bytes": "2MiB"}}
    with make_daemon(database, config=config) as daemon, database.connect() as session:
        run(session, "BEGIN")
        run(session, "INSERT INTO a SELECT g, 'v' FROM generate_series(1, 2000) g")
        run(session, "INSERT INTO a VALUES (2001, repeat('z', 3 << 20))")
        run(session, "INSERT INTO a SELECT g, 'v' FROM generate_series(3001, 5000) g")
        daemon.wait_while_running(daemon.log.exists, "a start")
        daemon.wait_while_running(
            lambda: "streaming_fallback" in daemon.log.read_text(), "whole ones are asked for"
        )
        database.execute("INSERT INTO b VALUES (1, 'v')")
        daemon.catch_up()
        run(session, end)
        if end == "ROLLBACK":
            daemon.catch_up()
            assert daemon.stop() == EX_OK
        else:
            assert daemon.wait() == EX_PROTOCOL
            assert "table public.a, after " in daemon.log_tail(1)
            assert "in column v; source.max-row-bytes allows 2097152" in daemon.log_tail(1)
    changes = landing.read(daemon.root).changes
    assert [(change.schema.table, change.new["id"]) for change in changes] == [(("public", "b"), 1)]


def test_connections_that_the_server_ends_stop_no_streaming(
    database_15: Database, make_daemon: Callable[..., Daemon]
) -> None:
    """As when it is restarted, or somebody terminates the sender: twice at one position, and again."""
    database = database_15
    database.execute("CREATE TABLE a (id int8 PRIMARY KEY)")
    database.create_slot()
    stream_early(database)
    with make_daemon(database, config={"source": {"streaming": "on"}}) as daemon:
        session = database.connect()
        run(session, "BEGIN")
        fill_open(session, "a", 1, 6000)
        daemon.wait_while_running(lambda: is_open(daemon, 1), "it is streamed")
        for count in range(1, 4):
            end_sender(database)
            daemon.wait_while_running(
                lambda: daemon.log.read_text().count("source_connected") > count,  # noqa: B023
                "the next session",
            )
            daemon.wait_for_state("streaming")
        fill_open(session, "a", 6001, 12000)
        daemon.wait_while_running(lambda: is_open(daemon, 1), "it is streamed again")
        run(session, "COMMIT")
        session.close()
        daemon.catch_up()
        assert daemon.stop() == EX_OK
    assert "streaming_fallback" not in daemon.log.read_text()
    assert len(rows_of(daemon.root)) == 12000


def test_an_expression_that_fails_in_an_open_transaction(
    database_15: Database, make_daemon: Callable[..., Daemon]
) -> None:
    """It may be rolled back: whole transactions are asked for, and the session after streams again."""
    database = database_15
    database.execute("CREATE TABLE a (id int8 PRIMARY KEY); CREATE TABLE b (id int8 PRIMARY KEY)")
    database.execute(
        f"DROP PUBLICATION {database.publication}; CREATE PUBLICATION {database.publication} "
        "FOR TABLE a WHERE (10 / id <> 11), TABLE b"
    )
    database.create_slot()
    stream_early(database)
    with make_daemon(database, config={"source": {"streaming": "on"}}) as daemon:
        session = database.connect()
        run(session, "BEGIN")
        fill_open(session, "a", 0, 4000)
        fill_open(session, "a", 4001, 8000)
        daemon.wait_while_running(daemon.log.exists, "a start")
        daemon.wait_while_running(
            lambda: "an expression failed" in fallbacks(daemon), "whole ones are asked for"
        )
        database.execute("INSERT INTO b VALUES (1)")
        daemon.catch_up()
        run(session, "ROLLBACK")
        end_sender(database)
        daemon.wait_while_running(lambda: "57P01" in daemon.log.read_text(), "the session's end")
        daemon.wait_for_state("streaming")
        run(session, "BEGIN")
        fill_open(session, "b", 2, 4000)
        daemon.wait_while_running(lambda: is_open(daemon, 1), "streaming has come back")
        run(session, "COMMIT")
        session.close()
        daemon.catch_up()
        assert daemon.stop() == EX_OK
    assert len(rows_of(daemon.root)) == 4000


def end_sender(database: Database) -> None:
    """Have the server end the daemon's connection."""
    database.execute(
        "SELECT pg_terminate_backend(active_pid, 30000) FROM pg_replication_slots "
        f"WHERE slot_name = '{database.slot}'"
    )


def fallbacks(daemon: Daemon) -> str:
    """Lines of the log that say that whole transactions are asked for."""
    return "".join(
        line for line in daemon.log.read_text().splitlines() if "streaming_fallback" in line
    )


def is_open(daemon: Daemon, count: int) -> bool:
    """Whether so many transactions are open, as the daemon shows them."""
    status = daemon.status()
    return status is not None and status["working_txn_cnt"] == count


def test_recording_of_streamed_transactions(database_15: Database, tmp_path: Path) -> None:
    """Replayed, it lands what whole transactions land."""
    database_15.execute("CREATE SCHEMA kit")
    for table in ("a", "b"):
        database_15.execute(f"CREATE TABLE kit.{table} (id int8 PRIMARY KEY)")
    database_15.create_slot()
    stream_early(database_15)
    first, second = (open_transaction(database_15, f"kit.{table}") for table in ("a", "b"))
    run(second, "COMMIT")
    run(first, "COMMIT")
    rows = []
    for streaming in ("off", "on"):
        directory = tmp_path / streaming
        directory.mkdir()
        daemon = Daemon(database_15, directory, config={"source": {"streaming": streaming}})
        file, root = directory / "recording", directory / "replayed"
        assert main(["capture", str(daemon.config_path), str(file)]) == 0
        capture = Capture(file)
        assert capture.header.options.get("streaming", "off") == streaming
        capture.close()
        assert main(["replay", str(file), "--root", str(root), "--decoders", "2"]) == 0
        rows.append(rows_of(root))
    assert rows[0] == rows[1]
    assert len(rows[0]) == 12000
    first.close()
    second.close()


KNOWN_TYPES = tuple(spec for spec in ALL_TYPES if spec.type != "money")


def fitting(value: str | None, encoding: str) -> str | None:
    """The value without letters that the encoding lacks."""
    if value is None or encoding == "UTF8":
        return value
    if "\\u" in value:
        return "{}"
    return value.replace("😀", "é").encode(encoding, "ignore").decode(encoding)


def change_everything(database: Database, table: str, seed: int, encoding: str) -> None:
    """Rows of all types whose text is known, inserted, updated by key and by whole rows, deleted."""
    rng = Random(seed)
    marks = ", ".join(["%s"] * (len(KNOWN_TYPES) + 1))
    with database.connect() as session:
        for start in (1, 101):
            run(session, "BEGIN")
            for number in range(start, start + 60):
                values = [fitting(nullable(rng, spec.value), encoding) for spec in KNOWN_TYPES]
                run(session, f"INSERT INTO {table} VALUES ({marks})", [number, *values])
            for _ in range(40):
                spec = rng.choice(KNOWN_TYPES)
                run(
                    session, f"UPDATE {table} SET {spec.name} = %s WHERE id = %s",
                    [fitting(nullable(rng, spec.value), encoding), rng.randint(start, start + 60)],
                )  # fmt: skip
            run(session, f"UPDATE {table} SET id = id + 1000 WHERE id % 7 = 0 AND id < 500")
            run(session, f"DELETE FROM {table} WHERE id % 11 = 0")
            run(session, "COMMIT")


@pytest.mark.parametrize(("major", "encoding"), [(18, "UTF8"), (15, "LATIN1")])
def test_every_type_streamed_equals_whole(
    servers: Callable[[int], Postgres],
    major: int,
    make_daemon: Callable[..., Daemon],
    tmp_path: Path,
    encoding: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Row for row, misfits included."""
    database = Database(servers(major), f"kit_types_{encoding.lower()}", encoding=encoding)
    latin = TYPE_DDL.replace("😀", "é") if encoding != "UTF8" else TYPE_DDL
    database.execute(latin)
    columns = ", ".join(f"{spec.name} {spec.type}" for spec in KNOWN_TYPES)
    for table in ("kit.keyed", "kit.whole"):
        database.execute(f"CREATE TABLE {table} (id int8 PRIMARY KEY, {columns})")
    database.execute("ALTER TABLE kit.whole REPLICA IDENTITY FULL")
    database.create_slot()
    stream_early(database)
    with make_daemon(database) as whole:
        streamed = beside(whole, tmp_path / "streamed", "on")
        streamed.write_config(decoding={"parallel-decode-num": 2})
        assert main(["check", str(streamed.config_path)]) == 0
        assert "on, protocol 2: open transactions wait here" in capsys.readouterr().out
        with streamed:
            for seed, table in enumerate(("kit.keyed", "kit.whole")):
                change_everything(database, table, seed, encoding)
            for daemon in (whole, streamed):
                daemon.catch_up()
            assert streamed.stop() == 0
            assert whole.stop() == 0
    assert rows_of(streamed.root) == rows_of(whole.root)
    assert len(rows_of(streamed.root)) > 300
    database.drop()


def test_recording_while_open(database_15: Database, tmp_path: Path) -> None:
    """Replayed, it lands what a recording of whole transactions lands."""
    database = database_15
    database.execute(TYPE_DDL)
    columns = ", ".join(f"{spec.name} {spec.type}" for spec in KNOWN_TYPES)
    database.execute(f"CREATE TABLE kit.keyed (id int8 PRIMARY KEY, {columns})")
    database.create_slot()
    stream_early(database)
    change_everything(database, "kit.keyed", 5, "UTF8")
    rows = []
    for streaming in ("off", "on"):
        directory = tmp_path / streaming
        directory.mkdir()
        daemon = Daemon(database, directory, config={"source": {"streaming": streaming}})
        file, root = directory / "recording", directory / "replayed"
        assert main(["capture", str(daemon.config_path), str(file)]) == 0
        capture = Capture(file)
        assert ("streaming" in capture.header.options) == (streaming == "on")
        capture.close()
        assert main(["replay", str(file), "--root", str(root), "--decoders", "2"]) == 0
        rows.append(rows_of(root))
    assert rows[0] == rows[1]
    assert len(rows[0]) > 120
