"""A target compared with its source at one position, while the source goes on; and repaired."""

import contextlib
import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from kit.beside import repeating
from kit.daemon import Daemon
from kit.postgres import Database
from kit.workload import prepare

from gaussdecode.cli import main
from gaussdecode.errors import EX_IOERR, EX_OK
from gaussdecode.operations.compare import compare
from gaussdecode.operations.compare.source_sums import PgSums, SourceColumn
from gaussdecode.settings.rules import SourceKind
from gaussdecode.snapshot.held import Held, Server, hold
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.ddl import install_sql
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.maintain.checksums import MovingError
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.store import Target

pytestmark = pytest.mark.integration
Json = dict[str, Any]  # Any: JSON


class Verify:
    """The command, for one daemon and one target."""

    def __init__(self, daemon: Daemon, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._daemon, self._target, self._capsys = daemon, target, capsys

    def apply(self, **options: Any) -> None:  # Any: see `Options`
        """Bring the target up to the log."""
        made = Options(buckets=2, **options)
        assert not apply_with(LocalEngine(), self._daemon.root, self._target, made).stopped

    def run(self, *arguments: str) -> tuple[int, Json]:
        """Exit status, and what it says."""
        self._capsys.readouterr()
        dsn = f"{self._daemon.database.dsn} sslmode=disable"
        status = main(
            ["spark", "verify", str(self._daemon.root), str(self._target), "--dsn", dsn,
             "--allow-insecure", "--local", "--json", *arguments]
        )  # fmt: skip
        said = self._capsys.readouterr()
        assert said.out, said.err
        record: Json = json.loads(said.out)
        record["tables"] = {of["table"]: of for of in record["tables"]}
        return status, record


@pytest.mark.timeout(300)
def test_all_types_are_equal_while_changes_go_on(
    database_15: Database, make_daemon: Callable[..., Daemon], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Every value of every type has the same checksum in both, also of changes not applied yet."""
    workload = prepare(database_15, 71)
    with make_daemon(database_15) as daemon:
        verify = Verify(daemon, tmp_path / "target", capsys)
        workload.run(60)
        daemon.catch_up()
        verify.apply()
        status, found = verify.run()
        assert status == EX_OK, {
            of["table"]: of
            for of in found["tables"].values()
            if of["why_not"] or of["different_ranges"]
        }
        assert found["tables"]["kit.types"]["rows"] > 0
        assert len(found["tables"]) >= 10
        workload.start(40, pause=0.02)
        _, found = verify.run()
        workload.finish(stop=False)
        assert daemon.stop() == 0
    for title, of in found["tables"].items():
        assert not of["different_ranges"], (title, of)
        assert of["why_not"] is None or "is emptied" in of["why_not"]
    assert sum(of["why_not"] is None for of in found["tables"].values()) >= 8


@pytest.mark.timeout(300)
def test_differences_are_named_by_key_and_repaired(
    database_15: Database, make_daemon: Callable[..., Daemon], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A row that is missing, one too many and a value that differs; a snapshot brings them back."""
    database_15.execute(
        'CREATE TABLE public.item (a text COLLATE "C", b int4, v numeric, PRIMARY KEY (a, b));'
        "CREATE TABLE public.bag (x int4); ALTER TABLE public.bag REPLICA IDENTITY FULL"
    )
    database_15.create_slot()
    with make_daemon(database_15) as daemon:
        verify = Verify(daemon, tmp_path / "target", capsys)
        database_15.execute(
            "INSERT INTO item SELECT 'it''s ' || g, g, g * 1.5 FROM generate_series(1, 3000) g;"
            "INSERT INTO bag SELECT g % 3 FROM generate_series(1, 30) g"
        )
        daemon.catch_up()
        verify.apply()
        assert verify.run()[0] == EX_OK
        damage(tmp_path / "target", "public.item", lambda rows: pc.not_equal(rows["b"], 17))
        damage(tmp_path / "target", "public.item", lambda rows: pc.not_equal(rows["b"], 18))
        damage(tmp_path / "target", "public.bag", lambda rows: pc.not_equal(rows["x"], 2))
        metrics = tmp_path / "verify.prom"
        status, found = verify.run("--repair", "--metrics-file", str(metrics))
        assert status == EX_IOERR
        item, bag = found["tables"]["public.item"], found["tables"]["public.bag"]
        assert sorted(of["key"] for of in item["differences"]) == [
            json.dumps({"a": f"it's {b}", "b": str(b)}) for b in (17, 18)
        ]
        assert {of["kind"] for of in item["differences"]} == {"missing"}
        assert item["repair"] == "a snapshot of 2 rows"
        assert bag["repair"] == "a snapshot of all rows"
        assert (bag["rows"], bag["target_rows"]) == (30, 20)
        text = metrics.read_text()
        assert f'table="public.item"}} {item["different_ranges"]}' in text
        wanted = {"public.item", "public.bag"}
        daemon.wait_while_running(lambda: wanted <= snapshots(daemon), "the snapshots")
        daemon.catch_up()
        verify.apply()
        status, found = verify.run()
        assert status == EX_OK, found
        assert daemon.stop() == 0


# What is done, and what verify says of the tables that it cannot compare before the next apply.
RENAMES: Final = (
    (
        """ALTER TABLE a RENAME TO z; INSERT INTO z VALUES (2); ALTER TABLE d RENAME TO x; INSERT INTO x VALUES (4);
        ALTER TABLE x RENAME TO d; INSERT INTO d VALUES (5)""",
        {"public.a": "calls it public.z now: apply", "public.d": "under another name"},
    ),
    (
        """ALTER TABLE b RENAME TO x; ALTER TABLE z RENAME TO b; ALTER TABLE x RENAME TO z; INSERT INTO b VALUES (3);
        DROP TABLE c; CREATE TABLE c (id int PRIMARY KEY); INSERT INTO c VALUES (7)""",
        {
            "public.b": "calls it public.z now, and another table has its name: apply",
            "public.z": "calls it public.b now, and another table has its name: apply",
            "public.c": "read anew",
        },
    ),
    ("ALTER TABLE z SET SCHEMA s", {"public.z": "calls it s.z now: apply"}),
)  # fmt: skip


@pytest.mark.timeout(300)
def test_renamed_tables_are_compared_with_what_they_are_called_now(
    database_15: Database, make_daemon: Callable[..., Daemon], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each step is a transaction. No table is compared with another one, or without rows of a name of then."""
    asked: set[str] = set()

    @contextlib.contextmanager
    def noted(*given: Any) -> Iterator[Held]:
        with hold(*given) as held:
            yield Noting(held, asked)

    monkeypatch.setattr(compare, "hold", noted)
    for name in "abcd":
        database_15.execute(f"CREATE TABLE public.{name} (id int PRIMARY KEY)")
    database_15.execute("CREATE SCHEMA s; " + install_sql())
    database_15.create_slot()
    database_15.execute("CREATE TABLE tick (n int)")

    def tick(
        number: int,
    ) -> None:  # or each verify would wait until a quiet server tells its position
        database_15.execute(f"INSERT INTO tick VALUES ({number})")

    with make_daemon(database_15) as daemon, repeating(tick, 0.1):
        verify = Verify(daemon, tmp_path / "target", capsys)
        for name in "abcd":
            database_15.execute(f"INSERT INTO {name} SELECT generate_series(100, 1{ord(name)})")
        daemon.catch_up()
        verify.apply()
        for step, wanted in RENAMES:
            database_15.execute(step)
            daemon.catch_up()
            _, found = verify.run()
            said = {of["table"]: of["why_not"] for of in found["tables"].values() if of["why_not"]}
            assert said.keys() == wanted.keys()
            assert all(text in said[title] for title, text in wanted.items()), said
            assert not any(of["different_ranges"] for of in found["tables"].values())
            verify.apply(on_ddl={"rename-table": "apply"})
        database_15.execute("INSERT INTO b VALUES (8); DELETE FROM d WHERE id = 100")
        asked.clear()
        status, found = verify.run()
        assert status == EX_OK, list(found["tables"].values())
        assert asked == found["tables"].keys()
        assert asked == {"public.b", "public.c", "public.d", "public.tick", "s.z"}
        assert verify.run("--tables", "s.z")[1]["tables"].keys() == {"s.z"}
        assert daemon.stop() == 0


class Noting:
    """A view that notes which tables its position is looked for."""

    def __init__(self, held: Held, asked: set[str]) -> None:
        self._held, self._asked = held, asked
        self.name, self.reach = held.name, held.reach

    def find(self, n: int, boundary: int, tables: Collection[str]) -> int:
        """See `Held`."""
        self._asked.update(tables)
        return self._held.find(n, boundary, tables)

    def confirm(self, table: str, n: int, lsn: int) -> None:
        """See `Held`."""
        assert table in self._asked


def snapshots(daemon: Daemon) -> set[str]:
    """Tables of which a snapshot has landed."""
    return {
        table
        for entry in daemon.entries()
        if entry["kind"] == "snapshot"
        for table in entry["extra"]["snapshot"]["tables"]
    }


def damage(root: Path, table: str, keep: Callable[[pa.Table], pa.ChunkedArray]) -> None:
    """Take rows away from the files of a target."""
    target = Target(root)
    version = target.newest(table)
    assert version is not None
    for file in version.current:
        path = Path(root, "tables", table, file.path)
        rows = pq.read_table(path, partitioning=None)
        path.chmod(0o644)
        pq.write_table(rows.filter(keep(rows)), path)


def test_a_table_that_is_emptied_after_the_snapshot_is_not_taken_for_empty(
    database_15: Database, tmp_path: Path
) -> None:
    """TRUNCATE heeds no snapshot: it is noticed, and held off while a table is read."""
    database_15.execute("CREATE TABLE public.t (id int4 PRIMARY KEY); INSERT INTO t VALUES (1)")
    database_15.execute("CREATE TABLE public.u (id int4 PRIMARY KEY); INSERT INTO u VALUES (1)")
    database_15.execute("CREATE TABLE public.w (id int4 PRIMARY KEY)")
    address = SourceAddress(f"{database_15.dsn} sslmode=disable", is_insecure_allowed=True)
    columns = [SourceColumn("id", "id", "int32")]
    server = Server(SourceKind.POSTGRESQL, address, "s", 60)
    with hold(server, tmp_path, 60) as held, PgSums(address, held.name) as source:
        database_15.execute("TRUNCATE t")
        with pytest.raises(MovingError, match=r"public\.t is emptied"), source.table("public", "t"):
            pass
        with source.table("public", "u") as table:
            assert table is not None
            with pytest.raises(psycopg.errors.LockNotAvailable):
                database_15.execute("SET lock_timeout = '50ms'; TRUNCATE u")
            (only,) = source.sums(table.sql, columns, ["id"], 1).values()
            assert only[0] == 1
        database_15.execute("TRUNCATE u")
        with source.table("public", "none") as table:
            assert table is None
        oid = int(database_15.execute("SELECT 'w'::regclass::oid")[0][0])
        assert (source.title_of(oid), source.title_of(1)) == ("public.w", None)
        database_15.execute("ALTER TABLE w RENAME TO v")
        for made in ("", "CREATE TABLE w (id int4 PRIMARY KEY)"):
            database_15.execute(made or "SELECT 1")
            with pytest.raises(MovingError, match="w is renamed"), source.table("public", "w"):
                pass
