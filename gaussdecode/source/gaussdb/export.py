"""Read rows that are already in a GaussDB; implements `export`.

Tables are read by ordinary SQL through our own client, each as one piece, in a view that
`view` takes. There are no publications: what the stream covers is the white list, or
every table that is stored by row and logged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gaussdecode.closing import Closing
from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.model.relation import Relation
from gaussdecode.model.shape import Shape, ShapeColumn
from gaussdecode.model.types import is_headless_hex, is_number_as_text
from gaussdecode.protocol.gaussdb.commands import sql_literal
from gaussdecode.settings.sections import Config
from gaussdecode.source import export
from gaussdecode.source.address import SourceAddress, source_address
from gaussdecode.source.catalog import CatalogTable
from gaussdecode.source.export import (
    COPY_BYTES,
    NO_PRIVILEGE,
    Chunk,
    Leaf,
    Measure,
    PublishedTable,
    Spelling,
    TableChangedError,
    TableShape,
    column_list,
    conditions,
    measure_of,
    measures,
    unreadable,
    without_values,
)
from gaussdecode.source.gaussdb.catalog import CatalogType, read_table, read_types
from gaussdecode.source.gaussdb.connection import EMPTY, GaussConnection
from gaussdecode.source.gaussdb.relations import GaussRelations
from gaussdecode.source.gaussdb.tables import read_tables, storage_option
from gaussdecode.source.gaussdb.view import BEGIN, CsnView, View, connect_lasting
from gaussdecode.source.quoting import identifier
from gaussdecode.source.relations import WhiteList

_FILES: Final = """
SELECT c.relfilenode, pg_catalog.pg_relation_filenode(c.oid), c.reltuples, c.parttype
FROM pg_catalog.pg_class c WHERE c.oid = %s"""
_PARTITIONS: Final = """
SELECT p.relfilenode, pg_catalog.pg_partition_filenode(p.oid) FROM pg_catalog.pg_partition p
WHERE p.relfilenode <> 0 AND (p.parentid = %s OR p.parentid IN
(SELECT q.oid FROM pg_catalog.pg_partition q WHERE q.parentid = %s))"""
_OPTIONS: Final = "SELECT c.reloptions FROM pg_catalog.pg_class c WHERE c.oid = %s"
_NO_PARTITIONS: Final = "n"


class _Catalog:
    """The catalogue as a reader's transaction sees it."""

    def __init__(self, connection: GaussConnection) -> None:
        self._connection = connection

    def look_up_table(self, schema: str, name: str) -> CatalogTable | None:
        """See `relations.TableCatalog`."""
        return read_table(self._connection, schema, name)

    def types(self, oids: Iterable[int]) -> Mapping[int, CatalogType]:
        """See `relations.TableCatalog`."""
        return read_types(self._connection, set(oids))


