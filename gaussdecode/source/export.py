"""Read rows that are already in a server: the interface for snapshots, for every kind of source.

A `View` is the state of the database after one position of the stream. Every transaction
whose commit ends at or before `View.lsn` is in it, no other one is. It lives as long as its
connection; readers import it, each into a short transaction of its own.

Tables are read in *chunks*: ranges of pages, or whole. What the stream sends of a table is
what is read of it: the same columns, the same rows, values in the same text form.

How a view comes to its position differs. PostgreSQL takes both together (`postgresql.export`);
GaussDB gives a view a number in the order of commits, and the stream, which tells this
number of every transaction, is asked for the position that fits (`gaussdb.export`).

Rejected for the sum of hashes: md5 over string_agg (a whole piece in one value of the server's memory, in the
order of the scan) and a sum of md5 (five times the cost on both sides).
"""

import dataclasses
import enum
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, Self

import pyarrow as pa

from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.relation import Relation
from gaussdecode.model.title import table_title
from gaussdecode.source.quoting import identifier
from gaussdecode.wire.encoding import UTF8, Encoding

CANCELLED: Final = "57014"  # also by statement_timeout
NO_PRIVILEGE: Final = "42501"
_GRANTED: Final = 20  # tables that one GRANT names; arbitrary
_VALUE_CLASS: Final = "22"
COPY_BYTES: Final = 1 << 20  # of lines handed over at once; arbitrary

# Waits until the stream has shown every change up to a position, calling the second argument
# now and then to make a quiet server say how far it is; gives all rows of the tables at hand
# since publications are held, which may be gone through more than once.
Shown = Callable[[int, Callable[[], object]], Iterable[pa.Table]]
# In a landing by CSN: given a CSN, waits until all up to it is committed, and nothing after it is; gives the
# CSN, or a greater one where nothing of this source stands between them, and the LSN that all of it is up to.
Reach = Callable[[int], tuple[int, int]]


class TableChangedError(SourceError):
    """The table was changed or replaced since it was read; it is read again from the start."""


class OrderError(SourceError):
    """The stream has no position at which a view stands; another view may have one."""


class VerifyError(SourceRefusedError):
    """The rows that were read differ from the server's count or sum in the same view."""


class Spelling(enum.IntEnum):
    """The difference between the text that COPY printed and the text in the stream."""

    SAME = 0
    HEX = 1  # digits without their head
    NUMBER = 2  # one number in several forms


