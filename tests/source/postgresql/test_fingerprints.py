"""Looks at the catalogue of real servers: what is newer, without waiting for anybody."""

import itertools
import time
from collections.abc import Iterator

import pytest
from kit.postgres import Database

from gaussdecode.model.fingerprint import TableState
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.connection import Connection, connect
from gaussdecode.source.postgresql.fingerprints import Look, Looker

pytestmark = pytest.mark.integration


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    """An ordinary one."""
    address = SourceAddress(f"{database.dsn} sslmode=disable", None, is_insecure_allowed=True)
    with connect(address, is_replication=False) as opened:
        yield opened


class Watcher:
    """Looks again and again, as the daemon does."""

    def __init__(self, connection: Connection, database: Database) -> None:
        self._looker = Looker(connection, [database.publication])
        self.last = self._looker.look(None, {}, {}, {}, is_whole=True)
        self.tables = dict(self.last.tables)
        self.types = dict(self.last.types)

    def look(self) -> Look:
        """Look at what is newer than the look before."""
        self.last = self._looker.look(
            self.last.mark, self.last.publications, self.tables, self.types
        )
        self.tables |= self.last.tables
        self.types |= self.last.types
        return self.last

    def titles(self) -> list[str]:
        """Tables whose states a new look read."""
        return sorted(table.title for table in self.look().tables.values())


def _named(tables: dict[int, TableState], title: str) -> TableState:
    return next(table for table in tables.values() if table.title == title)


def test_only_what_is_newer_is_read(database: Database, connection: Connection) -> None:
    """Nothing, where nothing changed; else the tables that a change is of, each once."""
    database.execute(
        "CREATE TYPE mood AS ENUM ('a'); CREATE TABLE a (id int PRIMARY KEY, m mood[]);"
        "CREATE TABLE b (id int PRIMARY KEY); INSERT INTO a VALUES (1)"
    )
    watcher = Watcher(connection, database)
    assert sorted(table.title for table in watcher.tables.values()) == ["public.a", "public.b"]
    changes = [
        ("SELECT 1", []),
        ("INSERT INTO b SELECT generate_series(1, 99)", []),
        ("CREATE TEMP TABLE x (id int)", []),
        ("VACUUM a", []),
        ("ANALYZE a", []),
        ("ALTER TABLE a ADD n int", ["public.a"]),
        ("ALTER TABLE b ALTER id TYPE int8", ["public.b"]),
        ("ALTER TYPE mood RENAME VALUE 'a' TO 'b'", ["public.a"]),
        ("TRUNCATE a, b", ["public.a", "public.b"]),
        ("CREATE TABLE c (id int PRIMARY KEY)", ["public.c"]),
        ("ALTER TABLE c RENAME TO d", ["public.d"]),
        ("DROP TABLE d", []),
        ("CREATE TABLE e (id int); DROP TABLE e", []),
    ]
    for command, wanted in changes:
        for part in command.split("; "):
            database.execute(part)
        assert watcher.titles() == wanted, command
        assert watcher.titles() == [], command


def test_a_change_that_commits_late_is_seen(database: Database, connection: Connection) -> None:
    """A transaction that was open at a look, and before others that are over, is newer all the same."""
    database.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
    watcher = Watcher(connection, database)
    with database.connect() as late:
        late.execute("BEGIN")
        late.execute("ALTER TABLE a ADD n int")
        database.execute("ALTER TABLE b ADD n int")
        assert watcher.titles() == ["public.b"]
        assert watcher.titles() in ([], ["public.b"])
        late.execute("COMMIT")
    assert "public.a" in watcher.titles()


