"""Real clients of `gaussdecode serve`: each ends with the rows of the source."""

import select
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import psycopg2
import pytest
from kit import jars, landing, oracle
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Postgres
from kit.served import Served, unpack_landing
from kit.servedtables import CHANGES, TABLES
from psycopg2.extras import (
    LogicalReplicationConnection,
    ReplicationCursor,
    ReplicationMessage,
)

from gaussdecode.cli import main
from gaussdecode.errors import ConfigError
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration


class Setup(NamedTuple):
    """What all tests of the file share.

    Attributes:
        database: the source.
        daemon: it lands the source; stopped.
        served: its landing.
    """

    database: Database
    daemon: Daemon
    served: Served


@pytest.fixture(scope="module")
def shared(
    servers: Callable[[int], Postgres], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setup]:
    """A source, its landing, and a server of that."""
    server = servers(17)
    database = Database(server, "serve_clients")
    directory = tmp_path_factory.mktemp("first")
    database.execute(TABLES)
    database.create_slot()
    database.copy_slot("serve_clients_plain", "test_decoding")
    server.execute("CREATE ROLE catalogue LOGIN")
    try:
        with Daemon(database, directory) as daemon:
            for change in CHANGES:
                database.execute(change)
            daemon.catch_up()
            assert daemon.stop() == 0
        dsn = server.dsn("serve_clients", user="catalogue")
        with Served(daemon.root, catalog_dsn=f"{dsn} sslmode=disable") as served:
            yield Setup(database, daemon, served)
    finally:
        database.drop()
        server.execute("DROP ROLE catalogue")


def _rows(root: Path) -> list[str]:
    """Texts of all changes of a landing: NaN is not equal to itself."""
    return [
        repr(
            (*change[:3], *change.schema.table, *change[4:7], sorted(change.unchanged), *change[8:])
        )
        for change in landing.read(root).changes
    ]


def test_daemon_follows(shared: Setup, make_daemon: Callable[..., Daemon]) -> None:
    """A second daemon lands the same rows, value by value, at the same positions."""
    served = shared.served
    served.add_slot("second", plugin="pgoutput")
    where = (
        f"host=127.0.0.1 port={served.port} dbname={served.database} user=tester sslmode=disable"
    )
    second = make_daemon(shared.database, dsn=where)
    second.write_config_value("slot", "second")
    assert main(["slot", "adopt", str(second.config_path)]) == 0
    with second:
        last = landing.read(shared.daemon.root).transactions[-1]["gd_lsn"]
        second.wait_while_running(lambda: second.durable_lsn() >= last, "the last transaction")
        assert second.stop() == 0
    found = _rows(second.root)
    assert len(found) > 380
    assert found == _rows(shared.daemon.root)
    oracle.check(second.root, shared.database)


def test_catalogue(shared: Setup) -> None:
    """Tables and keys are the source's, slots are virtual, errors keep their code; nothing can be written."""
    with shared.served.connect() as session:
        query = "SELECT c.oid::regclass::text, c.relreplident FROM pg_class c WHERE c.relname ~ %s"
        assert session.execute(query, ["^bag$"]).fetchall() == [("public.bag", "f")]
        query = "SELECT count(*) FILTER (WHERE slot_name LIKE 'serve_clients%') FROM pg_replication_slots s"
        assert session.execute(query).fetchone() == (0,)
        for refused, state in (
            ("SELECT 1 / 0 FROM pg_class", "22012"),
            ("SELECT * FROM public.bag WHERE n > 1", "42501"),
            ("SELECT lo_create(0) FROM pg_class LIMIT 1", "25006"),
            (
                "SELECT * FROM generate_series(1, 2), pg_terminate_backend(0) WHERE nothing > 1",
                "42703",
            ),
        ):
            with pytest.raises(psycopg.Error) as caught:
                session.execute(refused)
            assert caught.value.sqlstate == state, refused


def test_one_client_changes_nothing_for_another(shared: Setup) -> None:
    """All use one session of the source: neither its settings nor its locks outlive a statement."""
    one = "FROM pg_class LIMIT 1"
    timeout = f"SELECT current_setting('statement_timeout') {one}"
    with shared.served.connect() as session, shared.served.connect() as other:
        before = other.execute(timeout).fetchone()
        session.execute(f"SELECT set_config('statement_timeout', '1ms', false) {one}")
        session.execute(f"SELECT set_config('default_transaction_read_only', 'off', false) {one}")
        session.execute(f"SELECT pg_advisory_lock(77) {one}")
        assert other.execute(timeout).fetchone() == before
        with pytest.raises(psycopg.Error) as caught:
            other.execute(f"SELECT lo_create(0) {one}")
        assert caught.value.sqlstate == "25006"
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 77"
    assert shared.database.execute(held) == [(0,)]


def test_catalogue_after_a_lost_connection(shared: Setup) -> None:
    """A connection that the database has closed is made again."""
    with shared.served.connect() as session:
        query = "SELECT pg_backend_pid() FROM pg_class LIMIT 1"
        (before,) = session.execute(query).fetchone() or (0,)
        shared.database.execute(f"SELECT pg_terminate_backend({before}, 30000)")
        assert session.execute(query).fetchone() not in {(before,), None}


