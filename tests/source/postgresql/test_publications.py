"""The tables that publications send are those of the server's own view, and no lock is in the way."""

import contextlib
from random import Random
from typing import Final

import pytest
from kit.postgres import Database, Session, run
from psycopg import errors

from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.carried import Changes
from gaussdecode.source.postgresql.connection import connect
from gaussdecode.source.postgresql.publications import tables_of
from gaussdecode.source.postgresql.published import read_published, read_shape

pytestmark = pytest.mark.integration
_ROUNDS: Final = 60
_REFUSALS: Final = (  # such as a list of columns beside a schema, or twice the same table
    errors.InvalidParameterValue,
    errors.FeatureNotSupported,
    errors.InvalidColumnReference,
    errors.ObjectNotInPrerequisiteState,
    errors.DuplicateObject,
)
_SCHEMAS: Final = ("a", 'b"B', "c")
_VIEW: Final = """
    SELECT DISTINCT t.pubname, c.oid, {columns}, {is_filtered} FROM pg_publication_tables t
    JOIN pg_namespace n ON n.nspname = t.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
"""
_ASKED: Final = "SELECT t.publication, t.oid, {columns}, t.is_filtered FROM ({tables}) t"
_COLUMNS: Final = """
    (SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
    WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND CASE WHEN t.columns IS NULL THEN {generated} OR (a.attgenerated = 's' AND t.has_generated)
        ELSE a.attnum = ANY (t.columns) END)
"""
# Up to 14 the view shows what is listed below a root too, though it is sent as the root.
_WITHOUT_ROOT: Final = """
    WHERE NOT EXISTS (
        SELECT FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
        JOIN pg_partition_ancestors(c.oid) a ON a.relid = r.prrelid
        WHERE p.pubname = t.pubname AND p.pubviaroot AND r.prrelid <> c.oid)
"""