def test_no_look_waits_for_a_lock(database: Database, connection: Connection) -> None:
    """ALTER TABLE and what else holds a table, for however long, holds up no look."""
    name = database.publication
    database.execute(
        f'DROP PUBLICATION "{name}";'
        f'CREATE PUBLICATION "{name}" FOR ALL TABLES WITH (publish_via_partition_root);'
        "CREATE TABLE a (id int, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);"
        "CREATE TABLE a_1 PARTITION OF a FOR VALUES IN (1); CREATE TABLE b (id int PRIMARY KEY)"
    )
    watcher = Watcher(connection, database)
    with database.connect() as holder:
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE a, b IN ACCESS EXCLUSIVE MODE")
        database.execute("CREATE TABLE a_2 (id int NOT NULL, k int NOT NULL)")
        holder.execute("ALTER TABLE b ADD n int")
        began = time.monotonic()
        whole = Looker(connection, [name]).look(None, {}, {}, {}, is_whole=True)
        watcher.look()
        assert time.monotonic() - began < 30
        holder.execute("COMMIT")
    assert _named(dict(whole.tables), "public.b").columns.keys() == {1}
    with database.connect() as holder:
        holder.execute("ALTER TABLE a ATTACH PARTITION a_2 FOR VALUES IN (2)")
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE a_2 IN ACCESS EXCLUSIVE MODE")
        of_root = _named(dict(watcher.look().tables), "public.a")
    locked = next(file for file in of_root.files.values() if file.title == "public.a_2")
    assert not locked.is_attached_empty, "nobody could look whether it has rows"


@pytest.mark.parametrize("way", ["partition of", "attach", "attach filled", "filled at once"])
def test_partitions_that_come_empty_are_told(
    database: Database, connection: Connection, way: str
) -> None:
    """From those that bring rows along, also when rows came right after."""
    name = database.publication
    database.execute(
        f'DROP PUBLICATION "{name}";'
        f'CREATE PUBLICATION "{name}" FOR ALL TABLES WITH (publish_via_partition_root);'
        "CREATE TABLE a (id int, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k)"
    )
    watcher = Watcher(connection, database)
    like = "CREATE TABLE a_1 (LIKE a INCLUDING ALL)"
    attach = "ALTER TABLE a ATTACH PARTITION a_1 FOR VALUES IN (1)"
    commands = {
        "partition of": "CREATE TABLE a_1 PARTITION OF a FOR VALUES IN (1); INSERT INTO a VALUES (1, 1)",
        "attach": f"{like}; {attach}",
        "attach filled": f"{like}; INSERT INTO a_1 VALUES (1, 1); {attach}",
        "filled at once": f"BEGIN; {like}; INSERT INTO a_1 VALUES (1, 1); {attach}; COMMIT",
    }
    database.execute(commands[way])
    (table,) = watcher.look().tables.values()
    (leaf,) = (file for file in table.files.values() if file.kind == "r")
    assert leaf.is_attached_empty is (way in {"partition of", "attach"})


def test_lists_and_generated_columns(database: Database, connection: Connection) -> None:
    """Columns that are not sent are not looked at."""
    name = database.publication
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, b int, c int GENERATED ALWAYS AS (1) STORED)"
    )
    watcher = Watcher(connection, database)
    (table,) = watcher.tables.values()
    assert {column.name for column in table.columns.values()} == {"id", "b"}
    assert table.column_count == 3
    assert table.can_be_unlogged
    if database.server.major < 15:
        return
    database.execute(f'DROP PUBLICATION "{name}"; CREATE PUBLICATION "{name}" FOR TABLE a (id)')
    whole = Looker(connection, [name]).look(None, {}, {}, {}, is_whole=True)
    (table,) = whole.tables.values()
    assert {column.name for column in table.columns.values()} == {"id"}
    assert not table.can_be_unlogged


def test_names_of_any_kind(database: Database, connection: Connection) -> None:
    """Schemas, tables, columns, labels and types with quotes, dots and percent signs."""
    odd = ['"', "'", "%s", "a.b", "{x}", "\\"]
    for schema, name in itertools.product(odd, repeat=2):
        parts = ['"' + part.replace('"', '""') + '"' for part in (schema, name)]
        quoted = ".".join(parts)
        database.execute(f"CREATE SCHEMA IF NOT EXISTS {parts[0]}")
        database.execute(f'CREATE TABLE {quoted} ("%" int PRIMARY KEY DEFAULT 1)')
        database.execute(f"ALTER TABLE {quoted} ADD \"q'\" text DEFAULT 'it''s %s'")
    watcher = Watcher(connection, database)
    assert len(watcher.tables) == len(odd) ** 2
    for table in watcher.tables.values():
        (file,) = table.files.values()
        assert list(file.constants.values()) == ["it's %s"]
    database.execute('DROP SCHEMA "%s" CASCADE')
    assert watcher.look().listed is not None