class TableReader(Closing):
    """See `export.TableReader`. Values are printed as the decoders print them.

    Args:
        address: address of the SQL port.
        white_list: wanted tables.
        statement_seconds: longest statement.
        should_stop: asked while a statement runs.
    """

    is_translated = True

    def __init__(
        self,
        address: SourceAddress,
        white_list: WhiteList,
        statement_seconds: float,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._white_list = white_list
        self.connection = connect_lasting(address, statement_seconds, should_stop)
        self.connection.query(f"SET statement_timeout = {int(statement_seconds * 1000)}")
        self.connection.query("SET extra_float_digits = 3")  # decoders do

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def nudge(self) -> None:
        """See `export.TableReader`."""
        self.connection.query(EMPTY)

    # ---- the catalogue ---------------------------------------------------------------

    def published(self) -> list[PublishedTable]:
        """See `export.TableReader`; there are no publications, but a white list."""
        return [
            PublishedTable(table.schema, table.name, table.oid, False, table.identity, None)
            for table in read_tables(self.connection, self._white_list)
            if table.is_by_row
        ]

    def has_table(self, schema: str, name: str) -> bool:
        """See `export.TableReader`."""
        return read_table(self.connection, schema, name) is not None

    def shape(self, table: PublishedTable) -> TableShape:
        """See `export.TableReader`."""
        found = read_table(self.connection, table.schema, table.name)
        if found is None or found.oid != table.oid:
            raise TableChangedError(f"table {table.title} was dropped or replaced")
        columns = tuple(ShapeColumn(column.name, column.type_oid) for column in found.columns)
        relations = GaussRelations(WhiteList(), _Catalog(self.connection))
        shape = Shape(((table.schema, table.name),), "I", columns, None)
        relation = relations.define(shape).relation
        node, rows = self._check_unchanged(table)
        return TableShape(
            table,
            relation,
            tuple(column.type_text for column in found.columns),
            tuple(column.number for column in found.columns),
            (Leaf(table.oid, table.schema, table.name, node, 0, rows),),
            _spelling(relation),
        )

    def _check_unchanged(self, table: PublishedTable) -> tuple[int, int]:
        """Compare files as the view has them with those of now; gives number and rows."""
        files = self.connection.query(_FILES % table.oid)
        if len(files) != 1:
            raise TableChangedError(f"table {table.title} is gone")
        ((seen, current, rows, kind),) = files
        pairs = [(seen, current)]
        if kind != _NO_PARTITIONS:  # then the table itself has no file
            partitions = self.connection.query(_PARTITIONS % (table.oid, table.oid))
            pairs = [(before, now) for before, now in partitions]
        if any(before != now for before, now in pairs):
            raise TableChangedError(f"table {table.title} was rewritten or truncated just now")
        return int(seen or 0), max(int(float(rows or 0)), 0)

    def check_readable(self, shape: TableShape) -> None:
        """See `export.TableReader`."""
        table = shape.table
        ((options,),) = self.connection.query(_OPTIONS % table.oid)
        if storage_option(options, "enable_rowsecurity") in ("true", "on", "1"):
            raise SourceRefusedError(
                f"table {table.title} has row level security, which may leave rows out; turn it off, or "
                "set snapshot.tables to none for the table"
            )
        source = shape.leaves[0].quoted
        try:
            self.connection.query(f"SELECT {column_list(shape)} FROM {source} LIMIT 0")  # noqa: S608 - quoted
        except SourceError as error:
            if error.sqlstate != NO_PRIVILEGE:
                raise
            ((role,),) = self.connection.query("SELECT current_user")
            raise unreadable(shape, str(role)) from None

    # ---- rows ------------------------------------------------------------------------

    def begin(self, view: export.Exported) -> None:
        """See `export.TableReader`."""
        self.connection.query(BEGIN)
        self.connection.query(f"SET TRANSACTION SNAPSHOT {sql_literal(view.name)}")

    def end(self) -> None:
        """See `export.TableReader`."""
        self.connection.query("ROLLBACK")

    def check_files(self, shape: TableShape, leaves: Iterable[int]) -> None:
        """See `export.TableReader`."""
        table = shape.table
        self._check_unchanged(table)
        name = sql_literal(f"{identifier(table.schema)}.{identifier(table.name)}")
        ((oid,),) = self.connection.query(
            f"SELECT {name}::pg_catalog.regclass::pg_catalog.oid"  # fails when it is gone
        )
        if oid != str(table.oid):
            raise TableChangedError(f"table {table.title} was renamed while it was read")

    def copy_chunk(self, shape: TableShape, chunk: Chunk, where: str | None) -> Iterator[bytes]:
        """See `export.TableReader`; the chunk is the table."""
        return self._copy(_select(column_list(shape), shape, conditions(shape, where)))

    def measure_chunk(
        self, shape: TableShape, chunk: Chunk, where: str | None, *, has_checksum: bool
    ) -> Measure:
        """See `export.TableReader`."""
        wanted = measures(shape, has_checksum=has_checksum)
        try:
            (row,) = self.connection.query(_select(wanted, shape, conditions(shape, where)))
        except SourceError as error:
            raise without_values(error) from None
        return measure_of(row, has_checksum=has_checksum)

    def hash_of(self, text: str) -> int:
        """See `export.TableReader`."""
        ((found,),) = self.connection.query(f"SELECT pg_catalog.hashtext({sql_literal(text)})")
        return int(found or 0)

    def copy_keys(
        self, shape: TableShape, keys: Sequence[int], arrays: Sequence[str], where: str | None
    ) -> Iterator[bytes]:
        """See `export.TableReader`."""
        columns = ", ".join(identifier(shape.relation.columns[index].name) for index in keys)
        # Several unnest() in a select list run side by side where all are of one length.
        listed = ", ".join(
            f"unnest({sql_literal(text)}::{shape.type_texts[index]}[])"
            for index, text in zip(keys, arrays, strict=True)
        )
        wanted = f"({columns}) IN (SELECT {listed})"
        return self._copy(_select(column_list(shape), shape, [wanted, *conditions(shape, where)]))

    def _copy(self, select: str) -> Iterator[bytes]:
        try:
            yield from self.connection.copy_out(f"COPY ({select}) TO STDOUT", COPY_BYTES)
        except SourceError as error:
            raise without_values(error) from None


def _select(wanted: str, shape: TableShape, held: Sequence[str]) -> str:
    source = shape.leaves[0].quoted
    condition = f" WHERE {' AND '.join(held)}" if held else ""
    return f"SELECT {wanted} FROM {source}{condition}"  # noqa: S608 - quoted by the callers


def _spelling(relation: Relation) -> bytes:
    """Which columns the stream's translator spells anew; empty for none."""
    forms = bytes(
        Spelling.HEX
        if is_headless_hex(column.type_oid)
        else Spelling.NUMBER
        if is_number_as_text(column.type_oid, column.type)
        else Spelling.SAME
        for column in relation.columns
    )
    return forms if any(forms) else b""


class GaussExporter:
    """See `export.Exporter`.

    Args:
        config: configuration of a source of kind gaussdb.
    """

    def __init__(self, config: Config) -> None:
        self._address = source_address(config)
        self._white_list = WhiteList(config.decoding.white_tables)
        self._nudge = config.snapshot.nudge if config.hides_empty_commits else ""
        self._view = CsnView if config.lands_by_csn else View

    def open_view(self, seconds: float, should_stop: Callable[[], bool]) -> View:
        """See `export.Exporter`; a view waits for nobody."""
        return self._view.open(self._address, seconds, should_stop, self._nudge)

    def open_reader(self, statement_seconds: float, should_stop: Callable[[], bool]) -> TableReader:
        """See `export.Exporter`."""
        return TableReader(self._address, self._white_list, statement_seconds, should_stop)
