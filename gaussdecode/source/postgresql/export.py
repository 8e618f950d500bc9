"""Read rows that are already in a PostgreSQL server; implements `export`.

A view is a temporary slot's: the server exports the state of the database exactly after
the slot's consistent point. Its connection does nothing else. Chunks are ranges of pages
(ctid), which need no key and no index and are read in physical order.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Self

from gaussdecode.closing import Closing
from gaussdecode.errors import SourceError
from gaussdecode.model.lsn import Lsn
from gaussdecode.settings.sections import Config
from gaussdecode.source import export
from gaussdecode.source.address import SourceAddress, source_address
from gaussdecode.source.export import (
    COPY_BYTES,
    NO_PRIVILEGE,
    Chunk,
    Measure,
    PublishedTable,
    Reach,
    Shown,
    TableChangedError,
    TableShape,
    column_list,
    conditions,
    hides_rows,
    measure_of,
    measures,
    unreadable,
    without_values,
)
from gaussdecode.source.postgresql._copyout import CopyOut
from gaussdecode.source.postgresql.carried import Changes
from gaussdecode.source.postgresql.connection import (
    ANSWER_SECONDS,
    CANCEL_SECONDS,
    Connection,
    Row,
    connect,
)
from gaussdecode.source.postgresql.libpq import address_of
from gaussdecode.source.postgresql.published import read_published, read_shape
from gaussdecode.source.quoting import identifier, literal, slot_identifier
from gaussdecode.source.slot import PLUGIN

_POLL_SECONDS: Final = 0.1  # how soon a command is given up
_TABLE: Final = """
    SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = {schema} AND c.relname = {name} AND c.relkind IN ('r', 'p')
"""
_HIDES_ROWS: Final = """
    SELECT current_user, bool_or(pg_catalog.row_security_active(c.oid))
    FROM pg_catalog.pg_class c WHERE c.oid IN ({oids})
"""
_SLOT_PART: Final = 40  # of our slot's name in the temporary one's; 63 is the longest


class View(Closing):
    """See `export.View`.

    Attributes:
        lsn: its position.
        through_csn: see `export.View`.
        name: name for SET TRANSACTION SNAPSHOT.
    """

    def __init__(self, connection: Connection, lsn: Lsn, name: str) -> None:
        self.lsn = lsn
        self.through_csn = None
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
            address: address of the server.
            slot: name that the temporary slot's begins with.
            seconds: seconds to wait for the transactions that run on the server, at most.
            should_stop: asked while waiting.

        Raises:
            SourceError: they run longer, or the server failed.
            SourceRefusedError: there is no free slot.
        """
        name = f"{slot[:_SLOT_PART]}_view_{secrets.token_hex(5)}"
        connection = connect(address)
        connection.patience, connection.should_stop = seconds, should_stop
        try:
            word = "(SNAPSHOT 'export')" if connection.server_version >= 150000 else ""
            (row,) = connection.query(
                f"CREATE_REPLICATION_SLOT {slot_identifier(name)} TEMPORARY LOGICAL {PLUGIN} "
                f"{word or 'EXPORT_SNAPSHOT'}"
            )
        except BaseException:
            connection.close()
            raise
        return cls(connection, Lsn.parse(row[1] or ""), row[2] or "")

    def find_position(self, boundary: int, shown: Shown, reach: Reach) -> None:
        """See `export.View`; the position came with the view."""

    def confirm(self, shown: Shown) -> None:
        """See `export.View`; the server itself guarantees it."""

    def close(self) -> None:
        """Let go of it: slot and snapshot go with the connection."""
        self._connection.close()


@contextlib.contextmanager
def held_view(address: SourceAddress, slot: str, seconds: float) -> Iterator[tuple[Lsn, str]]:
    """A view that an ordinary transaction holds: unlike a slot it keeps no WAL, however long it lasts.

    Args:
        address: address of the server.
        slot: name that the temporary slot's begins with.
        seconds: seconds to wait for the transactions that run on the server, at most.

    Yields:
        Its position, and its name for SET TRANSACTION SNAPSHOT.

    Raises:
        SourceError: they run longer, or the server failed.
        SourceRefusedError: there is no free slot.
    """
    with contextlib.closing(connect(address, is_replication=False)) as connection:
        with View.open(address, slot, seconds) as view:
            connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.query(f"SET TRANSACTION SNAPSHOT {literal(view.name)}")
            ((name,),) = connection.query("SELECT pg_catalog.pg_export_snapshot()")
        yield view.lsn, str(name)


