"""The table of positions: which versions of the Delta tables of a target belong together.

A Delta table beside them, with one row for each of them and apply that changed it. The versions of all
tables at an entry are the last ones up to it. It goes after the tables and before the version of the
database, so it lacks none of these; after a kill it may be ahead by one, which the next apply does not add again.
"""

import datetime as dt
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from gaussdecode.errors import LandingError
from gaussdecode.spark.deltalog import DeltaLog, path_of
from gaussdecode.spark.deltaschema import delta_schema, protocol_of
from gaussdecode.spark.place import read_table
from gaussdecode.spark.statefile import write_state
from gaussdecode.spark.store import DatabaseVersion, Target

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
        "version": pa.int64(),
    }
)
_FILES: Final = 100
"""So many files are written anew as one; arbitrary."""
Row = dict[str, Any]  # Any: values of SCHEMA


def publish_positions(
    store: Target, newest: DatabaseVersion, before: DatabaseVersion | None
) -> None:
    """Write what a version of the database is about to say.

    Raises:
        LandingError: another writer was quicker.
    """
    log, app = DeltaLog(store.root / POSITIONS), f"gaussdecode-{store.landing_id}"
    snapshot = log.snapshot()
    at = snapshot.transactions.get(app, {}).get("version", -1)
    rows = [] if at >= newest.k else list(_rows(store, newest, before))
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
            of = {"path": add["path"], "deletionTimestamp": now, "dataChange": True}
            actions.append({"remove": of})
    file = write_state(pa.concat_tables(tables), log.root, str(newest.k), "")
    added = {"path": file.path, "partitionValues": {}, "size": file.bytes}
    added |= {"modificationTime": now, "dataChange": True, "stats": file.stats}
    if log.commit(snapshot, [*actions, {"add": added}]) is None:
        raise LandingError(
            f"{log.root} was committed by another writer at the same time; run it again"
        )


def _rows(store: Target, newest: DatabaseVersion, before: DatabaseVersion | None) -> Iterator[Row]:
    known = {} if before is None else before.tables
    at = newest.commit_time
    for table, v in newest.tables.items():
        if known.get(table) == v:
            continue
        title = store.schema_at(newest, table).title
        for folder, version in store.log(table).numbers(v).items():
            yield {
                "landing": store.landing_id,
                "n": newest.n,
                "epoch": newest.epoch,
                "lsn": newest.lsn,
                "csn": newest.csn,
                "commit_time": None if at is None else dt.datetime.fromisoformat(at),
                "source_table": title,
                "path": f"tables/{table}/{folder}",
                "version": version,
            }
