"""Rows that are already in a PostgreSQL server: which, at which position, read by COPY.

A `View` is the state of the database exactly behind one position of the WAL: that of a
temporary slot, which the server exports as a snapshot. Every transaction that ends at or
before `View.lsn` is in it, no other one is. It lives as long as its connection, which does
nothing else; readers import it, each into a short transaction of its own.

Tables are read in *chunks* of pages (ctid ranges), which need no key and no index and are
read in physical order. What the stream sends of a table is what is read of it: the same
columns, the same row filter, values in the same text form.
"""

import contextlib
import dataclasses
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Self

from psycopg import pq
from psycopg.pq.abc import PGresult

from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.relation import Relation, ReplicaIdentity
from gaussdecode.protocol.pgoutput import RelationColumn, RelationMessage, describe
from gaussdecode.source._copyout import CopyOut
from gaussdecode.source.libpq import address_of
from gaussdecode.source.postgresql import Connection, Row, SourceAddress, connect
from gaussdecode.source.quoting import identifier, literal, slot_identifier
from gaussdecode.source.slot import PLUGIN
from gaussdecode.source.sqlstate import Phase, error_of

CANCELLED: Final = "57014"  # also by statement_timeout
COPY_BYTES: Final = 1 << 20  # of lines handed over at once; arbitrary
_FIRST_NAMED_OID: Final = 10000  # from here on the server sends Type messages
_POLL_SECONDS: Final = 0.1  # how soon a command is given up
_SLOT_PART: Final = 40  # of our slot's name in the temporary one's; 63 is the longest
_ROOT: Final = "p"

_PUBLISHED: Final = """
    SELECT t.schemaname, t.tablename, c.oid, c.relkind, c.relreplident, {filter}, {columns}
    FROM pg_catalog.pg_publication_tables t
    JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
    WHERE t.pubname IN ({names}) ORDER BY 1, 2
"""
_COLUMNS: Final = """
    SELECT a.attname, a.atttypid, a.atttypmod, b.nspname, b.typname, a.attnum,
        EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid
            AND a.attnum = ANY (i.indkey::int2[]) AND ((c.relreplident = 'd' AND i.indisprimary
            AND i.indimmediate) OR (c.relreplident = 'i' AND i.indisreplident))),
        pg_catalog.format_type(a.atttypid, -1)
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid,
    LATERAL (WITH RECURSIVE d AS (
            SELECT t.oid, t.typbasetype, t.typname, t.typnamespace, t.typtype
            FROM pg_catalog.pg_type t WHERE t.oid = a.atttypid
            UNION ALL
            SELECT t.oid, t.typbasetype, t.typname, t.typnamespace, t.typtype
            FROM pg_catalog.pg_type t JOIN d ON t.oid = d.typbasetype WHERE d.typtype = 'd')
        SELECT n.nspname, d.typname FROM d
        JOIN pg_catalog.pg_namespace n ON n.oid = d.typnamespace WHERE d.typtype <> 'd') b
    WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped {generated}
    ORDER BY a.attnum
"""
_NAME: Final = """
    SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {oid}
"""
_LEAVES: Final = """
    SELECT c.oid, n.nspname, c.relname, c.relfilenode, pg_catalog.pg_relation_filenode(c.oid),
        pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::int8,
        greatest(c.reltuples, 0)::int8
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid IN ({oids}) AND c.relkind = 'r' ORDER BY c.oid
"""


class TableChangedError(SourceError):
    """The table is not any more what was read of it before; it is read again from the start."""