@contextlib.contextmanager
def _watched(
    connection: Connection, copy: CopyOut, seconds: float, should_stop: Callable[[], bool]
) -> Iterator[None]:
    """Have a COPY end where a stop is asked for, or where nothing has come of it for some time."""
    is_over = threading.Event()

    def watch() -> None:
        seen, moved_at = copy.progress, time.monotonic()
        is_cancelled = False
        while not is_over.wait(_POLL_SECONDS):
            if should_stop() and not is_cancelled:
                connection.cancel()
                is_cancelled = True
            now = time.monotonic()
            if not copy.is_waiting or copy.progress != seen:
                seen, moved_at = copy.progress, now
            elif now - moved_at > (CANCEL_SECONDS if is_cancelled else seconds):
                connection.break_off()

    watcher = threading.Thread(target=watch, name="copy watcher", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


class TableReader(Closing):
    """See `export.TableReader`.

    Args:
        address: address of the server.
        publications: names.
        statement_seconds: longest statement.
        lock_seconds: longest wait for a lock; changes may be held up meanwhile.
        should_stop: asked while a statement runs.
        is_local_only: the stream leaves out what has an origin.
    """

    is_translated = False

    def __init__(
        self,
        address: SourceAddress,
        publications: Sequence[str],
        statement_seconds: float,
        lock_seconds: float,
        should_stop: Callable[[], bool] = lambda: False,
        *,
        is_local_only: bool = True,
    ) -> None:
        self._publications = publications
        self.connection = connect(address, is_replication=False)
        self._changes = Changes(self.connection, publications, is_local_only=is_local_only)
        self.connection.should_stop = should_stop
        self.connection.patience = (
            statement_seconds + ANSWER_SECONDS
        )  # the server's own comes first
        self._command(f"SET statement_timeout = {int(statement_seconds * 1000)}")
        self._command(f"SET lock_timeout = {int(lock_seconds * 1000)}")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _command(self, text: str) -> list[Row]:
        return self.connection.query(text)

    def nudge(self) -> None:
        """See `export.TableReader`."""
        # A standby gives no transaction id; there the primary's own commits have to do.
        self._command(
            "SELECT CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.txid_current() END"
        )

    def published(self) -> list[PublishedTable]:
        """See `export.TableReader`."""
        return read_published(self.connection, self._publications, self._changes)

    def has_table(self, schema: str, name: str) -> bool:
        """See `export.TableReader`."""
        return bool(self._command(_TABLE.format(schema=literal(schema), name=literal(name))))

    def shape(self, table: PublishedTable) -> TableShape:
        """See `export.TableReader`."""
        return read_shape(self.connection, table, self._changes)

    def check_readable(self, shape: TableShape) -> None:
        """See `export.TableReader`."""
        try:
            for leaf in shape.leaves:
                self._command(f"SELECT {column_list(shape)} FROM {leaf.quoted} LIMIT 0")  # noqa: S608 - quoted
        except SourceError as error:
            if error.sqlstate != NO_PRIVILEGE:
                raise
            oids = ", ".join(str(leaf.oid) for leaf in shape.leaves)
            ((role, has_hidden),) = self._command(_HIDES_ROWS.format(oids=oids))
            if has_hidden == "t":
                raise hides_rows(shape, str(role)) from None
            raise unreadable(shape, str(role)) from None

    # ---- rows ------------------------------------------------------------------------

    def begin(self, view: export.Exported) -> None:
        """See `export.TableReader`."""
        self._command("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        self._command(f"SET TRANSACTION SNAPSHOT {literal(view.name)}")

    def end(self) -> None:
        """See `export.TableReader`."""
        self._command("ROLLBACK")

    def check_files(self, shape: TableShape, leaves: Iterable[int]) -> None:
        """See `export.TableReader`."""
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
        """See `export.TableReader`."""
        condition = " AND ".join([chunk.condition(), *conditions(shape, where)])
        source = shape.leaves[chunk.leaf].quoted
        return self._copy(f"SELECT {column_list(shape)} FROM {source} WHERE {condition}")  # noqa: S608 - quoted above

    def measure_chunk(
        self, shape: TableShape, chunk: Chunk, where: str | None, *, has_checksum: bool
    ) -> Measure:
        """See `export.TableReader`."""
        condition = " AND ".join([chunk.condition(), *conditions(shape, where)])
        wanted = measures(shape, has_checksum=has_checksum)
        source = shape.leaves[chunk.leaf].quoted
        try:
            (row,) = self._command(f"SELECT {wanted} FROM {source} WHERE {condition}")  # noqa: S608 - quoted above
        except SourceError as error:
            raise without_values(error) from None
        return measure_of(row, has_checksum=has_checksum)

    def hash_of(self, text: str) -> int:
        """See `export.TableReader`."""
        ((found,),) = self._command(f"SELECT pg_catalog.hashtext({literal(text)})")
        return int(found or 0)

    def copy_keys(
        self, shape: TableShape, keys: Sequence[int], arrays: Sequence[str], where: str | None
    ) -> Iterator[bytes]:
        """See `export.TableReader`."""
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
        condition = " AND ".join([wanted, *conditions(shape, where)])
        return self._copy(f"SELECT {column_list(shape)} FROM {source} WHERE {condition}")  # noqa: S608

    def _copy(self, select: str) -> Iterator[bytes]:
        connection = self.connection
        assert connection.patience is not None
        try:
            connection.start_copy(f"COPY ({select}) TO STDOUT")
            copy = CopyOut(address_of(connection.pgconn), connection.libpq.addresses)
            with _watched(connection, copy, connection.patience, connection.should_stop):
                while lines := copy.read(COPY_BYTES):
                    yield lines
            connection.end_copy(has_failed=copy.has_failed)
        except SourceError as error:
            raise without_values(error) from None


class PgExporter:
    """See `export.Exporter`.

    Args:
        config: configuration of a source of kind postgresql.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._address = source_address(config)

    def open_view(self, seconds: float, should_stop: Callable[[], bool]) -> View:
        """See `export.Exporter`."""
        return View.open(self._address, self._config.slot, seconds, should_stop)

    def open_reader(self, statement_seconds: float, should_stop: Callable[[], bool]) -> TableReader:
        """See `export.Exporter`."""
        publications = self._config.source.publication
        lock_seconds = self._config.snapshot.hold_timeout
        return TableReader(
            self._address,
            publications,
            statement_seconds,
            lock_seconds,
            should_stop,
            is_local_only=self._config.decoding.only_local,
        )