class Wild:
    """Random tables of every kind in three schemas, and random publications of them."""

    def __init__(self, database: Database, rng: Random) -> None:
        self._rng = rng
        self._count = 0
        self.session = database.connect()
        self.version = self.session.info.server_version
        run(self.session, f'DROP PUBLICATION "{database.publication}"')
        run(self.session, "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w")
        for schema in _SCHEMAS:
            run(self.session, f"CREATE SCHEMA {_quoted(schema)}")
        self._make = (
            self._plain, self._plain, self._tree, self._unlogged, self._temporary, self._no_columns,
            self._heir, self._other_kinds,
        )  # fmt: skip

    def _new(self) -> str:
        self._count += 1
        return f'{_quoted(self._rng.choice(_SCHEMAS))}."t {self._count}"'

    def create(self) -> None:
        """Make one thing more."""
        self._rng.choice(self._make)()

    def _plain(self) -> None:
        generated = ", g int4 GENERATED ALWAYS AS (id * 2) STORED"
        if self.version >= 180000:
            generated += ", h int4 GENERATED ALWAYS AS (id * 2) VIRTUAL"
        table = self._new()
        run(
            self.session,
            f"CREATE TABLE {table} (id int4 PRIMARY KEY, gone text, v text{generated})",
        )
        run(self.session, f"ALTER TABLE {table} DROP COLUMN gone")

    def _tree(self) -> None:
        """Partitions of partitions, in any schema; leaves that are unlogged or foreign."""
        root = self._new()
        run(self.session, f"CREATE TABLE {root} (id int4 NOT NULL, v text) PARTITION BY RANGE (id)")
        self._grow(root, 0, 64)

    def _grow(self, root: str, low: int, high: int) -> None:
        for start in range(low, high, max(1, (high - low) // 2)):
            end = start + max(1, (high - low) // 2)
            part, kind = self._new(), self._rng.random()
            of = f"{part} PARTITION OF {root} FOR VALUES FROM ({start}) TO ({end})"
            if kind < 0.35 and end - start > 1:
                run(self.session, f"CREATE TABLE {of} PARTITION BY RANGE (id)")
                self._grow(part, start, end)
            elif kind < 0.45:
                run(self.session, f"CREATE UNLOGGED TABLE {of}")
            elif kind < 0.5:
                run(self.session, f"CREATE FOREIGN TABLE {of} SERVER s")
            else:
                run(self.session, f"CREATE TABLE {of}")

    def _unlogged(self) -> None:
        run(self.session, f"CREATE UNLOGGED TABLE {self._new()} (id int4)")

    def _temporary(self) -> None:
        self._count += 1
        run(self.session, f'CREATE TEMPORARY TABLE "t {self._count}" (id int4)')

    def _no_columns(self) -> None:
        run(self.session, f"CREATE TABLE {self._new()} ()")

    def _heir(self) -> None:
        table = self._new()
        run(self.session, f"CREATE TABLE {table} (id int4 PRIMARY KEY, v text)")
        run(self.session, f"CREATE TABLE {self._new()} (w text) INHERITS ({table})")

    def _other_kinds(self) -> None:
        run(self.session, f"CREATE VIEW {self._new()} AS SELECT 1 AS id")
        run(self.session, f"CREATE MATERIALIZED VIEW {self._new()} AS SELECT 1 AS id")
        run(self.session, f"CREATE SEQUENCE {self._new()}")

    def publish(self) -> None:
        """Make one publication more; what this server does not take stays undone."""
        self._count += 1
        options = [f"publish_via_partition_root = {self._rng.choice(('true', 'false'))}"]
        if self.version >= 180000:
            options.append(f"publish_generated_columns = {self._rng.choice(('none', 'stored'))}")
        command = f'CREATE PUBLICATION "p\'{self._count}" FOR {self._listed()} WITH ({", ".join(options)})'
        with contextlib.suppress(*_REFUSALS):
            run(self.session, command)

    def _listed(self) -> str:
        if self._rng.random() < 0.15:
            return "ALL TABLES"
        has_lists = self.version >= 150000
        chosen = []
        tables = run(
            self.session,
            "SELECT format('%I.%I', n.nspname, c.relname), EXISTS (SELECT FROM pg_attribute a "
            "WHERE a.attrelid = c.oid AND a.attname = 'v') FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' "
            "AND c.oid >= 16384 ORDER BY c.oid",
        )
        for name, has_v in self._rng.sample(tables, min(len(tables), self._rng.randint(1, 5))):
            columns = "(v, id)" if has_v and has_lists and self._rng.random() < 0.2 else ""
            rows = "WHERE (v > 'a')" if has_v and has_lists and self._rng.random() < 0.3 else ""
            chosen.append(f"{self._rng.choice(('', 'ONLY '))}{name} {columns} {rows}")
        listed = f"TABLE {', '.join(chosen)}"
        if has_lists and self._rng.random() < 0.5:
            schemas = self._rng.sample(_SCHEMAS, self._rng.randint(1, 2))
            listed += f", TABLES IN SCHEMA {', '.join(map(_quoted, schemas))}"
        return listed


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _seen(session: Session) -> list[tuple[object, ...]]:
    """What the view says, and what the query says of the same publications."""
    version = session.info.server_version
    names = [str(name) for (name,) in run(session, "SELECT pubname FROM pg_publication")]
    is_new = version >= 150000
    view = _VIEW.format(
        columns="t.attnames" if is_new else "NULL::name[]",
        is_filtered="t.rowfilter IS NOT NULL" if is_new else "false",
    )
    view += "" if is_new else _WITHOUT_ROOT
    # What the stream leaves out up to 17, the view leaves out from 16 on.
    generated = "true" if version < 160000 else "a.attgenerated = ''"
    asked = _ASKED.format(
        tables=tables_of(names, version),
        columns=_COLUMNS.format(generated=generated) if is_new else "NULL::name[]",
    )
    return [tuple(sorted(map(repr, run(session, query)))) for query in (view, asked)]


@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_the_view_shows(database_of_each: Database, seed: int) -> None:
    """Random publications of random tables: each with its columns, and whether it has a filter."""
    wild = Wild(database_of_each, Random(seed))
    with wild.session as session:
        for _ in range(_ROUNDS):
            wild.create()
            wild.publish()
            shown, asked = _seen(session)
            assert shown == asked
        ((count,),) = run(session, "SELECT count(*) FROM pg_publication")
        assert count > _ROUNDS / 2


def test_columns_are_those_of_the_view_that_is_read(database_of_each: Database) -> None:
    """A list of tables that is older than a column of one of them does not hide the column."""
    database = database_of_each
    database.execute("CREATE TABLE t (id int4 PRIMARY KEY, v text)")
    names = [database.publication]
    address = SourceAddress(database.dsn + " sslmode=disable", None, True)
    with connect(address, is_replication=False) as connection:
        changes = Changes(connection, names, is_local_only=False)
        (table,) = read_published(connection, names, changes)
        database.execute("ALTER TABLE t ADD COLUMN more int4; ALTER TABLE t RENAME v TO w")
        shape = read_shape(connection, table, changes)
    assert [column.name for column in shape.relation.columns] == ["id", "w", "more"]