@dataclasses.dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table whose rows the publications send.

    Attributes:
        schema: name.
        name: of the table.
        oid: pg_class.oid.
        is_root: a partitioned table that is published as one.
        identity: pg_class.relreplident.
        filter: SQL condition on its rows, or None.
        columns: names of those that are sent; None for all.
    """

    schema: str
    name: str
    oid: int
    is_root: bool
    identity: str
    filter: str | None
    columns: frozenset[str] | None

    @property
    def title(self) -> str:
        """``schema.name``."""
        return f"{self.schema}.{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Leaf:
    """A table that holds rows: the published one, or a partition of it.

    Attributes:
        oid: pg_class.oid.
        schema: name.
        name: of the table.
        file_node: number of its file; another one after a rewrite or a truncate.
        pages: its size when it was looked at.
        rows: estimate.
    """

    oid: int
    schema: str
    name: str
    file_node: int
    pages: int
    rows: int

    @property
    def quoted(self) -> str:
        """For SQL; ``ONLY``, because tables that inherit are published by themselves."""
        return f"ONLY {identifier(self.schema)}.{identifier(self.name)}"


@dataclasses.dataclass(frozen=True, slots=True)
class TableShape:
    """A table as the stream describes it, and where its rows are.

    Attributes:
        table: as published.
        relation: as a Relation message would describe it.
        type_texts: SQL spelling of each column's type.
        leaves: by OID.
    """

    table: PublishedTable
    relation: Relation
    type_texts: tuple[str, ...]
    leaves: tuple[Leaf, ...]

    @property
    def fingerprint(self) -> str:
        """The same as long as chunks that were read fit together."""
        leaves = [[leaf.oid, leaf.file_node] for leaf in self.leaves]
        parts = [self.relation.to_record(), leaves, self.table.filter]
        return json.dumps(parts, sort_keys=True, default=str)

    @property
    def pages(self) -> int:
        """Of all leaves."""
        return sum(leaf.pages for leaf in self.leaves)

    @property
    def row_estimate(self) -> int:
        """Of all leaves; 0 where the server does not know."""
        return sum(leaf.rows for leaf in self.leaves)


@dataclasses.dataclass(frozen=True, slots=True)
class Chunk:
    """A range of pages of one leaf.

    Attributes:
        number: in the table, from 0.
        leaf: index into the leaves.
        first: page.
        stop: page behind the last; None for the end of the table.
    """

    number: int
    leaf: int
    first: int
    stop: int | None

    def condition(self) -> str:
        """SQL condition for its rows."""
        low = f"ctid >= '({self.first},0)'::pg_catalog.tid"
        return low if self.stop is None else f"{low} AND ctid < '({self.stop},0)'::pg_catalog.tid"


def cut(leaves: Sequence[Leaf], pages: int) -> list[Chunk]:
    """Cut tables into chunks of so many pages; the last of each has no end."""
    chunks: list[Chunk] = []
    for index, leaf in enumerate(leaves):
        firsts = range(0, max(leaf.pages, 1), pages)
        for first in firsts:
            stop = None if first == firsts[-1] else first + pages
            chunks.append(Chunk(len(chunks), index, first, stop))
    return chunks


class View:
    """The database at one position; see the head of this module.

    Attributes:
        lsn: every transaction that ends at or before it is in the view, no other.
        name: for SET TRANSACTION SNAPSHOT.
    """

    def __init__(self, connection: Connection, lsn: Lsn, name: str) -> None:
        self.lsn = lsn
        self.name = name
        self._connection = connection

    @classmethod
    def open(
        cls,
        address: SourceAddress,
        slot: str,
        seconds: float,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Export the state of the database as it is now.

        Args:
            address: of the server.
            slot: name that the temporary slot's begins with.
            seconds: to wait for the transactions that run on the server, at most.
            should_stop: asked while waiting.

        Raises:
            SourceError: they run longer, or the server failed.
            SourceRefusedError: there is no free slot.
        """
        name = f"{slot[:_SLOT_PART]}_view_{secrets.token_hex(5)}"
        connection = connect(address)
        try:
            word = "(SNAPSHOT 'export')" if connection.server_version >= 150000 else ""
            with _cancelled(connection, seconds, should_stop):
                (row,) = connection.query(
                    f"CREATE_REPLICATION_SLOT {slot_identifier(name)} TEMPORARY LOGICAL {PLUGIN} "
                    f"{word or 'EXPORT_SNAPSHOT'}"
                )
        except BaseException:
            connection.close()
            raise
        return cls(connection, Lsn.parse(row[1] or ""), row[2] or "")

    def close(self) -> None:
        """Let go of it: slot and snapshot go with the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


@contextlib.contextmanager
def _cancelled(
    connection: Connection, seconds: float, should_stop: Callable[[], bool]
) -> Iterator[None]:
    """Have the server give a command up after some time, or when a stop is asked for."""
    is_over = threading.Event()
    deadline = time.monotonic() + seconds

    def watch() -> None:
        while not is_over.wait(_POLL_SECONDS):
            if time.monotonic() >= deadline or should_stop():
                connection.pgconn.get_cancel().cancel()

    watcher = threading.Thread(target=watch, name="canceller", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


class TableReader:
    """Reads tables through a connection of its own, by one thread.

    Args:
        address: of the server.
        statement_seconds: longest statement.
        should_stop: asked while a statement runs.
    """

    def __init__(
        self,
        address: SourceAddress,
        statement_seconds: float,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.connection = connect(address, is_replication=False)
        self._should_stop = should_stop
        self._secret = address.secret
        self._command(f"SET statement_timeout = {int(statement_seconds * 1000)}")
        self._command("SET row_security = off")  # an error, rather than rows left out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.connection.close()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _command(self, text: str) -> list[Row]:
        return self.connection.query(text)

    def nudge(self) -> None:
        """Commit an empty transaction, so that the stream says how far the server is."""
        self._command("SELECT pg_catalog.txid_current()")

    # ---- the catalogue ---------------------------------------------------------------

    def published(self, publications: Sequence[str]) -> list[PublishedTable]:
        """The tables that the publications send, with what they send of them.

        Raises:
            SourceError: the server failed.
        """
        is_new = self.connection.server_version >= 150000
        rows = self._command(
            _PUBLISHED.format(
                filter="t.rowfilter" if is_new else "NULL",
                columns="pg_catalog.array_to_json(t.attnames)" if is_new else "NULL",
                names=", ".join(literal(name) for name in publications) or "NULL",
            )
        )
        found: dict[str, PublishedTable] = {}
        for row in rows:
            table = _published(row)
            found[table.title] = _union(found.get(table.title), table)
        return list(found.values())

    def shape(self, table: PublishedTable) -> TableShape:
        """A table's columns and leaves, as the transaction sees them.

        Raises:
            TableChangedError: it is gone, or a leaf was rewritten since the view.
        """
        is_new = self.connection.server_version >= 150000
        generated = "" if is_new else "AND a.attgenerated = ''"
        rows = self._command(_COLUMNS.format(oid=table.oid, generated=generated))
        wanted = table.columns
        rows = [row for row in rows if wanted is None or row[0] in wanted]
        oids = str(table.oid)
        if table.is_root:
            tree = f"pg_catalog.pg_partition_tree({table.oid}::pg_catalog.oid::regclass)"
            found = self._command(f"SELECT relid::oid FROM {tree} WHERE isleaf")  # noqa: S608
            oids = ", ".join(str(oid) for (oid,) in found) or "0"
        leaves = self._command(_LEAVES.format(oids=oids))
        named = self._command(_NAME.format(oid=table.oid))
        if named != [(table.schema, table.name)]:
            raise TableChangedError(f"table {table.title} is gone, or has another name")
        if (not rows and wanted) or (not leaves and not table.is_root):
            raise TableChangedError(f"table {table.title} is gone")
        for leaf in leaves:
            if leaf[3] != leaf[4]:
                raise TableChangedError(f"table {table.title} was rewritten or truncated just now")
        return TableShape(
            table,
            _relation(table, rows),
            tuple(str(row[7]) for row in rows),
            tuple(_leaf(row) for row in leaves),
        )

    def check_readable(self, shape: TableShape) -> None:
        """See that the role may read every leaf, before anything depends on it.

        Raises:
            SourceRefusedError: it may not.
        """
        for leaf in shape.leaves:
            self._command(f"SELECT {_names(shape)} FROM {leaf.quoted} LIMIT 0")  # noqa: S608 - quoted

    # ---- rows ------------------------------------------------------------------------

    def begin(self, view: View) -> None:
        """Begin a transaction that sees what the view does."""
        self._command("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        self._command(f"SET TRANSACTION SNAPSHOT {literal(view.name)}")

    def end(self) -> None:
        """End the transaction, also one that failed."""
        self._command("ROLLBACK")

    def check_files(self, shape: TableShape, leaves: Iterable[int]) -> None:
        """See that what was read by its name is what the view has, and was not rewritten.

        Called behind the reading, whose locks keep it so. The server finds a name as it is
        now, and to a view a table that was rewritten or truncated since seems to be empty.

        Raises:
            TableChangedError: something else was read; rows may have been missed.
        """
        read: list[tuple[int, int | None, str, str]] = []
        for index in leaves:
            leaf = shape.leaves[index]
            read.append((leaf.oid, leaf.file_node, leaf.schema, leaf.name))
        table = shape.table
        if table.is_root:
            read.append((table.oid, None, table.schema, table.name))
        for oid, file_node, schema, name in read:
            path = literal(f"{identifier(schema)}.{identifier(name)}")
            node = f"pg_catalog.pg_relation_filenode({oid}::pg_catalog.oid)"
            found = self._command(f"SELECT {node}, pg_catalog.to_regclass({path})::pg_catalog.oid")
            wanted = (None if file_node is None else str(file_node), str(oid))
            if found != [wanted]:
                raise TableChangedError(
                    f"table {table.title} was rewritten, truncated or renamed while it was read"
                )

    def copy_chunk(self, shape: TableShape, chunk: Chunk, where: str | None) -> Iterator[bytes]:
        """Copy the rows of a chunk out.

        Yields:
            Whole lines of COPY's text form.

        Raises:
            SourceError: the server failed.
            SourceRefusedError: it refuses.
        """
        conditions = [chunk.condition(), *_conditions(shape.table, where)]
        source = shape.leaves[chunk.leaf].quoted
        condition = " AND ".join(conditions)
        return self._copy(f"SELECT {_names(shape)} FROM {source} WHERE {condition}")  # noqa: S608 - quoted above

    def count_chunk(self, shape: TableShape, chunk: Chunk, where: str | None) -> int:
        """Have the server count the rows of a chunk."""
        condition = " AND ".join([chunk.condition(), *_conditions(shape.table, where)])
        source = shape.leaves[chunk.leaf].quoted
        ((found,),) = self._command(f"SELECT count(*) FROM {source} WHERE {condition}")  # noqa: S608 - quoted above
        return int(found or 0)

    def copy_keys(
        self, shape: TableShape, keys: Sequence[int], arrays: Sequence[str], where: str | None
    ) -> Iterator[bytes]:
        """Copy the rows with given keys out.

        Args:
            shape: of the table.
            keys: index of each key column.
            arrays: per key column, the values of all keys as the text of an array.
            where: SQL condition, or None.
        """
        columns = [identifier(shape.relation.columns[index].name) for index in keys]
        unnested = ", ".join(
            f"{literal(text)}::{shape.type_texts[index]}[]"
            for index, text in zip(keys, arrays, strict=True)
        )
        names = ", ".join(f"k{number}" for number in range(len(keys)))
        table = shape.table
        only = "" if table.is_root else "ONLY "
        source = f"{only}{identifier(table.schema)}.{identifier(table.name)}"
        wanted = f"({', '.join(columns)}) IN (SELECT {names} FROM unnest({unnested}) u({names}))"  # noqa: S608 - quoted above
        conditions = " AND ".join([wanted, *_conditions(table, where)])
        return self._copy(f"SELECT {_names(shape)} FROM {source} WHERE {conditions}")  # noqa: S608

    def _copy(self, select: str) -> Iterator[bytes]:
        with _cancelled(self.connection, float("inf"), self._should_stop):
            yield from self._copy_out(select)

    def _copy_out(self, select: str) -> Iterator[bytes]:
        pgconn = self.connection.pgconn
        result = pgconn.exec_(f"COPY ({select}) TO STDOUT".encode())
        self._check_copy(result)
        copy = CopyOut(address_of(pgconn), self.connection.libpq.addresses)
        while lines := copy.read(COPY_BYTES):
            yield lines
        while (last := pgconn.get_result()) is not None:
            self._check_copy(last)
        if copy.has_failed:
            message = pgconn.get_error_message()
            raise error_of(Phase.COMMAND, message, None, self._secret)

    def _check_copy(self, result: PGresult) -> None:
        if result.status in (pq.ExecStatus.COPY_OUT, pq.ExecStatus.COMMAND_OK):
            return
        error = self.connection.result_error(result)
        if error.sqlstate is not None and error.sqlstate.startswith("22"):
            # The server's text may repeat a value of a row.
            raise SourceRefusedError("reading a table: an expression failed", error.sqlstate)
        raise error


def _published(row: Row) -> PublishedTable:
    schema, name, oid, kind, identity, condition, columns = row
    return PublishedTable(
        schema or "",
        name or "",
        int(oid or 0),
        kind == _ROOT,
        identity or "",
        condition,
        None if columns is None else frozenset(json.loads(columns)),
    )


def _union(first: PublishedTable | None, second: PublishedTable) -> PublishedTable:
    """What two publications send of one table."""
    if first is None:
        return second
    both = None
    if first.filter is not None and second.filter is not None:
        both = f"({first.filter}) OR ({second.filter})"
    columns = None
    if first.columns is not None and second.columns is not None:
        columns = first.columns | second.columns
    return dataclasses.replace(first, filter=both, columns=columns)


def _relation(table: PublishedTable, rows: Sequence[Row]) -> Relation:
    """Describe a table as the server's Relation message would."""
    identity = ReplicaIdentity(table.identity)
    columns = tuple(
        RelationColumn(
            is_key=row[6] == "t" or identity is ReplicaIdentity.FULL,
            name=row[0] or "",
            type_oid=int(row[1] or 0),
            type_modifier=int(row[2] or -1),
        )
        for row in rows
    )
    types = {
        int(row[1] or 0): (_sent_namespace(row[3]), row[4] or "")
        for row in rows
        if int(row[1] or 0) >= _FIRST_NAMED_OID
    }
    message = RelationMessage(table.oid, table.schema, table.name, identity, columns)
    return describe(message, 1, types)


def _sent_namespace(name: str | None) -> str:
    """The server spells pg_catalog as nothing."""
    return "" if name == "pg_catalog" else name or ""


def _leaf(row: Row) -> Leaf:
    oid, schema, name, _, node, pages, tuples = row
    return Leaf(
        int(oid or 0), schema or "", name or "", int(node or 0), int(pages or 0), int(tuples or 0)
    )


def _names(shape: TableShape) -> str:
    return ", ".join(identifier(column.name) for column in shape.relation.columns)


def _conditions(table: PublishedTable, where: str | None) -> list[str]:
    return [f"({text})" for text in (table.filter, where) if text]
