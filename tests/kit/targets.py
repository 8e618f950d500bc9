"""A target that is built without Spark, beside the source that it comes from."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from psycopg import sql

from gaussdecode.errors import ConfigError
from gaussdecode.land.names import table_directory
from gaussdecode.model.title import split_title, table_title
from gaussdecode.spark.apply import Options, Summary, apply_with
from gaussdecode.spark.log.conversion import conform
from gaussdecode.spark.log.schema import TableSchema, parse_type
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target
from kit import canon, oracle
from kit.applied import newest
from kit.oracle import Cell, TableState
from kit.postgres import Database, Session
from kit.stranger import Reader, Table

_OURS: Final = "gd_"


def apply_local(root: Path, target: Path, **options: Any) -> Summary:  # Any: see `Options`
    """Bring a target up to the end of a landing."""
    return apply_with(LocalEngine(), root, target, Options(**options))


@dataclasses.dataclass(frozen=True)
class Found:
    """What a target has of the tables of a source.

    Attributes:
        equal: titles of tables whose rows are the source's.
        different: why not, by title.
        stopped: why a table stands still, by title.
    """

    equal: frozenset[str]
    different: dict[str, str]
    stopped: dict[str, str]


def compare(
    database: Database,
    summary: Summary,
    target: Path,
    is_compared: Callable[[str], bool] = lambda _: True,
) -> Found:
    """Compare every published table of a source with a target that was just applied.

    A partitioned table that is published as one is compared as one.
    """
    equal: set[str] = set()
    different: dict[str, str] = {}
    store = Target(target)
    with database.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        listed = session.execute(
            "SELECT DISTINCT schemaname::text, tablename::text FROM pg_publication_tables "
            f"WHERE pubname = '{database.publication}'"
        ).fetchall()
        for schema, name in listed:
            title = table_title(schema, name)
            if title in summary.stopped or not is_compared(title):
                continue
            rows = oracle.source_rows_of(session, _own_rows(session, (schema, name)))
            try:
                compare_rows(store, (schema, name), rows)
            except AssertionError as error:
                different[title] = str(error)
            else:
                equal.add(title)
    return Found(frozenset(equal), different, dict(summary.stopped))


def compare_sources(
    databases: Mapping[str, Database], summary: Summary, target: Path, titles: Iterable[str]
) -> Found:
    """Compare tables of several sources, whose rows are one table, with a target that was just applied.

    Args:
        databases: by name of the source.
        summary: of that.
        target: where the tables are.
        titles: of tables that every source has.
    """
    store = Target(target)
    there = store.tables()
    equal: set[str] = set()
    different: dict[str, str] = {}
    for title in sorted(set(titles) - summary.stopped.keys()):
        directory = table_directory(*split_title(title))
        schema, rows = newest(store, directory) if directory in there else (None, [])
        for source, database in databases.items():
            with database.connect() as session:
                session.execute(oracle.OUTPUT_SETTINGS)
                held = oracle.source_rows_of(session, _own_rows(session, split_title(title)))
                unsent = _generated(session, split_title(title))
            # Where another source sends a column of the name: as docs/shards.md says.
            held = [
                {name: None if name in unsent else of for name, of in row.items()} for row in held
            ]
            try:
                assert schema is not None or not held, "the target has no such table"
                if schema is not None:
                    own = [row for row in rows if row["gd_source"] == source]
                    known = {column.true_name for column in schema.columns}
                    held = [{n: text for n, text in row.items() if n in known} for row in held]
                    oracle.compare(split_title(title), state_of(schema, own), held)
            except AssertionError as error:
                different[f"{title} of {source}"] = str(error)
            else:
                equal.add(title)
    return Found(frozenset(equal), different, dict(summary.stopped))


def _generated(session: Session, table: tuple[str, str]) -> set[str]:
    """Columns that the server does not send, as it makes them."""
    name = sql.Identifier(*table).as_string(session)
    found = session.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attgenerated <> ''",
        [name],
    )
    return {str(row[0]) for row in found.fetchall()}


def _own_rows(session: Session, table: tuple[str, str]) -> str:
    """The query for the rows that a table is published with: not those of tables that inherit from it."""
    name = sql.Identifier(*table).as_string(session)
    ((is_parted,),) = session.execute(
        "SELECT relkind = 'p' FROM pg_class WHERE oid = %s::regclass", [name]
    ).fetchall()
    return f"SELECT * FROM {'' if is_parted else 'ONLY '}{name}"


def compare_rows(store: Target, table: tuple[str, str], rows: list[dict[str, str | None]]) -> None:
    """Assert that a table of a target has these rows, each once."""
    directory = ".".join(table)
    with contextlib.suppress(ConfigError):  # a renamed table keeps its directory
        directory = store.find_table(table_title(*table))
    version = store.newest(directory)
    if version is None:
        assert not rows, f"{len(rows)} rows, and the target has no such table"
        return
    schema = store.schema(directory, version.schema_id)
    held = [
        conform(
            current_rows(store.table_root(directory), file),
            store.schema(directory, file.schema_id),
            schema,
        )
        for file in version.current
    ]
    state = state_of(schema, [row for part in held for row in part.to_pylist()])
    oracle.compare(table, state, known_to(schema, rows))


def known_to(schema: TableSchema, rows: list[dict[str, str | None]]) -> list[dict[str, str | None]]:
    """Rows of a source, without columns that a target does not know yet."""
    known = {column.true_name for column in schema.columns}
    return [{name: text for name, text in row.items() if name in known} for row in rows]


def source_rows(
    session: Session, table: tuple[str, str], schema: TableSchema
) -> list[dict[str, str | None]]:
    """The rows that a table of a source is published with, in the columns of a target."""
    return known_to(schema, oracle.source_rows_of(session, _own_rows(session, table)))


def state_of(schema: TableSchema, rows: list[dict[str, Any]]) -> TableState:
    """Rows as the oracle compares them."""
    true = {column.name: column.true_name for column in schema.columns}
    types = {field.name: field.type for field in schema.arrow()}
    state = TableState()
    state.key = tuple(true[name] for name in schema.key) or None
    state.types = {true[name]: of for name, of in types.items()}
    for row in rows:
        assert row["gd_unchanged"] is None
        texts = dict(row["gd_raw"] or ())
        cells = {
            name: Cell(row[landed], texts.get(landed), types[landed])
            for landed, name in true.items()
        }
        if state.key is None:
            state.bag[
                tuple(sorted((n, c.canon) for n, c in cells.items() if c.canon is not None))
            ] += 1
        else:
            where: tuple[canon.Canon, ...] = tuple(cells[name].canon for name in state.key)
            assert where not in state.keyed, "a key twice"
            state.keyed[where] = cells
    return state


def compare_stranger(database: Database, read: Reader, found: Found) -> None:
    """A reader made from the format's page alone has what the target has of the tables that are equal."""
    with database.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        for title in found.equal:
            name = split_title(title)
            rows = oracle.source_rows_of(session, _own_rows(session, name))
            table = read.tables.get(table_directory(*name))
            if table is None:
                assert not rows, title
                continue
            assert table.stopped is None, (title, table.stopped)
            assert not table.suspects, title
            names = {column["name"] for column in table.schema["columns"]}
            rows = [{name: text for name, text in row.items() if name in names} for row in rows]
            oracle.compare(name, stranger_state(table), rows)


def stranger_state(table: Table) -> TableState:
    """Rows that such a reader has, as the oracle compares them."""
    types = {c["name"]: parse_type(c["arrow"]) for c in table.schema["columns"]}
    state = TableState()
    state.key = tuple(table.schema["key"]) if table.schema["key"] else None
    state.types = types
    for row in table.named():
        cells = {c: Cell(value.value, value.text, types[c]) for c, value in row.items()}
        if state.key is None:
            said = ((c, cell.canon) for c, cell in cells.items())
            state.bag[tuple(sorted((c, of) for c, of in said if of is not None))] += 1
        else:
            where = tuple(cells[c].canon for c in state.key)
            assert where not in state.keyed, "a key twice"
            state.keyed[where] = cells
    return state