@dataclasses.dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table whose rows the stream sends.

    Attributes:
        schema: name.
        name: name of the table.
        oid: pg_class.oid.
        is_root: a partitioned table that is published as one.
        identity: pg_class.relreplident.
        columns: attribute numbers of those that are listed; None for all there are when it is read.
        has_generated: these include what is generated and stored.
        publications: publications that have it, by name; whether they send only some of its rows.
        evidence: another text when what is sent of it was changed, also there and back.
    """

    schema: str
    name: str
    oid: int
    is_root: bool
    identity: str
    columns: frozenset[int] | None
    has_generated: bool = False
    publications: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    evidence: str = ""

    @property
    def title(self) -> str:
        """How it is spelled; different tables have different titles."""
        return table_title(self.schema, self.name)


@dataclasses.dataclass(frozen=True, slots=True)
class Leaf:
    """A table that holds rows: the published one, or a partition of it.

    Attributes:
        oid: pg_class.oid.
        schema: name.
        name: name of the table.
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
        table: table as published.
        relation: relation as a Relation message would describe it.
        type_texts: SQL spelling of each column's type.
        numbers: attribute number of each column.
        leaves: leaves by OID.
        spelling: a `Spelling` per column, where values are to be spelled anew; else empty.
        filter: SQL condition on its rows, or None.
        unseen: why some changes of it may not show in the stream, so that all of it must be
            read in one view; None where all show.
        evidence: another text when something of that was changed, also there and back.
        encoding: encoding in which values are copied out.
    """

    table: PublishedTable
    relation: Relation
    type_texts: tuple[str, ...]
    numbers: tuple[int, ...]
    leaves: tuple[Leaf, ...]
    spelling: bytes = b""
    filter: str | None = None
    unseen: str | None = None
    evidence: str = ""
    encoding: Encoding = UTF8

    @property
    def fingerprint(self) -> str:
        """The same as long as chunks that were read fit together."""
        leaves = [[leaf.oid, leaf.file_node] for leaf in self.leaves]
        parts = [self.relation.to_record(), self.numbers, leaves, self.filter, self.evidence]
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
        number: number in the table, from 0.
        leaf: index into the leaves.
        first: page.
        stop: page after the last; None for the end of the table.
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


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """Count and checksum of a chunk, as the server reports or as it was read.

    Attributes:
        rows: their number.
        checksum: `collect._copyrows.sum_rows` of its lines; None where
            nobody asked for it.
    """

    rows: int
    checksum: int | None


class Exported(Protocol):
    """A view that other transactions import."""

    @property
    def name(self) -> str:
        """For SET TRANSACTION SNAPSHOT."""


class View(Exported, Protocol):
    """The database at one position; see the head of this module."""

    @property
    def lsn(self) -> Lsn:
        """Every transaction that ends at or before it is in the view, no other one.

        Where the stream has to tell it, it is 0 before `find_position`.
        """

    @property
    def through_csn(self) -> int | None:
        """In a landing by CSN everything up to it is in the view, nothing else; None in one by LSN."""

    def find_position(self, boundary: int, shown: Shown, reach: Reach) -> None:
        """Find the position, before anything is read that will stand at it.

        Args:
            boundary: position up to which all was committed; nothing after it is.
            shown: transactions that the stream has brought since.
            reach: reach of a landing by CSN.

        Raises:
            SourceError: there is none; another view may have one.
        """

    def confirm(self, shown: Shown) -> None:
        """See that the position holds, after the reading and before it is committed.

        Raises:
            SourceError: it does not; all is to be read again in another view.
        """

    def close(self) -> None:
        """Let go of it."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_exception: object) -> None: ...


class TableReader(Protocol):
    """Reads tables through a connection of its own, by one thread.

    Attributes:
        is_translated: copied text has another encoding than the text that the server hashes,
            unless the database is in UTF-8.
    """

    is_translated: bool

    def __enter__(self) -> Self: ...

    def __exit__(self, *_exception: object) -> None: ...

    def close(self) -> None:
        """Close the connection."""

    def nudge(self) -> None:
        """Commit an empty transaction, so that the stream says how far the server is."""

    def published(self) -> list[PublishedTable]:
        """The tables whose rows the stream sends, with their sent columns.

        Raises:
            SourceError: the server failed.
        """

    def has_table(self, schema: str, name: str) -> bool:
        """Whether there is a table of a name, published or not, as the transaction sees it.

        Raises:
            SourceError: the server failed.
        """

    def shape(self, table: PublishedTable) -> TableShape:
        """A table's columns and leaves, as the transaction sees them.

        Raises:
            TableChangedError: it is gone, or a leaf was rewritten since the view.
        """

    def check_readable(self, shape: TableShape) -> None:
        """See that the role may read every leaf, before anything depends on it.

        Raises:
            SourceRefusedError: it may not.
        """

    def begin(self, view: Exported) -> None:
        """Begin a transaction in the view."""

    def end(self) -> None:
        """End the transaction, also one that failed."""

    def check_files(self, shape: TableShape, leaves: Iterable[int]) -> None:
        """See that what was read by its name is what the view has, and was not rewritten.

        Called after the reading, whose locks keep it so. The server finds a name as it is
        now, and to a view a table that was rewritten or truncated since seems to be empty.

        Raises:
            TableChangedError: something else was read; rows may have been missed.
        """

    def copy_chunk(self, shape: TableShape, chunk: Chunk, where: str | None) -> Iterator[bytes]:
        """Copy the rows of a chunk out.

        Yields:
            Whole lines of COPY's text form, in `TableShape.encoding`.

        Raises:
            SourceError: the server failed.
            SourceRefusedError: it refuses.
        """

    def measure_chunk(
        self, shape: TableShape, chunk: Chunk, where: str | None, *, has_checksum: bool
    ) -> Measure:
        """Have the server count the rows of a chunk, and sum them up if that is wanted.

        Raises:
            SourceError: the server failed.
            SourceRefusedError: it cannot.
        """

    def hash_of(self, text: str) -> int:
        """The server's ``hashtext()`` of a text.

        Raises:
            SourceError: the server failed.
        """

    def copy_keys(
        self, shape: TableShape, keys: Sequence[int], arrays: Sequence[str], where: str | None
    ) -> Iterator[bytes]:
        """Copy the rows with given keys out.

        Args:
            shape: shape of the table.
            keys: index of each key column.
            arrays: per key column, the values of all keys as the text of an array.
            where: SQL condition, or None.
        """


