"""Write the table of positions: which versions of a target's Delta tables belong together.

It is a Delta table beside the others. It has a row for each of them and each apply that changed it. The
versions of all tables at an entry are the last ones up to it. It is written after the tables and before
the version of the database. After a kill it may be ahead by one apply, which the next one does not add
again.
"""

import dataclasses
import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from gaussdecode.errors import OvertakenError
from gaussdecode.spark.log.place import Place, read_table
from gaussdecode.spark.log.sql_text import dotted
from gaussdecode.spark.target.catalog_names import Name, name_of, positions_name
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.delta_log import DeltaLog, path_of
from gaussdecode.spark.target.delta_schema import delta_schema, protocol_of
from gaussdecode.spark.target.state_file import CURRENT, write_state
from gaussdecode.spark.target.store import Target

POSITIONS: Final = "positions"
SCHEMA: Final = pa.schema(
    {
        "landing": pa.string(),
        "n": pa.int64(),
        "epoch": pa.int32(),
        "lsn": pa.int64(),
        "csn": pa.int64(),
        "commit_time": pa.timestamp("us", tz="UTC"),
        "source_table": pa.string(),
        "path": pa.string(),
        "name": pa.string(),
        "version": pa.int64(),
    }
)
_FILES: Final = 100
"""Number of files that are rewritten as one; arbitrary."""


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """A version of one Delta table that belongs to a version of the database.

    Attributes:
        place: directory of the Delta table.
        name: parts of its name in the target's catalog; empty without one.
        version: version of the Delta table.
        title: title of the source's table; empty for the table of positions.
        path: path of the directory, below the target.
        hides: whether our own columns are not shown.
    """

    place: Place
    name: Name
    version: int
    title: str = ""
    path: str = POSITIONS
    hides: bool = False


def published(
    store: Target, newest: DatabaseVersion, before: DatabaseVersion | None
) -> list[Published]:
    """Delta tables that changed since the previous database version, without the table of positions."""
    known = {} if before is None else before.tables
    return [
        one
        for table, v in newest.tables.items()
        if known.get(table) != v
        for one in of_table(
            store, table, store.log(table).numbers(v), store.schema_at(newest, table).title
        )
    ]


def of_table(
    store: Target, table: str, numbers: Mapping[str, int], title: str = ""
) -> Iterator[Published]:
    """Versions of the Delta tables of a table, by folder."""
    root = store.table_root(table)
    for folder, version in numbers.items():
        name: Name = ()
        if store.catalog:
            *space, last = name_of(store.catalog, table)
            name = (*space, last if folder == CURRENT else f"{last}_{folder}")
        hides = store.hides and folder == CURRENT
        yield Published(root / folder, name, version, title, f"tables/{table}/{folder}", hides)


def of_positions(store: Target) -> Published:
    """The newest version of the table of positions."""
    place = store.root / POSITIONS
    name = positions_name(store.catalog) if store.catalog else ()
    return Published(place, name, DeltaLog(place).newest())


def publish_positions(store: Target, newest: DatabaseVersion, of: Sequence[Published]) -> None:
    """Write the rows for a database version that is about to be committed.

    Raises:
        OvertakenError: another writer committed first.
    """
    log, app = DeltaLog(store.root / POSITIONS), f"gaussdecode-{store.landing_id}"
    snapshot = log.snapshot()
    at = snapshot.transactions.get(app, {}).get("version", -1)
    rows = [] if at >= newest.k else list(_rows(store, newest, of))
    if not rows:
        return
    now = time.time_ns() // 1_000_000
    actions: list[Mapping[str, Any]] = [
        {"commitInfo": {"timestamp": now, "operation": "gaussdecode apply"}},
        {"txn": {"appId": app, "version": newest.k, "lastUpdated": now}},
    ]
    if snapshot.version < 0:
        schema, _ = delta_schema(SCHEMA)
        actions.append({"protocol": protocol_of(schema, {}, with_vectors=False)})
        metadata = {"id": store.landing_id, "format": {"provider": "parquet", "options": {}}}
        metadata |= {"schemaString": schema, "partitionColumns": [], "configuration": {}}
        actions.append({"metaData": {**metadata, "createdTime": now}})
    tables = [pa.Table.from_pylist(rows, schema=SCHEMA)]
    if len(snapshot.adds) >= _FILES:
        for add in snapshot.adds.values():
            tables.append(read_table(log.root / path_of(add)))
            gone = {"path": add["path"], "deletionTimestamp": now, "dataChange": True}
            actions.append({"remove": gone})
    file = write_state(pa.concat_tables(tables), log.root, str(newest.k), "")
    added = {"path": file.path, "partitionValues": {}, "size": file.bytes}
    added |= {"modificationTime": now, "dataChange": True, "stats": file.stats}
    if log.commit(snapshot, [*actions, {"add": added}]) is None:
        raise OvertakenError(
            f"{log.root} was committed by another writer at the same time; run it again"
        )


def _rows(
    store: Target, newest: DatabaseVersion, of: Sequence[Published]
) -> Iterator[dict[str, Any]]:  # Any: values of SCHEMA
    at = newest.commit_time
    for one in of:
        yield {
            "landing": store.landing_id,
            "n": newest.n,
            "epoch": newest.epoch,
            "lsn": newest.lsn,
            "csn": newest.csn,
            "commit_time": None if at is None else dt.datetime.fromisoformat(at),
            "source_table": one.title,
            "path": one.path,
            "name": dotted(one.name) or None,
            "version": one.version,
        }