def test_catalogue_for_a_superuser_is_refused(shared: Setup, tmp_path: Path) -> None:
    """Clients would have the rights of the role."""
    root = unpack_landing(tmp_path)
    dsn = shared.database.server.dsn("serve_clients")
    with pytest.raises(ConfigError, match=r"serve\.catalog-dsn: .*superuser"):
        Served(root, catalog_dsn=f"{dsn} sslmode=disable")


# ---- psycopg2 ------------------------------------------------------------------------------


def _expected(shared: Setup) -> str:
    """Transactions as the source's own test_decoding has them."""
    rows = shared.database.execute(
        "SELECT data FROM pg_logical_slot_peek_changes('serve_clients_plain', NULL, NULL, "
        "'skip-empty-xacts', '1')"
    )
    return "".join(f"{data}\n" for (data,) in rows)


def _read(cursor: ReplicationCursor, last: int) -> Iterator[ReplicationMessage]:
    """Messages until the server says that everything up to an LSN was sent."""
    while (message := cursor.read_message()) is not None or cursor.wal_end < last:
        if message is not None:
            yield message
        else:
            assert select.select([cursor], [], [], 60)[0], "silence"


def _streams(served: Served) -> list[int]:
    """Clients that have a slot."""
    return [slot.process for slot in served.server.slots if slot.process is not None]


def test_psycopg2(shared: Setup) -> None:
    """The whole slot, then after a restart only what was not confirmed; each as the source has it."""
    served = shared.served
    ends = [row["gd_lsn"] for row in landing.read(shared.daemon.root).transactions]
    where = f"host=127.0.0.1 port={served.port} dbname={served.database} user=me sslmode=disable"
    found: list[str] = []
    for number, confirmed in ((0, ends[3]), (1, ends[-1]), (2, 0)):
        connection = psycopg2.connect(where, connection_factory=LogicalReplicationConnection)
        cursor = connection.cursor()
        if not number:
            cursor.execute("SET gaussdecode.start_lsn = 'earliest'")
            cursor.create_replication_slot("of_psycopg2", output_plugin="test_decoding")
        if number == 2:
            cursor.execute(
                "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'of_psycopg2'"
            )
            assert cursor.fetchall() == [(str(Lsn(ends[-1])),)]
            cursor.drop_replication_slot("of_psycopg2")
        else:
            cursor.start_replication("of_psycopg2", options={"skip-empty-xacts": "1"}, decode=True)
            texts = [message.payload for message in _read(cursor, ends[-1])]
            cursor.send_feedback(flush_lsn=confirmed, force=True)
            whole = texts if not number else found
            commits = [at for at, text in enumerate(whole) if text.startswith("COMMIT")]
            found = [*whole[: commits[3] + 1], *texts] if number else texts
        connection.close()
        wait_until(lambda: not _streams(served), "the end of the stream")
    assert "".join(f"{text}\n" for text in found) == _expected(shared)


# ---- JDBC ----------------------------------------------------------------------------------

_STYLES = tuple(
    f"mppdb_decoding,include-xids=false,skip-empty-xacts=true,parallel-decode-num=10,decode-style={style},"
    f"standby-connection=false,sending-batch={batch},max-txn-in-memory=100,max-reorderbuffer-in-memory=50"
    for style in "btj"
    for batch in (0, 1)
)


def _peeked(served: Served, stream: str) -> list[str]:
    """Messages of a stream as SQL has them, as hexadecimal digits."""
    plugin, *options = stream.split(",")
    served.add_slot("of_peek", plugin=plugin)
    words = [word for option in options for word in option.split("=", 1)]
    with served.connect() as session:
        rows = session.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes('of_peek', NULL, NULL, VARIADIC %s::text[])",
            [words],
        ).fetchall()
        session.execute("SELECT pg_drop_replication_slot('of_peek')")
    return [bytes(data).hex() for (data,) in rows]


@pytest.mark.parametrize("product", ["postgresql", "opengauss"])
def test_jdbc(shared: Setup, tmp_path: Path, product: str) -> None:
    """The documents' example, in each style, gets what SQL gets, and test_decoding what the source has."""
    served = shared.served
    streams = ("test_decoding,skip-empty-xacts=true", *_STYLES)
    source = Path(jars.__file__).with_name("ServeClient.java").read_text()
    client = tmp_path / "ServeClient.java"
    client.write_text(source.replace("org.postgresql", f"org.{product}"))
    driver = jars.OPENGAUSS if product == "opengauss" else jars.POSTGRES
    url = f"jdbc:{product}://127.0.0.1:{served.port}/{served.database}?sslmode=disable"
    end = str(Lsn(landing.read(shared.daemon.root).transactions[-1]["gd_lsn"]))
    program = ["java", "-XX:TieredStopAtLevel=1", "-cp", str(jars.jar(driver)), str(client)]
    done = subprocess.run(
        [*program, url, end, *streams], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    found = [part.splitlines() for part in done.stdout.split("\n\n")]
    assert len(found) == len(streams) + 1  # the last line ends with an empty one as well
    texts = [bytes.fromhex(line).decode() for line in found[0]]
    assert "".join(f"{text}\n" for text in texts) == _expected(shared)
    for stream, messages in zip(_STYLES, found[1:], strict=False):
        assert messages == _peeked(served, stream), stream