class Exporter(Protocol):
    """One server whose rows are read; every call opens a connection."""

    def open_view(self, seconds: float, should_stop: Callable[[], bool]) -> View:
        """Take the state of the database as it is now.

        Args:
            seconds: seconds to wait for transactions that run on the server, at most.
            should_stop: asked while waiting.

        Raises:
            SourceError: they run longer, or the server failed.
            SourceRefusedError: it cannot give a view.
        """

    def open_reader(self, statement_seconds: float, should_stop: Callable[[], bool]) -> TableReader:
        """Open a reader.

        Args:
            statement_seconds: longest statement.
            should_stop: asked while a statement runs.

        Raises:
            SourceError: the server cannot be reached.
        """


# ---- SQL that all servers understand -------------------------------------------------------


def column_list(shape: TableShape) -> str:
    """The columns of a table for SELECT."""
    return ", ".join(identifier(column.name) for column in shape.relation.columns)


def conditions(shape: TableShape, where: str | None) -> list[str]:
    """Conditions on rows: of the publication's filters, and of the operator's."""
    return [f"({text})" for text in (shape.filter, where) if text]


def measures(shape: TableShape, *, has_checksum: bool) -> str:
    """SELECT list that gives the `Measure` of a chunk.

    Each row becomes one text: per column ``v`` and the value as COPY prints it, or ``n`` for
    NULL, and a tab.
    """
    if not has_checksum:
        return "count(*)"
    parts = []
    for column in shape.relation.columns:
        name = identifier(column.name)
        # IS NULL is also true of a composite value of which all fields are NULL.
        shown = f"CASE WHEN {name} IS DISTINCT FROM NULL THEN pg_catalog.format('v%s', {name}) ELSE 'n' END"
        parts.append(f"{shown} || pg_catalog.chr(9)")
    row = " || ".join(parts) or "''"
    return f"count(*), sum(pg_catalog.hashtext({row})::int8)"


def measure_of(row: Sequence[str | None], *, has_checksum: bool) -> Measure:
    """Read what `measures` gave."""
    return Measure(int(row[0] or 0), int(row[1] or 0) if has_checksum else None)


def unreadable(shape: TableShape, role: str) -> SourceRefusedError:
    """Make the error of a table that the role may not read, with the commands that let it."""
    schemas = sorted({identifier(leaf.schema) for leaf in shape.leaves})
    tables = [f"{identifier(leaf.schema)}.{identifier(leaf.name)}" for leaf in shape.leaves]
    which = f"ALL TABLES IN SCHEMA {', '.join(schemas)}"
    if len(tables) <= _GRANTED:
        which = ", ".join(tables)
    return SourceRefusedError(
        f"role {role} may not read table {shape.table.title}. On the server, as its owner: "
        f"GRANT USAGE ON SCHEMA {', '.join(schemas)} TO {identifier(role)}; "
        f"GRANT SELECT ON {which} TO {identifier(role)};",
        NO_PRIVILEGE,
    )


def hides_rows(shape: TableShape, role: str) -> SourceRefusedError:
    """Make the error of a table of which the role may read only some rows."""
    return SourceRefusedError(
        f"row-level security hides rows of table {shape.table.title} from role {role}. Its "
        "existing rows are not read, because some would be missing. On the server: ALTER ROLE "
        f"{identifier(role)} BYPASSRLS;",
        NO_PRIVILEGE,
    )


def without_values(error: SourceError) -> SourceError:
    """Leave out a text of the server's that may repeat a value of a row."""
    if error.sqlstate is not None and error.sqlstate.startswith(_VALUE_CLASS):
        return SourceRefusedError("reading a table: an expression failed", error.sqlstate)
    return error
